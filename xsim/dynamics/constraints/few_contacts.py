"""Functions of the soft constraints, evaluated with as many contacts as there are.

The buffers of contacts are sized for the worst case, but mostly few contacts are active, and the time of Newton's method is proportional to
the size of the buffers. In the program of one environment it therefore has a branch with small buffers, for the states whose active
contacts have room in them. Both branches find the same minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.contact_plan import CondimGroup, contact_plan
from xsim.dynamics.constraints.contact_rows import contact_cones
from xsim.dynamics.constraints.narrowphase import select_contacts
from xsim.dynamics.constraints.soft_set import Constraints
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System


def of_active_contacts(system: System, frame: Frames, v: list, soft: Constraints, function: Callable[[Constraints], Any]) -> Any:
    """The result of a function of constraints, for these constraints with the contacts that are active."""
    if soft.candidates is None:
        return function(soft)
    groups = contact_plan(system.topology).condim_groups

    def with_contacts(groups: tuple[CondimGroup, ...]) -> Any:
        contacts = select_contacts(system, frame, soft.candidates, groups)
        return function(soft._replace(cones=contact_cones(system, frame, v, contacts)))

    small = tuple(group.with_small_buffer() for group in groups)
    active = [(c.depth > 0).sum(0) for c in soft.candidates]
    fit = jnp.stack([(n <= group.capacity).all() for n, group in zip(active, small, strict=True)]).all()
    return jax.lax.cond(fit, lambda: with_contacts(small), lambda: with_contacts(groups))
