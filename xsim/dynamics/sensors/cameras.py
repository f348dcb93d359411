"""World poses of cameras and lights, by their modes.

A camera in a tracking mode has a constant world orientation. Its offset from the body, or from the centre of mass of the body's subtree, is
constant too. Both are those of the reference configuration. A camera in a target mode points at a body, or at the centre of mass of a
subtree. Source: MuJoCo's documentation, XML reference, body/camera.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.kinematics import Frames, body_poses, frames
from xsim.dynamics.tree.subtree import subtree_coms
from xsim.dynamics.tree.system import System
from xsim.spatial import Pose, apply, matrix, normalize, rotate, stage, vadd, vsub


class View(NamedTuple):
    """World position (m), and the axes of a camera (columns of R) or, as R, the direction of a light."""

    pos: tuple
    R: tuple


@stage
def _view_on_body(body: Pose | None, pos, quat):
    """The world pose from the body's pose (None: the world) and the pose in the body."""
    R = matrix(normalize(quat))
    if body is None:
        return View(pos, R)
    body_R = matrix(body.quat)
    columns = [apply(body_R, column) for column in zip(*R, strict=True)]
    return View(vadd(body.pos, rotate(body.quat, pos)), tuple(zip(*columns, strict=True)))


@stage
def _camera_axes(pos, target):
    """Camera axes: -z points to the target, x is horizontal. If z is vertical, x is the world's x axis."""
    z = normalize(vsub(pos, target))
    regular = z[0] * z[0] + z[1] * z[1] > 1e-20
    x = normalize((jnp.where(regular, -z[1], 1.0), jnp.where(regular, z[0], 0.0), 0.0 * z[0]))
    y = (z[1] * x[2] - z[2] * x[1], z[2] * x[0] - z[0] * x[2], z[0] * x[1] - z[1] * x[0])
    return tuple(zip(x, y, z, strict=True))


@stage
def _direction_to(pos, target):
    return normalize(vsub(target, pos))


@stage
def _with_offset(pos, reference, current):
    """A world position with a constant offset from a point. pos, reference: of both in the reference configuration."""
    return vadd(current, vsub(pos, reference))


@stage
def _direction_on_body(body: Pose | None, direction):
    direction = normalize(direction)
    return direction if body is None else rotate(body.quat, direction)


def _poses_and_coms(system: System, frame: Frames, infos) -> tuple:
    """World poses of the bodies, and, if a view needs them, the centres of mass of their subtrees."""
    poses = body_poses(system, frame)
    coms = subtree_coms(system, frame) if any("com" in info.mode for info in infos) else None
    return poses, coms


def _point(poses, coms, info, body: int):
    """The point of a body, or of its subtree, that a view tracks or points at."""
    if body < 0:
        return coms[-1] if "com" in info.mode else (0.0, 0.0, 0.0)
    return coms[body] if "com" in info.mode else poses[body].pos


def cameras(system: System, frame: Frames, numbers) -> list[View]:
    """World poses of all cameras. numbers: positions and quaternions in their bodies."""
    infos = system.topology.cameras
    if not infos:
        return []
    current, reference = _poses_and_coms(system, frame, infos), _reference_poses_and_coms(system, infos)
    out = []
    for info, pos, quat in zip(infos, numbers.pos, numbers.quat, strict=True):
        body = None if info.body < 0 else current[0][info.body]
        view = _view_on_body(body, pos, quat)
        if info.mode in ("track", "trackcom"):
            before = _view_on_body(None if info.body < 0 else reference[0][info.body], pos, quat)
            view = View(_with_offset(before.pos, _point(*reference, info, info.body), _point(*current, info, info.body)), before.R)
        elif info.mode in ("targetbody", "targetbodycom") and info.target is not None:
            view = View(view.pos, _camera_axes(view.pos, _point(*current, info, info.target)))
        out.append(view)
    return out


def lights(system: System, frame: Frames, numbers) -> list[View]:
    """World positions and directions of all lights. numbers: positions and directions in their bodies."""
    infos = system.topology.lights
    if not infos:
        return []
    current, reference = _poses_and_coms(system, frame, infos), _reference_poses_and_coms(system, infos)
    out = []
    for info, pos, direction in zip(infos, numbers.pos, numbers.dir, strict=True):
        body = None if info.body < 0 else current[0][info.body]
        light_pos = _view_on_body(body, pos, (1.0, 0.0, 0.0, 0.0)).pos
        light_dir = _direction_on_body(body, direction)
        if info.mode in ("track", "trackcom"):
            reference_body = None if info.body < 0 else reference[0][info.body]
            before = _view_on_body(reference_body, pos, (1.0, 0.0, 0.0, 0.0)).pos
            light_pos = _with_offset(before, _point(*reference, info, info.body), _point(*current, info, info.body))
            light_dir = _direction_on_body(reference_body, direction)
        elif info.mode in ("targetbody", "targetbodycom") and info.target is not None:
            light_dir = _direction_to(light_pos, _point(*current, info, info.target))
        out.append(View(light_pos, light_dir))
    return out


def _reference_poses_and_coms(system: System, infos) -> tuple:
    """Poses and centres of mass in the reference configuration. They are computed only if a view is in a tracking mode."""
    if not any(info.mode in ("track", "trackcom") for info in infos):
        return [], None
    return _poses_and_coms(system, frames(system, [float(x) for x in system.topology.initial[0]]), infos)
