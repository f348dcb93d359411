"""Dry friction, limits and servos as bounded impulses on the velocity.

After a step's smooth forces have made the velocity v*, impulses p change it to v with M (v - v*) = p. Each dof answers with a
monotone staircase between its velocity and its impulse: dry friction (at most friction times dt, against the velocity), a servo (at most
its force limits times dt, towards its target) and position and velocity limits (as much as it takes to keep the velocity between the
bounds that reach a limit within the step). Together they are the optimality conditions of a strictly convex problem,

    min over v of  1/2 (v - v*)^T M (v - v*) + sum over dofs of phi_i(v_i),

so v is unique. The segment of its force law on which each dof lies is found by an active-set iteration (each guess is one sparse solve with
the dofs that stick held fast; block principal pivoting as of Judice and Pires 1994, with single pivots where a block does not help), and
the result is differentiated on those segments. This is DART's step rule, where the constraints are solved as a boxed LCP over the same
equations.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.commands import PRESCRIBED, bound, clip
from xsim.dynamics.integration.equation import EquationOfMotion, effective_mass, evaluate
from xsim.dynamics.linalg.implicit import implicit
from xsim.dynamics.linalg.sparse import Quadratic, Saddle, masked, minus_jt_times, multiply, restricted, with_quadratic
from xsim.dynamics.tree.kinematics import Frames, inertial_force, mass_matrix
from xsim.dynamics.tree.system import System, split_q
from xsim.model.topology import Topology
from xsim.spatial import add, block_loop_hoisting, mul, neg, stage, sub, total

SIDES = ("lower", "upper")
BLOCKS = 3
"""So many block pivots in a row may fail to bring the number of wrong segments down before single pivots take over."""


class Row(NamedTuple):
    """A dof that impulses act on: position of its friction among the leaves (None: no friction), which limits it has, servo or not."""

    dof: int
    friction: int | None
    position: tuple[bool, bool]
    velocity: tuple[bool, bool]
    servo: bool


@functools.lru_cache(maxsize=256)
def rows(topology: Topology) -> tuple[Row, ...]:
    """The dofs on which impulses act: those with friction, limits or a servo, of the kinds that are switched on and not soft
    constraints."""
    soft = {(info.kind, info.items[0]) for info in topology.soft}

    def kind(name: str, leaf: str) -> tuple[int, ...]:
        dofs = topology.dofs(leaf) if name in topology.constraint_kinds else ()
        return tuple(dof for dof in dofs if (leaf.split(".")[1], dof) not in soft)

    friction = kind("friction", "dof.friction")
    lower, upper = kind("limit", "limit.lower"), kind("limit", "limit.upper")
    slowest, fastest = kind("velocity", "limit.velocity_lower"), kind("velocity", "limit.velocity_upper")
    out = []
    for dof, drive in enumerate(topology.drives):
        if drive not in PRESCRIBED:
            row = Row(
                dof,
                topology.dofs("dof.friction").index(dof) if dof in friction else None,
                (dof in lower, dof in upper),
                (dof in slowest, dof in fastest),
                drive == "servo",
            )
            if row.friction is not None or any(row.position + row.velocity) or row.servo:
                out.append(row)
    return tuple(out)


class ForceLaw(NamedTuple):
    """The staircase of one dof. Velocities: lower, upper (bounds), target (of the servo). Impulses: friction (its largest size), least,
    most (of the servo). None where there is none."""

    lower: object
    upper: object
    friction: object
    target: object
    least: object
    most: object


@stage
def _reach(limit, position, dt):
    """The velocity that reaches a limit in one step."""
    return (limit - position) / dt


@stage
def _coordinates(joint, numbers, q):
    return joint.coordinates(numbers, q)


def force_laws(system: System, q, servo: dict) -> list[ForceLaw]:
    """The staircase of every row. A velocity limit holds on the way back from beyond a position limit, too."""
    position: list = []
    for joint, numbers, own in zip(system.link.joints, system.link.numbers, split_q(system, q), strict=True):
        position.extend(_coordinates(joint, numbers, own))
    out, dt = [], system.option.dt
    for row in rows(system.topology):
        speeds = [bound(system, f"velocity_{side}", row.dof) if has else None for side, has in zip(SIDES, row.velocity, strict=True)]
        ends = list(speeds)
        for k, side in enumerate(SIDES):
            if row.position[k]:
                ends[k] = clip(_reach(bound(system, side, row.dof), position[row.dof], dt), *speeds)
        friction = None if row.friction is None else mul(system.dof.friction[row.friction], dt)
        forces = [bound(system, f"force_{side}", row.dof) if row.servo else None for side in SIDES]
        least, most = (None if f is None else mul(f, dt) for f in forces)
        out.append(ForceLaw(*ends, friction, servo[row.dof] if row.servo else None, least, most))
    return out


# ---- which stair each dof stands on: no derivatives here ----------------------------------------------------------------------


class _Arrays(NamedTuple):
    """Force laws of all rows, (rows, lanes); infinite where there is none."""

    lower: jax.Array
    upper: jax.Array
    friction: jax.Array
    target: jax.Array
    least: jax.Array
    most: jax.Array
    servo: jax.Array


def _prox(s: _Arrays, r, c):
    """The velocity on the staircase for the velocity r that the dof would have without its own impulse; c: velocity per impulse.

    The median of kinks and shifted segments, taken from the outside in; then the bounds.
    """
    first, second = jnp.minimum(s.target, 0.0), jnp.maximum(s.target, 0.0)
    above_first = jnp.where(s.target < 0, s.friction + s.least, s.most - s.friction)
    left, middle, right = r + c * (s.friction + s.most), r + c * above_first, r + c * (s.least - s.friction)
    both = jnp.minimum(left, jnp.maximum(first, jnp.minimum(middle, jnp.maximum(second, right))))
    alone = jnp.minimum(r + c * s.friction, jnp.maximum(0.0, r - c * s.friction))
    return jnp.clip(jnp.where(s.servo > 0, both, alone), s.lower, s.upper)


def _level(s: _Arrays, x):
    """Impulse of a dof that moves with velocity x between the kinks."""
    servo = jnp.where(x > s.target, s.least, s.most)
    return -s.friction * jnp.sign(x) + jnp.where(s.servo > 0, servo, 0.0)


def _sticks(s: _Arrays, x):
    """1.0 where x is a kink: the dof keeps this velocity whatever impulse that takes."""
    kink = (x == s.lower) | (x == s.upper) | ((x == 0) & (s.friction > 0)) | ((x == s.target) & (s.servo > 0))
    return kink.astype(x.dtype)


def _kinks(s: _Arrays):
    """(4, rows, lanes), infinite where there is none."""
    return jnp.stack([s.lower, s.upper, jnp.where(s.friction > 0, 0.0, jnp.inf), jnp.where(s.servo > 0, s.target, jnp.inf)])


def _stair(s: _Arrays, x):
    """A number for the segment that x is on, different for different segments."""
    return jnp.sum(jnp.sign(x - _kinks(s)), 0)


def _next(s: _Arrays, x, new):
    """A point on the stair next to that of x on the way to new."""
    kinks, up = _kinks(s), new > x
    above = jnp.min(jnp.where(kinks > x, kinks, jnp.inf), 0)
    below = jnp.max(jnp.where(kinks < x, kinks, -jnp.inf), 0)
    end = jnp.where(up, above, below)
    within = jnp.where(up, new < end, new > end)  # of the stretch from x to the next kink
    return jnp.where(_sticks(s, x) > 0, jnp.where(within, new, 0.5 * (x + jnp.where(within, x, end))), end)


class _Search(NamedTuple):
    x: jax.Array  # (rows, lanes) velocity that names the stair
    free: list  # change of velocity of the free dofs, then the multipliers of the couplings
    wrong: jax.Array  # (lanes,) dofs on a wrong stair; 0: solved
    best: jax.Array
    patience: jax.Array
    count: jax.Array


def _search(system: System, mass, jacobian, start, s: _Arrays, fixed) -> _Search:
    """Force laws and change of velocity. start: v* per dof; jacobian: of the couplings, which keep their velocity; fixed: dofs that keep
    v*."""
    dofs = [row.dof for row in rows(system.topology)]
    vstar = jnp.stack([start[d] for d in dofs])
    c = 1.0 / jnp.stack([jnp.maximum(mass[d][-1], jnp.finfo(vstar.dtype).tiny) for d in dofs])
    most = 20 + 8 * len(dofs)

    def solved(x):
        """Change of velocity with the dofs on the segments of x, and the velocity without each dof's own impulse."""
        sticks = _sticks(s, x)
        keep: list = [1.0] * len(start)
        given: list = [0.0] * len(start)
        push: list = [0.0] * len(start)
        level = jnp.where(sticks > 0, 0.0, _level(s, x))
        for k, d in enumerate(dofs):
            keep[d], given[d], push[d] = 1.0 - sticks[k], sticks[k] * (x[k] - vstar[k]), level[k]
        for d in fixed:
            keep[d] = 0.0
        full = [jnp.broadcast_to(jnp.asarray(y, vstar.dtype), vstar.shape[1:]) for y in given]
        right = _arrays(_rest(push, multiply(system, mass, full), keep), vstar)
        saddle = Saddle(system, _arrays(masked(system, mass, keep), vstar), restricted(jacobian, keep))
        free = _arrays(saddle.solve(right, [total([mul(a, full[d]) for d, a in row]) for row in jacobian]), vstar)
        change = [add(mul(k, f), g) for k, f, g in zip(keep, free, given, strict=False)]
        impulse = minus_jt_times(multiply(system, mass, change), jacobian, free[len(start) :])
        v = jnp.where(sticks > 0, x, vstar + jnp.stack([change[d] for d in dofs]))
        p = jnp.where(sticks > 0, jnp.stack([impulse[d] for d in dofs]), level)
        return free, v, v - c * p

    def guess(state: _Search) -> _Search:
        free, v, r = solved(state.x)
        new = _prox(s, r, c)
        # On the right stair when the projection does not move it, to rounding: friction may be exactly at its bound.
        slack = 64 * jnp.finfo(v.dtype).eps * (jnp.abs(v) + jnp.abs(r) + jnp.max(jnp.abs(vstar), 0))
        wrong = (_stair(s, new) != _stair(s, state.x)) & (jnp.abs(new - v) > slack)
        number = jnp.sum(wrong.astype(v.dtype), 0)
        better = number < state.best
        patience = jnp.where(better, float(BLOCKS), state.patience - 1.0)
        first = jnp.cumsum(wrong.astype(v.dtype), 0) <= 1
        block = patience > 0
        single = wrong & first & ~block
        done = state.wrong == 0
        x = jnp.where(wrong & block, new, jnp.where(single, _next(s, state.x, new), state.x))
        x = jnp.where(done, state.x, x)
        keep = [jnp.where(done, a, b) for a, b in zip(state.free, free, strict=True)]
        number = block_loop_hoisting(jnp.where(done, 0.0, number))
        return _Search(x, keep, number, jnp.minimum(state.best, number), patience, state.count + 1.0)

    lanes = vstar.shape[1:]
    zero = jnp.zeros(lanes, vstar.dtype)
    rowcount = jnp.full(lanes, 1.0 + len(dofs), vstar.dtype)
    unknown = [zero] * (len(start) + len(jacobian))
    first = _Search(_prox(s, vstar, c), unknown, rowcount, rowcount, zero + BLOCKS, jnp.zeros((), vstar.dtype))
    return jax.lax.while_loop(lambda st: jnp.any(st.wrong > 0) & (st.count < most), guess, first)


