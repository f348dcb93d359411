"""Sensors: one function per kind, over what `forward` has at hand. Source: MuJoCo's documentation, XML reference, sensor."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import Effort
from xsim.dynamics.constraints.contact_rows import body_wrenches
from xsim.dynamics.constraints.narrowphase import Contacts
from xsim.dynamics.constraints.soft_rows import ConstraintForce, Rows, Wrench, constraint_forces, has_soft_rows
from xsim.dynamics.sensors import contact_sensors
from xsim.dynamics.sensors.cameras import cameras
from xsim.dynamics.sensors.rays import Ray, Target, cast
from xsim.dynamics.tendons.tendons import LengthAndJacobian, rate, tendons
from xsim.dynamics.tree.kinematics import Frames, body_poses, lanes_of, point_acceleration, point_velocity
from xsim.dynamics.tree.subtree import subtree_coms, subtree_masses, sums
from xsim.dynamics.tree.system import System
from xsim.registry import SENSORS
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
    mul,
    neg,
    normalize,
    quat_conj,
    quat_mul,
    scale,
    stage,
    vadd,
    vsub,
)


class SensorFrame(NamedTuple):
    """A frame to measure: its body (-1: the world), world position, axes (columns of R), orientation."""

    body: int
    pos: tuple
    R: tuple
    quat: tuple


@dataclass
class SensorContext:
    """What the sensors of one evaluation read; what no sensor asks for is never computed.

    explicit_a: generalized acceleration at which soft constraints have their forces. velocity, acceleration: of the links, spatial, about
    the reference points. views: camera numbers. contacts, contact_forces: by condim group, see `contact_rows.contact_forces`. rows: the
    soft constraints that are no contacts, None for none.
    """

    system: System
    frame: Frames
    q: list
    v: list
    explicit_a: list
    time: Any
    velocity: list
    acceleration: list
    effort: Effort | None
    views: Any
    magnetic: tuple | None
    contacts: list[Contacts]
    contact_forces: list
    rows: Rows | None

    def __post_init__(self):
        self._nearest: dict = {}

    @functools.cached_property
    def poses(self) -> list[Pose]:
        return body_poses(self.system, self.frame)

    @functools.cached_property
    def cameras(self) -> list:
        return cameras(self.system, self.frame, self.views)

    @functools.cached_property
    def tendons(self) -> list[LengthAndJacobian]:
        return tendons(self.system, self.frame, self.q)

    @functools.cached_property
    def coms(self) -> list:
        return subtree_coms(self.system, self.frame)

    @functools.cached_property
    def masses(self) -> list:
        return subtree_masses(self.system, self.frame)

    @functools.cached_property
    def momenta(self) -> list:
        """Of every body, about the world's origin, of its subtree; then of all bodies: Force(angular, linear momentum)."""
        own = [self._momentum(i) for i in range(len(self.system.body.inertia))]
        return sums(self.system, own, madd, Force(ZERO3, ZERO3))

    @functools.cached_property
    def loads(self) -> list:
        """Of every body, the force that its parent exerts on it and on what hangs on it, about the world's origin."""
        own = [self._load(i) for i in range(len(self.system.body.inertia))]
        own = [_less(load, push) for load, push in zip(own, self.pushes, strict=True)]
        return sums(self.system, own, madd, Force(ZERO3, ZERO3))

    @functools.cached_property
    def pushes(self) -> list[Force]:
        """What contacts, connects and welds do to each body, about the world's origin."""
        out = [Force(ZERO3, ZERO3)] * len(self.system.body.inertia)
        for one in self.constraint_forces:
            if one.row.wrench is not None:
                _add(out, one.row.wrench, one.force)
        if self.contacts:
            for i, both in enumerate(body_wrenches(self.system, list(self.contacts), list(self.contact_forces))):
                push, moment = jax.tree.map(lambda x: x[0], both) if not self.lanes else both
                out[i] = madd(out[i], Force(moment, push))
        return out

    @functools.cached_property
    def lanes(self) -> tuple[int, ...]:
        """Shape of a component."""
        return lanes_of(self.system, self.frame)

    def nearest(self, info) -> tuple:
        """See `contact_sensors.nearest`; once for sensors of the same things."""
        key = (info.object, info.reference, info.cutoff)
        if key not in self._nearest:
            self._nearest[key] = contact_sensors.nearest(self, info)
        return self._nearest[key]

    @functools.cached_property
    def constraint_forces(self) -> list[ConstraintForce]:
        if not has_soft_rows(self.system.topology):
            return []
        return constraint_forces(self.system, self.frame, self.q, self.v, self.tendons, self.explicit_a, self.rows)

    @functools.cached_property
    def ranges(self) -> dict:
        """By site, of those with a rangefinder: the distance along its z axis to what it sees, -1 where that is nothing."""
        top = self.system.topology
        sites = list(dict.fromkeys(info.object[1] for info in top.sensors if info.kind == "rangefinder"))
        spots = [self.spot(("site", site)) for site in sites]
        rays = [Ray(spot.body, spot.pos, tuple(row[2] for row in spot.R)) for spot in spots]
        targets = []
        for number, info in enumerate(top.geoms):
            if info.seen and any(info.body != ray.body for ray in rays):
                spot = self.spot(("geom", number))
                targets.append(Target(info, spot.pos, spot.R, self.system.geom.size[info.row]))
        return dict(zip(sites, cast(top, rays, targets), strict=True))

    def _at_world(self, body: int, motions) -> Motion:
        """A link's motion about the world's origin."""
        link = self.system.topology.bodies[body].link
        if link < 0:
            return Motion(ZERO3, ZERO3)
        return _about_origin(motions[link], self.frame.pose[self.system.tables.root[link]].pos)

    def _momentum(self, body: int) -> Force:
        return _momentum(self.poses[body], self.system.body.inertia[body], self._at_world(body, self.velocity))

    def _load(self, body: int) -> Force:
        link = self.system.topology.bodies[body].link
        velocity = self._at_world(body, self.velocity)
        acceleration = velocity  # zero, of what does not move
        if link >= 0:
            reference = self.frame.pose[self.system.tables.root[link]].pos
            acceleration = _about_origin(self.acceleration[link], reference)
        return _load(self.poses[body], self.system.body.inertia[body], velocity, acceleration, self.system.option.gravity)

    def spot(self, what) -> SensorFrame:
        """The frame that an object of a sensor means."""
        kind, number = what
        top, s = self.system.topology, self.system
        if kind == "camera":
            view = self.cameras[number]
            return SensorFrame(top.cameras[number].body, view.pos, view.R, _quaternion(view.R))
        if kind in ("site", "geom"):
            info, numbers, row = (top.sites[number], s.site, number) if kind == "site" else (top.geoms[number], s.geom, None)
            row = top.geoms[number].row if row is None else row
            return _spot(info.body, self.poses[info.body] if info.body >= 0 else None, numbers.pos[row], numbers.quat[row])
        if number < 0:
            return _spot(-1, None, ZERO3, IDENTITY)
        if kind == "body":
            return _spot(number, self.poses[number], _com(s.body.inertia[number]), top.bodies[number].principal)
        return _spot(number, self.poses[number], ZERO3, IDENTITY)

    def moving(self, spot: SensorFrame) -> tuple:
        """Velocity of the spot's origin and angular velocity, world axes."""
        link = -1 if spot.body < 0 else self.system.topology.bodies[spot.body].link
        if link < 0:
            return ZERO3, ZERO3
        return _velocity_at(self.velocity[link], spot.pos, self.frame.pose[self.system.tables.root[link]].pos)

    def accelerated(self, spot: SensorFrame) -> tuple:
        """Acceleration of the spot's origin less that of free fall, and angular acceleration, world axes."""
        gravity = self.system.option.gravity
        link = -1 if spot.body < 0 else self.system.topology.bodies[spot.body].link
        if link < 0:
            return tuple(neg(g) for g in gravity), ZERO3
        reference = self.frame.pose[self.system.tables.root[link]].pos
        return _acceleration_at(self.acceleration[link], self.velocity[link], spot.pos, reference, gravity)


