"""The equation of motion: accelerations with exact implicit derivatives.

The derivative of the solution comes from the residual of inverse dynamics at the solution, so neither the composite inertias nor the
factorization are ever differentiated (for the first derivative).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import effort
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.constraints.holonomic import has_holonomic_rows, holonomic_rates, holonomic_rows
from xsim.dynamics.constraints.newton import minimize
from xsim.dynamics.constraints.noslip import without_slip
from xsim.dynamics.constraints.soft_set import Constraints
from xsim.dynamics.forces.elements import element_force
from xsim.dynamics.forces.elements import soft_rows as element_rows
from xsim.dynamics.forces.passive import passive_force, quadratic
from xsim.dynamics.integration.velocity_derivatives import damping_derivatives, lone_free, velocity_derivatives
from xsim.dynamics.linalg.dense import assembled
from xsim.dynamics.linalg.implicit import implicit
from xsim.dynamics.linalg.newton_matrix import Staged, Stiffened
from xsim.dynamics.linalg.sparse import Quadratic, Saddle, masked, minus_jt_times, multiply, restricted, row_times, with_quadratic
from xsim.dynamics.linalg.unsymmetric import Unsymmetric
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import Frames, frames, inertial_force, inverse_dynamics, link_inertias, mass_matrix
from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, neg, stage, sub

UNSYMMETRIC = ("free", "full")
"""Values of `ImplicitTerms.velocity` whose matrix is not symmetric."""


class ImplicitTerms(NamedTuple):
    """Which smooth forces act at the end of a step instead of its start, linearized; zeros and "" for none.

    damping: the time (s) over which the dampers of joints do. springs: its square (s^2), for the springs of joints. elements: the time over
    which springs, dampers and bushings between bodies do. velocity: which forces do over the step by their velocity derivatives,

        "fast"   damping, actuators, fluid, tendons; the symmetric part of the derivatives
        "free"   as "fast"; for the dofs of `lone_free` all forces, the derivatives in full
        "full"   all forces, those of Coriolis included; the derivatives in full
    """

    damping: object = 0.0
    springs: object = 0.0
    elements: object = 0.0
    velocity: str = ""


EXPLICIT = ImplicitTerms()


class EquationOfMotion(NamedTuple):
    """What the equation of motion is evaluated at.

    act, ctrl: activations and controls of the actuators. prescribed: per dof the acceleration that is prescribed, None where it follows
    from the forces; () for no prescribed dof. row_acceleration: per holonomic row the required second derivative; 0 for the rows
    after its end. soft: soft constraints, None for none. Under MuJoCo's rules they are solved without the implicit terms, which then act
    on the acceleration that the constraints give: the solution is that acceleration and, where there are implicit terms, the one after
    them.
    """

    system: System
    q: list
    v: list
    tau: list
    act: tuple = ()
    ctrl: tuple = ()
    implicit: ImplicitTerms = EXPLICIT
    prescribed: tuple = ()
    row_acceleration: tuple = ()
    soft: Constraints | None = None


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
    jacobian: list  # of the holonomic rows; beside soft constraints also of prescribed dofs
    soft: list  # (row, G, force per rate of the row) of what acts at the end of the step
    tendon: list  # tendons
    driven: list  # what the actuators act on
    implicit_loads: list  # as loads, of what moves under the forces of soft constraints


def is_zero(x) -> bool:
    """Whether x is the constant 0.0."""
    return isinstance(x, float) and x == 0.0


def evaluate(m: EquationOfMotion) -> Terms:
    system = m.system
    frame = frames(system, m.q)
    damping = quadratic(system, frame, system.dof.damping, "damper")
    regularization = (system.option.regularization, Quadratic([1.0] * len(m.v), {}))
    loads = [(1.0, quadratic(system, frame, system.dof.armature, "armature")), regularization]
    staged = m.soft is not None and system.topology.switches.constraints_before_damping
    implicit_loads = [] if staged else loads
    stiffness = None
    if not is_zero(m.implicit.damping):
        implicit_loads.append((m.implicit.damping, damping))
    if not is_zero(m.implicit.springs):
        stiffness = quadratic(system, frame, system.dof.stiffness, "spring")
        implicit_loads.append((m.implicit.springs, stiffness))
    inertia, tendon = link_inertias(system, frame), tendons(system, frame, m.q)
    driven = transmissions(system, frame, m.q, tendon)
    if m.implicit.velocity == "fast":
        implicit_loads.append((system.option.dt, damping_derivatives(system, frame, m.v, m.act, m.ctrl, tendon, driven)))
    if m.implicit.velocity in UNSYMMETRIC:
        dofs = lone_free(system) if m.implicit.velocity == "free" else None
        derivatives = velocity_derivatives(system, frame, inertia, m.q, m.v, m.act, m.ctrl, tendon, driven, dofs)
        implicit_loads.append((system.option.dt, derivatives))
    soft = [] if is_zero(m.implicit.elements) else implicit_element_rows(system, frame, m.q, m.v, m.implicit.elements)
    jacobian = holonomic_rows(system, frame)
    if m.soft is not None:
        jacobian = [*jacobian, *([(i, 1.0)] for i, h in enumerate(m.prescribed) if h is not None)]
    return Terms(frame, inertia, damping, loads, stiffness, jacobian, soft, tendon, driven, implicit_loads if staged else [])


def implicit_element_rows(system: System, frame: Frames, q, v, dt) -> list:
    """(row, G, c) of the elements' forces at the end of a step of dt: with the row's rate r now and its acceleration a the element force
    decreases by c r + G a, c = dt k and G = dt (dt k + d) of stiffness k and damping d."""
    return [(row, mul(dt, add(mul(dt, k), d)), mul(dt, k)) for row, k, d in element_rows(system, frame, q, v)]


def with_implicit_elements(force: list, soft: list, v, a) -> list:
    """force plus the decrease of the element forces over the step, see `implicit_element_rows`; a None: without the part of a."""
    decreases = []
    for row, g, c in soft:
        decrease = mul(c, row_times(row, v))
        decreases.append(decrease if a is None else add(decrease, mul(g, row_times(row, a))))
    return minus_jt_times(force, [row for row, *_ in soft], [neg(f) for f in decreases])


def residual(m: EquationOfMotion, x, terms: Terms | None = None) -> list:
    """What is zero at the solution x: the acceleration, then the multipliers of the holonomic rows, then, where something moves under the
    forces of soft constraints, the acceleration after the implicit terms (None: all zero, and no soft constraints).

    Inverse dynamics of the acceleration minus applied, passive and constraint forces, then the rows' equations. Prescribed dofs
    take their acceleration from ``m.prescribed`` and have no equation; beside soft constraints they are rows like the others.
    """
    t, n = terms or evaluate(m), len(m.v)
    rows = n + len(t.jacobian)
    a, y, implicit_a = (None, [0.0] * len(t.jacobian), []) if x is None else (x[:n], x[n:rows], x[rows:])
    wanted = [neg(r) for r in holonomic_rates(m.system, t.frame, m.q, m.v)]
    for i, c in enumerate(m.row_acceleration):
        wanted[i] = add(wanted[i], c)
    if m.soft is not None:
        balance = _smooth_balance(m._replace(prescribed=()), t, a, y)
        wanted += [h for h in m.prescribed if h is not None]
        if a is not None:
            balance, implicit_a = _less_force(m.soft, balance, a), _implicit_balance(m, t, a, implicit_a) if t.implicit_loads else []
    else:
        balance = _smooth_balance(m, t, a, y)
        if m.prescribed:
            balance = [b if h is None else 0.0 for b, h in zip(balance, m.prescribed, strict=True)]
    gaps = [sub(c, 0.0 if a is None else row_times(row, a)) for c, row in zip(wanted, t.jacobian, strict=True)]
    return [*balance, *gaps, *implicit_a]


def _smooth_balance(m: EquationOfMotion, t: Terms, a, y) -> list:
    """Inverse dynamics minus smooth forces and those of the multipliers y."""
    n = len(m.v)
    if m.prescribed:
        free = [0.0] * n if a is None else a
        a = [x if h is None else h for x, h in zip(free, m.prescribed, strict=True)]
    force = inverse_dynamics(m.system, t.frame, t.inertia, m.q, m.v, a)
    passive = passive_force(m.system, t.frame, m.q, m.v, t.damping, t.tendon)
    extra = [0.0] * n
    if t.stiffness is not None:
        # The spring at the position that the old velocity would reach (DART's rule); the acceleration's part is in the loads.
        extra = [mul(m.implicit.damping, x) for x in t.stiffness.times(m.v)]
    if a is not None:
        for factor, quad in t.loads:
            extra = [add(e, mul(factor, x)) for e, x in zip(extra, quad.times(a), strict=True)]
    tau = m.tau
    if m.system.topology.forces:
        tau = [add(a, b) for a, b in zip(tau, element_force(m.system, t.frame, m.q, m.v), strict=True)]
    if m.ctrl:
        tau = [add(a, b) for a, b in zip(tau, effort(m.system, t.frame, m.v, m.act, m.ctrl, t.driven).tau, strict=True)]
    return with_implicit_elements(minus_jt_times(_balance(force, tau, passive, extra), t.jacobian, y), t.soft, m.v, a)


def _less_force(soft: Constraints, balance: list, a) -> list:
    """The balance less the forces of soft constraints at an acceleration."""
    a = jnp.stack(a)
    soft = soft.fitted(a.shape[1:])
    force = soft.jt_times(soft.force(soft.at(a)))
    return [sub(b, f) for b, f in zip(balance, force, strict=True)]


def _implicit_balance(m: EquationOfMotion, t: Terms, a, implicit_a) -> list:
    """What is zero at the implicit_loads acceleration: M (implicit_a - a) + what acts implicitly."""
    change = [sub(x, y) for x, y in zip(implicit_a, a, strict=True)]
    out = inertial_force(m.system, t.frame, t.inertia, change)
    for loads, x in ((t.loads, change), (t.implicit_loads, implicit_a)):
        for factor, quad in loads:
            out = [add(f, mul(factor, y)) for f, y in zip(out, quad.times(x), strict=True)]
    return out


def effective_mass(m: EquationOfMotion, terms: Terms | None = None) -> list:
    """Rows of the matrix that multiplies the acceleration: mass matrix, armature, implicit damping and springs, regularization."""
    t = terms or evaluate(m)
    rows = with_quadratic(m.system, mass_matrix(m.system, t.frame, t.inertia), t.loads)
    if m.prescribed:
        rows = masked(m.system, rows, [1.0 if h is None else 0.0 for h in m.prescribed])
    return rows


def _unsymmetric(m: EquationOfMotion, terms: Terms, full) -> Unsymmetric:
    """The matrix that multiplies the acceleration (the implicit_loads one) where it is not symmetric."""
    before = m.system.tables.before
    entries: dict = {}
    for i, row in enumerate(mass_matrix(m.system, terms.frame, terms.inertia)):
        entries |= {(i, j): x for j, x in zip((*before[i], i), row, strict=True)}
        entries |= {(j, i): x for j, x in zip(before[i], row[:-1], strict=True)}
    for factor, quad in (*terms.loads, *terms.implicit_loads):
        for i, x in enumerate(quad.diagonal):
            entries[i, i] = add(entries[i, i], mul(factor, x))
        for place, x in quad.blocks.items():
            entries[place] = add(entries[place], mul(factor, x))
    return Unsymmetric(m.system, dict(zip(entries, full(list(entries.values())), strict=True)))


def _softly(m: EquationOfMotion, terms: Terms, full) -> tuple:
    """What `implicit` asks for, of a motion with soft constraints."""
    system = m.system
    assert m.soft is not None
    loaded = [full(row) for row in effective_mass(m._replace(prescribed=()), terms)]
    lower = {(i, j): x for i, row in enumerate(loaded) for j, x in zip((*system.tables.before[i], i), row, strict=True)}
    mass = assembled(lower | {(j, i): x for (i, j), x in lower.items()}, (len(m.v),) * 2)
    both = jnp.stack(full([neg(r) for r in residual(m, None, terms)]))
    n = len(m.v)
    right, wanted = both[:n], -both[n:]
    for (_, g, _), row in zip(terms.soft, _dense([row for row, *_ in terms.soft], n, right[0]) if terms.soft else (), strict=True):
        mass = mass + mul(g, row[:, None] * row[None])
    hard = _dense(terms.jacobian, n, right[0]) if terms.jacobian else None
    soft = m.soft.fitted(both.shape[1:])
    least = minimize(mass, right, soft, hard, wanted)
    matrix, a = Stiffened(mass + soft.curvature(least.x), hard), [*least.a, *(() if hard is None else least.y)]
    others = [matrix.bordered.factor.pivot, least.converged]
    if not terms.implicit_loads:
        return matrix, a, others
    if m.implicit.velocity in UNSYMMETRIC:
        second = _unsymmetric(m, terms, full)
    else:
        second = [full(row) for row in with_quadratic(system, loaded, terms.implicit_loads)]
    staged = Staged(system, matrix, loaded, second)
    return staged, [*a, *staged.moved(multiply(system, loaded, a))], others


def _dense(rows: list, n: int, like):
    """Rows [(dof, coefficient), ...] as a matrix (rows, n, lanes)."""
    return assembled({(i, dof): x for i, row in enumerate(rows) for dof, x in row}, (len(rows), n), like)


class Solved(NamedTuple):
    """a: the acceleration. multipliers: of the holonomic rows. pivot: 0 where the mass matrix is singular. found: 0 where the forces of
    soft constraints were not. overflow: 1 where more contacts were active than the buffer holds. explicit_a: the acceleration at which soft
    constraints have their forces; soft: those that have them there."""

    a: list
    multipliers: list
    pivot: object
    found: object
    overflow: object = 0.0
    explicit_a: list | None = None
    soft: Constraints | None = None


def acceleration(m: EquationOfMotion) -> Solved:
    """The acceleration at which the residual is zero; under `Topology.noslip` that with friction which does not slip."""
    solved = _solved(m)
    if m.soft is None or not m.system.topology.noslip:
        return solved
    assert solved.explicit_a is not None
    again = _solved(m._replace(soft=without_slip(m.soft, jnp.stack(solved.explicit_a))))
    return again._replace(found=jnp.minimum(solved.found, again.found))


def _solved(m: EquationOfMotion) -> Solved:
    n, rows = len(m.v), 0

    def primal(m: EquationOfMotion, full):
        nonlocal rows
        terms = evaluate(m)
        rows = len(terms.jacobian)
        if m.soft is not None:
            return _softly(m, terms, full)
        if m.implicit.velocity in UNSYMMETRIC:
            matrix = _unsymmetric(m, terms, full)
            return matrix, matrix.solve(full([neg(r) for r in residual(m, None, terms)])), [1.0, 1.0]
        free = [1.0] * n if not m.prescribed else [1.0 if h is None else 0.0 for h in m.prescribed]
        soft = [(row, g) for row, (_, g, _) in zip(restricted([row for row, *_ in terms.soft], free), terms.soft, strict=True)]
        saddle = Saddle(m.system, [full(row) for row in effective_mass(m, terms)], restricted(terms.jacobian, free), soft)
        right = full([neg(r) for r in residual(m, None, terms)])
        return saddle, saddle.solve(right[:n], right[n:]), [saddle.factor.pivot, 1.0]

    if m.implicit.velocity in UNSYMMETRIC and (m.prescribed or has_holonomic_rows(m.system.topology)):
        raise ValueError("the integrator implicit is for models without holonomic constraints and prescribed motion; choose implicitfast")
    x, (pivot, found) = implicit(m, primal, residual)
    if m.soft is not None:
        return Solved(x[n + rows :] or x[:n], x[n : n + rows], pivot, found, m.soft.overflow, x[:n], m.soft)
    a = [y if h is None else h for y, h in zip(x[:n], m.prescribed, strict=True)] if m.prescribed else x[:n]
    return Solved(a, x[n:], pivot, found, explicit_a=a)
