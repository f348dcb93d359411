"""Forces between bodies: springs and dampers along lines and about axes, bushings, motors that push, loads."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..spatial import (
    ZERO3,
    Force,
    add,
    apply,
    apply_inverse,
    cross,
    dot,
    madd,
    mul,
    neg,
    normalize,
    quat_conj,
    quat_log,
    quat_mul,
    safe_norm,
    scale,
    stage,
    sub,
    total,
    vadd,
    vsub,
)
from .functions import table, value, weights
from .holonomic import coordinate_places
from .kinematics import Frames, gather, point_velocity, velocities
from .loops import End, ends_of
from .system import System

BUMP = (
    (0.0, 0.002, 0.004, 0.006, 0.008, 0.010, 0.020, 0.030, 0.040, 0.050, 0.060),
    (0.0, 200.0, 400.0, 600.0, 800.0, 1000.0, 2500.0, 4500.0, 7500.0, 12500.0, 125000.0),
)
"""Force (N) of a bump stop over its compression (m): Chrono's."""


def element_force(system: System, frame: Frames, q, v) -> list:
    """Generalized force of all elements, (nv)."""
    force: list = [None] * len(system.topology.links)
    for info, wrenches in zip(system.topology.forces, element_wrenches(system, frame, q, v), strict=True):
        for body, one in zip(info.bodies, wrenches, strict=True):
            link = system.topology.bodies[body].link if body >= 0 else -1
            if link >= 0:
                force[link] = one if force[link] is None else madd(force[link], one)
    return [neg(x) for x in gather(system, frame, [None if f is None else Force(*(scale(p, -1.0) for p in f)) for f in force])]


def element_wrenches(system: System, frame: Frames, q, v) -> list[tuple[Force, ...]]:
    """Of every element, the force on each of its bodies, about the reference point of the body's tree."""
    top = system.topology
    _, velocity = velocities(system, frame, v)
    out = []
    every, places = ends_of(system, frame, top.forces, system.force_ends), coordinate_places(top)
    for info, ends in zip(top.forces, every, strict=True):
        links = [top.bodies[i].link if i >= 0 else -1 for i in info.bodies]
        moving = [(ZERO3, ZERO3) if k < 0 else _moving(velocity[k], e.x) for k, e in zip(links, ends, strict=True)]
        level = None
        if info.function is not None:
            level = system.inputs[info.function] if info.function in system.inputs else value(system, info.function, system.time)
        angle = total([mul(sign, q[places[dof][1]]) for dof, sign in info.turns]) if info.turns else None
        out.append(LAWS[info.kind](system, info, ends, moving, angle if info.kind == "torsion" else level))
    return out


@stage
def _moving(velocity, x):
    return point_velocity(velocity, x), velocity.ang


def _at(end: End, force, moment=ZERO3) -> Force:
    """A force through an end's origin and a moment, about the reference point of its body."""
    return Force(vadd(cross(end.x, force), moment), force)


def _stretched(system: System, info, x, rate, stops: bool):
    """The law of `ForceSpec` "spring" and "torsion": x the length or angle, rate its rate."""
    f = system.forces
    if info.map is not None:
        first, m, n = info.map
        numbers = f.map[first : first + m + n + m * n]
        up, along, values = weights(rate, numbers[:m], True), weights(x, numbers[m : m + n], True), numbers[m + n :]
        cells = [mul(mul(u, w), values[i * n + k]) for i, u in enumerate(up) for k, w in enumerate(along)]
        return sub(f.preload[info.row], total(cells))
    out: object = 0.0
    if info.stiffness is not None or info.spring is not None:
        away = sub(x, f.rest[info.row])
        out = sub(f.preload[info.row], mul(f.stiffness[info.stiffness], away) if info.spring is None else value(system, info.spring, away))
        if stops and info.stop is not None:
            low, high = f.stop[info.stop]
            out = add(out, sub(table(low - x, *BUMP), table(x - high, *BUMP)))
    if info.damping is not None or info.damper is not None:
        out = sub(out, mul(f.damping[info.damping], rate) if info.damper is None else value(system, info.damper, rate))
    return out


def _spring(system, info, ends, moving, level):
    a, b = ends
    d = vsub(b.world, a.world)
    n = normalize(d)
    push = scale(n, _stretched(system, info, safe_norm(d), dot(n, vsub(moving[1][0], moving[0][0])), True))
    return _at(a, scale(push, -1.0)), _at(b, push)


def _torsion(system, info, ends, moving, turned):
    """turned: the angle by the hinges between the bodies, which says how many turns were made; None: within half a turn."""
    a, b = ends
    z = a.axis(2)
    angle = jnp.arctan2(dot(b.axis(0), a.axis(1)), dot(b.axis(0), a.axis(0)))
    if turned is not None:
        angle = angle + 2 * math.pi * jax.lax.stop_gradient(jnp.round((turned - angle) / (2 * math.pi)))
    moment = scale(z, _stretched(system, info, angle, dot(z, vsub(moving[1][1], moving[0][1])), False))
    return Force(scale(moment, -1.0), ZERO3), Force(moment, ZERO3)


def _bushing(system, info, ends, moving, level):
    a, b = ends
    d = vsub(b.world, a.world)
    (va, wa), (vb, wb) = moving
    away = apply_inverse(a.R, d)
    rate = apply_inverse(a.R, vsub(vsub(vb, va), cross(wa, d)))
    turned = quat_log(quat_mul(quat_conj(a.quat), b.quat))
    spin = apply_inverse(a.R, vsub(wb, wa))
    k, c = (x[info.stiffness : info.stiffness + 6] for x in (system.forces.stiffness, system.forces.damping))
    pull = [add(mul(p, x), mul(r, y)) for p, r, x, y in zip(k, c, (*away, *turned), (*rate, *spin), strict=True)]
    force, moment = apply(a.R, tuple(pull[:3])), apply(a.R, tuple(pull[3:]))
    return _at(a, force, moment), _at(b, scale(force, -1.0), scale(moment, -1.0))


def _motor(system, info, ends, moving, level):
    a, b = ends
    along = scale(a.axis(2), level)
    if info.driven == "hinge":
        return Force(scale(along, -1.0), ZERO3), Force(along, ZERO3)
    arm = vadd(a.x, vsub(b.world, a.world))
    return Force(cross(arm, scale(along, -1.0)), scale(along, -1.0)), _at(b, along)


def _load(system, info, ends, moving, level):
    end = ends[0]
    vector = system.forces.vector[info.row]
    vector = apply(end.R, vector) if info.local else vector
    vector = vector if level is None else scale(vector, level)
    if info.driven == "hinge":
        return (Force(vector, ZERO3),)
    if info.at_world is not None:
        reference = vsub(end.world, end.x)
        return (Force(cross(vsub(system.forces.pos1[info.at_world], reference), vector), vector),)
    return (_at(end, vector),)


LAWS = {"spring": _spring, "torsion": _torsion, "bushing": _bushing, "motor": _motor, "load": _load}