def _arrays(xs, like):
    """Components (or rows of components) as arrays of the lanes' shape."""
    if isinstance(xs, list):
        return [_arrays(x, like) for x in xs]
    return jnp.broadcast_to(jnp.asarray(xs, like.dtype), like.shape[1:])


@stage
def _rest(push, drag, keep):
    return [mul(sub(p, d), k) for p, d, k in zip(push, drag, keep, strict=True)]


# ---- the impulses, with derivatives -------------------------------------------------------------------------------------------


class _Impulse(NamedTuple):
    """keep: 1 for dofs that are free, 0 for those whose change of velocity is given; push: impulse on the free ones. jacobian: of the
    couplings. rows: of M, and free: the solution, both known already."""

    system: System
    frame: Frames
    inertia: list
    armature: Quadratic
    keep: list
    given: list
    push: list
    jacobian: list
    rows: list
    free: list


@stage
def _unbalanced(force, load, push, keep):
    return [mul(k, sub(add(f, e), p)) for f, e, p, k in zip(force, load, push, keep, strict=True)]


def _residual(m: _Impulse, x) -> list:
    n = len(m.keep)
    change = [add(mul(k, y), g) for k, y, g in zip(m.keep, x[:n], m.given, strict=True)]
    force = minus_jt_times(inertial_force(m.system, m.frame, m.inertia, change), m.jacobian, x[n:])
    loads = [add(a, mul(m.system.option.regularization, y)) for a, y in zip(m.armature.times(change), change, strict=True)]
    apart = [neg(total([mul(a, change[d]) for d, a in row])) for row in m.jacobian]
    return [*_unbalanced(force, loads, m.push, m.keep), *apart]


