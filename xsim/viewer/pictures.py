"""A still picture: several moments of a motion over each other (matplotlib)."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xsim.io.hulls import convex_hull
from xsim.model.colors import color
from xsim.model.drawing import TrianglesInfo
from xsim.model.model import Model
from xsim.poses import Pose, normalized, rotate
from xsim.viewer.scene import Scene, make_scene
from xsim.viewer.shapes import SHAPES, convex_faces

__all__ = ["picture"]

MAX_FACES = 2000
"""A mesh with more faces is drawn as its convex hull."""


def picture(
    model: Model, q, path, *, dt: float | None = None, env: int = 0, moments: int = 9, azimuth: float | None = None,
    elevation: float = 14.0, title: str | None = None, dark: bool = False, inches: tuple[float, float] = (9.0, 6.0), dpi: int = 150,
) -> Path:  # fmt: skip
    """Draw several moments of a motion over each other, write the image, and return its path.

    q: (steps, nq) or (steps, *batch, nq). path: of the image; its ending gives the format. dt: time between rows, s (default: the
    model's). env: the environment drawn. moments: how many, evenly spread over the rows. azimuth, elevation: direction of the eye, degrees
    about the z axis from x, and above the ground (default azimuth: square to the motion). title: written above (default: the model's name
    and the span of time). dark: light shapes on dark paper. inches: width and height. dpi: pixels per inch.

    Raises ImportError where matplotlib is missing, ValueError for a q of the wrong width or without a finite row.
    """
    figure = _figure(inches, dpi)
    scene = make_scene(model, q, dt, (), env, None)
    finite = np.flatnonzero(np.isfinite(scene.pos).all((1, 2, 3)) & np.isfinite(scene.quat).all((1, 2, 3)))
    if not len(finite):
        raise ValueError("q has no row of finite numbers")
    rows = finite[np.unique(np.linspace(0, len(finite) - 1, max(1, moments)).round().astype(int))]
    eye = _eye(scene.pos[finite, 0], azimuth, elevation)
    paper, ink = ((0.075, 0.09, 0.115), (0.88, 0.90, 0.93)) if dark else ((0.985, 0.988, 0.992), (0.13, 0.16, 0.21))
    ax = figure.add_axes((0.02, 0.09, 0.96, 0.83))
    ax.set_axis_off()
    ax.set_aspect("equal")
    _draw_ground(ax, scene, rows, eye, ink)
    _draw_solids(ax, scene, None, eye, paper, 0.75, 2.0)
    _draw_traces(ax, figure, scene, finite, eye, ink)
    for order, frame in enumerate(rows):
        age = 1.0 if len(rows) == 1 else order / (len(rows) - 1)
        _draw_solids(ax, scene, frame, eye, paper, 0.16 + 0.84 * age**1.6, 4.0 + age)
    ax.autoscale_view()
    ax.margins(0.04)
    span = f"{scene.times[rows[0]]:.2f} to {scene.times[rows[-1]]:.2f} s" if len(rows) > 1 else f"{scene.times[rows[0]]:.2f} s"
    text = title if title is not None else f"{model.topology.name or 'motion'}, {span}"
    figure.text(0.04, 0.945, _plain(text), color=ink, fontsize=13, fontweight="bold", va="center")
    path = Path(path)
    figure.savefig(path, facecolor=paper)
    return path


def _figure(inches, dpi):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a picture needs matplotlib: pip install 'xsim[plot]'") from error
    figure = Figure(figsize=inches, dpi=dpi)
    FigureCanvasAgg(figure)
    return figure


def _plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("\\", "\\\\").replace("$", r"\$")


class Eye(NamedTuple):
    """A distant eye: unit vectors to its right, up and towards the scene."""

    right: np.ndarray
    up: np.ndarray
    forward: np.ndarray

    def flat(self, x):
        """Coordinates on the paper of world points: (..., 3) -> (..., 2)."""
        return np.stack([x @ self.right, x @ self.up], -1)


def _eye(pos: np.ndarray, azimuth: float | None, elevation: float) -> Eye:
    if azimuth is None:
        points = pos.reshape(-1, 3)[:, :2]
        values, vectors = np.linalg.eigh(np.cov((points - points.mean(0)).T) if len(points) > 1 else np.eye(2))
        side = vectors[:, 0] if values[1] > 1e-9 else np.array([0.0, -1.0])
        side = -side if side[1] > 0 else side
        azimuth = math.degrees(math.atan2(side[1], side[0])) + 20.0
    a, e = math.radians(azimuth), math.radians(elevation)
    forward = -np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
    right = np.array([-math.sin(a), math.cos(a), 0.0])
    return Eye(right, np.cross(right, forward), forward)


def _draw_solids(ax, scene: Scene, frame: int | None, eye: Eye, paper, strength: float, order: float) -> None:
    """The geoms of the bodies at a frame, or of the world (None); ``strength``: how far their colours stand off the paper."""
    from matplotlib.collections import PolyCollection

    faces, colors, depth = [], [], []
    for i, geom in enumerate(scene.geoms):
        mesh, rgba = _faces(scene, i), color(geom.rgba, geom.body)
        if (geom.body < 0) != (frame is None) or not mesh or rgba[3] == 0:
            continue
        pose = Pose(scene.geom_quat[0, i], scene.geom_pos[0, i])
        if frame is not None:
            pose = Pose(scene.quat[frame, 0, geom.body], scene.pos[frame, 0, geom.body]) @ pose
        points = rotate(pose.quat, np.concatenate(mesh)) + pose.pos
        begin = np.cumsum([0, *map(len, mesh)])
        normals = normalized(np.cross(points[begin[:-1] + 1] - points[begin[:-1]], points[begin[:-1] + 2] - points[begin[:-1] + 1]))
        light = 0.62 + 0.38 * np.maximum(0.0, normals @ (0.55 * eye.up - 0.25 * eye.right - 0.8 * eye.forward))
        solid, flat, away = strength * rgba[3], eye.flat(points), points @ eye.forward
        shades = solid * light[:, None] * np.array(rgba[:3]) + (1 - solid) * np.array(paper)
        for k in np.flatnonzero(normals @ eye.forward < 0):
            faces.append(flat[begin[k] : begin[k + 1]])
            colors.append(tuple(np.clip(shades[k], 0.0, 1.0)))
            depth.append(away[begin[k] : begin[k + 1]].mean())
    if faces:
        back_to_front = np.argsort(depth)[::-1]
        faces, colors = [faces[k] for k in back_to_front], [colors[k] for k in back_to_front]
        ax.add_collection(PolyCollection(faces, facecolors=colors, edgecolors=colors, linewidths=0.4, zorder=order))


def _draw_traces(ax, figure, scene: Scene, rows: np.ndarray, eye: Eye, ink) -> None:
    """Paths of the ends of the tree, coloured by time, and the scale of the colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    if len(rows) < 2:
        return
    scale = ScalarMappable(Normalize(scene.times[rows[0]], scene.times[rows[-1]]), "plasma")
    for body, point in _ends(scene):
        path = eye.flat(rotate(scene.quat[rows, 0, body], point) + scene.pos[rows, 0, body])
        lines = LineCollection(np.stack([path[:-1], path[1:]], 1), colors=scale.to_rgba(scene.times[rows[1:]]), linewidths=1.3, alpha=0.8)
        lines.set_zorder(3.0)
        lines.set_capstyle("round")
        ax.add_collection(lines)
    bar = figure.colorbar(scale, cax=figure.add_axes((0.70, 0.06, 0.26, 0.014)), orientation="horizontal")
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=ink, length=2)
    bar.ax.set_title("time, s", fontsize=8, color=ink, loc="left", pad=3)


