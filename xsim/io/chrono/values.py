"""Frames, directions and functions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from xsim.io.chrono.document import Item
from xsim.io.errors import Notes
from xsim.io.tree import Link
from xsim.poses import IDENTITY_QUAT, Pose, quat_about, quat_from_z, quat_mul, quat_rpy, rotate
from xsim.spec import FunctionSpec

__all__ = [
    "Pair", "Reading", "axis", "coefficient", "find_body", "frame_quat", "orientation", "read_function", "read_pair", "table",
    "value_at_zero",
]  # fmt: skip

_FLIP = np.array([0.0, 1.0, 0.0, 0.0])


class Reading(NamedTuple):
    """What elements are read with. angle: radians per unit of the file's angles. data: folder before names of data files. links: the
    bodies. centres: of each body, its centroidal frame in the body. number: of each body name."""

    notes: Notes
    angle: float
    data: str
    links: list[Link]
    centres: list[Pose]
    number: dict[str, int]

    def in_body(self, body: int, quat, pos) -> tuple[np.ndarray, np.ndarray]:
        """(pos, quat) in a body of a frame given in the model, in the reference pose."""
        pose = self.links[body].pose.inverse() @ Pose(np.asarray(quat), np.asarray(pos))
        return pose.pos, pose.quat

    def without_effect(self, item: Item, keys: tuple[str, ...], why: str) -> None:
        """Note the given keys that have no effect."""
        for key in keys:
            if item.has(key):
                self.notes.suspicious(item.line_of(key), f"{item}: {key} has no effect: {why}", item.file)
                item.skip(key)


class Pair(NamedTuple):
    """The two bodies of an element. idle: both are fixed."""

    one: int
    two: int
    idle: bool


def read_pair(item: Item, reading: Reading) -> Pair:
    """body1 and body2. Raises ParseError for unknown names and one body twice; notes two fixed bodies."""
    one, two = (find_body(item, key, reading) for key in ("body1", "body2"))
    if one == two:
        raise item.error(f"{item.text('body2')!r} is body1 too; allowed: two different bodies", "body2")
    idle = reading.links[one].welded and reading.links[two].welded
    if idle:
        reading.notes.suspicious(item.line, f"{item}: has no effect: both bodies are fixed", item.file)
    return Pair(one, two, idle)


def find_body(item: Item, key: str, reading: Reading) -> int:
    name = item.text(key)
    if name not in reading.number:
        names = ", ".join(list(reading.number)[:20]) or "none"
        raise item.error(f"no body is named {name[:80]!r}; allowed: {names}", key)
    return reading.number[name]


def orientation(item: Item, key: str, reading: Reading) -> np.ndarray:
    """A quaternion, or three angles: about z, then the turned y, then the turned x."""
    if not item.has(key):
        return IDENTITY_QUAT
    x = item.vector(key, (3, 4))
    if len(x) == 3:
        z, y, x = x * reading.angle
        return quat_rpy(x, y, z) if z or y or x else IDENTITY_QUAT
    norm = float(np.linalg.norm(x))
    if not norm > 1e-9:
        raise item.error("the quaternion is zero; allowed: unit quaternions", key)
    if abs(norm - 1) > 1e-6:
        reading.notes.suspicious(item.line_of(key), f"{item}: {key}: the quaternion has norm {norm:.6g}; it is normalized", item.file)
    return x / norm


def axis(item: Item, key: str, default=None) -> np.ndarray:
    """Unit vector of a direction; required where there is no default."""
    x = item.vector(key, 3, default)
    largest = np.abs(x).max()
    if largest == 0:
        raise item.error("the axis is zero; allowed: directions", key)
    return x / largest / np.linalg.norm(x / largest)


def frame_quat(z, x=None) -> np.ndarray:
    """Orientation of a frame with the unit vector z as its z axis and, where given, the perpendicular unit vector x as its x axis."""
    quat = quat_from_z(z) if z[2] >= 0 else quat_mul(quat_from_z(-np.asarray(z)), _FLIP)
    if x is None:
        return quat
    return quat_mul(quat, quat_about((0, 0, 1), math.atan2(rotate(quat, (0, 1, 0)) @ x, rotate(quat, (1, 0, 0)) @ x)))


def coefficient(item: Item, key: str, reading: Reading) -> float:
    """A stiffness or damping; required. Notes a negative one."""
    x = item.number(key)
    if x < 0:
        reading.notes.suspicious(item.line_of(key), f"{item}: {key}: {x:g} is negative: it feeds the motion", item.file)
    return x


# ---- functions and tables ------------------------------------------------------------------------------------------------------


def table(item: Item, key: str) -> FunctionSpec:
    """Pairs of numbers as a table, in ascending order of the first; a first number given twice is an error."""
    rows = item.rows(key, 2)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    repeated = np.flatnonzero(np.diff(rows[:, 0]) == 0)
    if len(repeated):
        raise item.error(f"{rows[repeated[0], 0]:g} is given twice; allowed: different first numbers", key)
    return FunctionSpec("table", rows, source=item.source)


_FUNCTIONS = ("CONSTANT", "POLYNOMIAL", "SINE", "RAMP", "DATA", "CONTROLLER")


def read_function(item: Item, key: str, reading: Reading, name: str) -> FunctionSpec:
    """The function that is the value of a key; ``name``: of the control, where the caller of the simulation gives the value."""
    inside = item.need(key)
    kind = inside.choice("type", _FUNCTIONS)
    if kind == "CONTROLLER":
        reading.without_effect(inside, ("repeat",), "the value of a controller comes from outside")
        return FunctionSpec("external", np.zeros(0), name=name, source=inside.source)
    if kind == "CONSTANT":
        function = FunctionSpec("constant", np.array([inside.number("value")]))
    elif kind == "POLYNOMIAL":
        function = FunctionSpec("polynomial", inside.vector("coefficients", None))
    elif kind == "SINE":
        phase = inside.number("phase", 0.0) * reading.angle
        numbers = [inside.number("amplitude"), inside.number("frequency"), phase, inside.number("shift", 0.0)]
        function = FunctionSpec("sine", np.array(numbers))
    elif kind == "RAMP":
        function = FunctionSpec("ramp", np.array([inside.number("intercept", 0.0), inside.number("slope")]))
    else:
        function = table(inside, "data")
    repeat = None
    if inside.has("repeat"):
        slice_ = inside.need("repeat")
        repeat = slice_.number("start"), slice_.number("width", positive=True), slice_.number("shift")
    return FunctionSpec(function.kind, function.numbers, repeat, source=inside.source)


def value_at_zero(function: FunctionSpec) -> float:
    """The value at time zero; 0 for a control."""
    start, width, shift = function.repeat or (0.0, math.inf, 0.0)
    x = start + math.fmod(shift, width)
    n = function.numbers
    if function.kind == "constant":
        return float(n[0])
    if function.kind == "polynomial":
        with np.errstate(all="ignore"):  # large powers of large times
            return float(np.polynomial.polynomial.polyval(x, n))
    if function.kind == "sine":
        return float(n[0] * math.sin(2 * math.pi * n[1] * x + n[2]) + n[3])
    if function.kind == "ramp":
        return float(n[0] + n[1] * x)
    return float(np.interp(x, n[:, 0], n[:, 1])) if function.kind == "table" else 0.0
