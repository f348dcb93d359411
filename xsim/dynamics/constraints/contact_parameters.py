"""The contact parameters of pairs of geoms: mixed from the surfaces of both geoms, or given for the pair.

Source: MuJoCo's documentation, Modeling, contact parameters. Arrays are (pairs, width, lanes), or (pairs, width, 1) if all environments
have the same values.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.layout import column, row_of, take_rows
from xsim.dynamics.tree.system import System
from xsim.model.model import Surface
from xsim.model.topology import PairsInfo, Topology
from xsim.spatial import each_row

MIN_FRICTION = 1e-5
MIN_WEIGHT = 1e-15  # a smaller solmix counts as zero
FRICTION_OF_DIRECTION = (0, 0, 1, 2, 2)
"""For the five friction directions of a contact, the index in (sliding, torsional, rolling)."""


class PairParameters(NamedTuple):
    """Parameters of pairs of geoms, under MuJoCo's names.

    friction (pairs, 5, lanes): two sliding coefficients, torsional (m), two rolling (m).
    solref, friction_solref (pairs, 2, lanes): for the normal, and for the friction directions (zero: as for the normal).
    solimp (pairs, 5, lanes).
    margin (pairs, lanes): a contact is active if its distance is less, m.
    detection_distance (pairs, lanes): a contact is detected if its distance is less, m.
    adhesion (pairs, lanes): the force with which a contact can pull, N. None if no geom and no pair of the model has adhesion.
    """

    friction: jax.Array
    solref: jax.Array
    friction_solref: jax.Array
    solimp: jax.Array
    margin: jax.Array
    detection_distance: jax.Array
    adhesion: jax.Array | None


def pair_parameters(system: System, info: PairsInfo) -> PairParameters:
    """Parameters of all pairs of ``info``."""
    return _mixed(system, info) if info.mixed else _explicit(system, info)


def _explicit(system: System, info: PairsInfo) -> PairParameters:
    """Parameters that the model gives for the pairs."""
    p, adhesion = dataclasses.replace(system.pair, adhesion=None), None
    p = jax.tree.map(lambda x: x[info.leaf_rows.value], p)
    if has_adhesion(system.topology):
        adhesion = _rows_or_zero(system.pair.adhesion, dict(system.topology.pair_adhesion), info.leaf_rows.value)
    return PairParameters(
        jnp.maximum(p.friction, MIN_FRICTION), p.solref, p.friction_solref, p.solimp, *_distances(system, p.margin, p.gap), adhesion
    )


def has_adhesion(topology: Topology) -> bool:
    """Whether contacts of a geom or a pair can pull."""
    return bool(topology.pair_adhesion) or any(geom.adhesion is not None for geom in topology.geoms)


def _rows_or_zero(x, rows: dict[int, int], keys: np.ndarray):
    """The rows of an array (n, lanes or 1) that belong to keys, zero for a key without one."""
    zero = jnp.zeros((1, *x.shape[1:]), x.dtype) if len(x) else jnp.zeros((1, 1))
    index = np.array([rows.get(key, -1) + 1 for key in keys.tolist()])
    return (jnp.concatenate([zero, x]) if len(x) else zero)[index]


def _distances(system: System, margin, gap) -> tuple:
    """The distances at which contacts become active, and at which they are detected."""
    return (margin, margin + gap) if system.topology.switches.gap_beyond_margin else (margin - gap, margin)


def _mixed(system: System, info: PairsInfo) -> PairParameters:
    """Parameters from the surfaces of the two geoms."""

    def of_pairs(rows, dominant):
        return _mixture(system, *(jax.tree.map(lambda x, k=k: _rows(x, rows[:, k]), system.surface) for k in (0, 1)), dominant)

    dominant = info.dominant.value
    mixed = each_row(of_pairs, info.leaf_rows.value, None if (dominant < 0).all() else dominant)
    return mixed._replace(adhesion=_mixed_adhesion(system, info)) if has_adhesion(system.topology) else mixed


def _rows(x, index):
    """Rows of an array (n, ..., lanes or 1). index: a numpy array (rows,), or the index of one row (1,) in a turn of `each_row`."""
    return take_rows(x, index) if isinstance(index, np.ndarray) else row_of(x, index[0])[None]


def _mixture(system: System, a: Surface, b: Surface, dominant) -> PairParameters:
    """Parameters of pairs from their surfaces, without adhesion. dominant (pairs,): 0 or 1 for the geom whose priority is higher, else -1;
    None: no priority is."""

    def by_priority(first, second, mixture):
        if dominant is None:
            return mixture
        which = dominant[:, None, None]
        return jnp.where(which < 0, mixture, jnp.where(which == 0, first, second))

    larger = jnp.maximum(a.friction, b.friction)
    if system.topology.switches.smaller_friction:
        larger = larger.at[:, 0].set(jnp.minimum(a.friction, b.friction)[:, 0])
    friction = by_priority(a.friction, b.friction, larger)
    weight = _mix_weight(a.solmix, b.solmix)[:, None]
    is_standard = (a.solref[:, :1] > 0) & (b.solref[:, :1] > 0)  # (time constant, damping ratio), not (-stiffness, -damping)
    mixture = jnp.where(is_standard, weight * a.solref + (1.0 - weight) * b.solref, jnp.minimum(a.solref, b.solref))
    solref = by_priority(a.solref, b.solref, mixture)
    solimp = by_priority(a.solimp, b.solimp, weight * a.solimp + (1.0 - weight) * b.solimp)
    add = system.topology.switches.margins_add
    margin, gap = (one + two if add else jnp.maximum(one, two) for one, two in ((a.margin, b.margin), (a.gap, b.gap)))
    friction = jnp.maximum(friction, MIN_FRICTION)[:, np.array(FRICTION_OF_DIRECTION)]
    return PairParameters(friction, solref, jnp.zeros_like(solref), solimp, *_distances(system, margin, gap), None)


def _mixed_adhesion(system: System, info: PairsInfo):
    """See `PairParameters`: the sum of those of the two geoms, or that of the geom whose priority is higher."""
    of_geoms, infos = column(list(system.geom.adhesion)) if system.geom.adhesion else jnp.zeros((0, 1)), system.topology.geoms
    rows = {g: infos[g].adhesion for g in np.unique(info.geoms.value).tolist() if g < len(infos) and infos[g].adhesion is not None}
    first, second = (_rows_or_zero(of_geoms, rows, info.geoms.value[:, k]) for k in (0, 1))
    dominant = info.dominant.value[:, None]
    return jnp.where(dominant < 0, first + second, jnp.where(dominant == 0, first, second))


def _mix_weight(a, b):
    """Weight a / (a + b) of the first geom. If one solmix is zero, the other geom has all the weight. If both are, each has half."""
    a_is_zero, b_is_zero = a < MIN_WEIGHT, b < MIN_WEIGHT
    weight = a / jnp.where(a_is_zero | b_is_zero, 1.0, a + b)
    return jnp.where(a_is_zero & b_is_zero, 0.5, jnp.where(a_is_zero, 0.0, jnp.where(b_is_zero, 1.0, weight)))
