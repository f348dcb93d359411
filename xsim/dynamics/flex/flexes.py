"""Deformables: forces along their edges, of springs and dampers and of the elasticity of their triangles and tetrahedra, and the rows that
keep edges at their lengths.

All points, edges and elements of a model are arrays (things, lanes), (things, 1) where nothing differs between environments.

Elasticity is St. Venant and Kirchhoff's: with the products of edges G at rest and g now (by pairs of the edges that start at an element's
first point) and the inverse h of G, an element of volume V at rest stores

    W = V (mu / 4 tr(h (g - G) h (g - G)) + lambda / 8 tr(h (g - G))^2),

so that its force along each edge is linear in the squares of the lengths. Source: MuJoCo's documentation, Computation, Flex; its damping is
that of Kharevych et al. 2006, section 5.2: stiffness times the change of the squares over the last step.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.contact_parameters import column
from xsim.dynamics.constraints.soft_rows import INFINITE, TINY, Rows, impedance, reference
from xsim.dynamics.linalg.dense import pairwise_sum, tree_sum
from xsim.dynamics.tree.kinematics import Frames, gather, lanes_of, moved_by, velocities
from xsim.dynamics.tree.system import System
from xsim.model.topology import FlexInfo, Topology
from xsim.spatial import Force, apply, cross, dot, mul, normalize, rotate, safe_norm, scale, stage, vadd, vsub

PAIRS = {2: {(1, 2): 0, (0, 2): 1, (0, 1): 2}, 3: {(0, 1): 0, (1, 2): 1, (0, 2): 2, (2, 3): 3, (0, 3): 4, (1, 3): 5}}
"""By dimension, the number of an element's edge between two of its points."""


# ---- structure ----------------------------------------------------------------------------------------------------------------


def _numbers(x) -> np.ndarray:
    """Numbers of rows. Without a sign they are taken as they are."""
    return np.asarray(x, np.uint32)


class Sums:
    """Sums of the rows of an array that go to the same place, (n, lanes) to (count, lanes).

    Places that take about as many rows are summed together, so there are few operations, in an order that does not depend on anything."""

    def __init__(self, targets: np.ndarray, count: int):
        self.rows = len(targets)
        order, degree = np.argsort(targets, kind="stable"), np.bincount(targets, minlength=count)
        first = degree.cumsum() - degree
        width = np.where(degree > 0, 1 << np.ceil(np.log2(np.maximum(degree, 1))).astype(int), 0)
        self.tables, places = [], []
        for w in np.unique(width):
            own = np.flatnonzero(width == w)
            steps = np.arange(w)[:, None]
            spot = np.minimum(first[own] + steps, max(self.rows - 1, 0))
            self.tables.append(_numbers(np.where(steps < degree[own], order[spot] if self.rows else 0, self.rows)))
            places.append(own)
        self.back = _numbers(np.argsort(np.concatenate(places)) if places else [])

    def __call__(self, x):
        x = jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
        parts = [pairwise_sum(x[table]) if len(table) else jnp.zeros((table.shape[1], *x.shape[1:]), x.dtype) for table in self.tables]
        return jnp.concatenate(parts)[self.back]


class Solids(NamedTuple):
    """Elements of one dimension. corners (n, k): their edges. elastic, sheet (n,): rows of flex.young and flex.thickness."""

    dim: int
    corners: np.ndarray
    elastic: np.ndarray
    sheet: np.ndarray | None


class Plan(NamedTuple):
    """What follows from the topology. links: the links that carry points (-1: the world); carrier: of each point its place in that list.

    ends (m, 2): points of each edge. springs, spring: edges with springs, and their rows. edge_sums: sums over what acts on edges, each
    spring, then each corner of the solids; at_point, at_link: sums over the edges' ends (first ones first) and over points.
    kept: edges that keep their lengths; soft: rows of their softness; light: which of them are between simple bodies.
    sign (m, nv): 1 for a dof that moves the second point only, -1 the first only. simple: bodies that are so.
    """

    links: np.ndarray
    carrier: np.ndarray
    bodies: tuple[int, ...]
    ends: np.ndarray
    springs: np.ndarray
    spring: np.ndarray
    solids: tuple[Solids, ...]
    edge_sums: Sums
    at_point: Sums
    at_link: Sums
    kept: np.ndarray
    soft: np.ndarray
    light: np.ndarray
    sign: np.ndarray
    simple: frozenset[int]