@stage
def _about_origin(motion: Motion, reference) -> Motion:
    return Motion(motion.ang, vsub(motion.lin, cross(motion.ang, reference)))


@stage
def _momentum(pose: Pose, inertia: Inertia, velocity: Motion) -> Force:
    return momentum(inertia_move(matrix(pose.quat), pose.pos, inertia), velocity)


@stage
def _load(pose: Pose, inertia: Inertia, velocity: Motion, acceleration: Motion, gravity) -> Force:
    own = inertia_move(matrix(pose.quat), pose.pos, inertia)
    free = Motion(acceleration.ang, vsub(acceleration.lin, gravity))
    return madd(momentum(own, free), cross_force(velocity, momentum(own, velocity)))


def _add(loads: list, wrench: Wrench, force) -> None:
    """Add to what pushes two bodies what a constraint does to them."""
    for body, point, sign in zip(wrench.bodies, wrench.points, (1.0, -1.0), strict=True):
        if body >= 0:
            loads[body] = _added(loads[body], point, wrench.force, wrench.moment, mul(sign, force))


@stage
def _added(load: Force, point, force, moment, factor) -> Force:
    pushed = scale(force, factor)
    return madd(load, Force(vadd(cross(point, pushed), scale(moment, factor)), pushed))


@stage
def _less(load: Force, push: Force) -> Force:
    return Force(vsub(load.ang, push.ang), vsub(load.lin, push.lin))


