"""x_xy, the XML of RING: reader and writer.

Where the format differs from xsim: the ``gravity`` attribute is the upward acceleration of the base (minus free fall); quaternions
in the file map parent to child coordinates; cylinders and capsules lie along local x and give full lengths; free joints put the
rotation before the translation. All of it is translated here, in both directions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from lxml import etree

from xsim.io.errors import Notes, allowed
from xsim.io.formats import Format
from xsim.io.reader import Element, parse_xml
from xsim.joints.types import JOINT_TYPES
from xsim.poses import IDENTITY_QUAT, quat_mul, quat_rpy, rotation_matrix
from xsim.spec import BodySpec, GeomSpec, JointSpec, MarkerSpec, ModelSpec, OptionSpec

__all__ = ["FORMAT", "TYPES", "q_from_xsim", "q_to_xsim", "read", "to_x_xy", "v_to_xsim"]


class JointMap(NamedTuple):
    """How a joint type of the file maps to xsim's: q[k] of xsim is q[q_order[k]] of the file, likewise v."""

    type: str
    axes: tuple | None = None
    q_order: tuple[int, ...] | None = None
    v_order: tuple[int, ...] | None = None
    quat: int | None = None  # where xsim's q holds a quaternion (conjugated in the file)
    turned: tuple[int, ...] = ()  # xsim's v of translations that RING measures in body axes
    random: bool = False


_X, _Y, _Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
TYPES: dict[str, JointMap] = {
    "free": JointMap("free", None, (4, 5, 6, 0, 1, 2, 3), (3, 4, 5, 0, 1, 2), 3, (0, 1, 2)),
    "cor": JointMap("cor", None, (4, 5, 6, 0, 1, 2, 3, 7, 8, 9), (3, 4, 5, 0, 1, 2, 6, 7, 8), 3, (0, 1, 2)),
    "free_2d": JointMap("planar", (_Y, _Z, _X), (1, 2, 0), (1, 2, 0), None, (0, 1)),
    "frozen": JointMap("fixed"),
    "spherical": JointMap("ball", quat=0),
    "px": JointMap("slide", (_X,)),
    "py": JointMap("slide", (_Y,)),
    "pz": JointMap("slide", (_Z,)),
    "rx": JointMap("hinge", (_X,)),
    "ry": JointMap("hinge", (_Y,)),
    "rz": JointMap("hinge", (_Z,)),
    "saddle": JointMap("universal", (_Y, _Z)),
    "p3d": JointMap("p3d"),
    "rr": JointMap("rr", random=True),
    "rr_imp": JointMap("rr_imp", random=True),
    "rsaddle": JointMap("rsaddle", random=True),
}

COLORS = {
    "self": (0.9, 0.6, 0.2), "effector": (0.9, 0.4, 0.4), "decoration": (0.4, 0.7, 0.4), "eye": (0.0, 0.2, 1.0),
    "target": (0.6, 0.3, 0.3), "site": (0.6, 0.6, 0.6), "red": (0.8, 0.2, 0.2), "green": (0.2, 0.8, 0.2), "blue": (0.2, 0.2, 0.8),
    "yellow": (0.8, 0.8, 0.2), "cyan": (0.2, 0.8, 0.8), "magenta": (0.8, 0.2, 0.8), "white": (0.8, 0.8, 0.8), "gray": (0.5, 0.5, 0.5),
    "brown": (0.6, 0.3, 0.0), "orange": (0.8, 0.5, 0.0), "pink": (0.8, 0.75, 0.8), "purple": (0.5, 0.2, 0.5), "lime": (0.5, 0.8, 0.0),
    "gold": (0.8, 0.84, 0.0), "black": (0.0, 0.0, 0.0), "matplotlib_green": (0.0, 0.502, 0.0), "matplotlib_blue": (0.122, 0.467, 0.706),
    "matplotlib_lightblue": (0.678, 0.847, 0.902), "matplotlib_salmon": (0.98, 0.502, 0.447), "dustin_exp_blue": (0.176, 0.333, 0.6),
    "dustin_exp_white": (0.878, 0.871, 0.851), "dustin_exp_orange": (0.835, 0.424, 0.2),
}  # fmt: skip

