"""Look at a motion: a page that plays it in any browser, a notebook object, a still picture.

`page` writes one HTML text without outside references: poses, shapes and a small renderer in plain JavaScript that draws on a
2D canvas (no OpenGL, no WebGL, no network). `picture` draws several moments of a motion over each other (matplotlib).

Everywhere q is (steps, nq) or (steps, *batch, nq), one row per time; (nq,) is a single configuration.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.layout import batch_shape
from xsim.dynamics.queries import kinematics
from xsim.model.model import Frozen, Model
from xsim.model.topology import GeomInfo
from xsim.poses import Pose, normalized, quat_mul, rotate

__all__ = ["View", "page", "picture", "save", "show"]

MAX_ENVS = 16
_WORLD_COLOR = (0.58, 0.60, 0.63, 1.0)
_PALETTE = (
    (0.27, 0.51, 0.75, 1.0), (0.93, 0.55, 0.28, 1.0), (0.40, 0.68, 0.42, 1.0), (0.80, 0.38, 0.40, 1.0),
    (0.56, 0.47, 0.74, 1.0), (0.32, 0.66, 0.68, 1.0), (0.85, 0.72, 0.32, 1.0), (0.62, 0.49, 0.42, 1.0),
)  # fmt: skip


# ---- page --------------------------------------------------------------------------------------------------------------------


def page(
    model: Model, q, *, dt: float | None = None, env: int | None = None, envs: int | Sequence[int] = MAX_ENVS,
    title: str | None = None, fps: float | None = 60.0,
) -> str:  # fmt: skip
    """A self-contained HTML page that plays a trajectory, as text.

    q: (steps, nq), (steps, *batch, nq), or one configuration (nq,). dt: time between rows of q, s (default: the model's time step).
    env: the environment shown first; None: all side by side. envs: how many environments the page has (the first ones), or their indices
    in the flattened batch. title: of the page (default: the model's name). fps: largest number of rows per second; the page leaves out
    the others, but not the last. None: all rows.

    Raises ValueError for a q of the wrong width, an environment outside the batch or a dt that is not positive.
    """
    scene = _scene(model, q, dt, envs, env, fps)
    title = title or model.topology.name or "xsim"
    data = _page_data(scene, title, -1 if env is None else scene.envs.index(env))
    template = _asset("page.html")
    parts = {"TITLE": html.escape(title), "STYLE": _asset("viewer.css"), "DATA": _script_json(data), "SCRIPT": _asset("viewer.js")}
    out = []
    for index, piece in enumerate(template.split("%%")):
        out.append(parts[piece] if index % 2 else piece)
    return "".join(out)


def save(model: Model, q, path, **options) -> Path:
    """Write `page` to a file and return its path.

    q: as in `page`. options: those of `page`, and its errors. Raises OSError where the file cannot be written.
    """
    path = Path(path)
    path.write_text(page(model, q, **options), encoding="utf-8")
    return path


def show(model: Model, q, *, height: int = 480, **options) -> View:
    """The motion as an object that notebooks display.

    q: as in `page`. height: of the frame, pixels. options: those of `page`, and its errors.
    """
    return View(page(model, q, **options), height)


class View:
    """A page that a notebook shows in a frame, made by `show`. ``html``: the page's text."""

    def __init__(self, text: str, height: int = 480):
        self.html = text
        self.height = int(height)

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:0;border-radius:8px"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(self.html, quote=True)}"></iframe>'

    def save(self, path) -> Path:
        """Write the page to a file and return its path."""
        path = Path(path)
        path.write_text(self.html, encoding="utf-8")
        return path


def _asset(name: str) -> str:
    return (files("xsim.viewer") / "assets" / name).read_text(encoding="utf-8")


def _script_json(data) -> str:
    """JSON that cannot end the script element it stands in, whatever its strings hold."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _packed(x: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(x, "<f4").tobytes()).decode("ascii")


def _rounded(x) -> list:
    """Nested lists of finite numbers with six digits."""
    x = np.nan_to_num(np.asarray(x, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return json.loads(json.dumps(x.tolist()), parse_float=lambda s: float(f"{float(s):.6g}"))


def _page_data(scene: Scene, title: str, shown: int) -> dict:
    topology = scene.model.topology
    return {
        "title": title,
        "times": _rounded(scene.times),
        "envs": list(scene.envs),
        "shown": shown,
        "bodies": [b.name for b in topology.bodies],
        "geoms": [{"name": g.name, "body": g.body, "shape": g.shape, "rgba": _rounded(_color(g))} for g in _visible_geoms(topology)],
        "size": _rounded(scene.size),
        "pos": _rounded(scene.geom_pos),
        "quat": _rounded(scene.geom_quat),
        "axes": [{"body": a.body, "kind": a.kind} for a in _axis_links(scene.model)],
        "poses": _packed(np.concatenate([scene.pos, scene.quat], -1)),
        "directions": _packed(_axis_directions(scene)),
    }


# ---- the scene ---------------------------------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """Numbers of a drawing for the chosen environments.

    q (frames, envs, nq); pos (frames, envs, nbody, 3), quat (..., 4): world poses of the bodies; times (frames,) s;
    size, geom_pos, geom_quat: (envs or 1, geoms, 3 or 4), the visible geoms of the topology, in order.
    """

    model: Model
    envs: tuple[int, ...]
    times: np.ndarray
    q: np.ndarray
    pos: np.ndarray
    quat: np.ndarray
    size: np.ndarray
    geom_pos: np.ndarray
    geom_quat: np.ndarray


def _scene(model: Model, q, dt, envs, env, fps) -> Scene:
    q = jnp.asarray(q, model.option.gravity.dtype)
    if q.ndim == 0 or q.shape[-1] != model.nq:
        raise ValueError(f"q must have shape (steps, {model.nq}) or (steps, *batch, {model.nq}), found {q.shape}")
    q = q[None] if q.ndim == 1 else q
    if not q.shape[0]:
        raise ValueError("q has no rows")
    batch = batch_shape(model, (q[0], 1))
    chosen = _chosen(envs, env, math.prod(batch))
    model = _sliced(model, batch, chosen)
    dt = float(np.ravel(_array(model, "option.dt"))[0]) if dt is None else float(dt)
    if not (dt > 0 and math.isfinite(dt)):
        raise ValueError(f"dt must be positive, found {dt}")
    steps = _shown_steps(q.shape[0], dt, fps)
    q = jnp.broadcast_to(q[steps].reshape(len(steps), *(1,) * (1 + len(batch) - q.ndim + 1), *q.shape[1:]), (len(steps), *batch, model.nq))
    q = q.reshape(len(steps), -1, model.nq)[:, np.asarray(chosen)]
    pos, quat = _poses(model, q)
    frames = (len(steps), len(chosen), len(model.topology.bodies))
    return Scene(model, chosen, steps * dt, np.asarray(q), np.asarray(pos).reshape(*frames, 3), np.asarray(quat).reshape(*frames, 4),
                 *_geom_numbers(model))  # fmt: skip


def _poses(model: Model, q):
    """`kinematics`, compiled; on CPU without the fusion pass, which costs more time here than it saves."""
    options = {"xla_disable_hlo_passes": "fusion"} if jax.default_backend() == "cpu" else None
    return jax.jit(kinematics, compiler_options=options)(model, q)


def _with(envs, env: int):
    """``envs`` with ``env`` among them."""
    if isinstance(envs, int):
        return envs if 0 <= env < envs else (*range(envs - 1), env)
    return tuple(envs) if env in tuple(envs) else (*envs, env)


def _chosen(envs, env: int | None, count: int) -> tuple[int, ...]:
    if env is not None and not 0 <= env < count:
        raise ValueError(f"there is no environment {env}: the batch has {count}")
    envs = envs if env is None else _with(envs, env)
    chosen = tuple(range(min(envs, count))) if isinstance(envs, int) else tuple(map(int, envs))
    if not chosen:
        raise ValueError("no environment to draw: envs is empty")
    for e in chosen:
        if not 0 <= e < count:
            raise ValueError(f"there is no environment {e}: the batch has {count}")
    return chosen


def _shown_steps(steps: int, dt: float, fps: float | None) -> np.ndarray:
    stride = 1 if fps is None else max(1, math.floor(1.0 / (fps * dt) + 1e-6))
    rows = np.arange(0, steps, stride)
    return rows if rows[-1] == steps - 1 else np.append(rows, steps - 1)


def _array(model: Model, path: str) -> np.ndarray:
    leaf = model.get(path)
    return np.asarray(leaf.value if isinstance(leaf, Frozen) else leaf)


def _sliced(model: Model, batch: tuple[int, ...], chosen: tuple[int, ...]) -> Model:
    """The model with the per-environment leaves of the chosen environments: (envs, *shape)."""
    changes = {}
    for path in model.paths():
        leaf, shape = model.get(path), model.shape(path)
        if not isinstance(leaf, Frozen) and leaf.shape != shape:
            full = jnp.broadcast_to(leaf, (*batch, *shape)).reshape(-1, *shape)
            changes[path] = full[np.asarray(chosen)]
    return model.replace(changes)


def _visible_geoms(topology) -> list[GeomInfo]:
    return [g for g in topology.geoms if g.visible]


def _geom_numbers(model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """size, pos, quat of every geom, from the leaves where there are leaves: (envs or 1, geoms, 3 or 4)."""
    geoms, out = _visible_geoms(model.topology), []
    for name, width in (("size", 3), ("pos", 3), ("quat", 4)):
        leaf = _array(model, f"geom.{name}").astype(np.float64)
        leaf = leaf if leaf.ndim == 3 else leaf[None]
        loaded = [np.pad(getattr(g, name)[:width], (0, width - len(getattr(g, name)[:width]))) for g in geoms]
        x = np.repeat(np.reshape(loaded, (1, len(geoms), width)), len(leaf), 0)
        for i, g in enumerate(geoms):
            if g.row is not None:
                x[:, i] = leaf[:, g.row]
        out.append(x)
    return tuple(out)


def _color(geom: GeomInfo) -> tuple[float, ...]:
    if geom.rgba is not None:
        return tuple(min(max(float(c), 0.0), 1.0) for c in geom.rgba)
    return _WORLD_COLOR if geom.body < 0 else _PALETTE[geom.body % len(_PALETTE)]


# ---- joint axes --------------------------------------------------------------------------------------------------------------


def _axis_links(model: Model) -> list:
    """The links that turn about, or slide along, a row of joint.axes."""
    return [link for link in model.topology.links if isinstance(link.axis, int)]


def _axis_directions(scene: Scene) -> np.ndarray:
    """World directions of the joint axes: (frames, envs, axes, 3). An axis moves with the links before it in its joint's chain."""
    model, topology = scene.model, scene.model.topology
    axes, tree, refs = (_array(model, path).astype(float) for path in ("joint.axes", "body.quat", "joint.ref"))
    out = []
    quat = np.zeros(4)
    for link in topology.links:
        body = topology.bodies[link.body]
        if link.first and not link.joint:
            quat = np.broadcast_to(normalized(tree[..., link.body, :]), (*scene.q.shape[:2], 4))
            if body.parent >= 0:
                quat = quat_mul(scene.quat[:, :, body.parent], quat)
        axis = normalized(axes[..., link.axis, :]) if isinstance(link.axis, int) else np.asarray(link.axis or (0, 0, 0), float)
        if isinstance(link.axis, int):
            out.append(rotate(quat, axis))
        value = scene.q[..., link.q : link.q + link.nq]
        if link.ref is not None:
            value = value - refs[..., link.ref, None]
        if link.kind == "ball":
            quat = quat_mul(quat, normalized(value))
        elif link.kind in ("hinge", "screw"):
            quat = quat_mul(quat, np.concatenate([np.cos(value / 2), np.sin(value / 2) * axis], -1))
    return np.stack(out, 2) if out else np.zeros((*scene.q.shape[:2], 0, 3))


# ---- still picture -----------------------------------------------------------------------------------------------------------


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
    scene = _scene(model, q, dt, (), env, None)
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
    for i, geom in enumerate(_visible_geoms(scene.model.topology)):
        if (geom.body < 0) != (frame is None) or geom.shape not in _MESHES or _color(geom)[3] == 0:
            continue
        pose = Pose(scene.geom_quat[0, i], scene.geom_pos[0, i])
        if frame is not None:
            pose = Pose(scene.quat[frame, 0, geom.body], scene.pos[frame, 0, geom.body]) @ pose
        mesh = _mesh(geom.shape, tuple(scene.size[0, i].tolist()))
        points = rotate(pose.quat, np.concatenate(mesh)) + pose.pos
        begin = np.cumsum([0, *map(len, mesh)])
        normals = normalized(np.cross(points[begin[:-1] + 1] - points[begin[:-1]], points[begin[:-1] + 2] - points[begin[:-1] + 1]))
        light = 0.62 + 0.38 * np.maximum(0.0, normals @ (0.55 * eye.up - 0.25 * eye.right - 0.8 * eye.forward))
        solid, flat, away = strength * _color(geom)[3], eye.flat(points), points @ eye.forward
        shades = solid * light[:, None] * np.array(_color(geom)[:3]) + (1 - solid) * np.array(paper)
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
        for i, geom in enumerate(_visible_geoms(topology)):
            if geom.body == b and geom.shape in _MESHES:
                corners = rotate(scene.geom_quat[0, i], np.concatenate(_mesh(geom.shape, tuple(scene.size[0, i].tolist()))))
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


@functools.lru_cache(maxsize=256)
def _mesh(shape: str, size: tuple) -> list[np.ndarray]:
    """Convex faces of a shape, corners counter-clockwise seen from outside: [(corners, 3)]."""
    return _MESHES[shape](size)


def _box(size):
    corners = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)]) * np.asarray(size[:3])
    return [corners[list(f)] for f in ((0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5))]


