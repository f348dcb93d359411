"""Armature: inertia of rotors that dofs, tendons and actuators drive. Source: MuJoCo's documentation, attribute armature.

The armature m of a tendon with the length L(q) and the Jacobian J has the kinetic energy m (J v)^2 / 2: it adds m J^T J to the mass matrix
and m J^T (dJ/dt) v to the bias force. As in MuJoCo, the mass matrix is without the entries between dofs of different branches.
"""

from __future__ import annotations

from xsim.dynamics.forces.passive import quadratic
from xsim.dynamics.linalg.sparse import Quadratic, add_outer_product, with_quadratic
from xsim.dynamics.tendons.tendons import add_row_force, unwrapped_drift, unwrapped_row
from xsim.dynamics.tree.kinematics import Frames, accelerations, mass_matrix, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import mul


def tendon_armatures(system: System) -> dict[int, object]:
    """{tendon: armature, kg} of the tendons that have one."""
    return {i: system.tendon.armature[info.armature] for i, info in enumerate(system.topology.tendons) if info.armature is not None}


def armature_matrix(system: System, frame: Frames) -> Quadratic:
    """The part of the mass matrix that armature adds."""
    out = quadratic(system, frame, system.dof.armature, "armature")
    for tendon, armature in tendon_armatures(system).items():
        add_outer_product(system, out, unwrapped_row(system, frame, tendon), armature)
    return out


def with_armature_bias(system: System, frame: Frames, q, v, force: list) -> list:
    """A bias force (nv) plus that of the armature of tendons."""
    moving = {i: x for i, x in tendon_armatures(system).items() if system.topology.tendons[i].kind == "spatial"}
    if not moving:
        return force
    joint_velocity, velocity = velocities(system, frame, v)
    acceleration = accelerations(system, frame, q, v, None, joint_velocity, velocity)
    for tendon, armature in moving.items():
        drift = unwrapped_drift(system, frame, tendon, velocity, acceleration)
        force = add_row_force(force, unwrapped_row(system, frame, tendon), mul(armature, drift))
    return force


def mass_with_armature(system: System, frame: Frames, inertia) -> list:
    """Rows of the mass matrix with the armature, see `mass_matrix`."""
    return with_quadratic(system, mass_matrix(system, frame, inertia), [(1.0, armature_matrix(system, frame))])
