"""Tendons: their lengths, what moves them, and the forces of their springs and dampers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from ..spatial import add, apply, apply_inverse, cross, mul, neg, normalize, safe_norm, stage, sub, vsub
from .holonomic import coordinate_places
from .kinematics import Frames
from .loops import End, row_coefficients
from .places import geom_end, site_end
from .system import System
from .wrapping import wrap


class Taut(NamedTuple):
    """length (m, or of a fixed tendon in its coordinates' units) and the row [(dof, coefficient), ...] of its rate."""

    length: object
    row: list


def tendons(system: System, frame: Frames, q) -> list[Taut]:
    """All tendons at a configuration."""
    return [
        _fixed(system, info, q) if info.kind == "fixed" else _spatial(system, frame, info) for info in system.topology.tendons
    ]


def _address(system: System, dof: int) -> int:
    """Of the coordinate that a dof moves; of a ball the first of its quaternion (MuJoCo's rule, of no use)."""
    places = coordinate_places(system.topology)
    return places[dof][1] if dof in places else next(j.q[0] for j in system.topology.joints if j.v[0] == dof)


def _fixed(system: System, info, q) -> Taut:
    length, row = 0.0, []
    for piece in info.path:
        coefficient = system.tendons.coefficient[piece.row]
        length = add(length, mul(coefficient, q[_address(system, piece.item)]))
        row.append((piece.item, coefficient))
    return Taut(length, _merged(row))


def _spatial(system: System, frame: Frames, info) -> Taut:
    """The path through the sites, each branch counted by its pulley's divisor."""
    length, row, divisor = 0.0, [], None
    before: tuple[int, End] | None = None  # body and frame of the last site
    around = None
    for piece in info.path:
        if piece.kind == "pulley":
            divisor, before = system.tendons.divisor[piece.row], None
        elif piece.kind == "geom":
            around = piece
        else:
            here = system.topology.sites[piece.item].body, site_end(system, frame, piece.item)
            if before is not None:
                part, moved = _straight(system, frame, before, here) if around is None else _wrapped(system, frame, before, here, around)
                share = 1.0 if divisor is None else 1.0 / divisor
                length = add(length, mul(part, share))
                row += [(dof, mul(x, share)) for dof, x in moved]
            before, around = here, None
    return Taut(length, _merged(row))


def _merged(row: list) -> list:
    """One coefficient per dof."""
    out: dict = {}
    for dof, x in row:
        out[dof] = add(out[dof], x) if dof in out else x
    return sorted(out.items(), key=lambda pair: pair[0])


@stage
def _line(a: End, b: End):
    d = vsub(b.world, a.world)
    n = normalize(d)
    return safe_norm(d), (n, cross(a.x, n), cross(b.x, n))


def _straight(system: System, frame: Frames, first, second) -> tuple:
    (one, a), (two, b) = first, second
    length, wrench = _line(a, b)
    return length, row_coefficients(system, frame, (one, two), wrench)


@stage
def _around(kind: str, rule: str, radius, geom: End, a: End, b: End, side: End | None):
    """Length of the way around a geom, and the pulls on the two ends: force, moments about the reference points of geom and end."""
    seen = [None if end is None else apply_inverse(geom.R, vsub(end.world, geom.world)) for end in (a, b, side)]
    way = wrap(kind, seen[0], seen[1], radius, seen[2], rule)
    pulls = []
    for end, slope in zip((a, b), way.slopes, strict=True):
        n = apply(geom.R, slope)
        arm = vsub(end.world, vsub(geom.world, geom.x))
        pulls.append((n, cross(arm, n), cross(end.x, n)))
    return way.length, pulls


def _wrapped(system: System, frame: Frames, first, second, piece) -> tuple:
    info, geom = system.topology.geoms[piece.item], geom_end(system, frame, piece.item)
    side = None if piece.side is None else site_end(system, frame, piece.side)
    radius = system.geoms.size[info.row][0]
    length, pulls = _around(info.shape, system.topology.rules or "3.2", radius, geom, first[1], second[1], side)
    row: list = []
    for (body, _), wrench in zip((first, second), pulls, strict=True):
        row += row_coefficients(system, frame, (info.body, body), wrench)
    return length, row


@stage
def _tension(length, rest, stiffness):
    """Force along the length of a spring that is slack between two lengths."""
    low, high = rest
    return neg(mul(stiffness, add(jnp.maximum(sub(length, high), 0.0), jnp.minimum(sub(length, low), 0.0))))


def tendon_force(system: System, frame: Frames, q, v) -> list:
    """Generalized force of the springs and dampers of all tendons."""
    out: list = [0.0] * len(v)
    numbers = system.tendons
    for i, (info, taut) in enumerate(zip(system.topology.tendons, tendons(system, frame, q), strict=True)):
        pull = sub(_tension(taut.length, _rest(system, i, info), numbers.stiffness[i]), mul(numbers.damping[i], rate(taut.row, v)))
        out = pushed(out, taut.row, pull)
    return out


def tendon_energy(system: System, frame: Frames, q) -> list:
    """Energy stored in each tendon's spring, J."""
    out = []
    for i, (info, taut) in enumerate(zip(system.topology.tendons, tendons(system, frame, q), strict=True)):
        out.append(_stored(taut.length, _rest(system, i, info), system.tendons.stiffness[i]))
    return out


@stage
def _stored(length, rest, stiffness):
    low, high = rest
    away = add(jnp.maximum(sub(length, high), 0.0), jnp.minimum(sub(length, low), 0.0))
    return mul(mul(0.5, stiffness), mul(away, away))


def _rest(system: System, i: int, info):
    return system.slack[i] if info.spring is None else system.tendons.spring_length[info.spring]


def rate(row: list, v):
    """Rate of what a row moves."""
    total = 0.0
    for dof, x in row:
        total = add(total, mul(x, v[dof]))
    return total


def pushed(force: list, row: list, pull) -> list:
    """force + row^T pull."""
    out = list(force)
    for dof, x in row:
        out[dof] = add(out[dof], mul(x, pull))
    return out


def scaled(row: list, s) -> list:
    return [(dof, mul(x, s)) for dof, x in row]
