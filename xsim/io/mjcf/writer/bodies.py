"""<worldbody>: the tree of bodies with their mass properties and joints, depth first."""

from __future__ import annotations

import numpy as np

from xsim.io.mjcf.inertia import SLACK, SMALL, body_inertial
from xsim.io.mjcf.meshes import principal_axes
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.geoms import write_geoms
from xsim.io.mjcf.writer.joints import write_joint
from xsim.io.mjcf.writer.places import write_places
from xsim.io.mjcf.writer.plugins import plugin_config, write_instance
from xsim.io.solids import tensor
from xsim.io.writing.elements import XML, add, unless
from xsim.poses import IDENTITY_QUAT, Pose, normalized, rotation_matrix
from xsim.registry import PASSIVE_FORCES
from xsim.spec import BodySpec, InertialSpec

__all__ = ["write_bodies"]

ROUNDING = 1e-12  # relative: of an inertia along its principal axes


def write_bodies(context: Context) -> None:
    """The world and all bodies. Children stand in the element of their parent, in the order of the spec. Raises WriteError."""
    world, spec = context.section("worldbody"), context.spec
    elements = [world]
    carriers = {child: i for i, child in context.carried.items()}
    for i, body in enumerate(spec.bodies):
        parent = elements[body.parent + 1]
        elements.append(parent if i in carriers else _body(parent, body, context.chains[i].pose))
        if i not in context.carried:
            context.names.enter("body", i, elements[-1], body.name)
    inertials = [_mass_properties(context, body) for body in spec.bodies]
    _check_moving(context, inertials)
    for i, body in enumerate(spec.bodies):
        if i not in context.carried:
            _inertial(elements[i + 1], body, inertials[i])
    for i, link in context.links():
        joint = write_joint(context, elements[i + 1], spec.bodies[i], link)
        context.names.enter("joint", (i, link.first), joint, link.name, made=link.name != link.joint.name)
    _passive(context, elements)
    write_geoms(context, elements)
    write_places(context, elements)
    for e in elements:
        _sort_bodies_last(e)


def _passive(context: Context, elements: list[XML]) -> None:
    """<plugin> of the bodies with passive forces; those of one force name its instance. Raises WriteError for two in a body."""
    with_force: set[int] = set()
    for number, force in enumerate(context.spec.passive):
        name = f"passive force {force.name or number!r}"
        config = plugin_config(PASSIVE_FORCES, force.kind)
        if config is None or with_force.intersection(force.bodies) or context.carried.keys() & force.bodies:
            context.losses.refuse(force.source, name, "unknown, or on a body with another or not written; MJCF has one plugin a body")
            continue
        with_force.update(force.bodies)
        instance = force.name or f"passive{number}"
        write_instance(context, force.kind, instance, config, [x for values in force.config.values() for x in values])
        for body in force.bodies:
            add(elements[body + 1], "plugin", plugin=force.kind, instance=instance)


def _body(parent: XML, body: BodySpec, pose: Pose) -> XML:
    return add(
        parent, "body",
        pos=unless(np.zeros(3), pose.pos),
        quat=unless(IDENTITY_QUAT, pose.quat),
        mocap=unless(False, body.mocap),
        gravcomp=unless(0.0, _compensation(body)),
        sleep=unless("auto", body.sleep),
        user=body.user or None,
    )  # fmt: skip


def _compensation(body: BodySpec) -> float:
    """The part of the weight that is compensated, with that which does not act on the body."""
    return body.gravcomp + (1.0 - body.gravity)


def _mass_properties(context: Context, body: BodySpec) -> InertialSpec:
    """Mass properties, computed from the geoms where none are given. Raises WriteError for those of no body."""
    if body.inertial is None and not any((geom.mass or geom.density) and not geom.massless for geom in body.geoms):
        return InertialSpec(0.0)
    inertial = body_inertial(body, context.spec.meshes)
    moments = np.linalg.eigvalsh(tensor(inertial.inertia))
    if moments[0] < -SMALL or 2 * moments[2] > moments.sum() * (1 + SLACK) + SMALL:
        found = " ".join(f"{x:g}" for x in moments)
        text = f"principal moments of inertia {found}; MJCF has moments >= 0, none above the sum of the others"
        context.losses.refuse(body.source, f"body {body.name!r}", text)
    return inertial


def _check_moving(context: Context, inertials: list[InertialSpec]) -> None:
    """Raises WriteError for a body that moves without mass and inertia, its own or those of bodies fixed to it."""
    heavy: set[int] = set()
    for i, body in reversed(list(enumerate(context.spec.bodies))):
        moments = np.linalg.eigvalsh(tensor(inertials[i].inertia))
        moves = bool(context.chains[i].links) and i not in context.carried
        if i in heavy or inertials[i].mass > SMALL and (moments > SMALL).all():
            heavy |= set() if moves else {body.parent}
        elif moves:
            text = "a joint, and no mass or no inertia; MJCF has moving bodies with both above 1e-15"
            context.losses.refuse(body.source, f"body {body.name!r}", text)


def _inertial(e: XML, body: BodySpec, inertial: InertialSpec) -> None:
    """<inertial> along the principal axes: those that are known, else those of its matrix."""
    matrix = tensor(inertial.inertia)
    quat = IDENTITY_QUAT if body.principal is None else normalized(body.principal)
    R = rotation_matrix(quat)
    turned = R.T @ matrix @ R
    moments = np.diag(turned)
    if np.abs(turned - np.diag(moments)).max() > ROUNDING * np.abs(matrix).max():
        quat, moments = principal_axes(matrix)
    moments = np.maximum(moments, 0.0)
    add(e, "inertial", mass=inertial.mass, pos=inertial.com, quat=unless(IDENTITY_QUAT, quat), diaginertia=moments)


def _sort_bodies_last(e: XML) -> None:
    """Put the bodies in an element behind what else is in it, as people write it."""
    for child in e.findall("body"):
        e.append(child)
