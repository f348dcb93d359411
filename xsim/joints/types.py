"""The registry of joint types, for readers, `build` and the dynamics. It does not depend on jax.

A type is a chain of elementary joints (hinge, slide, screw, ball) with massless links between them, or one ``general`` joint that a user
defines by functions. The mathematics of the elementary joints is in `xsim.joints.elementary`.

Coordinates (the same for every format): hinge, slide, screw: one number; ball: q = quaternion (w, x, y, z) child to parent,
v = angular velocity in child axes; free: q = (position of the child joint frame in the parent joint frame, quaternion),
v = (its rate in those axes, angular velocity in child axes). The coordinates of a chain are those of its members in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from xsim.registry import Registry

__all__ = ["JOINT_TYPES", "ElementaryJoint", "GeneralJoint", "JointType", "Parameter", "register_joint"]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a joint type, an array.

    shape: of the value of one joint. default: its value if it is neither given nor sampled. unit, doc: unit and meaning.
    sample: how `randomize` samples it per environment: None (never), ``"sphere"`` (every row uniform on the unit sphere),
    ``"circle"`` (row 0 uniform on the sphere, row 1 uniform on the circle perpendicular to row 0), or a function
    ``sample(key, dtype) -> array`` (key: a jax PRNG key).
    """

    shape: tuple[int, ...]
    default: tuple
    unit: str = "1"
    doc: str = ""
    sample: str | Callable | None = None


@dataclass(frozen=True)
class ElementaryJoint:
    """A hinge, slide, screw or ball. axis: a row of the parameter ``axes`` of the type, or a fixed axis (3,) of the joint frame."""

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
    """A joint defined by functions.

    pose(q, params) -> (quat (4,), pos (3,)): child joint frame in the parent joint frame, for q: (nq,) and a dict of parameters.
    subspace(q, params) -> (nv, 6): rows are the twist (angular, linear) of the child frame per unit velocity, in child axes at the origin
    of the child frame. None: computed by differentiating ``pose`` along ``integrate``.
    integrate(q, dv) -> q: the configuration after moving by dv (nv,). None: q + dv, for nq == nv.
    difference(q0, q1) -> dv: the inverse of ``integrate``. None: q1 - q0.
    neutral (nq,): the neutral configuration, default zeros.
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
    """A joint type: its chain of elementary joints and its parameters. ``nq``, ``nv``: numbers of coordinates and of velocities."""

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
        """The configuration (nq,) in which the child joint frame coincides with the parent joint frame."""
        parts = []
        for j in self.chain:
            if isinstance(j, GeneralJoint):
                parts.append(np.zeros(j.nq) if j.neutral is None else np.asarray(j.neutral, float))
            else:
                parts.append(np.array([1.0, 0, 0, 0]) if j.kind == "ball" else np.zeros(1))
        return np.concatenate(parts) if parts else np.zeros(0)


JOINT_TYPES: Registry[str] = Registry("joint type")
"""`JointType` by name."""


def register_joint(joint_type: JointType) -> JointType:
    """Add a joint type to the registry, so that files and specs can use it. Raises ValueError if another type has this name."""
    known = JOINT_TYPES.get(joint_type.name)
    return joint_type if known == joint_type else JOINT_TYPES.register(joint_type.name, joint_type)


_X, _Y, _Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def _axes(*rows, sample=None) -> Parameter:
    return Parameter((len(rows), 3), tuple(rows), "1", "axes in the frame in which they rotate, normalized where used", sample)


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
_chain("cor", "Free motion about a moving centre of rotation: free, then a translation in body axes.", *_P3D, ("ball", None), *_P3D)
_chain("planar", "Two translations and a rotation of the plane.", ("slide", 0), ("slide", 1), ("hinge", 2), axes=_axes(_Y, _Z, _X))
_chain("slide2", "Two translations.", ("slide", 0), ("slide", 1), axes=_axes(_X, _Y))
_chain("euler", "Three hinges; each axis rotates with the previous hinges.", ("hinge", 0), ("hinge", 1), ("hinge", 2),
       axes=_axes(_X, _Y, _Z))
_chain("universal", "Two hinges; the second axis rotates with the first hinge.", ("hinge", 0), ("hinge", 1), axes=_axes(_Y, _Z))
_chain("rr", "A hinge with a random axis.", ("hinge", 0), axes=_axes(_Z, sample="sphere"))
_chain("rr_imp", "A hinge with a random axis, and a small second rotation about a random perpendicular axis.", ("hinge", 0), ("hinge", 1),
       axes=_axes(_Z, _X, sample="circle"))
_chain("rsaddle", "Two hinges with random axes.", ("hinge", 0), ("hinge", 1), axes=_axes(_Y, _Z, sample="sphere"))
