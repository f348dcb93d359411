"""Dry friction, limits and servos as bounded impulses on the velocity.

The smooth forces of a step give the velocity v*. Impulses p change it to v, with M (v - v*) = p. Each dof has a force law, which gives its
impulse as a monotone function of its velocity. The function is constant on segments; at a kink the impulse may have any value between those
of the two segments. It has three parts:

* dry friction: at most friction times dt, opposite to the velocity
* a servo: at most its force limits times dt, towards its target velocity
* position and velocity limits: the impulse that keeps the velocity between its bounds. The bound of a position limit is the velocity that
  reaches the limit at the end of the step.

These are the optimality conditions of a strictly convex problem,

    min over v of  1/2 (v - v*)^T M (v - v*) + sum over dofs of phi_i(v_i),

so v is unique. An active-set iteration finds the segment of its force law on which each dof lies. Each iteration is one sparse solve with
the velocities of sticking dofs fixed. The method is block principal pivoting (Judice and Pires 1994), with single pivots when the blocks
make no progress. The result is differentiated on the final segments. DART solves the same equations as a boxed LCP.
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
MAX_BLOCK_FAILURES = 3
"""Block pivots that may fail in a row to reduce the number of wrong segments, before single pivots are used."""


class ImpulseRow(NamedTuple):
    """A dof on which impulses act.

    * friction: row of the leaf ``dof.friction``, None without friction.
    * position, velocity: whether it has a lower and an upper limit.
    * servo: whether a servo drives it.
    """

    dof: int
    friction: int | None
    position: tuple[bool, bool]
    velocity: tuple[bool, bool]
    servo: bool


@functools.lru_cache(maxsize=256)
def impulse_rows(topology: Topology) -> tuple[ImpulseRow, ...]:
    """The dofs on which impulses act: those with friction, limits or a servo of the kinds in `Topology.constraint_kinds` that are not soft
    constraints."""
    soft = {(info.kind, info.items[0]) for info in topology.soft}

    def dofs_with(kind: str, leaf: str) -> tuple[int, ...]:
        dofs = topology.dofs(leaf) if kind in topology.constraint_kinds else ()
        return tuple(dof for dof in dofs if (leaf.split(".")[1], dof) not in soft)

    friction = dofs_with("friction", "dof.friction")
    lower, upper = dofs_with("limit", "limit.lower"), dofs_with("limit", "limit.upper")
    slowest, fastest = dofs_with("velocity", "limit.velocity_lower"), dofs_with("velocity", "limit.velocity_upper")
    out = []
    for dof, drive in enumerate(topology.drives):
        if drive not in PRESCRIBED:
            row = ImpulseRow(
                dof,
                topology.dofs("dof.friction").index(dof) if dof in friction else None,
                (dof in lower, dof in upper),
                (dof in slowest, dof in fastest),
                drive == "servo" and "servo" in topology.constraint_kinds,
            )
            if row.friction is not None or any(row.position + row.velocity) or row.servo:
                out.append(row)
    return tuple(out)


class ForceLaw(NamedTuple):
    """The impulse of one dof as a function of its velocity; None for a part that the dof does not have.

    * lower, upper: bounds of the velocity.
    * friction: largest impulse of dry friction.
    * target: velocity that the servo drives to.
    * servo_min, servo_max: least and largest impulse of the servo.
    """

    lower: object
    upper: object
    friction: object
    target: object
    servo_min: object
    servo_max: object


@stage
def _velocity_to(limit, position, dt):
    """The velocity that reaches a limit in one step."""
    return (limit - position) / dt


@stage
def _coordinates(joint, numbers, q):
    return joint.coordinates(numbers, q)


def force_laws(system: System, q, servo: dict) -> list[ForceLaw]:
    """The force law of each impulse row. Velocity limits also bound the velocity with which a dof returns to its position range."""
    position: list = []
    for joint, numbers, joint_q in zip(system.link.joints, system.link.numbers, split_q(system, q), strict=True):
        position.extend(_coordinates(joint, numbers, joint_q))
    out, dt = [], system.option.dt
    for row in impulse_rows(system.topology):
        limits = [bound(system, f"velocity_{side}", row.dof) if has else None for side, has in zip(SIDES, row.velocity, strict=True)]
        bounds = list(limits)
        for k, side in enumerate(SIDES):
            if row.position[k]:
                bounds[k] = clip(_velocity_to(bound(system, side, row.dof), position[row.dof], dt), *limits)
        friction = None if row.friction is None else mul(system.dof.friction[row.friction], dt)
        forces = [bound(system, f"force_{side}", row.dof) if row.servo else None for side in SIDES]
        servo_min, servo_max = (None if f is None else mul(f, dt) for f in forces)
        out.append(ForceLaw(*bounds, friction, servo[row.dof] if row.servo else None, servo_min, servo_max))
    return out


# ---- the segment of each dof, without derivatives -----------------------------------------------------------------------------


class _ForceLaws(NamedTuple):
    """The force laws of all impulse rows, each field (rows, lanes). Missing bounds are infinite, missing friction is 0.

    servo: 1 for a dof with a servo."""

    lower: jax.Array
    upper: jax.Array
    friction: jax.Array
    target: jax.Array
    servo_min: jax.Array
    servo_max: jax.Array
    servo: jax.Array


def _prox(s: _ForceLaws, r, c):
    """The proximal operator of the force laws: the velocity x with x = r + c p(x), where p is the force law.

    r: velocity without the impulse of the dof. c: velocity per impulse. It is the median of the kinks and the shifted segments, evaluated
    from the outermost to the innermost, then clipped to the bounds.
    """
    first, second = jnp.minimum(s.target, 0.0), jnp.maximum(s.target, 0.0)
    above_first = jnp.where(s.target < 0, s.friction + s.servo_min, s.servo_max - s.friction)
    left, middle, right = r + c * (s.friction + s.servo_max), r + c * above_first, r + c * (s.servo_min - s.friction)
    with_servo = jnp.minimum(left, jnp.maximum(first, jnp.minimum(middle, jnp.maximum(second, right))))
    friction_only = jnp.minimum(r + c * s.friction, jnp.maximum(0.0, r - c * s.friction))
    return jnp.clip(jnp.where(s.servo > 0, with_servo, friction_only), s.lower, s.upper)


def _segment_impulse(s: _ForceLaws, x):
    """The impulse of the force laws at a velocity x between kinks."""
    servo = jnp.where(x > s.target, s.servo_min, s.servo_max)
    return -s.friction * jnp.sign(x) + jnp.where(s.servo > 0, servo, 0.0)


def _sticks(s: _ForceLaws, x):
    """1.0 where x is a kink: the dof sticks to this velocity, and its impulse is unknown."""
    kink = (x == s.lower) | (x == s.upper) | ((x == 0) & (s.friction > 0)) | ((x == s.target) & (s.servo > 0))
    return kink.astype(x.dtype)


def _kinks(s: _ForceLaws):
    """The velocities of the kinks (4, rows, lanes), infinite for a missing one."""
    return jnp.stack([s.lower, s.upper, jnp.where(s.friction > 0, 0.0, jnp.inf), jnp.where(s.servo > 0, s.target, jnp.inf)])


def _segment(s: _ForceLaws, x):
    """A number that identifies the segment or kink on which x lies."""
    return jnp.sum(jnp.sign(x - _kinks(s)), 0)


def _neighbour(s: _ForceLaws, x, new):
    """A velocity on the segment next to that of x, in the direction of new."""
    kinks, up = _kinks(s), new > x
    above = jnp.min(jnp.where(kinks > x, kinks, jnp.inf), 0)
    below = jnp.max(jnp.where(kinks < x, kinks, -jnp.inf), 0)
    end = jnp.where(up, above, below)
    within = jnp.where(up, new < end, new > end)  # new lies before the next kink
    return jnp.where(_sticks(s, x) > 0, jnp.where(within, new, 0.5 * (x + jnp.where(within, x, end))), end)


class _Search(NamedTuple):
    """State of the active-set iteration.

    * x: (rows, lanes) a velocity on the current segment of each dof.
    * solution: change of velocity of the free dofs, then the multipliers of the holonomic rows.
    * wrong: (lanes,) number of dofs on a wrong segment; 0: solved.
    * best: least value of wrong so far.
    * block_pivots: block pivots that may still fail.
    * count: iterations so far.
    """

    x: jax.Array
    solution: list
    wrong: jax.Array
    best: jax.Array
    block_pivots: jax.Array
    count: jax.Array


def _search(system: System, mass, jacobian, start, s: _ForceLaws, fixed) -> _Search:
    """Find the segment of each dof.

    mass: rows of M. jacobian: holonomic rows, whose velocity does not change. start: v* per dof. fixed: dofs whose velocity does not
    change."""
    dofs = [row.dof for row in impulse_rows(system.topology)]
    vstar = jnp.stack([start[d] for d in dofs])
    c = 1.0 / jnp.stack([jnp.maximum(mass[d][-1], jnp.finfo(vstar.dtype).tiny) for d in dofs])
    max_iterations = 20 + 8 * len(dofs)

    def solve_on_segments(x):
        """The change of velocity with the dofs on the segments of x, and per row v and v - c p (p: the impulse of the row)."""
        sticks = _sticks(s, x)
        free: list = [1.0] * len(start)
        stick_change: list = [0.0] * len(start)
        impulse: list = [0.0] * len(start)
        segment_impulse = jnp.where(sticks > 0, 0.0, _segment_impulse(s, x))
        for k, d in enumerate(dofs):
            free[d], stick_change[d], impulse[d] = 1.0 - sticks[k], sticks[k] * (x[k] - vstar[k]), segment_impulse[k]
        for d in fixed:
            free[d] = 0.0
        full = [jnp.broadcast_to(jnp.asarray(y, vstar.dtype), vstar.shape[1:]) for y in stick_change]
        right_side = _arrays(_right_side(impulse, multiply(system, mass, full), free), vstar)
        saddle = Saddle(system, _arrays(masked(system, mass, free), vstar), restricted(jacobian, free))
        solution = _arrays(saddle.solve(right_side, [total([mul(a, full[d]) for d, a in row]) for row in jacobian]), vstar)
        change = [add(mul(k, y), g) for k, y, g in zip(free, solution, stick_change, strict=False)]
        all_impulses = minus_jt_times(multiply(system, mass, change), jacobian, solution[len(start) :])
        v = jnp.where(sticks > 0, x, vstar + jnp.stack([change[d] for d in dofs]))
        p = jnp.where(sticks > 0, jnp.stack([all_impulses[d] for d in dofs]), segment_impulse)
        return solution, v, v - c * p

    def iterate(state: _Search) -> _Search:
        solution, v, r = solve_on_segments(state.x)
        new = _prox(s, r, c)
        # The segment is right if the proximal operator does not change v beyond rounding: friction may be exactly at its bound.
        slack = 64 * jnp.finfo(v.dtype).eps * (jnp.abs(v) + jnp.abs(r) + jnp.max(jnp.abs(vstar), 0))
        wrong = (_segment(s, new) != _segment(s, state.x)) & (jnp.abs(new - v) > slack)
        number = jnp.sum(wrong.astype(v.dtype), 0)
        better = number < state.best
        block_pivots = jnp.where(better, float(MAX_BLOCK_FAILURES), state.block_pivots - 1.0)
        first = jnp.cumsum(wrong.astype(v.dtype), 0) <= 1
        block = block_pivots > 0
        single = wrong & first & ~block
        done = state.wrong == 0
        x = jnp.where(wrong & block, new, jnp.where(single, _neighbour(s, state.x, new), state.x))
        x = jnp.where(done, state.x, x)
        solution = [jnp.where(done, a, b) for a, b in zip(state.solution, solution, strict=True)]
        number = block_loop_hoisting(jnp.where(done, 0.0, number))
        return _Search(x, solution, number, jnp.minimum(state.best, number), block_pivots, state.count + 1.0)

    lanes = vstar.shape[1:]
    zero = jnp.zeros(lanes, vstar.dtype)
    all_wrong = jnp.full(lanes, 1.0 + len(dofs), vstar.dtype)
    unknown = [zero] * (len(start) + len(jacobian))
    first = _Search(_prox(s, vstar, c), unknown, all_wrong, all_wrong, zero + MAX_BLOCK_FAILURES, jnp.zeros((), vstar.dtype))
    return jax.lax.while_loop(lambda st: jnp.any(st.wrong > 0) & (st.count < max_iterations), iterate, first)


def _arrays(xs, like):
    """Components, or rows of components, as arrays with the shape of the lanes."""
    if isinstance(xs, list):
        return [_arrays(x, like) for x in xs]
    return jnp.broadcast_to(jnp.asarray(xs, like.dtype), like.shape[1:])


@stage
def _right_side(impulse, stick_impulse, free):
    return [mul(sub(p, s), k) for p, s, k in zip(impulse, stick_impulse, free, strict=True)]


# ---- the impulses, with derivatives -------------------------------------------------------------------------------------------


class _Impulse(NamedTuple):
    """The problem of the change of velocity on given segments.

    * free: 1 for a free dof, 0 for one that sticks or is fixed.
    * stick_change: change of velocity of the dofs that are not free, 0 for the others.
    * impulse: impulse on the free dofs.
    * jacobian: holonomic rows.
    * solution: from the search, without derivatives.
    """

    system: System
    frame: Frames
    inertia: list
    armature: Quadratic
    free: list
    stick_change: list
    impulse: list
    jacobian: list
    solution: list


@stage
def _balance(force, extra, impulse, free):
    return [mul(k, sub(add(f, e), p)) for f, e, p, k in zip(force, extra, impulse, free, strict=True)]


def _residual(m: _Impulse, x) -> list:
    n = len(m.free)
    change = [add(mul(k, y), g) for k, y, g in zip(m.free, x[:n], m.stick_change, strict=True)]
    force = minus_jt_times(inertial_force(m.system, m.frame, m.inertia, change), m.jacobian, x[n:])
    extra = [add(a, mul(m.system.option.regularization, y)) for a, y in zip(m.armature.times(change), change, strict=True)]
    row_errors = [neg(total([mul(a, change[d]) for d, a in row])) for row in m.jacobian]
    return [*_balance(force, extra, m.impulse, m.free), *row_errors]


def _from_search(m: _Impulse, full, with_matrix: bool):
    """The solution for `implicit`."""
    return None, m.solution, []


def _matrix(m: _Impulse, x, full) -> Saddle:
    """The matrix for `implicit`."""
    matrix_terms = [(1.0, m.armature), (m.system.option.regularization, Quadratic([1.0] * len(m.free), {}))]
    rows = with_quadratic(m.system, mass_matrix(m.system, m.frame, m.inertia), matrix_terms)
    return Saddle(m.system, [full(row) for row in masked(m.system, rows, m.free)], restricted(m.jacobian, m.free))


def apply_impulses(system: System, q, v, servo: dict):
    """Velocity (nv) after the impulses of friction, limits and servos, and a component that is 0 where the search did not converge.

    v: velocity after the smooth forces. servo: {dof: target velocity}.
    """
    rows = impulse_rows(system.topology)
    if not rows:
        return v, 1.0
    laws = force_laws(system, q, servo)
    nv = len(v)
    fixed = [i for i, drive in enumerate(system.topology.drives) if drive in PRESCRIBED]
    terms = evaluate(EquationOfMotion(system, q, v, [0.0] * nv))
    mass = effective_mass(EquationOfMotion(system, q, v, [0.0] * nv), terms)
    like = jnp.broadcast_arrays(*(jnp.asarray(x) for x in (*v, *(y for row in mass for y in row), *jax.tree.leaves(laws))))[0][None]
    jacobian = terms.jacobian
    const_jacobian = [[(dof, jax.lax.stop_gradient(c)) for dof, c in row] for row in jacobian]
    const_mass, vstar, const_laws = jax.lax.stop_gradient((_arrays([list(r) for r in mass], like), _arrays(list(v), like), laws))
    s = _stacked(const_laws, like)
    search = jax.lax.stop_gradient(_search(system, const_mass, const_jacobian, vstar, s, fixed))
    sticks = _sticks(s, search.x)
    free: list = [1.0] * nv
    stick_change: list = [0.0] * nv
    impulse: list = [0.0] * nv
    out: list = list(v)
    for d in fixed:
        free[d] = 0.0
    targets = []
    for k, (row, law) in enumerate(zip(rows, laws, strict=True)):
        x, stuck = search.x[k], sticks[k]
        target = _kink_velocity(law, x, (x == s.lower[k]), (x == s.upper[k]), (x == s.target[k]) if row.servo else None)
        free[row.dof] = 1.0 - stuck
        stick_change[row.dof] = stuck * (target - v[row.dof])
        impulse[row.dof] = (1.0 - stuck) * _differentiable_impulse(law, x)
        targets.append((row.dof, stuck, target))
    armature = terms.matrix_terms[0][1]
    problem = _Impulse(system, terms.frame, terms.inertia, armature, free, stick_change, impulse, jacobian, search.solution)
    solution, _ = implicit(problem, _from_search, _residual, _matrix)
    for i in range(nv):
        out[i] = add(v[i], add(mul(free[i], solution[i]), stick_change[i]))
    for d, stuck, target in targets:
        out[d] = jnp.where(stuck > 0, target, out[d])
    return out, jnp.where(search.wrong > 0, 0.0, 1.0)


@stage
def _kink_velocity(law: ForceLaw, x, at_lower, at_upper, at_target):
    """The velocity of the kink at x, with the derivatives of the force law."""
    velocity = jnp.zeros_like(x)
    for at, value in ((at_target, law.target), (at_upper, law.upper), (at_lower, law.lower)):
        if at is not None and value is not None:
            velocity = jnp.where(at, value, velocity)
    return velocity


@stage
def _differentiable_impulse(law: ForceLaw, x):
    """The impulse of the segment at x, with the derivatives of the force law."""
    impulse = jnp.zeros_like(x)
    if law.friction is not None:
        impulse = impulse - law.friction * jnp.sign(x)
    if law.target is not None:
        servo_min, servo_max = (0.0 if limit is None else limit for limit in (law.servo_min, law.servo_max))
        impulse = impulse + jnp.where(x > law.target, servo_min, servo_max)
    return impulse


def _stacked(laws: list[ForceLaw], like) -> _ForceLaws:
    def field(name: str, missing: float):
        values = (getattr(law, name) for law in laws)
        return jnp.stack(_arrays([missing if x is None else x for x in values], like))

    servo = jnp.stack(_arrays([0.0 if law.target is None else 1.0 for law in laws], like))
    return _ForceLaws(
        field("lower", -jnp.inf), field("upper", jnp.inf), field("friction", 0.0), field("target", 0.0),
        field("servo_min", -jnp.inf), field("servo_max", jnp.inf), servo,
    )  # fmt: skip
