"""Bending and twist of flexes made of lines: discrete elastic rods (Bergou et al. 2008, "Discrete elastic rods"; 2010, "Discrete viscous
threads").

At an inner point two lines e_0 and e_1 meet, with unit tangents t_0 and t_1 and lengths l_0 and l_1 at rest. The curvature is the vector
kb = 2 t_0 x t_1 / (1 + t_0 . t_1). The material of a line is turned about its tangent by an angle theta against the line's reference frame:
the coordinate of a hinge. The reference frames are carried along with the tangents from step to step, by the smallest rotations. m is the
angle about t_1 of the normal of e_1 against that of e_0 carried from t_0 to t_1. c_jk is the component of kb along the axis k of the
cross-section of line j. A point stores the energy

    W = (sum_jk E I_k (c_jk - c_k at rest)^2 / 2 + G J (theta_1 - theta_0 + m)^2) / (l_0 + l_1).

Dampers act on the rates of |kb| and of the twist, theta_1' - theta_0' + kb . (e_0' / (2 |e_0|) + e_1' / (2 |e_1|)). The bending stiffness
of a damper is that along kb, with the geometric mean of the two in the place of the smaller one. Source of the constants: MuJoCo's
documentation, XML reference, flex/elasticity. `State.plastic` has the frames at the start of the last step: tangent and
normal of each line, then m of each inner point.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.flex.kinematics import points
from xsim.dynamics.flex.structure import Rods, flex_plan
from xsim.dynamics.layout import column
from xsim.dynamics.tree.kinematics import Frames, body_poses, lanes_of, velocities
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import cross, dot, normalize, rotate, safe_norm, scale, stage, vadd, vsub

STRAIGHT = 1e-15  # curvature below which all directions of its rate are damped alike


class RodMaterial(NamedTuple):
    """Of each inner point, E I_k / (l_0 + l_1), those of the dampers, G J / (l_0 + l_1), and the components of the curvature at rest."""

    bending: tuple
    damped: tuple
    torsion: object
    curvature: tuple


class LineFrames(NamedTuple):
    """Reference frames: tangents and normals of all lines, components (lines, lanes or 1), and m (inner points, lanes or 1)."""

    tangent: tuple
    normal: tuple
    twist: object


def rod_material(system: System, rods: Rods) -> RodMaterial:
    """The coefficients that do not depend on the state."""
    flex, rows = system.flex, rods.elastic_row
    lengths = [flex.length[rods.edges[:, k]] for k in (0, 1)]
    moments = _circle(flex.radius[rods.radius_row])
    if rods.boxes.any():
        box = _box(*(flex.section[:, k][rods.section_row] for k in (0, 1)))
        moments = tuple(jnp.where(rods.boxes, x, y) for x, y in zip(box, moments, strict=True))
    curvature = tuple(flex.curvature[:, k] for k in (0, 1))
    return _material(lengths, flex.young[rows], flex.poisson[rows], flex.shear[rods.shear_row], moments, curvature, rods.twists)


@stage
def _circle(radius) -> tuple:
    """I_1, I_2, J."""
    moment = 0.25 * math.pi * radius**4
    return moment, moment, 2.0 * moment


@stage
def _box(first, second) -> tuple:
    """I_1, I_2, J of a rectangle with these half sides. J: Roark's Formulas for Stress and Strain, table 10.1."""
    a, b = jnp.maximum(first, second), jnp.minimum(first, second)
    torsion = a * b**3 * (16.0 / 3.0 - 3.36 * b / a * (1.0 - (b / a) ** 4 / 12.0))
    return 4.0 / 3.0 * first * second**3, 4.0 / 3.0 * second * first**3, torsion


@stage
def _material(lengths, young, poisson, shear, moments, curvature, twists) -> RodMaterial:
    """twists: whether there is torsion."""
    length = lengths[0] + lengths[1]
    modulus = jnp.where(shear > 0.0, shear, young / (2.0 * (1.0 + poisson)))
    first, second, torsion = moments
    mean = jnp.sqrt(first * second)
    bending, damped = (
        tuple(young * x / length for x in pair)
        for pair in ((first, second), (jnp.where(first < second, mean, first), jnp.where(second < first, mean, second)))
    )
    return RodMaterial(bending, damped, jnp.where(twists, modulus * torsion / length, 0.0), curvature)


# ---- reference frames -----------------------------------------------------------------------------------------------------------


