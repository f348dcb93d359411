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

    ``type`` is the name of a registered joint type (`xsim.joints`). Vectors are in xsim's coordinates, in the order of the type.

    * ``pos``, ``quat``: the joint frame in the body frame (see `xsim.spec`). ``params``: the numbers of the type (unit axes, screw pitch,
      ...) by name; a missing one has the type's default or is sampled by the type's rule.
    * ``q0`` (nq,), ``v0`` (nv,): the initial state; None: neutral, at rest.
    * ``damping``: N s/m or N m s/rad; ``armature``: kg or kg m^2; ``stiffness``: N/m or N m/rad; each (nv,), None: zero.
      ``spring_ref`` (nq,): rest position of the spring, None: neutral.
    * ``stiffness_poly``, ``damping_poly``: two coefficients of higher order, see `xsim.dynamics.tree.polynomials`; None: zero.
    * ``spring_yield``: displacement beyond which the spring yields, see `xsim.dynamics.forces.plasticity`; None: it does not.
    * ``damper_axes``, ``armature_axes``: along which axes damping and armature act on the translations of a joint that translates before
      it rotates (free, cor, planar): ``"joint"`` (the fixed joint frame) or ``"body"`` (axes that rotate with the body). ``damper_axes`` of
      a free joint may be ``"parent"``: translation and rotation are both damped along the axes of the parent body.
    * ``spring_law`` of a ball: ``"rotation"`` (torque along the rotation vector from ``spring_ref`` to q) or ``"components"``
      (both as rotation vectors, torque by the difference of their components; DART's rule).
    * ``friction`` (nv,): dry friction, N or N m; NaN where the file gives none.
    * ``position_range``, ``velocity_range``, ``force_range``: (nv, 2) lower and upper bounds, infinite where there is none. Positions of
      a ball are the components of its rotation vector. ``angle_limit``: largest rotation angle of a ball, rad.
    * ``margin``: m or rad. ``limit_soft``, ``friction_soft``: softness of limits and dry friction; None: they act by impulses.
    * ``actuator``: what a command is, one of ACTUATORS. force: a generalized force, clipped to ``force_range``; acceleration, velocity:
      prescribed motion; servo: a velocity that an impulse within ``force_range`` times dt achieves; passive: no command; locked: no motion.
    * ``actuator_force_range``: bounds of the sum of all actuator forces on the joint, N or N m. ``actuator_gravcomp``: gravity
      compensation counts as an actuator force.
    * ``reversed``: parent and child of the file's joint are exchanged here.
    * ``anchored`` (MuJoCo): the body's ``pos``, ``quat`` are the pose of the body frame with its joints at ``ref``, and the joint frame is
      at ``pos``, ``quat`` in it: X_parent_body = X(body) X(joint) X_joint(q) X(joint)^-1. All joints of a body with several are anchored;
      they act in order, each in the frame after the joints before it.
    * ``ref``: position of a hinge or slide in the reference pose. ``spring_damper``: (time constant s, damping ratio), from which
      stiffness and damping follow with the inertia at the initial state.
    """

    type: str
    name: str = ""
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    params: dict[str, np.ndarray] = field(default_factory=dict)
    damping: np.ndarray | None = None
    armature: np.ndarray | None = None
    stiffness: np.ndarray | None = None
    stiffness_poly: tuple[float, float] | None = None
    damping_poly: tuple[float, float] | None = None
    spring_yield: float | None = None
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

    @property
    def needs_coordinate(self) -> bool:
        """Whether it has friction, armature, finite limits of position or velocity, or a drive. They act on the coordinates of the tree, of
        which a joint that closes a loop has none."""
        numbers = (self.friction, self.armature)
        ranges = (self.position_range, self.velocity_range)
        has_number = any(x is not None and np.nan_to_num(x).any() for x in numbers)
        return has_number or any(x is not None and np.isfinite(x).any() for x in ranges) or self.actuator not in ("passive", "force")