@stage
def _com(inertia: Inertia):
    some = jnp.greater(inertia.mass, 0)
    share = jnp.where(some, 1.0 / jnp.where(some, inertia.mass, 1.0), 0.0)
    return scale(inertia.first, share)


@stage
def _frame(pose: Pose | None, pos, quat):
    own = Pose(normalize(quat), pos)
    at = own if pose is None else compose(pose, own)
    return at.pos, matrix(at.quat), at.quat


def _spot(body: int, pose: Pose | None, pos, quat) -> SensorFrame:
    return SensorFrame(body, *_frame(pose, pos, quat))


@stage
def _quaternion(R):
    """Quaternion of a rotation matrix, by its largest component."""
    (a, b, c), (d, e, f), (g, h, i) = R
    squares = [1 + a + e + i, 1 + a - e - i, 1 - a + e - i, 1 - a - e + i]
    columns = [
        (squares[0], h - f, c - g, d - b), (h - f, squares[1], b + d, c + g),
        (c - g, b + d, squares[2], f + h), (d - b, c + g, f + h, squares[3]),
    ]  # fmt: skip
    best, largest = columns[0], squares[0]
    for column, square in zip(columns[1:], squares[1:], strict=True):
        more = square > largest
        best, largest = tuple(jnp.where(more, x, y) for x, y in zip(column, best, strict=True)), jnp.where(more, square, largest)
    return normalize(best)


@stage
def _velocity_at(motion: Motion, pos, reference):
    return point_velocity(motion, vsub(pos, reference)), motion.ang


@stage
def _acceleration_at(acceleration: Motion, velocity: Motion, pos, reference, gravity):
    return vsub(point_acceleration(acceleration, velocity, vsub(pos, reference)), gravity), acceleration.ang


@stage
def _into(R, a):
    return apply_inverse(R, a)


# ---- kinds -------------------------------------------------------------------------------------------------------------------


def _in_site(read: Callable) -> Callable:
    """A vector in the axes of the sensor's site."""

    def sensor(f: SensorContext, info) -> tuple:
        spot = f.spot(info.object)
        return _into(spot.R, read(f, spot))

    return sensor


def _force(f: SensorContext, spot: SensorFrame):
    return f.loads[spot.body].lin


def _torque(f: SensorContext, spot: SensorFrame):
    return _moment_at(f.loads[spot.body], spot.pos)


@stage
def _moment_at(force: Force, pos):
    return vsub(force.ang, cross(pos, force.lin))


_LIMITS: dict[str, Callable[[ConstraintForce], object]] = {
    "pos": lambda one: one.row.residual, "vel": lambda one: one.rate, "frc": lambda one: one.force,
}  # fmt: skip


