"""Paths of spatial tendons: straight between sites, on the surface of the spheres and cylinders that they wrap around."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.tendons.wrapping import WrappedPath, wrap
from xsim.poses import Pose, normalized, quat_conj, quat_mul, rotate
from xsim.viewer.scene import Scene, leaf_values

__all__ = ["on_bodies", "tendon_paths"]

ARC = 12
"""Pieces of the part of a path on a surface."""


def on_bodies(scene: Scene, body: int, pos, quat) -> Pose:
    """World poses (frames, envs, 3 or 4) of a frame on a body (-1: the world); pos, quat: (envs or 1, 3 or 4) or (3 or 4,)."""
    pos, quat = (np.broadcast_to(x, (*scene.q.shape[:2], x.shape[-1])) for x in (np.asarray(pos, float), normalized(quat)))
    if body < 0:
        return Pose(quat, pos)
    parent_pos, parent_quat = (x[:, :, body].astype(float) for x in (scene.pos, scene.quat))
    return Pose(quat_mul(parent_quat, quat), parent_pos + rotate(parent_quat, pos))


def tendon_paths(scene: Scene) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Points (frames, envs, n, 3) of the paths of all spatial tendons, world, m; and of each connected piece the tendon, its first point
    and how many it has. Pulleys divide a path into pieces."""
    points, pieces = [], []
    for number, info in enumerate(scene.model.topology.tendons):
        if info.kind != "spatial":
            continue
        strip, geom = [], None
        for piece in (*info.path, None):
            if piece is None or piece.kind == "pulley":
                if len(strip) > 1:
                    pieces.append((number, len(points), len(strip)))
                    points += strip
                strip, geom = [], None
            elif piece.kind == "geom":
                geom = piece
            elif piece.kind == "site":
                site = _site(scene, piece.item)
                if geom is not None and strip:
                    strip += _around(scene, geom, strip[-1], site.pos)
                strip.append(site.pos)
                geom = None
    return np.stack(points, 2) if points else np.zeros((*scene.q.shape[:2], 0, 3)), pieces


def _site(scene: Scene, number: int) -> Pose:
    pos, quat = (leaf_values(scene.model, f"site.{name}")[..., number, :] for name in ("pos", "quat"))
    return on_bodies(scene, scene.model.topology.sites[number].body, pos, quat)


def _around(scene: Scene, piece, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    """Points between the ends of a segment: where it touches the geom, or on the straight line. first, second: (frames, envs, 3)."""
    model, info = scene.model, scene.model.topology.geoms[piece.item]
    place = [np.asarray(getattr(info, name)) if info.row is None else leaf_values(model, f"geom.{name}")[..., info.row, :]
             for name in ("pos", "quat", "size")]  # fmt: skip
    geom = on_bodies(scene, info.body, *place[:2])
    inverse, radius = quat_conj(geom.quat), np.broadcast_to(place[2][..., 0], first.shape[:2])
    a, b = (rotate(inverse, x - geom.pos) for x in (first, second))
    side = None if piece.side is None else rotate(inverse, _site(scene, piece.side).pos - geom.pos)
    shortest = scene.model.topology.switches.tendon_shortest_side
    path = _wrapped(info.shape, shortest, *(None if x is None else jnp.asarray(x, scene.q.dtype) for x in (a, b, radius, side)))
    on_surface = _arc(a, radius, *(np.stack(np.broadcast_arrays(*x), -1).astype(float) for x in (path.first, path.last)), info.shape)
    wraps = (np.broadcast_to(path.wraps, a.shape[:2]) > 0)[..., None]
    share = np.linspace(0, 1, len(on_surface))
    local = [np.where(wraps, x, a + t * (b - a)) for x, t in zip(on_surface, share, strict=True)]
    return [geom.pos + rotate(geom.quat, x) for x in local]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _wrapped(kind: str, shortest: bool, a, b, radius, side) -> WrappedPath:
    components = [tuple(x[..., k] for k in range(3)) for x in (a, b)]
    return wrap(kind, *components, radius, None if side is None else tuple(side[..., k] for k in range(3)), shortest)


def _arc(start, radius, first, last, shape: str) -> list[np.ndarray]:
    """Points on the surface from the first to the last one, in the geom's frame; the path comes from ``start``."""
    flat = np.array([1.0, 1.0, 0.0]) if shape == "cylinder" else np.ones(3)
    out, along = normalized(first * flat), normalized((first - start) * flat)
    height = (first - last) * (1 - flat)
    angle = np.arctan2((last * along * flat).sum(-1), (last * out * flat).sum(-1)) % (2 * np.pi)
    angle = np.where(angle > 2 * np.pi - 1e-3, 0.0, angle)[..., None]
    share = np.linspace(0, 1, ARC + 1)
    r = radius[..., None]
    return [r * (np.cos(t * angle) * out + np.sin(t * angle) * along) + first * (1 - flat) - t * height for t in share]
