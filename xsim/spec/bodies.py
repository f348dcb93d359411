"""Bodies and their mass properties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xsim.spec.fields import identity, zeros
from xsim.spec.geoms import GeomSpec, MarkerSpec
from xsim.spec.joints import JointSpec
from xsim.spec.source import Source

__all__ = ["BodySpec", "InertialSpec"]


@dataclass(frozen=True)
class InertialSpec:
    """Explicit mass properties: mass (kg), centre of mass (m, body frame), inertia about it ``xx yy zz xy xz yz`` (kg m^2, body axes)."""

    mass: float
    com: np.ndarray = zeros(3)
    inertia: np.ndarray = zeros(6)


@dataclass(frozen=True)
class BodySpec:
    """A rigid body.

    * ``parent``: index of the parent body, -1 for the world; parents come before children.
    * ``joints``: the joints to the parent, in order (one JointSpec stands for a tuple of one). Without joints, or with a ``"fixed"`` one,
      the body is welded to its parent. ``pos``, ``quat``: see `xsim.spec`.
    * ``inertial``: None: mass and inertia follow from the geoms. ``principal`` (4,): orientation of the principal axes of inertia in the
      body, None where nothing needs it. ``aligned``: the inertial frame is known to be the body frame.
    * ``pos_min``, ``pos_max``: the box from which randomization samples ``pos`` (m, parent frame), None where the file gives none.
      ``pos_given``: False where the file gives only the box.
    * ``gravity``: factor of gravity on this body. ``gravcomp``: part of its weight that is compensated.
    * ``velocity`` (6,): initial velocity of the centre of mass and angular velocity, world axes; None: by the joint's ``v0``.
    * ``mocap``: its pose is part of the state. ``sleep``: MuJoCo's policy for the tree below this body, without effect here.
    """

    name: str
    parent: int
    joints: tuple[JointSpec, ...] = ()
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    geoms: tuple[GeomSpec, ...] = ()
    inertial: InertialSpec | None = None
    pos_min: np.ndarray | None = None
    pos_max: np.ndarray | None = None
    pos_given: bool = True
    markers: tuple[MarkerSpec, ...] = ()
    gravity: float = 1.0
    velocity: np.ndarray | None = None
    mocap: bool = False
    gravcomp: float = 0.0
    sleep: str = "auto"
    principal: np.ndarray | None = None
    aligned: bool = False
    user: tuple[float, ...] = ()
    source: Source = Source()

    def __post_init__(self):
        if isinstance(self.joints, JointSpec):
            object.__setattr__(self, "joints", (self.joints,))

    @property
    def joint(self) -> JointSpec:
        """Its joint, of a body with one."""
        (joint,) = self.joints
        return joint
