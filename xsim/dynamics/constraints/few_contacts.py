"""Functions of the soft constraints, evaluated with as many contacts as there are.

The buffers of contacts are sized for the worst case, but mostly few contacts are active, and the time of Newton's method is proportional to
the size of the buffers. In the program of one environment it therefore has branches with smaller buffers. The first one is taken whose
buffers hold the active contacts. All branches find the same minimum.
"""

from __future__ import annotations

import functools
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

ONCE, ITERATED = (8,), (8, 4)
"""The sizes of the smaller buffers, as parts of the large ones: for a function that is evaluated once, and for an iteration. Each is a
branch, which takes time to compile."""


def of_active_contacts(
    system: System, frame: Frames, v: list, soft: Constraints, function: Callable[[Constraints], Any], parts: tuple[int, ...] = ONCE
) -> Any:
    """The result of a function of constraints, for these constraints with the contacts that are active. parts: see `ONCE`."""
    if soft.candidates is None:
        return function(soft)
    groups = contact_plan(system.topology).condim_groups

    def with_contacts(groups: tuple[CondimGroup, ...]) -> Any:
        contacts = select_contacts(system, frame, soft.candidates, groups, sort=False)
        return function(soft._replace(cones=contact_cones(system, frame, v, contacts)))

    active = [(c.depth > 0).sum(0) for c in soft.candidates]

    def is_exceeded(groups: tuple[CondimGroup, ...]):
        return jnp.stack([(n > group.capacity).any() for n, group in zip(active, groups, strict=True)]).any()

    sizes = small_buffers(groups, parts)
    smallest = jnp.stack([is_exceeded(size) for size in sizes]).sum()
    return jax.lax.switch(smallest, [functools.partial(with_contacts, size) for size in (*sizes, groups)])


def small_buffers(groups: tuple[CondimGroup, ...], parts: tuple[int, ...]) -> list[tuple[CondimGroup, ...]]:
    """The groups with smaller buffers of these parts, the smallest first. Sizes that differ by less than a factor of 2 are left out."""
    sizes: list[tuple[CondimGroup, ...]] = []
    for part in parts:
        size = tuple(group.with_small_buffer(part) for group in groups)
        if not sizes or any(group.capacity >= 2 * smaller.capacity for group, smaller in zip(size, sizes[-1], strict=True)):
            sizes.append(size)
    return sizes