def has_rods(topology: Topology) -> bool:
    """Whether the state has frames of lines."""
    return any(flex.rod is not None and flex.rod.twists for flex in topology.flexes)


def _carried(u, a, b):
    """A vector perpendicular to the unit vector a, turned by the smallest rotation from a to b."""
    axis, cosine = cross(a, b), dot(a, b)
    return vadd(vadd(scale(u, cosine), cross(axis, u)), scale(axis, dot(axis, u) / (1.0 + cosine)))


def _angle(u, v, t):
    """The angle about the unit vector t from u to v."""
    return jnp.arctan2(dot(t, cross(u, v)), dot(u, v))


def _twist(t0, u0, t1, u1, before):
    """m, by the number of turns that brings it nearest to its value before."""
    angle, turn = _angle(_carried(u0, t0, t1), u1, t1), 2.0 * math.pi
    return angle + turn * jax.lax.stop_gradient(jnp.round((before - angle) / turn))


def _rows(x, indices: np.ndarray):
    return tuple(component[indices] for component in x)


def _tangents(rods: Rods, world):
    return normalize(vsub(_rows(world, rods.lines[:, 1]), _rows(world, rods.lines[:, 0])))


def _held_frames(system: System, rods: Rods, frame: Frames) -> dict:
    """Tangent and normal, in the world, of the lines that are fixed to bodies, by line."""
    out, poses, first = {}, body_poses(system, frame) if rods.held else [], 0
    bodies = dict(rods.held)
    for flex, count in rods.chains:
        rod = system.topology.flexes[flex].rod
        assert rod is not None
        for k, line in enumerate((first, first + count - 1)):
            if line in bodies:
                vectors = rod.tangents[k], rod.normals[k]
                out[line] = vectors if bodies[line] < 0 else tuple(rotate(poses[bodies[line]].quat, x) for x in vectors)
        first += count
    return out


def _first_frames(system: System, rods: Rods, frame: Frames, world) -> LineFrames:
    """The frames where nothing precedes: that of each chain's first line as in the reference pose, carried to the line, and along the chain
    without twist; those of lines that are fixed to a body as the body has them."""
    tangent = _tangents(rods, world)
    normal = _normals(tangent, rods, system.topology, _held_frames(system, rods, frame))
    return _next(LineFrames(tangent, normal, 0.0), tangent, rods.inner)


@stage
def _normals(tangent, rods: Rods, topology: Topology, held: dict):
    normals: list = []
    for flex, count in rods.chains:
        rod = topology.flexes[flex].rod
        assert rod is not None
        t, u = rod.tangents[0], rod.normals[0]
        for _ in range(count):
            t, u = held.get(len(normals), (t, u))
            following = tuple(x[len(normals)] for x in tangent)
            t, u = following, _carried(u, t, following)
            normals.append(u)
    return tuple(jnp.stack(jnp.broadcast_arrays(*(u[k] for u in normals))) for k in range(3))


def _frames(system: System, rods: Rods, frame: Frames, world) -> LineFrames:
    """The frames of the state. Those of lines that are fixed to a body are the body's."""
    plastic = system.derived.plastic
    if plastic is None or not rods.angles or not has_rods(system.topology):
        return _first_frames(system, rods, frame, world)
    numbers, twists, start, lanes = [], [], None, bool(lanes_of(system, frame))
    for k, (flex, count) in enumerate(rods.chains):
        rod = system.topology.flexes[flex].rod
        assert rod is not None
        if rod.twists:
            numbers += plastic[rod.plastic : rod.plastic + 6 * count]
            twists += plastic[rod.plastic + 6 * count : rod.plastic + 7 * count - 1]
            continue
        start = start or _components(_first_frames(system, rods, frame, world), lanes)
        first = sum(n for _, n in rods.chains[:k])
        numbers += [x for line in range(first, first + count) for x in start[0][line]]
        twists += [0.0] * (count - 1)
    for line, vectors in _held_frames(system, rods, frame).items():
        numbers[6 * line : 6 * line + 6] = [x for vector in vectors for x in vector]
    return LineFrames(*(tuple(column(numbers[i + k :: 6]) for k in range(3)) for i in (0, 3)), column(twists))


def _components(frames: LineFrames, lanes: bool) -> tuple[list, list]:
    """For each line the six numbers of its frame, and m of each inner point."""

    def split(x):
        return list(x if lanes else x[:, 0])

    return list(zip(*(split(x) for x in (*frames.tangent, *frames.normal)), strict=True)), split(frames.twist)