_BODY = ("name", "joint", "pos", "pos_min", "pos_max", "quat", "euler", "damping", "armature", "spring_stiff", "spring_zero", "axes")
_GEOM = ("type", "mass", "pos", "dim", "size", "quat", "euler", "color", "edge_color")
_DIMS = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2, "xyz": 1}
_SHAPES = {"box": "box", "sphere": "sphere", "cylinder": "cylinder", "capsule": "capsule", "xyz": "axes"}
_LYING = np.array([0.5**0.5, 0.0, 0.5**0.5, 0.0])  # turns z to x
_IDENTITY = IDENTITY_QUAT
_CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


def _euler_quat(degrees) -> np.ndarray:
    """Child to parent quaternion of R = Rz Ry Rx."""
    return quat_rpy(*np.deg2rad(degrees))


# ---- reading -----------------------------------------------------------------------------------------------------------------


def read(data: bytes | str, file: str, notes: Notes) -> ModelSpec:
    """ModelSpec of an x_xy document. Raises ParseError; adds suspicious input to ``notes``."""
    root = parse_xml(data, file)
    if root.tag != "x_xy":
        raise root.error("the root element must be <x_xy>")
    root.only(("name", "model"))
    root.no_text()
    if root.has("name") and root.has("model") and root.raw("name") != root.raw("model"):
        raise root.error(f"name {root.raw('name')!r} and model {root.raw('model')!r} disagree; allowed: one of them, or both equal")
    sections: dict[str, Element] = {}
    for child in root.children():
        if child.tag not in ("options", "defaults", "worldbody"):
            raise child.error(f"unknown element; {allowed(child.tag, ('options', 'defaults', 'worldbody'))}")
        if child.tag in sections:
            raise child.error(f"second <{child.tag}> (the first is in line {sections[child.tag].line}); allowed: one")
        sections[child.tag] = child
    if "worldbody" not in sections:
        raise root.error("<worldbody> is missing")
    body_defaults, geom_defaults = _defaults(sections.get("defaults"))
    bodies, world_geoms = _bodies(sections["worldbody"], body_defaults, geom_defaults, notes)
    if not bodies:
        raise sections["worldbody"].error("holds no <body>; allowed: one or more")
    return ModelSpec(
        name=root.raw("name") or root.raw("model") or "",
        format="x_xy",
        bodies=tuple(bodies),
        world_geoms=tuple(world_geoms),
        option=_options(sections.get("options"), notes),
        source=root.source,
    )


FORMAT = Format("x_xy", "x_xy XML", read, roots=("x_xy",))


def _options(element: Element | None, notes: Notes) -> OptionSpec:
    gravity, dt = np.array([0.0, 0.0, 9.81]), 0.01
    if element is not None:
        element.only(("gravity", "dt"))
        element.no_text()
        for child in element.children():
            raise child.error("unknown element; <options> holds none")
        gravity = element.floats("gravity", 3, gravity)
        dt = element.number("dt", dt, positive=True)
        if gravity[2] < 0:
            notes.suspicious(element.line, f"{element}: gravity: the attribute points up (bodies fall along minus it), its z is negative")
    # 0 - x: no negative zeros
    return OptionSpec(gravity=0.0 - gravity, dt=dt, integrator="implicit_damping", regularization=1e-6)


def _defaults(element: Element | None) -> tuple[Element | None, Element | None]:
    defaults: dict[str, Element] = {}
    if element is not None:
        element.only(())
        element.no_text()
        for child in element.children():
            if child.tag not in ("body", "geom"):
                raise child.error(f"unknown element in <defaults>; {allowed(child.tag, ('body', 'geom'))}")
            if child.tag in defaults:
                raise child.error(f"second default <{child.tag}> (the first is in line {defaults[child.tag].line}); allowed: one")
            child.only([a for a in (_BODY if child.tag == "body" else _GEOM) if a not in ("name", "axes")])
            child.no_text()
            for inner in child.children():
                raise inner.error(f"unknown element in a default <{child.tag}>; it holds none")
            defaults[child.tag] = child
    return defaults.get("body"), defaults.get("geom")


