"""Forces between bodies: springs and dampers along lines and about axes, bushings, motors that push, loads.

An element between two bodies is a few pulls: a number f times a wrench on the second body and its opposite on the first. The wrench is
also the row that gives the rate at which the two move apart along it, so springs and dampers can act at the end of a step (`soft_rows`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.flex.elasticity import flex_energy
from xsim.dynamics.forces.time_functions import Curve, curve, value, weights
from xsim.dynamics.tree.frames import End, angle_about, body_link, coordinate_places, ends_of, row_coefficients
from xsim.dynamics.tree.kinematics import Frames, gather, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import (
    ZERO3,
    Force,
    add,
    apply,
    apply_inverse,
    cross,
    dot,
    madd,
    mul,
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

BUMP = Curve(
    "table",
    (0.0, 0.0, 0.002, 200.0, 0.004, 400.0, 0.006, 600.0, 0.008, 800.0, 0.010, 1000.0, 0.020, 2500.0, 0.030, 4500.0, 0.040, 7500.0,
     0.050, 12500.0, 0.060, 125000.0),
    None,
)  # fmt: skip
"""Force (N) of a bump stop over its compression (m): Chrono's."""


class Law(NamedTuple):
    """The numbers of one element; None where it has none. spring, damper: tables in place of stiffness and damping. level: what its
    function of time says. turned: angle by the hinges between the bodies of a torsion spring."""

    kind: str
    driven: str
    rest: object = None
    preload: object = None
    stiffness: tuple | None = None
    damping: tuple | None = None
    stop: tuple | None = None
    spring: Curve | None = None
    damper: Curve | None = None
    map: tuple | None = None
    vector: tuple | None = None
    level: object = None
    turned: object = None


class Pull(NamedTuple):
    """f times: a force on the second body and its moments about the reference points of the first and the second body's trees.

    stiffness, damping: how fast f falls as the bodies move and go apart along it; None where it does not depend on that.
    """

    force: tuple
    about_first: tuple
    about_second: tuple
    f: object
    stiffness: object = None
    damping: object = None


def _law(system: System, info, q) -> Law:
    f, found = system.force, {}
    width = 6 if info.kind == "bushing" else 1
    if info.kind in ("spring", "torsion"):
        found |= {"rest": f.rest[info.row], "preload": f.preload[info.row]}
    for name in ("stiffness", "damping"):
        row = getattr(info, name)
        if row is not None:
            found[name] = tuple(getattr(f, name)[row : row + width])
    for name in ("spring", "damper"):
        index = getattr(info, name)
        if index is not None:
            found[name] = curve(system, index)
    if info.stop is not None:
        found["stop"] = f.stop[info.stop]
    if info.map is not None:
        first, m, n = info.map
        numbers = f.map[first : first + m + n + m * n]
        found["map"] = (numbers[:m], numbers[m : m + n], numbers[m + n :])
    if info.kind == "load":
        found["vector"] = f.vector[info.row]
    if info.function is not None:
        found["level"] = value(system, info.function, system.functions.time)
    if info.turns:
        places = coordinate_places(system.topology)
        found["turned"] = total([mul(sign, q[places[dof][1]]) for dof, sign in info.turns])
    return Law(info.kind, info.driven, **found)


def element_force(system: System, frame: Frames, q, v) -> list:
    """Generalized force of all elements, (nv)."""
    force: list = [None] * len(system.topology.links)
    for info, wrenches in zip(system.topology.forces, element_wrenches(system, frame, q, v), strict=True):
        for body, one in zip(info.bodies, wrenches, strict=True):
            link = body_link(system, body)
            if link >= 0:
                force[link] = one if force[link] is None else madd(force[link], one)
    return gather(system, frame, force)


