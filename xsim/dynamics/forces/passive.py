"""Springs and dampers of joints, and their matrices: damping, stiffness and armature along the axes on which each acts."""

from __future__ import annotations

import xsim.dynamics.forces.cable  # noqa: F401  (registers its force)
import xsim.dynamics.forces.shell  # noqa: F401
from xsim.dynamics.flex.elasticity import flex_force
from xsim.dynamics.forces.medium import medium_force
from xsim.dynamics.forces.passive_plugins import plugin_force
from xsim.dynamics.linalg.sparse import Quadratic
from xsim.dynamics.tendons.tendons import LengthAndJacobian, tendon_force
from xsim.dynamics.tree.kinematics import Frames, generalized_force
from xsim.dynamics.tree.polynomials import coefficient, dof_damping, dof_stiffness
from xsim.dynamics.tree.system import Block, System, split_q
from xsim.spatial import (
    ZERO3,
    Force,
    Inertia,
    Motion,
    Pose,
    add,
    apply,
    apply_inverse,
    dot,
    inertia_move,
    madd,
    matrix,
    momentum,
    mscale,
    mul,
    neg,
    stage,
    sub,
    total,
    vsub,
)

BASIS = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@stage
def _matrix_along(R, axes, directions, values):
    """The matrix sum_k values[k] g_k g_k^T. g_k: components of the axis R axes[k] along the directions of the velocities."""
    g = [[dot(apply(R, a), d) for d in directions] for a in axes]
    n = range(len(directions))
    return [[total([mul(mul(x, row[i]), row[j]) for x, row in zip(values, g, strict=True)]) for j in n] for i in n]


@stage
def _vector_along(R, axes, directions, values):
    """The vector sum_k values[k] g_k, with g_k as in `_matrix_along`."""
    world_axes = [apply(R, a) for a in axes]
    return [total([mul(x, dot(a, d)) for x, a in zip(values, world_axes, strict=True)]) for d in directions]


@stage
def _parent_axes(joint_quat):
    """The axes of the parent body in the joint frame."""
    R = matrix(joint_quat)
    return [apply_inverse(R, e) for e in BASIS]


def _parts(system: System, frame: Frames, block: Block, axes: str):
    """(dofs, R, axes, directions) per group of dofs. R, axes: the law acts along R axes[k]. directions: of the velocities of the dofs.

    axes: "body" or "parent"."""
    links = system.topology.links
    slides = [links[s].v for s in block.slides]
    if axes == "body":
        law_axes = [system.link.numbers[s].axis for s in block.slides]
        yield slides, frame.R[block.rotating[-1]], law_axes, [frame.subspace[d].lin for d in slides]
        return
    rotations = [d for link in block.rotating for d in range(links[link].v, links[link].v + links[link].nv)]
    R, law_axes = frame.R[block.slides[-1]], _parent_axes(system.body.joint_quat[block.body])
    yield slides, R, law_axes, [frame.subspace[d].lin for d in slides]
    yield rotations, R, law_axes, [frame.subspace[d].ang for d in rotations]


def _spring_axes(block: Block) -> str | None:
    return "parent" if block.damper == "parent" else None


def quadratic(system: System, frame: Frames, values, which: str) -> Quadratic:
    """The matrix of damping (which: "damper"), stiffness ("spring") or armature ("armature").

    values (nv): coefficient per dof. The matrix is diagonal except for joints whose law acts along other axes than their velocities."""
    diagonal, blocks = list(values), {}
    for block in system.tables.blocks:
        axes = {"damper": block.damper, "armature": block.armature, "spring": _spring_axes(block)}[which]
        if axes is None:
            continue
        for dofs, R, law_axes, directions in _parts(system, frame, block, axes):
            entries = _matrix_along(R, law_axes, directions, [values[d] for d in dofs])
            for i, row in zip(dofs, entries, strict=True):
                diagonal[i] = 0.0
                blocks.update({(i, j): b for j, b in zip(dofs, row, strict=True)})
    return Quadratic(diagonal, blocks)