def _bodies(world: Element, body_defaults, geom_defaults, notes: Notes):
    world.only(())
    world.no_text()
    bodies: list[BodySpec] = []
    geoms: dict[int, list[GeomSpec]] = {-1: []}
    markers: dict[int, list[MarkerSpec]] = {}
    seen: dict[str, int] = {}
    stack = [(child, -1) for child in reversed(list(world.children()))]
    while stack:
        element, parent = stack.pop()
        if element.tag == "geom":
            geoms[parent].append(_geom(element.with_defaults(geom_defaults), notes))
        elif element.tag == "omc" and parent >= 0:
            if markers[parent]:
                raise element.error(f"second <omc> in body {bodies[parent].name!r}; allowed: one")
            markers[parent].append(_marker(element))
        elif element.tag == "body":
            body = _body(element.with_defaults(body_defaults), parent, notes)
            if body.name in seen:
                raise element.error(f"the name is taken by the body in line {seen[body.name]}; names must differ", "name")
            seen[body.name] = element.line
            index = len(bodies)
            bodies.append(body)
            geoms[index], markers[index] = [], []
            stack.extend((child, index) for child in reversed(list(element.children())))
        else:
            names = ("body", "geom") if parent < 0 else ("body", "geom", "omc")
            raise element.error(f"unknown element; {allowed(element.tag, names)}")
    bodies = [replace(b, geoms=tuple(geoms[i]), markers=tuple(markers[i])) for i, b in enumerate(bodies)]
    return bodies, geoms[-1]


def _orientation(element: Element, notes: Notes) -> np.ndarray:
    """Child to parent quaternion from quat or euler."""
    if element.has("quat") and element.has("euler"):
        raise element.error("quat and euler are both given; allowed: one of them", "quat" if element.is_explicit("quat") else "euler")
    euler = element.floats("euler", 3)
    if euler is not None:
        return _euler_quat(euler)
    quat = element.floats("quat", 4, _IDENTITY)
    norm = math.hypot(*quat)
    if not 1e-9 < norm < 1e9:
        raise element.error("the quaternion is zero" if norm < 1 else f"the quaternion has norm {norm:.6g}; allowed: near 1", "quat")
    if abs(norm - 1) > 1e-3:
        notes.suspicious(element.line, f"{element}: quat has norm {norm:.6g}; it was normalized")
    return quat * _CONJUGATE / norm if norm != 1.0 else quat * _CONJUGATE


def _body(element: Element, parent: int, notes: Notes) -> BodySpec:
    element.only(_BODY)
    element.no_text()
    name = element.string("name")
    kind = element.string("joint")
    known = [*TYPES, *(t for t in JOINT_TYPES if t not in _BUILT_IN)]
    if kind not in known:
        raise element.error(f"unknown joint type {kind!r}; {allowed(kind, known)} (xsim.register_joint adds types)", "joint")
    low, high = element.floats("pos_min", 3), element.floats("pos_max", 3)
    if (low is None) != (high is None):
        missing, given = ("pos_max", "pos_min") if high is None else ("pos_min", "pos_max")
        raise element.error(f"is given without {missing}; allowed: both or none", given)
    if low is not None:
        if (low > high).any():
            raise element.error(f"{low} is above pos_max {high}", "pos_min")
        if (low == high).all():
            raise element.error(f"equals pos_max {high} in all coordinates; allowed: a range", "pos_min")
    return BodySpec(
        name=name,
        parent=parent,
        joints=(_joint(element, kind),),
        pos=element.floats("pos", 3, np.zeros(3)),
        quat=_orientation(element, notes),
        pos_min=low,
        pos_max=high,
        pos_given=element.has("pos") or low is None,
        source=element.source,
    )


_BUILT_IN = frozenset(JOINT_TYPES)


