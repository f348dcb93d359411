"""The convex hull of a mesh. It is a constant in compiled collision functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_FLAT = 1e-9  # points are in a plane, on a line or coincident if they deviate by less than this fraction of their extent


class Hull(NamedTuple):
    """A convex hull in the mesh's frame. Hulls are compared by value, so that they can be static arguments under jit.

    vertices (n, 3): m, float64.
    faces (m, 3): indices of vertices, counter-clockwise seen from outside. A flat hull has both sides.
    neighbours (n, d): indices of the vertices that share an edge with a vertex, padded with the vertex itself.
    """

    vertices: np.ndarray
    faces: np.ndarray
    neighbours: np.ndarray

    def __hash__(self):
        return hash((self.vertices.shape, self.vertices.tobytes(), self.faces.tobytes()))

    def __eq__(self, other: Any):
        return isinstance(other, Hull) and all(np.array_equal(a, b) for a, b in zip(self, other, strict=True))

    def __ne__(self, other: Any):
        return not self == other


def make_hull(vertices, faces=None) -> Hull:
    """The convex hull of points (n, 3), m.

    faces (m, 3): faces of the hull (`MeshSpec.hull`). None: Qhull computes them, which needs scipy (the extra `mesh`). Points in a plane,
    on a line, or at one position give a hull without volume. Raises ValueError if there are no points, or if one is not finite."""
    points = np.asarray(vertices, float).reshape(-1, 3)
    if not len(points) or not np.all(np.isfinite(points)):
        raise ValueError("a hull needs one or more finite vertices")
    faces = _faces(points) if faces is None else np.asarray(faces, int).reshape(-1, 3)
    used = np.unique(faces)
    new_index = np.zeros(len(points), int)
    new_index[used] = np.arange(len(used))
    faces = new_index[faces]
    return Hull(points[used], faces, _neighbours(len(used), faces))


def _faces(points: np.ndarray) -> np.ndarray:
    """The triangles (m, 3) of the hull of points, counter-clockwise seen from outside. A flat hull has both sides."""
    middle = points.mean(0)
    _, extents, axes = np.linalg.svd(points - middle, full_matrices=len(points) < 3)
    extents = np.concatenate([extents, np.zeros(3 - len(extents))])
    flat = (points - middle) @ axes.T
    rank = int(np.sum(extents > _FLAT * max(extents[0], 1e-300)))
    if rank < 2:
        first, last = int(np.argmin(flat[:, 0])), int(np.argmax(flat[:, 0]))
        return np.array([[first, last, last], [last, first, first]])
    try:
        from scipy.spatial import ConvexHull, QhullError
    except ImportError as error:
        raise ImportError("the convex hull of a mesh needs scipy: pip install 'xsim[mesh]'") from error

    if rank == 3:
        try:
            hull = ConvexHull(points, qhull_options="Qt")
        except QhullError:
            rank = 2
        else:
            faces = hull.simplices.astype(int)
            a, b, c = np.moveaxis(points[faces], 1, 0)
            inward = np.einsum("ij,ij->i", np.cross(b - a, c - a), hull.equations[:, :3]) < 0
            return np.where(inward[:, None], faces[:, ::-1], faces)
    ring = ConvexHull(flat[:, :2]).vertices  # counter-clockwise
    fan = np.array([[ring[0], ring[i], ring[i + 1]] for i in range(1, len(ring) - 1)])
    return np.concatenate([fan, fan[:, ::-1]])


def polygons(hull: Hull) -> list[tuple[np.ndarray, list[int]]]:
    """The faces of the hull: outward normal (or zero) and vertices in counter-clockwise order. Triangles in one plane are merged."""
    a, b, c = np.moveaxis(hull.vertices[hull.faces], 1, 0)
    normal = np.cross(b - a, c - a)
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = np.divide(normal, length, out=np.zeros_like(normal), where=length > 0)
    rings, faces = hull.faces.tolist(), []
    for group in _coplanar(hull, normal):
        ring = sorted(set(rings[group[0]]))
        if len(group) > 1:
            corners = np.unique(hull.faces[group])
            arms = hull.vertices[corners] - hull.vertices[corners].mean(0)
            ring = corners[np.argsort(np.arctan2(np.cross(arms[0], arms) @ normal[group[0]], arms @ arms[0]))].tolist()
        faces.append((normal[group[0]], ring))
    return faces


def _coplanar(hull: Hull, normal: np.ndarray) -> list[list[int]]:
    """The triangles of each face of the hull, by the number of their first one: neighbours in the plane of the first."""
    a, size = hull.vertices[hull.faces[:, 0]], np.ptp(hull.vertices)
    edges = np.sort(np.stack([hull.faces, np.roll(hull.faces, -1, 1)], -1).reshape(-1, 2), 1)
    of_edge: dict[tuple, list[int]] = {}
    for i, edge in enumerate(map(tuple, edges.tolist())):
        of_edge.setdefault(edge, []).append(i // 3)
    pairs = np.array([(x[i], x[j]) for x in of_edge.values() for i in range(len(x)) for j in range(i)]).reshape(-1, 2)
    alike = np.einsum("ij,ij->i", normal[pairs[:, 0]], normal[pairs[:, 1]]) > 1 - 1e-9
    neighbours: dict[int, list[int]] = {}
    for i, j in pairs[alike].tolist():
        neighbours.setdefault(i, []).append(j)
        neighbours.setdefault(j, []).append(i)
    out, done = [], set()
    for first in range(len(normal)):
        if first in done:
            continue
        group = [first]
        done.add(first)
        for i in group:
            for j in neighbours.get(i, ()):
                near = normal[j] @ normal[first] > 1 - 1e-9 and abs((a[j] - a[first]) @ normal[first]) < 1e-6 * size
                if j not in done and near:
                    done.add(j)
                    group.append(j)
        out.append(group)
    return out


def _neighbours(count: int, faces: np.ndarray) -> np.ndarray:
    """See `Hull.neighbours`."""
    adjacent: list[set] = [set() for _ in range(count)]
    for face in faces:
        for i in face:
            adjacent[i] |= set(face.tolist()) - {int(i)}
    table = np.repeat(np.arange(count)[:, None], max(1, *(len(n) for n in adjacent)) if count > 1 else 1, axis=1)
    for i, others in enumerate(adjacent):
        table[i, : len(others)] = sorted(others)
    return table
