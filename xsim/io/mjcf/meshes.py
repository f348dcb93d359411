"""Meshes as solids: volume, centre, principal frame, and primitives of like size.

Formulas: a tetrahedron with one corner at the origin and p1, p2, p3 the others has volume V = p1 . (p2 x p3) / 6 and second moments
V/20 (sum p p' + s s'), s = p1 + p2 + p3; a triangle of area A has A/12 (sum p p' + s s').
"""

from __future__ import annotations

import numpy as np

from xsim.io.hulls import convex_hull
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.mesh_files import Triangles
from xsim.io.reader import Element
from xsim.poses import IDENTITY_QUAT, quat_about, quat_mul, rotation_matrix
from xsim.spec import MeshSpec

__all__ = ["fit", "placed", "principal_axes", "solid_mesh"]

_TINY = 1e-15  # volume (m^3) and area (m^2) below which MuJoCo sees none
_ROUNDING = 1e-8  # of vertices in single precision, in inertias
_MODES = {"legacy": True, "exact": False, "convex": False}  # whether tetrahedra that lie outside are added, not subtracted


def placed(mesh: Triangles, scale, refpos, refquat) -> Triangles:
    """The mesh in the coordinates of its geom: relative to refpos, turned back by refquat, then scaled along the axes; seen from outside
    faces stay counter-clockwise when an odd number of scales is negative."""
    vertices = (mesh.vertices - refpos) @ rotation_matrix(refquat) * scale
    turned = np.prod(scale) < 0
    texcoords = mesh.texcoords[:, ::-1] if turned and mesh.texcoords is not None else mesh.texcoords
    return Triangles(vertices, mesh.faces[:, ::-1] if turned else mesh.faces, texcoords=texcoords)


def solid_mesh(document: Document, e: Element, name: str, mesh: Triangles, mode: str, most: int, needs_hull: bool = True) -> MeshSpec:
    """A mesh in its principal frame. mode: the ``inertia`` attribute; most: vertices of the hull. Raises ParseError.

    A mesh without volume keeps the frame of the file; it can be visual, or have mass as a shell. needs_hull: whether the hull is found even
    if neither mode nor most ask for it.
    """
    hull = None
    if needs_hull or mode == "convex" or most >= 0:
        hull = convex_hull(mesh.vertices, most, document.release.hull_farthest_of_all)
    if not len(mesh.faces) or mode == "convex":
        if hull is None:
            raise e.error("the vertices lie in a plane and have no convex hull; allowed: points around a volume")
    faces = mesh.faces if len(mesh.faces) else hull
    assert faces is not None
    if mode == "exact" and not _check_oriented(mesh.vertices, faces, e):
        document.notes.suspicious(e.line, f'{e}: the faces do not close, which inertia="exact" needs', e.file)
    area, middle, spread = _surface(mesh.vertices, faces)
    if mode == "shell":
        volume, centre, second = area, middle, spread
    else:
        volume, centre, second = _solid(mesh.vertices, hull if mode == "convex" and hull is not None else faces, middle, _MODES[mode])
    if volume < -_TINY:
        raise e.error('the volume is negative: the faces are clockwise seen from outside; allowed: counter-clockwise, or inertia="convex"')
    if volume < _TINY and document.release.shell_by_mesh:
        raise e.error('the mesh has no volume; allowed: faces around one, or inertia="shell"')
    if volume < _TINY:
        pos, quat, moments = np.zeros(3), IDENTITY_QUAT, np.zeros(3)
    else:
        pos, (quat, moments) = centre, principal_axes(_inertia(second), _ROUNDING)
    R = rotation_matrix(quat)
    return MeshSpec(
        name=name,
        vertices=(mesh.vertices - pos) @ R,
        faces=faces,
        volume=volume,
        area=area,
        moments=moments,
        shell=mode == "shell",
        shell_com=(middle - pos) @ R,
        shell_inertia=_six(R.T @ _inertia(spread) @ R),
        pos=pos,
        quat=quat,
        hull=hull,
        source=e.source,
    )


def _surface(vertices, faces):
    """Area, its centroid, and its second moments about that, per area."""
    p = vertices[faces]
    areas = np.linalg.norm(np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0]), axis=1) / 2
    area = float(np.sum(areas))
    if area < _TINY:
        return area, np.zeros(3), np.zeros((3, 3))
    centre = areas @ p.mean(1) / area
    q = p - centre
    s = q.sum(1)
    return area, centre, (np.einsum("f,fij,fik->jk", areas, q, q) + np.einsum("f,fj,fk->jk", areas, s, s)) / (12 * area)


def _solid(vertices, faces, middle, absolute: bool):
    """Volume, centre of mass, and second moments about it, per volume, of the tetrahedra between the faces and one point.

    Which point that is matters where the faces do not close or the tetrahedra overlap: MuJoCo finds the centre of mass with that of the
    surface, then volume and moments with the centre of mass.
    """
    volume, centre, _ = _tetrahedra(vertices[faces] - middle, absolute)
    if abs(volume) < _TINY:
        return 0.0, middle, np.zeros((3, 3))
    volume, _, second = _tetrahedra(vertices[faces] - middle - centre, absolute)
    return volume, middle + centre, second