def _joint(element: Element, kind: str) -> JointSpec:
    entry = TYPES.get(kind, JointMap(kind))
    joint_type = JOINT_TYPES[entry.type]
    nq, nv = joint_type.nq, joint_type.nv
    v_order = list(entry.v_order or range(nv))
    vectors = {}
    for ours, theirs in (("damping", "damping"), ("armature", "armature"), ("stiffness", "spring_stiff")):
        value = element.floats(theirs)
        if value is not None:
            _sized(element, theirs, value, nv, kind)
            if (value < 0).any():
                raise element.error(f"found {value}; allowed: numbers >= 0", theirs)
            vectors[ours] = value[v_order]
    zero = element.floats("spring_zero")
    if zero is not None:
        _sized(element, "spring_zero", zero, nq, kind)
        zero = zero[list(entry.q_order or range(nq))]
        if entry.quat is not None:
            part = slice(entry.quat, entry.quat + 4)
            norm = math.hypot(*zero[part])
            if abs(norm - 1) > 1e-5:
                raise element.error(f"the quaternion has norm {norm:.6g}; allowed: 1", "spring_zero")
            zero[part] *= _CONJUGATE
    params = {} if entry.axes is None else {"axes": np.array(entry.axes)}
    axes = element.floats("axes")
    if axes is not None:
        if not entry.random:
            raise element.error(f"only joints with sampled axes record them ({', '.join(k for k, t in TYPES.items() if t.random)})", "axes")
        shape = joint_type.parameters["axes"].shape
        _sized(element, "axes", axes, shape[0] * 3, kind)
        axes = axes.reshape(shape)
        if not all(1e-9 < math.hypot(*axis) < 1e9 for axis in axes):
            raise element.error("an axis is zero or far too long; allowed: directions", "axes")
        params = {"axes": axes}
    law = "body" if entry.turned else "joint"
    return JointSpec(
        type=entry.type, name=element.string("name"), params=params, spring_ref=zero, damper_axes=law, armature_axes=law,
        source=element.source, **vectors,
    )  # fmt: skip


def _sized(element: Element, name: str, value, width: int, kind: str) -> None:
    if len(value) != width:
        raise element.error(f"found {len(value)} numbers; a {kind} joint takes {width}", name)


def _geom(element: Element, notes: Notes) -> GeomSpec:
    element.only(_GEOM)
    element.no_text()
    for child in element.children():
        raise child.error("unknown element; <geom> holds none")
    kind = element.choice("type", _DIMS)
    if element.has("dim") and element.has("size"):
        raise element.error("dim and size are both given; allowed: one of them", "size")
    attribute = "size" if element.has("size") else "dim"
    dim = element.floats(attribute, _DIMS[kind], [1.0] if kind == "xyz" else None)
    if dim is None:
        raise element.error(f"attribute 'dim' is missing; a {kind} takes {_DIMS[kind]} numbers")
    if not (dim > 0).all():
        raise element.error(f"found {dim}; allowed: numbers > 0", attribute)
    mass = element.number("mass", 0.0 if kind == "xyz" else None, nonnegative=True)
    if kind == "xyz" and mass and element.is_explicit("mass"):
        notes.suspicious(element.line, f"{element}: mass: a marker has none; found {mass:g}, read as 0")
    quat = _orientation(element, notes)
    if kind in ("cylinder", "capsule"):
        dim, quat = np.array([dim[0], dim[1] / 2]), quat_mul(quat, _LYING)
    elif kind == "box":
        dim = dim / 2
    color, edge = element.raw("color"), element.raw("edge_color")
    return GeomSpec(
        shape=_SHAPES[kind],
        size=dim,
        mass=0.0 if kind == "xyz" else mass,
        pos=element.floats("pos", 3, np.zeros(3)),
        quat=quat,
        rgba=_rgba(element, "color", color, notes),
        edge_rgba=_rgba(element, "edge_color", edge, notes),
        color=color,
        edge_color=edge,
        source=element.source,
    )


def _rgba(element: Element, attribute: str, text: str | None, notes: Notes) -> Any:
    """A colour never fails a load: what cannot be read is drawn gray, with a warning."""
    if text is None:
        return None
    if text.strip() in COLORS:
        return (*COLORS[text.strip()], 1.0)
    try:
        numbers = tuple(float(x) for x in text.split())
    except ValueError:
        numbers = ()
    if len(numbers) not in (3, 4) or not all(0 <= x <= 1 for x in numbers):
        notes.suspicious(element.line, f"{element}: {attribute}: {text!r} is no colour (a name, or 3 or 4 numbers in 0..1); drawn gray")
        return (0.5, 0.5, 0.5, 1.0)
    return (*numbers, 1.0)[:4]


