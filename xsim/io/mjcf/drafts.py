"""Bodies while they are read: before they have numbers, and before the options of <compiler> have changed them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xsim.io.mjcf.inertia import Inertial
from xsim.io.mjcf.joints import Joint
from xsim.io.mjcf.plugins import Plugin
from xsim.io.mjcf.scaling import UNIT, Scale
from xsim.io.reader import Element
from xsim.poses import Pose
from xsim.spec import GeomSpec, SiteSpec

__all__ = ["Draft", "moved"]


@dataclass
class Draft:
    """A body as read. parent: None for the world. Each geom, site, camera and light comes with its element. Of cameras and lights,
    which may look at bodies that come later, only the pose of the <frame>s around them is known.

    plugin: name of its instance, "" without; what it is; its element.
    scale: of the <frame>s around it, and of what is in it.
    inertial: mass properties, principal; explicit: they are given as numbers and not computed from the geoms.
    """

    element: Element
    parent: Draft | None
    pose: Pose = Pose()
    name: str = ""
    joints: list[Joint] = field(default_factory=list)
    inertial_element: Element | None = None
    inertial_frame: Pose = Pose()
    inertial_scale: Scale = UNIT
    scale: Scale = UNIT
    geoms: list[tuple[GeomSpec, Element]] = field(default_factory=list)
    sites: list[tuple[SiteSpec, Element]] = field(default_factory=list)
    cameras: list[tuple[Pose, Element]] = field(default_factory=list)
    lights: list[tuple[Pose, Element]] = field(default_factory=list)
    mocap: bool = False
    plugin: tuple[str, Plugin, Element] | None = None
    fusible: bool = True
    gravcomp: float = 0.0
    sleep: str = "auto"
    user: tuple[float, ...] = ()
    inertial: Inertial = Inertial()
    explicit: bool = False

    def seen_from(self, pose: Pose) -> Draft:
        """A copy whose contents are expressed in a frame in which this body has a pose."""
        return replace(
            self,
            geoms=[(moved(geom, pose), e) for geom, e in self.geoms],
            sites=[(moved(site, pose), e) for site, e in self.sites],
            cameras=[(pose @ frame, e) for frame, e in self.cameras],
            lights=[(pose @ frame, e) for frame, e in self.lights],
            inertial=self.inertial.seen_from(pose),
        )


def moved(item, pose: Pose):
    """A geom or site whose body has a pose, in the frame of that pose."""
    pose = pose @ Pose(item.quat, item.pos)
    return replace(item, pos=pose.pos, quat=pose.quat)