def _known(m: _Impulse, full):
    saddle = Saddle(m.system, [full(row) for row in masked(m.system, m.rows, m.keep)], restricted(m.jacobian, m.keep))
    return saddle, m.free, []


def _again(m: _Impulse, full):
    """The same, from numbers that have derivatives."""
    n = len(m.keep)
    loads = [(1.0, m.armature), (m.system.option.regularization, Quadratic([1.0] * n, {}))]
    rows = with_quadratic(m.system, mass_matrix(m.system, m.frame, m.inertia), loads)
    saddle = Saddle(m.system, [full(row) for row in masked(m.system, rows, m.keep)], restricted(m.jacobian, m.keep))
    right = full([neg(r) for r in _residual(m, [0.0] * (n + len(m.jacobian)))])
    return saddle, saddle.solve(right[:n], right[n:]), []


def apply_impulses(system: System, q, v, servo: dict):
    """Velocities after the impulses of friction, limits and servos, and a component that is 0 where the segments were not found.

    v: after the smooth forces. servo: {dof: target}.
    """
    found = rows(system.topology)
    if not found:
        return v, 1.0
    steps = force_laws(system, q, servo)
    nv = len(v)
    fixed = [i for i, drive in enumerate(system.topology.drives) if drive in PRESCRIBED]
    terms = evaluate(EquationOfMotion(system, q, v, [0.0] * nv))
    mass = effective_mass(EquationOfMotion(system, q, v, [0.0] * nv), terms)
    like = jnp.broadcast_arrays(*(jnp.asarray(x) for x in (*v, *(y for row in mass for y in row), *jax.tree.leaves(steps))))[0][None]
    jacobian = terms.jacobian
    fixed_rows = [[(dof, jax.lax.stop_gradient(c)) for dof, c in row] for row in jacobian]
    fixed_mass, vstar, fixed_steps = jax.lax.stop_gradient((_arrays([list(r) for r in mass], like), _arrays(list(v), like), steps))
    s = _table(fixed_steps, like)
    search = jax.lax.stop_gradient(_search(system, fixed_mass, fixed_rows, vstar, s, fixed))
    sticks = _sticks(s, search.x)
    keep: list = [1.0] * nv
    given: list = [0.0] * nv
    push: list = [0.0] * nv
    out: list = list(v)
    for d in fixed:
        keep[d] = 0.0
    targets = []
    for k, (row, own) in enumerate(zip(found, steps, strict=True)):
        x, stuck = search.x[k], sticks[k]
        target = _target(own, x, (x == s.lower[k]), (x == s.upper[k]), (x == s.target[k]) if row.servo else None)
        keep[row.dof] = 1.0 - stuck
        given[row.dof] = stuck * (target - v[row.dof])
        push[row.dof] = (1.0 - stuck) * _pushed(own, x)
        targets.append((row.dof, stuck, target))
    known = _Impulse(system, terms.frame, terms.inertia, terms.loads[0][1], keep, given, push, jacobian, fixed_mass, search.free)
    free, _ = implicit(known, _known, _residual, _again)
    for i in range(nv):
        out[i] = add(v[i], add(mul(keep[i], free[i]), given[i]))
    for d, stuck, target in targets:
        out[d] = jnp.where(stuck > 0, target, out[d])
    return out, jnp.where(search.wrong > 0, 0.0, 1.0)


