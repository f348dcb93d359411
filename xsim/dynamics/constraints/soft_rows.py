"""The rows of soft constraints other than contacts: equalities, dry friction and limits, under MuJoCo's constraint model.

A row has a Jacobian J. At an acceleration a, with x = J a + (dJ/dt) v - aref and aref = -b J v - k d r, its force is f = -x / R, clipped to
its bounds. R = A (1 - d) / d is the regularization. An equality has no bounds. Dry friction is bounded by its friction loss. A limit force
is not negative. r is the residual (of a limit: its distance minus its margin), d the impedance, A the diagonal of J M^-1 J^T in the
reference configuration (or, see `Topology.exact_mobility`, at the state). Source: MuJoCo's documentation, Computation, Constraint model.
MuJoCo 4.0 has the term (dJ/dt) v in connect and weld constraints; MuJoCo 3.2 does not. With MuJoCo's integrator ``discrete`` the reference
is at the end of the step, see `softness.reference_law`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim import spatial
from xsim.dynamics.constraints.row_mobility import RowMobility
from xsim.dynamics.constraints.softness import impedance, reference_law, regularization
from xsim.dynamics.linalg.assembly import Curvature
from xsim.dynamics.linalg.dense import assembled, every, fit, pairwise_sum, stacked, sum_of_products, transposed_times, tree_sum
from xsim.dynamics.tendons.tendons import LengthAndJacobian, scaled_row
from xsim.dynamics.tree.frames import End, Wrench, body_end, body_link, coordinate_addresses, site_end
from xsim.dynamics.tree.kinematics import Frames, accelerations, point_acceleration, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.model.topology import SoftInfo, Topology
from xsim.registry import SOFT_CONSTRAINTS
from xsim.spatial import (
    IDENTITY,
    ZERO3,
    add,
    apply_inverse,
    in_one_environment,
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
    unit_quaternion,
    vadd,
    vsub,
)

INFINITE = float("inf")
BASIS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@spatial.stage
def _combine_constant(coefficients, x):
    """Linear combinations of x (n, lanes) with constant coefficients (n, m): (m, lanes)."""
    if not len(coefficients):
        return jnp.zeros((coefficients.shape[1], *x.shape[1:]), x.dtype)
    if in_one_environment() and x.ndim == 1:
        return transposed_times(coefficients.astype(x.dtype), x)
    rows = coefficients.astype(x.dtype).reshape(*coefficients.shape, *(1,) * (x.ndim - 1))
    return tree_sum([row * y for row, y in zip(rows, x, strict=True)])


def has_soft_rows(topology: Topology) -> bool:
    """Whether the model has soft equalities, limits or dry friction that act: they are enabled, and something can move."""
    return bool(topology.soft and topology.links) and "soft" in topology.constraint_kinds


class RowContext(NamedTuple):
    """The state from which the rows of a constraint are computed.

    tendons: length and Jacobian of every tendon.
    link_motion: spatial velocity and acceleration of every link at zero generalized acceleration. None if no row has the term (dJ/dt) v.
    """

    system: System
    frame: Frames
    q: list
    tendons: list[LengthAndJacobian]
    link_motion: tuple | None


class Row(NamedTuple):
    """One row of a soft constraint. The letters are those of the module's docstring.

    row: [(dof, coefficient), ...] of J.
    residual: r, m or rad.
    impedance_distance: the violation that the impedance depends on. The rows of a constraint share it.
    mobility: A.
    low, high: bounds of the force.
    active: whether the constraint is active. None: always.
    drift: (dJ/dt) v.
    has_position_error: whether the reference acceleration has the term k d r. Dry friction does not.
    wrench: the wrench of a unit force on two bodies. None if the force acts at joints or tendons.
    tendons: [(tendon, coefficient), ...] of a force along the lengths of tendons.
    """

    row: list
    residual: object
    impedance_distance: object
    mobility: object
    low: object
    high: object
    active: object = None
    drift: object = 0.0
    has_position_error: bool = True
    wrench: Wrench | None = None
    tendons: tuple = ()


class Rows(NamedTuple):
    """The rows of all soft constraints other than contacts.

    single (n, nv): Jacobian of the first n rows, which have one constant coefficient each.
    general (m, nv, lanes): Jacobian of the other rows.
    stiffness (n + m, lanes): 1 / R, 0 for an inactive row.
    offset (n + m, lanes): (dJ/dt) v - aref.
    low, high (n + m, lanes): bounds of the force.
    """

    single: np.ndarray
    general: object
    stiffness: object
    offset: object
    low: object
    high: object

    def j_times(self, x):
        """J x of x (nv, lanes)."""
        single = _combine_constant(self.single.T, x)
        if not len(self.general):
            return single
        return jnp.concatenate([single, tree_sum([self.general[:, k] * x[k][None] for k in range(len(x))])])

    def at(self, a):
        """J a + offset, of a (nv, lanes)."""
        return self.j_times(a) + self.offset

    def jt_times(self, f, count=None):
        """J^T f (nv, lanes). count: see `Rows.count`; not used."""
        n = len(self.single)
        single = _combine_constant(self.single, f[:n])
        return single + pairwise_sum(self.general * f[n:, None]) if len(self.general) else single

    def jt_magnitudes(self, f, count=None):
        """See `Potential.jt_magnitudes`."""
        return self._replace(single=np.abs(self.single), general=jnp.abs(self.general)).jt_times(jnp.abs(f))

    def curvature(self, x, count=None):
        """J^T P'' J (nv, nv, lanes). count: see `Rows.count`; not used."""
        (n, nv), g = self.single.shape, self.hessian(x)
        diagonal = _combine_constant(self.single**2, g[:n])
        eye = jnp.eye(nv, dtype=g.dtype).reshape(nv, nv, *(1,) * (g.ndim - 1))
        out = eye * diagonal[None]
        if n == len(g):
            return out
        return out + sum_of_products(self.general, self.general * g[n:, None])

    def curvature_terms(self, x, count=None) -> list[Curvature]:
        """See `Potential.curvature_terms`."""
        n, g = len(self.single), self.hessian(x)[:, None, None]
        dofs = np.abs(self.single).argmax(1)
        coefficients = np.take_along_axis(self.single, dofs[:, None], 1).astype(g.dtype)
        terms = [Curvature(jnp.asarray(coefficients)[:, None], g[:n], jnp.asarray(dofs)[:, None], n)] if n else []
        m, nv = len(g) - n, self.single.shape[1]
        return [*terms, Curvature(self.general[:, None], g[n:], np.arange(nv), m)] if m else terms

    def hessian(self, x):
        """The diagonal of P'' (n + m, lanes)."""
        return jnp.where(self.zone(x) == 0, self.stiffness, 0.0)

    def line(self, x, dx) -> Callable:
        """See `Cones.line`."""
        curvature = self.stiffness * dx * dx

        def line(alpha):
            y = x + alpha * dx
            return pairwise_sum(-self.force(y) * dx), pairwise_sum(jnp.where(self.zone(y) == 0, curvature, 0.0))

        return line

    def count(self):
        """See `Cones.count`. None: every row can be active."""
        return None

    def is_quadratic(self, x, dx):
        """See `Potential.is_quadratic`."""
        return every(self.zone(x) == self.zone(x + dx))

    def fitted(self, lanes: tuple[int, ...]) -> Rows:
        """The rows with arrays of the shape (..., *lanes)."""
        return Rows(self.single, *(fit(x, lanes) for x in self[1:]))

    def with_lane_axis(self) -> Rows:
        """The rows with a lane axis, of length 1 if they had none."""
        return self if self.offset.ndim > 1 else Rows(self.single, *(x[..., None] for x in self[1:]))

    def zone(self, x):
        """The bound that clips the force (n + m, lanes): -1 the lower, 1 the upper, 0 none."""
        f = -self.stiffness * x
        return jnp.where(f <= self.low, -1, jnp.where(f >= self.high, 1, 0))

    def force(self, x):
        """Forces (n + m, lanes) at x = J a + offset."""
        side = self.zone(x)
        return jnp.where(side == 0, -self.stiffness * x, jnp.where(side < 0, self.low, self.high))


# ---- the rows of each kind of constraint --------------------------------------------------------------------------------------


def _point_jacobian(context: RowContext, body: int, end: End) -> dict[int, tuple]:
    """Translational Jacobian of a body's point: its velocity per dof that moves the body."""
    link = body_link(context.system, body)
    dofs = context.system.tables.chain[link] if link >= 0 else ()
    return {dof: point_velocity(context.frame.subspace[dof], end.x) for dof in dofs}


