"""Least and largest lengths of actuators, found by pulling each from the start to both ends (MuJoCo's documentation, XML: lengthrange)."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.forces.passive import mass_with_armature
from xsim.dynamics.integration.integrators import RUNGE_KUTTA, Health, StateComponents, advance
from xsim.dynamics.layout import make_lanes, spread
from xsim.dynamics.linalg.dense import stacked
from xsim.dynamics.linalg.sparse import factorize, solve
from xsim.dynamics.prepare import prepare
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import frames, link_inertias
from xsim.model.model import Model

STILL = ("contact", "frictionloss", "passive", "gravity", "actuation")
"""What is switched off while an actuator is pulled."""


class Search(NamedTuple):
    """accel: norm of the joint accelerations that pull. maxforce: bound of the norm of the force, 0: none. timeconst: in which velocities
    decay, s. timestep, inttotal (s): of the simulation. interval: at its end, in which the length is observed, s. tolrange: by how much of
    the range it may still move then."""

    accel: float = 20.0
    maxforce: float = 0.0
    timeconst: float = 1.0
    timestep: float = 0.01
    inttotal: float = 10.0
    interval: float = 2.0
    tolrange: float = 0.05


def with_length_ranges(model: Model, search: Search) -> Model:
    """The model with length ranges in place of those that are not known (NaN). Raises ValueError where a length does not settle."""
    infos = model.topology.actuators
    known = np.isfinite(np.asarray(model.actuator.length_range)).all(-1)
    wanted = [i for i, a in enumerate(infos) if a.length_range is not None and not known[a.length_range]]
    if not wanted:
        return model
    with jax.enable_x64(True):
        observed = np.asarray(_pulled(jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), _stilled(model, search)), search, wanted))
    ranges = np.array(model.actuator.length_range)
    for lengths, i in zip(np.moveaxis(observed.reshape(-1, 2, len(wanted)), -1, 0), wanted, strict=True):
        low, high = lengths[:, 0].min(), lengths[:, 1].max()
        moving = np.ptp(lengths, axis=0).max()
        if not low < high or not moving <= search.tolrange * (high - low):
            raise ValueError(
                f"actuator {infos[i].name!r}: its length range was not found: pulled to both ends it settled at {low:.4g} and {high:.4g}, "
                f"still moving by {moving:.2g}; give its joints limits, or give lengthrange"
            )
        ranges[infos[i].length_range] = low, high
    return model.replace({"actuator.length_range": ranges})


def _stilled(model: Model, search: Search) -> Model:
    top = model.topology
    top = dataclasses.replace(
        top,
        disabled=tuple(dict.fromkeys((*top.disabled, *STILL))),
        soft=tuple(info for info in top.soft if info.kind not in ("friction", "tendon_friction")),
        integrator="implicit_damping" if top.integrator in RUNGE_KUTTA else top.integrator,
    )
    return dataclasses.replace(model.replace({"option.dt": search.timestep}), topology=top)


def _pulled(model: Model, search: Search, wanted: list[int]):
    """Lengths of the wanted actuators over the last interval, each pulled in its lane: first all to the short end, then to the long one."""
    own, steps = np.tile(np.arange(len(wanted)), 2), math.ceil(search.inttotal / search.timestep - 1e-9)
    last = math.floor(search.interval / search.timestep + 1e-9)
    lanes = make_lanes((len(own),))
    width = lanes.width or len(own)
    pick = np.eye(len(wanted))[:, np.resize(own, width)]
    sign = np.resize(np.repeat([-1.0, 1.0], len(wanted)), width)

    @jax.jit
    def run(model: Model):
        system = prepare(model, lanes)
        zero = jnp.zeros(width)
        q = [zero + x for x in model.topology.initial[0]]
        start = StateComponents(q, [zero] * model.nv, [zero] * model.na, zero, Health(zero, zero, zero, zero))

        def step(moving: StateComponents, _):
            v = [x * math.exp(-search.timestep / max(0.01, search.timeconst)) for x in moving.v]
            frame = frames(system, moving.q)
            driven = transmissions(system, frame, moving.q, tendons(system, frame, moving.q))
            length = (stacked([driven[i].length for i in wanted], moving) * pick).sum(0)
            arms = [zero] * model.nv
            for place, i in enumerate(wanted):
                for dof, x in driven[i].row:
                    arms[dof] = arms[dof] + x * pick[place]
            moved = solve(system, factorize(system, mass_with_armature(system, frame, link_inertias(system, frame))), arms)
            force = sign * search.accel / jnp.maximum(_norm(moved), 1e-15)
            if search.maxforce > 0:
                force = sign * jnp.minimum(jnp.abs(force), search.maxforce / jnp.maximum(_norm(arms), 1e-15))
            after = advance(system, moving._replace(v=v), [force * x for x in arms], [0.0] * model.nu)
            return StateComponents(*jax.tree.map(lambda new, old: spread([new], old)[0], tuple(after), tuple(moving))), length

        return jax.lax.scan(step, start, length=steps)[1][-last:, : len(own)]

    return run(model)


def _norm(xs):
    return jnp.sqrt(sum(x * x for x in xs))
