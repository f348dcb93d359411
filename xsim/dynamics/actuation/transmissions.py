"""Transmissions of actuators: a length, and the row of its rate, which is also how the actuator's force acts on the dofs.

Source: MuJoCo's documentation, chapter Computation, section Actuation model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.constraints.contact_rows import adhesion_row
from xsim.dynamics.tendons.tendons import LengthAndJacobian, scaled_row
from xsim.dynamics.tree.frames import End, row_coefficients, site_end
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.spatial import (
    ZERO3,
    add,
    apply,
    apply_inverse,
    cross,
    dot,
    mul,
    normalize,
    quat_conj,
    quat_log,
    quat_mul,
    rotate,
    scale,
    stage,
    sub,
    vadd,
    vsub,
)


def transmissions(system: System, frame: Frames, q, tendon: list[LengthAndJacobian]) -> list[LengthAndJacobian]:
    """Length and row of every actuator; tendon: the tendons."""
    infos = system.topology.actuators
    at = _Place(system, frame, q, tendon)
    return [KINDS[info.transmission](at, info, gear) for info, gear in zip(infos, system.actuator.gear, strict=True)]


class _Place(NamedTuple):
    system: System
    frame: Frames
    q: list
    tendon: list


@stage
def _turn(q, gear):
    return dot(quat_log(normalize(q)), gear)


@stage
def _unturned(q, gear):
    return rotate(quat_conj(normalize(q)), gear)


def _joint(at: _Place, info, gear) -> LengthAndJacobian:
    """hinge, slide: the coordinate times the first gear. ball: the rotation vector along the gear. free: no length, a gear per dof; with
    ``jointinparent`` rotations are along the axes of the parent."""
    body, which = info.target
    joint = at.system.topology.bodies[body].joints[which]
    (q0, _), (v0, nv) = joint.q, joint.v
    in_parent = info.transmission == "jointinparent"
    if joint.type == "free":
        turn = at.q[q0 + 3 : q0 + 7]
        along = _unturned(tuple(turn), gear[3:]) if in_parent else gear[3:]
        return LengthAndJacobian(0.0, [(v0 + i, x) for i, x in enumerate((*gear[:3], *along))])
    if joint.type == "ball":
        turn = tuple(at.q[q0 : q0 + 4])
        along = _unturned(turn, gear[:3]) if in_parent else gear[:3]
        return LengthAndJacobian(_turn(turn, gear[:3]), [(v0 + i, x) for i, x in enumerate(along)])
    assert nv == 1
    return LengthAndJacobian(mul(gear[0], at.q[q0]), [(v0, gear[0])])


def _tendon(at: _Place, info, gear) -> LengthAndJacobian:
    length, row = at.tendon[info.target]
    return LengthAndJacobian(mul(gear[0], length), scaled_row(row, gear[0]))


@stage
def _wrench(gear, axes, site: End, reference: End | None):
    """Force and moments about the two reference points of a gear along the axes, at the two origins."""
    force, moment = apply(axes, gear[:3]), apply(axes, gear[3:])
    first = ZERO3 if reference is None else vadd(moment, cross(reference.x, force))
    return force, first, vadd(moment, cross(site.x, force))


@stage
def _relative(gear, site: End, reference: End):
    """Position and rotation vector of the site in the frame of the reference site, along the gear."""
    shift = apply_inverse(reference.R, vsub(site.world, reference.world))
    return add(dot(gear[:3], shift), dot(gear[3:], quat_log(quat_mul(quat_conj(reference.quat), site.quat))))


def _site(at: _Place, info, gear) -> LengthAndJacobian:
    sites = at.system.topology.sites
    site = site_end(at.system, at.frame, info.target)
    bodies = -1 if info.reference is None else sites[info.reference].body, sites[info.target].body
    if info.reference is None:
        return LengthAndJacobian(0.0, row_coefficients(at.system, at.frame, bodies, _wrench(gear, site.R, site, None)))
    reference = site_end(at.system, at.frame, info.reference)
    row = row_coefficients(at.system, at.frame, bodies, _wrench(gear, reference.R, site, reference))
    return LengthAndJacobian(_relative(gear, site, reference), row)


@stage
def _crank(crank: End, slider: End, rod, gear):
    """Length, and the wrench on the crank and the moment on the slider that go with it.

    With a the slider's axis and v from slider to crank the length is a v - sqrt((a v)^2 + r^2 - v v): where a rod of length r from the
    crank meets the slider's line; a v where it does not reach it.
    """
    a, v = slider.axis(2), vsub(crank.world, slider.world)
    along = dot(a, v)
    square = sub(add(mul(along, along), mul(rod, rod)), dot(v, v))
    reaches = square > 0
    root = jnp.where(reaches, jnp.sqrt(jnp.where(reaches, square, 1.0)), 1.0)
    length = sub(along, jnp.where(reaches, root, 0.0))
    share = jnp.where(reaches, sub(1.0, along / root), 1.0)
    by_v = vadd(scale(a, share), scale(v, jnp.where(reaches, 1.0 / root, 0.0)))
    by_a = scale(v, share)
    force = scale(by_v, gear)
    # The slider's axis turns with its body, its origin moves with it.
    turning = scale(cross(a, by_a), gear)
    return mul(gear, length), (force, vsub(cross(slider.x, force), turning), cross(crank.x, force))


def _slidercrank(at: _Place, info, gear) -> LengthAndJacobian:
    sites = at.system.topology.sites
    crank, slider = site_end(at.system, at.frame, info.target), site_end(at.system, at.frame, info.reference)
    length, wrench = _crank(crank, slider, at.system.actuator.crank_length[info.crank], gear[0])
    return LengthAndJacobian(length, row_coefficients(at.system, at.frame, (sites[info.reference].body, sites[info.target].body), wrench))


def _body(at: _Place, info, gear) -> LengthAndJacobian:
    """Adhesion pulls along the normals of contacts; gears have no effect (MuJoCo)."""
    return LengthAndJacobian(0.0, adhesion_row(at.system, at.frame, info.target))


KINDS: dict[str, Callable[..., LengthAndJacobian]] = {
    "joint": _joint, "jointinparent": _joint, "tendon": _tendon, "site": _site, "slidercrank": _slidercrank, "body": _body,
}  # fmt: skip
