"""The acceleration under soft constraints, found with as many contacts as there are.

The buffers of contacts are sized for the worst case, but mostly few contacts are active. The time of Newton's method is proportional to the
size of the buffers. In the program of one environment it therefore has a branch for states with few active contacts, with smaller
buffers. Both branches find the same minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.contact_plan import CondimGroup, contact_plan
from xsim.dynamics.constraints.contact_rows import contact_cones
from xsim.dynamics.constraints.narrowphase import Candidates, select_contacts
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import in_one_environment

if TYPE_CHECKING:
    from xsim.dynamics.constraints.newton import Minimum
    from xsim.dynamics.constraints.soft_set import Constraints

FEW = 4
"""Size of a small buffer of contacts."""


def has_few_branch(system: System) -> bool:
    """Whether the acceleration is found with few contacts where few are active."""
    top = system.topology
    if not in_one_environment() or top.parts or top.noslip or top.exact_mobility or top.speculative or system.derived.mobility is None:
        return False
    groups = contact_plan(top).condim_groups
    if any(group.passive for group in groups) or any(x.adhesion is not None for x in system.derived.contact_parameters.pairs):
        return False
    return any(group.capacity > FEW for group in groups)


def minimum_of_active(
    system: System, frame: Frames, v: list, soft: Constraints, minimize: Callable[[Constraints], Minimum]
) -> Minimum:  # fmt: skip
    """The result of ``minimize``, a function of constraints, for those of the contacts that are active. Its x is left out."""
    if soft.candidates is None:
        return minimize(soft)._replace(x=())
    groups = contact_plan(system.topology).condim_groups

    def with_contacts(groups: tuple[CondimGroup, ...]) -> Minimum:
        contacts = select_contacts(system, frame, soft.candidates, groups)
        cones = contact_cones(system, frame, v, contacts)
        return minimize(soft._replace(cones=cones))._replace(x=(), steps=0)

    large = [c for c, group in zip(soft.candidates, groups, strict=True) if group.capacity > FEW]
    are_few = jnp.stack([((c.depth > 0).sum(0) <= FEW).all() for c in large]).all()
    return jax.lax.cond(are_few, lambda: with_contacts(_few_groups(system.topology)), lambda: with_contacts(groups))


def _few_groups(topology: Topology) -> tuple[CondimGroup, ...]:
    """The condim groups with small buffers."""
    return tuple(group.with_capacity(FEW) if group.capacity > FEW else group for group in contact_plan(topology).condim_groups)
