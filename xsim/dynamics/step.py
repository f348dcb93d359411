"""The public functions of the dynamics: what a user calls on a Model and a State.

Every function takes q: (*batch, nq), v and tau: (*batch, nv) and model leaves that are shared or ``(*batch, *shape)``; results
carry the common batch. Each compiles once per shape when it is called directly, and may be wrapped in jit, grad, jvp, vmap, scan,
checkpoint.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import activation_rates, effort
from xsim.dynamics.actuation.commands import PRESCRIBED, drive, split_controls
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.constraints.contacts import contact_forces, find_contacts, has_contacts
from xsim.dynamics.constraints.holonomic import has_rows
from xsim.dynamics.constraints.soft_set import Constraints, constraints, has_soft
from xsim.dynamics.forces.elements import element_energy, element_force
from xsim.dynamics.forces.passive import displacements, passive_force, quadratic
from xsim.dynamics.forces.time_functions import at_time
from xsim.dynamics.integration.equation import EquationOfMotion, Solved, acceleration
from xsim.dynamics.integration.impulses import rows as impulse_rows
from xsim.dynamics.integration.integrators import Health, Moving, advance, implicit_force, in_stages, step_velocity
from xsim.dynamics.layout import Lanes, batch_shape, make_lanes
from xsim.dynamics.linalg.sparse import loaded_mass, multiply
from xsim.dynamics.prepare import prepare
from xsim.dynamics.sensors.cameras import cameras, lights
from xsim.dynamics.sensors.sensing import SensorContext, sense
from xsim.dynamics.sharding import Inputs, chunked, common_batch
from xsim.dynamics.tendons.tendons import tendon_energy, tendons
from xsim.dynamics.tree import kinematics as kin
from xsim.dynamics.tree.frames import geom_end, site_end
from xsim.dynamics.tree.manifold import difference as _difference
from xsim.dynamics.tree.manifold import integrate as _integrate
from xsim.dynamics.tree.system import System, gravity_acceleration
from xsim.model.model import Camera, Data, Flags, Light, Model, State
from xsim.spatial import cross, one_region, separate_kernels, stage, vsub

__all__ = [
    "bias", "body_inertia", "camera_poses", "difference", "energy", "forward", "forward_dynamics", "geom_poses", "integrate",
    "inverse_dynamics", "jacobian", "kinematics", "light_poses", "mass_matrix", "passive", "rollout", "sensors", "site_poses",
    "smooth_acceleration", "step",
]  # fmt: skip


SMALL = 2
"""Up to so many velocities a step without devices is compiled as one fusion region (docs/core.md)."""


def _small(model: Model) -> bool:
    top = model.topology
    plain = all(a.transmission == "joint" and "muscle" not in (a.gain, a.bias, a.dynamics) for a in top.actuators)
    return model.nv <= SMALL and plain and not (top.tendons or top.sensors or top.size("nmedium"))


def compiled(fn, **options):
    """Compile a public function, its first argument the model."""

    @functools.wraps(fn)
    def traced(model, *args, **kwargs):
        with one_region(_small(model)):
            return fn(model, *args, **kwargs)

    return jax.jit(traced, **options)


def check_width(name: str, x, width: int) -> None:
    if x.ndim == 0 or x.shape[-1] != width:
        raise ValueError(f"{name} must have shape (*batch, {width}), found {x.shape}")


class Call:
    """One call of a public function: lanes, prepared system and the arguments as components."""

    def __init__(self, model: Model, q, v=None, tau=None, extra=(), ctrl=None, time=None, act=None, mocap=None):
        self.model = model
        dtype = jnp.asarray(q).dtype
        checked = []
        given = (("q", q, model.nq), ("v", v, model.nv), ("tau", tau, model.nv), ("ctrl", ctrl, model.nu), ("act", act, model.na))
        for name, x, width in (*given, *(("argument", e, model.nv) for e in extra)):
            x = None if x is None else jnp.asarray(x, dtype)
            if x is not None:
                check_width(name, x, width)
            checked.append(x)
        clock = [] if time is None else [(jnp.asarray(time, dtype), 0)]
        held = [] if mocap is None or not model.topology.size("nmocap") else [(jnp.asarray(mocap, dtype), 2)]
        self.lanes: Lanes = make_lanes(batch_shape(model, *((x, 1) for x in checked), *clock, *held))
        parts: list[Any] = [None if x is None else list(self.lanes.split(x, 1)) for x in checked]
        self.q, self.v, self.tau, self.ctrl, self.act = parts[:5]
        self.q = separate_kernels(self.q)
        self.extra = parts[5:]
        if self.tau is None:
            self.tau = [0.0] * model.nv
        if self.ctrl is None:
            self.ctrl = [0.0] * model.nu
        if self.act is None:
            self.act = [0.0] * model.na
        now = self.lanes.split(clock[0][0], 0) if clock else jnp.zeros((), dtype)
        placed = self.lanes.split(held[0][0], 2) if held else None
        self.system: System = at_time(prepare(model, self.lanes, placed), now, split_controls(model.topology, self.ctrl).functions)

    def join(self, x, core: int = 1):
        out = self.lanes.join(x, core)
        return out.astype(self.dtype) if out.dtype != self.dtype else out

    def rows(self, x, *inner: int):
        """Array (*batch, n, *inner) of the components of n things, also of none."""
        return self.join(x, 1 + len(inner)) if x else jnp.zeros((*self.lanes.batch, 0, *inner), self.dtype)

    @property
    def dtype(self):
        return self.q[0].dtype if self.q else jnp.result_type(float)


@compiled
def kinematics(model: Model, q):
    """World poses of all bodies: pos (*batch, nbody, 3) in m, quat (*batch, nbody, 4) as w x y z, body to world."""
    c = Call(model, q)
    poses = kin.body_poses(c.system, kin.frames(c.system, c.q))
    return c.rows([p.pos for p in poses], 3), c.rows([p.quat for p in poses], 4)


@functools.partial(compiled, static_argnames="body")
def jacobian(model: Model, q, body, point=(0.0, 0.0, 0.0)):
    """Jacobians of a point of a body: linear and angular, each (*batch, 3, nv), world axes.

    body: name or index. point: (3,) in the body frame, m. ``linear @ v`` is the point's velocity, ``angular @ v`` the body's
    angular velocity. Raises KeyError for an unknown name.
    """
    index = body_index(model, body)
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    link = model.topology.bodies[index].link
    zero = [[0.0] * model.nv for _ in range(3)]
    if link < 0:
        return c.join(zero, 2), c.join(zero, 2)
    pose = c.system.offset[index]
    at = kin.body_point(frame, link, pose, tuple(jnp.asarray(x, c.dtype) for x in point))
    moving = _ancestors(c.system, link)
    lin, ang = [list(r) for r in zero], [list(r) for r in zero]
    for d in moving:
        s = frame.subspace[d]
        velocity = kin.point_velocity(s, at)
        for k in range(3):
            lin[k][d], ang[k][d] = velocity[k], s.ang[k]
    return c.join(lin, 2), c.join(ang, 2)


def _ancestors(system: System, link: int) -> list[int]:
    out: list[int] = []
    while link >= 0:
        info = system.topology.links[link]
        out.extend(range(info.v, info.v + info.nv))
        link = info.parent
    return sorted(out)


def body_index(model: Model, body) -> int:
    """Index of a body given by name or index. Raises KeyError for an unknown name."""
    if isinstance(body, str):
        if body not in model.body_names:
            raise KeyError(f"no body {body!r}; bodies: {', '.join(model.body_names)}")
        return model.body_names.index(body)
    return int(body)


@compiled
def mass_matrix(model: Model, q):
    """Joint-space inertia M(q), armature included: (*batch, nv, nv), kg, kg m or kg m^2."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    rows = loaded_mass(c.system, frame, kin.link_inertias(c.system, frame))
    dense = [[0.0] * model.nv for _ in range(model.nv)]
    for i, row in enumerate(rows):
        for j, x in zip((*c.system.tables.before[i], i), row, strict=True):
            dense[i][j] = dense[j][i] = x
    return c.join(dense, 2)