def _rotation_jacobian(context: RowContext, body: int) -> dict[int, tuple]:
    """Rotational Jacobian of a body: its angular velocity per dof that moves the body."""
    link = body_link(context.system, body)
    dofs = context.system.tables.chain[link] if link >= 0 else ()
    return {dof: context.frame.subspace[dof].ang for dof in dofs}


def _difference(first: dict[int, tuple], second: dict[int, tuple]) -> list[tuple[int, tuple]]:
    """The first Jacobian minus the second, sorted by dof."""
    dofs = sorted(first.keys() | second.keys())
    return [(dof, vsub(first.get(dof, ZERO3), second.get(dof, ZERO3))) for dof in dofs]


def _component(jacobian: list[tuple[int, tuple]], k: int) -> list:
    """The k-th row of a Jacobian of three rows."""
    return [(dof, x[k]) for dof, x in jacobian if not (isinstance(x[k], float) and x[k] == 0.0)]


def _bodies(context: RowContext, info: SoftInfo) -> tuple[int, ...]:
    return tuple(context.system.topology.sites[i].body for i in info.items) if info.sites else info.items


def _point_drift(context: RowContext, bodies, ends) -> tuple:
    """(dJ/dt) v of the difference of two points."""
    if context.link_motion is None:
        return ZERO3
    accelerations_of_points = []
    for body, end in zip(bodies, ends, strict=True):
        link = body_link(context.system, body)
        velocity, acceleration = context.link_motion
        accelerations_of_points.append(ZERO3 if link < 0 else point_acceleration(acceleration[link], velocity[link], end.x))
    return vsub(*accelerations_of_points)


