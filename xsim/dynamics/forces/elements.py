"""Force elements between bodies: linear and torsional springs and dampers, bushings, force motors, loads.

An element between two bodies is a sum of force terms. Each term is a scalar f times a unit wrench on the second body, and the opposite
wrench on the first. The wrench is also the Jacobian row of the relative velocity along it. Springs and dampers can therefore act at the end
of a step (`element_rows`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.flex.elasticity import flex_energy
from xsim.dynamics.forces.time_functions import Curve, curve, value, weights
from xsim.dynamics.tree.frames import End, angle_about, body_link, coordinate_addresses, ends_of, row_coefficients
from xsim.dynamics.tree.kinematics import Frames, generalized_force, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.model.topology import SPRINGS
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

BUMP_STOP = Curve(
    "table",
    (0.0, 0.0, 0.002, 200.0, 0.004, 400.0, 0.006, 600.0, 0.008, 800.0, 0.010, 1000.0, 0.020, 2500.0, 0.030, 4500.0, 0.040, 7500.0,
     0.050, 12500.0, 0.060, 125000.0),
    None,
)  # fmt: skip
"""Force (N) of a bump stop as a function of its compression (m), as in Chrono."""


class ElementLaw(NamedTuple):
    """The parameters of one element, None for those that it does not have. Units as in `xsim.model.model.ElementForce`.

    * rest: length or angle at rest. preload: force at rest.
    * stiffness, damping: 6 values for a bushing, else 1.
    * stop: least and greatest length, between which no bump stop acts.
    * spring, damper: curves that replace stiffness and damping.
    * map: (rates, lengths, forces), a table of the force over the rate and the length.
    * vector: force or moment of a load.
    * function_value: value of its function of time.
    * hinge_angle: angle of a torsion spring from the coordinates of the hinges between its bodies.
    """

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
    function_value: object = None
    hinge_angle: object = None


class ForceTerm(NamedTuple):
    """A scalar f times a unit wrench.

    * force: force on the second body, world axes.
    * moment_first, moment_second: moments about the reference points of the first and of the second body's tree.
    * f: magnitude, N or N m.
    * stiffness, damping: minus d f / d displacement and minus d f / d rate along the wrench; None for an f that depends on neither.
    """

    force: tuple
    moment_first: tuple
    moment_second: tuple
    f: object
    stiffness: object = None
    damping: object = None


def _law(system: System, info, q) -> ElementLaw:
    f, parameters = system.force, {}
    width = 6 if info.kind == "bushing" else 1
    if info.kind in SPRINGS:
        parameters |= {"rest": f.rest[info.row], "preload": f.preload[info.row]}
    for name in ("stiffness", "damping"):
        row = getattr(info, name)
        if row is not None:
            parameters[name] = tuple(getattr(f, name)[row : row + width])
    for name in ("spring", "damper"):
        index = getattr(info, name)
        if index is not None:
            parameters[name] = curve(system, index)
    if info.stop is not None:
        parameters["stop"] = f.stop[info.stop]
    if info.map is not None:
        first, m, n = info.map
        numbers = f.map[first : first + m + n + m * n]
        parameters["map"] = (numbers[:m], numbers[m : m + n], numbers[m + n :])
    if info.kind == "load":
        parameters["vector"] = f.vector[info.row]
    if info.function is not None:
        parameters["function_value"] = value(system, info.function, system.functions.time)
    if info.hinges:
        addresses = coordinate_addresses(system.topology)
        parameters["hinge_angle"] = total([mul(sign, q[addresses[dof][1]]) for dof, sign in info.hinges])
    return ElementLaw(info.kind, info.driven, **parameters)


def element_force(system: System, frame: Frames, q, v) -> list:
    """Generalized force of all elements (nv)."""
    force: list = [None] * len(system.topology.links)
    for info, wrenches in zip(system.topology.forces, element_wrenches(system, frame, q, v), strict=True):
        for body, wrench in zip(info.bodies, wrenches, strict=True):
            link = body_link(system, body)
            if link >= 0:
                force[link] = wrench if force[link] is None else madd(force[link], wrench)
    return generalized_force(system, frame, force)


def element_wrenches(system: System, frame: Frames, q, v) -> list[tuple[Force, ...]]:
    """Per element, the wrench on each of its bodies, about the reference point of the body's tree."""
    ends = ends_of(system, frame, system.topology.forces, system.force_frames)
    terms = iter(_force_terms(system, frame, q, v, ends))
    out = []
    for info, info_ends in zip(system.topology.forces, ends, strict=True):
        if info.kind == "load":
            at = None if info.at_world is None else system.force.pos1[info.at_world]
            out.append((_load(_law(system, info, q), info_ends[0], info.local, at),))
        else:
            out.append(_wrenches(next(terms)))
    return out


