"""The acceleration under soft constraints, found with as many contacts as there are.

The buffers of contacts are sized for the worst case, but mostly few contacts are active, and the time of Newton's method is proportional to
the size of the buffers. In the program of one environment it therefore has a branch with small buffers, for the states whose active
contacts have room in them. Both branches find the same minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.contact_plan import CondimGroup, contact_plan
from xsim.dynamics.constraints.contact_rows import contact_cones
from xsim.dynamics.constraints.narrowphase import select_contacts
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.spatial import in_one_environment

if TYPE_CHECKING:
    from xsim.dynamics.constraints.newton import Minimum
    from xsim.dynamics.constraints.soft_set import Constraints

LARGE = 16
"""A buffer of so many contacts, or more, has a small one beside it, with an eighth of its entries, `SMALLEST` at least."""
SMALLEST = 4


def has_few_branch(system: System) -> bool:
    """Whether the acceleration is found with few contacts where few are active."""
    top = system.topology
    if not in_one_environment() or top.parts or top.noslip or top.exact_mobility or top.speculative or system.derived.mobility is None:
        return False
    groups = contact_plan(top).condim_groups
    if any(group.passive for group in groups) or any(x.adhesion is not None for x in system.derived.contact_parameters.pairs):
        return False
    return any(group.capacity >= LARGE for group in groups)


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

    small = tuple(_small(group) for group in groups)
    active = [(c.depth > 0).sum(0) for c in soft.candidates]
    fit = jnp.stack([(n <= group.capacity).all() for n, group in zip(active, small, strict=True)]).all()
    return jax.lax.cond(fit, lambda: with_contacts(small), lambda: with_contacts(groups))


def _small(group: CondimGroup) -> CondimGroup:
    """A condim group with a small buffer, if its own is large."""
    return group if group.capacity < LARGE else group.with_capacity(max(SMALLEST, group.capacity // 8))
