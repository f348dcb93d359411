"""The equation of motion: accelerations with exact implicit derivatives.

The derivative of the solution follows from the residual of inverse dynamics at the solution (implicit function theorem). A first derivative
therefore differentiates neither the composite inertias nor the factorization.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.compile.rules import has_bounded_sums
from xsim.dynamics.actuation.actuation import actuator_forces
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.constraints.active_contacts import active_cones, contact_force
from xsim.dynamics.constraints.holonomic import has_holonomic_rows, holonomic_rates, holonomic_rows
from xsim.dynamics.constraints.newton import free_acceleration, minimize
from xsim.dynamics.constraints.noslip import without_slip
from xsim.dynamics.constraints.soft_set import Constraints, with_cones
from xsim.dynamics.forces.armature import armature_matrix, with_armature_bias
from xsim.dynamics.forces.elements import element_force, element_rows
from xsim.dynamics.forces.passive import damping_matrix, passive_force, quadratic
from xsim.dynamics.integration.velocity_derivatives import damping_derivatives, free_body_dofs, velocity_derivatives
from xsim.dynamics.integration.velocity_stepping import step_metric
from xsim.dynamics.layout import column
from xsim.dynamics.linalg.dense import assembled, fit, times
from xsim.dynamics.linalg.implicit import implicit
from xsim.dynamics.linalg.newton_matrix import NewtonMatrix, StagedMatrix
from xsim.dynamics.linalg.sparse import Quadratic, Saddle, dense, masked, minus_jt_times, multiply, restricted, row_times, with_quadratic
from xsim.dynamics.linalg.unsymmetric import Unsymmetric
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import Frames, frames, has_lanes, inertial_force, inverse_dynamics, link_inertias, mass_matrix
from xsim.dynamics.tree.polynomials import slope
from xsim.dynamics.tree.system import System
from xsim.spatial import add, is_zero, mul, neg, stage, sub

UNSYMMETRIC = ("free", "full")
"""Values of `ImplicitTerms.velocity` whose matrix is not symmetric."""


class ImplicitTerms(NamedTuple):
    """The smooth forces that are evaluated at the end of the step, linearized; the others are evaluated at its start.

    * damping: time step of joint dampers, s. 0: explicit.
    * springs: square of the time step, for joint springs, s^2. 0: explicit.
    * elements: time step of dampers between bodies, bushings among them, s. 0: explicit.
    * element_springs: time step of springs between bodies, s. 0: explicit; else the same as elements.
    * velocity: the forces that are implicit in velocity, through their velocity derivatives:

        ""       none
        "fast"   damping, actuators, fluid, tendons; the symmetric part of the derivatives
        "free"   as "fast"; for the dofs of `free_body_dofs` all forces and the full derivatives
        "full"   all forces, Coriolis forces included, and the full derivatives
        "step"   as damping, springs and elements, of tendons and actuators, too, in the equation of soft constraints, see `step_metric`
    """

    damping: object = 0.0
    springs: object = 0.0
    elements: object = 0.0
    element_springs: object = 0.0
    velocity: str = ""


EXPLICIT = ImplicitTerms()


class EquationOfMotion(NamedTuple):
    """The state and inputs at which the equation of motion is solved.

    * q (nq), v (nv), tau (nv): configuration, velocity, applied generalized force, as components.
    * act, ctrl: activations and controls of the actuators.
    * implicit: the forces evaluated at the end of the step.
    * prescribed: per dof the prescribed acceleration, None for a free dof; () if no dof is prescribed.
    * row_acceleration: required second derivative of the first holonomic rows; 0 for the other rows.
    * soft: soft constraints, None without any.
    * solution: `Solved.x` of an earlier evaluation with the same values, which is not computed again. None: it is computed.
    * start (nv): an acceleration near that under the soft constraints, where its search starts, see `minimize`. None: without one.

    But for "step" MuJoCo solves soft constraints without the implicit terms and applies those to the resulting acceleration. The solution
    then has two accelerations: the one that satisfies the constraints and the one after the implicit terms.
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
    solution: list | None = None
    start: list | None = None


@stage
def _balance(force, tau, passive, extra):
    return [sub(add(f, e), add(t, p)) for f, t, p, e in zip(force, tau, passive, extra, strict=True)]