def element_wrenches(system: System, frame: Frames, q, v) -> list[tuple[Force, ...]]:
    """Of every element, the force on each of its bodies, about the reference point of the body's tree."""
    ends = ends_of(system, frame, system.topology.forces, system.force_frames)
    pulls = iter(_pulls(system, frame, q, v, ends))
    out = []
    for info, own in zip(system.topology.forces, ends, strict=True):
        if info.kind == "load":
            at = None if info.at_world is None else system.force.pos1[info.at_world]
            out.append((_load(_law(system, info, q), own[0], info.local, at),))
        else:
            out.append(_sum(next(pulls)))
    return out


def soft_rows(system: System, frame: Frames, q, v) -> list[tuple]:
    """Of every pull that depends on the motion: its row [(dof, coefficient), ...], stiffness and damping (never less than zero)."""
    top, out = system.topology, []
    infos = [info for info in top.forces if info.kind != "load"]
    for info, pulls in zip(infos, _pulls(system, frame, q, v), strict=True):
        for pull in pulls:
            if pull.stiffness is None:
                continue
            row = row_coefficients(system, frame, info.bodies, (pull.force, pull.about_first, pull.about_second))
            out.append((row, *(jnp.where(x < 0, 0.0, x) for x in (jnp.asarray(pull.stiffness), jnp.asarray(pull.damping)))))
    return out


def _pulls(system: System, frame: Frames, q, v, ends=None) -> list[list[Pull]]:
    """Of every element between two bodies."""
    top = system.topology
    _, velocity = velocities(system, frame, v)
    out = []
    for info, own in zip(top.forces, ends or ends_of(system, frame, top.forces, system.force_frames), strict=True):
        if info.kind != "load":
            links = [body_link(system, b) for b in info.bodies]
            moving = [(ZERO3, ZERO3) if k < 0 else _moving(velocity[k], e.x) for k, e in zip(links, own, strict=True)]
            out.append(LAWS[info.kind](_law(system, info, q), *own, *moving))
    return out


@stage
def _moving(velocity, x):
    return point_velocity(velocity, x), velocity.ang


@stage
def _sum(pulls) -> tuple[Force, Force]:
    def along(part):
        return tuple(total([mul(p[part][i], p.f) for p in pulls]) for i in range(3))

    force = along(0)
    return Force(scale(along(1), -1.0), scale(force, -1.0)), Force(along(2), force)


# ---- laws ----------------------------------------------------------------------------------------------------------------------


def _stretched(law: Law, x, rate):
    """The law of `ForceSpec` "spring" and "torsion": x the length or angle, rate its rate."""
    if law.map is not None:
        rates, lengths, forces = law.map
        up, along = weights(rate, rates, True), weights(x, lengths, True)
        cells = [mul(mul(u, w), forces[i * len(lengths) + k]) for i, u in enumerate(up) for k, w in enumerate(along)]
        return sub(law.preload, total(cells))
    out: object = 0.0 * x
    if law.stiffness is not None or law.spring is not None:
        away = sub(x, law.rest)
        out = sub(law.preload, mul(law.stiffness[0], away) if law.stiffness is not None else law.spring(away))
        if law.stop is not None:
            low, high = law.stop
            out = add(out, sub(BUMP(low - x), BUMP(x - high)))
    if law.damping is not None or law.damper is not None:
        out = sub(out, mul(law.damping[0], rate) if law.damping is not None else law.damper(rate))
    return out


def _with_slopes(law: Law, x, rate) -> tuple:
    """f, and how fast it falls with the length and with its rate."""
    x, rate = jnp.broadcast_arrays(x, rate)
    f, by_length = jax.jvp(lambda y: _stretched(law, y, rate), (x,), (jnp.ones_like(x),))
    _, by_rate = jax.jvp(lambda y: _stretched(law, x, y), (rate,), (jnp.ones_like(rate),))
    return f, -by_length, -by_rate


@stage
def _spring(law: Law, a: End, b: End, moving_a, moving_b) -> list[Pull]:
    d = vsub(b.world, a.world)
    n = normalize(d)
    law_of = _with_slopes(law, safe_norm(d), dot(n, vsub(moving_b[0], moving_a[0])))
    return [Pull(n, cross(a.x, n), cross(b.x, n), *law_of)]


