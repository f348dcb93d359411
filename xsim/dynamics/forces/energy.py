"""Kinetic and potential energy."""

from __future__ import annotations

from xsim.dynamics.forces.armature import mass_with_armature
from xsim.dynamics.forces.elements import element_energy
from xsim.dynamics.forces.passive import spring_displacements
from xsim.dynamics.linalg.sparse import multiply
from xsim.dynamics.tendons.tendons import LengthAndJacobian, tendon_energy
from xsim.dynamics.tree.kinematics import Frames, gravity_inertia
from xsim.dynamics.tree.polynomials import joint_displacements, potential
from xsim.dynamics.tree.system import NO_INERTIA, System, gravity_acceleration
from xsim.spatial import dot, rotate, scale, vadd


def kinetic_energy(system: System, frame: Frames, inertia: list, v: list):
    """Kinetic energy with the armature, J. inertia: of the links."""
    rows = mass_with_armature(system, frame, inertia)
    return sum((0.5 * a * b for a, b in zip(multiply(system, rows, v), v, strict=True)), 0.0)


def potential_energy(system: System, frame: Frames, inertia: list, q: list, tendon: list[LengthAndJacobian]):
    """Potential energy of gravity (zero at the origin of the world), and of the springs of joints, tendons, flexes and elements, J."""
    out = _gravity_energy(system, frame, inertia)
    for energy in (*_joint_spring_energies(system, q), *element_energy(system, frame, q), *tendon_energy(system, tendon)):
        out = out + energy
    return out


def _joint_spring_energies(system: System, q: list) -> list:
    """The potential energy of the springs of joints, J."""
    displacements = spring_displacements(system, q)
    out = [0.5 * k * x * x for k, x in zip(system.dof.stiffness, displacements, strict=True)]
    for joint in system.topology.joints:
        if joint.stiffness_poly is not None:
            for _, x in joint_displacements(joint, displacements):
                out.append(potential(0.0, system.joint.stiffness_poly[joint.stiffness_poly], x))
    return out


def _gravity_energy(system: System, frame: Frames, inertia: list):
    """Potential energy of gravity, J: of the links (inertia: theirs), and of the bodies fixed to the world."""
    up = gravity_acceleration(system)
    energy = 0.0
    for i, link_inertia in enumerate(inertia):
        if link_inertia is not NO_INERTIA:
            weighted, reference = gravity_inertia(system, frame, i, link_inertia), frame.pose[system.tables.root[i]].pos
            energy = energy + dot(up, vadd(weighted.first, scale(reference, weighted.mass)))
    for info, fixed, pose in zip(system.topology.bodies, system.body.inertia, system.body.offset, strict=True):
        if info.link < 0 and fixed is not NO_INERTIA:
            weight = dot(up, vadd(rotate(pose.quat, fixed.first), scale(pose.pos, fixed.mass)))
            energy = energy + (weight if info.gravity is None else system.body.gravity[info.gravity] * weight)
    return energy