def element_rows(system: System, frame: Frames, q, v) -> list[tuple]:
    """(row, stiffness, damping) of each force term that depends on the motion. row: [(dof, coefficient), ...]. Negative stiffness and
    damping are replaced by 0."""
    top, out = system.topology, []
    infos = [info for info in top.forces if info.kind != "load"]
    for info, terms in zip(infos, _force_terms(system, frame, q, v), strict=True):
        for term in terms:
            if term.stiffness is None:
                continue
            row = row_coefficients(system, frame, info.bodies, (term.force, term.moment_first, term.moment_second))
            out.append((row, *(jnp.where(x < 0, 0.0, x) for x in (jnp.asarray(term.stiffness), jnp.asarray(term.damping)))))
    return out


def _force_terms(system: System, frame: Frames, q, v, ends=None) -> list[list[ForceTerm]]:
    """The force terms of each element between two bodies. ends: of all elements, None to compute them."""
    top = system.topology
    _, velocity = velocities(system, frame, v)
    out = []
    for info, pair in zip(top.forces, ends or ends_of(system, frame, top.forces, system.force_frames), strict=True):
        if info.kind != "load":
            links = [body_link(system, b) for b in info.bodies]
            rates = [(ZERO3, ZERO3) if k < 0 else _end_velocity(velocity[k], e.x) for k, e in zip(links, pair, strict=True)]
            out.append(LAWS[info.kind](_law(system, info, q), *pair, *rates))
    return out


@stage
def _end_velocity(velocity, x):
    """Linear and angular velocity of an end."""
    return point_velocity(velocity, x), velocity.ang


@stage
def _wrenches(terms) -> tuple[Force, Force]:
    """The sums of the force terms: the wrenches on the two bodies."""

    def weighted_sum(part):
        return tuple(total([mul(term[part][i], term.f) for term in terms]) for i in range(3))

    force = weighted_sum(0)
    return Force(scale(weighted_sum(1), -1.0), scale(force, -1.0)), Force(weighted_sum(2), force)


# ---- laws ----------------------------------------------------------------------------------------------------------------------


def _spring_force(law: ElementLaw, x, rate):
    """Force of a "spring", "torsion" or "axial" of `ForceSpec`. x: length, angle or displacement. rate: its rate."""
    if law.map is not None:
        rates, lengths, forces = law.map
        by_rate, by_length = weights(rate, rates, True), weights(x, lengths, True)
        cells = [mul(mul(u, w), forces[i * len(lengths) + k]) for i, u in enumerate(by_rate) for k, w in enumerate(by_length)]
        return sub(law.preload, total(cells))
    out: object = 0.0 * x
    if law.stiffness is not None or law.spring is not None:
        extension = sub(x, law.rest)
        out = sub(law.preload, mul(law.stiffness[0], extension) if law.stiffness is not None else law.spring(extension))
        if law.stop is not None:
            low, high = law.stop
            out = add(out, sub(BUMP_STOP(low - x), BUMP_STOP(x - high)))
    if law.damping is not None or law.damper is not None:
        out = sub(out, mul(law.damping[0], rate) if law.damping is not None else law.damper(rate))
    return out


def _force_and_derivatives(law: ElementLaw, x, rate) -> tuple:
    """f, minus d f / d length, minus d f / d rate."""
    x, rate = jnp.broadcast_arrays(x, rate)
    f, by_length = jax.jvp(lambda y: _spring_force(law, y, rate), (x,), (jnp.ones_like(x),))
    _, by_rate = jax.jvp(lambda y: _spring_force(law, x, y), (rate,), (jnp.ones_like(rate),))
    return f, -by_length, -by_rate


@stage
def _spring(law: ElementLaw, a: End, b: End, velocity_a, velocity_b) -> list[ForceTerm]:
    d = vsub(b.world, a.world)
    n = normalize(d)
    terms = _force_and_derivatives(law, safe_norm(d), dot(n, vsub(velocity_b[0], velocity_a[0])))
    return [ForceTerm(n, cross(a.x, n), cross(b.x, n), *terms)]


def _angle(law: ElementLaw, a: End, b: End):
    """Angle of the second frame's x axis about the first frame's z axis. The revolution is that of the hinge angle; without one, the angle
    is between -pi and pi."""
    angle = angle_about(a, b)
    if law.hinge_angle is not None:
        angle = angle + 2 * math.pi * jax.lax.stop_gradient(jnp.round((law.hinge_angle - angle) / (2 * math.pi)))
    return angle