@functools.lru_cache(maxsize=64)
def plan(topology: Topology) -> Plan:
    infos = topology.flexes
    bodies = tuple(body for info in infos for body in info.bodies)
    of_point = np.array([topology.bodies[b].link if b >= 0 else -1 for b in bodies], int)
    links, carrier = np.unique(of_point, return_inverse=True)
    carrier = _numbers(carrier)
    points = np.cumsum([0, *(len(info.bodies) for info in infos)])
    edges = np.cumsum([0, *(len(info.edges.value) for info in infos)])
    ends = _numbers(np.concatenate([info.edges.value + first for info, first in zip(infos, points, strict=False)]))
    free = [np.flatnonzero(info.free.value) + first for info, first in zip(infos, edges, strict=False)]
    springs = [(own, info.spring) for own, info in zip(free, infos, strict=True) if info.spring is not None]
    solids = _solids(infos, edges)
    kept, soft = _flat([(free[info.items[0]], info.soft) for info in topology.soft if info.kind == "flex"])
    simple = np.array([x for info in infos for x in info.simple])
    pulling = np.concatenate([np.zeros(0, int), *(own for own, _ in springs), *(s.corners.T.reshape(-1) for s in solids)])
    return Plan(
        links, carrier, bodies, ends, *_flat(springs), solids, Sums(pulling, len(ends)), Sums(ends.T.reshape(-1), len(bodies)),
        Sums(carrier, len(links)), kept, soft, (simple[ends[kept]] == 2).all(1), _signs(topology, of_point, ends),
        frozenset(np.array(bodies)[simple > 0].tolist()),
    )  # fmt: skip


def _flat(parts: list) -> tuple[np.ndarray, np.ndarray]:
    """Edges one after another, and of each the number that stands beside its part."""
    own, numbers = [own for own, _ in parts], [np.full(len(own), n) for own, n in parts]
    return _numbers(np.concatenate(own) if own else []), _numbers(np.concatenate(numbers) if numbers else [])


def _solids(infos: tuple[FlexInfo, ...], edges: np.ndarray) -> tuple[Solids, ...]:
    out = []
    for dim in (2, 3):
        own = [(info, first) for info, first in zip(infos, edges, strict=False) if info.dim == dim and info.elastic is not None]
        if own:
            rows = [np.full(len(info.corners.value), info.elastic) for info, _ in own]
            sheets = [np.full(len(info.corners.value), info.sheet) for info, _ in own] if dim == 2 else None
            corners = _numbers(np.concatenate([info.corners.value + first for info, first in own]))
            out.append(Solids(dim, corners, _numbers(np.concatenate(rows)), None if sheets is None else _numbers(np.concatenate(sheets))))
    return tuple(out)


def _signs(topology: Topology, of_point: np.ndarray, ends: np.ndarray) -> np.ndarray:
    chain = moved_by(topology)
    return chain[of_point[ends[:, 1]]] - chain[of_point[ends[:, 0]]]


# ---- what the leaves say ------------------------------------------------------------------------------------------------------


class FlexMaterial(NamedTuple):
    """What the leaves alone say. pos: points in their links. solids: of each, h, mu V and lambda V of its elements."""

    pos: tuple
    solids: tuple


