"""The plugin ``mujoco.elasticity.cable`` of MuJoCo 3.2: bending and twist between the bodies of a cable.

Source: MuJoCo's plugin/elasticity/README.md. Each body is a piece of an elastic rod along its x axis. The rotation from one body to the
next, minus that at rest, divided by the distance of their origins, is the curvature. It gives a couple on both bodies: the torsional
stiffness G J and the bending stiffnesses E Iy and E Iz of the later one times the curvature, in the axes of the earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.forces.passive_plugins import PassiveContext, PassiveForce
from xsim.dynamics.tree.system import System
from xsim.model.topology import GeomInfo, PassiveInfo
from xsim.registry import PASSIVE_FORCES, ConfigKey
from xsim.spatial import ZERO3, Vector, dot, mul, neg, quat_conj, quat_log, quat_mul, rotate, scale, stage, sub, vadd, vsub

SECTIONS = ("capsule", "cylinder", "box")
CONFIG = {
    "twist": ConfigKey((0.0,), (0.0,)),
    "bend": ConfigKey((0.0,), (0.0,)),
    "flat": ConfigKey((0.0,), words=("false", "true")),
    "vmax": ConfigKey((0.0,), (0.0,)),
}
"""Shear modulus G and Young's modulus E (Pa), whether the cable is straight at rest, and the scale of a drawing, which has no effect."""


class _Joint(NamedTuple):
    """Between two bodies: the rotation vector at rest (rad), and the stiffnesses about x, y and z (N m/rad)."""

    rest: Vector
    stiffness: Vector


@stage
def _round_section(size):
    """J, Iy, Iz of a circle."""
    area2 = mul(math.pi / 4.0, mul(mul(size[0], size[0]), mul(size[0], size[0])))
    return mul(2.0, area2), area2, area2


@stage
def _box_section(size):
    """J, Iy, Iz of a rectangle with these half sides along y and z. J: Roark's Formulas for Stress and Strain, table 10.1."""
    h, w = size[1], size[2]
    a, b = jnp.maximum(h, w), jnp.minimum(h, w)
    ratio = b / a
    torsion = a * b**3 * (16.0 / 3.0 - 3.36 * ratio * (1.0 - ratio**4 / 12.0))
    return torsion, 4.0 / 3.0 * h * w**3, 4.0 / 3.0 * w * h**3


@stage
def _relative(quat, other):
    """The rotation vector from one body to another, in axes of either."""
    return quat_log(quat_mul(quat_conj(quat), other))


@stage
def _joint(section, before, after, twist, bend, flat) -> _Joint:
    d = vsub(after.pos, before.pos)
    length = jnp.sqrt(dot(d, d))
    torsion, y, z = section
    stiffness = (mul(twist, torsion) / length, mul(bend, y) / length, mul(bend, z) / length)
    return _Joint(scale(quat_log(quat_mul(quat_conj(before.quat), after.quat)), sub(1.0, flat)), stiffness)


def _size(system: System, geom: GeomInfo):
    return geom.size if geom.row is None else system.geom.size[geom.row]


def _prepare(context: PassiveContext, info: PassiveInfo) -> list[_Joint]:
    top, out = context.system.topology, []
    for before, after in pairwise(info.bodies):
        geom = next(g for g in top.geoms if g.body == after)
        size = _size(context.system, geom)
        section = _box_section(size) if geom.shape == "box" else _round_section(size)
        config = (context.config[name] for name in ("twist", "bend", "flat"))
        out.append(_joint(section, context.poses[before], context.poses[after], *config))
    return out


@stage
def _couple(joint: _Joint, quat, other) -> Vector:
    """The moment on the later body, world axes."""
    strain = vsub(_relative(quat, other), joint.rest)
    return rotate(quat, tuple(neg(mul(k, x)) for k, x in zip(joint.stiffness, strain, strict=True)))


def _wrenches(context: PassiveContext, info: PassiveInfo) -> dict:
    moments: dict[int, Vector] = {}
    for joint, (before, after) in zip(context.prepared, pairwise(info.bodies), strict=True):
        moment = _couple(joint, context.poses[before].quat, context.poses[after].quat)
        moments[after] = moment
        opposite = tuple(neg(x) for x in moment)
        moments[before] = vadd(moments[before], opposite) if before in moments else opposite
    return {body: (ZERO3, moment) for body, moment in moments.items()}


def _check(spec, bodies: Sequence[int]) -> str | None:
    """What is wrong with the bodies of a cable."""
    for before, body in pairwise(bodies):
        if spec.bodies[body].parent != before:
            return f"{spec.bodies[body].name!r} is not in {spec.bodies[before].name!r}; allowed: a chain of bodies, each in the one before"
        shape = spec.bodies[body].geoms[0].shape if spec.bodies[body].geoms else "none"
        if shape not in SECTIONS:
            return f"the first geom of {spec.bodies[body].name!r} is {shape!r}; allowed: {', '.join(SECTIONS)}"
    return None


PASSIVE_FORCES.register("mujoco.elasticity.cable", PassiveForce(_wrenches, CONFIG, _prepare, _check))