class Terms(NamedTuple):
    """Quantities that the residual and the matrix of the equation of motion share.

    * frame, inertia: link frames and link inertias.
    * damping: matrix of the joint dampers.
    * matrix_terms: (factor, Quadratic) pairs that are added to the mass matrix.
    * stiffness: matrix of the joint springs, None if they are explicit.
    * jacobian: holonomic rows; with soft constraints also one row per prescribed dof.
    * elements: (row, G, c) of the implicit force elements, see `implicit_element_rows`.
    * tendon, transmission: length and Jacobian of each tendon and of each actuator.
    * flexes: damping and stiffness of flexes (nv, nv, lanes or 1) that are implicit, None without.
    * staged_terms: as matrix_terms, for the implicit terms that are applied after the soft constraints.
    """

    frame: Frames
    inertia: list
    damping: Quadratic
    matrix_terms: list
    stiffness: Quadratic | None
    jacobian: list
    elements: list
    tendon: list
    transmission: list
    staged_terms: list
    flexes: tuple | None = None

    def flex_matrix(self, dt, like):
        """What flexes add to the mass matrix (nv, nv, *lanes). like: a component."""
        assert self.flexes is not None
        damping, stiffness = self.flexes
        return fit(dt * damping + dt * dt * stiffness, jnp.shape(like))


def evaluate(m: EquationOfMotion) -> Terms:
    """The terms of the equation of motion at its state."""
    system = m.system
    frame = frames(system, m.q)
    damping = slopes = damping_matrix(system, frame, m.v)
    if any(joint.damping_poly is not None for joint in system.topology.joints):
        slopes = damping_matrix(system, frame, m.v, slope)
    regularization = (system.option.regularization, Quadratic([1.0] * len(m.v), {}))
    matrix_terms = [(1.0, armature_matrix(system, frame)), regularization]
    staged = m.soft is not None and system.topology.switches.constraints_before_damping and m.implicit.velocity != "step"
    implicit_terms = [] if staged else matrix_terms
    stiffness, flexes, staged_terms = None, None, implicit_terms if staged else []
    inertia, tendon = link_inertias(system, frame), tendons(system, frame, m.q)
    transmission = transmissions(system, frame, m.q, tendon)
    elements = implicit_element_rows(system, frame, m.q, m.v, m.implicit)
    if m.implicit.velocity == "step":
        metric = step_metric(system, frame, inertia, m.q, m.v, m.act, m.ctrl, tendon, transmission, m.soft)
        slopes, stiffness, flexes = metric.damping, metric.stiffness, metric.flexes
        elements += [_element(row, k, d, m.implicit) for row, k, d in metric.couplings]
        staged_terms = [] if metric.gyroscopic is None else [(system.option.dt, metric.gyroscopic)]
    elif not is_zero(m.implicit.springs):
        stiffness = quadratic(system, frame, system.dof.stiffness, "spring")
    if not is_zero(m.implicit.damping):
        implicit_terms.append((m.implicit.damping, slopes))
    if stiffness is not None:
        implicit_terms.append((m.implicit.springs, stiffness))
    if m.implicit.velocity == "fast":
        implicit_terms.append((system.option.dt, damping_derivatives(system, frame, m.v, m.act, m.ctrl, tendon, transmission)))
    if m.implicit.velocity in UNSYMMETRIC:
        dofs = free_body_dofs(system) if m.implicit.velocity == "free" else None
        derivatives = velocity_derivatives(system, frame, inertia, m.q, m.v, m.act, m.ctrl, tendon, transmission, dofs)
        implicit_terms.append((system.option.dt, derivatives))
    jacobian = holonomic_rows(system, frame)
    if m.soft is not None:
        jacobian = [*jacobian, *([(i, 1.0)] for i, h in enumerate(m.prescribed) if h is not None)]
    return Terms(frame, inertia, damping, matrix_terms, stiffness, jacobian, elements, tendon, transmission, staged_terms, flexes)


def implicit_element_rows(system: System, frame: Frames, q, v, implicit: ImplicitTerms) -> list:
    """(row, G, c) of each force element that is implicit.

    Over a step of dt the element force decreases by c r + G a, with r the rate of the row at the start and a its acceleration. c = dt k and
    G = dt (dt k + d), with stiffness k (0 if springs are explicit) and damping d."""
    if is_zero(implicit.elements) or not system.topology.forces:
        return []
    return [_element(row, k, d, implicit) for row, k, d in element_rows(system, frame, q, v)]


def _element(row, k, d, implicit: ImplicitTerms) -> tuple:
    c = mul(implicit.element_springs, k)
    return row, mul(implicit.elements, add(c, d)), c


