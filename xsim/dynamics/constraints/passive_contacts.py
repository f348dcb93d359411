"""Passive contacts of flexes: springs without friction, which push as the shapes overlap.

A contact with the distance d and the Jacobian J of its normal has the generalized force J^T k max(-d, 0), and the stiffness k J^T J, which
counts in the metric of the step also where d is positive, as far as contacts are detected. k = 5e7 / s^2 m, with the smaller of the masses
m of both sides. The mass of an element is the least of its points; a point has a mass where its body has three dofs: the entry of the mass
matrix of the first one. The mass of an element that nodes move is 1 / sum w^2 / m over the nodes with a mass, with the weights w of the
contact point, times the number of these nodes per vertex of the flex. Source: MuJoCo 4.0's documentation, XML reference, flex contact; the
numbers and masses by probes of MuJoCo 4.0.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.contact_plan import NO_BODY, CondimGroup
from xsim.dynamics.constraints.contact_rows import constants_of_contacts, contact_jacobian, parameters_of_contacts
from xsim.dynamics.constraints.narrowphase import Contacts, of_contacts
from xsim.dynamics.forces.armature import mass_with_armature
from xsim.dynamics.layout import column, take_rows
from xsim.dynamics.linalg.dense import pairwise_sum, summed_products, tree_sum
from xsim.dynamics.tree.kinematics import Frames, lanes_of, link_inertias
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology

SQUARED_FREQUENCY = 5e7
"""Stiffness by mass, 1/s^2."""


class PassiveContacts(NamedTuple):
    """The generalized force (nv, lanes) of passive contacts, and their stiffness (nv, nv, lanes)."""

    force: Any
    stiffness: Any


def passive_contacts(system: System, frame: Frames, v, contacts: list[Contacts]) -> PassiveContacts | None:
    """The passive contacts of all contacts. None if the model can have none."""
    if not contacts[-1].group.passive:
        return None
    of_group, parameters = contacts[-1], parameters_of_contacts(system, contacts)[-1]  # all have the dimension 1
    J = contact_jacobian(system, frame, of_group, lanes_of(system, frame) or (1,), 1).dense()[:, 0]
    inverse = jnp.maximum(*(_inverse_mass(system, of_group, side, _inverse_masses(system, frame)) for side in (0, 1)))
    acts = (of_group.distance <= parameters.detection_distance) & (inverse > 0)
    k = jnp.where(acts, SQUARED_FREQUENCY / jnp.where(acts, inverse, 1.0), 0.0)
    force = k * jnp.maximum(-of_group.distance, 0.0)
    return PassiveContacts(pairwise_sum(force[:, None] * J), summed_products(k[:, None] * J, J))


def _inverse_masses(system: System, frame: Frames):
    """The inverse masses (bodies + 1, lanes or 1) of points on bodies, 0 for a body that has none, and for the world."""
    rows = mass_with_armature(system, frame, link_inertias(system, frame))
    out = []
    for body in system.topology.bodies:
        dofs = [dof for joint in body.joints for dof in range(joint.v[0], sum(joint.v))]
        out.append(1.0 / rows[dofs[0]][-1] if len(dofs) == 3 else 0.0)
    return column([*out, 0.0])


def _inverse_mass(system: System, contacts: Contacts, side: int, of_bodies):
    """The inverse masses (contacts, lanes) of one side of contacts, 0 for what has no mass of its own. of_bodies: `_inverse_masses`."""
    bodies = contacts.group.flex_bodies
    assert bodies is not None and contacts.corner_weights is not None
    index = [of_contacts(bodies.bodies[:, side, k], contacts.pair) for k in range(bodies.bodies.shape[2])]
    inverse = [take_rows(of_bodies, i) for i in index]
    least = inverse[0]
    for x in inverse[1:]:
        least = jnp.maximum(least, x)
    share = constants_of_contacts(contacts, _vertices_per_node(system.topology, contacts.group, side)[None], least.dtype)[0]
    of_nodes = share * tree_sum([w * w * x for w, x in zip(contacts.corner_weights[side], inverse, strict=True)])
    return jnp.where(share > 0, of_nodes, least)


def _vertices_per_node(topology: Topology, group: CondimGroup, side: int) -> np.ndarray:
    """(pairs,): of elements that nodes move, the number of vertices of the flex by that of its nodes with a mass; 0 for other elements and
    geoms."""
    of_flex = []
    for flex in topology.flexes:
        with_mass = sum(sum(joint.v[1] for joint in topology.bodies[body].joints) == 3 for body in flex.bodies if body >= 0)
        of_flex.append(0.0 if flex.grid is None or not with_mass else len(flex.grid.vertex_nodes.value) / with_mass)
    is_part, first = group.bodies[:, side] == NO_BODY, len(topology.geoms)
    parts = np.where(is_part, group.geoms[:, side] - first, 0)
    return np.where(is_part, np.array([of_flex[part.flex] for part in topology.parts])[parts], 0.0)
