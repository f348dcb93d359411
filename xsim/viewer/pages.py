"""Pages that play a motion in any browser, and an object that shows them in notebooks.

`page` writes one HTML text without outside references: poses, shapes and the program that draws them with WebGL (three.js, which is
part of the page). No network is used.

Everywhere q is (steps, nq) or (steps, *batch, nq), one row per time; (nq,) is a single configuration.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from xsim.dynamics.contact_list import ContactData
from xsim.model.colors import color
from xsim.model.drawing import TrianglesInfo
from xsim.model.model import Model
from xsim.viewer.finishes import Finish, geom_finish, missing_textures, sky_images, surface_finish, texture_mapping
from xsim.viewer.paths import tendon_paths
from xsim.viewer.scene import Scene, axis_directions, axis_links, leaf_values, make_scene
from xsim.viewer.textures import data_url

__all__ = ["View", "page", "save", "show"]

MAX_ENVS = 16
SCRIPTS = ("motion.js", "shapes.js", "draw.js", "controls.js")
"""The program of a page, in order; they share one scope."""


def page(
    model: Model, q, *, dt: float | None = None, env: int | None = None, envs: int | Sequence[int] = MAX_ENVS,
    title: str | None = None, fps: float | None = 60.0, collisions: bool = False, contacts: ContactData | None = None,
) -> str:  # fmt: skip
    """A self-contained HTML page that plays a trajectory, as text.

    q: (steps, nq), (steps, *batch, nq), or one configuration (nq,). dt: time between rows of q, s (default: the model's time step).
    env: the environment shown first; None: all side by side. envs: how many environments the page has (the first ones), or their indices
    in the flattened batch. title: of the page (default: the model's name). fps: largest number of rows per second; the page leaves out
    the others, but not the last. None: all rows. collisions: draw the shapes by which geoms collide (of meshes the convex hulls), not the
    visible ones. contacts: what `xsim.contacts` gives for the rows of q, (steps, *batch, n); the page then shows points and forces.

    What cannot be drawn, such as a mesh without its file, the page lists. Vertices of meshes, flexes and skins are those of the file, also
    where leaves of the model have changed.

    Raises ValueError for a q of the wrong width, an environment outside the batch, a dt that is not positive, or contacts of another
    number of rows.
    """
    scene = make_scene(model, q, dt, envs, env, fps, collisions)
    title = title or model.topology.name or "xsim"
    data = _page_data(scene, title, -1 if env is None else scene.envs.index(env))
    data["contacts"] = None if contacts is None else _contacts(scene, contacts, np.shape(q))
    parts = {
        "TITLE": html.escape(title), "STYLE": _asset("viewer.css"), "DATA": _script_json(data), "THREE": _asset("three.bundle.min.js"),
        "SCRIPT": "\n".join(map(_asset, SCRIPTS)),
    }  # fmt: skip
    out = []
    for index, piece in enumerate(_asset("page.html").split("%%")):
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


def _packed(x: np.ndarray, kind: str = "<f4") -> str:
    return base64.b64encode(np.ascontiguousarray(x, kind).tobytes()).decode("ascii")


def _rounded(x) -> list:
    """Nested lists of finite numbers with six digits."""
    x = np.nan_to_num(np.asarray(x, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return json.loads(json.dumps(x.tolist()), parse_float=lambda s: float(f"{float(s):.6g}"))


# ---- what a page holds -------------------------------------------------------------------------------------------------------


def _page_data(scene: Scene, title: str, shown: int) -> dict[str, Any]:
    topology = scene.model.topology
    meshes = {id(surface): surface for surface in scene.surfaces if surface is not None}
    number = {key: i for i, key in enumerate(meshes)}
    textures = _Textures()
    geoms = [
        {"name": g.name, "body": g.body, "shape": g.shape, "mesh": number.get(id(scene.surfaces[i]), -1)} | textures.of_geom(scene, i)
        for i, g in enumerate(scene.geoms)
    ]
    placed = {geom["mesh"] for geom in geoms if geom.get("given")}
    finishes = [surface_finish(topology, s) for s in topology.drawing.surfaces]
    surfaces = [_surface(s) | textures.of(f) | {"repeat": f.repeat} for s, f in zip(topology.drawing.surfaces, finishes, strict=True)]
    sky = textures.number(sky_images(topology))
    paths, pieces = tendon_paths(scene)
    return {
        "title": title,
        "times": _rounded(scene.times),
        "envs": list(scene.envs),
        "shown": shown,
        "bodies": [b.name for b in topology.bodies],
        "geoms": geoms,
        "meshes": [_mesh(m, i in placed) for i, m in enumerate(meshes.values())],
        "textures": textures.pictures,
        "sky": sky,
        "size": _rounded(scene.size),
        "pos": _rounded(scene.geom_pos),
        "quat": _rounded(scene.geom_quat),
        "axes": [{"body": a.body, "kind": a.kind} for a in axis_links(scene.model)],
        "poses": _packed(np.concatenate([scene.pos, scene.quat], -1)),
        "directions": _packed(axis_directions(scene)),
        "surfaces": surfaces,
        "sites": _sites(scene),
        "tendons": [_tendon(scene, *piece) for piece in pieces],
        "paths": _packed(paths),
        "missing": [*scene.missing, *missing_textures(scene)],
    }


class _Textures:
    """The pictures of a page, each once. pictures: of each, its different images as texts, which of them is on each side (of a cube six,
    else one), and whether it has opacities."""

    def __init__(self):
        self.pictures: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}

    def number(self, images: tuple[np.ndarray, ...]) -> int:
        """The number of a texture, -1 of none."""
        if not images:
            return -1
        key = id(images[0])
        if key not in self._numbers:
            texts = [data_url(image) for image in images]
            unique = list(dict.fromkeys(texts))
            self._numbers[key] = len(self.pictures)
            self.pictures.append({"images": unique, "sides": [unique.index(text) for text in texts], "clear": images[0].shape[2] == 4})
        return self._numbers[key]

    def of_geom(self, scene: Scene, i: int) -> dict[str, Any]:
        """What a page says of the surface of a drawn geom. factors, given: see `Mapping`."""
        finish = geom_finish(scene, i)
        if not finish.images:
            return self.of(finish)
        mapping = texture_mapping(scene, i, finish)
        return self.of(finish) | {"factors": _rounded(mapping.factors), "given": mapping.given}

    def of(self, finish: Finish) -> dict[str, Any]:
        """What a page says of a surface: colour, texture, and the numbers of its material."""
        out: dict[str, Any] = {"rgba": _rounded(finish.rgba), "texture": self.number(finish.images)}
        if finish.material is not None:
            names = ("emission", "specular", "shininess", "metallic", "roughness")
            out["finish"] = {name: _rounded(getattr(finish.material, name)) for name in names}
        return out


def _mesh(m: TrianglesInfo, placed: bool) -> dict[str, Any]:
    """A mesh of a page. placed: whether a picture is on it by its texture coordinates."""
    texcoords = {"texcoords": _packed(m.texcoords.value)} if placed and m.texcoords is not None else {}
    return {"vertices": _packed(m.vertices.value), "faces": _packed(m.faces.value, "<u4")} | texcoords


def _surface(info) -> dict[str, Any]:
    """A flex or skin: lines or triangles whose vertices follow bodies."""
    numbers = {name: _packed(getattr(info, name).value, "<i4") for name in ("vertices", "bodies")}
    return numbers | {
        "name": info.name,
        "count": info.count,
        "corners": info.elements.value.shape[1],
        "elements": _packed(info.elements.value, "<u4"),
        "points": _packed(info.points.value),
        "weights": _packed(info.weights.value),
        "radius": info.radius,
        **({} if info.texcoords is None else {"texcoords": _packed(info.texcoords.value)}),
    }


def _sites(scene: Scene) -> list[dict[str, Any]]:
    """Sites, with their places in each environment (or the same for all)."""
    pos, quat = (leaf_values(scene.model, f"site.{name}").astype(float) for name in ("pos", "quat"))
    pos, quat = (x if x.ndim == 3 else x[None] for x in (pos, quat))
    out = []
    for i, (site, rgba) in enumerate(zip(scene.model.topology.sites, scene.model.topology.drawing.sites, strict=True)):
        size = (*site.size, 0.0, 0.0, 0.0)[:3]
        look = {"name": site.name, "body": site.body, "shape": site.shape, "size": _rounded(size)}
        out.append(look | {"rgba": _rounded(color(rgba, site.body)), "pos": _rounded(pos[:, i]), "quat": _rounded(quat[:, i])})
    return out


def _tendon(scene: Scene, number: int, first: int, count: int) -> dict[str, Any]:
    """A connected piece of the path of a tendon; first, count: its points in "paths"."""
    rgba, width = scene.model.topology.drawing.tendons[number]
    name = scene.model.topology.tendons[number].name
    return {"name": name, "rgba": _rounded(color(rgba, number)), "width": width, "first": first, "count": count}


def _contacts(scene: Scene, contacts: ContactData, shape: tuple[int, ...]) -> dict[str, Any]:
    """Points and forces of contacts, (frames, envs, n, 6), world; NaN for what is no contact."""
    active, point, frame, force = (np.asarray(x) for x in (contacts.active, contacts.point, contacts.frame, contacts.force))
    rows = 1 if len(shape) == 1 else shape[0]
    expected = (rows, *scene.batch)
    if len(shape) == 1 and active.ndim == 1:
        active, point, frame, force = (x[None] for x in (active, point, frame, force))
    if active.shape[:-1] != expected:
        raise ValueError(f"contacts must have the shape (steps, *batch, n) = {(*expected, 'n')}, found {active.shape}")
    world = np.einsum("...ij,...i->...j", frame, force[..., :3])
    both = np.where(active[..., None], np.concatenate([point, world], -1), np.nan)
    both = both[scene.rows].reshape(len(scene.rows), -1, *both.shape[-2:])[:, np.asarray(scene.envs)]
    return {"count": both.shape[2], "numbers": _packed(both)}
