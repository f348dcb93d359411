"""Tendons: lengths, Jacobians (moment arms), and the forces of their springs and dampers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.layout import spread
from xsim.dynamics.tendons.wrapping import wrap
from xsim.dynamics.tree.frames import End, Wrench, body_link, coordinate_addresses, geom_end, row_coefficients, site_end
from xsim.dynamics.tree.kinematics import Frames, point_acceleration, point_velocity
from xsim.dynamics.tree.polynomials import potential, slope, tendon_damping, tendon_stiffness
from xsim.dynamics.tree.system import System
from xsim.model.topology import PieceInfo
from xsim.spatial import ZERO3, Motion, add, apply, apply_inverse, cross, dot, mul, neg, normalize, safe_norm, scale, stage, sub, vsub


class LengthAndJacobian(NamedTuple):
    """The length of a tendon or actuator, and its Jacobian.

    length: m; of a fixed tendon, in the units of its coordinates.
    row: the Jacobian of the length, [(dof, coefficient), ...].
    """

    length: object
    row: list


def tendons(system: System, frame: Frames, q) -> list[LengthAndJacobian]:
    """All tendons at a configuration."""
    paths = _paths(system, frame)
    return [_sum_of_segments(paths[i]) if i in paths else _fixed(system, info, q) for i, info in enumerate(system.topology.tendons)]


def tendon_wrenches(system: System, frame: Frames) -> dict[int, list[Wrench]]:
    """{tendon: the wrenches on bodies of a unit force along its length, which pushes its ends apart}, of the spatial tendons."""
    paths = _paths(system, frame)
    return {i: [_scaled(wrench, segment.factor) for segment, part in path for wrench in part.wrenches] for i, path in paths.items()}


def _scaled(wrench: Wrench, factor) -> Wrench:
    return wrench if factor is None else wrench._replace(force=scale(wrench.force, factor))


class _Part(NamedTuple):
    """Length and Jacobian row of a segment, and the wrenches on bodies of a unit force along its length."""

    length: object
    row: list
    wrenches: list[Wrench]


def _paths(system: System, frame: Frames) -> dict[int, list[tuple[_Segment, _Part]]]:
    """{tendon: its segments}, of the spatial tendons."""
    segments = {i: _segments(system, frame, info) for i, info in enumerate(system.topology.tendons) if info.kind == "spatial"}
    every = [segment for of_tendon in segments.values() for segment in of_tendon]
    wrapped = iter(_wrapped(system, frame, [segment for segment in every if segment.geom is not None]))
    return {
        i: [(segment, next(wrapped) if segment.geom is not None else _straight(system, frame, segment)) for segment in of_tendon]
        for i, of_tendon in segments.items()
    }


def _address(system: System, dof: int) -> int:
    """The address in q of the coordinate that a dof moves. Of a ball joint, as in MuJoCo, the first number of its quaternion."""
    addresses = coordinate_addresses(system.topology)
    return addresses[dof][1] if dof in addresses else next(j.q[0] for j in system.topology.joints if j.v[0] == dof)


def _fixed(system: System, info, q) -> LengthAndJacobian:
    length, row = 0.0, []
    for piece in info.path:
        coefficient = system.tendon.coefficient[piece.row]
        length = add(length, mul(coefficient, q[_address(system, piece.item)]))
        row.append((piece.item, coefficient))
    return LengthAndJacobian(length, _merged(row))


class _Segment(NamedTuple):
    """The part of a spatial tendon between two sites.

    first, second: for each site, its body and its frame.
    geom: the geom that the segment wraps around. None: it is straight.
    factor: factor of its length in that of the tendon, from the divisor of a pulley. None: 1.
    """

    first: tuple[int, End]
    second: tuple[int, End]
    geom: PieceInfo | None
    factor: object


def _segments(system: System, frame: Frames, info) -> list[_Segment]:
    """The segments of a spatial tendon, in order."""
    out, factor, before, geom = [], None, None, None
    for piece in info.path:
        if piece.kind == "pulley":
            factor, before = 1.0 / system.tendon.divisor[piece.row], None
        elif piece.kind == "geom":
            geom = piece
        else:
            site = system.topology.sites[piece.item].body, site_end(system, frame, piece.item)
            if before is not None:
                out.append(_Segment(before, site, geom, factor))
            before, geom = site, None
    return out


def _sum_of_segments(path: list[tuple[_Segment, _Part]]) -> LengthAndJacobian:
    """The length and Jacobian of a tendon."""
    length, row = 0.0, []
    for segment, part in path:
        factor = 1.0 if segment.factor is None else segment.factor
        length = add(length, mul(part.length, factor))
        row += scaled_row(part.row, factor)
    return LengthAndJacobian(length, _merged(row))


def _merged(row: list) -> list:
    """The row with one coefficient per dof, sorted by dof."""
    out: dict = {}
    for dof, x in row:
        out[dof] = add(out[dof], x) if dof in out else x
    return sorted(out.items(), key=lambda pair: pair[0])


@stage
def _distance_wrench(a: End, b: End):
    """The distance of two points, and the wrench of a unit tension: force, moments about the reference points of both."""
    d = vsub(b.world, a.world)
    n = normalize(d)
    return safe_norm(d), (n, cross(a.x, n), cross(b.x, n))


def _straight(system: System, frame: Frames, segment: _Segment) -> _Part:
    """A straight segment."""
    (first, a), (second, b) = segment.first, segment.second
    length, wrench = _distance_wrench(a, b)
    row = row_coefficients(system, frame, (first, second), wrench)
    return _Part(length, row, [Wrench((second, first), (b.world, a.world), wrench[0], ZERO3)])


def unwrapped_row(system: System, frame: Frames, tendon: int) -> list:
    """The Jacobian row of a tendon that wraps around no geom."""
    info = system.topology.tendons[tendon]
    if info.kind == "fixed":
        return _merged([(piece.item, system.tendon.coefficient[piece.row]) for piece in info.path])
    return _sum_of_segments([(segment, _straight(system, frame, segment)) for segment in _segments(system, frame, info)]).row


def unwrapped_drift(system: System, frame: Frames, tendon: int, velocity: list, acceleration: list):
    """(dJ/dt) v of a spatial tendon that wraps around no geom: the acceleration of its length at zero generalized acceleration.

    velocity, acceleration: spatial velocity and, at zero generalized acceleration, acceleration of every link."""
    out = 0.0
    for segment in _segments(system, frame, system.topology.tendons[tendon]):
        motions = []
        for body, end in (segment.first, segment.second):
            link = body_link(system, body)
            motions.append((ZERO3, ZERO3) if link < 0 else _point_motion(velocity[link], acceleration[link], end.x))
        drift = _distance_acceleration(segment.first[1].world, segment.second[1].world, *motions)
        out = add(out, mul(drift, 1.0 if segment.factor is None else segment.factor))
    return out


@stage
def _point_motion(velocity: Motion, acceleration: Motion, point):
    """Velocity and acceleration of a point. point: its position relative to the reference point of the motions."""
    return point_velocity(velocity, point), point_acceleration(acceleration, velocity, point)


@stage
def _distance_acceleration(first, second, first_motion, second_motion):
    """The second derivative of the distance of two points. Their motions: velocity and acceleration. 0 where the points coincide."""
    d, velocity, acceleration = (vsub(b, a) for a, b in ((first, second), *zip(first_motion, second_motion, strict=True)))
    n, distance = normalize(d), safe_norm(d)
    along, apart = dot(n, velocity), distance > 0
    centripetal = sub(dot(velocity, velocity), mul(along, along)) / jnp.where(apart, distance, 1.0)
    return add(dot(n, acceleration), jnp.where(apart, centripetal, 0.0))


@stage
def _in_geom_frame(geom: End, point: End):
    """The position of a point in a geom's frame."""
    return apply_inverse(geom.R, vsub(point.world, geom.world))


