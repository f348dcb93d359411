"""What a page or a picture draws, as arrays: poses, shapes, surfaces, axes of the joints, of the chosen environments and times."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.layout import batch_shape
from xsim.dynamics.queries import kinematics
from xsim.model.drawing import LookInfo, TrianglesInfo
from xsim.model.geoms import DRAWABLE
from xsim.model.model import Frozen, Model, unfrozen
from xsim.model.topology import GeomInfo, Topology
from xsim.poses import normalized, quat_mul, rotate
from xsim.viewer.shapes import MeshFile, mesh_of_file

__all__ = ["Scene", "axis_directions", "axis_links", "leaf_values", "make_scene", "moved", "quick_jit"]


class Scene(NamedTuple):
    """Numbers of a drawing for the chosen environments.

    * rows: numbers of the rows of q that are shown, (frames,). times (frames,), s. q (frames, envs, nq).
    * pos (frames, envs, nbody, 3), quat (..., 4): world poses of the bodies.
    * geoms: those drawn. surfaces: of each, None for a shape with closed form. size, pos, quat of the geoms: (envs or 1, geoms, 3 or 4).
      looks: of each, None without a material. images: the picture of its mesh file, None of none.
    * missing: what cannot be drawn, and why.
    """

    model: Model
    envs: tuple[int, ...]
    batch: tuple[int, ...]
    rows: np.ndarray
    times: np.ndarray
    q: np.ndarray
    pos: np.ndarray
    quat: np.ndarray
    geoms: tuple[GeomInfo, ...]
    surfaces: tuple[TrianglesInfo | None, ...]
    looks: tuple[LookInfo | None, ...]
    images: tuple[np.ndarray | None, ...]
    missing: tuple[str, ...]
    size: np.ndarray
    geom_pos: np.ndarray
    geom_quat: np.ndarray


def make_scene(
    model: Model, q, dt: float | None, envs, env: int | None, fps: float | None, collisions: bool = False,
) -> Scene:  # fmt: skip
    """The scene of a motion; arguments as of `page`. collisions: the shapes by which geoms collide, not the visible ones."""
    q = jnp.asarray(q, model.option.gravity.dtype)
    if q.ndim == 0 or q.shape[-1] != model.nq:
        raise ValueError(f"q must have shape (steps, {model.nq}) or (steps, *batch, {model.nq}), found {q.shape}")
    q = q[None] if q.ndim == 1 else q
    if not q.shape[0]:
        raise ValueError("q has no rows")
    batch = batch_shape(model, (q[0], 1))
    chosen = _chosen(envs, env, math.prod(batch))
    model = _sliced(model, batch, chosen)
    dt = float(np.ravel(leaf_values(model, "option.dt"))[0]) if dt is None else float(dt)
    if not (dt > 0 and math.isfinite(dt)):
        raise ValueError(f"dt must be positive, found {dt}")
    steps = _shown_steps(q.shape[0], dt, fps)
    q = jnp.broadcast_to(q[steps].reshape(len(steps), *(1,) * (1 + len(batch) - q.ndim + 1), *q.shape[1:]), (len(steps), *batch, model.nq))
    q = q.reshape(len(steps), math.prod(batch), model.nq)[:, np.asarray(chosen)]
    pos, quat = quick_jit(kinematics)(model, q)
    frames = (len(steps), len(chosen), len(model.topology.bodies))
    geoms = _colliding(model.topology) if collisions else _visible(model.topology)
    return Scene(
        model, chosen, batch, steps, steps * dt, np.asarray(q), np.asarray(pos).reshape(*frames, 3), np.asarray(quat).reshape(*frames, 4),
        *geoms, *_geom_numbers(model, geoms.geoms),
    )  # fmt: skip


def quick_jit(function):
    """`jax.jit`; on CPU without the fusion pass, which costs more time here than it saves."""
    options = {"xla_disable_hlo_passes": "fusion"} if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=options)


def moved(scene: Scene, model: Model, q) -> Scene:
    """The scene of one configuration q (nq,) of the same model, whose numbers may be others; geoms have the sizes of ``scene``."""
    pos, quat = (np.asarray(x, np.float64)[None, None] for x in quick_jit(kinematics)(model, q))
    return scene._replace(model=model, q=np.asarray(q)[None, None], pos=pos, quat=quat)


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


def leaf_values(model: Model, path: str) -> np.ndarray:
    """A leaf as a numpy array, (envs, *shape) or *shape."""
    return np.asarray(unfrozen(model.get(path)))


def _sliced(model: Model, batch: tuple[int, ...], chosen: tuple[int, ...]) -> Model:
    """The model with the per-environment leaves of the chosen environments: (envs, *shape)."""
    changes = {}
    for path in model.paths():
        leaf, shape = model.get(path), model.shape(path)
        if not isinstance(leaf, Frozen) and leaf.shape != shape:
            full = jnp.broadcast_to(leaf, (*batch, *shape)).reshape(-1, *shape)
            changes[path] = full[np.asarray(chosen)]
    return model.replace(changes)


# ---- geoms -------------------------------------------------------------------------------------------------------------------

class _Geoms(NamedTuple):
    """The geoms that are drawn, of each the surface, the look and the picture of its mesh file, and what is not drawn."""

    geoms: tuple[GeomInfo, ...]
    surfaces: tuple[TrianglesInfo | None, ...]
    looks: tuple[LookInfo | None, ...]
    images: tuple[np.ndarray | None, ...]
    missing: tuple[str, ...]


def _surface(topology: Topology, geom: GeomInfo) -> MeshFile | None | str:
    """The triangles of a visible geom; None for a shape with closed form; why it cannot be drawn."""
    if geom.asset is not None:
        held = (topology.drawing.hfields if geom.shape == "hfield" else topology.drawing.meshes)[geom.asset]
        return "not held" if held is None else MeshFile(held)
    if geom.shape in DRAWABLE:
        return None
    if not geom.file:
        return "no surface"
    return mesh_of_file(geom.file)


def _visible(topology: Topology) -> _Geoms:
    """The visible geoms. Where one cannot be drawn, the invisible shapes of its body are drawn too."""
    surfaces = {i: _surface(topology, geom) for i, geom in enumerate(topology.geoms) if geom.visible or not _can_be_drawn(geom)}
    missing = {i: why for i, why in surfaces.items() if isinstance(why, str)}
    bare = {topology.geoms[i].body for i in missing if topology.geoms[i].visible}
    for i, geom in enumerate(topology.geoms):
        if geom.body in bare and i not in surfaces and geom.asset is None and geom.shape in DRAWABLE:
            surfaces[i] = None
    drawn = sorted(surfaces.keys() - missing.keys())
    texts = dict.fromkeys(_missing(topology.geoms[i], why) for i, why in missing.items())
    found: list[Any] = [surfaces[i] or MeshFile(None) for i in drawn]  # pyright: ignore[reportArgumentType]
    geoms, looks = (tuple(x[i] for i in drawn) for x in (topology.geoms, topology.drawing.looks))
    return _Geoms(geoms, tuple(x.triangles for x in found), looks, tuple(x.image for x in found), tuple(texts))


def _can_be_drawn(geom: GeomInfo) -> bool:
    return geom.shape in DRAWABLE or geom.asset is not None or bool(geom.file)


def _missing(geom: GeomInfo, why: str) -> str:
    name = (geom.file or "").replace("\\", "/").rpartition("/")[2] or geom.name
    return f"{geom.shape} {name} ({why})" if name else f"{geom.shape} ({why})"


def _colliding(topology: Topology) -> _Geoms:
    """The geoms that collide: of meshes the convex hulls."""
    geoms, surfaces, missing = [], [], {}
    for geom in topology.geoms:
        if not geom.collision or geom.shape == "axes":
            continue
        surface = _hull(topology, geom) if geom.shape == "mesh" and geom.asset is not None else _surface(topology, geom)
        if isinstance(surface, str):
            missing[_missing(geom, surface)] = None
        else:
            geoms.append(geom._replace(rgba=None) if geom.rgba is not None and not geom.rgba[3] else geom)
            surfaces.append(surface.triangles if isinstance(surface, MeshFile) else surface)
    none = (None,) * len(geoms)
    return _Geoms(tuple(geoms), tuple(surfaces), none, none, tuple(missing))


def _hull(topology: Topology, geom: GeomInfo) -> TrianglesInfo | str:
    mesh = topology.meshes[geom.asset] if topology.meshes and geom.asset is not None else None
    return TrianglesInfo(mesh.vertices, mesh.hull) if mesh is not None and mesh.hull is not None else "no convex hull"


def _geom_numbers(model: Model, geoms: tuple[GeomInfo, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """size, pos, quat of every geom, from the leaves where there are leaves: (envs or 1, geoms, 3 or 4)."""
    out = []
    for name, width in (("size", 3), ("pos", 3), ("quat", 4)):
        leaf = leaf_values(model, f"geom.{name}").astype(np.float64)
        leaf = leaf if leaf.ndim == 3 else leaf[None]
        loaded = [np.pad(getattr(g, name)[:width], (0, width - len(getattr(g, name)[:width]))) for g in geoms]
        x = np.repeat(np.reshape(loaded, (1, len(geoms), width)), len(leaf), 0)
        for i, g in enumerate(geoms):
            if g.row is not None:
                x[:, i] = leaf[:, g.row]
        out.append(x)
    return tuple(out)


# ---- joint axes --------------------------------------------------------------------------------------------------------------


def axis_links(model: Model) -> list:
    """The links that turn about, or slide along, a row of joint.axes."""
    return [link for link in model.topology.links if isinstance(link.axis, int)]


def axis_directions(scene: Scene) -> np.ndarray:
    """World directions of the joint axes: (frames, envs, axes, 3). An axis moves with the links before it in its joint's chain."""
    model, topology = scene.model, scene.model.topology
    axes, tree, refs = (leaf_values(model, path).astype(float) for path in ("joint.axes", "body.quat", "joint.ref"))
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
