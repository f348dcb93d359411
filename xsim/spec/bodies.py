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
    """A rigid body. ``parent`` is the index of the parent body, -1 for the world; parents come before children.

    ``joints``: what it moves on, in order (one JointSpec alone stands for a tuple of it); none or a ``"fixed"`` one: welded to its parent.

    ``inertial`` None means that the geoms give mass and inertia. ``pos_min``/``pos_max``: the box from which randomization
    draws ``pos`` (m, parent frame), None where the file gives none. ``pos_given`` is False where only the box was given.
    ``gravity``: factor of gravity on this body (0: it has no weight).
    ``velocity``: where the file says how the body starts, the velocity of its centre of mass and its angular velocity, world axes (6,);
    None: as the joint's ``v0`` says. ``mocap``: its pose is part of the state. ``gravcomp``: factor of the weight that is taken back.
    ``principal``: orientation (4,) of the principal axes of inertia in the body, None where nothing asks for it.
    """

    name: str
    parent: int
    joints: tuple[JointSpec, ...] | JointSpec = ()
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
    principal: np.ndarray | None = None
    user: tuple[float, ...] = ()
    source: Source = Source()

    def __post_init__(self):
        if isinstance(self.joints, JointSpec):
            object.__setattr__(self, "joints", (self.joints,))

    @property
    def joint(self) -> JointSpec:
        """Its joint, of a body with one."""
        assert isinstance(self.joints, tuple)
        (joint,) = self.joints
        return joint