@stage
def _tension_wrench(geom: End, end: End, gradient):
    """The wrench of a unit tension at an end of a wrapped segment: force, moments about the reference points of the geom and of the end.
    gradient: of the length with respect to the end's position, in the geom's frame."""
    n = apply(geom.R, gradient)
    arm = vsub(end.world, vsub(geom.world, geom.x))
    return n, cross(arm, n), cross(end.x, n)


def _wrapped(system: System, frame: Frames, segments: list[_Segment]) -> list[_Part]:
    """The segments that wrap around geoms. Segments of one kind are processed as a batch, so that the program is
    small."""
    out: list = [None] * len(segments)
    infos = [system.topology.geoms[segment.geom.item] for segment in segments]
    groups: dict[tuple, list[int]] = {}
    for i, (segment, info) in enumerate(zip(segments, infos, strict=True)):
        groups.setdefault((info.shape, segment.geom.side is not None), []).append(i)
    for (shape, sided), members in groups.items():
        geoms = [geom_end(system, frame, segments[i].geom.item) for i in members]
        points = [
            [_in_geom_frame(geom, end) for geom, i in zip(geoms, members, strict=True) for end in [pick(segments[i])]]
            for pick in (lambda segment: segment.first[1], lambda segment: segment.second[1])
        ]
        sites = [segments[i].geom.side for i in members] if sided else []
        sides = [_in_geom_frame(geom, site_end(system, frame, site)) for geom, site in zip(geoms, sites, strict=False)]
        radii = [(system.geom.size[infos[i].row][0],) for i in members]
        first, second, side, radius = _stacked([*points, sides, radii])
        path = wrap(shape, first, second, *radius, side or None, system.topology.switches.tendon_shortest_side)
        for k, (i, geom) in enumerate(zip(members, geoms, strict=True)):
            row, wrenches = [], []
            for (body, end), gradient in zip((segments[i].first, segments[i].second), path.gradients, strict=True):
                wrench = _tension_wrench(geom, end, tuple(x[k] for x in gradient))
                row += row_coefficients(system, frame, (infos[i].body, body), wrench)
                wrenches.append(Wrench((body, infos[i].body), (end.world, end.world), wrench[0], ZERO3))
            out[i] = _Part(path.length[k], row, wrenches)
    return out