def _ends(scene: Scene, most: int = 6) -> list[tuple[int, np.ndarray]]:
    """Bodies that carry no moving body, with their geoms' farthest point (body frame, m)."""
    topology = scene.model.topology
    moving = [b for b, info in enumerate(topology.bodies) if info.v[1]]
    carriers = set()
    for b in moving:
        parent = topology.bodies[b].parent
        while parent >= 0:
            carriers.add(parent)
            parent = topology.bodies[parent].parent
    out = []
    for b in moving:
        if b in carriers:
            continue
        points = [np.zeros(3)]
        for i, geom in enumerate(scene.geoms):
            faces = _faces(scene, i) if geom.body == b else []
            if faces:
                corners = rotate(scene.geom_quat[0, i], np.concatenate(faces))
                far = scene.geom_pos[0, i] + corners[np.linalg.norm(scene.geom_pos[0, i] + corners, axis=-1).argmax()]
                middle = scene.geom_pos[0, i]
                points.append(middle * (far @ middle) / max(middle @ middle, 1e-12) if np.linalg.norm(middle) > 1e-6 else middle)
        out.append((b, max(points, key=np.linalg.norm)))
    return out[:most]


def _draw_ground(ax, scene: Scene, rows: np.ndarray, eye: Eye, ink) -> None:
    """A grid under the motion."""
    from matplotlib.collections import LineCollection

    points = scene.pos[rows, 0].reshape(-1, 3)
    low, high = points.min(0), points.max(0)
    size = max(float(np.linalg.norm(high - low)), 0.2)
    reach = float(scene.size.max(initial=0.0)) if scene.size.size else 0.0
    level = 0.0 if 0.0 <= low[2] <= 1.2 * size + reach else float(low[2]) - 0.15 * size
    middle, half = (low + high) / 2, 0.75 * size
    step = 10.0 ** math.floor(math.log10(size / 2))
    step *= 5 if size / step > 25 else 2 if size / step > 10 else 1
    first, last = np.floor((middle[:2] - half) / step) * step, np.ceil((middle[:2] + half) / step) * step
    lines = []
    for k in (0, 1):
        for x in np.arange(first[k], last[k] + step / 2, step):
            ends = np.full((2, 3), level)
            ends[:, k], ends[:, 1 - k] = x, (first[1 - k], last[1 - k])
            lines.append(eye.flat(ends))
    ax.add_collection(LineCollection(lines, colors=[(*ink, 0.16)], linewidths=0.7, zorder=1.0))


def _faces(scene: Scene, i: int) -> list[np.ndarray]:
    """The convex faces of a drawn geom in its frame, [(corners, 3)]; none of a shape without faces."""
    surface, size = scene.surfaces[i], scene.size[0, i]
    if surface is not None:
        return [corners * size for corners in _triangles(surface)]
    shape = scene.geoms[i].shape
    return convex_faces(shape, tuple(size.tolist())) if shape in SHAPES else []


@functools.lru_cache(maxsize=64)
def _triangles(surface: TrianglesInfo) -> list[np.ndarray]:
    vertices, faces = surface.vertices.value.astype(float), surface.faces.value
    if len(faces) > MAX_FACES:
        hull = convex_hull(vertices)
        faces = faces if hull is None else hull
    return list(vertices[faces])
