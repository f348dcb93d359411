"""Numbers of contacts from the surfaces that meet: mixtures, or those of a pair.

Source: MuJoCo's documentation, Modeling, contact parameters. Arrays are (pairs, lanes), or (pairs, 1) where no environment differs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..structure import PairsInfo
from .system import System

LEAST = 1e-5  # friction
TINY = 1e-15  # weights


class Numbers(NamedTuple):
    """Of each pair. friction: two sliding, torsional, two rolling. margin: the distance at which a contact begins to push."""

    friction: tuple
    solref: tuple
    friction_solref: tuple
    solimp: tuple
    margin: object


def column(components) -> jax.Array:
    """(n, lanes) of components, (n, 1) where nothing differs between environments."""
    arrays = [x for x in components if not isinstance(x, float)]
    shape = jnp.broadcast_shapes((1,), *(x.shape for x in arrays))
    dtype = jnp.result_type(*(arrays or [float]))
    return jnp.stack([jnp.broadcast_to(jnp.asarray(x, dtype), shape) for x in components])


def table(rows) -> tuple[jax.Array, ...]:
    """Columns of a leaf (n, width) as components."""
    return tuple(column(x) for x in zip(*rows, strict=True))


def numbers(system: System, info: PairsInfo) -> Numbers:
    """Of all pairs of a kind."""
    return _mixed(system, info) if info.mixed else _own(system, info)


def _own(system: System, info: PairsInfo) -> Numbers:
    pair, rows = system.pair, info.rows.value
    columns = [tuple(x[rows] for x in table(leaf)) for leaf in (pair.friction, pair.solref, pair.friction_solref, pair.solimp)]
    margin, gap = (column(leaf)[rows] for leaf in (pair.margin, pair.gap))
    return Numbers(_least(columns[0]), *columns[1:], margin if system.topology.rules == "4.0" else margin - gap)


def _least(friction) -> tuple:
    return tuple(jnp.maximum(x, LEAST) for x in friction)


def _mixed(system: System, info: PairsInfo) -> Numbers:
    surface, newer = system.surface, system.topology.rules == "4.0"
    first, second = info.rows.value[:, 0], info.rows.value[:, 1]
    ruling = info.ruling.value[:, None]

    def ruled(a, b, mixture):
        if (ruling < 0).all():
            return mixture
        return jnp.where(ruling < 0, mixture, jnp.where(ruling == 0, a, b))

    def both(leaf):
        return [(x[first], x[second]) for x in table(leaf)]

    # MuJoCo keeps the larger coefficients; ODE, Bullet and DART, whose formats have no such rules, the smaller one of sliding.
    joins = [jnp.maximum if system.topology.rules else jnp.minimum, jnp.maximum, jnp.maximum]
    friction = [ruled(a, b, join(a, b)) for join, (a, b) in zip(joins, both(surface.friction), strict=True)]
    mix = column(surface.solmix)
    share = _share(mix[first], mix[second])
    refs = both(surface.solref)
    timed = (refs[0][0] > 0) & (refs[0][1] > 0)
    solref = tuple(ruled(a, b, jnp.where(timed, share * a + (1.0 - share) * b, jnp.minimum(a, b))) for a, b in refs)
    solimp = tuple(ruled(a, b, share * a + (1.0 - share) * b) for a, b in both(surface.solimp))
    margins, gaps = ([x[i] for i in (first, second)] for x in (column(surface.margin), column(surface.gap)))
    margin = margins[0] + margins[1] if newer else jnp.maximum(*margins) - jnp.maximum(*gaps)
    slide, torsion, roll = _least(friction)
    none = jnp.zeros_like(solref[0])
    return Numbers((slide, slide, torsion, roll, roll), solref, (none, none), solimp, margin)


def _share(a, b):
    """Weight of the first: a / (a + b); a zero loses, two zeros share."""
    low, high = a < TINY, b < TINY
    own = a / jnp.where(low | high, 1.0, a + b)
    return jnp.where(low & high, 0.5, jnp.where(low, 0.0, jnp.where(high, 1.0, own)))


def joined(parts: list) -> object:
    """Arrays or trees of arrays (n, lanes or 1), one after another."""

    def one(*xs):
        lanes = max(x.shape[1] for x in xs)
        return jnp.concatenate([x if x.shape[1] == lanes else jnp.broadcast_to(x, (len(x), lanes)) for x in xs])

    return parts[0] if len(parts) == 1 else jax.tree.map(one, *parts)


def picked(x, which):
    """Rows of an array (n, lanes or 1): ``which`` a list of numbers, or (rows, lanes) of them."""
    if isinstance(which, np.ndarray):
        return x[which]
    return x[:, 0][which] if x.shape[1] == 1 else jnp.take_along_axis(x, which, 0)
