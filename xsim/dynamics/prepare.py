"""Prepares a model for the dynamics: its components, and the quantities that depend on the initial configuration."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.laws import needs_length_range
from xsim.dynamics.actuation.reflected import with_reflected_armature, with_reflected_damping
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.invweight import mobility
from xsim.dynamics.constraints.narrowphase import contact_parameters, moved_geoms
from xsim.dynamics.constraints.soft_rows import equality_references
from xsim.dynamics.constraints.soft_set import has_soft
from xsim.dynamics.flex.elasticity import flex_material
from xsim.dynamics.forces.armature import mass_with_armature
from xsim.dynamics.forces.passive_plugins import prepared_forces
from xsim.dynamics.layout import Lanes
from xsim.dynamics.linalg.dense import Cholesky
from xsim.dynamics.linalg.sparse import Factor, factorize, solve
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import NO_FRAMES, Frames, frames, link_inertias
from xsim.dynamics.tree.system import System, components
from xsim.model.model import Model
from xsim.spatial import add, mul, stage, total


def prepare(model: Model, lanes: Lanes, mocap=None) -> System:
    """The system of a model, with all derived quantities. Evaluated in each call of a public function, outside the loop of a rollout.

    mocap: poses (7 components) of the mocap bodies, None for those of the model. What is derived from the start, such as the references of
    equalities and the rest lengths of tendons, has those of the model in both cases."""
    system = _derived(components(model, lanes))
    if not mocap:  # None, or of a model without mocap bodies
        return system
    moved = components(model, lanes, mocap)
    system = system._replace(link=moved.link, body=moved.body, constraint=moved.constraint, force_frames=moved.force_frames)
    parameters = system.derived.contact_parameters
    return system if parameters is None else system.with_derived(contact_parameters=moved_geoms(parameters, system))


def _derived(system: System) -> System:
    """The system with the quantities that need kinematics."""
    system = with_reflected_armature(_with_lanes(_with_tendon_rest(system)))
    top = system.topology
    if top.flexes:
        system = system.with_derived(flex_material=flex_material(system))
    if top.passive:
        system = system.with_derived(passive=prepared_forces(system))
    muscles = [i for i, a in enumerate(top.actuators) if needs_length_range(a.gain, a.bias)]
    spring_dampers = any(j.spring_damper is not None for j in top.joints)
    damp_ratios = any(a.damp_ratio is not None for a in top.actuators)
    has_rows = has_soft(top) or has_contacts(top)
    if not (muscles or spring_dampers or damp_ratios or has_rows):
        return _without_disabled(with_reflected_damping(system))
    start = [float(x) for x in top.initial[0]]
    frame = frames(system, start)
    rows = mass_with_armature(system, frame, link_inertias(system, frame))
    factor = factorize(system, rows) if spring_dampers or muscles or damp_ratios else None
    if spring_dampers:
        system = _with_springs(system, factor)
    system = _without_disabled(with_reflected_damping(system))
    if muscles or damp_ratios:
        system = _with_actuators(system, frame, start, rows, factor, muscles)
    if has_rows:
        tendon = tendons(system, frame, start)
        system = system.with_derived(mobility=mobility(system, frame, rows, tendon), references=equality_references(system, frame))
    if has_contacts(top):
        system = system.with_derived(contact_parameters=contact_parameters(system))
    return system


def _with_lanes(system: System) -> System:
    """The system with a time step that has a lane per environment, if only arrays have lanes. Its components then determine the lanes."""
    arrays = jax.tree.leaves((system.surface, system.pair, system.geom_arrays, system.flex))
    width = max((x.shape[-1] for x in arrays), default=1)
    if width == 1:
        return system
    dt = jnp.broadcast_to(jnp.asarray(system.option.dt, arrays[0].dtype), (width,))
    return system._replace(option=dataclasses.replace(system.option, dt=dt))


def _with_tendon_rest(system: System) -> System:
    """The system with the rest lengths of the tendons; default is the length in the reference configuration of the joint springs."""
    top = system.topology
    if all(t.spring is not None for t in top.tendons):
        return system.with_derived(tendon_rest=tuple(None for _ in top.tendons))
    q = list(system.joint.spring_ref)
    frame = frames(system, q) if any(t.kind == "spatial" for t in top.tendons) else NO_FRAMES
    return system.with_derived(tendon_rest=tuple((t.length, t.length) for t in tendons(system, frame, q)))


@stage
def _spring_damper(numbers, mobilities) -> tuple:
    """Stiffness k = I / (T Z)^2 and damping b = 2 I / T of a joint with the time constant T and the damping ratio Z.

    numbers: (T, Z). mobilities: diagonal of M^-1 for its dofs; I is the inverse of their mean."""
    time_constant, ratio = numbers
    inertia = len(mobilities) / total(mobilities)
    return inertia / (time_constant * ratio) ** 2, 2.0 * inertia / time_constant


def _with_springs(system: System, factor: Factor | Cholesky) -> System:
    """The system with stiffness and damping from the time constants and damping ratios of joints."""
    stiffness, damping = list(system.dof.stiffness), list(system.dof.damping)
    numbers = system.joint.spring_damper
    for joint in system.topology.joints:
        if joint.spring_damper is not None:
            dofs = range(joint.v[0], sum(joint.v))
            mobilities = [_inverse_arms(system, factor, [(dof, 1.0)])[dof] for dof in dofs]
            k, b = _spring_damper(numbers[joint.spring_damper], mobilities)
            for dof in dofs:
                stiffness[dof], damping[dof] = k, b
    return system._replace(dof=dataclasses.replace(system.dof, stiffness=tuple(stiffness), damping=tuple(damping)))


def _without_disabled(system: System) -> System:
    """The system without the springs or dampers of joints and tendons that a flag disables."""
    for flag, name in (("spring", "stiffness"), ("damper", "damping")):
        if flag in system.topology.disabled:
            linear = [{name: (0.0,) * len(getattr(group, name))} for group in (system.dof, system.tendon)]
            higher = [{f"{name}_poly": ((0.0, 0.0),) * len(getattr(group, f"{name}_poly"))} for group in (system.joint, system.tendon)]
            system = system._replace(
                dof=dataclasses.replace(system.dof, **linear[0]),
                joint=system.joint._replace(**higher[0]),
                tendon=dataclasses.replace(system.tendon, **linear[1], **higher[1]),
            )
    return system


@stage
def _servo_damping(ratio, kp, masses, arms):
    """Velocity gain 2 z sqrt(kp m) of a position servo with damping ratio z. m: reflected inertia, a sum over the dofs with a moment arm.

    masses: diagonal of M. arms: moment arms."""
    nonzero = [jnp.abs(a) > 1e-15 for a in arms]
    mass = total([jnp.where(acts, m / jnp.where(acts, a * a, 1.0), 0.0) for acts, m, a in zip(nonzero, masses, arms, strict=True)])
    return 2.0 * ratio * _safe_sqrt(kp * mass)


def _safe_sqrt(x):
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


@stage
def _norm(x):
    return _safe_sqrt(total([mul(a, a) for a in x]))


@stage
def _dot(a, b):
    return total([mul(x, y) for x, y in zip(a, b, strict=True)])


def _inverse_arms(system: System, factor: Factor | Cholesky, row: list) -> list:
    """M^-1 J^T of a Jacobian row."""
    column = [0.0 * factor.pivot] * len(system.tables.ancestors)
    for dof, x in row:
        column[dof] = add(column[dof], x)
    return solve(system, factor, column)


def _mean_inertia(system: System, factor: Factor | Cholesky, rows: list):
    """The inverse of the mean of the diagonal of J M^-1 J^T."""
    diagonal = []
    for row in rows:
        inverse_arms = _inverse_arms(system, factor, row)
        diagonal.append(_dot([x for _, x in row], [inverse_arms[dof] for dof, _ in row]))
    return _inverse(total(diagonal), len(rows))


@stage
def _inverse(mobility, factor=1.0):
    """factor / mobility; 0.0 for what cannot move: MuJoCo gives a servo of that no damping."""
    moves = mobility > 1e-15
    return jnp.where(moves, factor / jnp.where(moves, mobility, 1.0), 0.0)


def _with_actuators(system: System, frame: Frames, start, rows, factor: Factor | Cholesky, muscles) -> System:
    """The system with the acceleration norms under unit force of muscles, and the velocity gains of servos with a damping ratio."""
    top, numbers = system.topology, system.actuator
    acc0: list = [0.0] * len(top.actuators)
    bias = list(numbers.bias)
    all_transmissions = transmissions(system, frame, start, tendons(system, frame, start))
    for i, info in enumerate(top.actuators):
        if i not in muscles and info.damp_ratio is None:
            continue
        if len(info.outputs) > 1:
            mass = _mean_inertia(system, factor, [all_transmissions[k].row for k in info.outputs])
            kv = _servo_damping(numbers.damp_ratio[info.damp_ratio], -bias[i][1], [mass], [1.0 + 0.0 * mass])
            bias[i] = (bias[i][0], bias[i][1], -kv, *bias[i][3:])
            continue
        transmission = all_transmissions[info.output]
        inverse_arms = None  # M^-1 J^T
        if i in muscles or top.switches.servo_inertia_at_target:
            inverse_arms = _inverse_arms(system, factor, transmission.row)
            acc0[i] = _norm(inverse_arms)
        if info.damp_ratio is not None:
            arms = [x for _, x in transmission.row]
            if top.switches.servo_inertia_at_target:
                mass = [_inverse(_dot(arms, [inverse_arms[dof] for dof, _ in transmission.row]))]
                arms = [1.0 + 0.0 * mass[0]]
            else:
                mass = [rows[dof][-1] for dof, _ in transmission.row]
            kv = _servo_damping(numbers.damp_ratio[info.damp_ratio], -bias[i][1], mass, arms)
            bias[i] = (bias[i][0], bias[i][1], -kv, *bias[i][3:])
    return system.with_derived(acc0=tuple(acc0))._replace(actuator=dataclasses.replace(numbers, bias=tuple(bias)))
