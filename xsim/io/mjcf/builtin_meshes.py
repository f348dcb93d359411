"""Meshes that MuJoCo 4.0 makes of a few parameters (manual: asset/mesh, builtin).

Those without faces stand for the convex hull of their points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.lattices import LATTICES, SHELLS, open_shell
from xsim.io.mjcf.mesh_files import Triangles
from xsim.io.reader import Element

__all__ = ["builtin_mesh"]

_NO_FACES = np.zeros((0, 3), int)
_MAX_COUNT = 10**6


class _Range(NamedTuple):
    """The numbers that a parameter may be; an integer is cut off at the point. above: greater than low, not equal."""

    name: str
    low: float = -inf
    high: float = inf
    integer: bool = False
    above: bool = False

    def read(self, e: Element, value: float) -> float:
        value = float(int(value)) if self.integer else value
        if value > self.high or value < self.low or (self.above and value == self.low):
            kind, bracket = "integers" if self.integer else "numbers", "(" if self.above else "["
            raise e.error(f"found {value:g} for {self.name}; allowed: {kind} in {bracket}{self.low:g}, {self.high:g}]", "params")
        return value


def _count(name: str, least: int, most: int = _MAX_COUNT) -> _Range:
    return _Range(name, least, most, integer=True)


class _Kind(NamedTuple):
    """parameters: that are needed; the last ``optional`` ones need not be there. make: the mesh of their values. size: how many points
    and faces it has at most, about. shell: how a builtin mesh changes the attribute inertia: "always" to shell, where it is "legacy",
    "never", or, with the parameter dim 2, as with "legacy"."""

    parameters: tuple[_Range, ...]
    make: Callable[..., Triangles]
    size: Callable[..., float]
    shell: str = "never"
    optional: int = 0


def builtin_mesh(document: Document, e: Element, mode: str) -> tuple[Triangles, str]:
    """The mesh that the attributes ``builtin`` and ``params`` ask for, and its kind of inertia. mode: the attribute ``inertia``.
    Raises ParseError."""
    kind = KINDS[e.choice("builtin", KINDS)]
    for name in ("file", "vertex"):
        if e.has(name):
            raise e.error("found beside builtin; allowed: one of them", name)
    given = e.floats("params")
    if given is None:
        raise e.error("attribute 'params' is missing")
    names = [parameter.name for parameter in kind.parameters]
    if not len(names) - kind.optional <= len(given) <= len(names):
        raise e.error(f"found {len(given)} numbers; allowed: {' '.join(names)}" + " (dim may be left out)" * kind.optional, "params")
    values = [parameter.read(e, value) for parameter, value in zip(kind.parameters, given.tolist(), strict=False)]
    _check_counts(e, e.string("builtin"), names, values)
    document.budget.spend(e, numbers=int(min(3 * kind.size(*values), 1e18)))
    flat = kind.shell == "legacy" or kind.shell == "dim" and values[6:] == [2]
    return kind.make(*values), "shell" if kind.shell == "always" or flat and mode == "legacy" else mode


def _check_counts(e: Element, kind: str, names: list[str], values: Sequence[float]) -> None:
    """Refuse lattices that have no cells. Raises ParseError."""
    if kind not in LATTICES:
        return
    dim = LATTICES[kind][0] or (values[6] if len(values) > 6 else 3)
    for i, name in enumerate(names[:3]):
        if i < dim and values[i] < 2 or i >= dim and values[i] != 1:
            raise e.error(f"found {values[i]:g} for {name}; allowed: {'2 or more' if i < dim else '1'}", "params")


# ---- round shapes ----


def _power(x: np.ndarray, exponent: float) -> np.ndarray:
    """|x|^exponent with the sign of x."""
    return np.sign(x) * np.abs(x) ** exponent


def _sphere(subdivision: float) -> Triangles:
    """An icosahedron whose edges are halved again and again, the new points moved out to the sphere. As in MuJoCo each point has single
    precision before it is used."""
    short, long = np.array([1.0, (1 + np.sqrt(5)) / 2]) / np.hypot(1.0, (1 + np.sqrt(5)) / 2)
    one = np.array([[-short, long, 0], [short, long, 0], [-short, -long, 0], [short, -long, 0]])
    points = list(np.concatenate([one, np.roll(one, 1, axis=1), np.roll(one, 2, axis=1)]).astype(np.float32))
    faces = _ICOSAHEDRON
    for _ in range(int(subdivision)):
        halves: dict[tuple[int, int], int] = {}
        finer = []
        for a, b, c in faces:
            ab, bc, ca = (_half(points, halves, *edge) for edge in ((a, b), (b, c), (c, a)))
            finer += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
        faces = finer
    return Triangles(np.array(points), np.array(faces))


def _half(points: list[np.ndarray], halves: dict[tuple[int, int], int], a: int, b: int) -> int:
    """The number of the point between two others on the unit sphere."""
    edge = min(a, b), max(a, b)
    if edge not in halves:
        halves[edge] = len(points)
        middle = points[a] + points[b]
        x, y, z = middle * middle
        points.append(middle / np.sqrt(x + y + z))
    return halves[edge]


_ICOSAHEDRON = [
    (0, 11, 5), (0, 5, 1), (0, 1, 7), (0, 7, 10), (0, 10, 11), (1, 5, 9), (5, 11, 4), (11, 10, 2), (10, 7, 6), (7, 1, 8), (3, 9, 4),
    (3, 4, 2), (3, 2, 6), (3, 6, 8), (3, 8, 9), (4, 9, 5), (2, 4, 11), (6, 2, 10), (8, 6, 7), (9, 8, 1),
]  # fmt: skip


def _hemisphere(resolution: float) -> Triangles:
    """Rings around the pole, the n-th of 4 n points, and the centre of the base. Before they move out to the sphere, the rings are squares
    that stand on their corners."""
    last = int(resolution) + 1
    points, faces, ring = [[0.0, 0.0, 1.0]], [], [0]
    for n in range(1, last + 1):
        corners = [(n, 0), (0, n), (-n, 0), (0, -n), (n, 0)]
        sides = [np.linspace(a, b, n, endpoint=False) for a, b in zip(corners[:-1], corners[1:], strict=True)]
        square = np.concatenate(sides).round()
        outer = list(range(len(points), len(points) + 4 * n))
        points += _normalized(np.column_stack([square, np.full(4 * n, last - n)])).tolist()
        for i in range(4 * n):
            side, step = divmod(i, n)
            inner = side * (n - 1) + step
            a, b = (ring[j % len(ring)] for j in (inner, inner + 1))
            c, d = outer[i], outer[(i + 1) % len(outer)]
            faces += [(a, c, d)] if step == n - 1 else [(a, c, d), (a, d, b)]
        ring = outer
    faces += [(a, len(points), b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]
    return Triangles(np.array([*points, [0.0, 0.0, 0.0]]), np.array(faces))


def _normalized(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1)[:, None]


def _cone(edges: float, radius: float) -> Triangles:
    """Points around two polygons, or around one and a tip."""
    angles = 2 * np.pi * np.arange(int(edges)) / int(edges)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    below = np.column_stack([circle, np.full(len(circle), -1.0)])
    above = np.column_stack([radius * circle, np.ones(len(circle))]) if radius > 0 else np.array([[0.0, 0.0, 1.0]])
    return Triangles(np.concatenate([below, above]), _NO_FACES)


def _supersphere(resolution: float, e: float, n: float) -> Triangles:
    """Circles of latitude between two poles. e, n: the exponents of the cosines and sines of longitude and latitude."""
    count = int(resolution)
    longitude = -np.pi + 2 * np.pi * np.arange(count) / count
    latitude = (-np.pi / 2 + np.pi * np.arange(1, count) / count)[:, None]
    across = _power(np.cos(latitude), n)
    x, y = across * _power(np.cos(longitude), e), across * _power(np.sin(longitude), e)
    z = _power(np.sin(latitude), n) + 0 * longitude
    points = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    number = 1 + np.arange(len(points)).reshape(count - 1, count)
    first, last = number[0], number[-1]
    south = np.column_stack([np.zeros_like(first), np.roll(first, -1), first])
    north = np.column_stack([last, np.roll(last, -1), np.full_like(last, len(points) + 1)])
    middle = _quadrangles(number[:-1], np.roll(number, -1, axis=1)[:-1], number[1:], np.roll(number, -1, axis=1)[1:])
    return Triangles(np.concatenate([[[0, 0, -1.0]], points, [[0, 0, 1.0]]]), np.concatenate([south, middle, north]))


def _supertorus(resolution: float, radius: float, s: float, t: float) -> Triangles:
    """A torus of radius 1. s, t: the exponents of the cosines and sines around its section and around its axis."""
    angles = 2 * np.pi * np.arange(int(resolution)) / int(resolution)
    section, turn = angles[None, :], angles[:, None]
    out = 1 + radius * _power(np.cos(section), s)
    z = radius * _power(np.sin(section), s) + 0 * turn
    points = np.stack([out * _power(np.cos(turn), t), out * _power(np.sin(turn), t), z], axis=-1).reshape(-1, 3)
    number = np.arange(len(points)).reshape(len(angles), len(angles))
    turned, shifted = np.roll(number, -1, axis=0), np.roll(number, -1, axis=1)
    return Triangles(points, _quadrangles(number, turned, shifted, np.roll(turned, -1, axis=1)))


def _quadrangles(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Two triangles for each quadrangle a, b, d, c, counter-clockwise."""
    return np.stack([np.stack([a, b, c], axis=-1), np.stack([b, d, c], axis=-1)], axis=-2).reshape(-1, 3)


