"""Transmissions of actuators: a length and its Jacobian row, whose transpose maps the actuator force to the dofs.

Source: MuJoCo's documentation, chapter Computation, section Actuation model.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.constraints.contact_rows import adhesion_row
from xsim.dynamics.tendons.tendons import LengthAndJacobian, scaled_row
from xsim.dynamics.tree.frames import End, row_coefficients, site_end
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.registry import TRANSMISSIONS
from xsim.spatial import (
    ZERO3,
    add,
    apply,
    apply_inverse,
    cross,
    dot,
    mul,
    quat_conj,
    quat_log,
    quat_mul,
    rotate,
    scale,
    stage,
    sub,
    unit_quaternion,
    vadd,
    vsub,
)


def transmissions(system: System, frame: Frames, q, tendon: list[LengthAndJacobian]) -> list[LengthAndJacobian]:
    """Length and Jacobian row of the transmission of each force of actuators. tendon: length and Jacobian row of each tendon."""
    at, out = _Configuration(system, frame, q, tendon), []
    for info, gear in zip(system.topology.actuators, system.actuator.gear, strict=True):
        if len(info.outputs) == 1:
            out.append(TRANSMISSIONS[info.transmission](at, info, gear))
        else:
            out += _ball_rotation(at, info) if info.transmission == "joint" else _site_rotation(at, info)
    return out


class _Configuration(NamedTuple):
    system: System
    frame: Frames
    q: list
    tendon: list


@stage
def _rotation_along(q, gear):
    return dot(quat_log(unit_quaternion(q)), gear)


@stage
def _to_parent_axes(q, gear):
    return rotate(quat_conj(unit_quaternion(q)), gear)


def _joint(at: _Configuration, info, gear) -> LengthAndJacobian:
    """A joint. hinge, slide: the coordinate times the first gear. ball: the rotation vector along the gear. free: no length, one gear per
    dof. With ``jointinparent`` the gears of rotations are along the axes of the parent."""
    body, index = info.target
    joint = at.system.topology.bodies[body].joints[index]
    (q0, _), (v0, nv) = joint.q, joint.v
    in_parent = info.transmission == "jointinparent"
    if joint.type == "free":
        quat = at.q[q0 + 3 : q0 + 7]
        axis = _to_parent_axes(tuple(quat), gear[3:]) if in_parent else gear[3:]
        return LengthAndJacobian(0.0, [(v0 + i, x) for i, x in enumerate((*gear[:3], *axis))])
    if joint.type == "ball":
        quat = tuple(at.q[q0 : q0 + 4])
        axis = _to_parent_axes(quat, gear[:3]) if in_parent else gear[:3]
        return LengthAndJacobian(_rotation_along(quat, gear[:3]), [(v0 + i, x) for i, x in enumerate(axis)])
    assert nv == 1
    return LengthAndJacobian(mul(gear[0], at.q[q0]), [(v0, gear[0])])


def _tendon(at: _Configuration, info, gear) -> LengthAndJacobian:
    length, row = at.tendon[info.target]
    return LengthAndJacobian(mul(gear[0], length), scaled_row(row, gear[0]))


@stage
def _wrench(gear, axes, site: End, reference: End | None):
    """The wrench of a gear along the axes: force, moment on the reference body, moment on the body of the site.

    Moments are about the origins of the two bodies (`End.x`: the site relative to that origin)."""
    force, moment = apply(axes, gear[:3]), apply(axes, gear[3:])
    reference_moment = ZERO3 if reference is None else vadd(moment, cross(reference.x, force))
    return force, reference_moment, vadd(moment, cross(site.x, force))


@stage
def _relative(gear, site: End, reference: End):
    """Position and rotation vector of the site in the frame of the reference site, along the gear."""
    position = apply_inverse(reference.R, vsub(site.world, reference.world))
    return add(dot(gear[:3], position), dot(gear[3:], quat_log(quat_mul(quat_conj(reference.quat), site.quat))))


def _site(at: _Configuration, info, gear) -> LengthAndJacobian:
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
    """Length, and the wrench: force on the crank, moments on the slider's and the crank's body.

    Let a be the axis of the slider and v the vector from slider to crank. A rod of length r joins the crank to a point on the axis of the
    slider. The length is the distance from the slider to this point, a v - sqrt((a v)^2 + r^2 - v v). It is a v if the rod is too short to
    reach the axis.
    """
    a, v = slider.axis(2), vsub(crank.world, slider.world)
    along = dot(a, v)
    square = sub(add(mul(along, along), mul(rod, rod)), dot(v, v))
    reaches = square > 0
    root = jnp.where(reaches, jnp.sqrt(jnp.where(reaches, square, 1.0)), 1.0)
    length = sub(along, jnp.where(reaches, root, 0.0))
    factor = jnp.where(reaches, sub(1.0, along / root), 1.0)
    d_v = vadd(scale(a, factor), scale(v, jnp.where(reaches, 1.0 / root, 0.0)))
    d_a = scale(v, factor)
    force = scale(d_v, gear)
    # The axis of the slider rotates with its body.
    axis_moment = scale(cross(a, d_a), gear)
    return mul(gear, length), (force, vsub(cross(slider.x, force), axis_moment), cross(crank.x, force))


@stage
def _rotation_between(site: End, reference: End):
    """The rotation vector of the site in the frame of the reference site."""
    return quat_log(quat_mul(quat_conj(reference.quat), site.quat))


@stage
def _rotation_of(q):
    return quat_log(unit_quaternion(q))


def _ball_rotation(at: _Configuration, info) -> list[LengthAndJacobian]:
    """The rotation vector of a ball joint, and its angular velocity in the axes of the child."""
    body, index = info.target
    joint = at.system.topology.bodies[body].joints[index]
    vector = _rotation_of(tuple(at.q[joint.q[0] : sum(joint.q)]))
    return [LengthAndJacobian(x, [(joint.v[0] + i, 1.0)]) for i, x in enumerate(vector)]


def _site_rotation(at: _Configuration, info) -> list[LengthAndJacobian]:
    """The rotation vector of a site relative to another, and its angular velocity in the axes of the site."""
    sites = at.system.topology.sites
    site, reference = (site_end(at.system, at.frame, number) for number in (info.target, info.reference))
    bodies, out = (sites[info.reference].body, sites[info.target].body), []
    for i, x in enumerate(_rotation_between(site, reference)):
        out.append(LengthAndJacobian(x, row_coefficients(at.system, at.frame, bodies, (ZERO3, site.axis(i), site.axis(i)))))
    return out


def _slidercrank(at: _Configuration, info, gear) -> LengthAndJacobian:
    sites = at.system.topology.sites
    crank, slider = site_end(at.system, at.frame, info.target), site_end(at.system, at.frame, info.reference)
    length, wrench = _crank(crank, slider, at.system.actuator.crank_length[info.crank], gear[0])
    return LengthAndJacobian(length, row_coefficients(at.system, at.frame, (sites[info.reference].body, sites[info.target].body), wrench))


def _body(at: _Configuration, info, gear) -> LengthAndJacobian:
    """Adhesion: a force along the normals of the contacts of a body. The gear has no effect (as in MuJoCo)."""
    return LengthAndJacobian(0.0, adhesion_row(at.system, at.frame, info.target))


TRANSMISSIONS.register_all({
    "joint": _joint, "jointinparent": _joint, "tendon": _tendon, "site": _site, "slidercrank": _slidercrank, "body": _body,
})  # fmt: skip
