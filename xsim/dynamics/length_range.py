"""Length ranges of actuators, by simulating a force that drives each to both ends (MuJoCo's documentation, XML: lengthrange)."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.cache_entry import CacheEntry
from xsim.compile.choice import uses_llvm
from xsim.compile.fingerprint import function_fingerprint
from xsim.compile.flatten import Unsupported
from xsim.compile.function import Function
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.forces.armature import mass_with_armature
from xsim.dynamics.integration.integrators import RUNGE_KUTTA, Health, StateComponents, StepInputs, advance
from xsim.dynamics.linalg.sparse import factorize, solve
from xsim.dynamics.prepare import prepare
from xsim.dynamics.prepared import ONE
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import frames, link_inertias
from xsim.model.model import Model

DISABLED = ("contact", "frictionloss", "passive", "gravity", "actuation")
"""Flags that are switched off in the simulation."""


class Search(NamedTuple):
    """Parameters of the simulation; the names are those of MJCF's lengthrange.

    * accel: norm of the joint acceleration under the applied force.
    * maxforce: largest norm of the generalized force, 0: no limit.
    * timeconst: time constant of the velocity decay, s.
    * timestep, inttotal: time step and duration, s.
    * interval: duration at the end in which the length is measured, s.
    * tolrange: largest change of the length in this interval, as a fraction of the range.
    """

    accel: float = 20.0
    maxforce: float = 0.0
    timeconst: float = 1.0
    timestep: float = 0.01
    inttotal: float = 10.0
    interval: float = 2.0
    tolrange: float = 0.05


def with_length_ranges(model: Model, search: Search) -> Model:
    """The model with its unknown length ranges (NaN) computed. Raises ValueError if a length does not converge."""
    infos = model.topology.actuators
    known = np.isfinite(np.asarray(model.actuator.length_range)).all(-1)
    unknown = [i for i, a in enumerate(infos) if a.length_range is not None and not known[a.length_range]]
    if not unknown:
        return model
    with jax.enable_x64(True):
        model64 = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), _simulated_model(model, search))
        entry = CacheEntry(function_fingerprint("length ranges", model64, search, unknown))
        observed = entry.found("lengths", lambda: np.asarray(_end_lengths(model64, search, unknown)))
    ranges = np.array(model.actuator.length_range)
    for lengths, i in zip(np.moveaxis(observed.reshape(-1, 2, len(unknown)), -1, 0), unknown, strict=True):
        low, high = lengths[:, 0].min(), lengths[:, 1].max()
        variation = np.ptp(lengths, axis=0).max()
        if not low < high or not variation <= search.tolrange * (high - low):
            raise ValueError(
                f"actuator {infos[i].name!r}: its length range was not found: its lengths at both ends are {low:.4g} and {high:.4g}, "
                f"and still change by {variation:.2g}; give its joints limits, or give lengthrange"
            )
        ranges[infos[i].length_range] = low, high
    return model.replace({"actuator.length_range": ranges})


def _simulated_model(model: Model, search: Search) -> Model:
    """The model without the forces of `DISABLED` and past controls, with the time step and an integrator of the search."""
    top = model.topology
    top = dataclasses.replace(
        top,
        actuators=tuple(actuator._replace(history=None) for actuator in top.actuators),
        disabled=tuple(dict.fromkeys((*top.disabled, *DISABLED))),
        soft=tuple(info for info in top.soft if info.kind not in ("friction", "tendon_friction")),
        integrator="implicit_damping" if top.integrator in RUNGE_KUTTA else top.integrator,
    )
    return dataclasses.replace(model.replace({"option.dt": search.timestep}), topology=top)


def _end_lengths(model: Model, search: Search, actuators: list[int]):
    """Lengths over the last interval (steps, 2 len(actuators)): of all actuators at the short end, then at the long end.

    Each is simulated in an environment of its own."""
    count, steps = len(actuators), math.ceil(search.inttotal / search.timestep - 1e-9)
    last = math.floor(search.interval / search.timestep + 1e-9)
    selected, sign = jnp.tile(jnp.eye(count), (2, 1)), jnp.repeat(jnp.array([-1.0, 1.0]), count)
    start = jnp.tile(jnp.array(model.topology.initial[0]), (2 * count, 1)), jnp.zeros((2 * count, model.nv))
    step = functools.partial(_step, model, search, actuators)
    function = Function(step, [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in (*start, selected, sign)], "search of length ranges")

    def body(state, _):
        arguments = *state, selected, sign
        try:
            q, v, length = function(arguments, (True,) * 4) if uses_llvm() else jax.vmap(step)(*arguments)
        except Unsupported:
            q, v, length = jax.vmap(step)(*arguments)
        return (q, v), length

    return jax.jit(lambda q, v: jax.lax.scan(body, (q, v), length=steps)[1][-last:])(*start)


def _step(model: Model, search: Search, actuators: list[int], q, v, selected, sign) -> list:
    """A step of one environment: the new q and v, and the length before. selected: 1 for its actuator. sign: of the force."""
    system = prepare(model, ONE)
    health = Health(*[jnp.zeros(())] * len(Health._fields))
    v = v * math.exp(-search.timestep / max(0.01, search.timeconst))
    state = StateComponents(list(q), list(v), [jnp.zeros(())] * model.na, jnp.zeros(()), health)
    frame = frames(system, state.q)
    transmission = transmissions(system, frame, state.q, tendons(system, frame, state.q))
    outputs = [model.topology.actuators[i].output for i in actuators]
    length = sum(transmission[i].length * selected[row] for row, i in enumerate(outputs))
    arms = [jnp.zeros(())] * model.nv  # moment arms of the actuator of the environment
    for row, i in enumerate(outputs):
        for dof, x in transmission[i].row:
            arms[dof] = arms[dof] + x * selected[row]
    inverse_arms = solve(system, factorize(system, mass_with_armature(system, frame, link_inertias(system, frame))), arms)
    force = sign * search.accel / jnp.maximum(_norm(inverse_arms), 1e-15)
    if search.maxforce > 0:
        force = sign * jnp.minimum(jnp.abs(force), search.maxforce / jnp.maximum(_norm(arms), 1e-15))
    after = advance(system, state, StepInputs([force * x for x in arms], [0.0] * model.nu)).state
    return [jnp.stack([jnp.reshape(x, ()) for x in xs]) for xs in (after.q, after.v)] + [jnp.reshape(length, ())]


def _norm(xs):
    return jnp.sqrt(sum(x * x for x in xs))