def _limit(what: str, read: Callable[[ConstraintForce], object]) -> Callable:
    """Of a limit the first of its sides that acts; 0 where none does."""

    def sensor(f: SensorContext, info) -> tuple:
        if what == "joint":
            joint, kinds = _joint(f, info), ("lower", "upper", "angle")
            items = range(joint.v[0], sum(joint.v))
        else:
            items, kinds = (info.object[1],), ("tendon_lower", "tendon_upper")
        out = 0.0
        for one in reversed([x for x in f.constraint_forces if x.info.kind in kinds and x.info.items[0] in items]):
            out = jnp.where(one.row.active, read(one), out)
        return (out,)

    return sensor


def _joint(f: SensorContext, info):
    body, which = info.object[1]
    return f.system.topology.bodies[body].joints[which]


def _dof(f: SensorContext, info) -> int:
    return _joint(f, info).v[0]


@stage
def _unit(q):
    return normalize(q)


def _ball_quat(f: SensorContext, info):
    q = _joint(f, info).q[0]
    return _unit(tuple(f.q[q : q + 4]))


def _ball_velocity(f: SensorContext, info):
    v = _joint(f, info).v[0]
    return tuple(f.v[v : v + 3])


@stage
def _relative(reference: SensorFrame, spot: SensorFrame):
    return apply_inverse(reference.R, vsub(spot.pos, reference.pos))


def _frame_pos(f: SensorContext, info):
    spot = f.spot(info.object)
    return spot.pos if info.reference is None else _relative(f.spot(info.reference), spot)


@stage
def _turned_back(a, b):
    return quat_mul(quat_conj(a), b)


def _frame_quat(f: SensorContext, info):
    spot = f.spot(info.object)
    return spot.quat if info.reference is None else _turned_back(f.spot(info.reference).quat, spot.quat)


def _frame_axis(k: int) -> Callable:
    def sensor(f: SensorContext, info):
        axis = tuple(row[k] for row in f.spot(info.object).R)
        return axis if info.reference is None else _into(f.spot(info.reference).R, axis)

    return sensor


@stage
def _relative_velocity(reference: SensorFrame, moving, spot: SensorFrame, own):
    (v0, w0), (v, _) = moving, own
    return apply_inverse(reference.R, vsub(vsub(v, v0), cross(w0, vsub(spot.pos, reference.pos))))


def _frame_velocity(f: SensorContext, info):
    spot = f.spot(info.object)
    if info.reference is None:
        return f.moving(spot)[0]
    reference = f.spot(info.reference)
    return _relative_velocity(reference, f.moving(reference), spot, f.moving(spot))


@stage
def _relative_turning(R, w0, w):
    return apply_inverse(R, vsub(w, w0))


def _frame_turning(f: SensorContext, info):
    own = f.moving(f.spot(info.object))[1]
    if info.reference is None:
        return own
    reference = f.spot(info.reference)
    return _relative_turning(reference.R, f.moving(reference)[1], own)


@stage
def _over(a, mass):
    some = jnp.greater(mass, 1e-15)
    return scale(a, jnp.where(some, 1.0 / jnp.where(some, mass, 1.0), 0.0))


def _subtree_velocity(f: SensorContext, info):
    body = info.object[1]
    return _over(f.momenta[body].lin, f.masses[body].mass)


def _subtree_momentum(f: SensorContext, info):
    body = info.object[1]
    return _moment_at(f.momenta[body], f.coms[body])


@stage
def _projected(site, camera, resolution, focal):
    """Pixel of a point: x to the right, y down, (0, 0) the upper left corner; focal lengths in pixels."""
    x, y, z = apply_inverse(camera.R, vsub(site, camera.pos))
    safe = jnp.where(jnp.abs(z) < 1e-15, jnp.where(z < 0, -1e-15, 1e-15), z)
    return 0.5 * resolution[0] - focal[0] * x / safe, 0.5 * resolution[1] + focal[1] * y / safe