# ---- pads of tactile sensors, and lattices ----


def _wedge(res_phi: float, res_theta: float, fov_phi: float, fov_theta: float, gamma: float) -> Triangles:
    """The centres of the cells of a field of view, on the unit sphere."""
    phi = np.radians(fov_phi * _centres(res_phi, gamma))[:, None]
    theta = np.radians(fov_theta * _centres(res_theta, gamma))
    x, y, z = np.sin(phi) * np.cos(theta), np.sin(theta) + 0 * phi, -np.cos(phi) * np.cos(theta)
    along_phi, along_theta = (np.cos(phi), 0.0, np.sin(phi)), (-np.sin(phi) * np.sin(theta), np.cos(theta), np.cos(phi) * np.sin(theta))
    tangents = np.stack([np.stack(np.broadcast_arrays(*t, x)[:3], axis=-1) for t in (along_phi, along_theta)], axis=-2)
    return Triangles(np.stack([x, y, z], axis=-1).reshape(-1, 3), _NO_FACES, tangents.reshape(-1, 2, 3))


def _centres(count: float, gamma: float) -> np.ndarray:
    """The centres of the cells of [-1, 1], which are the smaller the nearer to the middle for gamma > 0."""
    edges = np.linspace(-1, 1, int(count) + 1)
    edges = gamma * edges**5 + (1 - gamma) * edges
    return (edges[1:] + edges[:-1]) / 2