def with_implicit_elements(force: list, elements: list, v, a) -> list:
    """force (nv) plus the decrease of the element forces over the step, see `implicit_element_rows`. a None: without the term G a."""
    decreases = []
    for row, g, c in elements:
        decrease = mul(c, row_times(row, v))
        decreases.append(decrease if a is None else add(decrease, mul(g, row_times(row, a))))
    return minus_jt_times(force, [row for row, *_ in elements], [neg(f) for f in decreases])


def residual(m: EquationOfMotion, x, terms: Terms | None = None) -> list:
    """The residual of the equation of motion, zero at the solution x.

    x: the acceleration (nv), then the multipliers of the holonomic rows, then, if there are staged terms, the acceleration after them (nv).
    None: x is zero and soft constraints exert no force.

    The residual is inverse dynamics of the acceleration minus applied, passive and constraint forces, then the row equations. A prescribed
    dof has its acceleration from ``m.prescribed`` and no equation; with soft constraints it is a holonomic row.
    """
    t, n = terms or evaluate(m), len(m.v)
    end = n + len(t.jacobian)
    a, y, implicit_a = (None, [0.0] * len(t.jacobian), []) if x is None else (x[:n], x[n:end], x[end:])
    required = [neg(r) for r in holonomic_rates(m.system, t.frame, m.q, m.v)]
    for i, c in enumerate(m.row_acceleration):
        required[i] = add(required[i], c)
    if m.soft is not None:
        balance = _smooth_balance(m._replace(prescribed=()), t, a, y)
        required += [h for h in m.prescribed if h is not None]
        if a is not None:
            balance = [sub(b, f) for b, f in zip(balance, _constraint_force(m, t, a), strict=True)]
    else:
        balance = _smooth_balance(m, t, a, y)
        if m.prescribed:
            balance = [b if h is None else 0.0 for b, h in zip(balance, m.prescribed, strict=True)]
    row_errors = [sub(c, 0.0 if a is None else row_times(row, a)) for c, row in zip(required, t.jacobian, strict=True)]
    return [*balance, *row_errors, *(_staged_balance(m, t, a, implicit_a) if t.staged_terms and a is not None else [])]


def _smooth_balance(m: EquationOfMotion, t: Terms, a, y) -> list:
    """Inverse dynamics minus smooth forces and the constraint force J^T y."""
    n = len(m.v)
    if m.prescribed:
        free = [0.0] * n if a is None else a
        a = [x if h is None else h for x, h in zip(free, m.prescribed, strict=True)]
    force = with_armature_bias(m.system, t.frame, m.q, m.v, inverse_dynamics(m.system, t.frame, t.inertia, m.q, m.v, a))
    passive = with_contacts(m.system, t.frame, m.v, m.soft, passive_force(m.system, t.frame, m.q, m.v, t.damping, t.tendon))
    extra = [0.0] * n
    if t.stiffness is not None:
        # The spring force at the position that the current velocity would reach (DART); the matrix terms have the part of the acceleration.
        extra = [mul(m.implicit.damping, x) for x in t.stiffness.times(m.v)]
    if t.flexes is not None:
        extra = [add(x, y) for x, y in zip(extra, _flex_change(m, t, a), strict=True)]
    if a is not None:
        for factor, quad in t.matrix_terms:
            extra = [add(e, mul(factor, x)) for e, x in zip(extra, quad.times(a), strict=True)]
    tau = m.tau
    if m.system.topology.forces:
        tau = [add(a, b) for a, b in zip(tau, element_force(m.system, t.frame, m.q, m.v), strict=True)]
    if m.ctrl:
        actuator = actuator_forces(m.system, t.frame, m.v, m.act, m.ctrl, t.transmission)
        tau = [add(a, b) for a, b in zip(tau, actuator.tau, strict=True)]
    return with_implicit_elements(minus_jt_times(_balance(force, tau, passive, extra), t.jacobian, y), t.elements, m.v, a)


def _flex_change(m: EquationOfMotion, t: Terms, a) -> list:
    """The decrease (nv) of the force of flexes over the step, as in `with_implicit_elements`."""
    assert t.flexes is not None
    dt, velocity, acceleration = m.system.option.dt, column(list(m.v)), column(list(a or [0.0] * len(m.v)))
    damping, stiffness = t.flexes
    change = dt * _product(stiffness, velocity) + _product(dt * damping + dt * dt * stiffness, acceleration)
    return list(change if has_lanes(m.system, t.frame, [*m.v, *(a or ())]) else change[:, 0])