@stage
def _displacement(joint, numbers, law, q, ref):
    if law == "components":
        return vsub(joint.coordinates(numbers, ref), joint.coordinates(numbers, q))
    return joint.difference(numbers, q, ref)


def spring_displacements(system: System, q) -> list:
    """Displacement (nv) from q to the reference configuration of the joint springs."""
    out: list = []
    qs, refs = split_q(system, q), split_q(system, system.joint.spring_ref)
    for i, link in enumerate(system.topology.links):
        law = system.topology.bodies[link.body].joints[link.joint].spring_law
        out.extend(_displacement(system.link.joints[i], system.link.numbers[i], law, qs[i], refs[i]))
    return out


def spring_force(system: System, frame: Frames, q) -> list:
    """Generalized force (nv) of the joint springs: stiffness, see `dof_stiffness`, times the displacement to the reference configuration.

    `JointInfo.spring_law` selects the displacement of a ball: the rotation vector from q to the reference (child axes, angle at most
    pi), or the difference of their rotation vectors. The spring of a free joint can act along the axes of the parent.
    """
    displacements = spring_displacements(system, q)
    springs = [mul(k, x) for k, x in zip(dof_stiffness(system, displacements), displacements, strict=True)]
    for block in system.tables.blocks:
        axes = _spring_axes(block)
        if axes is not None:
            for dofs, R, law_axes, directions in _parts(system, frame, block, axes):
                for d, x in zip(dofs, _vector_along(R, law_axes, directions, [springs[d] for d in dofs]), strict=True):
                    springs[d] = x
    return springs


@stage
def _minus(a, b):
    return [neg(y) if x is None else sub(x, y) for x, y in zip(a, b, strict=True)]


def damping_matrix(system: System, frame: Frames, v, of=coefficient) -> Quadratic:
    """The matrix of the joint dampers: minus their force per velocity. of: `slope` for minus the derivative of the force."""
    return quadratic(system, frame, dof_damping(system, v, of), "damper")


def passive_force(system: System, frame: Frames, q, v, damping: Quadratic, tendon: list[LengthAndJacobian]) -> list:
    """Passive generalized force (nv): springs and dampers of joints, tendons and flexes, plugins, gravity compensation, fluid. damping:
    see `damping_matrix`."""
    if "passive" in system.topology.disabled:
        return [0.0] * len(v)
    out = _minus(spring_force(system, frame, q), damping.times(v))
    forces = tendon_force(system, tendon, v), flex_force(system, frame, q, v)
    if system.topology.passive:
        forces = (*forces, plugin_force(system, frame, v))
    for force in (*forces, gravity_compensation(system, frame, False), medium_force(system, frame, v)):
        out = [add(x, y) for x, y in zip(out, force, strict=True)]
    return out


@stage
def _compensation_force(R, origin, offset: Pose, inertia: Inertia, gravity, factor) -> Force:
    """Minus factor times the weight of a body, about the reference point."""
    in_link = inertia_move(matrix(offset.quat), offset.pos, inertia)
    return mscale(momentum(inertia_move(R, origin, in_link), Motion(ZERO3, gravity)), neg(factor))


def gravity_compensation(system: System, frame: Frames, by_actuators: bool) -> list:
    """Generalized force (nv) of gravity compensation, for the joints where it counts as an actuator force or for the other joints."""
    top = system.topology
    force: list = [None] * len(top.links)
    for index, body in enumerate(top.bodies):
        if body.gravcomp is not None and body.link >= 0:
            body_inputs = system.body.offset[index], system.body.inertia[index], system.option.gravity, system.body.gravcomp[body.gravcomp]
            wrench = _compensation_force(frame.R[body.link], frame.origin[body.link], *body_inputs)
            force[body.link] = wrench if force[body.link] is None else madd(force[body.link], wrench)
    out = generalized_force(system, frame, force) if any(f is not None for f in force) else [0.0] * len(frame.subspace)
    for joint in top.joints:
        if joint.actuator_gravcomp != by_actuators:
            for dof in range(joint.v[0], sum(joint.v)):
                out[dof] = 0.0
    return out