def _as_plastic(system: System, rods: Rods, frames: LineFrames, lanes: bool) -> dict[int, list]:
    lines, twists = _components(frames, lanes)
    out, line, inner = {}, 0, 0
    for flex, count in rods.chains:
        rod = system.topology.flexes[flex].rod
        if rod is not None and rod.twists:
            out[rod.plastic] = [x for numbers in lines[line : line + count] for x in numbers] + twists[inner : inner + count - 1]
        line, inner = line + count, inner + count - 1
    return out


def first_frames(system: System, frame: Frames) -> dict[int, list]:
    """The numbers of `State.plastic` for frames, by their first address, of a state that nothing precedes."""
    rods = flex_plan(system.topology).rods
    frames = _first_frames(system, rods, frame, points(system, frame).world)
    return _as_plastic(system, rods, frames, bool(lanes_of(system, frame)))


def next_frames(system: System, frame: Frames) -> dict[int, list]:
    """The numbers of `State.plastic` for frames, by their first address, after a step from the configuration of ``frame``."""
    rods = flex_plan(system.topology).rods
    world = points(system, frame).world
    before = _frames(system, rods, frame, world)
    return _as_plastic(system, rods, _next(before, _tangents(rods, world), rods.inner), bool(lanes_of(system, frame)))


@stage
def _next(before: LineFrames, tangent, inner: np.ndarray) -> LineFrames:
    normal = _carried(before.normal, before.tangent, tangent)
    first, second = ((_rows(tangent, inner[:, k]), _rows(normal, inner[:, k])) for k in (0, 1))
    return LineFrames(tangent, normal, _twist(*first, *second, before.twist))


# ---- forces ---------------------------------------------------------------------------------------------------------------------


class _Pairs(NamedTuple):
    """What the energy depends on, for the two lines at each inner point: vectors along them, angles of their material."""

    lines: tuple
    angles: tuple


def _curvature(lines):
    """kb from the vectors along two lines."""
    a, b = lines
    return scale(cross(a, b), 2.0 / (safe_norm(a) * safe_norm(b) + dot(a, b)))


def _ends(frames: LineFrames, lines, inner: np.ndarray) -> list[tuple]:
    """Tangent and normal of the two lines at each inner point."""
    tangents = [normalize(line) for line in lines]
    before = [(_rows(frames.normal, inner[:, k]), _rows(frames.tangent, inner[:, k])) for k in (0, 1)]
    return [(t, _carried(u, t0, t)) for t, (u, t0) in zip(tangents, before, strict=True)]


def _components_of(kb, end, angle) -> tuple:
    """The components of a vector along the axes of the cross-section of a line."""
    tangent, normal = end
    x, y = dot(kb, normal), dot(kb, cross(tangent, normal))
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return cos * x + sin * y, cos * y - sin * x


def _energies(material: RodMaterial, frames: LineFrames, pairs: _Pairs, inner: np.ndarray):
    ends, kb = _ends(frames, pairs.lines, inner), _curvature(pairs.lines)
    twist = pairs.angles[1] - pairs.angles[0] + _twist(*ends[0], *ends[1], frames.twist)
    energy = material.torsion * twist * twist
    for end, angle in zip(ends, pairs.angles, strict=True):
        for c, rest, k in zip(_components_of(kb, end, angle), material.curvature, material.bending, strict=True):
            energy = energy + 0.5 * k * (c - rest) ** 2
    return energy


def _pairs(rods: Rods, world, numbers, which: int, held: dict) -> _Pairs:
    """which: 0 for positions and coordinates, 1 for velocities. held: the angles, or their rates, of lines that are fixed to bodies."""
    ends = rods.points
    a, b, c = (_rows(world, ends[:, k]) for k in range(3))
    angles = column([held.get(k, 0.0) if address is None else numbers[address[which]] for k, address in enumerate(rods.angles)])
    return _Pairs((vsub(b, a), vsub(c, b)), tuple(angles[rods.inner[:, k]] for k in (0, 1)))


def rod_energies(system: System, rods: Rods, material: RodMaterial, frame: Frames, q, world):
    """The energy at each inner point, J. world: positions of all points."""
    return stage(_energies)(material, _frames(system, rods, frame, world), _pairs(rods, world, q, 0, {}), rods.inner)


