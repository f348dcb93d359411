"""Sensors: one function for each kind. They read the results of `forward`. Source: MuJoCo's documentation, XML reference, sensor."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import ActuatorForces
from xsim.dynamics.constraints.narrowphase import Contacts
from xsim.dynamics.constraints.soft_rows import ConstraintForce, Rows, constraint_forces, has_soft_rows
from xsim.dynamics.forces.energy import kinetic_energy, potential_energy
from xsim.dynamics.sensors import contact_reports, contact_sensors, external_forces, tactile, touch_grid
from xsim.dynamics.sensors.cameras import cameras
from xsim.dynamics.sensors.rangefinders import focal_lengths, range_hits, rangefinder
from xsim.dynamics.sensors.site_volumes import inside_site
from xsim.dynamics.tendons.tendons import LengthAndJacobian, rate, tendons
from xsim.dynamics.tree.kinematics import Frames, body_poses, lanes_of, link_inertias, point_acceleration, point_velocity
from xsim.dynamics.tree.subtree import subtree_coms, subtree_masses, subtree_sums
from xsim.dynamics.tree.system import System, center_of_mass
from xsim.registry import SENSORS, ConfigKey
from xsim.spatial import (
    IDENTITY,
    ZERO3,
    Force,
    Inertia,
    Motion,
    Pose,
    apply_inverse,
    compose,
    cross,
    cross_force,
    inertia_move,
    madd,
    matrix,
    momentum,
    neg,
    normalize,
    quat_conj,
    quat_mul,
    scale,
    stage,
    total,
    vsub,
)


class SensorFrame(NamedTuple):
    """A frame that a sensor measures: its body (-1: the world), and its world position, axes (columns of R) and orientation."""

    body: int
    pos: tuple
    R: tuple
    quat: tuple


@dataclass
class SensorContext:
    """The quantities that the sensors of one evaluation read. Those that no sensor reads are not computed.

    explicit_a: generalized acceleration that defines the forces of the soft constraints.
    velocity, acceleration: spatial velocities and accelerations of the links, about the reference points of their trees.
    actuator_forces: lengths, velocities and forces of the actuators.
    views: positions and quaternions of the cameras in their bodies.
    magnetic: magnetic flux, world axes.
    contacts, contact_forces: by condim group, see `contact_rows.contact_forces`.
    rows: the rows of the soft constraints other than contacts. None if there are none.
    """

    system: System
    frame: Frames
    q: list
    v: list
    explicit_a: list
    time: Any
    velocity: list
    acceleration: list
    actuator_forces: ActuatorForces | None
    views: Any
    magnetic: tuple | None
    contacts: list[Contacts]
    contact_forces: list
    rows: Rows | None

    def __post_init__(self):
        self._nearest: dict = {}
        self._contact_fields: dict = {}

    @functools.cached_property
    def poses(self) -> list[Pose]:
        """World poses of all bodies."""
        return body_poses(self.system, self.frame)

    @functools.cached_property
    def cameras(self) -> list:
        """World poses of all cameras, `View`."""
        return cameras(self.system, self.frame, self.views)

    @functools.cached_property
    def tendons(self) -> list[LengthAndJacobian]:
        return tendons(self.system, self.frame, self.q)

    @functools.cached_property
    def link_inertias(self) -> list[Inertia]:
        """Inertias of the links."""
        return link_inertias(self.system, self.frame)

    @functools.cached_property
    def subtree_coms(self) -> list:
        """Centres of mass of the bodies' subtrees, world, m."""
        return subtree_coms(self.system, self.frame)

    @functools.cached_property
    def subtree_masses(self) -> list:
        """Inertias of the bodies' subtrees."""
        return subtree_masses(self.system, self.frame)

    @functools.cached_property
    def subtree_momenta(self) -> list:
        """Momenta of the bodies' subtrees, then of all bodies, about the world's origin: Force(angular momentum, linear momentum)."""
        momenta = [self._momentum(i) for i in range(len(self.system.body.inertia))]
        return subtree_sums(self.system, momenta, madd, Force(ZERO3, ZERO3))

    @functools.cached_property
    def interaction_forces(self) -> list:
        """For each body, the force between it and its parent, on the body, about the world's origin (MuJoCo's cfrc_int)."""
        forces = [self._inertial_force(i) for i in range(len(self.system.body.inertia))]
        forces = [_force_difference(inertial, external) for inertial, external in zip(forces, self.external_forces, strict=True)]
        return subtree_sums(self.system, forces, madd, Force(ZERO3, ZERO3))

    @functools.cached_property
    def external_forces(self) -> list[Force]:
        """See `external_forces.external_forces`."""
        return external_forces.external_forces(self)

    @functools.cached_property
    def lanes(self) -> tuple[int, ...]:
        """The shape of a component: (lanes,), or () without a batch."""
        return lanes_of(self.system, self.frame)

    def nearest(self, info) -> tuple:
        """See `contact_sensors.nearest`. Sensors of the same geoms share the result."""
        key = (info.object, info.reference, info.cutoff)
        if key not in self._nearest:
            self._nearest[key] = contact_sensors.nearest(self, info)
        return self._nearest[key]

    def contact_field(self, name: str):
        """See `contact_reports.contact_field`. Sensors share the result."""
        if name not in self._contact_fields:
            self._contact_fields[name] = contact_reports.contact_field(self, name)
        return self._contact_fields[name]

    @functools.cached_property
    def detected_contacts(self):
        """See `contact_reports.detected_contacts`."""
        return contact_reports.detected_contacts(self)

    @functools.cached_property
    def constraint_forces(self) -> list[ConstraintForce]:
        """The forces of the soft constraints other than contacts."""
        if not has_soft_rows(self.system.topology):
            return []
        return constraint_forces(self.system, self.frame, self.q, self.v, self.tendons, self.explicit_a, self.rows)

    @functools.cached_property
    def range_hits(self) -> dict:
        """See `rangefinders.range_hits`."""
        return range_hits(self)

    def _body_motion(self, body: int, motions) -> Motion:
        """A body's spatial velocity about the world's origin. motions: of the links."""
        link = self.system.topology.bodies[body].link
        if link < 0:
            return Motion(ZERO3, ZERO3)
        return _about_origin(motions[link], self.frame.pose[self.system.tables.root[link]].pos)

    def _momentum(self, body: int) -> Force:
        return _momentum(self.poses[body], self.system.body.inertia[body], self._body_motion(body, self.velocity))

    def _inertial_force(self, body: int) -> Force:
        link = self.system.topology.bodies[body].link
        velocity = self._body_motion(body, self.velocity)
        acceleration = velocity  # zero if the body is fixed to the world
        if link >= 0:
            reference = self.frame.pose[self.system.tables.root[link]].pos
            acceleration = _about_origin(self.acceleration[link], reference)
        return _inertial_force(self.poses[body], self.system.body.inertia[body], velocity, acceleration, self.system.option.gravity)

    def frame_of(self, item) -> SensorFrame:
        """The frame of a sensor's object, (kind, index)."""
        kind, number = item
        top, s = self.system.topology, self.system
        if kind == "camera":
            view = self.cameras[number]
            return SensorFrame(top.cameras[number].body, view.pos, view.R, _quaternion(view.R))
        if kind in ("site", "geom"):
            info, leaves, row = (top.sites[number], s.site, number) if kind == "site" else (top.geoms[number], s.geom, None)
            row = top.geoms[number].row if row is None else row
            return _frame_on_body(info.body, self.poses[info.body] if info.body >= 0 else None, leaves.pos[row], leaves.quat[row])
        if number < 0:
            return _frame_on_body(-1, None, ZERO3, IDENTITY)
        if kind == "body":
            return _frame_on_body(number, self.poses[number], center_of_mass(s.body.inertia[number]), top.bodies[number].principal)
        return _frame_on_body(number, self.poses[number], ZERO3, IDENTITY)

    def frame_velocity(self, frame: SensorFrame) -> tuple:
        """The velocity of a frame's origin and its angular velocity, world axes."""
        link = -1 if frame.body < 0 else self.system.topology.bodies[frame.body].link
        if link < 0:
            return ZERO3, ZERO3
        return _velocity_at(self.velocity[link], frame.pos, self.frame.pose[self.system.tables.root[link]].pos)

    def frame_acceleration(self, frame: SensorFrame) -> tuple:
        """The acceleration of a frame's origin minus gravity, and its angular acceleration, world axes."""
        gravity = self.system.option.gravity
        link = -1 if frame.body < 0 else self.system.topology.bodies[frame.body].link
        if link < 0:
            return tuple(neg(g) for g in gravity), ZERO3
        reference = self.frame.pose[self.system.tables.root[link]].pos
        return _acceleration_at(self.acceleration[link], self.velocity[link], frame.pos, reference, gravity)