def _connect(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    bodies = _bodies(context, info)
    if info.sites:
        ends = [site_end(context.system, context.frame, site) for site in info.items]
    else:
        points = context.system.equality.anchor[info.row], reference
        ends = [body_end(context.system, context.frame, body, point, IDENTITY) for body, point in zip(bodies, points, strict=True)]
    return _coincidence_rows(context, bodies, ends, ())


def _coincidence_rows(context: RowContext, bodies, ends, rotation_error) -> list[Row]:
    """Three rows that make two points coincide. rotation_error: further residuals of the constraint, which its impedance depends on."""
    residual = vsub(ends[0].world, ends[1].world)
    jacobian = _difference(*(_point_jacobian(context, body, end) for body, end in zip(bodies, ends, strict=True)))
    drift, distance = _point_drift(context, bodies, ends), safe_norm((*residual, *rotation_error))
    mobility = add(*(context.system.derived.mobility.bodies[body][0] for body in bodies))
    points = tuple(end.world for end in ends)
    wrenches = [Wrench(bodies, points, axis, ZERO3) for axis in BASIS]
    return [
        Row(_component(jacobian, k), residual[k], distance, mobility, -INFINITE, INFINITE, drift=drift[k], wrench=wrenches[k])
        for k in range(3)
    ]


def _weld(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    bodies = _bodies(context, info)
    if info.sites:
        ends, relative = [site_end(context.system, context.frame, site) for site in info.items], IDENTITY
    else:
        points, relative = (reference[:3], context.system.equality.anchor[info.row]), reference[3:]
        ends = [body_end(context.system, context.frame, body, point, IDENTITY) for body, point in zip(bodies, points, strict=True)]
    first, second = quat_mul(ends[0].quat, relative), quat_conj(ends[1].quat)
    weight = context.system.equality.torque_scale[info.scale]
    residual = scale(quat_mul(second, first)[1:], weight)
    half = mul(0.5, weight)
    columns = [scale(quat_mul(quat_mul(second, (0.0, *axis)), first)[1:], half) for axis in BASIS]
    jacobian = [(dof, _combined(columns, x)) for dof, x in _difference(*(_rotation_jacobian(context, body) for body in bodies))]
    drift = _rotation_drift(context, bodies, ends, columns, first, second, half)
    rows = _coincidence_rows(context, bodies, ends, residual)
    mobility = add(*(context.system.derived.mobility.bodies[body][1] for body in bodies))
    for k in range(3):
        wrench = Wrench(bodies, (ZERO3, ZERO3), ZERO3, tuple(column[k] for column in columns))
        distance = rows[0].impedance_distance
        rows.append(Row(_component(jacobian, k), residual[k], distance, mobility, -INFINITE, INFINITE, drift=drift[k], wrench=wrench))
    return rows


def _combined(columns, x):
    """The product of a matrix, given by its columns, and a vector."""
    return tuple(total([mul(column[k], y) for column, y in zip(columns, x, strict=True)]) for k in range(3))


def _rotation_drift(context: RowContext, bodies, ends, columns, first, second, half) -> tuple:
    """(dJ/dt) v of the rotation rows: the rate of 1/2 conj(q2) (w1 - w2) q1 q_rel at constant generalized velocity."""
    if context.link_motion is None:
        return ZERO3
    angular_velocities, angular_accelerations = [], []
    for body in bodies:
        link = body_link(context.system, body)
        angular_velocities.append(ZERO3 if link < 0 else context.link_motion[0][link].ang)
        angular_accelerations.append(ZERO3 if link < 0 else context.link_motion[1][link].ang)
    relative = (0.0, *vsub(*angular_velocities))
    # The rates of the quaternions: q1' = w1 q1 / 2, conj(q2)' = -conj(q2) w2 / 2.
    rate_of_first = quat_mul(quat_mul(second, quat_mul(relative, (0.0, *angular_velocities[0]))), first)[1:]
    rate_of_second = quat_mul(quat_mul(second, quat_mul((0.0, *angular_velocities[1]), relative)), first)[1:]
    quadratic = scale(vsub(rate_of_first, rate_of_second), mul(0.5, half))
    return vadd(_combined(columns, vsub(*angular_accelerations)), quadratic)


def _polynomial(coefficients, x):
    """The value and the derivative of a polynomial. coefficients: the constant first."""
    value, derivative = 0.0, 0.0
    for c in reversed(coefficients):
        derivative = add(mul(derivative, x), value)
        value = add(mul(value, x), c)
    return value, derivative


def _polynomial_row(coefficients, displacements, jacobians, mobilities, tendons=()) -> list[Row]:
    """One row: the displacement of a first quantity from the reference configuration is a polynomial of that of a second, or a constant if
    there is no second. tendons: whose lengths the quantities are, if they are."""
    if len(displacements) == 1:
        residual = sub(displacements[0], coefficients[0])
        return [Row(jacobians[0], residual, residual, mobilities[0], -INFINITE, INFINITE, tendons=tuple((i, 1.0) for i in tendons))]
    value, derivative = _polynomial(coefficients, displacements[1])
    residual, merged = sub(displacements[0], value), dict(jacobians[0])
    for dof, x in scaled_row(jacobians[1], neg(derivative)):
        merged[dof] = add(merged[dof], x) if dof in merged else x
    along = tuple(zip(tendons, (1.0, neg(derivative)), strict=True)) if tendons else ()
    return [Row(list(merged.items()), residual, residual, add(*mobilities), -INFINITE, INFINITE, tendons=along)]


def _joint(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    addresses, initial = coordinate_addresses(context.system.topology), context.system.topology.initial[0]
    q = [addresses[dof][1] for dof in info.items]
    displacements = [sub(context.q[i], initial[i]) for i in q]
    mobilities = [context.system.derived.mobility.dofs[dof] for dof in info.items]
    return _polynomial_row(context.system.equality.polynomial[info.row], displacements, [[(dof, 1.0)] for dof in info.items], mobilities)


def _tendon(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    displacements = [sub(context.tendons[i].length, context.system.derived.mobility.lengths[i]) for i in info.items]
    mobilities = [context.system.derived.mobility.tendons[i] for i in info.items]
    jacobians = [context.tendons[i].row for i in info.items]
    return _polynomial_row(context.system.equality.polynomial[info.row], displacements, jacobians, mobilities, info.items)


def _friction(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    (dof,), bound = info.items, context.system.dof.friction[info.row]
    return [Row([(dof, 1.0)], 0.0, 0.0, context.system.derived.mobility.dofs[dof], neg(bound), bound, has_position_error=False)]


def _tendon_friction(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    (i,), bound = info.items, context.system.tendon.friction[info.row]
    row, mobility = context.tendons[i].row, context.system.derived.mobility.tendons[i]
    return [Row(row, 0.0, 0.0, mobility, neg(bound), bound, has_position_error=False, tendons=((i, 1.0),))]


def _limit(context: RowContext, info: SoftInfo, row, distance, mobility) -> list[Row]:
    """One row of a limit. distance: to the limit, negative beyond it. row: its Jacobian."""
    margin = context.system.soft.margin[info.soft]
    residual = sub(distance, margin)
    return [Row(row, residual, residual, mobility, 0.0, INFINITE, active=distance < margin)]


def _coordinate_limit(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    (dof,) = info.items
    x = context.q[coordinate_addresses(context.system.topology)[dof][1]]
    bound = getattr(context.system.limit, info.kind)[info.row]
    distance, sign = (sub(x, bound), 1.0) if info.kind == "lower" else (sub(bound, x), -1.0)
    return _limit(context, info, [(dof, sign)], distance, context.system.derived.mobility.dofs[dof])


def _angle(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    (dof,) = info.items
    joint = next(j for j in context.system.topology.joints if j.v[0] == dof)
    rotation = quat_log(unit_quaternion(tuple(context.q[joint.q[0] : joint.q[0] + 4])))
    distance = sub(context.system.limit.angle[info.row], safe_norm(rotation))
    axis = normalize(rotation)
    return _limit(context, info, [(dof + k, neg(axis[k])) for k in range(3)], distance, context.system.derived.mobility.dofs[dof])


def _tendon_limit(context: RowContext, info: SoftInfo, reference) -> list[Row]:
    (i,), low = info.items, info.kind == "tendon_lower"
    length, row = context.tendons[i]
    bound = context.system.tendon.range[info.row][0 if low else 1]
    distance = sub(length, bound) if low else sub(bound, length)
    (limit,) = _limit(context, info, row if low else scaled_row(row, -1.0), distance, context.system.derived.mobility.tendons[i])
    return [limit._replace(tendons=((i, 1.0 if low else -1.0),))]


def _connect_reference(system: System, frame: Frames, info: SoftInfo) -> tuple:
    """The point of the second body, in its frame, that coincides with the anchor of the first in the reference configuration."""
    first, second = info.items
    point = body_end(system, frame, first, system.equality.anchor[info.row], IDENTITY)
    return _in_body(point, body_end(system, frame, second, ZERO3, IDENTITY))


def _in_body(point, body):
    """The position of a point in a body's frame."""
    return apply_inverse(body.R, vsub(point.world, body.world))


def _weld_reference(system: System, frame: Frames, info: SoftInfo) -> tuple:
    """The anchor's position (3) and the second body's orientation (4) in the first body's frame, in the reference configuration."""
    anchor = system.equality.anchor[info.row]
    if info.pose is not None:
        pose = system.equality.relpose[info.pose]
        return (*pose[:3], *normalize(pose[3:]))
    first, second = (body_end(system, frame, body, ZERO3, IDENTITY) for body in info.items)
    point = body_end(system, frame, info.items[1], anchor, IDENTITY)
    return (*_in_body(point, first), *quat_mul(quat_conj(first.quat), second.quat))


class SoftConstraint(NamedTuple):
    """A kind of soft constraint, an entry of `xsim.registry.SOFT_CONSTRAINTS`.

    rows: function (context: RowContext, info: SoftInfo, reference) -> list of `Row`.
    items: of an equality, the type of `SoftInfo.items`: "bodies" (or sites), "dofs" or "tendons".
    leaves: of an equality, the leaves of ``equality`` that it reads.
    reference: of an equality, a function (system, frame, info) -> values that it measures in the reference configuration. ``rows`` receives
        them. None: it needs no values.
    drift: whether its rows have the term (dJ/dt) v, in the releases of MuJoCo that have it.
    """

    rows: Callable
    items: str = ""
    leaves: tuple[str, ...] = ()
    reference: Callable | None = None
    drift: bool = False


SOFT_CONSTRAINTS.register_all({
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
})  # fmt: skip


def equality_references(system: System, frame: Frames) -> tuple:
    """For each soft constraint, the values that it measures in the reference configuration. None if it needs no values, or if sites
    define it.
    frame: of the reference configuration."""
    out = []
    for info in system.topology.soft:
        reference = None if info.kind not in SOFT_CONSTRAINTS or info.sites else SOFT_CONSTRAINTS[info.kind].reference
        out.append(None if reference is None else reference(system, frame, info))
    return tuple(out)


# ---- the arrays of all rows ---------------------------------------------------------------------------------------------------


def _is_limit(row: Row) -> bool:
    return isinstance(row.low, float) and row.low == 0.0 and row.high is INFINITE


def _collect_rows(system: System, frame: Frames, q, v, tendon: list[LengthAndJacobian]) -> list[tuple[SoftInfo, Row]]:
    """All rows at a state but those of flexes. The rows with one constant coefficient are first."""
    top = system.topology
    link_motion = None
    if top.switches.constraint_drift and any(info.kind in SOFT_CONSTRAINTS and SOFT_CONSTRAINTS[info.kind].drift for info in top.soft):
        joint_velocity, velocity = velocities(system, frame, v)
        link_motion = velocity, accelerations(system, frame, q, v, None, joint_velocity, velocity)
    context = RowContext(system, frame, q, tendon, link_motion)
    rows = []
    for info, reference in zip(top.soft, system.derived.references, strict=True):
        if info.kind in SOFT_CONSTRAINTS:
            rows += [(info, row) for row in SOFT_CONSTRAINTS[info.kind].rows(context, info, reference)]
    return sorted(rows, key=lambda pair: not _is_single(pair[1]))


def _is_single(row: Row) -> bool:
    return len(row.row) == 1 and isinstance(row.row[0][1], float)


def _assemble(system: System, infos_and_rows: list[tuple[SoftInfo, Row]], q, v, at_state: RowMobility | None) -> Rows:
    """The arrays of all rows."""
    rows, count = [row for _, row in infos_and_rows], sum(_is_single(row) for _, row in infos_and_rows)
    like = (system.option.dt, q, v, [row[:8] for row in rows])

    def vector(xs):
        return stacked(xs, like)

    single = np.zeros((count, len(v)))
    for i, row in enumerate(rows[:count]):
        single[i, row.row[0][0]] = row.row[0][1]
    entries = {(i, dof): x for i, row in enumerate(rows[count:]) for dof, x in row.row}
    general = assembled(entries, (len(rows) - count, len(v)), like)
    leaf_rows = [info.soft for info, _ in infos_and_rows]
    solref = [vector([system.soft.solref[i][k] for i in leaf_rows]) for k in range(2)]
    solimp = [vector([system.soft.solimp[i][k] for i in leaf_rows]) for k in range(5)]
    d = impedance(vector([r.impedance_distance for r in rows]), solimp)
    safe, by_step = "refsafe" not in system.topology.disabled, at_state is not None and at_state.by_step
    is_limit, has_spring = (vector([float(x) for x in xs]) for xs in ([_is_limit(r) for r in rows], [r.has_position_error for r in rows]))
    k, b, scale = reference_law(solref, solimp, d, system.option.dt, safe, by_step, is_limit > 0, has_spring)
    active = vector([1.0 if r.active is None else jnp.where(r.active, 1.0, 0.0) for r in rows]) > 0
    mobility = vector([r.mobility for r in rows])
    mobility = mobility if at_state is None else _mobilities(at_state, single, general, mobility)
    R = regularization(d, mobility, scale)
    bounds = [jnp.where(active, vector(xs), 0.0) for xs in ([r.low for r in rows], [r.high for r in rows])]
    out = Rows(single, general, jnp.where(active, 1.0 / R, 0.0), d, *bounds)
    residual = vector([r.residual if r.has_position_error else 0.0 for r in rows])
    drift = vector([r.drift for r in rows])
    return out._replace(offset=(drift if scale is None else drift / scale) + b * out.j_times(vector(v)) + k * residual)


def _mobilities(at_state: RowMobility, single: np.ndarray, general, reference):
    """The mobilities of all rows, with the lanes of ``general``. reference: those in the reference configuration."""
    lanes = general.shape[2:] or (1,)
    constant = jnp.broadcast_to(jnp.asarray(single, general.dtype)[..., None], (*single.shape, *lanes))
    J = jnp.concatenate([constant, general.reshape(*general.shape[:2], *lanes)])
    return at_state.of_rows(J, reference.reshape(len(J), *lanes)).reshape(len(J), *general.shape[2:])


def soft_rows(system: System, frame: Frames, q, v, tendon: list[LengthAndJacobian], at_state: RowMobility | None = None) -> Rows | None:
    """All rows at a state but those of flexes. None if the model has no such rows. at_state: gives the mobilities, None for those of the
    reference configuration."""
    rows = _collect_rows(system, frame, q, v, tendon)
    return _assemble(system, rows, q, v, at_state) if rows else None


def inactive_row(nv: int, dtype) -> Rows:
    """One row without a force, with a lane axis."""
    vector = jnp.zeros((1, 1), dtype)
    return Rows(np.zeros((0, nv)), jnp.zeros((1, nv, 1), dtype), vector, vector, vector, vector)


def concatenate_rows(a: Rows, b: Rows) -> Rows:
    """The rows of a, then those of b. Both have a lane axis. b has no rows with one constant coefficient."""
    width = max(a.offset.shape[-1], b.offset.shape[-1])
    broadcast = [[jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in part[1:]] for part in (a, b)]
    general, *vectors = (jnp.concatenate(both) for both in zip(*broadcast, strict=True))
    return Rows(a.single, general, *vectors)


class ConstraintForce(NamedTuple):
    """A row, its constraint, its rate J v, and its force."""

    info: SoftInfo
    row: Row
    rate: object
    force: object


def constraint_forces(system: System, frame: Frames, q, v, tendon: list[LengthAndJacobian], a, rows: Rows) -> list[ConstraintForce]:
    """The forces of all rows but those of flexes, at a state and its acceleration a. rows: the rows of the solution, with a lane axis;
    those of flexes are last."""
    infos_and_rows = _collect_rows(system, frame, q, v, tendon)
    a, v = (stacked(x, a, v) for x in (a, v))
    rows = rows.fitted(a.shape[1:])
    forces, rates = rows.force(rows.j_times(a) + rows.offset), rows.j_times(v)
    return [ConstraintForce(info, row, *both) for (info, row), *both in zip(infos_and_rows, rates, forces, strict=False)]