def _marker(element: Element) -> MarkerSpec:
    element.only(("name", "pos_marker", "pos"))
    element.no_text()
    for child in element.children():
        raise child.error("unknown element; <omc> holds none")
    return MarkerSpec(element.raw("name"), element.integer("pos_marker"), element.floats("pos", 3), element.source)


# ---- coordinates of the format ------------------------------------------------------------------------------------------------


def joint_map(body: BodySpec) -> tuple[str, JointMap]:
    """Name and map of a body's joint in this format. Raises ValueError for a joint that the format has no name for."""
    axes: Any = body.joint.params.get("axes")
    for name, entry in TYPES.items():
        if entry.type == body.joint.type and (entry.axes is None or np.array_equal(entry.axes, axes)):
            return name, entry
    if body.joint.type not in _BUILT_IN:
        return body.joint.type, JointMap(body.joint.type)
    raise ValueError(f"body {body.name!r}: x_xy has no joint type for {body.joint.type} with axes {axes}")


def _by_body(spec: ModelSpec, q):
    """(joint map, width of q, the body's part of q) per body."""
    q, at = np.asarray(q, float), 0
    for body in spec.bodies:
        n = JOINT_TYPES[body.joint.type].nq
        yield joint_map(body)[1], n, q[..., at : at + n]
        at += n


def _conjugated(q, start: int | None) -> np.ndarray:
    q = np.array(q)
    if start is not None:
        q[..., start + 1 : start + 4] *= -1
    return q


def q_to_xsim(spec: ModelSpec, q) -> np.ndarray:
    """xsim's q of the format's q: (..., nq)."""
    parts = [_conjugated(part[..., list(entry.q_order or range(n))], entry.quat) for entry, n, part in _by_body(spec, q)]
    return np.concatenate(parts, -1)


def q_from_xsim(spec: ModelSpec, q) -> np.ndarray:
    """The format's q of xsim's q: (..., nq)."""
    parts = [_conjugated(part, entry.quat)[..., np.argsort(entry.q_order or range(n))] for entry, n, part in _by_body(spec, q)]
    return np.concatenate(parts, -1)


def turning(spec: ModelSpec, q) -> np.ndarray:
    """T (nv, nv) with v_xsim = T v_format at the format's q: (nq,): order, and translations turned from body to joint axes."""
    blocks, at = [], 0
    for body in spec.bodies:
        entry, kind = joint_map(body)[1], JOINT_TYPES[body.joint.type]
        block = np.eye(kind.nv)[list(entry.v_order or range(kind.nv))]
        joint_q = np.asarray(q, float)[at : at + kind.nq]
        at += kind.nq
        if entry.turned:
            quat = joint_q[:4] * _CONJUGATE if entry.quat is not None else np.array([np.cos(joint_q[0] / 2), np.sin(joint_q[0] / 2), 0, 0])
            R = rotation_matrix(quat)
            k = len(entry.turned)
            full = np.eye(kind.nv)
            full[:k, :k] = R if k == 3 else R[1:, 1:]
            block = full @ block
        blocks.append(block)
    n = sum(len(b) for b in blocks)
    out, at = np.zeros((n, n)), 0
    for b in blocks:
        out[at : at + len(b), at : at + len(b)] = b
        at += len(b)
    return out


def v_to_xsim(spec: ModelSpec, q, v) -> np.ndarray:
    """xsim's v of the format's q (nq,) and v (nv,) (RING measures the translations of free, cor and free_2d in body axes)."""
    return turning(spec, q) @ np.asarray(v, float)


# ---- writing -----------------------------------------------------------------------------------------------------------------


def _numbers(x) -> str:
    return " ".join(repr(float(v)) for v in np.atleast_1d(x))


def _set(element, name: str, value, default=None) -> None:
    if value is not None and (default is None or not np.array_equal(value, default)):
        element.set(name, _numbers(value))