@stage
def _about_origin(motion: Motion, reference) -> Motion:
    return Motion(motion.ang, vsub(motion.lin, cross(motion.ang, reference)))


@stage
def _momentum(pose: Pose, inertia: Inertia, velocity: Motion) -> Force:
    return momentum(inertia_move(matrix(pose.quat), pose.pos, inertia), velocity)


@stage
def _inertial_force(pose: Pose, inertia: Inertia, velocity: Motion, acceleration: Motion, gravity) -> Force:
    """The force that moves a body as given, gravity excluded: I (a - g) + v x* I v, about the world's origin."""
    world_inertia = inertia_move(matrix(pose.quat), pose.pos, inertia)
    proper = Motion(acceleration.ang, vsub(acceleration.lin, gravity))
    return madd(momentum(world_inertia, proper), cross_force(velocity, momentum(world_inertia, velocity)))


@stage
def _force_difference(a: Force, b: Force) -> Force:
    return Force(vsub(a.ang, b.ang), vsub(a.lin, b.lin))


@stage
def _frame(pose: Pose | None, pos, quat):
    local = Pose(normalize(quat), pos)
    world = local if pose is None else compose(pose, local)
    return world.pos, matrix(world.quat), world.quat


def _frame_on_body(body: int, pose: Pose | None, pos, quat) -> SensorFrame:
    return SensorFrame(body, *_frame(pose, pos, quat))


