"""The same model with another integrator, other constraints, other buffers: what is no leaf and may be changed after loading."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from xsim.model.model import Model
from xsim.registry import INTEGRATORS
from xsim.spec import ROWS

__all__ = ["with_contact_limit", "with_integrator", "with_rows"]


def with_integrator(model: Model, name: str) -> Model:
    """The same model with another integrator: implicit_damping, euler, rk4, rk4_manifold, dart, linearly_implicit, implicitfast,
    implicit or one that is registered. Raises ValueError for an unknown name."""
    if name not in INTEGRATORS:
        raise ValueError(INTEGRATORS.unknown(name))
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, integrator=name))


def with_rows(model: Model, rows: Iterable[str]) -> Model:
    """The same model with other kinds of constraint rows acting: a subset of holonomic, friction, limit, velocity, soft,
    contact.

    Soft are the equalities, limits and dry friction of MJCF; friction, limit and velocity those that are impulses. Raises ValueError for an
    unknown kind."""
    rows = tuple(rows)
    for row in rows:
        if row not in ROWS:
            raise ValueError(f"unknown kind of rows {row!r}; known: {', '.join(ROWS)}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, rows=tuple(r for r in ROWS if r in rows)))


def with_contact_limit(model: Model, contacts: int | None, pairs: int | None = None) -> Model:
    """The same model with the sizes of its contact buffers set.

    contacts: the maximum number of contacts of each condim in an environment; None: 32, or two per velocity where that is more, and never
    more than there can be. pairs: the maximum number of geom pairs of one kind that reach the narrow phase, the nearest by a lower bound
    of their distance; None: the same default. Smaller buffers are faster. Where more contacts are active the deepest count, and
    `Flags.CONTACT_OVERFLOW` is set; it is also set where more pairs may be near. Raises ValueError for a number below 1."""
    for name, count in (("contacts", contacts), ("pairs", pairs)):
        if count is not None and count < 1:
            raise ValueError(f"the maximum number of {name} must be at least 1, found {count}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, max_contacts=contacts, max_pairs=pairs))