def _revolved(profile, n: int = 24):
    """Faces of the body of revolution of a profile [(radius x, radius y, z)] from top to bottom."""
    angle = 2 * np.pi * np.arange(n + 1) / n
    rings = [np.stack([x * np.cos(angle), y * np.sin(angle), np.full(n + 1, z)], -1) for x, y, z in profile]
    faces = []
    for a, b in zip(rings[:-1], rings[1:], strict=True):
        for i in range(n):
            corners = [a[i], b[i], b[i + 1], a[i + 1]]
            faces.append(np.array([p for k, p in enumerate(corners) if not np.allclose(p, corners[k - 1])]))
    return [f for f in faces if len(f) > 2]


def _arc(count: int = 8):
    return [(math.sin(a), math.cos(a)) for a in np.linspace(0, math.pi / 2, count + 1)]


def _ellipsoid(size):
    upper = [(size[0] * s, size[1] * s, size[2] * c) for s, c in _arc()]
    return _revolved([*upper, *((x, y, -z) for x, y, z in upper[-2::-1])])


def _capsule(size):
    upper = [(size[0] * s, size[0] * s, size[1] + size[0] * c) for s, c in _arc(6)]
    return _revolved([*upper, *((x, y, -z) for x, y, z in upper[::-1])])


def _cylinder(size):
    r, h = size[:2]
    angle = 2 * np.pi * np.arange(24) / 24
    circle = np.stack([r * np.cos(angle), r * np.sin(angle), np.full(24, h)], -1)
    return [*_revolved([(r, r, h), (r, r, -h)]), circle, (circle * (1, 1, -1))[::-1]]


def _cone(size):
    r, h = size[:2]
    angle = 2 * np.pi * np.arange(24) / 24
    return [*_revolved([(0, 0, h), (r, r, -h)]), np.stack([r * np.cos(angle), r * np.sin(angle), np.full(24, -h)], -1)[::-1]]


_MESHES = {
    "box": _box, "sphere": lambda s: _ellipsoid((s[0],) * 3), "ellipsoid": _ellipsoid, "capsule": _capsule, "cylinder": _cylinder,
    "cone": _cone,
}  # fmt: skip