@compiled
def inverse_dynamics(model: Model, q, v, a):
    """Generalized force that produces acceleration a against inertia (armature included) and gravity: (*batch, nv)."""
    c = Call(model, q, v, extra=(a,))
    frame = kin.frames(c.system, c.q)
    force = kin.inverse_dynamics(c.system, frame, kin.link_inertias(c.system, frame), c.q, c.v, c.extra[0])
    armature = quadratic(c.system, frame, c.system.armature, "armature").times(c.extra[0])
    return c.join([f + x for f, x in zip(force, armature, strict=True)])


@compiled
def bias(model: Model, q, v):
    """Velocity-dependent and gravity force: what must be applied for zero acceleration, (*batch, nv)."""
    c = Call(model, q, v)
    frame = kin.frames(c.system, c.q)
    return c.join(kin.inverse_dynamics(c.system, frame, kin.link_inertias(c.system, frame), c.q, c.v))


@compiled
def passive(model: Model, q, v):
    """Force of joint springs and dampers, (*batch, nv)."""
    c = Call(model, q, v)
    frame = kin.frames(c.system, c.q)
    damping = quadratic(c.system, frame, c.system.damping, "damper")
    return c.join(passive_force(c.system, frame, c.q, c.v, damping, tendons(c.system, frame, c.q)))