@stage
def _quaternion(R):
    """The quaternion of a rotation matrix, from its largest component."""
    (a, b, c), (d, e, f), (g, h, i) = R
    squares = [1 + a + e + i, 1 + a - e - i, 1 - a + e - i, 1 - a - e + i]
    columns = [
        (squares[0], h - f, c - g, d - b), (h - f, squares[1], b + d, c + g),
        (c - g, b + d, squares[2], f + h), (d - b, c + g, f + h, squares[3]),
    ]  # fmt: skip
    best, largest = columns[0], squares[0]
    for column, square in zip(columns[1:], squares[1:], strict=True):
        larger = square > largest
        best, largest = tuple(jnp.where(larger, x, y) for x, y in zip(column, best, strict=True)), jnp.where(larger, square, largest)
    return normalize(best)


@stage
def _velocity_at(motion: Motion, pos, reference):
    return point_velocity(motion, vsub(pos, reference)), motion.ang


@stage
def _acceleration_at(acceleration: Motion, velocity: Motion, pos, reference, gravity):
    return vsub(point_acceleration(acceleration, velocity, vsub(pos, reference)), gravity), acceleration.ang


@stage
def _in_frame(R, a):
    """A vector in the axes of a frame."""
    return apply_inverse(R, a)


# ---- kinds -------------------------------------------------------------------------------------------------------------------


def _in_site(read: Callable) -> Callable:
    """A sensor that measures a vector in the frame of its site. read: (context, frame) -> the vector, world axes."""

    def sensor(context: SensorContext, info) -> tuple:
        frame = context.frame_of(info.object)
        return _in_frame(frame.R, read(context, frame))

    return sensor


def _force(context: SensorContext, frame: SensorFrame):
    return context.interaction_forces[frame.body].lin


def _torque(context: SensorContext, frame: SensorFrame):
    return _moment_at(context.interaction_forces[frame.body], frame.pos)


@stage
def _moment_at(force: Force, pos):
    """The moment about a point, of a force about the world's origin."""
    return vsub(force.ang, cross(pos, force.lin))


_LIMITS: dict[str, Callable[[ConstraintForce], object]] = {
    "pos": lambda limit: limit.row.residual, "vel": lambda limit: limit.rate, "frc": lambda limit: limit.force,
}  # fmt: skip


def _limit(target: str, read: Callable[[ConstraintForce], object]) -> Callable:
    """A sensor of the limits of a joint or of a tendon (``target``): of the first limit that is active, 0 if none is."""

    def sensor(context: SensorContext, info) -> tuple:
        if target == "joint":
            joint, kinds = _joint(context, info), ("lower", "upper", "angle")
            items = range(joint.v[0], sum(joint.v))
        else:
            items, kinds = (info.object[1],), ("tendon_lower", "tendon_upper")
        out = 0.0
        for limit in reversed([x for x in context.constraint_forces if x.info.kind in kinds and x.info.items[0] in items]):
            out = jnp.where(limit.row.active, read(limit), out)
        return (out,)

    return sensor


def _joint(context: SensorContext, info):
    body, which = info.object[1]
    return context.system.topology.bodies[body].joints[which]


def _dof(context: SensorContext, info) -> int:
    return _joint(context, info).v[0]


@stage
def _unit(q):
    return normalize(q)


def _ball_quat(context: SensorContext, info):
    q = _joint(context, info).q[0]
    return _unit(tuple(context.q[q : q + 4]))


def _ball_velocity(context: SensorContext, info):
    v = _joint(context, info).v[0]
    return tuple(context.v[v : v + 3])