def _projection(f: SensorContext, info):
    number = info.reference[1]
    camera = f.system.topology.cameras[number]
    width, height = camera.resolution
    focal = (0.5 * height / math.tan(0.5 * camera.fovy),) * 2
    if all(camera.sensor_size):
        focal = tuple(camera.intrinsic[i] / camera.sensor_size[i] * camera.resolution[i] for i in (0, 1))
    return _projected(f.spot(info.object).pos, f.cameras[number], (width, height), focal)


def _actuators_on(f: SensorContext, info):
    return (f.effort.tau[_dof(f, info)],)


class SensorKind(NamedTuple):
    """compute(context: SensorContext, info: SensorInfo) -> its numbers, a tuple of ``info.dim`` components. cutoff: what
    `SensorSpec.cutoff` is to it: "clip" (the numbers stay within it), "radius" (how far it looks) or "" (nothing)."""

    compute: Callable
    cutoff: str = "clip"


def _register_kinds() -> None:
    kinds: dict[str, Callable] = {
        "magnetometer": _in_site(lambda f, spot: f.magnetic),
        "camprojection": _projection,
        "jointpos": lambda f, info: (f.q[_joint(f, info).q[0]],),
        "jointvel": lambda f, info: (f.v[_dof(f, info)],),
        "tendonpos": lambda f, info: (f.tendons[info.object[1]].length,),
        "tendonvel": lambda f, info: (rate(f.tendons[info.object[1]].row, f.v),),
        "actuatorpos": lambda f, info: (f.effort.length[info.object[1]],),
        "actuatorvel": lambda f, info: (f.effort.velocity[info.object[1]],),
        "actuatorfrc": lambda f, info: (f.effort.force[info.object[1]],),
        "jointactuatorfrc": _actuators_on,
        "ballquat": _ball_quat,
        "ballangvel": _ball_velocity,
        "framepos": _frame_pos,
        "framequat": _frame_quat,
        "framexaxis": _frame_axis(0),
        "frameyaxis": _frame_axis(1),
        "framezaxis": _frame_axis(2),
        "framelinvel": _frame_velocity,
        "frameangvel": _frame_turning,
        "framelinacc": lambda f, info: f.accelerated(f.spot(info.object))[0],
        "frameangacc": lambda f, info: f.accelerated(f.spot(info.object))[1],
        "subtreecom": lambda f, info: f.coms[info.object[1]],
        "subtreelinvel": _subtree_velocity,
        "subtreeangmom": _subtree_momentum,
        "clock": lambda f, info: (f.time,),
        "velocimeter": _in_site(lambda f, spot: f.moving(spot)[0]),
        "gyro": _in_site(lambda f, spot: f.moving(spot)[1]),
        "accelerometer": _in_site(lambda f, spot: f.accelerated(spot)[0]),
        "force": _in_site(_force),
        "torque": _in_site(_torque),
        **{f"{what}limit{part}": _limit(what, read) for what in ("joint", "tendon") for part, read in _LIMITS.items()},
        "touch": contact_sensors.touch,
        "distance": contact_sensors.distance,
        "normal": contact_sensors.normal,
        "fromto": contact_sensors.fromto,
        "rangefinder": lambda f, info: (f.ranges[info.object[1]],),
        "user": lambda f, info: (0.0,) * info.dim,
    }
    cutoffs = {"distance": "radius", "normal": "radius", "fromto": "radius", "user": ""}
    for name, compute in kinds.items():
        SENSORS.register(name, SensorKind(compute, cutoffs.get(name, "clip")))


_register_kinds()


@stage
def _clip(x, least, most):
    return tuple(jnp.clip(y, least, most) for y in x)


def sense(f: SensorContext) -> list:
    """All numbers of the sensors, in order; zeros where sensors are switched off."""
    top, out = f.system.topology, []
    for info in top.sensors:
        if "sensor" in top.disabled:
            out += [0.0] * info.dim
            continue
        kind = SENSORS[info.kind]
        x = kind.compute(f, info)
        if info.cutoff > 0 and kind.cutoff == "clip":
            # A ray that meets nothing gives -1, which 3.2 leaves as it is.
            from_above = info.kind == "rangefinder" and not top.switches.rangefinder_miss_cut
            x = _clip(x, -math.inf if from_above else -info.cutoff, info.cutoff)
        out += list(x)
    return out