@compiled
def smooth_acceleration(model: Model, q, v, tau=None, ctrl=None, time=None, act=None):
    """Acceleration from tau, commands, springs, dampers, gravity and velocity terms: (*batch, nv).

    ctrl: (*batch, nu), see `Model.ctrl_names`; act: (*batch, na) activations; None: zero.
    """
    c = Call(model, q, v, tau, ctrl=ctrl, time=time, act=act)
    return c.join(smooth(c).a)


def smooth(c: Call, soft: Constraints | None = None) -> Solved:
    """The solution of the equation of motion under smooth forces and soft constraints."""
    driven = drive(c.system, c.v, c.tau, c.ctrl)
    inputs = tuple(c.act), tuple(split_controls(c.system.topology, c.ctrl).actuators)
    return acceleration(EquationOfMotion(c.system, c.q, c.v, driven.tau, *inputs, hold=driven.hold, soft=soft))


@compiled
def forward_dynamics(model: Model, q, v, tau=None, ctrl=None, time=None, act=None):
    """Acceleration under everything that acts on the model: (*batch, nv).

    Where dry friction, limits or servos act, which are impulses on the velocity, it is the mean over one step of the model's rule.
    """
    c = Call(model, q, v, tau, ctrl=ctrl, time=time, act=act)
    return c.join(total_acceleration(c, constraints(c.system, c.q, c.v)).a)


def total_acceleration(c: Call, soft: Constraints | None) -> Solved:
    """The acceleration under everything that acts; soft: the soft constraints."""
    if not impulse_rows(c.system.topology):
        return smooth(c, soft)
    zero = jnp.zeros((), c.dtype)
    change = step_velocity(c.system, Moving(c.q, c.v, c.act, zero, Health(zero, zero, zero, zero)), c.tau, c.ctrl)
    a = [(new - old) / c.system.dt for new, old in zip(change.v, c.v, strict=True)]
    return Solved(a, [], change.pivot, change.solved, change.overflow, change.early)


