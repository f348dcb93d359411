"""Soft constraints that keep edges of deformables at their lengths."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.soft_rows import INFINITE, TINY, Rows, impedance, reference
from xsim.dynamics.flex.kinematics import edge_jacobian, edge_rates, edge_vectors, point_velocities, points
from xsim.dynamics.flex.structure import index_array, plan
from xsim.dynamics.layout import column
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import stage


def has_kept(topology: Topology) -> bool:
    """Whether edges keep their lengths."""
    return any(info.kind == "flex" for info in topology.soft)


def edge_mobility(system: System, exact):
    """What a unit force along each edge that keeps its length moves: exact (edges, lanes or 1), or between simple bodies the mean of what
    it moves them each (the engine's rule)."""
    layout = plan(system.topology)
    if not layout.light.any():
        return exact
    own = np.flatnonzero(layout.light)
    points = layout.ends[layout.kept[own]]
    used, back = np.unique(points, return_inverse=True)
    mass = column([system.body.inertia[layout.bodies[i]].mass for i in used.tolist()])
    lightness = _lightness(mass)[index_array(back.reshape(points.shape))]
    both = jnp.concatenate([exact, jnp.broadcast_to(0.5 * (lightness[:, 0] + lightness[:, 1]), (len(own), exact.shape[-1]))])
    place = np.arange(len(exact))
    place[own] = len(exact) + np.arange(len(own))
    return both[index_array(place)]


def _lightness(mass):
    return jnp.where(mass > 0, 1.0 / jnp.where(mass > 0, mass, 1.0), 0.0)


def edge_rows(system: System, frame: Frames, v) -> Rows:
    """The rows of all edges that keep their lengths; arrays with an axis of lanes."""
    layout, soft = plan(system.topology), system.soft
    at = points(system, frame)
    J, length, ends = edge_jacobian(system, frame, at, layout.kept)
    rate = edge_rates(point_velocities(system, frame, v, at), edge_vectors(at.world, ends)[1], ends)
    used, back = np.unique(layout.soft, return_inverse=True)
    back = index_array(back)
    solref, solimp = (
        [column([numbers[i][k] for i in used.tolist()])[back] for k in range(n)] for numbers, n in ((soft.solref, 2), (soft.solimp, 5))
    )
    assert system.derived.mobility is not None
    safe = "refsafe" not in system.topology.disabled
    violation = length - system.flex.length[layout.kept]
    stiffness, offset = _softness(violation, rate, solref, solimp, system.derived.mobility.edges, system.option.dt, safe)
    width = max(x.shape[-1] for x in (J, stiffness, offset))
    J, stiffness, offset = (jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in (J, stiffness, offset))
    bound = jnp.full_like(offset, INFINITE)
    return Rows(np.zeros((0, J.shape[1])), J, stiffness, offset, -bound, bound)


@stage
def _softness(gap, rate, solref, solimp, mobility, dt, safe: bool):
    d = impedance(gap, solimp)
    k, b = reference(solref, solimp, dt, safe)
    return 1.0 / jnp.maximum(TINY, (1.0 - d) / d * mobility), b * rate + k * d * gap
