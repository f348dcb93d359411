"""Spring-dampers and loads on bodies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xsim.io.chrono.document import Item
from xsim.io.chrono.values import Reading, axis, coefficient, find_body, frame_quat, read_function, read_pair, table
from xsim.poses import IDENTITY_QUAT, Pose, rotate
from xsim.spec import ForceSpec, FunctionSpec

__all__ = ["read_load", "read_load_controller", "read_rsda", "read_spring_damper", "read_tsda"]

_SPRING, _DAMPING = ("spring_coefficient", "spring_curve_data"), ("damping_coefficient", "damping_curve_data")
_STOPS = ("minimum_length", "maximum_length")
_DEGRESSIVE = ("degressivity_compression", "degressivity_expansion")


def read_spring_damper(item: Item, reading: Reading) -> ForceSpec | None:
    """An entry of ``spring_dampers``, of one of two types."""
    return _TYPES[item.choice("type", _TYPES)](item, reading)


def read_tsda(item: Item, reading: Reading) -> ForceSpec | None:
    """An entry of ``tsdas``: along the line between two points, positive when it pushes them apart. None without any law."""
    if item.has("type"):
        item.choice("type", ("TSDA",))
    name, pair = item.text("name"), read_pair(item, reading)
    one, two = item.vector("point1"), item.vector("point2")
    _skip_visualization(item)
    length = float(np.linalg.norm(one - two))
    if length == 0:
        text = f"{item}: point1 and point2 coincide: the force has no direction there"
        reading.notes.suspicious(item.line_of("point1"), text, item.file)
    if item.has("map_data") or item.has("deformation"):
        law = {"map": _map(item), "preload": item.number("preload", 0.0)}
        reading.without_effect(item, (*_SPRING, *_DAMPING), "map_data takes its place")
        reading.without_effect(item, ("free_length", *_STOPS), "map_data is over the length itself")
    else:
        law = _law(item, reading)
        springy = "spring" in law or "stiffness" in law
        if springy:
            law["rest"] = item.number("free_length", length, nonnegative=True)
            if not item.has("free_length"):
                text = f"{item}: free_length is missing, the length {length:g} in the reference pose is taken"
                reading.notes.suspicious(item.line, text, item.file)
        if springy and all(item.has(key) for key in _STOPS):
            least, largest = law["stops"] = tuple(item.number(key, nonnegative=True) for key in _STOPS)
            if not least < largest:
                raise item.error(f"found {least:g} with maximum_length {largest:g}; allowed: less", "minimum_length")
        else:
            reading.without_effect(item, _STOPS, "stops act with a spring only, and both together")
        if not springy:
            reading.without_effect(item, ("free_length",), "there is no spring")
    if pair.idle or not _acts(item, law, reading):
        return None
    frames = reading.in_body(pair.one, IDENTITY_QUAT, one), reading.in_body(pair.two, IDENTITY_QUAT, two)
    return ForceSpec("spring", name, pair[:2], frames, source=item.source, **law)


def read_rsda(item: Item, reading: Reading) -> ForceSpec | None:
    """An entry of ``rsdas``: about an axis, on body2 by its angle relative to body1, zero in the reference pose. None without any law."""
    if item.has("type"):
        item.choice("type", ("RSDA",))
    name, pair = item.text("name"), read_pair(item, reading)
    location, quat = item.vector("location", 3, np.zeros(3)), frame_quat(axis(item, "axis"))
    _skip_visualization(item)
    law = _law(item, reading)
    if "spring" in law or "stiffness" in law:
        law["rest"] = item.number("free_angle", 0.0) * reading.angle
        if not item.has("free_angle"):
            reading.notes.suspicious(item.line, f"{item}: free_angle is missing, 0 is taken", item.file)
    else:
        reading.without_effect(item, ("free_angle",), "there is no spring")
    if pair.idle or not _acts(item, law, reading):
        return None
    frames = reading.in_body(pair.one, quat, location), reading.in_body(pair.two, quat, location)
    return ForceSpec("torsion", name, pair[:2], frames, source=item.source, **law)


_TYPES: dict[str, Callable[[Item, Reading], ForceSpec | None]] = {"TSDA": read_tsda, "RSDA": read_rsda}


def _law(item: Item, reading: Reading) -> dict:
    """Fields of ForceSpec that give the force by deflection and rate: tables or coefficients."""
    law: dict = {}
    for key in _DEGRESSIVE:
        if item.has(key):
            raise item.error("degressive dampers are not simulated; allowed: damping_coefficient or damping_curve_data without it", key)
    curves = [key for key in (_SPRING[1], _DAMPING[1]) if item.has(key)]
    for curve, (coefficient_key, curve_key) in ((_SPRING[1], _DAMPING), (_DAMPING[1], _SPRING)):
        if item.has(curve) and not item.has(curve_key) and item.has(coefficient_key):
            raise item.error(f"stands beside {curve}; allowed: {curve_key}, or coefficients for both", coefficient_key)
    if curves:
        reading.without_effect(item, (_SPRING[0], _DAMPING[0]), "curve data take its place")
        names = {_SPRING[1]: "spring", _DAMPING[1]: "damper"}
        law |= {names[key]: table(item, key) for key in curves}
    else:
        names = {_SPRING[0]: "stiffness", _DAMPING[0]: "damping"}
        law |= {names[key]: coefficient(item, key, reading) for key in names if item.has(key)}
    if "spring" in law or "stiffness" in law:
        law["preload"] = item.number("preload", 0.0)
    else:
        reading.without_effect(item, ("preload",), "there is no spring")
    return law


def _acts(item: Item, law: dict, reading: Reading) -> bool:
    if law:
        return True
    text = f"{item}: has no effect: none of {', '.join((*_SPRING, *_DAMPING))} is given"
    reading.notes.suspicious(item.line, text, item.file)
    return False


def _map(item: Item) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """rates (m,), lengths (n,), forces (m, n)."""
    for key, other in (("deformation", "map_data"), ("map_data", "deformation")):
        if not item.has(key):
            raise item.error(f"is missing; allowed: together with {other}", key)
    lengths = item.vector("deformation", None)
    rows = item.rows("map_data", len(lengths) + 1)
    for key, x in (("deformation", lengths), ("map_data", rows[:, 0])):
        if len(x) < 2 or (np.diff(x) <= 0).any():
            what = "numbers" if key == "deformation" else "rates (the first number of each row)"
            raise item.error(f"found {len(x)} {what}; allowed: two or more, ascending", key)
    return rows[:, 0], lengths, rows[:, 1:]


def _skip_visualization(item: Item) -> None:
    """Read over how the element looks."""
    visualization = item.item("visualization")
    if visualization is not None:
        if visualization.has("type"):
            visualization.choice("type", ("segment", "spring"))
        visualization.skip("color", "radius", "resolution", "turns")


# ---- loads -------------------------------------------------------------------------------------------------------------------


def read_load(item: Item, reading: Reading) -> list[ForceSpec]:
    """An entry of ``body_loads``: a force or torque that a function may modulate."""
    name, vector, function = item.text("name"), item.vector("load"), None
    if item.has("modulation_function"):
        function = read_function(item, "modulation_function", reading, name)
    return _load(item, name, [(name, vector, function)], reading)


def read_load_controller(item: Item, reading: Reading) -> list[ForceSpec]:
    """An entry of ``load_controllers``: three controls ``NAME_x``, ``NAME_y``, ``NAME_z``, the components of the load."""
    name = item.text("name")
    parts = []
    for i, letter in enumerate("xyz"):
        control = FunctionSpec("external", np.zeros(0), name=f"{name}_{letter}", source=item.source)
        parts.append((control.name, np.eye(3)[i], control))
    return _load(item, name, parts, reading)


def _load(item: Item, name: str, parts: list, reading: Reading) -> list[ForceSpec]:
    """ForceSpecs of the (name, vector, function). Local vectors and points are along and in the centroidal frame."""
    force = item.choice("type", ("FORCE", "TORQUE")) == "FORCE"
    body = find_body(item, "body", reading)
    centre, local, at_world = reading.centres[body], item.boolean("local_load", True), False
    pos = centre.pos
    if force:
        point, at_world = item.vector("point"), not item.boolean("local_point", True)
        pos = point if at_world else (centre @ Pose(pos=point)).pos
    else:
        reading.without_effect(item, ("point", "local_point"), "a torque has no point")
    if reading.links[body].welded:
        reading.notes.suspicious(item.line, f"{item}: has no effect: the body is fixed", item.file)
        return []
    return [
        ForceSpec(
            "load", called, (body,), ((pos, IDENTITY_QUAT),), driven="slide" if force else "hinge", function=function,
            vector=rotate(centre.quat, vector) if local else vector, local=local, at_world=at_world, source=item.source,
        )
        for called, vector, function in parts
    ]  # fmt: skip
