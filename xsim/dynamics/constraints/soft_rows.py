"""Soft constraints: equalities, dry friction and limits under MuJoCo's model.

Each is some rows J of the acceleration a. With x = J a + (dJ/dt) v - aref, aref = -b J v - k d r, a row pushes with the force
f = -x / R within its bounds, R = A (1 - d) / d: an equality has none, dry friction its own, a limit only pushes. r is the row's residual
(of a limit: its distance less the margin), d the impedance at the constraint's residual, A the mobility along the row at the start.
Source: MuJoCo's documentation, Computation, Constraint model. Rows of connect and weld have (dJ/dt) v under the rules 4.0 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim import spatial
from xsim.dynamics.linalg.dense import assembled, fit, loop_sum, pairwise_sum, stacked, tree_sum
from xsim.dynamics.tendons.tendons import LengthAndJacobian, scaled
from xsim.dynamics.tree.frames import End, body_end, body_link, coordinate_addresses, site_end
from xsim.dynamics.tree.kinematics import Frames, accelerations, point_acceleration, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.model.topology import SoftInfo, Topology
from xsim.registry import SOFT_CONSTRAINTS
from xsim.spatial import (
    IDENTITY,
    ZERO3,
    add,
    apply_inverse,
    mul,
    neg,
    normalize,
    quat_conj,
    quat_log,
    quat_mul,
    safe_norm,
    scale,
    sub,
    total,
    vadd,
    vsub,
)

LEAST, MOST = 1e-4, 0.9999  # impedances
TINY = 1e-15  # the least that is divided by
INFINITE = float("inf")
BASIS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@spatial.stage
def _weighted(coefficients, x):
    """Sums of x (n, lanes) with constant coefficients (n, m): (m, lanes)."""
    if not len(coefficients):
        return jnp.zeros((coefficients.shape[1], *x.shape[1:]), x.dtype)
    rows = coefficients.astype(x.dtype).reshape(*coefficients.shape, *(1,) * (x.ndim - 1))
    return tree_sum([row * y[None] for row, y in zip(rows, x, strict=True)])


def has_rows(topology: Topology) -> bool:
    """Whether there are equalities, limits or dry friction as soft constraints, and they act."""
    return bool(topology.soft) and "soft" in topology.constraint_kinds


class RowContext(NamedTuple):
    """Where the model is, for the rows. moving: velocity and acceleration without generalized acceleration per link, where rows have
    (dJ/dt) v."""

    system: System
    frame: Frames
    q: list
    tendon: list[LengthAndJacobian]
    moving: tuple | None


class Wrench(NamedTuple):
    """force and moment on the first body at its point (world axes, world positions), the opposite on the second at its own."""

    bodies: tuple[int, ...]
    points: tuple
    force: tuple
    moment: tuple


class Row(NamedTuple):
    """row: [(dof, coefficient), ...] of J. residual; impedance_distance: what the impedance depends on. mobility: A. bounds of the force.
    present: None for always. drift: (dJ/dt) v. held: whether the residual pulls back. wrench: what a unit force does to two bodies, None
    where it acts within joints or tendons."""

    row: list
    residual: object
    impedance_distance: object
    mobility: object
    low: object
    high: object
    present: object = None
    drift: object = 0.0
    held: bool = True
    wrench: Wrench | None = None


class Rows(NamedTuple):
    """All rows: those with one constant coefficient, ``single`` (n, nv), then ``many`` (m, nv, lanes). Of each (n + m, lanes): stiffness
    1 / R, offset (dJ/dt) v - aref, bounds of the force."""

    single: np.ndarray
    many: object
    stiffness: object
    offset: object
    low: object
    high: object

    def j_times(self, x):
        """J x of x (nv, lanes)."""
        own = _weighted(self.single.T, x)
        return jnp.concatenate([own, tree_sum([self.many[:, k] * x[k][None] for k in range(len(x))])]) if len(self.many) else own

    def jt_times(self, f):
        """J^T f (nv, lanes)."""
        n = len(self.single)
        own = _weighted(self.single, f[:n])
        return own + pairwise_sum(self.many * f[n:, None]) if len(self.many) else own

    def curvature(self, x, count=None):
        """J^T P'' J (nv, nv, lanes)."""
        (n, nv), g = self.single.shape, self.hessian(x)
        diagonal = _weighted(self.single**2, g[:n])
        eye = jnp.eye(nv, dtype=g.dtype).reshape(nv, nv, *(1,) * (g.ndim - 1))
        out = eye * diagonal[None]
        return out if n == len(g) else out + loop_sum(lambda i: self.many[i][:, None] * self.many[i][None] * g[n + i], len(self.many))

    def hessian(self, x):
        """P'', its diagonal (n + m, lanes)."""
        return jnp.where(self.zone(x) == 0, self.stiffness, 0.0)

    def line(self, x, dx) -> Callable:
        """See `Cones.line`."""
        flexible = self.stiffness * dx * dx

        def line(reach):
            there = x + reach * dx
            return pairwise_sum(-self.force(there) * dx), pairwise_sum(jnp.where(self.zone(there) == 0, flexible, 0.0))

        return line

    def count(self):
        """See `Cones.count`: all of them."""
        return None

    def fitted(self, lanes: tuple[int, ...]) -> Rows:
        """With arrays of all lanes, or without that axis."""
        return Rows(self.single, *(fit(x, lanes) for x in self[1:]))

    def lifted(self) -> Rows:
        """With an axis of lanes."""
        return self if self.offset.ndim > 1 else Rows(self.single, *(x[..., None] for x in self[1:]))

    def zone(self, x):
        """Which bound the force is at (n + m, lanes): -1 the lower, 1 the upper, 0 none."""
        f = -self.stiffness * x
        return jnp.where(f <= self.low, -1, jnp.where(f >= self.high, 1, 0))

    def force(self, x):
        """Forces (n + m, lanes) at x = J a + offset."""
        side = self.zone(x)
        return jnp.where(side == 0, -self.stiffness * x, jnp.where(side < 0, self.low, self.high))


# ---- rows of each kind --------------------------------------------------------------------------------------------------------


def _point_rows(at: RowContext, body: int, end: End) -> dict[int, tuple]:
    """Velocity of a body's point per dof that moves it."""
    link = body_link(at.system, body)
    dofs = at.system.tables.chain[link] if link >= 0 else ()
    return {dof: point_velocity(at.frame.subspace[dof], end.x) for dof in dofs}