def _product(matrix, x):
    """A x (n, lanes), of A (n, n, lanes or 1) and x (n, lanes or 1)."""
    lanes = (max(matrix.shape[-1], x.shape[-1]),)
    return times(fit(matrix, lanes), fit(x, lanes))


def with_contacts(system: System, frame: Frames, v: list, soft: Constraints | None, passive: list) -> list:
    """The passive force (nv) with those of contacts: of adhesion, and of passive contacts."""
    if soft is None or "passive" in system.topology.disabled:
        return passive
    forces = [soft.adhesion()] if soft.has_adhesion else []
    forces += [] if soft.passive is None else [soft.passive.force]
    lanes = has_lanes(system, frame, v)
    for force in forces:
        passive = [add(p, x if lanes else x[0]) for p, x in zip(passive, force, strict=True)]
    return passive


def _constraint_force(m: EquationOfMotion, t: Terms, a: list) -> list:
    """The generalized force (nv components) of the soft constraints at an acceleration."""
    assert m.soft is not None
    stacked = jnp.stack(a)

    def force(soft: Constraints) -> list:
        soft = soft.fitted(stacked.shape[1:])
        return list(soft.jt_times(soft.force(soft.at(stacked))))

    if m.soft.candidates is None or not has_bounded_sums():
        return force(with_cones(m.system, t.frame, m.v, m.soft))
    contacts = contact_force(m.system, t.frame, m.v, m.soft, a)
    return contacts if m.soft.rows is None else [add(x, y) for x, y in zip(contacts, force(m.soft), strict=True)]


def _staged_balance(m: EquationOfMotion, t: Terms, a, implicit_a) -> list:
    """M (implicit_a - a) plus the staged terms at implicit_a: zero at the acceleration after the implicit terms."""
    change = [sub(x, y) for x, y in zip(implicit_a, a, strict=True)]
    out = inertial_force(m.system, t.frame, t.inertia, change)
    for matrix_terms, x in ((t.matrix_terms, change), (t.staged_terms, implicit_a)):
        for factor, quad in matrix_terms:
            out = [add(f, mul(factor, y)) for f, y in zip(out, quad.times(x), strict=True)]
    return out


def effective_mass(m: EquationOfMotion, terms: Terms | None = None) -> list:
    """Rows of the matrix that multiplies the acceleration: mass matrix, armature, implicit damping and springs, regularization.

    Row i has the entries of the ancestors of dof i and its diagonal, see `mass_matrix`. Prescribed dofs have rows of the unit matrix."""
    t = terms or evaluate(m)
    rows = with_quadratic(m.system, mass_matrix(m.system, t.frame, t.inertia), t.matrix_terms)
    if m.prescribed:
        rows = masked(m.system, rows, [1.0 if h is None else 0.0 for h in m.prescribed])
    return rows


def _unsymmetric(m: EquationOfMotion, terms: Terms, full) -> Unsymmetric:
    """The unsymmetric matrix that multiplies the (staged) acceleration when all velocity derivatives are implicit."""
    ancestors = m.system.tables.ancestors
    entries: dict = {}
    for i, row in enumerate(mass_matrix(m.system, terms.frame, terms.inertia)):
        entries |= {(i, j): x for j, x in zip((*ancestors[i], i), row, strict=True)}
        entries |= {(j, i): x for j, x in zip(ancestors[i], row[:-1], strict=True)}
    for factor, quad in (*terms.matrix_terms, *terms.staged_terms):
        for i, x in enumerate(quad.diagonal):
            entries[i, i] = add(entries[i, i], mul(factor, x))
        for index, x in quad.blocks.items():
            entries[index] = add(entries[index], mul(factor, x))
    return Unsymmetric(m.system, dict(zip(entries, full(list(entries.values())), strict=True)))


class _DenseEquation(NamedTuple):
    """An equation of motion with soft constraints or implicit flexes, with dense matrices.

    mass_rows: see `effective_mass`. mass (nv, nv, lanes): with force elements and flexes. hard (rows, nv, lanes): holonomic rows, None
    without any."""

    mass_rows: list
    mass: jax.Array
    hard: jax.Array | None


