"""Contact parameters that SDFormat, URDF and SKEL share: shapes that collide, default surfaces, how soft contacts and limits are.

These formats describe contact by the stiffness K (N/m) and damping D (N s/m) of a spring and damper between the bodies, or by what the
Open Dynamics Engine makes of them for a step of h: erp = h K / (h K + D), the part of an overlap that a step takes back, and
cfm = 1 / (h K + D), how much the velocity of the contact gives way to its force (manual of ODE, "Joint error and the error reduction
parameter"). The force at the end of a step is then f = (erp / h x overlap - velocity) / cfm. In the terms of `xsim.spec.Soft`, where a
contact of two bodies with the effective mass m has f = m d / (1 - d) (k d overlap - b velocity - acceleration), this is

    k d = erp / h^2,   b = 1 / h,   d = 1 / (1 + m cfm / h):

a body of mass m rests at the depth m g / K, and no stiffness is too large for the step. The effective mass is taken once, from the file:
of a contact the mass of the link, of a joint's stop the inertia that the joint moves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xsim.spec import CONSTRAINT_KINDS, BodySpec, JointSpec, OptionSpec, Soft, SurfaceSpec

__all__ = ["ALL_BITS", "FRICTION", "SHAPES", "STOP", "default_surface", "erp_cfm", "spring_damper", "with_contacts", "with_soft_limits"]

SHAPES = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
"""Shapes of these formats that collide: those that `xsim.model.contact_pairs` knows."""
FRICTION = 1.0
"""Coulomb's coefficient where a file says none: SDFormat's and DART's default."""
ALL_BITS = 0xFFFF
"""The bit masks where a file says none."""
STOP = Soft()
"""How soft the limits of joints are where a file does not say: a time constant of 0.02 s, critically damped, as in MuJoCo."""
_SOLVER = {"cone": "elliptic", "impratio": 10.0, "multiccd": True}
_MIN_IMPEDANCE = 1e-4  # the impedance d stays between this and 1 minus this, as in MuJoCo


def with_contacts(option: OptionSpec, soft: bool) -> OptionSpec:
    """The option with contacts: elliptic friction cones, ``impratio`` 10, several contacts where faces meet. soft: also soft limits."""
    kinds = {*option.constraint_kinds, "contact", *(("soft",) if soft else ())}
    ordered = tuple(kind for kind in CONSTRAINT_KINDS if kind in kinds)
    return replace(option, constraint_kinds=ordered, solver={**_SOLVER, **option.solver})


def default_surface(group: int | None) -> SurfaceSpec:
    """The surface of a shape where a file says none. ``solmix`` is 0: how soft a contact is, is left to the other shape.

    group: collision group, see `SurfaceSpec`.
    """
    return SurfaceSpec(contype=ALL_BITS, conaffinity=ALL_BITS, friction=(FRICTION, 0.0, 0.0), solmix=0.0, group=group)


def spring_damper(stiffness: float, damping: float, dt: float, mass: float) -> Soft:
    """A spring (stiffness in N/m, may be infinite) and a damper (N s/m) on an effective mass (kg), for a step dt (s).

    For rotations the units are N m/rad, N m s/rad and kg m^2.
    """
    if np.isinf(stiffness):
        return erp_cfm(1.0, 0.0, dt, mass)
    inverse_cfm = dt * stiffness + damping
    if not inverse_cfm > 0:
        return erp_cfm(0.0, np.inf, dt, mass)
    return erp_cfm(dt * stiffness / inverse_cfm, 1.0 / inverse_cfm, dt, mass)


def erp_cfm(erp: float, cfm: float, dt: float, mass: float) -> Soft:
    """ODE's numbers (module docstring) on an effective mass (kg, or kg m^2), for a step dt (s)."""
    d = float(np.clip(1.0 / (1.0 + mass * cfm / dt) if mass > 0 else 1.0, _MIN_IMPEDANCE, 1.0 - _MIN_IMPEDANCE))
    return Soft((-erp / dt**2 * d, -1.0 / dt * d), (d, d, 0.001, 0.5, 2.0))


def with_soft_limits(bodies: tuple[BodySpec, ...], friction: bool = False) -> tuple[BodySpec, ...]:
    """The bodies with soft joint limits, as soft as `STOP` where the file does not say. friction: also soft dry friction."""

    def softened(joint: JointSpec) -> JointSpec:
        if joint.limit_soft is None and joint.position_range is not None and np.isfinite(joint.position_range).any():
            joint = replace(joint, limit_soft=STOP)
        if friction and joint.friction is not None and joint.friction_soft is None:
            joint = replace(joint, friction_soft=STOP)
        return joint

    return tuple(replace(body, joints=tuple(map(softened, body.joints))) for body in bodies)