def flex_material(system: System) -> FlexMaterial:
    layout, flex = plan(system.topology), system.flex
    pos = tuple(flex.pos[:, k] for k in range(3))
    top = system.topology
    if not all(body < 0 or top.bodies[body].link >= 0 and system.tables.at_link[body] for body in layout.bodies):
        identity = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
        carried = [identity if body < 0 else tuple(system.offset[body]) for body in layout.bodies]
        quat, origin = (tuple(column(x) for x in zip(*(c[k] for c in carried), strict=True)) for k in (0, 1))
        pos = vadd(origin, rotate(quat, pos))
    return FlexMaterial(pos, tuple(_solid(system, own) for own in layout.solids))


def _solid(system: System, own: Solids) -> tuple:
    flex = system.flex
    thickness = None if own.sheet is None else flex.thickness[own.sheet]
    lengths = [flex.length[own.corners[:, k]] for k in range(own.corners.shape[1])]
    return _material(lengths, flex.young[own.elastic], flex.poisson[own.elastic], thickness, own.dim, system.topology.rules != "4.0")


@stage
def _material(lengths, young, poisson, thickness, dim: int, older: bool) -> tuple:
    """h, mu V, lambda V. older: the numbers of MuJoCo 3.2, which takes lambda twice, and of triangles a quarter of everything, with the
    lambda of solids."""
    inverse, volume = _inverse(_products([x * x for x in lengths], dim), dim)
    mu = young / (2.0 * (1.0 + poisson))
    lam = young * poisson / ((1.0 + poisson) * (1.0 - 2.0 * poisson))
    if older:
        lam = 2.0 * lam
    if dim == 2:
        volume = 0.25 * thickness * volume
    return inverse, mu * volume, lam * volume


def _products(squares, dim: int) -> list:
    """Products of the edges from an element's first point, of the squared lengths of all (or linear in what else they are)."""
    at = PAIRS[dim]

    def product(i, j):
        own = squares[at[0, i]]
        return own if i == j else 0.5 * (own + squares[at[0, j]] - squares[at[min(i, j), max(i, j)]])

    return [[product(i, j) for j in range(1, dim + 1)] for i in range(1, dim + 1)]


def _inverse(G, dim: int) -> tuple:
    """Inverse of the products, zeros where an element is flat, and its area or volume."""
    if dim == 2:
        adjoint = ((G[1][1], -G[0][1]), (-G[0][1], G[0][0]))
    else:
        adjoint = tuple(cross(G[(i + 1) % 3], G[(i + 2) % 3]) for i in range(3))
    determinant = dot(G[0], adjoint[0])
    size = functools.reduce(mul, (G[i][i] for i in range(dim)))
    usable = determinant > 4.0 * jnp.finfo(size.dtype).eps * size
    safe = jnp.where(usable, determinant, 1.0)
    inverse = tuple(tuple(jnp.where(usable, x / safe, 0.0) for x in row) for row in adjoint)
    return inverse, jnp.where(usable, jnp.sqrt(safe), 0.0) / (2.0 if dim == 2 else 6.0)


# ---- where the points are -----------------------------------------------------------------------------------------------------


class Points(NamedTuple):
    """World positions, and the reference points of their trees (the origin for those of the world): components (points, lanes or 1)."""

    world: tuple
    origin: tuple