def _stacked(groups: list[list[tuple]]) -> list[tuple]:
    """For each group of vectors, one vector whose components are arrays over the group (first axis). () for an empty group."""
    full = iter(spread([x for group in groups for vector in group for x in vector]))
    vectors = [[[next(full) for _ in vector] for vector in group] for group in groups]
    return [tuple(jnp.stack(xs) for xs in zip(*group, strict=True)) for group in vectors]


@stage
def _extension(length, rest):
    """The extension of a spring, m, negative in compression. rest: the two lengths between which the spring is slack."""
    low, high = rest
    return add(jnp.maximum(sub(length, high), 0.0), jnp.minimum(sub(length, low), 0.0))


def tendon_force(system: System, tendon: list[LengthAndJacobian], v) -> list:
    """The generalized force of the springs and dampers of all tendons."""
    out: list = [0.0] * len(v)
    for t, force in zip(tendon, passive_tendon_forces(system, tendon, v), strict=True):
        out = add_row_force(out, t.row, force)
    return out


def passive_tendon_forces(system: System, tendon: list[LengthAndJacobian], v) -> list:
    """The force of each tendon's spring and damper along its length, N, negative where it pulls."""
    out = []
    for i, (info, t) in enumerate(zip(system.topology.tendons, tendon, strict=True)):
        extension, speed = _extension(t.length, _rest(system, i, info)), rate(t.row, v)
        spring = mul(tendon_stiffness(system, i, extension), extension)
        out.append(neg(add(spring, mul(tendon_damping(system, i, speed), speed))))
    return out


@stage
def _where_extended(extension, stiffness):
    return jnp.where(extension != 0.0, stiffness, 0.0)


def tendon_slopes(system: System, tendon: list[LengthAndJacobian], v) -> list[tuple]:
    """Minus the derivatives of each tendon's force with respect to its length and to the rate of its length, N/m and N s/m. A slack
    spring has none."""
    out = []
    for i, (info, t) in enumerate(zip(system.topology.tendons, tendon, strict=True)):
        extension = _extension(t.length, _rest(system, i, info))
        stiffness = _where_extended(extension, tendon_stiffness(system, i, extension, slope))
        out.append((stiffness, tendon_damping(system, i, rate(t.row, v), slope)))
    return out


def tendon_energy(system: System, tendon: list[LengthAndJacobian]) -> list:
    """The energy stored in each tendon's spring, J."""
    out = []
    for i, (info, t) in enumerate(zip(system.topology.tendons, tendon, strict=True)):
        out.append(tendon_stiffness(system, i, _extension(t.length, _rest(system, i, info)), potential))
    return out


def _rest(system: System, i: int, info):
    """The two lengths between which a tendon's spring is slack."""
    return system.derived.tendon_rest[i] if info.spring is None else system.tendon.spring_length[info.spring]


def rate(row: list, v):
    """J v of one row [(dof, coefficient), ...]."""
    total = 0.0
    for dof, x in row:
        total = add(total, mul(x, v[dof]))
    return total


def add_row_force(force: list, row: list, magnitude) -> list:
    """The generalized force plus row^T magnitude."""
    out = list(force)
    for dof, x in row:
        out[dof] = add(out[dof], mul(x, magnitude))
    return out


def scaled_row(row: list, s) -> list:
    """The row times a number."""
    return [(dof, mul(x, s)) for dof, x in row]