def _relative_pose(a: End, b: End) -> tuple:
    """Position and rotation vector of the second frame relative to the first, in axes of the first."""
    return (*apply_inverse(a.R, vsub(b.world, a.world)), *quat_log(quat_mul(quat_conj(a.quat), b.quat)))


@stage
def _torsion(law: ElementLaw, a: End, b: End, velocity_a, velocity_b) -> list[ForceTerm]:
    z = a.axis(2)
    return [ForceTerm(ZERO3, z, z, *_force_and_derivatives(law, _angle(law, a, b), dot(z, vsub(velocity_b[1], velocity_a[1]))))]


def _along_axis(a: End, b: End, x):
    """The wrench of a unit force along the first frame's z axis, at the second frame's origin. x: a vector from the first origin to it."""
    z = a.axis(2)
    return z, cross(vadd(a.x, x), z), cross(b.x, z)


@stage
def _axial(law: ElementLaw, a: End, b: End, velocity_a, velocity_b) -> list[ForceTerm]:
    d, z = vsub(b.world, a.world), a.axis(2)
    rate = dot(z, vsub(vsub(velocity_b[0], velocity_a[0]), cross(velocity_a[1], d)))
    return [ForceTerm(*_along_axis(a, b, d), *_force_and_derivatives(law, dot(z, d), rate))]


@stage
def _bushing(law: ElementLaw, a: End, b: End, velocity_a, velocity_b) -> list[ForceTerm]:
    d = vsub(b.world, a.world)
    (va, wa), (vb, wb) = velocity_a, velocity_b
    rate = (*apply_inverse(a.R, vsub(vsub(vb, va), cross(wa, d))), *apply_inverse(a.R, vsub(wb, wa)))
    out = []
    for i, (k, c, x, y) in enumerate(zip(law.stiffness, law.damping, _relative_pose(a, b), rate, strict=True)):
        e, f = a.axis(i % 3), sub(mul(-1.0, mul(k, x)), mul(c, y))
        wrench = (e, cross(a.x, e), cross(b.x, e)) if i < 3 else (ZERO3, e, e)
        out.append(ForceTerm(*wrench, f, k, c))
    return out


@stage
def _motor(law: ElementLaw, a: End, b: End, velocity_a, velocity_b) -> list[ForceTerm]:
    z = a.axis(2)
    if law.driven == "hinge":
        return [ForceTerm(ZERO3, z, z, law.function_value)]
    return [ForceTerm(*_along_axis(a, b, vsub(b.world, a.world)), law.function_value)]


LAWS = {"spring": _spring, "torsion": _torsion, "axial": _axial, "bushing": _bushing, "motor": _motor}


@stage
def _load(law: ElementLaw, end: End, local: bool, at_world) -> Force:
    """The wrench of a load. local: whether the vector is in axes of the end. at_world: the point of the world at which the force acts,
    None: the origin of the end."""
    vector = apply(end.R, law.vector) if local else law.vector
    vector = vector if law.function_value is None else scale(vector, law.function_value)
    if law.driven == "hinge":
        return Force(vector, ZERO3)
    arm = end.x if at_world is None else vsub(at_world, vsub(end.world, end.x))
    return Force(cross(arm, vector), vector)


# ---- energy --------------------------------------------------------------------------------------------------------------------


def element_energy(system: System, frame: Frames, q) -> list:
    """Potential energy of each spring, torsion spring and bushing, and of flexes, J. Maps have no potential."""
    out = []
    ends = ends_of(system, frame, system.topology.forces, system.force_frames)
    for info, info_ends in zip(system.topology.forces, ends, strict=True):
        if info.kind in (*SPRINGS, "bushing") and info.map is None:
            out.append(_potential(_law(system, info, q), *info_ends))
    return [*out, *flex_energy(system, frame, q)]


@stage
def _potential(law: ElementLaw, a: End, b: End):
    if law.kind == "bushing":
        return total([mul(mul(0.5, k), mul(x, x)) for k, x in zip(law.stiffness, _relative_pose(a, b), strict=True)])
    if law.stiffness is None and law.spring is None:
        return 0.0
    d = vsub(b.world, a.world)
    x = {"spring": lambda: safe_norm(d), "torsion": lambda: _angle(law, a, b), "axial": lambda: dot(a.axis(2), d)}[law.kind]()
    extension = sub(x, law.rest)
    out = mul(mul(0.5, law.stiffness[0]), mul(extension, extension)) if law.stiffness is not None else law.spring.integral(extension)
    out = sub(out, mul(law.preload, extension))
    if law.stop is not None:
        out = add(out, add(BUMP_STOP.integral(law.stop[0] - x), BUMP_STOP.integral(x - law.stop[1])))
    return out