def _turn_rows(at: RowContext, body: int) -> dict[int, tuple]:
    """Angular velocity of a body per dof that moves it."""
    link = body_link(at.system, body)
    dofs = at.system.tables.chain[link] if link >= 0 else ()
    return {dof: at.frame.subspace[dof].ang for dof in dofs}


def _apart(first: dict[int, tuple], second: dict[int, tuple]) -> list[tuple[int, tuple]]:
    """The first less the second, per dof."""
    dofs = sorted(first.keys() | second.keys())
    return [(dof, vsub(first.get(dof, ZERO3), second.get(dof, ZERO3))) for dof in dofs]


def _component(rows: list[tuple[int, tuple]], k: int) -> list:
    return [(dof, x[k]) for dof, x in rows if not (isinstance(x[k], float) and x[k] == 0.0)]


def _bodies(at: RowContext, info: SoftInfo) -> tuple[int, ...]:
    return tuple(at.system.topology.sites[i].body for i in info.items) if info.sites else info.items


def _point_drift(at: RowContext, bodies, ends) -> tuple:
    if at.moving is None:
        return ZERO3
    found = []
    for body, end in zip(bodies, ends, strict=True):
        link = body_link(at.system, body)
        velocity, acceleration = at.moving
        found.append(ZERO3 if link < 0 else point_acceleration(acceleration[link], velocity[link], end.x))
    return vsub(*found)