def to_x_xy(spec: ModelSpec) -> str:
    """A spec as the text of an x_xy file, which reads back as this spec, in full precision.

    Sampled axes of rr, rr_imp and rsaddle that the spec has are written in the attribute ``axes``, an extension that `read` knows.
    Raises ValueError for what the format cannot say (explicit inertia, other joints or shapes, other options).
    """
    root = etree.Element("x_xy")
    if spec.name:
        root.set("name", spec.name)
    option = spec.option
    if option.regularization != 1e-6 or option.integrator != "implicit_damping":
        raise ValueError("x_xy knows one integration rule only: implicit_damping with regularization 1e-6")
    etree.SubElement(root, "options", gravity=_numbers(0.0 - option.gravity), dt=_numbers(option.dt))
    world = etree.SubElement(root, "worldbody")
    for geom in spec.world_geoms:
        _write_geom(world, geom)
    elements: list = []
    for body in spec.bodies:
        parent = world if body.parent < 0 else elements[body.parent]
        elements.append(_write_body(parent, body))
    etree.indent(root, "  ")
    return etree.tostring(root, encoding="unicode") + "\n"


def _write_body(parent, body: BodySpec):
    if body.inertial is not None:
        raise ValueError(f"body {body.name!r}: x_xy cannot say explicit inertia")
    name, entry = joint_map(body)
    joint, kind = body.joint, JOINT_TYPES[body.joint.type]
    law = "body" if entry.turned else "joint"
    if (joint.damper_axes, joint.armature_axes) != (law, law):
        raise ValueError(f"body {body.name!r}: x_xy damps a {name} joint along {law} axes")
    element = etree.SubElement(parent, "body", name=body.name, joint=name)
    _set(element, "pos", body.pos, None if body.pos_given and body.pos_min is not None else np.zeros(3))
    _set(element, "quat", body.quat * _CONJUGATE, _IDENTITY)
    _set(element, "pos_min", body.pos_min)
    _set(element, "pos_max", body.pos_max)
    inverse = np.argsort(entry.v_order or range(kind.nv))
    for ours, theirs in (("damping", "damping"), ("armature", "armature"), ("stiffness", "spring_stiff")):
        value = getattr(joint, ours)
        _set(element, theirs, None if value is None else value[inverse])
    if joint.spring_ref is not None:
        zero = joint.spring_ref.copy()
        if entry.quat is not None:
            zero[entry.quat : entry.quat + 4] *= _CONJUGATE
        _set(element, "spring_zero", zero[np.argsort(entry.q_order or range(kind.nq))])
    if entry.random and "axes" in joint.params:
        _set(element, "axes", np.ravel(joint.params["axes"]))
    for marker in body.markers:
        omc = etree.SubElement(element, "omc")
        if marker.name is not None:
            omc.set("name", marker.name)
        if marker.pos_marker is not None:
            omc.set("pos_marker", str(marker.pos_marker))
        _set(omc, "pos", marker.pos)
    for geom in body.geoms:
        _write_geom(element, geom)
    return element


def _write_geom(parent, geom: GeomSpec) -> None:
    names = {shape: name for name, shape in _SHAPES.items()}
    if geom.shape not in names:
        raise ValueError(f"x_xy has no geom {geom.shape!r}; allowed: {', '.join(_SHAPES)}")
    size, quat = geom.size, geom.quat
    if geom.shape in ("cylinder", "capsule"):
        size, quat = np.array([size[0], 2 * size[1]]), quat_mul(quat, _LYING * _CONJUGATE)
    elif geom.shape == "box":
        size = 2 * size
    element = etree.SubElement(parent, "geom", type=names[geom.shape], dim=_numbers(size))
    if geom.shape != "axes":
        element.set("mass", _numbers(geom.mass))
    _set(element, "pos", geom.pos, np.zeros(3))
    _set(element, "quat", quat * _CONJUGATE, _IDENTITY)
    for name, text, rgba in (("color", geom.color, geom.rgba), ("edge_color", geom.edge_color, geom.edge_rgba)):
        if text is not None or rgba is not None:
            element.set(name, _numbers(rgba) if text is None else text)
