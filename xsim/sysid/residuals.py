"""Residuals of a fit: simulated minus measured, jumps between segments, displacements of fitted initial states."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.initial_state import state_at
from xsim.dynamics.queries import difference, integrate
from xsim.dynamics.step import rollout
from xsim.model.model import Model, State
from xsim.sysid.parameters import Block, Range, physical_values, with_values

__all__ = ["Data", "Evaluation", "Simulation", "Structure", "evaluate", "physical", "physical_and_slope", "residuals", "simulate"]


class Data(NamedTuple):
    """What is traced: the model, ranges of the blocks, and the data cut into segments.

    measured, scale: leaves (steps, *trajectories, ...), scale is sqrt(weight) / std, both 0 where missing. trajectories is
    (segments, *batch), or the batch alone where nothing is cut. inputs: ctrls and taus, where given. q, v, time: (*trajectories, ...),
    the states the segments start from. continuity_scale, prior_scale: 1 / std of the jump between segments and of a fitted initial
    state's displacement; 0 where there is no such residual.
    """

    model: Model
    ranges: tuple[Range, ...]
    measured: Any
    scale: Any
    inputs: dict
    q: Any
    v: Any
    time: Any
    continuity_scale: Any
    prior_scale: Any


class Structure(NamedTuple):
    """What is static, and hashable: fits of the same structure with other data, starts or bounds share their compiled programs.

    unknown_starts: first and last (exclusive) of the trajectories, counted flat, whose start is unknown. steps: of one segment.
    segments: None where nothing is cut. has_prior: whether unknown starts are kept near those given. program: what else the compiled
    programs depend on, the compiler and the devices.
    """

    blocks: tuple[Block, ...]
    observe: Callable
    unknown_starts: tuple[int, int]
    nv: int
    segments: int | None
    steps: int
    has_prior: bool
    program: tuple

    @property
    def parameters(self) -> int:
        """Unknown numbers of the model."""
        return sum(block.size for block in self.blocks)

    @property
    def unknowns(self) -> int:
        """Unknown numbers of the model and of the starts."""
        first, last = self.unknown_starts
        return self.parameters + (last - first) * 2 * self.nv


class Simulation(NamedTuple):
    """The model and the states at the start and end of each segment, and what observe gave along it."""

    model: Model
    starts: State
    ends: State
    recorded: Any


class Evaluation(NamedTuple):
    """Residuals (m,), their Jacobian (m, n) with respect to the physical unknowns, and the simulation behind them."""

    residual: Any
    jacobian: Any
    simulation: Simulation


def simulate(structure: Structure, x, data: Data, checkpoint: bool = False) -> Simulation:
    """The trajectories of the physical unknowns x: (n,). checkpoint: as in `rollout`."""
    model = with_values(data.model, structure.blocks, x[: structure.parameters])
    starts = _starts(structure, model, x[structure.parameters :], data)
    ends, recorded = rollout(model, starts, **data.inputs, steps=structure.steps, record=structure.observe, checkpoint=checkpoint)
    return Simulation(model, starts, ends, recorded)


def _starts(structure: Structure, model: Model, displacement, data: Data) -> State:
    """The states that the segments start from. displacement: (unknown starts * 2 nv,), on the configuration manifold and of v."""
    trajectories, nv = data.q.shape[:-1], model.nv
    first, last = structure.unknown_starts
    if first == last:
        return state_at(model, data.q, data.v, data.time)
    flat = jnp.zeros((math.prod(trajectories), 2 * nv), data.q.dtype).at[first:last].set(displacement.reshape(-1, 2 * nv))
    moved = flat.reshape(*trajectories, 2 * nv)
    q = integrate(model, data.q, moved[..., :nv])
    return state_at(model, q, data.v + moved[..., nv:], data.time)


def residuals(structure: Structure, x, data: Data, checkpoint: bool = False) -> tuple[Any, Simulation]:
    """All residuals in units of their standard deviation, one vector: data, continuity, prior; and the simulation behind them."""
    simulation = simulate(structure, x, data, checkpoint)
    _check_observed(structure, simulation.recorded, data.measured)
    parts = _data_residuals(simulation, data)
    if _has_continuity(structure, data):
        parts.append(_continuity_residual(simulation, data))
    if structure.has_prior:
        parts.append((x[structure.parameters :].reshape(-1, 2 * structure.nv) * data.prior_scale).reshape(-1))
    return jnp.concatenate(parts), simulation


def _data_residuals(simulation: Simulation, data: Data) -> list:
    leaves = (jax.tree.leaves(tree) for tree in (simulation.recorded, data.measured, data.scale))
    return [((recorded.astype(data.q.dtype) - m) * scale).reshape(-1) for recorded, m, scale in zip(*leaves, strict=True)]


def _has_continuity(structure: Structure, data: Data) -> bool:
    """Whether starts of later segments are unknown."""
    return bool(structure.segments) and structure.unknown_starts[1] > math.prod(data.q.shape[1:-1])


def _continuity_residual(simulation: Simulation, data: Data):
    """Jumps (of q on the configuration manifold, of v) from the end of each segment to the start of the next."""
    ends, starts = simulation.ends, simulation.starts
    jump = jnp.concatenate([difference(simulation.model, ends.q[:-1], starts.q[1:]), starts.v[1:] - ends.v[:-1]], -1)
    return (jump * data.continuity_scale).reshape(-1)


def _check_observed(structure: Structure, recorded, measured) -> None:
    if jax.tree.structure(recorded) != jax.tree.structure(measured):
        found = jax.tree.structure(measured)
        raise ValueError(f"measured must have the structure that observe returns: {jax.tree.structure(recorded)}, found {found}")
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(recorded), jax.tree.leaves(measured), strict=True):
        if a.shape != b.shape:
            cut = f" (cut into {structure.segments} segments: steps, segments, *batch)" if structure.segments else ""
            raise ValueError(f"measured{jax.tree_util.keystr(path)}: shape {b.shape}, but observe gives {a.shape}{cut}")


@functools.partial(jax.jit, static_argnums=0)
def evaluate(structure: Structure, x, data: Data) -> Evaluation:
    """Residuals and their Jacobian, by forward mode, at the physical unknowns x: (n,)."""

    def push(direction):
        return jax.jvp(lambda x: residuals(structure, x, data), (x,), (direction,), has_aux=True)

    return Evaluation(*jax.vmap(push, out_axes=(None, -1, None))(jnp.eye(x.size, dtype=x.dtype)))


def physical(structure: Structure, z, ranges):
    """Physical unknowns (n,) of the unconstrained ones; those of starts are displacements in both."""
    return jnp.concatenate([physical_values(structure.blocks, ranges, z[: structure.parameters]), z[structure.parameters :]])


@functools.partial(jax.jit, static_argnums=0)
def physical_and_slope(structure: Structure, z, ranges):
    """(x, dx/dz), each (n,): every physical unknown depends on one unconstrained one."""
    return jax.jvp(lambda z: physical(structure, z, ranges), (z,), (jnp.ones_like(z),))