def points(system: System, frame: Frames) -> Points:
    layout = plan(system.topology)
    world = (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    own = [
        world if i < 0 else (frame.R[i], frame.pose[i].pos, frame.pose[system.tables.root[i]].pos) for i in layout.links.tolist()
    ]
    R = tuple(tuple(column([x[0][j][k] for x in own]) for k in range(3)) for j in range(3))
    pos, origin = (tuple(column([x[part][k] for x in own]) for k in range(3)) for part in (1, 2))
    return Points(_placed(R, pos, system.flex_material.pos, layout.carrier), tuple(x[layout.carrier] for x in origin))


@stage
def _placed(R, pos, own, carrier):
    return vadd(tuple(x[carrier] for x in pos), apply(tuple(tuple(x[carrier] for x in row) for row in R), own))


def _speeds(system: System, frame: Frames, v, at: Points) -> tuple:
    """Velocities of the points."""
    layout = plan(system.topology)
    _, moving = velocities(system, frame, v)
    own = [((0.0,) * 3, (0.0,) * 3) if i < 0 else moving[i] for i in layout.links.tolist()]
    ang, lin = (tuple(column([x[part][k] for x in own]) for k in range(3)) for part in (0, 1))
    return _carried(ang, lin, at, layout.carrier)


@stage
def _carried(ang, lin, at: Points, carrier):
    ang, lin = (tuple(x[carrier] for x in part) for part in (ang, lin))
    return vadd(lin, cross(ang, vsub(at.world, at.origin)))


@stage
def _along(world, ends):
    """Of edges: from the first point to the second, that direction, length."""
    apart = vsub(*(tuple(x[ends[:, k]] for x in world) for k in (1, 0)))
    return apart, normalize(apart), safe_norm(apart)


@stage
def _rates(speeds, direction, ends):
    return dot(direction, vsub(*(tuple(x[ends[:, k]] for x in speeds) for k in (1, 0))))


# ---- forces -------------------------------------------------------------------------------------------------------------------


def flex_force(system: System, frame: Frames, v) -> list:
    """Generalized force of springs, dampers and elasticity."""
    layout, off = plan(system.topology) if system.topology.flexes else None, system.topology.disabled
    if layout is None or not (len(layout.springs) or layout.solids):
        return [0.0] * len(v)
    at = points(system, frame)
    apart, direction, length = _along(at.world, layout.ends)
    rate = _rates(_speeds(system, frame, v, at), direction, layout.ends)
    flex = system.flex
    spring = tuple(x[layout.spring] for x in (flex.edge_stiffness, flex.edge_damping)) if len(layout.springs) else None
    damping = [flex.damping[own.elastic] for own in layout.solids]
    works = "spring" not in off, "damper" not in off
    tension = _tensions(layout, length, rate, flex.length, system.dt, spring, system.flex_material.solids, damping, works)
    return _gathered(system, frame, v, at, _pull(layout, tension, apart, at))


@stage
def _tensions(layout: Plan, length, rate, rest, dt, spring, solids, damping, works: tuple[bool, bool]):
    """Force per length along each edge, positive where it pulls its ends together. works: springs, dampers."""
    out = []
    if spring is not None:
        own, k, d = layout.springs, *spring
        apart = length[own] > 0
        f = (k * (length[own] - rest[own]) if works[0] else 0.0) + (d * rate[own] if works[1] else 0.0)
        out.append(jnp.where(apart, f / jnp.where(apart, length[own], 1.0), 0.0))
    for own, material, own_damping in zip(layout.solids, solids, damping, strict=True):
        # The damping of a spring that acts from where the edge was a step ago.
        moved = rate * (2.0 * length - dt * rate)
        stretch = (length * length - rest * rest) if works[0] else jnp.zeros_like(length)
        stretches = []
        for k in range(own.corners.shape[1]):
            edge = own.corners[:, k]
            stretches.append(stretch[edge] + (own_damping * moved[edge] if works[1] else 0.0))
        out.extend(_stresses(stretches, material, own.dim))
    width = max(x.shape[-1] for x in out)
    return layout.edge_sums(jnp.concatenate([jnp.broadcast_to(x, (len(x), width)) for x in out]))


def _times(A, B) -> list:
    return [[tree_sum([a * b for a, b in zip(row, column, strict=True)]) for column in zip(*B, strict=True)] for row in A]


def _stresses(stretches, material, dim: int) -> list:
    """Of each edge of an element the force per length, 2 dW / d (squared length)."""
    h, mu, lam = material
    hg = _times(h, _products(stretches, dim))
    bulk = 0.5 * lam * tree_sum([hg[i][i] for i in range(dim)])
    strain = _times(hg, h)
    stress = [[mu * strain[i][j] + bulk * h[i][j] for j in range(dim)] for i in range(dim)]
    out = []
    for i, j in PAIRS[dim]:
        out.append(tree_sum(stress[j - 1]) if i == 0 else -stress[i - 1][j - 1])
    return out


@stage
def _pull(layout: Plan, tension, apart, at: Points) -> tuple:
    """Forces on the links and their moments about the reference points of their trees, components (links, lanes)."""
    force = scale(apart, tension)
    force = tuple(layout.at_point(jnp.concatenate([x, -x])) for x in force)
    moment = cross(vsub(at.world, at.origin), force)
    width = max(x.shape[-1] for x in (*force, *moment))
    return tuple(tuple(layout.at_link(jnp.broadcast_to(x, (len(x), width))) for x in part) for part in (moment, force))


def _gathered(system: System, frame: Frames, v, at: Points, wrench) -> list:
    lanes = jnp.broadcast_shapes(lanes_of(system, frame), *(jnp.shape(x) for x in v))
    split = [[list(x if lanes else x[:, 0]) for x in part] for part in wrench]
    forces: list = [None] * len(system.topology.links)
    for place, link in enumerate(plan(system.topology).links.tolist()):
        if link >= 0:
            moment, force = (tuple(x[place] for x in part) for part in split)
            forces[link] = Force(moment, force)
    return gather(system, frame, forces)


def flex_energy(system: System, frame: Frames) -> list:
    """Energy stored in the springs along edges and in the elements, J: a number for each kind."""
    layout = plan(system.topology) if system.topology.flexes else None
    if layout is None or not (len(layout.springs) or layout.solids) or {"passive", "spring"} & set(system.topology.disabled):
        return []
    _, _, length = _along(points(system, frame).world, layout.ends)
    out, rest, lanes = [], system.flex.length, lanes_of(system, frame)
    if len(layout.springs):
        away = length[layout.springs] - rest[layout.springs]
        out.append(pairwise_sum(0.5 * system.flex.edge_stiffness[layout.spring] * away * away))
    stretch = length * length - rest * rest
    for own, (h, mu, lam) in zip(layout.solids, system.flex_material.solids, strict=True):
        hg = _times(h, _products([stretch[own.corners[:, k]] for k in range(own.corners.shape[1])], own.dim))
        trace = tree_sum([hg[i][i] for i in range(own.dim)])
        square = tree_sum([hg[i][j] * hg[j][i] for i in range(own.dim) for j in range(own.dim)])
        out.append(pairwise_sum(0.25 * mu * square + 0.125 * lam * trace * trace))
    return out if lanes else [x[0] for x in out]


# ---- rows ---------------------------------------------------------------------------------------------------------------------


def has_kept(topology: Topology) -> bool:
    """Whether edges keep their lengths."""
    return any(info.kind == "flex" for info in topology.soft)


def edge_jacobian(system: System, frame: Frames, at: Points, edges: np.ndarray) -> tuple:
    """J (edges, nv, lanes or 1) of the lengths of some edges, the lengths, and the edges' numbers of ends."""
    layout = plan(system.topology)
    ends = layout.ends[edges]
    _, direction, length = _along(at.world, ends)
    ang, lin = (tuple(column([s[part][k] for s in frame.subspace]) for k in range(3)) for part in (0, 1))
    still = all(isinstance(x, float) and x == 0.0 for s in frame.subspace for x in s.ang)
    roots = [frame.pose[system.tables.root[link]].pos for link in system.tables.dof_link]
    origin = tuple(column([r[k] for r in roots]) for k in range(3))
    second = tuple(x[ends[:, 1]] for x in at.world)
    return _jacobian(layout.sign[edges], direction, second, None if still else ang, lin, origin), length, ends


@stage
def _jacobian(sign, direction, point, ang, lin, origin):
    """A dof that moves both ends changes no length."""
    velocity = tuple(x[None] for x in lin)
    if ang is not None:
        arm = tuple(p[:, None] - o for p, o in zip(point, origin, strict=True))
        velocity = vadd(velocity, cross(ang, arm))
    return sign[..., None] * dot(tuple(x[:, None] for x in direction), velocity)


def edge_mobility(system: System, exact):
    """What a unit force along each edge that keeps its length moves: exact (edges, lanes or 1), or between simple bodies the mean of what
    it moves them each (the engine's rule)."""
    layout = plan(system.topology)
    if not layout.light.any():
        return exact
    own = np.flatnonzero(layout.light)
    points = layout.ends[layout.kept[own]]
    used, back = np.unique(points, return_inverse=True)
    lightness = _lightness(column([system.bodies[layout.bodies[i]].mass for i in used.tolist()]))[_numbers(back.reshape(points.shape))]
    both = jnp.concatenate([exact, jnp.broadcast_to(0.5 * (lightness[:, 0] + lightness[:, 1]), (len(own), exact.shape[-1]))])
    place = np.arange(len(exact))
    place[own] = len(exact) + np.arange(len(own))
    return both[_numbers(place)]


def _lightness(mass):
    return jnp.where(mass > 0, 1.0 / jnp.where(mass > 0, mass, 1.0), 0.0)


def edge_rows(system: System, frame: Frames, v) -> Rows:
    """The rows of all edges that keep their lengths; arrays with an axis of lanes."""
    layout, soft = plan(system.topology), system.soft
    at = points(system, frame)
    J, length, ends = edge_jacobian(system, frame, at, layout.kept)
    rate = _rates(_speeds(system, frame, v, at), _along(at.world, ends)[1], ends)
    used, back = np.unique(layout.soft, return_inverse=True)
    back = _numbers(back)
    solref, solimp = (
        [column([numbers[i][k] for i in used.tolist()])[back] for k in range(n)] for numbers, n in ((soft.solref, 2), (soft.solimp, 5))
    )
    assert system.mobility is not None
    safe = "refsafe" not in system.topology.disabled
    stiffness, offset = _softness(length - system.flex.length[layout.kept], rate, solref, solimp, system.mobility.edges, system.dt, safe)
    width = max(x.shape[-1] for x in (J, stiffness, offset))
    J, stiffness, offset = (jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in (J, stiffness, offset))
    bound = jnp.full_like(offset, INFINITE)
    return Rows(np.zeros((0, J.shape[1])), J, stiffness, offset, -bound, bound)


@stage
def _softness(gap, rate, solref, solimp, mobility, dt, safe: bool):
    d = impedance(gap, solimp)
    k, b = reference(solref, solimp, dt, safe)
    return 1.0 / jnp.maximum(TINY, (1.0 - d) / d * mobility), b * rate + k * d * gap


def edge_damping(system: System, frame: Frames, whole: bool) -> tuple[list, dict]:
    """J^T d J of the dampers along edges: its diagonal, and what couples a dof with those that move it (row, column). whole: not without
    what the sparsity of the mass matrix leaves out. Under the rules 4.0 nothing of flexes is implicit."""
    layout = plan(system.topology) if system.topology.flexes else None
    if layout is None or not len(layout.springs) or system.topology.rules == "4.0":
        return [], {}
    J, *_ = edge_jacobian(system, frame, points(system, frame), layout.springs)
    moves, body = layout.sign[layout.springs] != 0, [system.topology.links[link].body for link in system.tables.dof_link]
    pairs = [(i, i) for i in range(len(body)) if moves[:, i].any()]
    for i, before in enumerate(system.tables.before):
        if whole or body[i] not in layout.simple:
            pairs += [(i, j) for j in before if (moves[:, i] & moves[:, j]).any()]
    first, second = _numbers(pairs).T
    found = pairwise_sum(system.flex.edge_damping[layout.spring][:, None] * J[:, first] * J[:, second])
    lanes = lanes_of(system, frame)
    entries = dict(zip(pairs, list(found if lanes else found[:, 0]), strict=True))
    return [entries.pop((i, i), 0.0) for i in range(len(body))], entries
