"""What a model asks for and the dynamics does not do yet: one line for each kind in the warning about what is not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...spec import GeomSpec, ModelSpec, Source
from ..errors import Notes

__all__ = ["note_missing"]

CONTACTS = ("touch", "distance", "normal", "fromto")


def note_missing(spec: ModelSpec, notes: Notes) -> None:
    """Add a line for each kind of thing that the model has, that acts under its flags, and that is not simulated. Raises ParseError where
    the notes are strict."""
    for what, flags, find in _KINDS:
        if not set(flags) & set(spec.option.disabled):
            first = next(find(spec), None)
            if first is not None:
                notes.unsupported(first.line, f"{what} not simulated yet", first.file)


# ---- where the first of each kind stands ----


def _touching(spec: ModelSpec) -> Iterator[Source]:
    """Geoms that can touch those of another body, and flexes. Source of the rules: MuJoCo's documentation, Computation, selection of
    collisions."""
    yield from (pair.source for pair in spec.pairs)
    for flex in spec.flexes:
        surface = flex.numbers["contact"]
        if flex.numbers["internal"] or surface.contype or surface.conaffinity:
            yield flex.source
    shells = _shells(spec)
    contype, conaffinity = (np.array([s.masks[k] for s in shells], np.int64) for k in (0, 1))
    group, above = (np.array([s[k] for s in shells]) for k in (0, 1))
    kin = "filterparent" not in spec.option.disabled
    exclude = {frozenset(pair) for pair in spec.exclude}
    for i, shell in enumerate(shells):
        hit = (contype[i] & conaffinity) | (contype & conaffinity[i]) != 0
        hit &= group != group[i]
        if kin and group[i] >= 0:
            hit &= (group < 0) | (group != above[i]) & (above != group[i])
        if any({i - 1, int(j) - 1} not in exclude for j in np.flatnonzero(hit)):
            yield shell.source


class _Shell(NamedTuple):
    """The geoms of a body. group: the body that it moves with (-1: the world); above: the one that the group's parent moves with; masks:
    contype and conaffinity of any geom."""

    group: int
    above: int
    masks: tuple[int, int]
    source: Source


def _shells(spec: ModelSpec) -> list[_Shell]:
    """Of the world, then of all bodies."""
    out = [_shell(-1, -1, spec.world_geoms, spec.source)]
    for i, body in enumerate(spec.bodies):
        parent = out[body.parent + 1]
        around = (i, parent.group) if body.joints else (parent.group, parent.above)
        out.append(_shell(*around, body.geoms, body.source))
    return out


def _shell(group: int, above: int, geoms: tuple[GeomSpec, ...], source: Source) -> _Shell:
    masks = [0, 0]
    for geom in geoms:
        if geom.contact is not None and geom.collision:
            masks[0] |= geom.contact.contype
            masks[1] |= geom.contact.conaffinity
            source = geom.source
    return _Shell(group, above, (masks[0], masks[1]), source)


def _sensors(*kinds: str) -> Callable[[ModelSpec], Iterator[Source]]:
    return lambda spec: (s.source for s in spec.sensors if s.kind in kinds)


def _elastic(spec: ModelSpec) -> Iterator[Source]:
    for flex in spec.flexes:
        if flex.numbers["young"] or flex.numbers["edge_stiffness"] or flex.numbers["edge_damping"]:
            yield flex.source


def _flex_edges(spec: ModelSpec) -> Iterator[Source]:
    return (e.source for e in spec.equalities if e.active and e.kind == "flex")


def _adhesive(spec: ModelSpec) -> Iterator[Source]:
    return (a.source for a in spec.actuators if a.transmission == "body" and a.group not in spec.option.actuator_groups_off)


# What there is (and the verb), the flags without which nothing of it acts, and where it stands.
_KINDS: list[tuple[str, tuple[str, ...], Callable[[ModelSpec], Iterator[Source]]]] = [
    ("contacts are", ("constraint", "contact"), _touching),
    ("equalities of flexes are", ("constraint", "equality"), _flex_edges),
    ("elasticity and edges of flexes are", ("passive",), _elastic),
    ("adhesion, which acts through contacts, is", ("actuation",), _adhesive),
    ("noslip iterations are", ("constraint",), lambda spec: iter([spec.source] * bool(spec.option.solver["noslip_iterations"]))),
    ("inverse dynamics in discrete time (invdiscrete) is", (), lambda spec: iter([spec.source] * spec.option.solver["invdiscrete"])),
    *((f"<{kind}> gives zeros: what it measures is", ("sensor",), _sensors(kind)) for kind in CONTACTS),
]
