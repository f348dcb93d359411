"""Numbers of contacts from the surfaces that meet: mixtures, or those of a pair.

Source: MuJoCo's documentation, Modeling, contact parameters. Arrays are (pairs, width, lanes), (pairs, width, 1) where no environment
differs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.tree.system import System
from xsim.model.topology import PairsInfo

LEAST = 1e-5  # friction
TINY = 1e-15  # weights
EXPANDED = (0, 0, 1, 2, 2)  # sliding, torsional, rolling friction of the five directions


class Numbers(NamedTuple):
    """Of each pair. friction (n, 5, lanes): two sliding, torsional, two rolling. solref, friction_solref (n, 2, lanes). solimp
    (n, 5, lanes). margin (n, lanes): the distance at which a contact begins to push; reach: at which it is found."""

    friction: jax.Array
    solref: jax.Array
    friction_solref: jax.Array
    solimp: jax.Array
    margin: jax.Array
    reach: jax.Array


def numbers(system: System, info: PairsInfo) -> Numbers:
    """Of all pairs of a kind."""
    return _mixed(system, info) if info.mixed else _own(system, info)


def _own(system: System, info: PairsInfo) -> Numbers:
    p = jax.tree.map(lambda x: x[info.leaf_rows.value], system.pair)
    return Numbers(jnp.maximum(p.friction, LEAST), p.solref, p.friction_solref, p.solimp, *_distances(system, p.margin, p.gap))


def _distances(system: System, margin, gap) -> tuple:
    """At which contacts begin to push, and at which they are found."""
    return (margin, margin + gap) if system.topology.switches.gap_beyond_margin else (margin - gap, margin)


def _mixed(system: System, info: PairsInfo) -> Numbers:
    a, b = (jax.tree.map(lambda x, k=k: x[info.leaf_rows.value[:, k]], system.surface) for k in (0, 1))
    ruling = info.dominant.value[:, None, None]

    def ruled(first, second, mixture):
        if (ruling < 0).all():
            return mixture
        return jnp.where(ruling < 0, mixture, jnp.where(ruling == 0, first, second))

    larger = jnp.maximum(a.friction, b.friction)
    if system.topology.switches.smaller_friction:
        larger = larger.at[:, 0].set(jnp.minimum(a.friction, b.friction)[:, 0])
    friction = ruled(a.friction, b.friction, larger)
    share = _share(a.solmix, b.solmix)[:, None]
    timed = (a.solref[:, :1] > 0) & (b.solref[:, :1] > 0)
    mixture = jnp.where(timed, share * a.solref + (1.0 - share) * b.solref, jnp.minimum(a.solref, b.solref))
    solref = ruled(a.solref, b.solref, mixture)
    solimp = ruled(a.solimp, b.solimp, share * a.solimp + (1.0 - share) * b.solimp)
    add = system.topology.switches.margins_add
    margin, gap = (one + two if add else jnp.maximum(one, two) for one, two in ((a.margin, b.margin), (a.gap, b.gap)))
    friction = jnp.maximum(friction, LEAST)[:, np.array(EXPANDED)]
    return Numbers(friction, solref, jnp.zeros_like(solref), solimp, *_distances(system, margin, gap))


def _share(a, b):
    """Weight of the first: a / (a + b); a zero loses, two zeros share."""
    low, high = a < TINY, b < TINY
    own = a / jnp.where(low | high, 1.0, a + b)
    return jnp.where(low & high, 0.5, jnp.where(low, 0.0, jnp.where(high, 1.0, own)))
