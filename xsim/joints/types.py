"""The joint vocabulary: every joint type as data, shared by readers, `build` and the dynamics. No jax here.

A type is a chain of elementary joints (hinge, slide, screw, ball) over massless links nobody sees, or, for types that a user
registers with functions of his own, one ``general`` joint. The mathematics of the elementary joints is in `xsim.joints.elementary`.

Coordinates (the same for every format): hinge, slide, screw: one number; ball: q = quaternion (w, x, y, z) child to parent,
v = angular velocity in child axes; free: q = (position of the child joint frame in the parent joint frame, quaternion),
v = (its rate in those axes, angular velocity in child axes). A chain concatenates its members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

__all__ = ["JOINT_TYPES", "ElementaryJoint", "GeneralJoint", "JointType", "Parameter", "register_joint"]


@dataclass(frozen=True)
class Parameter:
    """One array of numbers of a joint type.

    shape: of one joint's value. default: its value where neither file nor draw gives one.
    draw: how it is drawn per environment: None (never), ``"sphere"`` (every row uniform on the unit sphere),
    ``"circle"`` (row 0 uniform on the sphere, row 1 uniform on the circle perpendicular to row 0), or a function
    ``draw(key, dtype) -> array`` (key: a jax PRNG key).
    """

    shape: tuple[int, ...]
    default: tuple
    unit: str = "1"
    doc: str = ""
    draw: str | Callable | None = None


@dataclass(frozen=True)
class ElementaryJoint:
    """hinge, slide, screw or ball.

    ``axis``: a row of the type's parameter ``axes``, or three numbers where the axis is a choice of coordinates.
    """

    kind: str
    axis: int | tuple[float, float, float] | None = None

    @property
    def nq(self) -> int:
        return 4 if self.kind == "ball" else 1

    @property
    def nv(self) -> int:
        return 3 if self.kind == "ball" else 1


@dataclass(frozen=True)
class GeneralJoint:
    """A joint given by functions (registered by a user).

    pose(q, params) -> (quat (4,), pos (3,)): child joint frame in the parent joint frame, for q: (nq,) and a dict of parameters.
    subspace(q, params) -> (nv, 6): rows are the child frame's twist (angular, linear; child axes, at the child frame's origin)
    per unit velocity; None: by differentiating ``pose`` along ``integrate``.
    integrate(q, dv) -> q: the configuration after moving by dv: (nv,); None: q + dv (nq == nv).
    difference(q0, q1) -> dv: its inverse, None: q1 - q0.
    """

    nq: int
    nv: int
    pose: Callable
    subspace: Callable | None = None
    integrate: Callable | None = None
    difference: Callable | None = None
    neutral: tuple[float, ...] | None = None
    kind: str = "general"


@dataclass(frozen=True)
class JointType:
    """A joint type: its chain of elementary joints and its parameters. ``nq``, ``nv``: widths of q and v."""

    name: str
    chain: tuple[ElementaryJoint | GeneralJoint, ...] = ()
    parameters: dict[str, Parameter] = field(default_factory=dict)
    doc: str = ""

    @property
    def nq(self) -> int:
        return sum(j.nq for j in self.chain)

    @property
    def nv(self) -> int:
        return sum(j.nv for j in self.chain)

    @property
    def neutral(self) -> np.ndarray:
        """The configuration in which the child joint frame coincides with the parent's: (nq,)."""
        parts = []
        for j in self.chain:
            if isinstance(j, GeneralJoint):
                parts.append(np.zeros(j.nq) if j.neutral is None else np.asarray(j.neutral, float))
            else:
                parts.append(np.array([1.0, 0, 0, 0]) if j.kind == "ball" else np.zeros(1))
        return np.concatenate(parts) if parts else np.zeros(0)


JOINT_TYPES: dict[str, JointType] = {}


def register_joint(joint_type: JointType) -> JointType:
    """Add a joint type to the registry; files and specs may then name it. Raises ValueError where the name is taken by another."""
    old = JOINT_TYPES.get(joint_type.name)
    if old is not None and old != joint_type:
        raise ValueError(f"a joint type named {joint_type.name!r} is registered already")
    JOINT_TYPES[joint_type.name] = joint_type
    return joint_type


_X, _Y, _Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def _axes(*rows, draw=None) -> Parameter:
    return Parameter((len(rows), 3), tuple(rows), "1", "axes in the frame they turn in, normalized where they are used", draw)


def _chain(name, doc, *kinds, axes=None, **parameters) -> None:
    if axes is not None:
        parameters = {"axes": axes, **parameters}
    register_joint(JointType(name, tuple(ElementaryJoint(*k) for k in kinds), parameters, doc))


_P3D = (("slide", _X), ("slide", _Y), ("slide", _Z))
_chain("fixed", "No motion.")
_chain("hinge", "Rotation about an axis.", ("hinge", 0), axes=_axes(_Z))
_chain("slide", "Translation along an axis.", ("slide", 0), axes=_axes(_Z))
_chain("screw", "Rotation about an axis with a translation of pitch metres per radian along it.", ("screw", 0), axes=_axes(_Z),
       pitch=Parameter((1,), (0.0,), "m/rad", "translation per radian"))
_chain("ball", "Free rotation.", ("ball", None))
_chain("p3d", "Free translation, along the axes of the joint frame.", *_P3D)
_chain("free", "Free motion: translation along joint-frame axes, then rotation.", *_P3D, ("ball", None))
_chain("cor", "Free motion about a centre of rotation that wanders: free, then a translation in body axes.", *_P3D, ("ball", None), *_P3D)
_chain("planar", "Two translations and a rotation of the plane.", ("slide", 0), ("slide", 1), ("hinge", 2), axes=_axes(_Y, _Z, _X))
_chain("slide2", "Two translations.", ("slide", 0), ("slide", 1), axes=_axes(_X, _Y))
_chain("euler", "Three hinges; each axis rides on the rotations before it.", ("hinge", 0), ("hinge", 1), ("hinge", 2),
       axes=_axes(_X, _Y, _Z))
_chain("universal", "Two hinges; the second axis rides on the first rotation.", ("hinge", 0), ("hinge", 1), axes=_axes(_Y, _Z))
_chain("rr", "A hinge whose axis is drawn.", ("hinge", 0), axes=_axes(_Z, draw="sphere"))
_chain("rr_imp", "A hinge with a drawn axis and a small second rotation about a drawn perpendicular axis.", ("hinge", 0), ("hinge", 1),
       axes=_axes(_Z, _X, draw="circle"))
_chain("rsaddle", "Two hinges with drawn axes.", ("hinge", 0), ("hinge", 1), axes=_axes(_Y, _Z, draw="sphere"))