def _angle(law: Law, a: End, b: End):
    """Angle of the second frame's x axis about the first frame's z axis, on the turn that the hinges tell; within half a turn without."""
    angle = angle_about(a, b)
    if law.turned is not None:
        angle = angle + 2 * math.pi * jax.lax.stop_gradient(jnp.round((law.turned - angle) / (2 * math.pi)))
    return angle


def _parted(a: End, b: End) -> tuple:
    """Position and rotation vector of the second frame, seen from the first."""
    return (*apply_inverse(a.R, vsub(b.world, a.world)), *quat_log(quat_mul(quat_conj(a.quat), b.quat)))


@stage
def _torsion(law: Law, a: End, b: End, moving_a, moving_b) -> list[Pull]:
    z = a.axis(2)
    return [Pull(ZERO3, z, z, *_with_slopes(law, _angle(law, a, b), dot(z, vsub(moving_b[1], moving_a[1]))))]


@stage
def _bushing(law: Law, a: End, b: End, moving_a, moving_b) -> list[Pull]:
    d = vsub(b.world, a.world)
    (va, wa), (vb, wb) = moving_a, moving_b
    rate = (*apply_inverse(a.R, vsub(vsub(vb, va), cross(wa, d))), *apply_inverse(a.R, vsub(wb, wa)))
    out = []
    for i, (k, c, x, y) in enumerate(zip(law.stiffness, law.damping, _parted(a, b), rate, strict=True)):
        e, f = a.axis(i % 3), sub(mul(-1.0, mul(k, x)), mul(c, y))
        wrench = (e, cross(a.x, e), cross(b.x, e)) if i < 3 else (ZERO3, e, e)
        out.append(Pull(*wrench, f, k, c))
    return out


@stage
def _motor(law: Law, a: End, b: End, moving_a, moving_b) -> list[Pull]:
    z = a.axis(2)
    if law.driven == "hinge":
        return [Pull(ZERO3, z, z, law.level)]
    return [Pull(z, cross(vadd(a.x, vsub(b.world, a.world)), z), cross(b.x, z), law.level)]


LAWS = {"spring": _spring, "torsion": _torsion, "bushing": _bushing, "motor": _motor}


@stage
def _load(law: Law, end: End, local: bool, at_world) -> Force:
    """at_world: the point of the world where the force acts, None: the end's origin."""
    vector = apply(end.R, law.vector) if local else law.vector
    vector = vector if law.level is None else scale(vector, law.level)
    if law.driven == "hinge":
        return Force(vector, ZERO3)
    arm = end.x if at_world is None else vsub(at_world, vsub(end.world, end.x))
    return Force(cross(arm, vector), vector)


# ---- energy --------------------------------------------------------------------------------------------------------------------


def element_energy(system: System, frame: Frames, q) -> list:
    """Energy stored in each spring, torsion spring and bushing, and in flexes, J; what a map takes or gives has no potential."""
    out = []
    ends = ends_of(system, frame, system.topology.forces, system.force_frames)
    for info, own in zip(system.topology.forces, ends, strict=True):
        if info.kind in ("spring", "torsion", "bushing") and info.map is None:
            out.append(_stored(_law(system, info, q), *own))
    return [*out, *flex_energy(system, frame)]


@stage
def _stored(law: Law, a: End, b: End):
    if law.kind == "bushing":
        return total([mul(mul(0.5, k), mul(x, x)) for k, x in zip(law.stiffness, _parted(a, b), strict=True)])
    if law.stiffness is None and law.spring is None:
        return 0.0
    x = _angle(law, a, b) if law.kind == "torsion" else safe_norm(vsub(b.world, a.world))
    away = sub(x, law.rest)
    out = mul(mul(0.5, law.stiffness[0]), mul(away, away)) if law.stiffness is not None else law.spring.integral(away)
    out = sub(out, mul(law.preload, away))
    if law.stop is not None:
        out = add(out, add(BUMP.integral(law.stop[0] - x), BUMP.integral(x - law.stop[1])))
    return out