@stage
def _target(own: ForceLaw, x, low, high, served):
    """The kink's velocity, as a function of the numbers it comes from."""
    target = jnp.zeros_like(x)
    for at, value in ((served, own.target), (high, own.upper), (low, own.lower)):
        if at is not None and value is not None:
            target = jnp.where(at, value, target)
    return target


@stage
def _pushed(own: ForceLaw, x):
    """The stair's impulse, as a function of the numbers it comes from."""
    push = jnp.zeros_like(x)
    if own.friction is not None:
        push = push - own.friction * jnp.sign(x)
    if own.target is not None:
        push = push + jnp.where(x > own.target, 0.0 if own.least is None else own.least, 0.0 if own.most is None else own.most)
    return push


def _table(steps: list[ForceLaw], like) -> _Arrays:
    def line(name: str, missing: float):
        values = (getattr(s, name) for s in steps)
        return jnp.stack(_arrays([missing if x is None else x for x in values], like))

    servo = jnp.stack(_arrays([0.0 if s.target is None else 1.0 for s in steps], like))
    return _Arrays(
        line("lower", -jnp.inf), line("upper", jnp.inf), line("friction", 0.0), line("target", 0.0),
        line("least", -jnp.inf), line("most", jnp.inf), servo,
    )  # fmt: skip
