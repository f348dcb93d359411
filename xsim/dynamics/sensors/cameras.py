"""Cameras and lights: where they are in their modes.

A tracking one keeps its world orientation and its offset from the body, or from the centre of mass of the body's subtree, as drawn; one
with a target looks at a body or at such a centre. Source: MuJoCo's documentation, XML reference, body/camera.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.kinematics import Frames, body_poses, frames
from xsim.dynamics.tree.subtree import subtree_coms
from xsim.dynamics.tree.system import System
from xsim.spatial import Pose, apply, matrix, normalize, rotate, stage, vadd, vsub


class View(NamedTuple):
    """World position, and the axes of a camera (columns of R) or the direction of a light."""

    pos: tuple
    R: tuple


@stage
def _placed(body: Pose | None, pos, quat):
    turn = matrix(normalize(quat))
    if body is None:
        return View(pos, turn)
    own = matrix(body.quat)
    columns = [apply(own, column) for column in zip(*turn, strict=True)]
    return View(vadd(body.pos, rotate(body.quat, pos)), tuple(zip(*columns, strict=True)))


@stage
def _looking(pos, at):
    """Camera axes with -z towards a point and x level; where it looks straight up or down, x is x of the world."""
    z = normalize(vsub(pos, at))
    level = z[0] * z[0] + z[1] * z[1] > 1e-20
    x = normalize((jnp.where(level, -z[1], 1.0), jnp.where(level, z[0], 0.0), 0.0 * z[0]))
    y = (z[1] * x[2] - z[2] * x[1], z[2] * x[0] - z[0] * x[2], z[0] * x[1] - z[1] * x[0])
    return tuple(zip(x, y, z, strict=True))


@stage
def _towards(pos, at):
    return normalize(vsub(at, pos))


@stage
def _kept(pos, start, now):
    """A world position that keeps its offset from a point."""
    return vadd(now, vsub(pos, start))


@stage
def _turned(body: Pose | None, direction):
    direction = normalize(direction)
    return direction if body is None else rotate(body.quat, direction)


def _anchors(system: System, frame: Frames, infos) -> tuple:
    """World poses of the bodies and, where one of the views needs it, the centres of mass of their subtrees."""
    poses = body_poses(system, frame)
    coms = subtree_coms(system, frame) if any("com" in info.mode for info in infos) else None
    return poses, coms


def _point(poses, coms, info, body: int):
    if body < 0:
        return coms[-1] if "com" in info.mode else (0.0, 0.0, 0.0)
    return coms[body] if "com" in info.mode else poses[body].pos


def cameras(system: System, frame: Frames, numbers) -> list[View]:
    """All cameras; numbers: positions and quaternions in their bodies."""
    infos = system.topology.cameras
    if not infos:
        return []
    now, start = _anchors(system, frame, infos), _start(system, infos)
    out = []
    for info, pos, quat in zip(infos, numbers.pos, numbers.quat, strict=True):
        body = None if info.body < 0 else now[0][info.body]
        view = _placed(body, pos, quat)
        if info.mode in ("track", "trackcom"):
            drawn = _placed(None if info.body < 0 else start[0][info.body], pos, quat)
            view = View(_kept(drawn.pos, _point(*start, info, info.body), _point(*now, info, info.body)), drawn.R)
        elif info.mode in ("targetbody", "targetbodycom") and info.target is not None:
            view = View(view.pos, _looking(view.pos, _point(*now, info, info.target)))
        out.append(view)
    return out


def lights(system: System, frame: Frames, numbers) -> list[View]:
    """All lights, their directions in place of axes; numbers: positions and directions in their bodies."""
    infos = system.topology.lights
    if not infos:
        return []
    now, start = _anchors(system, frame, infos), _start(system, infos)
    out = []
    for info, pos, direction in zip(infos, numbers.pos, numbers.dir, strict=True):
        body = None if info.body < 0 else now[0][info.body]
        where = _placed(body, pos, (1.0, 0.0, 0.0, 0.0)).pos
        way = _turned(body, direction)
        if info.mode in ("track", "trackcom"):
            drawn = None if info.body < 0 else start[0][info.body]
            at = _placed(drawn, pos, (1.0, 0.0, 0.0, 0.0)).pos
            where = _kept(at, _point(*start, info, info.body), _point(*now, info, info.body))
            way = _turned(drawn, direction)
        elif info.mode in ("targetbody", "targetbodycom") and info.target is not None:
            way = _towards(where, _point(*now, info, info.target))
        out.append(View(where, way))
    return out


def _start(system: System, infos) -> tuple:
    """The anchors as drawn, for views that track."""
    if not any(info.mode in ("track", "trackcom") for info in infos):
        return [], None
    return _anchors(system, frames(system, [float(x) for x in system.topology.initial[0]]), infos)
