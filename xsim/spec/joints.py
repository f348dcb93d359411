"""The joint between a body and its parent."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsim.spec.contact import Soft
from xsim.spec.fields import identity, zeros
from xsim.spec.source import Source

__all__ = ["ACTUATORS", "JointSpec"]

ACTUATORS = ("passive", "force", "acceleration", "velocity", "locked", "servo")


@dataclass(frozen=True)
class JointSpec:
    """The joint between a body and its parent.

    ``type`` names an entry of the joint registry (`xsim.joints`). The vectors are in xsim's coordinates (registry order):
    ``damping`` N s/m or N m s/rad, ``armature`` kg or kg m^2, ``stiffness`` N/m or N m/rad: (nv,); ``spring_ref``: (nq,).
    None means zeros (the neutral configuration for ``spring_ref``).

    ``params`` holds the numbers of the type (unit axes, screw pitch, ...) by name; a parameter left out is the type's
    own default or drawn by the type's rule.
    ``damper_axes`` and ``armature_axes`` say along which axes the translations of a joint that translates before it rotates
    (free, cor, planar) are damped and loaded: ``"joint"`` (the fixed joint frame) or ``"body"`` (they turn with the body).
    ``damper_axes`` of a free joint may be ``"parent"``: translation and rotation are both damped along the parent body's axes.
    ``spring_law`` of a ball: ``"rotation"`` (torque along the rotation vector from the reference to q) or ``"components"``
    (reference and configuration each as a rotation vector, torque by the difference of their components; DART's rule).

    ``pos``/``quat``: the joint frame in the body's own frame (module docstring). ``q0`` (nq), ``v0`` (nv): where a state starts;
    None: neutral, at rest. ``friction`` (nv): dry friction, N or N m; NaN where the file gives none.
    ``position_range``, ``velocity_range``, ``force_range``: (nv, 2) lower and upper bounds, infinite where there is none; positions
    of a ball are the components of its rotation vector. ``actuator``: one of ACTUATORS, what a command of this joint's coordinates
    is (force: a generalized force, clipped to ``force_range``; acceleration, velocity: prescribed motion; servo: a velocity reached
    by an impulse within ``force_range`` times dt; passive: none; locked: no motion).
    ``reversed``: the file's parent and child are this body and its parent here (the tree was hung up at the other end).

    ``anchored``: the body's ``pos``/``quat`` place the body itself, as it is with its joints at rest, and the joint frame is where
    ``pos``/``quat`` put it in the body (MuJoCo): X_parent_body = X(body) X(joint) X_joint(q) X(joint)^-1. A body with several joints has
    only such ones; they act in order, each in the frame that the earlier ones left.
    ``ref``: position of a hinge or slide in which the body is as drawn. ``spring_damper``: (time constant s, damping ratio) that
    give stiffness and damping, from the inertia at the start. ``margin``: m or rad, ``limit_soft``, ``friction_soft``: how soft limits and
    dry friction are; None: they are kept by impulses. ``angle_limit``: largest rotation of a ball, rad. ``actuator_force_range``: bounds of
    the sum of what all actuators do on the joint, N or N m. ``actuator_gravcomp``: gravity compensation counts as an actuator's force.
    """

    type: str
    name: str = ""
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    params: dict[str, np.ndarray] = field(default_factory=dict)
    damping: np.ndarray | None = None
    armature: np.ndarray | None = None
    stiffness: np.ndarray | None = None
    spring_ref: np.ndarray | None = None
    damper_axes: str = "joint"
    armature_axes: str = "joint"
    spring_law: str = "rotation"
    friction: np.ndarray | None = None
    position_range: np.ndarray | None = None
    velocity_range: np.ndarray | None = None
    force_range: np.ndarray | None = None
    actuator: str = "passive"
    q0: np.ndarray | None = None
    v0: np.ndarray | None = None
    reversed: bool = False
    anchored: bool = False
    ref: float = 0.0
    spring_damper: tuple[float, float] | None = None
    margin: float = 0.0
    limit_soft: Soft | None = None
    friction_soft: Soft | None = None
    angle_limit: float | None = None
    actuator_force_range: tuple[float, float] | None = None
    actuator_gravcomp: bool = False
    group: int = 0
    user: tuple[float, ...] = ()
    source: Source = Source()
