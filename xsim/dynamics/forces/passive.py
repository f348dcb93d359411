"""Springs and dampers of joints, and the quadratic terms (damping, stiffness, armature) along the axes of each joint's law."""

from __future__ import annotations

from xsim.dynamics.flex.elasticity import flex_force
from xsim.dynamics.forces.medium import medium_force
from xsim.dynamics.linalg.sparse import Quadratic, with_quadratic
from xsim.dynamics.tendons.tendons import LengthAndJacobian, tendon_force
from xsim.dynamics.tree.kinematics import Frames, gather, mass_matrix
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
def _turned(R, axes, directions, values):
    """Matrix sum_k values[k] g_k g_k^T, g_k the axis k (axes[k] turned by R) along the directions of the velocities."""
    g = [[dot(apply(R, a), d) for d in directions] for a in axes]
    n = range(len(directions))
    return [[total([mul(mul(x, row[i]), row[j]) for x, row in zip(values, g, strict=True)]) for j in n] for i in n]


@stage
def _along(R, axes, directions, values):
    """Vector sum_k values[k] g_k, g_k as in `_turned`."""
    turned = [apply(R, a) for a in axes]
    return [total([mul(x, dot(a, d)) for x, a in zip(values, turned, strict=True)]) for d in directions]


@stage
def _parent_axes(turn):
    """The parent body's axes in the joint frame."""
    R = matrix(turn)
    return [apply_inverse(R, e) for e in BASIS]


def _parts(system: System, frame: Frames, block: Block, axes: str):
    """Per group of dofs with a common set of axes: (dofs, rotation of the axes, the axes, directions of the velocities)."""
    links = system.topology.links
    slides = [links[s].v for s in block.slides]
    if axes == "body":
        own = [system.link.numbers[s].axis for s in block.slides]
        yield slides, frame.R[block.rotating[-1]], own, [frame.subspace[d].lin for d in slides]
        return
    turns = [d for link in block.rotating for d in range(links[link].v, links[link].v + links[link].nv)]
    R, own = frame.R[block.slides[-1]], _parent_axes(system.body.joint_quat[block.body])
    yield slides, R, own, [frame.subspace[d].lin for d in slides]
    yield turns, R, own, [frame.subspace[d].ang for d in turns]


def _spring_axes(block: Block) -> str | None:
    return "parent" if block.damper == "parent" else None


def quadratic(system: System, frame: Frames, values, which: str) -> Quadratic:
    """Damping (``which`` "damper"), stiffness ("spring") or armature as a matrix: along joint velocities, or along the axes of the
    joint's law."""
    diagonal, blocks = list(values), {}
    for block in system.tables.blocks:
        axes = {"damper": block.damper, "armature": block.armature, "spring": _spring_axes(block)}[which]
        if axes is None:
            continue
        for dofs, R, own, directions in _parts(system, frame, block, axes):
            entries = _turned(R, own, directions, [values[d] for d in dofs])
            for i, row in zip(dofs, entries, strict=True):
                diagonal[i] = 0.0
                blocks.update({(i, j): b for j, b in zip(dofs, row, strict=True)})
    return Quadratic(diagonal, blocks)


@stage
def _displacement(joint, numbers, law, q, ref):
    if law == "components":
        return vsub(joint.coordinates(numbers, ref), joint.coordinates(numbers, q))
    return joint.difference(numbers, q, ref)


def displacements(system: System, q) -> list:
    """What the springs are stretched by, towards their references, per dof."""
    out: list = []
    qs, refs = split_q(system, q), split_q(system, system.joint.spring_ref)
    for i, link in enumerate(system.topology.links):
        law = system.topology.bodies[link.body].joints[link.joint].spring_law
        out.extend(_displacement(system.link.joints[i], system.link.numbers[i], law, qs[i], refs[i]))
    return out


@stage
def _scaled(stiffness, x):
    return [mul(k, a) for k, a in zip(stiffness, x, strict=True)]


def spring_force(system: System, frame: Frames, q) -> list:
    """Stiffness times the displacement towards the reference.

    A ball's spring acts on the rotation vector from q to its reference, child axes (angle at most pi), or on the difference of the
    components of their rotation vectors, as its law says; that of a free joint whose law acts along the parent's axes, along those.
    """
    springs = _scaled(system.dof.stiffness, displacements(system, q))
    for block in system.tables.blocks:
        axes = _spring_axes(block)
        if axes is not None:
            for dofs, R, own, directions in _parts(system, frame, block, axes):
                for d, x in zip(dofs, _along(R, own, directions, [springs[d] for d in dofs]), strict=True):
                    springs[d] = x
    return springs


@stage
def _minus(a, b):
    return [neg(y) if x is None else sub(x, y) for x, y in zip(a, b, strict=True)]


def passive_force(system: System, frame: Frames, q, v, damping: Quadratic, tendon: list[LengthAndJacobian]) -> list:
    """Springs (see `spring_force`) and dampers of joints, tendons and flexes, weight that is taken back, forces of the medium around."""
    if "passive" in system.topology.disabled:
        return [0.0] * len(v)
    out = _minus(spring_force(system, frame, q), damping.times(v))
    own = tendon_force(system, tendon, v), flex_force(system, frame, v)
    for more in (*own, weight_taken(system, frame, False), medium_force(system, frame, v)):
        out = [add(x, y) for x, y in zip(out, more, strict=True)]
    return out


@stage
def _upwards(R, origin, offset: Pose, inertia: Inertia, gravity, factor) -> Force:
    """What takes back a factor of a body's weight."""
    lifted = inertia_move(matrix(offset.quat), offset.pos, inertia)
    return mscale(momentum(inertia_move(R, origin, lifted), Motion(ZERO3, gravity)), neg(factor))


def weight_taken(system: System, frame: Frames, by_actuators: bool) -> list:
    """Gravity compensation on the joints where it counts as an actuator's force, or on the others."""
    top = system.topology
    force: list = [None] * len(top.links)
    for index, body in enumerate(top.bodies):
        if body.gravcomp is not None and body.link >= 0:
            own = system.body.offset[index], system.body.inertia[index], system.option.gravity, system.body.gravcomp[body.gravcomp]
            one = _upwards(frame.R[body.link], frame.origin[body.link], *own)
            force[body.link] = one if force[body.link] is None else madd(force[body.link], one)
    out = gather(system, frame, force) if any(f is not None for f in force) else [0.0] * len(frame.subspace)
    for joint in top.joints:
        if joint.actuator_gravcomp != by_actuators:
            for dof in range(joint.v[0], sum(joint.v)):
                out[dof] = 0.0
    return out


def loaded_mass(system: System, frame: Frames, inertia) -> list:
    """Rows of the mass matrix with the armature."""
    return with_quadratic(system, mass_matrix(system, frame, inertia), [(1.0, quadratic(system, frame, system.dof.armature, "armature"))])