@stage
def _relative_pos(reference: SensorFrame, frame: SensorFrame):
    return apply_inverse(reference.R, vsub(frame.pos, reference.pos))


def _frame_pos(context: SensorContext, info):
    frame = context.frame_of(info.object)
    return frame.pos if info.reference is None else _relative_pos(context.frame_of(info.reference), frame)


@stage
def _relative_quat(a, b):
    return quat_mul(quat_conj(a), b)


def _frame_quat(context: SensorContext, info):
    frame = context.frame_of(info.object)
    return frame.quat if info.reference is None else _relative_quat(context.frame_of(info.reference).quat, frame.quat)


def _frame_axis(k: int) -> Callable:
    def sensor(context: SensorContext, info):
        axis = tuple(row[k] for row in context.frame_of(info.object).R)
        return axis if info.reference is None else _in_frame(context.frame_of(info.reference).R, axis)

    return sensor


@stage
def _relative_velocity(reference: SensorFrame, reference_velocity, frame: SensorFrame, velocity):
    (v0, w0), (v, _) = reference_velocity, velocity
    return apply_inverse(reference.R, vsub(vsub(v, v0), cross(w0, vsub(frame.pos, reference.pos))))


def _frame_velocity(context: SensorContext, info):
    frame = context.frame_of(info.object)
    if info.reference is None:
        return context.frame_velocity(frame)[0]
    reference = context.frame_of(info.reference)
    return _relative_velocity(reference, context.frame_velocity(reference), frame, context.frame_velocity(frame))


@stage
def _relative_angular_velocity(R, w0, w):
    return apply_inverse(R, vsub(w, w0))


def _frame_angular_velocity(context: SensorContext, info):
    angular_velocity = context.frame_velocity(context.frame_of(info.object))[1]
    if info.reference is None:
        return angular_velocity
    reference = context.frame_of(info.reference)
    return _relative_angular_velocity(reference.R, context.frame_velocity(reference)[1], angular_velocity)


@stage
def _divide_by_mass(a, mass):
    has_mass = jnp.greater(mass, 1e-15)
    return scale(a, jnp.where(has_mass, 1.0 / jnp.where(has_mass, mass, 1.0), 0.0))


def _subtree_velocity(context: SensorContext, info):
    body = info.object[1]
    return _divide_by_mass(context.subtree_momenta[body].lin, context.subtree_masses[body].mass)


def _subtree_momentum(context: SensorContext, info):
    body = info.object[1]
    return _moment_at(context.subtree_momenta[body], context.subtree_coms[body])


@stage
def _pixel(site, camera, resolution, focal):
    """The pixel of a point: x to the right, y down, (0, 0) is the upper left corner. focal: focal lengths, pixels."""
    x, y, z = apply_inverse(camera.R, vsub(site, camera.pos))
    safe = jnp.where(jnp.abs(z) < 1e-15, jnp.where(z < 0, -1e-15, 1e-15), z)
    return 0.5 * resolution[0] - focal[0] * x / safe, 0.5 * resolution[1] + focal[1] * y / safe


def _projection(context: SensorContext, info):
    number = info.reference[1]
    camera = context.system.topology.cameras[number]
    width, height = camera.resolution
    return _pixel(context.frame_of(info.object).pos, context.cameras[number], (width, height), focal_lengths(camera))


def _potential_energy(context: SensorContext, info):
    return (potential_energy(context.system, context.frame, context.link_inertias, context.q, context.tendons),)


def _kinetic_energy(context: SensorContext, info):
    return (kinetic_energy(context.system, context.frame, context.link_inertias, context.v),)


def _joint_actuator_force(context: SensorContext, info):
    actuators = context.actuator_forces
    return (0.0 if actuators is None else actuators.tau[_dof(context, info)],)


def _of_outputs(context: SensorContext, info, values: list) -> tuple:
    """The entries of the forces of an actuator."""
    return tuple(values[i] for i in context.system.topology.actuators[info.object[1]].outputs)


def _tendon_actuator_force(context: SensorContext, info):
    actuators = context.system.topology.actuators
    forces = context.actuator_forces.force if actuators else ()
    on_tendon = [forces[a.output] for a in actuators if a.transmission == "tendon" and a.target == info.object[1]]
    return (total([0.0, *on_tendon]),)