def rod_forces(system: System, rods: Rods, material: RodMaterial, frame: Frames, q, v, world, velocity) -> tuple[list[tuple], list, list]:
    """The forces on the three points at each inner point, (dof, torque) of the angles, and (link, moment) of lines that are fixed to
    bodies. world, velocity: of all points."""
    disabled = system.topology.disabled
    enabled = "spring" not in disabled, "damper" not in disabled
    damping, frames = system.flex.damping[rods.elastic_row], _frames(system, rods, frame, world)
    axes = _held_axes(system, rods, frame)
    _, twists = velocities(system, frame, v) if axes else (None, [])
    spins = {line: dot(twists[link].ang, axis) for line, (link, axis) in axes.items()}
    pairs, rates = _pairs(rods, world, q, 0, {}), _pairs(rods, velocity, v, 1, spins)
    lines, torque = _forces(material, damping, frames, pairs, rates, rods.inner, enabled)
    torques, moments, lanes = [], [], bool(lanes_of(system, frame)) or len(jnp.shape(v[0])) > 0
    for i, pair in enumerate(rods.inner.tolist()):
        for end, line in zip(torque, pair, strict=True):
            x, address = end[i] if lanes else end[i, 0], rods.angles[line]
            if address is not None:
                torques.append((address[1], x))
            elif line in axes:
                link, axis = axes[line]
                moments.append((link, scale(axis, x)))
    a, b = lines
    return [scale(a, -1.0), vsub(a, b), b], torques, moments


def _held_axes(system: System, rods: Rods, frame: Frames) -> dict:
    """Link and tangent, in the world, of the lines that are fixed to a body that moves, by line."""
    links = {line: system.topology.bodies[body].link for line, body in rods.held if body >= 0}
    tangents = {line: tangent for line, (tangent, _) in _held_frames(system, rods, frame).items()}
    return {line: (link, tangents[line]) for line, link in links.items() if link >= 0}


@stage
def _forces(material: RodMaterial, damping, frames: LineFrames, pairs: _Pairs, rates: _Pairs, inner: np.ndarray, enabled) -> tuple:
    """Minus the derivatives of the energy and dissipation by the two lines' vectors, and the torques on the two lines' angles."""
    width = max(x.shape[-1] for x in jax.tree.leaves((material, damping, frames, pairs, rates)))
    pairs = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(x), width)), pairs)
    lines, torque = jax.tree.map(jnp.zeros_like, (pairs.lines, pairs.angles))
    if enabled[0]:
        slope = jax.grad(lambda p: jnp.sum(_energies(material, frames, p, inner)))(pairs)
        lines, torque = jax.tree.map(jnp.negative, (slope.lines, slope.angles))
    if enabled[1]:
        damped, moment = _damper(material, damping, frames, pairs, rates, inner)
        lines, torque = tuple(vadd(x, y) for x, y in zip(lines, damped, strict=True)), (torque[0] + moment, torque[1] - moment)
    return lines, torque


def _damper(material: RodMaterial, damping, frames: LineFrames, pairs: _Pairs, rates: _Pairs, inner: np.ndarray) -> tuple:
    rates = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), rates, pairs)
    kb, kb_rate = jax.jvp(_curvature, (pairs.lines,), (rates.lines,))
    size = safe_norm(kb)
    direction = scale(kb, 1.0 / jnp.where(size > STRAIGHT, size, 1.0))
    along = scale(direction, dot(direction, kb_rate))
    along = tuple(jnp.where(size > STRAIGHT, x, y) for x, y in zip(along, kb_rate, strict=True))
    k = 0.0
    for end, angle in zip(_ends(frames, pairs.lines, inner), pairs.angles, strict=True):
        parts = _components_of(direction, end, angle)
        k = k + 0.5 * sum(damped * part * part for damped, part in zip(material.damped, parts, strict=True))
    k = jnp.where(size > STRAIGHT, k, material.damped[0])
    (bending,) = jax.vjp(_curvature, pairs.lines)[1](scale(along, -2.0 * damping * k))
    arms = [scale(kb, 0.5 / safe_norm(line)) for line in pairs.lines]
    twist_rate = rates.angles[1] - rates.angles[0] + dot(arms[0], rates.lines[0]) + dot(arms[1], rates.lines[1])
    moment = 2.0 * damping * material.torsion * twist_rate
    return tuple(vsub(x, scale(arm, moment)) for x, arm in zip(bending, arms, strict=True)), moment
