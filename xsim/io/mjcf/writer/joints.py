"""<joint>: what a joint of MJCF has besides its place."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.values import polynomial, ranges, soft
from xsim.io.writing.chains import Link
from xsim.io.writing.elements import XML, add, unless
from xsim.joints.types import JOINT_TYPES
from xsim.spec import BodySpec, JointSpec, Soft

__all__ = ["write_joint"]

NEAREST = "a soft one with MuJoCo's parameters is written"
NARROW = 1e-6  # m or rad
AXES = {"damping": "damper_axes", "armature": "armature_axes"}
"""The fields that say along which axes these numbers act."""


def write_joint(context: Context, e: XML, body: BodySpec, link: Link) -> XML:
    """A <joint> in the element of its body. Raises WriteError."""
    joint, scalar = link.joint, link.kind in ("hinge", "slide")
    return add(
        e, "joint",
        type=link.kind,
        pos=None if link.kind == "free" else unless(np.zeros(3), link.pos),
        axis=link.axis if scalar else None,
        ref=unless(0.0, link.ref),
        springref=unless(0.0, _spring_ref(context, body, link)),
        armature=unless(0.0, _same(context, body, link, "armature")),
        damping=polynomial(_same(context, body, link, "damping"), joint.damping_poly),
        stiffness=polynomial(_same(context, body, link, "stiffness"), joint.stiffness_poly),
        springdamper=joint.spring_damper,
        springyield=joint.spring_yield,
        margin=unless(0.0, joint.margin),
        **_friction(context, body, link),
        **_limit(context, body, link),
        **(ranges("actuatorfrc", joint.actuator_force_range) if scalar else {}),
        actuatorgravcomp=unless(False, joint.actuator_gravcomp),
        group=unless(0, joint.group),
        user=joint.user or None,
    )  # fmt: skip


def element_name(body: BodySpec, joint: JointSpec) -> str:
    """What messages call a joint."""
    return f"joint {joint.name or body.name!r}"


def _same(context: Context, body: BodySpec, link: Link, field: str) -> float:
    """The number of all dofs of a joint. Raises WriteError where they differ, or act along axes that MJCF does not have."""
    joint, values = link.joint, link.numbers(field)
    if np.ptp(values) > 0:
        text = f"{field} {values.tolist()} along axes of one {link.kind} joint; MJCF has one number for all"
        context.losses.lose(joint.source, element_name(body, joint), text, "their mean is written")
    axes = getattr(joint, AXES[field]) if field in AXES else "joint"
    if axes != "joint" and link.kind != "free":
        slides = _translations(joint, getattr(joint, field))
        if np.ptp(slides) > 0:
            text = f"{field} {slides.tolist()} along axes of the {axes}; MJCF has it along the axes of the joint"
            context.losses.lose(joint.source, element_name(body, joint), text, "it is written along the axes of the joint")
    return float(values.mean())


def _translations(joint: JointSpec, value) -> np.ndarray:
    """The numbers of the translations of a joint that translates before it rotates."""
    kinds = [part.kind for part in JOINT_TYPES[joint.type].chain]
    return np.zeros(1) if value is None else np.asarray(value, float)[: kinds.count("slide")]


def _spring_ref(context: Context, body: BodySpec, link: Link) -> float:
    """Where the spring of a hinge or slide is at rest; that of a ball is at rest at the start."""
    joint = link.joint
    if joint.spring_ref is None or link.kind == "free":
        return 0.0
    rest = np.asarray(joint.spring_ref, float)[link.q]
    if link.kind != "ball":
        return float(rest[0])
    if link.numbers("stiffness").any() and not np.array_equal(rest, link.start):
        text = f"a spring of a ball at rest at {rest.tolist()}; those of MJCF are at rest at 1 0 0 0"
        context.losses.lose(joint.source, element_name(body, joint), text, "one at rest at 1 0 0 0 is written")
    return 0.0


def _friction(context: Context, body: BodySpec, link: Link) -> dict[str, Any]:
    """Dry friction and its softness."""
    joint, kinds = link.joint, context.spec.option.constraint_kinds
    values = np.nan_to_num(link.numbers("friction"))
    if values.any() and joint.friction_soft is None:
        if "friction" not in kinds:
            return {}
        text = "dry friction by impulses; MJCF has soft dry friction"
        context.losses.lose(joint.source, element_name(body, joint), text, NEAREST)
    if np.ptp(values) > 0:
        text = f"dry friction {values.tolist()} along axes of one {link.kind} joint; MJCF has one number for all"
        context.losses.lose(joint.source, element_name(body, joint), text, "their mean is written")
    return {"frictionloss": unless(0.0, float(values.mean())), **soft(joint.friction_soft or Soft(), "friction")}


def _limit(context: Context, body: BodySpec, link: Link) -> dict[str, Any]:
    """The range and its softness."""
    joint, kinds, name = link.joint, context.spec.option.constraint_kinds, element_name(body, link.joint)
    bounds = None if joint.position_range is None else np.asarray(joint.position_range, float)[link.v]
    if bounds is not None and not np.isfinite(bounds).any():
        bounds = None
    if joint.velocity_range is not None and "velocity" in kinds and np.isfinite(joint.velocity_range).any():
        context.losses.lose(joint.source, name, "bounds of the velocity; MJCF has none", "they are left out")
    limited = bounds is not None or joint.angle_limit is not None
    if limited and joint.limit_soft is None:
        if "limit" not in kinds:
            return {}
        context.losses.lose(joint.source, name, "limits by impulses; MJCF has soft limits", NEAREST)
    if bounds is not None and link.kind not in ("hinge", "slide"):
        context.losses.lose(joint.source, name, f"bounds of the coordinates of a {link.kind} joint; MJCF has none", "they are left out")
        bounds = None
    if bounds is not None and not bounds[0][0] < bounds[0][1]:
        text = f"a range from {bounds[0][0]:g} to itself; MJCF has ranges of some width"
        context.losses.lose(joint.source, name, text, f"a width of {NARROW:g} is written")
        bounds = bounds + [[-0.5 * NARROW, 0.5 * NARROW]]
    span = (0.0, joint.angle_limit) if link.kind == "ball" and joint.angle_limit is not None else None
    return {**ranges("", span if bounds is None else bounds[0]), **soft(joint.limit_soft or Soft(), "limit")}
