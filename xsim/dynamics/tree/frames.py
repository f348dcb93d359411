"""Sites and geoms: named frames on bodies."""

from __future__ import annotations

from xsim.dynamics.constraints.loop_joints import End, end_of
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.spatial import Pose, compose, normalize, stage


@stage
def _unit_pose(pos, quat) -> Pose:
    return Pose(normalize(quat), pos)


@stage
def _in_link(offset: Pose, pos, quat) -> Pose:
    return compose(offset, Pose(normalize(quat), pos))


def in_link(system: System, body: int, pos, quat) -> Pose:
    """A pose given in a body, in the link it moves with (of a body that does not move: in the world)."""
    if body < 0 or system.topology.bodies[body].link >= 0 and system.tables.at_link[body]:
        return _unit_pose(pos, quat)
    return _in_link(system.offset[body], pos, quat)


def body_end(system: System, frame: Frames, body: int, pos, quat) -> End:
    """A frame of a body, pos and quat in the body."""
    return end_of(system, frame, body, in_link(system, body, pos, quat))


def site_end(system: System, frame: Frames, site: int) -> End:
    return body_end(system, frame, system.topology.sites[site].body, system.sites.pos[site], system.sites.quat[site])


def geom_end(system: System, frame: Frames, geom: int) -> End:
    """A geom; one that is only drawn as it was loaded."""
    info = system.topology.geoms[geom]
    place = (info.pos, info.quat) if info.row is None else (system.geoms.pos[info.row], system.geoms.quat[info.row])
    return body_end(system, frame, info.body, *place)