def _plate(res_x: float, res_y: float) -> Triangles:
    """The centres of the cells of a square at z = -1. Its tangents are those of MuJoCo, y and z."""
    x, y = np.meshgrid(_centres(res_x, 0.0), _centres(res_y, 0.0), indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[:-1, 1:], number[1:, 1:]
    faces = np.stack([np.stack([a, b, c], axis=-1), np.stack([d, c, b], axis=-1)], axis=-2).reshape(-1, 3)
    tangents = np.tile(np.eye(3)[1:], (x.size, 1, 1))
    return Triangles(np.stack([x, y, np.full(x.shape, -1.0)], axis=-1).reshape(-1, 3), faces, tangents)


def _lattice(kind: str) -> Callable[..., Triangles]:
    """A mesh of the points that a flexcomp of this type has: of its triangles; without faces in three dimensions."""
    implied, _, make = LATTICES[kind]

    def mesh(*values: float) -> Triangles:
        counts, spacing = np.array(values[:3], int), np.array(values[3:6])
        dim = implied if kind in FLAT else int(values[6]) if len(values) > 6 else 3
        if dim == 2 and kind in SHELLS:
            return Triangles(*open_shell(counts, spacing, SHELLS[kind]))
        lattice = make(counts, spacing, dim)
        return Triangles(lattice.points, lattice.elements if dim == 2 else _NO_FACES)

    return mesh


FLAT = ("square", "disc")
_COUNTS = tuple(_count(f"count_{axis}", 1) for axis in "xyz")
_SPACING = tuple(_Range(f"spacing_{axis}") for axis in "xyz")
_DIM = _count("dim", 2, 3)


def _cells(*values: float) -> float:
    return 5 * values[0] * values[1] * values[2]


KINDS = {
    "sphere": _Kind((_count("subdivision", 0, 4),), _sphere, lambda n: 30 * 4**n),
    "hemisphere": _Kind((_count("resolution", 0, 10),), _hemisphere, lambda n: 6 * (n + 2) ** 2),
    "cone": _Kind((_count("nvert", 3), _Range("radius", 0, 1)), _cone, lambda n, r: 2 * n),
    "supersphere": _Kind((_count("resolution", 3), _Range("e", 0), _Range("n", 0)), _supersphere, lambda n, *_: 3 * n * n),
    "supertorus": _Kind(
        (_count("resolution", 3), _Range("radius", 0, 1, above=True), _Range("s", 0, above=True), _Range("t", 0, above=True)),
        _supertorus,
        lambda n, *_: 3 * n * n,
    ),
    "wedge": _Kind(
        (
            _count("res_phi", 1),
            _count("res_theta", 1),
            _Range("fov_phi", 0, 180, above=True),
            _Range("fov_theta", 0, 90, above=True),
            _Range("gamma", 0, 1),
        ),
        _wedge,
        lambda n, m, *_: n * m,
    ),
    "plate": _Kind((_count("res_x", 1), _count("res_y", 1)), _plate, lambda n, m: 3 * n * m, "always"),
    **{kind: _Kind((*_COUNTS, *_SPACING, _DIM), _lattice(kind), _cells, "dim", 1) for kind in ("grid", *SHELLS)},
    **{kind: _Kind((*_COUNTS, *_SPACING), _lattice(kind), _cells, "legacy") for kind in FLAT},
}