def _dense_equation(m: EquationOfMotion, terms: Terms, full) -> _DenseEquation:
    n = len(m.v)
    mass_rows = [full(row) for row in effective_mass(m._replace(prescribed=()), terms)]
    mass = dense(m.system, mass_rows)
    like = mass[0, 0]
    element_rows = _dense([row for row, *_ in terms.elements], n, like) if terms.elements else ()
    for (_, g, _), row in zip(terms.elements, element_rows, strict=True):
        mass = mass + mul(g, row[:, None] * row[None])
    if terms.flexes is not None:
        mass = mass + terms.flex_matrix(m.system.option.dt, like)
    return _DenseEquation(mass_rows, mass, _dense(terms.jacobian, n, like) if terms.jacobian else None)


def _solve_dense(m: EquationOfMotion, terms: Terms, full, with_matrix: bool) -> tuple:
    """Matrix, solution and flags for `implicit`, of an equation with soft constraints or implicit flexes."""
    mass_rows, mass, hard = _dense_equation(m, terms, full)
    right_side = jnp.stack(full([neg(r) for r in residual(m, None, terms)]))
    n = len(m.v)
    force, required = right_side[:n], -right_side[n:]
    if m.soft is None:
        matrix = NewtonMatrix(mass, hard)
        a, flags = matrix.solve([*force], [*right_side[n:]]), [matrix.bordered.factor.pivot, 1.0]
    else:
        lanes, free = right_side.shape[1:], free_acceleration(mass, force, hard, required)
        start = None if m.start is None else jnp.stack(full(m.start))
        soft = _with_active_cones(m, terms, lanes)
        minimum = minimize(mass, force, free, soft, hard, required, start)
        newton_matrix = soft.newton_matrix(mass, soft.at(minimum.a)) if with_matrix else None
        matrix = NewtonMatrix(newton_matrix, hard, soft.fixed_zeros) if with_matrix else None
        a, flags = [*minimum.a, *(() if hard is None else minimum.y)], [free.pivot, minimum.converged]
    return *_with_staged_terms(m, terms, full, matrix, mass_rows, a), flags


def _with_active_cones(m: EquationOfMotion, terms: Terms, lanes: tuple[int, ...]) -> Constraints:
    """The soft constraints with arrays of the shape (..., *lanes), and if they have candidates, with the cones of the active contacts."""
    soft = m.soft
    assert soft is not None
    if soft.candidates is not None:
        soft = soft._replace(cones=active_cones(m.system, terms.frame, m.v, soft))
    return soft.fitted(lanes)


def _dense_matrix(m: EquationOfMotion, terms: Terms, x, full):
    """The matrix of `_solve_dense` at a solution x."""
    mass_rows, matrix, hard = _dense_equation(m, terms, full)
    fixed_zeros = True
    if m.soft is not None:
        soft = _with_active_cones(m, terms, matrix.shape[2:])
        matrix = soft.newton_matrix(matrix, soft.at(jnp.stack(x[: len(m.v)])))
        fixed_zeros = soft.fixed_zeros
    return _with_staged_terms(m, terms, full, NewtonMatrix(matrix, hard, fixed_zeros), mass_rows, x)[0]


def _with_staged_terms(m: EquationOfMotion, terms: Terms, full, first, mass_rows: list, x: list) -> tuple:
    """Matrix and solution of an equation with its staged terms, from those of the equation without them. mass_rows: `effective_mass`.
    first: None where the matrix is not needed."""
    if not terms.staged_terms:
        return first, x
    if m.implicit.velocity in (*UNSYMMETRIC, "step"):
        second = _unsymmetric(m, terms, full)
    else:
        second = [full(row) for row in with_quadratic(m.system, mass_rows, terms.staged_terms)]
    staged = StagedMatrix(m.system, first, mass_rows, second)
    return staged, [*x, *staged.solve_second(multiply(m.system, mass_rows, x[: len(m.v)]))]


def _dense(rows: list, n: int, like):
    """Rows [(dof, coefficient), ...] as a matrix (rows, n, lanes)."""
    return assembled({(i, dof): x for i, row in enumerate(rows) for dof, x in row}, (len(rows), n), like)


def required_force(m: EquationOfMotion, a) -> list:
    """The generalized force (nv) of all constraints at an acceleration: what its implicit terms and inverse dynamics require beyond the
    smooth forces."""
    terms = evaluate(m)
    return _smooth_balance(m._replace(prescribed=()), terms, a, [0.0] * len(terms.jacobian))


