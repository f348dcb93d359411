"""The mesh of a signed distance function, which gives geoms of type sdf their mass and their bounds: marching cubes.

Source of the algorithm: Lorensen, Cline, Marching Cubes (1987). The grid, the single precision of distances and vertices, and the triangles
of each cube are those of MuJoCo, so that masses agree.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.mesh_files import Triangles
from xsim.io.reader import Element
from xsim.registry import DISTANCE_FUNCTIONS
from xsim.spec import SdfSpec

__all__ = ["sdf_surface"]

POINTS = 300
"""About the number of points of the grid along x, y and z together."""
SOURCES = ("file", "builtin", "vertex", "face", "normal", "texcoord", "scale", "refpos", "refquat")
"""Attributes of a mesh that cannot be beside a function."""


def sdf_surface(document: Document, e: Element, sdf: SdfSpec) -> Triangles:
    """The surface of the signed distance function of a <mesh>, m. Raises ParseError."""
    for name in SOURCES:
        if e.has(name):
            raise e.error("found beside a signed distance function; allowed: one of them", name)
    for name in ("content_type", "params"):
        e.raw(name)
    function = DISTANCE_FUNCTIONS[sdf.kind]
    half = function.box(sdf.numbers)
    if not (np.isfinite(half).all() and (half > 0).all()):
        found = " ".join(f"{x:g}" for x in half)
        raise e.error(f"the half extents of {sdf.kind} are {found}; allowed: numbers > 0, by the numbers of its config")
    counts = np.floor(POINTS / half.sum() * half).astype(int) + 1
    if counts.min() < 2:
        raise e.error(f"the grid of {sdf.kind} has {' x '.join(map(str, counts))} points; allowed: 2 or more, with sides that differ less")
    document.budget.spend(e, numbers=int(counts.prod()))
    axes = [-a + 2 * a * np.arange(n) / (n - 1) for a, n in zip(half, counts, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    distances = function.sample(points, sdf.numbers).astype(np.float32).reshape(counts)
    grid, faces = marching_cubes(distances)
    if not len(faces):
        raise e.error(f"{sdf.kind} has no surface in its box; allowed: other numbers of its config")
    return Triangles((2 * half * grid / (counts - 1) - half).astype(np.float32).astype(float), faces)


def marching_cubes(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The surface where distances (nx, ny, nz) on a grid are zero: vertices (n, 3) in units of the grid, float32, and faces (m, 3),
    counter-clockwise seen from where distances are positive."""
    inside = distances < 0
    vertices, numbers, count = [], [], 0
    for axis in range(3):
        first, last = _shifted(distances, axis)
        cut = np.diff(inside, axis=axis)
        number = np.full(distances.shape, -1, np.int32)
        place = np.argwhere(cut)
        number[tuple(place.T)] = count + np.arange(len(place))
        found = place.astype(np.float32)
        found[:, axis] += first[cut] / (first[cut] - last[cut])
        vertices.append(found)
        numbers.append(number)
        count += len(place)
    cells = [n - 1 for n in distances.shape]
    code = np.zeros(cells, np.uint8)
    for corner in range(8):
        code |= inside[_block(corner, cells)].astype(np.uint8) << corner
    place = np.argwhere((code > 0) & (code < 255))
    code = code[tuple(place.T)]
    edges = np.stack([numbers[e // 4][tuple((place + _offset(e)).T)] for e in range(12)], -1)
    faces = [edges[code == kind][:, np.array(_triangles()[kind])].reshape(-1, 3) for kind in np.unique(code)]
    return np.concatenate(vertices), np.concatenate([np.zeros((0, 3), int), *faces])


def _shifted(x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last points of the edges of a grid along an axis."""
    first, last = [slice(None)] * 3, [slice(None)] * 3
    first[axis], last[axis] = slice(None, -1), slice(1, None)
    return x[tuple(first)], x[tuple(last)]


# ---- cubes ------------------------------------------------------------------------------------------------------------------
# Corner x + 2 y + 4 z of a cube is at (x, y, z). Its edges 0 to 3 are along x, 4 to 7 along y, 8 to 11 along z. Bit k of a code says
# whether corner k is inside.

CHOICES = (
    "000100010012021101020008011B02130001000B000C02B00121022001B33ff1"
    "00010402001218B013124142130DB4000001043K000C1CK028B3B2D12CN9fD00"
    "00010001113B2BC30102000C103N2NC4004B034033142D211BC01KC62040f070"
    "11102B2f112f13001B1f81CDBII00000222fBSS0CC1D34101030319006001000"
)
"""For each code the number of the triangulation of its polygons, see `_triangles`, in the meshes of MuJoCo: a digit in base 64."""
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


def _block(corner: int, cells: list[int]) -> tuple[slice, ...]:
    """Where all cubes have a corner, in an array of the grid."""
    return tuple(slice(corner >> k & 1, (corner >> k & 1) + n) for k, n in enumerate(cells))


def _edge(a: int, b: int) -> int:
    """The edge between two corners."""
    axis, corner = (a ^ b).bit_length() - 1, min(a, b)
    low, high = (k for k in range(3) if k != axis)
    return 4 * axis + (corner >> low & 1) + 2 * (corner >> high & 1)


def _offset(edge: int) -> np.ndarray:
    """The first corner of an edge."""
    low, high = (k for k in range(3) if k != edge // 4)
    return (edge & 1) * np.eye(3, dtype=int)[low] + (edge >> 1 & 1) * np.eye(3, dtype=int)[high]


def _polygons(code: int) -> list[list[int]]:
    """The polygons, as edges, in which the surface cuts a cube. Where a face of the cube has two corners inside that are no neighbours,
    the surface separates them."""
    after: dict[int, int] = {}
    for axis in range(3):
        u, v = 1 << (axis + 1) % 3, 1 << (axis + 2) % 3
        for base, ring in ((1 << axis, (0, u, u | v, v)), (0, (0, v, u | v, u))):  # counter-clockwise seen from outside
            corners = [base | c for c in ring]
            inside = [code >> c & 1 for c in corners]
            edges = [_edge(corners[i], corners[(i + 1) % 4]) for i in range(4)]
            entries = [i for i in range(4) if not inside[i] and inside[(i + 1) % 4]]
            for i in entries:
                leave = next(k % 4 for k in range(i + 1, i + 5) if inside[k % 4] and not inside[(k + 1) % 4])
                after[edges[i]] = edges[leave]
    out = []
    while after:
        ring = [min(after)]
        while (edge := after.pop(ring[-1])) != ring[0]:
            ring.append(edge)
        out.append(ring)
    return out


def _triangulations(ring: list[int]) -> list[list[tuple[int, int, int]]]:
    """All triangulations of a polygon, in the order of the corner that its first and its last corner make a triangle with."""
    if len(ring) < 3:
        return [[]]
    out = []
    for k in range(1, len(ring) - 1):
        parts = itertools.product(_triangulations(ring[: k + 1]), _triangulations(ring[k:]))
        out += [[(ring[0], ring[k], ring[-1]), *first, *second] for first, second in parts]
    return out


@functools.lru_cache(maxsize=1)
def _triangles() -> list[list[tuple[int, int, int]]]:
    """For each code of a cube, the triangles of the surface in it, as edges."""
    out = []
    for code, digit in enumerate(CHOICES):
        choice, triangles = DIGITS.index(digit), []
        for ring in _polygons(code):
            every = _triangulations(ring)
            choice, number = divmod(choice, len(every))
            triangles += every[number]
        out.append(triangles)
    return out