def _tetrahedra(p, absolute: bool):
    """Volume of the tetrahedra between triangles p (m, 3, 3) and the origin, their centre, second moments about the origin per volume."""
    volumes = np.einsum("fi,fi->f", p[:, 0], np.cross(p[:, 1], p[:, 2])) / 6
    volumes = np.abs(volumes) if absolute else volumes
    volume = float(np.sum(volumes))
    s = p.sum(1)
    second = np.einsum("f,fij,fik->jk", volumes, p, p) + np.einsum("f,fj,fk->jk", volumes, s, s)
    return volume, volumes @ s / (4 * (volume or 1.0)), second / (20 * (volume or 1.0))


def _inertia(second) -> np.ndarray:
    return np.trace(second) * np.eye(3) - second


def _six(m) -> np.ndarray:
    return np.array([m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]])


def _check_oriented(vertices, faces, e: Element) -> bool:
    """Refuse faces that go around an edge in the same direction as their neighbour; returns whether each edge has two of them."""
    _, number = np.unique(vertices, axis=0, return_inverse=True)
    corners = number.reshape(-1)[faces]
    corners = corners[(corners != np.roll(corners, 1, axis=1)).all(1)]
    edges = np.stack([corners, np.roll(corners, -1, axis=1)], -1).reshape(-1, 2)
    directed, count = np.unique(edges, axis=0, return_counts=True)
    if (count > 1).any():
        a, b = vertices[[np.flatnonzero(number.reshape(-1) == i)[0] for i in directed[np.argmax(count > 1)]]].round(6).tolist()
        text = f"the faces at the edge from {a} to {b} are not turned alike; allowed: counter-clockwise seen from outside"
        raise e.error(f'{text}, or inertia="legacy" or "convex"', "inertia")
    return len(np.unique(np.concatenate([directed, directed[:, ::-1]]), axis=0)) == len(directed)


def principal_axes(inertia, rounding: float = 1e-15) -> tuple[np.ndarray, np.ndarray]:
    """Principal frame (quat) and moments (3,) of a symmetric matrix, the largest first.

    Jacobi's method from the given axes: of the frames that do, the one found is near them, as MuJoCo's is. Where they are principal axes
    but for rounding (relative), they stay; of a cube, any axes are.
    """
    scale = float(np.max(np.abs(inertia))) or 1.0
    quat = IDENTITY_QUAT
    for turn in range(100):
        R = rotation_matrix(quat)
        m = R.T @ (inertia / scale) @ R
        i, j = max(((0, 1), (0, 2), (1, 2)), key=lambda ij: abs(m[ij]))
        if abs(m[i, j]) < (1e-15 if turn else rounding):
            break
        tau = (m[j, j] - m[i, i]) / (2 * m[i, j])
        t = np.copysign(1.0, tau) / (abs(tau) + np.hypot(1.0, tau))
        axis = np.eye(3)[3 - i - j] * (1 if (j - i) == 1 else -1)
        quat = quat_mul(quat, quat_about(axis, -np.arctan(t)))
        quat = quat / np.linalg.norm(quat)
    moments = np.diag(rotation_matrix(quat).T @ inertia @ rotation_matrix(quat)).copy()
    for i, j in ((0, 1), (1, 2), (0, 1)):
        if moments[i] + rounding * scale < moments[j]:
            moments[[i, j]] = moments[[j, i]]
            quat = quat_mul(quat, quat_about(np.eye(3)[3 - i - j], np.pi / 2))
    return quat, moments


def fit(mesh: MeshSpec, shape: str, use_aabb: bool, scale: float, to_sides: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Size of a primitive of a mesh's size (half extents as in `xsim.spec`) and its pos, quat in the coordinates of the mesh's geom.

    use_aabb: of the size of the box around the mesh in its principal frame, else of the box that has its moments. to_sides: whether
    round shapes are as large as the sides of the box around; else they enclose the mesh.
    """
    R = rotation_matrix(mesh.quat)
    if not use_aabb:
        x, y, z = half = np.sqrt(np.maximum(1.5 * (np.sum(mesh.moments) - 2 * mesh.moments), 0.0))
        r = (x + y) / 2
        sizes = {"sphere": [np.mean(half)], "capsule": [r, max(z - r / 2, 0.0)], "cylinder": [r, z], "ellipsoid": half, "box": half}
        return scale * np.array(sizes[shape]), mesh.pos, mesh.quat
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    half, centre = (high - low) / 2, (high + low) / 2
    sizes = _around_sides(half) if to_sides else _around_vertices(mesh.vertices - centre, half)
    sizes |= {"ellipsoid": half, "box": half}
    return scale * np.array(sizes[shape]), mesh.pos + R @ centre, mesh.quat


def _around_sides(half) -> dict:
    r = max(half[0], half[1])
    return {"sphere": [np.max(half)], "capsule": [r, max(half[2] - r, 0.0)], "cylinder": [r, half[2]]}


def _around_vertices(d, half) -> dict:
    flat = np.hypot(d[:, 0], d[:, 1])
    r = np.max(flat)
    side = np.max(np.abs(d[:, 2]) - np.sqrt(np.maximum(r * r - flat * flat, 0.0)))
    return {"sphere": [np.max(np.linalg.norm(d, axis=1))], "capsule": [r, max(side, 0.0)], "cylinder": [r, half[2]]}