@compiled
def energy(model: Model, q, v):
    """Kinetic energy (armature included) and potential energy (gravity, springs of joints and tendons, bushings), J: two arrays (*batch,).

    The potential of gravity is zero at the world's origin. Springs with the law k (ref - q) store k/2 (ref - q)^2; a ball spring
    with three different stiffnesses has no exact potential and counts with k/2 times the squared rotation vector; bushings alike.
    Forces that depend on time or on rates (motors, loads, maps) have none.
    """
    c = Call(model, q, v)
    system = c.system
    frame = kin.frames(system, c.q)
    inertia = kin.link_inertias(system, frame)
    rows = loaded_mass(system, frame, inertia)
    kinetic = sum((0.5 * a * b for a, b in zip(multiply(system, rows, c.v), c.v, strict=True)), 0.0)
    lift = gravity_acceleration(system)
    potential = 0.0
    for i, own in enumerate(inertia):
        if own is not kin.NO_INERTIA:
            reference = frame.pose[system.tables.root[i]].pos
            weighted = kin.gravity_inertia(system, frame, i, own)
            for k in range(3):
                potential = potential + lift[k] * (weighted.first[k] + weighted.mass * reference[k])
    for i, x in enumerate(displacements(system, c.q)):
        potential = potential + 0.5 * system.stiffness[i] * x * x
    for stored in (*element_energy(system, frame, c.q), *tendon_energy(system, tendons(system, frame, c.q))):
        potential = potential + stored
    return c.join(kinetic, 0), c.join(potential, 0)


@compiled
def body_inertia(model: Model):
    """Mass (*batch, nbody), centre of mass (*batch, nbody, 3) and inertia about it (*batch, nbody, 6: xx yy zz xy xz yz), body axes."""
    from xsim.dynamics.tree.system import body_inertias

    lanes = make_lanes(batch_shape(model))
    dtype = model.option.dt.dtype
    inertias = body_inertias(model, lanes)
    mass = lanes.join([i.mass for i in inertias], 1).astype(dtype)
    first = lanes.join([i.first for i in inertias], 2).astype(dtype)
    second = lanes.join([i.second for i in inertias], 2).astype(dtype)
    com = first / jnp.where(mass > 0, mass, 1.0)[..., None]
    x, y, z = (com[..., k] for k in range(3))
    shift = jnp.stack([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -x * z, -y * z], -1)
    return mass, com, second - mass[..., None] * shift


@compiled
def integrate(model: Model, q, dv):
    """q moved by the velocity dv for unit time, on the configuration manifold: (*batch, nq)."""
    c = Call(model, q, dv)
    return c.join(_integrate(c.system, c.q, c.v, 1.0))


@compiled
def difference(model: Model, q0, q1):
    """The velocity (*batch, nv) that moves q0 to q1 in unit time: the inverse of `integrate`."""
    q0, q1 = jnp.asarray(q0), jnp.asarray(q1)
    batch = jnp.broadcast_shapes(q0.shape[:-1], q1.shape[:-1])
    c = Call(model, jnp.broadcast_to(q0, (*batch, model.nq)))
    return c.join(_difference(c.system, c.q, list(c.lanes.split(jnp.broadcast_to(q1, (*c.lanes.batch, model.nq)), 1))))


