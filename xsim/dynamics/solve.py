"""The equation of motion: tree-sparse factorization and accelerations with exact implicit derivatives.

M = L^T D L keeps the sparsity of the tree (Featherstone 2008, section 6.5): row i of the factor has entries for the dofs that
move dof i only. The derivative of the solution comes from the residual of inverse dynamics at the solution, so neither the
composite inertias nor the factorization are ever differentiated (for the first derivative).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..spatial import add, in_one_region, mul, neg, one_region, stage, sub, total
from .kinematics import frames, inverse_dynamics, link_inertias, mass_matrix
from .passive import Quadratic, passive_force, quadratic
from .system import System


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


# ---- accelerations ------------------------------------------------------------------------------------------------------------


class Motion(NamedTuple):
    """What the equation of motion is evaluated at. implicit: the time over which damping acts implicitly (0.0: not at all)."""

    system: System
    q: list
    v: list
    tau: list
    implicit: object


@stage
def _balance(force, tau, passive, extra):
    return [sub(add(f, e), add(t, p)) for f, t, p, e in zip(force, tau, passive, extra, strict=True)]


def _evaluate(m: Motion):
    system = m.system
    frame = frames(system, m.q)
    inertia = link_inertias(system, frame)
    damping = quadratic(system, frame, system.damping, "damper")
    armature = quadratic(system, frame, system.armature, "armature")
    return frame, inertia, damping, armature


def _loads(m: Motion, damping: Quadratic, armature: Quadratic) -> list:
    loads = [(1.0, armature)]
    if not (isinstance(m.implicit, float) and m.implicit == 0.0):
        loads.append((m.implicit, damping))
    return [*loads, (m.system.regularization, Quadratic([1.0] * len(m.v), {}))]


def residual(m: Motion, a, evaluated=None) -> list:
    """Inverse dynamics of acceleration ``a`` (None: zero) minus the applied and passive forces: zero at the solution."""
    frame, inertia, damping, armature = evaluated or _evaluate(m)
    force = inverse_dynamics(m.system, frame, inertia, m.q, m.v, a)
    passive = passive_force(m.system, m.q, m.v, damping)
    extra = [0.0] * len(m.v)
    if a is not None:
        for factor, quad in _loads(m, damping, armature):
            extra = [add(e, mul(factor, x)) for e, x in zip(extra, quad.times(a), strict=True)]
    return _balance(force, m.tau, passive, extra)


def effective_mass(m: Motion, evaluated=None) -> list:
    """Rows of the matrix that multiplies the acceleration: mass matrix, armature, implicit damping, regularization."""
    frame, inertia, damping, armature = evaluated or _evaluate(m)
    return with_quadratic(m.system, mass_matrix(m.system, frame, inertia), _loads(m, damping, armature))


def acceleration(m: Motion) -> tuple[list, object]:
    """The acceleration at which the residual is zero, and a component that is 0 where the mass matrix is singular.

    Derivatives (any order, forward and reverse) are those of the implicit function: da = -M^-1 d(residual) at fixed a.
    """
    leaves, treedef = jax.tree.flatten(m, is_leaf=lambda x: x is None)
    where = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array)]
    lanes = jnp.broadcast_shapes(*(leaves[i].shape for i in where if leaves[i].ndim <= 1))
    dtype = jnp.result_type(*(leaves[i] for i in where))

    def rebuild(arrays) -> Motion:
        filled = list(leaves)
        for i, x in zip(where, arrays, strict=True):
            filled[i] = x
        return treedef.unflatten(filled)

    def full(xs):
        return [jnp.broadcast_to(jnp.asarray(x, dtype), lanes) for x in xs]

    def primal(arrays):
        motion = rebuild(arrays)
        evaluated = _evaluate(motion)
        rows = [full(row) for row in effective_mass(motion, evaluated)]
        factor = factorize(motion.system, rows)
        a = solve(motion.system, factor, full([neg(r) for r in residual(motion, None, evaluated)]))
        return rows, factor, a

    @jax.custom_jvp
    def accelerate(*arrays):
        _, factor, a = primal(arrays)
        return a, factor.pivot

    def rule(primals, tangents):
        rows, factor, a = primal(primals)
        moving = [i for i, t in enumerate(tangents) if not isinstance(t, jax.custom_derivatives.SymbolicZero)]
        system = rebuild(primals).system

        def at(*moved):
            arrays = list(primals)
            for i, x in zip(moving, moved, strict=True):
                arrays[i] = x
            return full(residual(rebuild(arrays), a))

        _, dr = jax.jvp(at, [primals[i] for i in moving], [tangents[i] for i in moving])
        da = jax.lax.custom_linear_solve(
            lambda x: multiply(system, rows, x), [-x for x in dr], lambda _, b: solve(system, factor, b), symmetric=True
        )
        return (a, factor.pivot), (list(da), jnp.zeros_like(factor.pivot))

    # Rules run when a derivative is taken, perhaps long after this trace: they keep its regions.
    whole = in_one_region()

    def rule_in_region(primals, tangents):
        with one_region(whole):
            return rule(primals, tangents)

    accelerate.defjvp(rule_in_region, symbolic_zeros=True)
    return accelerate(*(leaves[i] for i in where))