def _connect(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    bodies = _bodies(at, info)
    if info.sites:
        ends = [site_end(at.system, at.frame, site) for site in info.items]
    else:
        points = at.system.equality.anchor[info.row], reference
        ends = [body_end(at.system, at.frame, body, point, IDENTITY) for body, point in zip(bodies, points, strict=True)]
    return _together(at, bodies, ends, ())


def _together(at: RowContext, bodies, ends, more) -> list[Row]:
    """Rows that bring two points together; more: residuals that share their impedance."""
    gap = vsub(ends[0].world, ends[1].world)
    moved = _apart(*(_point_rows(at, body, end) for body, end in zip(bodies, ends, strict=True)))
    drift, far = _point_drift(at, bodies, ends), safe_norm((*gap, *more))
    mobility = add(*(at.system.derived.mobility.bodies[body][0] for body in bodies))
    points = tuple(end.world for end in ends)
    wrenches = [Wrench(bodies, points, axis, ZERO3) for axis in BASIS]
    return [Row(_component(moved, k), gap[k], far, mobility, -INFINITE, INFINITE, drift=drift[k], wrench=wrenches[k]) for k in range(3)]


def _weld(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    bodies = _bodies(at, info)
    if info.sites:
        ends, relative = [site_end(at.system, at.frame, site) for site in info.items], IDENTITY
    else:
        points, relative = (reference[:3], at.system.equality.anchor[info.row]), reference[3:]
        ends = [body_end(at.system, at.frame, body, point, IDENTITY) for body, point in zip(bodies, points, strict=True)]
    first, second = quat_mul(ends[0].quat, relative), quat_conj(ends[1].quat)
    weight = at.system.equality.torque_scale[info.scale]
    turned = scale(quat_mul(second, first)[1:], weight)
    half = mul(0.5, weight)
    columns = [scale(quat_mul(quat_mul(second, (0.0, *axis)), first)[1:], half) for axis in BASIS]
    spun = [(dof, _combined(columns, x)) for dof, x in _apart(*(_turn_rows(at, body) for body in bodies))]
    drift = _turn_drift(at, bodies, ends, columns, first, second, half)
    rows = _together(at, bodies, ends, turned)
    mobility = add(*(at.system.derived.mobility.bodies[body][1] for body in bodies))
    for k in range(3):
        wrench = Wrench(bodies, (ZERO3, ZERO3), ZERO3, tuple(column[k] for column in columns))
        rows.append(Row(_component(spun, k), turned[k], rows[0].impedance_distance, mobility, -INFINITE, INFINITE, drift=drift[k],
        wrench=wrench))
    return rows


def _combined(columns, x):
    return tuple(total([mul(column[k], y) for column, y in zip(columns, x, strict=True)]) for k in range(3))


def _turn_drift(at: RowContext, bodies, ends, columns, first, second, half) -> tuple:
    """Rate of 1/2 conj(q2) (w1 - w2) q1 q_rel at constant generalized velocity."""
    if at.moving is None:
        return ZERO3
    spins, bends = [], []
    for body in bodies:
        link = body_link(at.system, body)
        spins.append(ZERO3 if link < 0 else at.moving[0][link].ang)
        bends.append(ZERO3 if link < 0 else at.moving[1][link].ang)
    relative = (0.0, *vsub(*spins))
    # The rates of the quaternions: q1' = w1 q1 / 2, conj(q2)' = -conj(q2) w2 / 2.
    growing = quat_mul(quat_mul(second, quat_mul(relative, (0.0, *spins[0]))), first)[1:]
    shrinking = quat_mul(quat_mul(second, quat_mul((0.0, *spins[1]), relative)), first)[1:]
    turning = scale(vsub(growing, shrinking), mul(0.5, half))
    return vadd(_combined(columns, vsub(*bends)), turning)


def _polynomial(coefficients, x):
    """Value and slope."""
    value, slope = 0.0, 0.0
    for c in reversed(coefficients):
        slope = add(mul(slope, x), value)
        value = add(mul(value, x), c)
    return value, slope


def _related(numbers, travels, rows, mobilities) -> list[Row]:
    """One row: a first quantity is a polynomial of a second; what they travelled from the start, what moves them."""
    if len(travels) == 1:
        return [Row(rows[0], sub(travels[0], numbers[0]), sub(travels[0], numbers[0]), mobilities[0], -INFINITE, INFINITE)]
    value, slope = _polynomial(numbers, travels[1])
    gap, merged = sub(travels[0], value), dict(rows[0])
    for dof, x in scaled(rows[1], neg(slope)):
        merged[dof] = add(merged[dof], x) if dof in merged else x
    return [Row(list(merged.items()), gap, gap, add(*mobilities), -INFINITE, INFINITE)]


def _joint(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    places, start = coordinate_addresses(at.system.topology), at.system.topology.initial[0]
    q = [places[dof][1] for dof in info.items]
    travels = [sub(at.q[i], start[i]) for i in q]
    mobilities = [at.system.derived.mobility.dofs[dof] for dof in info.items]
    return _related(at.system.equality.polynomial[info.row], travels, [[(dof, 1.0)] for dof in info.items], mobilities)


def _tendon(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    travels = [sub(at.tendon[i].length, at.system.derived.mobility.lengths[i]) for i in info.items]
    mobilities = [at.system.derived.mobility.tendons[i] for i in info.items]
    return _related(at.system.equality.polynomial[info.row], travels, [at.tendon[i].row for i in info.items], mobilities)


def _friction(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    (dof,), bound = info.items, at.system.dof.friction[info.row]
    return [Row([(dof, 1.0)], 0.0, 0.0, at.system.derived.mobility.dofs[dof], neg(bound), bound, held=False)]


def _tendon_friction(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    (i,), bound = info.items, at.system.tendon.friction[info.row]
    return [Row(at.tendon[i].row, 0.0, 0.0, at.system.derived.mobility.tendons[i], neg(bound), bound, held=False)]


def _limit(at: RowContext, info: SoftInfo, row, distance, mobility) -> list[Row]:
    margin = at.system.soft.margin[info.soft]
    inside = sub(distance, margin)
    return [Row(row, inside, inside, mobility, 0.0, INFINITE, present=distance < margin)]


def _coordinate_limit(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    (dof,) = info.items
    x = at.q[coordinate_addresses(at.system.topology)[dof][1]]
    bound = getattr(at.system.limit, info.kind)[info.row]
    distance, sign = (sub(x, bound), 1.0) if info.kind == "lower" else (sub(bound, x), -1.0)
    return _limit(at, info, [(dof, sign)], distance, at.system.derived.mobility.dofs[dof])


def _angle(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    (dof,) = info.items
    joint = next(j for j in at.system.topology.joints if j.v[0] == dof)
    turned = quat_log(normalize(tuple(at.q[joint.q[0] : joint.q[0] + 4])))
    distance = sub(at.system.limit.angle[info.row], safe_norm(turned))
    axis = normalize(turned)
    return _limit(at, info, [(dof + k, neg(axis[k])) for k in range(3)], distance, at.system.derived.mobility.dofs[dof])


def _tendon_limit(at: RowContext, info: SoftInfo, reference) -> list[Row]:
    (i,), low = info.items, info.kind == "tendon_lower"
    length, row = at.tendon[i]
    bound = at.system.tendon.range[info.row][0 if low else 1]
    distance = sub(length, bound) if low else sub(bound, length)
    return _limit(at, info, row if low else scaled(row, -1.0), distance, at.system.derived.mobility.tendons[i])


def _connect_reference(system: System, frame: Frames, info: SoftInfo) -> tuple:
    """The point in the second body that is at the anchor in the first."""
    first, second = info.items
    point = body_end(system, frame, first, system.equality.anchor[info.row], IDENTITY)
    return _in_body(point, body_end(system, frame, second, ZERO3, IDENTITY))


def _in_body(point, body):
    return apply_inverse(body.R, vsub(point.world, body.world))


def _weld_reference(system: System, frame: Frames, info: SoftInfo) -> tuple:
    """The anchor's position in the first body (3) and the orientation of the second in the first (4)."""
    anchor = system.equality.anchor[info.row]
    if info.pose is not None:
        pose = system.equality.relpose[info.pose]
        return (*pose[:3], *normalize(pose[3:]))
    one, two = (body_end(system, frame, body, ZERO3, IDENTITY) for body in info.items)
    point = body_end(system, frame, info.items[1], anchor, IDENTITY)
    return (*_in_body(point, one), *quat_mul(quat_conj(one.quat), two.quat))


class SoftConstraint(NamedTuple):
    """A kind of soft constraint, an entry of `xsim.registry.SOFT_CONSTRAINTS`.

    rows(at: RowContext, info: SoftInfo, reference) -> list of `Row`. Of equalities also: items: what `SoftInfo.items` are, "bodies" (or
    sites), "dofs" or "tendons"; leaves: the leaves of ``equality`` that it reads; reference(system, frame, info) -> what it keeps of the
    initial configuration, None for nothing. drift: whether its rows have (dJ/dt) v where the rules have it."""

    rows: Callable
    items: str = ""
    leaves: tuple[str, ...] = ()
    reference: Callable | None = None
    drift: bool = False


for _name, _kind in {
    "connect": SoftConstraint(_connect, "bodies", ("anchor",), _connect_reference, drift=True),
    "weld": SoftConstraint(_weld, "bodies", ("anchor", "relpose", "torque_scale"), _weld_reference, drift=True),
    "joint": SoftConstraint(_joint, "dofs", ("polynomial",)),
    "tendon": SoftConstraint(_tendon, "tendons", ("polynomial",)),
    "friction": SoftConstraint(_friction),
    "tendon_friction": SoftConstraint(_tendon_friction),
    "lower": SoftConstraint(_coordinate_limit),
    "upper": SoftConstraint(_coordinate_limit),
    "angle": SoftConstraint(_angle),
    "tendon_lower": SoftConstraint(_tendon_limit),
    "tendon_upper": SoftConstraint(_tendon_limit),
}.items():
    SOFT_CONSTRAINTS.register(_name, _kind)


def references(system: System, frame: Frames) -> tuple:
    """Per soft constraint, what it keeps of the initial configuration (``frame``); None for nothing, and where sites say it."""
    out = []
    for info in system.topology.soft:
        reference = None if info.kind == "flex" or info.sites else SOFT_CONSTRAINTS[info.kind].reference
        out.append(None if reference is None else reference(system, frame, info))
    return tuple(out)


# ---- numbers of all rows ------------------------------------------------------------------------------------------------------


def _power(x, p):
    """x^p of x >= 0, with derivatives at 0."""
    some = x > 0
    return jnp.where(some, jnp.where(some, x, 1.0) ** p, 0.0)


def impedance(distance, solimp):
    """d from 0 to 1 of the residual: from solimp[0] at zero to solimp[1] at the width solimp[2], by two powers solimp[4] that meet at
    solimp[3]."""
    first, last, width, middle, power = solimp
    first, last, middle = (jnp.clip(x, LEAST, MOST) for x in (first, last, middle))
    power, wide = jnp.maximum(power, 1.0), width > TINY
    x = jnp.clip(jnp.abs(distance) / jnp.where(wide, width, 1.0), 0.0, 1.0)
    low = x <= middle
    rising = _power(jnp.where(low, x, 0.0), power) / middle ** (power - 1.0)
    falling = 1.0 - _power(jnp.where(low, 0.0, 1.0 - x), power) / (1.0 - middle) ** (power - 1.0)
    return jnp.where(wide, first + jnp.where(low, rising, falling) * (last - first), 0.5 * (first + last))


def reference(solref, solimp, dt, safe: bool):
    """Stiffness k and damping b of the reference acceleration. safe: time constants are at least two steps."""
    time, ratio = solref
    last = jnp.clip(solimp[1], LEAST, MOST)
    timed = (time > 0) & (ratio > 0)
    if safe:  # not jnp.maximum: on the tie, common with round numbers, it has half the derivative
        time = jnp.where(timed & (time < 2.0 * dt), 2.0 * dt, time)
    safe_time, safe_ratio = jnp.where(timed, time, 1.0), jnp.where(timed, ratio, 1.0)
    k = jnp.where(timed, 1.0 / jnp.maximum(TINY, (last * safe_time * safe_ratio) ** 2), -time / last**2)
    b = jnp.where(timed, 2.0 / jnp.maximum(TINY, last * safe_time), -ratio / last)
    return k, b


def _found(system: System, frame: Frames, q, v, tendon: list[LengthAndJacobian]) -> list[tuple[SoftInfo, Row]]:
    """All rows at a state, those with one constant coefficient first."""
    top = system.topology
    moving = None
    if top.switches.constraint_drift and any(info.kind != "flex" and SOFT_CONSTRAINTS[info.kind].drift for info in top.soft):
        own, velocity = velocities(system, frame, v)
        moving = velocity, accelerations(system, frame, q, v, None, own, velocity)
    at = RowContext(system, frame, q, tendon, moving)
    found = []
    for info, reference in zip(top.soft, system.derived.references, strict=True):
        if info.kind != "flex":
            found += [(info, row) for row in SOFT_CONSTRAINTS[info.kind].rows(at, info, reference)]
    return sorted(found, key=lambda pair: not _is_single(pair[1]))


def _is_single(row: Row) -> bool:
    return len(row.row) == 1 and isinstance(row.row[0][1], float)


def _numbers(system: System, found: list[tuple[SoftInfo, Row]], q, v) -> Rows:
    rows, count = [row for _, row in found], sum(_is_single(row) for _, row in found)
    like = (system.option.dt, q, v, [row[:8] for row in rows])

    def vector(xs):
        return stacked(xs, like)

    single = np.zeros((count, len(v)))
    for i, row in enumerate(rows[:count]):
        single[i, row.row[0][0]] = row.row[0][1]
    entries = {(i, dof): x for i, row in enumerate(rows[count:]) for dof, x in row.row}
    many = assembled(entries, (len(rows) - count, len(v)), like)
    softness = [info.soft for info, _ in found]
    solref = [vector([system.soft.solref[i][k] for i in softness]) for k in range(2)]
    solimp = [vector([system.soft.solimp[i][k] for i in softness]) for k in range(5)]
    d = impedance(vector([r.impedance_distance for r in rows]), solimp)
    k, b = reference(solref, solimp, system.option.dt, "refsafe" not in system.topology.disabled)
    present = vector([1.0 if r.present is None else jnp.where(r.present, 1.0, 0.0) for r in rows]) > 0
    weak = jnp.maximum(TINY, (1.0 - d) / d * vector([r.mobility for r in rows]))
    bounds = [jnp.where(present, vector(xs), 0.0) for xs in ([r.low for r in rows], [r.high for r in rows])]
    out = Rows(single, many, jnp.where(present, 1.0 / weak, 0.0), d, *bounds)
    held = vector([r.residual if r.held else 0.0 for r in rows])
    return out._replace(offset=vector([r.drift for r in rows]) + b * out.j_times(vector(v)) + k * d * held)


def soft_rows(system: System, frame: Frames, q, v, tendon: list[LengthAndJacobian]) -> Rows | None:
    """All rows at a state but those of flexes, None where there are no others."""
    found = _found(system, frame, q, v, tendon)
    return _numbers(system, found, q, v) if found else None


def joined_rows(a: Rows, b: Rows) -> Rows:
    """Rows with an axis of lanes, those of the second after the first; of the second none with one constant coefficient."""
    width = max(a.offset.shape[-1], b.offset.shape[-1])
    wide = [[jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in part[1:]] for part in (a, b)]
    many, *vectors = (jnp.concatenate(both) for both in zip(*wide, strict=True))
    return Rows(a.single, many, *vectors)


class ConstraintForce(NamedTuple):
    """What a row does: its info, the row, rate J v and force."""

    info: SoftInfo
    row: Row
    rate: object
    force: object


def constraint_forces(system: System, frame: Frames, q, v, tendon: list[LengthAndJacobian], a, rows: Rows) -> list[ConstraintForce]:
    """What the rows do at a state and its acceleration, but those of flexes, which are the last. rows: those whose forces act, with an axis
    of lanes."""
    found = _found(system, frame, q, v, tendon)
    a, v = (stacked(x, a, v) for x in (a, v))
    rows = rows.fitted(a.shape[1:])
    forces, rates = rows.force(rows.j_times(a) + rows.offset), rows.j_times(v)
    return [ConstraintForce(info, row, *both) for (info, row), *both in zip(found, rates, forces, strict=False)]