class SensorKind(NamedTuple):
    """A kind of sensor, an entry of `xsim.registry.SENSORS`.

    compute: function (context: SensorContext, info: SensorInfo) -> the measurement, a tuple of ``info.dim`` components.
    cutoff: the meaning of `SensorSpec.cutoff`. "clip": the measurement is clipped to it. "radius": it is a search radius. "": none.
    config: the keys of <config> if ``<plugin>`` of MJCF may name this kind. Its numbers are ``dict(info.config)``.
    dim: of a plugin, function of its numbers by key -> width of the measurement.
    objects: of a plugin, the words of ``objtype`` that it may have. (): an object is not needed.
    """

    compute: Callable
    cutoff: str = "clip"
    config: dict[str, ConfigKey] | None = None
    dim: Callable = lambda config: 1
    objects: tuple[str, ...] = ()


_CUTOFFS = {"distance": "radius", "normal": "radius", "fromto": "radius", "contact": "", "user": ""}
"""What the cutoff is to the sensors that it does not clip, see `SensorKind.cutoff`."""
_COMPUTE: dict[str, Callable] = {
    "magnetometer": _in_site(lambda context, frame: context.magnetic),
    "camprojection": _projection,
    "jointpos": lambda context, info: (context.q[_joint(context, info).q[0]],),
    "jointvel": lambda context, info: (context.v[_dof(context, info)],),
    "tendonpos": lambda context, info: (context.tendons[info.object[1]].length,),
    "tendonvel": lambda context, info: (rate(context.tendons[info.object[1]].row, context.v),),
    "actuatorpos": lambda context, info: _of_outputs(context, info, context.actuator_forces.length),
    "actuatorvel": lambda context, info: _of_outputs(context, info, context.actuator_forces.velocity),
    "actuatorfrc": lambda context, info: _of_outputs(context, info, context.actuator_forces.force),
    "jointactuatorfrc": _joint_actuator_force,
    "tendonactuatorfrc": _tendon_actuator_force,
    "ballquat": _ball_quat,
    "ballangvel": _ball_velocity,
    "framepos": _frame_pos,
    "framequat": _frame_quat,
    "framexaxis": _frame_axis(0),
    "frameyaxis": _frame_axis(1),
    "framezaxis": _frame_axis(2),
    "framelinvel": _frame_velocity,
    "frameangvel": _frame_angular_velocity,
    "framelinacc": lambda context, info: context.frame_acceleration(context.frame_of(info.object))[0],
    "frameangacc": lambda context, info: context.frame_acceleration(context.frame_of(info.object))[1],
    "subtreecom": lambda context, info: context.subtree_coms[info.object[1]],
    "subtreelinvel": _subtree_velocity,
    "subtreeangmom": _subtree_momentum,
    "insidesite": inside_site,
    "e_potential": _potential_energy,
    "e_kinetic": _kinetic_energy,
    "clock": lambda context, info: (context.time,),
    "velocimeter": _in_site(lambda context, frame: context.frame_velocity(frame)[0]),
    "gyro": _in_site(lambda context, frame: context.frame_velocity(frame)[1]),
    "accelerometer": _in_site(lambda context, frame: context.frame_acceleration(frame)[0]),
    "force": _in_site(_force),
    "torque": _in_site(_torque),
    **{f"{target}limit{part}": _limit(target, read) for target in ("joint", "tendon") for part, read in _LIMITS.items()},
    "touch": contact_sensors.touch,
    "contact": contact_reports.contact,
    "distance": contact_sensors.distance,
    "normal": contact_sensors.normal,
    "fromto": contact_sensors.fromto,
    "rangefinder": rangefinder,
    "tactile": tactile.tactile,
    "user": lambda context, info: (0.0,) * info.dim,
}
SENSORS.register_all({name: SensorKind(compute, _CUTOFFS.get(name, "clip")) for name, compute in _COMPUTE.items()})
SENSORS.register("mujoco.sensor.touch_grid", SensorKind(touch_grid.touch_grid, "clip", touch_grid.CONFIG, touch_grid.width, ("site",)))


@stage
def _clip(x, low, high):
    return tuple(jnp.clip(y, low, high) for y in x)


def sense(context: SensorContext) -> list:
    """The measurements of all sensors, in order. Zeros if sensors are disabled."""
    top, out = context.system.topology, []
    for info in top.sensors:
        if "sensor" in top.disabled:
            out += [0.0] * info.dim
            continue
        kind = SENSORS[info.kind]
        x = kind.compute(context, info)
        if info.cutoff > 0 and kind.cutoff == "clip":
            # A rangefinder that sees no geom measures -1. MuJoCo 3.2 does not clip this value.
            upper_only = info.kind == "rangefinder" and not top.switches.rangefinder_miss_cut
            x = _clip(x, -math.inf if upper_only else -info.cutoff, info.cutoff)
        out += list(x)
    return out
