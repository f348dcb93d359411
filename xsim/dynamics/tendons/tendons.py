"""Tendons: their lengths, what moves them, and the forces of their springs and dampers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.layout import spread
from xsim.dynamics.tendons.wrapping import wrap
from xsim.dynamics.tree.frames import End, coordinate_addresses, geom_end, row_coefficients, site_end
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import PieceInfo
from xsim.spatial import add, apply, apply_inverse, cross, mul, neg, normalize, safe_norm, stage, sub, vsub


class LengthAndJacobian(NamedTuple):
    """length (m, or of a fixed tendon in its coordinates' units) and the row [(dof, coefficient), ...] of its rate."""

    length: object
    row: list


def tendons(system: System, frame: Frames, q) -> list[LengthAndJacobian]:
    """All tendons at a configuration."""
    top = system.topology
    legs = {i: _legs(system, frame, info) for i, info in enumerate(top.tendons) if info.kind == "spatial"}
    bent = iter(_bent(system, frame, [leg for own in legs.values() for leg in own if leg.around is not None]))
    out = []
    for i, info in enumerate(top.tendons):
        if info.kind == "fixed":
            out.append(_fixed(system, info, q))
        else:
            out.append(_sum([(leg, next(bent) if leg.around is not None else _straight(system, frame, leg)) for leg in legs[i]]))
    return out


def _address(system: System, dof: int) -> int:
    """Of the coordinate that a dof moves; of a ball the first of its quaternion (MuJoCo's rule, of no use)."""
    places = coordinate_addresses(system.topology)
    return places[dof][1] if dof in places else next(j.q[0] for j in system.topology.joints if j.v[0] == dof)


def _fixed(system: System, info, q) -> LengthAndJacobian:
    length, row = 0.0, []
    for piece in info.path:
        coefficient = system.tendon.coefficient[piece.row]
        length = add(length, mul(coefficient, q[_address(system, piece.item)]))
        row.append((piece.item, coefficient))
    return LengthAndJacobian(length, _merged(row))


class _Leg(NamedTuple):
    """A tendon between two sites, each with its body: straight, or around a geom. share: how much it counts (None: in full)."""

    first: tuple[int, End]
    second: tuple[int, End]
    around: PieceInfo | None
    share: object


def _legs(system: System, frame: Frames, info) -> list[_Leg]:
    """The pieces of the path through the sites; after a pulley each counts by its divisor."""
    out, share, before, around = [], None, None, None
    for piece in info.path:
        if piece.kind == "pulley":
            share, before = 1.0 / system.tendon.divisor[piece.row], None
        elif piece.kind == "geom":
            around = piece
        else:
            here = system.topology.sites[piece.item].body, site_end(system, frame, piece.item)
            if before is not None:
                out.append(_Leg(before, here, around, share))
            before, around = here, None
    return out


def _sum(parts) -> LengthAndJacobian:
    length, row = 0.0, []
    for leg, (part, moved) in parts:
        share = 1.0 if leg.share is None else leg.share
        length = add(length, mul(part, share))
        row += scaled(moved, share)
    return LengthAndJacobian(length, _merged(row))


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


def _straight(system: System, frame: Frames, leg: _Leg) -> tuple:
    (one, a), (two, b) = leg.first, leg.second
    length, wrench = _line(a, b)
    return length, row_coefficients(system, frame, (one, two), wrench)


@stage
def _seen(geom: End, point: End):
    return apply_inverse(geom.R, vsub(point.world, geom.world))


@stage
def _pull(geom: End, end: End, slope):
    """What a unit tension does at an end of a bent leg: force, moments about the reference points of geom and end."""
    n = apply(geom.R, slope)
    arm = vsub(end.world, vsub(geom.world, geom.x))
    return n, cross(arm, n), cross(end.x, n)


def _bent(system: System, frame: Frames, legs: list[_Leg]) -> list[tuple]:
    """Length and row of the legs around geoms. Those of one kind are found together, which keeps the program small."""
    out: list = [None] * len(legs)
    infos = [system.topology.geoms[leg.around.item] for leg in legs]
    groups: dict[tuple, list[int]] = {}
    for i, (leg, info) in enumerate(zip(legs, infos, strict=True)):
        groups.setdefault((info.shape, leg.around.side is not None), []).append(i)
    for (shape, sided), members in groups.items():
        geoms = [geom_end(system, frame, legs[i].around.item) for i in members]
        points = [
            [_seen(geom, end) for geom, i in zip(geoms, members, strict=True) for end in [pick(legs[i])]]
            for pick in (lambda leg: leg.first[1], lambda leg: leg.second[1])
        ]
        sites = [legs[i].around.side for i in members] if sided else []
        sides = [_seen(geom, site_end(system, frame, site)) for geom, site in zip(geoms, sites, strict=False)]
        radii = [(system.geom.size[infos[i].row][0],) for i in members]
        first, second, side, radius = _stacked([*points, sides, radii])
        way = wrap(shape, first, second, *radius, side or None, system.topology.switches.tendon_shortest_side)
        for k, (i, geom) in enumerate(zip(members, geoms, strict=True)):
            row: list = []
            for (body, end), slope in zip((legs[i].first, legs[i].second), way.slopes, strict=True):
                wrench = _pull(geom, end, tuple(x[k] for x in slope))
                row += row_coefficients(system, frame, (infos[i].body, body), wrench)
            out[i] = way.length[k], row
    return out


def _stacked(groups: list[list[tuple]]) -> list[tuple]:
    """Each group of vectors as one vector, whose components have all of the group along a first axis; () for none."""
    full = iter(spread([x for group in groups for vector in group for x in vector]))
    vectors = [[[next(full) for _ in vector] for vector in group] for group in groups]
    return [tuple(jnp.stack(xs) for xs in zip(*group, strict=True)) for group in vectors]


@stage
def _tension(length, rest, stiffness):
    """Force along the length of a spring that is slack between two lengths."""
    low, high = rest
    return neg(mul(stiffness, add(jnp.maximum(sub(length, high), 0.0), jnp.minimum(sub(length, low), 0.0))))


def tendon_force(system: System, tendon: list[LengthAndJacobian], v) -> list:
    """Generalized force of the springs and dampers of all tendons."""
    out: list = [0.0] * len(v)
    numbers = system.tendon
    for i, (info, one) in enumerate(zip(system.topology.tendons, tendon, strict=True)):
        pull = sub(_tension(one.length, _rest(system, i, info), numbers.stiffness[i]), mul(numbers.damping[i], rate(one.row, v)))
        out = pushed(out, one.row, pull)
    return out


def tendon_energy(system: System, tendon: list[LengthAndJacobian]) -> list:
    """Energy stored in each tendon's spring, J."""
    out = []
    for i, (info, one) in enumerate(zip(system.topology.tendons, tendon, strict=True)):
        out.append(_stored(one.length, _rest(system, i, info), system.tendon.stiffness[i]))
    return out


@stage
def _stored(length, rest, stiffness):
    low, high = rest
    away = add(jnp.maximum(sub(length, high), 0.0), jnp.minimum(sub(length, low), 0.0))
    return mul(mul(0.5, stiffness), mul(away, away))


def _rest(system: System, i: int, info):
    return system.derived.tendon_rest[i] if info.spring is None else system.tendon.spring_length[info.spring]


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