class Solved(NamedTuple):
    """The solution of an equation of motion.

    * a: the acceleration (nv).
    * multipliers: Lagrange multipliers of the holonomic rows.
    * pivot: 0 where the mass matrix is singular.
    * converged: 0 where the solver of the soft constraints did not converge.
    * overflow: 1 where more contacts are active than the contact buffer has entries.
    * explicit_a: the acceleration at which the forces of the soft constraints are evaluated.
    * soft: the soft constraints, None without any.
    * x: the solution of the residual; with `Topology.noslip` that of the first equation, then that of the second one.
    """

    a: list
    multipliers: list
    pivot: object
    converged: object
    overflow: object = 0.0
    explicit_a: list | None = None
    soft: Constraints | None = None
    x: list = []


def acceleration(m: EquationOfMotion) -> Solved:
    """The acceleration at which the residual is zero. With `Topology.noslip` friction is solved again without slip."""
    if m.soft is None or not m.system.topology.noslip:
        return _solved(m)
    sliding, sticking = (None, None) if m.solution is None else (m.solution[: len(m.solution) // 2], m.solution[len(m.solution) // 2 :])
    first = _solved(m._replace(solution=sliding))
    soft, start = without_slip(m.soft, jnp.stack(first.explicit_a)), jax.lax.stop_gradient(first.explicit_a)
    noslip = _solved(m._replace(solution=sticking, soft=soft, start=start))
    return noslip._replace(converged=jnp.minimum(first.converged, noslip.converged), x=[*first.x, *noslip.x])


def _is_dense(m: EquationOfMotion, terms: Terms) -> bool:
    return m.soft is not None or terms.flexes is not None


def _sparse_matrix(m: EquationOfMotion, terms: Terms, full) -> tuple:
    """Rows of the mass matrix, the matrix, and a component that is 0 where it is singular, of an equation without soft constraints and
    implicit flexes, and without its staged terms."""
    if m.implicit.velocity in UNSYMMETRIC:
        return [], _unsymmetric(m, terms, full), 1.0
    free = [1.0 if h is None else 0.0 for h in m.prescribed] or [1.0] * len(m.v)
    element_rows = restricted([row for row, *_ in terms.elements], free)
    elements = [(row, g) for row, (_, g, _) in zip(element_rows, terms.elements, strict=True)]
    mass_rows = [full(row) for row in effective_mass(m, terms)]
    saddle = Saddle(m.system, mass_rows, restricted(terms.jacobian, free), elements)
    return mass_rows, saddle, saddle.factor.pivot


def _matrix(m: EquationOfMotion, terms: Terms, x, full):
    """The matrix of the equation at a solution x."""
    if _is_dense(m, terms):
        return _dense_matrix(m, terms, x, full)
    mass_rows, matrix, _ = _sparse_matrix(m, terms, full)
    return _with_staged_terms(m, terms, full, matrix, mass_rows, x)[0]


def _primal(m: EquationOfMotion, terms: Terms, full, with_matrix: bool) -> tuple:
    """Matrix, solution and flags for `implicit`."""
    if m.solution is not None:
        return None, m.solution, [1.0, 1.0]
    if _is_dense(m, terms):
        return _solve_dense(m, terms, full, with_matrix)
    mass_rows, matrix, pivot = _sparse_matrix(m, terms, full)
    right_side = full([neg(r) for r in residual(m, None, terms)])
    x = matrix.solve(right_side[: len(m.v)], right_side[len(m.v) :])
    return *_with_staged_terms(m, terms, full, matrix, mass_rows, x), [pivot, 1.0]


def _solved(m: EquationOfMotion) -> Solved:
    if m.implicit.velocity in UNSYMMETRIC and (m.prescribed or has_holonomic_rows(m.system.topology)):
        raise ValueError("the integrator implicit is for models without holonomic constraints and prescribed motion; choose implicitfast")
    terms = evaluate(m)
    n, rows = len(m.v), len(terms.jacobian)
    x, (pivot, converged) = implicit(
        (m, terms),
        lambda inputs, *rest: _primal(*inputs, *rest),
        lambda inputs, x: residual(inputs[0], x, inputs[1]),
        None if m.solution is None else lambda inputs, *rest: _matrix(*inputs, *rest),
    )
    overflow = 0.0 if m.soft is None else m.soft.overflow
    a, multipliers, staged_a = x[:n], x[n : n + rows], x[n + rows :]
    if m.soft is None and m.prescribed:
        a = [y if h is None else h for y, h in zip(a, m.prescribed, strict=True)]
    return Solved(staged_a or a, multipliers, pivot, converged, overflow, a, m.soft, x)
