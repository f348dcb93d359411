"""The equation of motion: tree-sparse factorization and accelerations with exact implicit derivatives.

M = L^T D L keeps the sparsity of the tree (Featherstone 2008, section 6.5): row i of the factor has entries for the dofs that
move dof i only. The derivative of the solution comes from the residual of inverse dynamics at the solution, so neither the
composite inertias nor the factorization are ever differentiated (for the first derivative).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..spatial import add, in_one_region, mul, neg, one_region, stage, sub, total
from .actuation import effort
from .dense import Cholesky, assembled, stacked, times
from .forces import element_force
from .forces import soft_rows as element_rows
from .holonomic import has_rows, holonomic_rates, holonomic_rows
from .kinematics import Frames, frames, inverse_dynamics, link_inertias, mass_matrix
from .passive import Quadratic, passive_force, quadratic
from .newton import minimize
from .slopes import damping_slopes, full_slopes
from .soft import Rows, soft_rows
from .system import System
from .tendons import tendons
from .transmissions import transmissions
from .unsymmetric import Unsymmetric


class Factor(NamedTuple):
    """t[i][n]: entry of row i for the n-th dof of before[i]; inverse[i]: 1 / D_i; pivot: smallest D_i / M_ii."""

    t: list
    inverse: list
    pivot: object


@stage
def _eliminate(row, below):
    """Row i of M minus what the dofs below have eliminated; below: (row k of D L up to i, t_ki) per dof k that i moves."""
    return [total([m, *(neg(mul(ld[n], t)) for ld, t in below)]) for n, m in enumerate(row)]


@stage
def _invert(row, diagonal):
    pivot = row[-1]
    usable = pivot > _tolerance(pivot.dtype) * jnp.abs(diagonal)
    inverse = 1.0 / jnp.where(usable, pivot, 1.0)
    return [mul(x, inverse) for x in row[:-1]], inverse, jnp.where(usable, 1.0, 0.0).astype(pivot.dtype)


def _tolerance(dtype) -> float:
    return 32 * float(jnp.finfo(dtype).eps)


def factorize(system: System, rows) -> Factor:
    """Factor a symmetric matrix given by the rows of `mass_matrix`.

    A pivot that is zero to rounding (a motion without inertia) is replaced by 1, which keeps everything finite; ``pivot`` is 0 then.
    """
    before, after = system.tables.before, system.tables.after
    n = len(rows)
    place = [{j: k for k, j in enumerate((*before[i], i))} for i in range(n)]
    eliminated: list = [None] * n
    t: list = [None] * n
    inverse: list = [None] * n
    usable: list = [None] * n
    for i in reversed(range(n)):
        below = [(eliminated[k][: place[k][i] + 1], t[k][place[k][i]]) for k in after[i]]
        eliminated[i] = _eliminate(rows[i], below) if below else rows[i]
        t[i], inverse[i], usable[i] = _invert(eliminated[i], rows[i][-1])
    pivot = usable[0] if n else 1.0
    for u in usable[1:]:
        pivot = jnp.minimum(pivot, u)
    return Factor(t, inverse, pivot)


@stage
def _back(x, below):
    return total([x, *(neg(mul(t, y)) for t, y in below)])


@stage
def _forth(x, inverse, above):
    return total([mul(x, inverse), *(neg(mul(t, y)) for t, y in above)])


def solve(system: System, factor: Factor, b) -> list:
    """x with M x = b."""
    before, after = system.tables.before, system.tables.after
    n = len(b)
    place = [{j: k for k, j in enumerate(before[i])} for i in range(n)]
    x: list = list(b)
    for i in reversed(range(n)):
        if after[i]:
            x[i] = _back(b[i], [(factor.t[k][place[k][i]], x[k]) for k in after[i]])
    out: list = [None] * n
    for i in range(n):
        out[i] = _forth(x[i], factor.inverse[i], [(factor.t[i][k], out[j]) for k, j in enumerate(before[i])])
    return out


@stage
def _diagonal(row, terms):
    return [*row[:-1], total([row[-1], *terms])]


def loaded_mass(system: System, frame: Frames, inertia) -> list:
    """Rows of the mass matrix with the armature."""
    return with_quadratic(system, mass_matrix(system, frame, inertia), [(1.0, quadratic(system, frame, system.armature, "armature"))])


def with_quadratic(system: System, rows, quadratics) -> list:
    """Rows of M plus factor times quadratic for each (factor, Quadratic) in ``quadratics``."""
    before = system.tables.before
    out = []
    for i, row in enumerate(rows):
        new = list(row)
        for factor, quad in quadratics:
            for k, j in enumerate(before[i]):
                if (i, j) in quad.blocks:
                    new[k] = add(new[k], mul(factor, quad.blocks[i, j]))
        terms = [mul(f, add(quad.diagonal[i], quad.blocks.get((i, i), 0.0))) for f, quad in quadratics]
        out.append(_diagonal(new, terms))
    return out


def multiply(system: System, rows, x) -> list:
    """M x."""
    before, after = system.tables.before, system.tables.after
    place = [{j: k for k, j in enumerate((*before[i], i))} for i in range(len(rows))]
    return [
        total([*(mul(rows[i][place[i][j]], x[j]) for j in (*before[i], i)), *(mul(rows[k][place[k][i]], x[k]) for k in after[i])])
        for i in range(len(rows))
    ]


# ---- implicit equations -------------------------------------------------------------------------------------------------------


def masked(system: System, rows, keep) -> list:
    """Rows of the matrix for the dofs that are free: keep[i] is 1 for a free dof, 0 for one whose value is given (a row of unity)."""
    before = system.tables.before
    return [_masked_row(row, (*(keep[j] for j in before[i]), keep[i])) for i, row in enumerate(rows)]


@stage
def _masked_row(row, keep):
    *others, own = keep
    return [*(mul(mul(m, own), k) for m, k in zip(row[:-1], others, strict=True)), add(mul(row[-1], own), sub(1.0, own))]


def restricted(jacobian: list, keep) -> list:
    """J with the columns of the dofs that are not free left out (keep as in `masked`)."""
    return [[(dof, mul(c, keep[dof])) for dof, c in row] for row in jacobian]


class Saddle:
    """Solutions (x, y) of (M + R^T G R) x - J^T y = b, -J x = c: M sparse and symmetric, J and R few rows over the dofs as
    [(dof, coefficient), ...], G >= 0 diagonal. ``soft``: (row of R, its G).

    Rows of J that depend on the others get no multiplier of their own (their pivot is zero to rounding). The soft rows are eliminated
    like those of J, as sqrt(G) R with 1 on their diagonal (Woodbury), which stays well conditioned from G = 0 to any stiffness.
    """

    def __init__(self, system: System, rows, jacobian: list, soft: Sequence = ()):
        self.system, self.rows, self.jacobian, self.soft = system, rows, jacobian, soft
        self.factor = factorize(system, rows)
        self.all = [*jacobian, *(_scaled_row(row, g) for row, g in soft)]
        zero = rows[0][0] * 0.0 if rows else 0.0
        self.moved = []  # M^-1 J^T, per row of J and of sqrt(G) R
        for row in self.all:
            column = [zero] * len(rows)
            for dof, coefficient in row:
                column[dof] = column[dof] + coefficient
            self.moved.append(solve(system, self.factor, column))
        self.schur = [[_row_times(row, w) for w in self.moved[: i + 1]] for i, row in enumerate(self.all)]
        for i in range(len(jacobian), len(self.all)):
            self.schur[i][i] = add(self.schur[i][i], 1.0)
        self.lower, self.inverse = _ldl(self.schur, len(jacobian))

    def solve(self, b: list, c: list) -> list:
        """x followed by y."""
        x = solve(self.system, self.factor, b)
        if not self.all:
            return x
        gap = [add(g, _row_times(row, x)) for g, row in zip([*c, *([0.0] * len(self.soft))], self.all, strict=True)]
        y = [neg(z) for z in _ldl_solve(self.lower, self.inverse, gap)]
        return [*_shifted(x, self.moved, y), *y[: len(self.jacobian)]]

    def multiply(self, x: list) -> list:
        """((M + R^T G R) x - J^T y, -J x) of x followed by y."""
        n = len(self.rows)
        force = pulled(multiply(self.system, self.rows, x[:n]), self.jacobian, x[n:])
        force = pulled(force, [row for row, _ in self.soft], [neg(mul(g, _row_times(row, x))) for row, g in self.soft])
        return [*force, *(neg(_row_times(r, x)) for r in self.jacobian)]


@stage
def _scaled_row(row, g):
    some = g > 0
    root = jnp.where(some, jnp.sqrt(jnp.where(some, g, 1.0)), 0.0)
    return [(dof, mul(root, coefficient)) for dof, coefficient in row]


@stage
def _row_times(row, x):
    return total([mul(coefficient, x[dof]) for dof, coefficient in row])


@stage
def _shifted(x, moved, y):
    return [total([a, *(mul(w[i], z) for w, z in zip(moved, y, strict=True))]) for i, a in enumerate(x)]


def pulled(force: list, jacobian: list, y) -> list:
    """force - J^T y."""
    out = list(force)
    for row, z in zip(jacobian, y, strict=True):
        for dof, coefficient in row:
            out[dof] = sub(out[dof], mul(coefficient, z))
    return out


def _ldl(a, hard: int):
    """Factor a small dense positive semidefinite matrix given by its lower triangle: unit lower triangle, inverse pivots (0 for a
    zero pivot: a row that depends on those before it, or is nothing but rounding beside the largest). Rows after the first ``hard``
    have pivots of 1 or more."""
    lower, pivots, inverse = [], [], []
    diagonal = [a[i][i] for i in range(hard) if not isinstance(a[i][i], float)]
    largest = functools.reduce(jnp.maximum, diagonal) if diagonal else 0.0
    for i, row in enumerate(a):
        for kept, new in zip((lower, pivots, inverse), _ldl_row(row, lower, pivots, inverse, largest, i < hard), strict=True):
            kept.append(new)
    return lower, inverse


@stage
def _ldl_row(a, lower, pivots, inverse, largest, hard: bool):
    """Row of the unit lower triangle, pivot, its inverse."""
    row: list = []
    for j in range(len(a) - 1):
        row.append(mul(sub(a[j], total([mul(mul(row[k], lower[j][k]), pivots[k]) for k in range(j)])), inverse[j]))
    pivot = sub(a[-1], total([mul(mul(x, x), p) for x, p in zip(row, pivots, strict=True)]))
    if isinstance(pivot, float):  # a row without a coefficient
        return row, pivot, 0.0
    if not hard:
        return row, pivot, 1.0 / pivot
    eps = float(jnp.finfo(pivot.dtype).eps)
    usable = pivot > jnp.maximum(1e3 * eps * a[-1], eps**1.5 * largest)
    return row, pivot, jnp.where(usable, 1.0 / jnp.where(usable, pivot, 1.0), 0.0)


def _ldl_solve(lower, inverse, b):
    n, z = len(b), []
    for i in range(n):
        z.append(_less(b[i], lower[i], z))
    y: list = _scaled(z, inverse)
    for i in reversed(range(n)):
        y[i] = _less(y[i], [lower[k][i] for k in range(i + 1, n)], y[i + 1 :])
    return y


@stage
def _less(b, row, x):
    return sub(b, total([mul(c, y) for c, y in zip(row, x, strict=True)]))


@stage
def _scaled(x, factors):
    return [mul(a, f) for a, f in zip(x, factors, strict=True)]


def implicit(inputs, primal, residual, again=None):
    """The solution x of residual(inputs, x) = 0, and what else ``primal`` returns, with the derivatives of the implicit function.

    primal(inputs, full) -> (saddle, x, others): the solution and the factored matrix d residual / dx; ``others`` (a list of
    components) has no derivative; ``full`` gives components the common shape. Derivatives of any order, forward and reverse:
    dx = -matrix^-1 d(residual) at fixed x. ``again``: what the rule takes for ``primal`` where that one uses numbers found before,
    without derivatives of their own.
    """
    leaves, treedef = jax.tree.flatten(inputs, is_leaf=lambda x: x is None)
    where = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array)]
    lanes = jnp.broadcast_shapes(*(leaves[i].shape for i in where if leaves[i].ndim <= 1))
    dtype = jnp.result_type(*(leaves[i] for i in where))

    def rebuild(arrays):
        filled = list(leaves)
        for i, x in zip(where, arrays, strict=True):
            filled[i] = x
        return treedef.unflatten(filled)

    def full(xs):
        return [jnp.broadcast_to(jnp.asarray(x, dtype), lanes) for x in xs]

    def solved(arrays, primal=primal):
        saddle, x, others = primal(rebuild(arrays), full)
        return saddle, full(x), full(others)

    @jax.custom_jvp
    def solution(*arrays):
        _, x, others = solved(arrays)
        return x, others

    def rule(primals, tangents):
        saddle, x, others = solved(primals, again or primal)
        moving = [i for i, t in enumerate(tangents) if not isinstance(t, jax.custom_derivatives.SymbolicZero)]

        def at(*moved):
            arrays = list(primals)
            for i, value in zip(moving, moved, strict=True):
                arrays[i] = value
            return full(residual(rebuild(arrays), x))

        _, dr = jax.jvp(at, [primals[i] for i in moving], [tangents[i] for i in moving])
        n = len(saddle.rows)
        if not dr:
            return (x, others), ([], [jnp.zeros_like(y) for y in others])
        def solver(**options):
            return lambda _, b: jnp.stack(full(saddle.solve(list(b[:n]), list(b[n:]), **options)))

        # One array, not a list: transposed, a list must depend on the tangents in each of its entries.
        dx = jax.lax.custom_linear_solve(
            lambda y: jnp.stack(full(saddle.multiply(list(y)))),
            -jnp.stack(dr),
            solver(),
            solver(transposed=True) if isinstance(saddle, Unsymmetric) else None,
            symmetric=not isinstance(saddle, Unsymmetric),
        )
        return (x, others), (list(dx), [jnp.zeros_like(y) for y in others])

    # Rules run when a derivative is taken, perhaps long after this trace: they keep its regions.
    whole = in_one_region()

    def rule_in_region(primals, tangents):
        with one_region(whole):
            return rule(primals, tangents)

    solution.defjvp(rule_in_region, symbolic_zeros=True)
    return solution(*(leaves[i] for i in where))


# ---- accelerations ------------------------------------------------------------------------------------------------------------


class Motion(NamedTuple):
    """What the equation of motion is evaluated at.

    act, ctrl: activations and controls of the actuators.
    damped, sprung: the time over which damping and the square of the time over which springs act implicitly (0.0: not at all).
    hold: per dof the acceleration that is prescribed, None where it follows from the forces; () for no prescribed dof.
    slopes: over the step which smooth forces act at the new velocity, by their slopes: "" none, "fast" all but those of Coriolis,
    symmetrized, "full" all.
    closing: per holonomic row, what its second derivative is to be more than zero; none for the rows after its end.
    ahead: the time at whose end springs, dampers and bushings between bodies act, by their slopes (0.0: as they are now).
    soft: whether soft constraints act.
    """

    system: System
    q: list
    v: list
    tau: list
    act: tuple = ()
    ctrl: tuple = ()
    damped: object = 0.0
    sprung: object = 0.0
    hold: tuple = ()
    closing: tuple = ()
    ahead: object = 0.0
    slopes: str = ""
    soft: bool = False


@stage
def _balance(force, tau, passive, extra):
    return [sub(add(f, e), add(t, p)) for f, t, p, e in zip(force, tau, passive, extra, strict=True)]


class Terms(NamedTuple):
    """What the residual and the matrix of an equation of motion share."""

    frame: Frames
    inertia: list
    damping: Quadratic
    loads: list  # (factor, Quadratic) pairs added to the mass matrix
    stiffness: Quadratic | None  # None where springs act explicitly
    jacobian: list  # of the holonomic rows
    soft: list  # (row, G, force per rate of the row) of what acts at the end of the step
    taut: list  # tendons
    driven: list  # what the actuators act on
    constraints: Rows | None  # soft ones


def _constant(x, value: float) -> bool:
    return isinstance(x, float) and x == value


def evaluate(m: Motion) -> Terms:
    system = m.system
    frame = frames(system, m.q)
    damping = quadratic(system, frame, system.damping, "damper")
    loads = [(1.0, quadratic(system, frame, system.armature, "armature"))]
    stiffness = None
    if not _constant(m.damped, 0.0):
        loads.append((m.damped, damping))
    if not _constant(m.sprung, 0.0):
        stiffness = quadratic(system, frame, system.stiffness, "spring")
        loads.append((m.sprung, stiffness))
    inertia, taut = link_inertias(system, frame), tendons(system, frame, m.q)
    driven = transmissions(system, frame, m.q, taut)
    if m.slopes == "fast":
        loads.append((system.dt, damping_slopes(system, frame, m.v, m.act, m.ctrl, taut, driven)))
    if m.slopes == "full":
        loads.append((system.dt, full_slopes(system, frame, inertia, m.q, m.v, m.act, m.ctrl, taut, driven)))
    loads.append((system.regularization, Quadratic([1.0] * len(m.v), {})))
    soft = [] if _constant(m.ahead, 0.0) else ahead_rows(system, frame, m.q, m.v, m.ahead)
    constraints = soft_rows(system, frame, m.q, m.v, taut) if m.soft else None
    return Terms(frame, inertia, damping, loads, stiffness, holonomic_rows(system, frame), soft, taut, driven, constraints)


def ahead_rows(system: System, frame: Frames, q, v, dt) -> list:
    """(row, G, c) of the elements' forces at the end of a step of dt: with the row's rate r now and rate of rate a it falls by c r + G a,
    c = dt k and G = dt (dt k + d) of stiffness k and damping d."""
    return [(row, mul(dt, add(mul(dt, k), d)), mul(dt, k)) for row, k, d in element_rows(system, frame, q, v)]


def with_fall(force: list, soft: list, v, a) -> list:
    """force plus what the forces of `ahead_rows` fall by; a None: without its part."""
    falls = []
    for row, g, c in soft:
        fall = mul(c, _row_times(row, v))
        falls.append(fall if a is None else add(fall, mul(g, _row_times(row, a))))
    return pulled(force, [row for row, *_ in soft], [neg(f) for f in falls])


def residual(m: Motion, x, terms: Terms | None = None) -> list:
    """What is zero at the solution x: the acceleration, then the multipliers of the holonomic rows (None: all zero).

    Inverse dynamics of the acceleration minus applied, passive and constraint forces, then the rows' equations. Prescribed dofs
    take their acceleration from ``m.hold`` and have no equation.
    """
    t, n = terms or evaluate(m), len(m.v)
    a, y = (None, [0.0] * len(t.jacobian)) if x is None else (x[:n], x[n:])
    if m.hold:
        free = [0.0] * n if a is None else a
        a = [x if h is None else h for x, h in zip(free, m.hold, strict=True)]
    force = inverse_dynamics(m.system, t.frame, t.inertia, m.q, m.v, a)
    passive = passive_force(m.system, t.frame, m.q, m.v, t.damping, t.taut)
    extra = [0.0] * n
    if t.stiffness is not None:
        # The spring at the position that the old velocity would reach (DART's rule); the acceleration's part is in the loads.
        extra = [mul(m.damped, x) for x in t.stiffness.times(m.v)]
    if a is not None:
        for factor, quad in t.loads:
            extra = [add(e, mul(factor, x)) for e, x in zip(extra, quad.times(a), strict=True)]
    tau = m.tau
    if m.system.topology.forces:
        tau = [add(a, b) for a, b in zip(tau, element_force(m.system, t.frame, m.q, m.v), strict=True)]
    if m.ctrl:
        tau = [add(a, b) for a, b in zip(tau, effort(m.system, t.frame, m.v, m.act, m.ctrl, t.driven).tau, strict=True)]
    balance = with_fall(pulled(_balance(force, tau, passive, extra), t.jacobian, y), t.soft, m.v, a)
    if t.constraints is not None and a is not None:
        balance = [sub(b, f) for b, f in zip(balance, _constraint_force(t.constraints, a), strict=True)]
    if m.hold:
        balance = [b if h is None else 0.0 for b, h in zip(balance, m.hold, strict=True)]
    wanted = [neg(r) for r in holonomic_rates(m.system, t.frame, m.q, m.v)]
    for i, c in enumerate(m.closing):
        wanted[i] = add(wanted[i], c)
    return [*balance, *(sub(c, 0.0 if a is None else _row_times(row, a)) for c, row in zip(wanted, t.jacobian, strict=True))]


def _constraint_force(rows: Rows, a) -> list:
    """J^T f of the soft constraints at an acceleration."""
    return list(rows.pulled(rows.force(rows.along(stacked(a, rows.offset[0])) + rows.offset)))


def constraint_force(m: Motion, a) -> list:
    """Generalized force of the soft constraints at the acceleration that solves the equation of motion."""
    frame = frames(m.system, m.q)
    return _constraint_force(soft_rows(m.system, frame, m.q, m.v, tendons(m.system, frame, m.q)), a)


def effective_mass(m: Motion, terms: Terms | None = None) -> list:
    """Rows of the matrix that multiplies the acceleration: mass matrix, armature, implicit damping and springs, regularization."""
    t = terms or evaluate(m)
    rows = with_quadratic(m.system, mass_matrix(m.system, t.frame, t.inertia), t.loads)
    if m.hold:
        rows = masked(m.system, rows, [1.0 if h is None else 0.0 for h in m.hold])
    return rows


def _unsymmetric(m: Motion, terms: Terms, full) -> Unsymmetric:
    """The matrix that multiplies the acceleration where it is not symmetric."""
    before = m.system.tables.before
    entries: dict = {}
    for i, row in enumerate(mass_matrix(m.system, terms.frame, terms.inertia)):
        entries |= {(i, j): x for j, x in zip((*before[i], i), row, strict=True)}
        entries |= {(j, i): x for j, x in zip(before[i], row[:-1], strict=True)}
    for factor, quad in terms.loads:
        for i, x in enumerate(quad.diagonal):
            entries[i, i] = add(entries[i, i], mul(factor, x))
        for place, x in quad.blocks.items():
            entries[place] = add(entries[place], mul(factor, x))
    return Unsymmetric(m.system, dict(zip(entries, full(list(entries.values())), strict=True)))


class Stiffened:
    """The matrix M + J^T G J of a model with soft constraints."""

    def __init__(self, matrix):
        self.rows, self.matrix = list(range(len(matrix))), matrix
        self.factor = Cholesky(matrix)

    def solve(self, b: list, c: list) -> list:
        return list(self.factor.solve(jnp.stack(b)))

    def multiply(self, x: list) -> list:
        return list(times(self.matrix, jnp.stack(x)))


def _softly(m: Motion, terms: Terms, full) -> tuple:
    """What `acceleration` solves, with soft constraints: the matrix at the solution, the solution, and what else it says."""
    before, rows = m.system.tables.before, terms.constraints
    assert rows is not None
    lower = {(i, j): x for i, row in enumerate(effective_mass(m, terms)) for j, x in zip((*before[i], i), full(row), strict=True)}
    mass = assembled(lower | {(j, i): x for (i, j), x in lower.items()}, (len(m.v),) * 2)
    right = jnp.stack(full([neg(r) for r in residual(m, None, terms)]))
    rows = Rows(rows.single, *(jnp.broadcast_to(x, (*x.shape[: x.ndim - right.ndim + 1], *right.shape[1:])) for x in rows[1:]))
    least = minimize(mass, right, rows)
    matrix = Stiffened(mass + rows.curvature(least.active))
    return matrix, list(least.a), full([matrix.factor.pivot, least.found])


class Solved(NamedTuple):
    """a: the acceleration. multipliers: of the holonomic rows. pivot: 0 where the mass matrix is singular. found: 0 where the forces of
    soft constraints were not."""

    a: list
    multipliers: list
    pivot: object
    found: object


def acceleration(m: Motion) -> Solved:
    """The acceleration at which the residual is zero."""
    n = len(m.v)

    def primal(m: Motion, full):
        terms = evaluate(m)
        if m.slopes == "full":
            matrix = _unsymmetric(m, terms, full)
            return matrix, matrix.solve(full([neg(r) for r in residual(m, None, terms)])), full([1.0, 1.0])
        if m.soft:
            return _softly(m, terms, full)
        free = [1.0] * n if not m.hold else [1.0 if h is None else 0.0 for h in m.hold]
        soft = [(row, g) for row, (_, g, _) in zip(restricted([row for row, *_ in terms.soft], free), terms.soft, strict=True)]
        saddle = Saddle(m.system, [full(row) for row in effective_mass(m, terms)], restricted(terms.jacobian, free), soft)
        right = full([neg(r) for r in residual(m, None, terms)])
        return saddle, saddle.solve(right[:n], right[n:]), [saddle.factor.pivot, 1.0]

    if m.slopes == "full" and (m.hold or has_rows(m.system.topology)):
        raise ValueError("the integrator implicit is for models without holonomic constraints and prescribed motion; choose implicitfast")
    if m.soft and (m.hold or has_rows(m.system.topology)):
        raise ValueError("soft constraints beside holonomic constraints or prescribed motion are not supported")
    x, (pivot, found) = implicit(m, primal, residual)
    a = [y if h is None else h for y, h in zip(x[:n], m.hold, strict=True)] if m.hold else x[:n]
    return Solved(a, x[n:], pivot, found)