@compiled
def forward(model: Model, state: State, ctrl=None, tau=None) -> Data:
    """Everything that can be computed at a state. tau: generalized force (*batch, nv), ctrl: commands (*batch, nu).

    See `Data` for what comes back; its acceleration is that of `forward_dynamics`."""
    c = Call(model, state.q, state.v, tau, ctrl=ctrl, time=state.time, act=state.act, mocap=state.mocap)
    system = c.system
    frame = kin.frames(system, c.q)
    found = find_contacts(system, frame) if has_contacts(system.topology) else []
    soft = constraints(system, c.q, c.v, found)
    solved = total_acceleration(c, soft)
    a, soft = solved.a, solved.soft or soft
    own, velocity = kin.velocities(system, frame, c.v)
    accelerated = kin.accelerations(system, frame, c.q, c.v, a, own, velocity)
    poses = kin.body_poses(system, frame)
    lin, ang = kin.body_velocities(system, frame, velocity)
    lin_acc, ang_acc = kin.body_accelerations(system, frame, velocity, accelerated)
    damping = quadratic(system, frame, system.damping, "damper")
    finite = jnp.isfinite(c.join(a)).all(-1)
    flags = jnp.where(finite, 0, Flags.DIVERGED) | jnp.where(c.join(solved.pivot, 0) == 0, Flags.SINGULAR, 0)
    flags = flags | jnp.where(c.join(solved.found, 0) == 0, Flags.UNSOLVED, 0)
    flags = flags | jnp.where(c.join(solved.overflow, 0) == 1, Flags.CONTACT_OVERFLOW, 0)
    inertia = kin.link_inertias(system, frame)
    bias = kin.inverse_dynamics(system, frame, inertia, c.q, c.v)
    tendon = tendons(system, frame, c.q)
    passive = passive_force(system, frame, c.q, c.v, damping, tendon)
    tau = drive(system, c.v, c.tau, c.ctrl).tau
    zero = [0.0] * model.nv
    controls = split_controls(system.topology, c.ctrl).actuators
    actuator = None
    if system.topology.actuators:
        actuator = effort(system, frame, c.v, c.act, controls, transmissions(system, frame, c.q, tendon))
    driven = zero if actuator is None else actuator.tau
    element = element_force(system, frame, c.q, c.v) if system.topology.forces else zero
    split = c.lanes.split
    views, magnetic = _views(model, c.lanes), split(model.medium.magnetic, 2)
    time = split(jnp.asarray(state.time, c.dtype), 0)
    context = SensorContext(
        system, frame, c.q, c.v, solved.early, time, velocity, accelerated, actuator, views[0], magnetic[0] if magnetic else None, found,
        contact_forces(soft.cones, solved.early) if found and soft is not None else (), None if soft is None else soft.rows,
    )  # fmt: skip
    sensor = sense(context)
    rows, residual = zero, jnp.zeros(())
    constrained = impulse_rows(system.topology) or has_rows(system.topology) or has_soft(system.topology)
    if constrained or set(PRESCRIBED).intersection(system.topology.drives):
        loads = quadratic(system, frame, system.armature, "armature").times(a)
        force = kin.inertial_force(system, frame, inertia, a)
        rows = [f + x + b - p - t - e - u for f, x, b, p, t, e, u in zip(force, loads, bias, passive, tau, element, driven, strict=True)]
        if impulse_rows(system.topology):
            rows = [a + b for a, b in zip(rows, implicit_force(system, frame, c.q, c.v, a), strict=True)]
        elif soft is not None and not solved.multipliers:
            residual = _residual(soft, solved.early, rows, bias)
    pushes = [(f.lin, vsub(f.ang, cross(pose.pos, f.lin))) for f, pose in zip(context.pushes, poses, strict=True)]
    return Data(
        pos=c.rows([p.pos for p in poses], 3),
        quat=c.rows([p.quat for p in poses], 4),
        lin=c.rows(lin, 3),
        ang=c.rows(ang, 3),
        lin_acc=c.rows(lin_acc, 3),
        ang_acc=c.rows(ang_acc, 3),
        a=c.join(a),
        bias=c.join(bias),
        passive=c.join(passive),
        tau=c.join(tau),
        actuator=c.join(driven),
        actuator_force=c.join([] if actuator is None else actuator.force),
        actuator_length=c.join([] if actuator is None else actuator.length),
        act_rate=c.join(activation_rates(system, c.act, controls)),
        element=c.join(element),
        constraint=c.join(rows),
        external_force=c.rows([push for push, _ in pushes], 3),
        external_moment=c.rows([moment for _, moment in pushes], 3),
        residual=c.join(residual, 0),
        sensor=c.join(sensor),
        flags=flags.astype(jnp.int32),
    )


