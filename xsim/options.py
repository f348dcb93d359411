"""Settings of a model that are not array leaves and may be changed after it is loaded: integrator, constraints, contact buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from xsim.model.model import Model
from xsim.registry import INTEGRATORS
from xsim.spec import CONSTRAINT_KINDS
from xsim.suggestions import did_you_mean

__all__ = ["with_constraints", "with_contact_limit", "with_integrator"]


def with_integrator(model: Model, name: str) -> Model:
    """The same model with another integrator: implicit_damping, euler, rk4, rk4_manifold, dart, linearly_implicit, implicitfast,
    implicit, discrete or one that is registered. Raises ValueError for an unknown name."""
    if name not in INTEGRATORS:
        raise ValueError(INTEGRATORS.unknown(name))
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, integrator=name))


def with_constraints(model: Model, kinds: Iterable[str]) -> Model:
    """The same model in which only these kinds of constraints act.

    kinds: a subset of `xsim.spec.CONSTRAINT_KINDS`, or one of them:

    * ``"holonomic"``: couplings of coordinates, joints that close loops, prescribed motions
    * ``"friction"``, ``"limit"``, ``"velocity"``, ``"servo"``: dry friction, position limits, velocity limits and servos that act as
      impulses
    * ``"soft"``: equality constraints, limits and dry friction as in MuJoCo
    * ``"contact"``: contacts

    Raises ValueError for another kind."""
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in kinds:
        if kind not in CONSTRAINT_KINDS:
            hint = did_you_mean(str(kind), CONSTRAINT_KINDS)
            raise ValueError(f"unknown kind of constraint {kind!r}{hint}; known: {', '.join(CONSTRAINT_KINDS)}")
    ordered = tuple(kind for kind in CONSTRAINT_KINDS if kind in kinds)
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, constraint_kinds=ordered))


def with_contact_limit(model: Model, contacts: int | None, pairs: int | None = None) -> Model:
    """The same model with the sizes of its contact buffers set.

    contacts: the maximum number of contacts of each condim in an environment. None: max(32, 2 nv), with signed distance functions at least
    the number of their starting points, and at most the number that the pairs of the model can have. pairs: the maximum number of geom
    pairs of one kind that reach the narrow phase; those with the least lower bound of the distance do. None: max(32, 2 nv). Steps compiled
    by LLVM need no maximum for pairs with a closed form: pairs whose bounding spheres are apart are skipped.

    Smaller buffers are faster. If more contacts are active, the deepest ones act and `Flags.CONTACT_OVERFLOW` is set. The flag is also set
    if more pairs may be in contact than reach the narrow phase. Raises ValueError for a number below 1."""
    for name, count in (("contacts", contacts), ("pairs", pairs)):
        if count is not None and count < 1:
            raise ValueError(f"the maximum number of {name} must be at least 1, found {count}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, max_contacts=contacts, max_pairs=pairs))
