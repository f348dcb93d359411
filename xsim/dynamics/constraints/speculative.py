"""Speculative contacts: those that geoms will have within the step (MuJoCo's flag ``speculative``).

A pair of geoms without an active contact is searched (`xsim.dynamics.collide.advancement`) where a point of one of them moves over the
step by at least the least half extent of both bounding boxes. If they come together at a fraction t of the step, with the mean speed of
approach v, the contact acts now, with the distance at which its row takes away (1 - t) v: then the geoms meet at the end of the step.
Source: MuJoCo 4.0's documentation, Computation, Speculative contacts; v, and which pairs are searched, by probes of MuJoCo 4.0.0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.advancement import SUPPORTED, Impacts, StepMotion, bounds, impacts
from xsim.dynamics.collide.shapes import FAR, ContactPoint, shape_of
from xsim.dynamics.constraints.contact_parameters import PairParameters
from xsim.dynamics.constraints.contact_plan import PairGroup, asset_of, contact_plan
from xsim.dynamics.constraints.softness import MAX_IMPEDANCE, MIN_IMPEDANCE, reference_law
from xsim.dynamics.layout import column, concatenated
from xsim.dynamics.tree.kinematics import Frames, velocities
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.registry import INTEGRATORS
from xsim.spatial import cross, mul, scale, stage, vadd, vsub


def can_predict(topology: Topology, group: PairGroup) -> bool:
    """Whether pairs can have speculative contacts: of compact convex geoms, or of a plane and one of these."""
    kinds = {kind for shapes in group.shapes for kind in shapes}
    parts = any(int(info.geoms.value.max()) >= len(topology.geoms) for info in group.infos)
    return kinds.issubset(SUPPORTED) and not (parts or group.sdf or group.windows)


def geom_motions(system: System, frame: Frames, v, shapes) -> StepMotion:
    """The motion over the step of the geoms that can collide, components (geoms, lanes or 1). shapes: see `narrowphase.detect_contacts`."""
    top, plan, dt = system.topology, contact_plan(system.topology), system.option.dt
    motion = velocities(system, frame, v)[1]
    references = [frame.pose[system.tables.root[link]].pos for link in range(len(top.links))]
    at_rest = (0.0, 0.0, 0.0)
    links = plan.geom_links

    def of_geoms(of_links: list) -> tuple:
        return tuple(column([x[k] for x in (*of_links, at_rest)])[links] for k in range(3))

    ang, lin, reference = (of_geoms(x) for x in ([m.ang for m in motion], [m.lin for m in motion], references))
    pos = tuple(shapes[: len(plan.geoms), 3 + k] for k in range(3))
    shift, turn = _over_step(ang, lin, vsub(pos, reference), dt)
    radii, extents, turns = [], [], []
    for row, g in enumerate(plan.geoms):
        info = top.geoms[g]
        supported = info.shape in SUPPORTED
        turns.append(0.0 if info.shape == "sphere" else 1.0)  # a sphere that turns stays where it is
        size = tuple(shapes[row : row + 1, k] for k in range(3))
        mesh = asset_of(top, info.shape, info.asset) if info.shape == "mesh" else None
        radius, extent = bounds(info.shape, size, mesh) if supported else (0.0 * size[0], jnp.full_like(size[0], jnp.inf))
        radii.append(radius)
        extents.append(extent)
    turn = tuple(x * np.array(turns)[:, None] for x in turn)
    return StepMotion(shift, turn, concatenated(radii), concatenated(extents))


@stage
def _over_step(ang, lin, arm, dt) -> tuple:
    return scale(vadd(lin, cross(ang, arm)), dt), scale(ang, dt)


def with_impacts(
    system: System, group: PairGroup, parameters: PairParameters, contact: ContactPoint, shapes, motion: StepMotion
) -> tuple[ContactPoint, jax.Array]:
    """The candidate contacts of pairs, with speculative contacts in the place of those of pairs that have them, and which these are.

    parameters: of the pairs of the condim group. contact: the candidates, components (contacts of a pair times pairs, lanes)."""
    index = contact_plan(system.topology).shape_index
    geoms = np.concatenate([info.geoms.value for info in group.infos])
    rows = [np.array([index[g] for g in geoms[:, k].tolist()]) for k in (0, 1)]
    data = [list(assets) for assets in zip(*group.assets, strict=True)]
    sides = [shape_of(tuple(jnp.moveaxis(shapes[r], 1, 0)), x) for r, x in zip(rows, data, strict=True)]
    motions = tuple(jax.tree.map(lambda x, r=r: x[r], motion) for r in rows)
    of_pairs = jax.tree.map(lambda x: x[group.pairs], parameters)
    apart = (contact.distance.reshape(-1, *np.shape(of_pairs.margin)[:1], contact.distance.shape[-1]) >= of_pairs.margin).all(0)
    fast = jnp.maximum(*(x.sweep() for x in motions)) >= jnp.minimum(*(x.extent for x in motions))
    top = system.topology
    found = impacts(group.shapes, *sides, motions, of_pairs.margin, apart & fast, top.switches, top.multiccd)
    by_step = INTEGRATORS[top.integrator].by_step
    distance = effective_distance(of_pairs, found, system.option.dt, "refsafe" not in top.disabled, by_step)
    out, masks, count = [], [], len(geoms)
    for k in range(len(contact.distance) // count):
        usual = jax.tree.map(lambda x, k=k: x[k * count : (k + 1) * count], contact)
        new = found.contacts[k] if k < len(found.contacts) else usual._replace(distance=jnp.full_like(usual.distance, FAR))
        exists = found.found & (new.distance < FAR)
        new = new._replace(distance=jnp.where(exists, distance, FAR), tangent_hint=jax.tree.map(jnp.asarray, new.tangent_hint))
        out.append(jax.tree.map(lambda x, y: jnp.where(found.found, x, y), new, usual))
        masks.append(exists)
    return concatenated(out), concatenated(masks)


@stage
def _closing_speed(time, approach, dt):
    return approach / mul(time, dt)


def effective_distance(parameters: PairParameters, found: Impacts, dt, safe: bool, by_step: bool):
    """The distance (pairs, lanes) at which the row of a contact takes away the part 1 - t of its normal velocity in a step.

    A row with the impedance d at its upper limit gives the acceleration (-b v - K r) / (1 + (1 - d) / (d S)), see `reference_law`. A row
    without a spring has the distance at which its impedance has its upper limit."""
    solref, solimp = ([x[:, k] for k in range(x.shape[1])] for x in (parameters.solref, parameters.solimp))
    d = jnp.clip(solimp[1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    k, b, divisor = reference_law(solref, solimp, d, dt, safe, by_step)
    inertia = 1.0 + (1.0 - d) / (d * (1.0 if divisor is None else divisor))
    has_spring = k > 0
    speed = _closing_speed(found.time, found.approach, dt)
    depth = speed * ((1.0 - found.time) / dt * inertia - b) / jnp.where(has_spring, k, 1.0)
    return parameters.margin - jnp.where(has_spring, depth, solimp[2])