@stage
def _residual(soft: Constraints, a, rows, bias):
    """Largest difference between what the motion takes of the soft constraints and what they give, beside the largest force."""
    a = jnp.stack(list(a))
    soft = soft.fitted(a.shape[1:])
    wrong = jnp.stack([jnp.abs(x - y) for x, y in zip(rows, soft.jt_times(soft.force(soft.at(a))), strict=True)]).max(0)
    most = jnp.stack([jnp.abs(x) + jnp.abs(y) for x, y in zip(rows, bias, strict=True)]).max(0)
    return wrong / jnp.where(most > 0, most, 1.0)


def sensors(model: Model, state: State, ctrl=None, tau=None):
    """Numbers of all sensors at a state, (*batch, nsensordata); `Topology.sensors` says where each has its own. No noise is added."""
    return forward(model, state, ctrl, tau).sensor


def _views(model: Model, lanes: Lanes) -> tuple:
    """Places of cameras and lights in their bodies, as components."""
    split = lanes.split
    camera, light = model.camera, model.light
    return Camera(split(camera.pos, 2), split(camera.quat, 2)), Light(split(light.pos, 2), split(light.dir, 2))


@compiled
def site_poses(model: Model, q):
    """World poses of all sites: pos (*batch, nsite, 3) in m, quat (*batch, nsite, 4) as w x y z."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    ends = [site_end(c.system, frame, i) for i in range(len(model.topology.sites))]
    return c.rows([e.world for e in ends], 3), c.rows([e.quat for e in ends], 4)


@compiled
def geom_poses(model: Model, q):
    """World poses of all geoms, those of the world first: pos (*batch, ngeom, 3) in m, quat (*batch, ngeom, 4) as w x y z."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    ends = [geom_end(c.system, frame, i) for i in range(len(model.topology.geoms))]
    return c.rows([e.world for e in ends], 3), c.rows([e.quat for e in ends], 4)


@compiled
def camera_poses(model: Model, q):
    """World poses of all cameras: pos (*batch, ncamera, 3) in m, axes (*batch, ncamera, 3, 3): columns x, y (up), z (backwards)."""
    c = Call(model, q)
    views = cameras(c.system, kin.frames(c.system, c.q), _views(model, c.lanes)[0])
    return c.rows([v.pos for v in views], 3), c.rows([v.R for v in views], 3, 3)


@compiled
def light_poses(model: Model, q):
    """World positions (*batch, nlight, 3), m, and directions (*batch, nlight, 3) of all lights."""
    c = Call(model, q)
    views = lights(c.system, kin.frames(c.system, c.q), _views(model, c.lanes)[1])
    return c.rows([v.pos for v in views], 3), c.rows([v.R for v in views], 3)


@compiled
def step(model: Model, state: State, ctrl=None, tau=None) -> State:
    """The state one time step later. ctrl: commands (*batch, nu), tau: generalized force (*batch, nv), both held over the step."""
    inputs = _inputs(model, state, ctrl, tau)
    return chunked(_steps, model, state, jax.tree.map(lambda x: x[None], inputs), 1, None)[0]


@functools.partial(compiled, static_argnames=("steps", "record", "checkpoint"))
def rollout(model: Model, state: State, ctrls=None, *, taus=None, steps=None, record=None, checkpoint=True):
    """Many steps: (final state, recorded).

    ctrls: (steps, *batch, nu) commands and taus: (steps, *batch, nv) generalized forces, one per step, or None; ``steps`` says how many
    where neither is given.
    record: fn(state, data) -> pytree, kept after every step with time as the first axis (``data`` is `forward` of the new state with
    the same ctrl and tau; what is not used is not computed). None keeps nothing and is fastest.
    checkpoint: recompute the inside of a step (of Runge-Kutta: of its stages) in the reverse pass instead of storing it; less memory and
    usually faster.
    """
    inputs = _inputs(model, state, ctrls, taus, "s")
    for x, name in zip(inputs, ("ctrls", "taus"), strict=True):
        if x is not None:
            if steps is not None and steps != x.shape[0]:
                raise ValueError(f"steps={steps} but {name} has {x.shape[0]} rows")
            steps = x.shape[0]
    if steps is None:
        raise ValueError("rollout needs ctrls, taus or steps")
    return chunked(_steps, model, state, inputs, steps, record, checkpoint)


