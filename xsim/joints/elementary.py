"""What each elementary joint does: pose, motion subspace, integration, difference, random configurations.

One table, `ELEMENTARY`: adding a kind of elementary joint is one entry here; adding a joint type is one call of
`xsim.register_joint`. All functions work on components (see `xsim.spatial`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.joints.types import JOINT_TYPES, GeneralJoint, JointType
from xsim.spatial import (
    IDENTITY,
    ZERO3,
    Motion,
    Pose,
    apply,
    cross,
    dot,
    mul,
    normalize,
    quat_conj,
    quat_exp,
    quat_log,
    quat_mul,
    scale,
    sub,
    unit_quaternion,
    vadd,
)


class Numbers(NamedTuple):
    """The numbers of one link's joint: unit axis, screw pitch, parameters of a general joint (name -> array, lanes last), position of a
    hinge or slide in which its frames coincide."""

    axis: tuple | None = None
    pitch: object = None
    params: dict | None = None
    ref: object = 0.0


class Elementary(NamedTuple):
    """pose(j, q) -> Pose.  subspace(j, q) -> child-frame twists, one Motion per velocity (child axes, at the child origin).
    subspace_rate(j, q, v) -> (dS/dt) v in child axes, None where S is constant.  rate(j, q, v) -> dq/dt.
    integrate(j, q, dv) -> q moved by dv.  difference(j, q0, q1) -> the dv that moves q0 to q1.
    coordinates(j, q) -> one number per velocity that springs and limits speak of: q itself, the rotation vector of a ball.
    displacement_rate(j, q0, d, v) -> the rate of d = difference(j, q0, q) while q moves with the velocity v."""

    pose: Callable
    subspace: Callable
    subspace_rate: Callable | None
    rate: Callable
    integrate: Callable
    difference: Callable
    coordinates: Callable
    displacement_rate: Callable


def _rotation(axis, angle) -> tuple:
    half = mul(angle, 0.5)
    return (jnp.cos(half), *scale(axis, jnp.sin(half)))


def _add(j, q, dv):
    return vadd(q, dv)


def _subtract(j, q0, q1):
    return tuple(sub(b, a) for a, b in zip(q0, q1, strict=True))


def _velocity(j, q, v):
    return tuple(v)


def _one(fn_pose, fn_subspace) -> Elementary:
    return Elementary(fn_pose, fn_subspace, None, _velocity, _add, _subtract, lambda j, q: tuple(q), lambda j, q0, d, v: tuple(v))


_HINGE = _one(
    lambda j, q: Pose(_rotation(j.axis, sub(q[0], j.ref)), ZERO3),
    lambda j, q: [Motion(j.axis, ZERO3)],
)
_SLIDE = _one(
    lambda j, q: Pose(IDENTITY, scale(j.axis, sub(q[0], j.ref))),
    lambda j, q: [Motion(ZERO3, j.axis)],
)
_SCREW = _one(
    lambda j, q: Pose(_rotation(j.axis, q[0]), scale(j.axis, mul(q[0], j.pitch))),
    lambda j, q: [Motion(j.axis, scale(j.axis, j.pitch))],
)


def _bend(square):
    """(1 - a/2 cot(a/2)) / a^2 of the square of a; by its power series where a is small."""
    near = square < 0.05
    x = jnp.where(near, square, 0.0)
    series = 1 / 12 + x * (1 / 720 + x * (1 / 30240 + x * (1 / 1209600 + x / 47900160)))
    angle = jnp.sqrt(jnp.where(near, 1.0, square))
    return jnp.where(near, series, (1.0 - 0.5 * angle / jnp.tan(0.5 * angle)) / (angle * angle))


def _rotation_vector_rate(j, q0, d, v):
    """Rate of a rotation vector at an angular velocity in the turned axes (inverse of the exponential's derivative)."""
    once = cross(d, v)
    return vadd(vadd(v, scale(once, 0.5)), scale(cross(d, once), _bend(dot(d, d))))


_BASIS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_BALL = Elementary(
    pose=lambda j, q: Pose(unit_quaternion(q), ZERO3),
    subspace=lambda j, q: [Motion(e, ZERO3) for e in _BASIS],
    subspace_rate=None,
    rate=lambda j, q, v: scale(quat_mul(q, (0.0, *v)), 0.5),
    integrate=lambda j, q, dv: unit_quaternion(quat_mul(unit_quaternion(q), quat_exp(dv))),
    difference=lambda j, q0, q1: quat_log(quat_mul(quat_conj(unit_quaternion(q0)), unit_quaternion(q1))),
    coordinates=lambda j, q: quat_log(unit_quaternion(q)),
    displacement_rate=_rotation_vector_rate,
)


# ---- joints given by functions -----------------------------------------------------------------------------------------------


def _vmapped(fn):
    """fn(params, *vectors) of one environment, applied to tuples of components of one common shape."""

    def batched(params, *vectors):
        stacked = [jnp.stack(jnp.broadcast_arrays(*v)) if v else jnp.zeros((0,)) for v in vectors]
        shape = jnp.broadcast_shapes(*(s.shape[1:] for s in stacked), *(_lanes(p, n) for p, n in params.values()))
        call = fn
        values = {k: p for k, (p, _) in params.items()}
        if shape:
            stacked = [jnp.broadcast_to(s, (s.shape[0], *shape)) for s in stacked]
            axes = {k: (-1 if _lanes(p, n) else None) for k, (p, n) in params.items()}
            call = jax.vmap(fn, in_axes=(axes, *([-1] * len(stacked))), out_axes=-1)
        return call(values, *stacked)

    return batched


def _lanes(p, core_ndim) -> tuple:
    return p.shape[core_ndim:]


class _UserJoint:
    """Functions of a joint that is given by its pose, on arrays: params, q (nq), v (nv)."""

    def __init__(self, joint: GeneralJoint):
        self.joint = joint
        self.integrate = joint.integrate or (lambda q, dv: q + dv)
        self.difference = joint.difference or (lambda q0, q1: q1 - q0)
        self.neutral = (0.0,) * joint.nq if joint.neutral is None else joint.neutral

    def pose(self, params, q):
        return jnp.concatenate([jnp.asarray(x) for x in self.joint.pose(q, params)])

    def twists(self, params, q):
        """(nv, 6) child-frame twists of unit velocities at q."""
        if self.joint.subspace is not None:
            return self.joint.subspace(q, params)
        return jax.vmap(lambda direction: self._twist(params, q, direction))(jnp.eye(self.joint.nv, dtype=q.dtype))

    def _twist(self, params, q, direction):
        quat, _ = self.joint.pose(q, params)
        _, (dquat, dpos) = self._along(lambda dv: self.joint.pose(self.integrate(q, dv), params), direction)
        norm = jnp.sqrt(jnp.sum(quat * quat))
        conj = quat_conj(tuple(quat / norm))
        ang = quat_mul(conj, tuple(dquat / norm))[1:]
        lin = quat_mul(quat_mul(conj, (0.0, *dpos)), quat_conj(conj))[1:]
        return jnp.stack([*(2.0 * x for x in ang), *lin])

    def bias_twist(self, params, q, v):
        """Rate of the twists' combination v at constant v."""
        return self._along(lambda dv: v @ self.twists(params, self.integrate(q, dv)), v)[1]

    def q_rate(self, params, q, v):
        return self._along(lambda dv: self.integrate(q, dv), v)[1]

    def coordinates(self, params, q):
        return self.difference(jnp.asarray(self.neutral, q.dtype), q)

    def displacement_rate(self, params, q0, d, v):
        """Rate of the displacement from q0, which is d, at the velocity v."""
        q = self.integrate(q0, d)
        return self._along(lambda dv: self.difference(q0, self.integrate(q, dv)), v)[1]

    @staticmethod
    def _along(function, direction):
        return jax.jvp(function, (jnp.zeros_like(direction),), (direction,))


def _general(joint: GeneralJoint) -> Elementary:
    user = _UserJoint(joint)
    pose, twists, bias_twist = (_vmapped(f) for f in (user.pose, user.twists, user.bias_twist))
    q_rate, coordinates, displacement_rate = (_vmapped(f) for f in (user.q_rate, user.coordinates, user.displacement_rate))
    integrate = _vmapped(lambda params, q, dv: user.integrate(q, dv))
    difference = _vmapped(lambda params, q0, q1: user.difference(q0, q1))

    def as_pose(x) -> Pose:
        return Pose(normalize(tuple(x[:4])), tuple(x[4:]))

    def as_motion(x) -> Motion:
        return Motion(tuple(x[:3]), tuple(x[3:]))

    return Elementary(
        lambda j, q: as_pose(pose(j.params, q)),
        lambda j, q: [as_motion(row) for row in twists(j.params, q)],
        lambda j, q, v: as_motion(bias_twist(j.params, q, v)),
        lambda j, q, v: tuple(q_rate(j.params, q, v)),
        lambda j, q, dv: tuple(integrate(j.params, q, dv)),
        lambda j, q0, q1: tuple(difference(j.params, q0, q1)),
        lambda j, q: tuple(coordinates(j.params, q)),
        lambda j, q0, d, v: tuple(displacement_rate(j.params, q0, d, v)),
    )


ELEMENTARY: dict[str, Elementary] = {"hinge": _HINGE, "slide": _SLIDE, "screw": _SCREW, "ball": _BALL}


def elementary(kind: str, joint_type: str) -> Elementary:
    """The functions of a link of this kind in a joint of this type."""
    return _general(JOINT_TYPES[joint_type].chain[0]) if kind == "general" else ELEMENTARY[kind]


def has_velocity_coordinates(joint: Elementary) -> bool:
    """Whether the rates of the coordinates are the velocities."""
    return joint.rate is _velocity


def child_twist(subspace: list[Motion], R, origin) -> list[Motion]:
    """Child-frame twists as world motions about the reference point: R the child's axes, origin its position from that point."""
    out = []
    for s in subspace:
        ang = apply(R, s.ang)
        out.append(Motion(ang, vadd(apply(R, s.lin), cross(origin, ang))))
    return out


# ---- random numbers ----------------------------------------------------------------------------------------------------------


def name_key(key, name: str):
    """The random key of the body with this name, stable across processes and edits of other bodies."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()) & 0x7FFFFFFF)


def draw_parameters(joint_type: JointType, key, name: str, dtype=None) -> dict:
    """Draw the random parameters of the joint of body ``name``: {parameter: array of the parameter's shape}."""
    dtype = dtype or jnp.result_type(float)
    key = name_key(key, name)
    out = {}
    for i, (parameter, p) in enumerate(joint_type.parameters.items()):
        if p.sample is None:
            continue
        k = jax.random.fold_in(key, i)
        out[parameter] = SAMPLERS[p.sample](k, p.shape, dtype) if isinstance(p.sample, str) else p.sample(k, dtype)
    return out


def _sphere(key, shape, dtype):
    x = jax.random.normal(key, shape, dtype)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def _circle(key, shape, dtype):
    """Row 0 uniform on the sphere, row 1 uniform on the circle perpendicular to it."""
    primary, other = _sphere(key, shape, dtype)
    # What is left of an isotropic direction in the plane perpendicular to the primary axis is isotropic there.
    # Twice, because what one pass leaves is rounding where the two directions are close.
    residual = other
    for _ in range(2):
        residual = residual - primary * jnp.vdot(primary, residual, precision="highest")
        residual = residual / jnp.linalg.norm(residual)
    return jnp.stack([primary, residual])


SAMPLERS: dict[str, Callable] = {"sphere": _sphere, "circle": _circle}