def _inputs(model: Model, state: State, ctrl, tau, plural: str = "") -> Inputs:
    if ctrl is not None and not model.nu:
        raise ValueError("the model has no actuators: pass generalized forces as tau")
    out = []
    for name, x, width in (("ctrl", ctrl, model.nu), ("tau", tau, model.nv)):
        x = None if x is None else jnp.asarray(x, state.q.dtype)
        if x is not None:
            check_width(name + plural, x, width)
        out.append(x)
    return Inputs(*out)


def _steps(model: Model, state: State, inputs: Inputs, steps: int, record, checkpoint=False):
    batch = common_batch(model, state, inputs)
    lanes = make_lanes(batch)
    mocap = jnp.broadcast_to(state.mocap, (*batch, *state.mocap.shape[-2:]))
    system = prepare(model, lanes, lanes.split(mocap, 2))
    flags, dtype = jnp.broadcast_to(state.flags, batch), state.q.dtype
    moving = Moving(
        list(lanes.split(jnp.broadcast_to(state.q, (*batch, model.nq)), 1)),
        list(lanes.split(jnp.broadcast_to(state.v, (*batch, model.nv)), 1)),
        list(lanes.split(jnp.broadcast_to(state.act, (*batch, model.na)), 1)),
        lanes.split(jnp.broadcast_to(state.time, batch), 0),
        Health(*(lanes.split((flags & bit != 0).astype(dtype), 0) for bit in BITS)),
    )

    def public(m: Moving) -> State:
        set_flags = sum(bit * lanes.join(on, 0) for bit, on in zip(BITS, m.health, strict=True))
        act = lanes.join(m.act, 1) if m.act else jnp.zeros((*batch, 0), dtype)
        return State(lanes.join(m.q, 1), lanes.join(m.v, 1), lanes.join(m.time, 0), set_flags.astype(flags.dtype), act, mocap)

    # Transposed once for all steps, not in every step.
    split = Inputs(*(None if x is None else lanes.split_sequence(x) for x in inputs))

    stagewise = checkpoint and record is None and in_stages(system)  # once more is enough

    def body(m: Moving, xs):
        given, now = xs
        tau = [0.0] * model.nv if now.tau is None else now.tau
        ctrl = [0.0] * model.nu if now.ctrl is None else now.ctrl
        m = _settled(advance(system, m._replace(v=separate_kernels(m.v)), tau, ctrl, stagewise), m)
        recorded = None
        if record is not None:
            after = public(m)
            recorded = record(after, forward(model, after, given.ctrl, given.tau))
        return m, recorded

    if steps == 1 and record is None:
        return public(body(moving, (None, jax.tree.map(lambda x: x[0], split)))[0]), None
    run = jax.checkpoint(body, prevent_cse=False) if checkpoint and not stagewise else body
    moving, recorded = jax.lax.scan(run, moving, (None if record is None else inputs, split), length=steps)
    return public(moving), recorded


BITS = (Flags.DIVERGED, Flags.SINGULAR, Flags.UNSOLVED, Flags.CONTACT_OVERFLOW)
"""Of the parts of `Health`."""


def _settled(new, old):
    """The new components with the shapes and dtypes of the old, as a loop's carry must have."""
    return jax.tree.map(lambda a, b: jnp.broadcast_to(jnp.asarray(a, b.dtype), b.shape), new, old)
