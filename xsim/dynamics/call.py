"""One call of a public function: arguments checked, laid out for the core, and compiled."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.commands import split_controls
from xsim.dynamics.forces.time_functions import at_time
from xsim.dynamics.layout import Lanes, batch_shape, make_lanes
from xsim.dynamics.prepare import prepare
from xsim.dynamics.tree.system import System
from xsim.model.model import Model, State
from xsim.spatial import one_region, separate_kernels

SMALL = 2
"""Up to so many velocities a step without devices is compiled as one fusion region (docs/concepts/compilation.md)."""


def _small(model: Model) -> bool:
    top = model.topology
    plain = all(a.transmission == "joint" and "muscle" not in (a.gain, a.bias, a.dynamics) for a in top.actuators)
    return model.nv <= SMALL and plain and not (top.tendons or top.sensors or top.size("nmedium"))


def compiled(fn, **options):
    """Compile a public function, its first argument the model."""

    @functools.wraps(fn)
    def traced(model, *args, **kwargs):
        with one_region(_small(model)):
            return fn(model, *args, **kwargs)

    return jax.jit(traced, **options)


def check_width(name: str, x, width: int) -> None:
    if x.ndim == 0 or x.shape[-1] != width:
        raise ValueError(f"{name} must have shape (*batch, {width}), found {x.shape}")


class Call:
    """One call of a public function: lanes, prepared system and the arguments as components."""

    def __init__(self, model: Model, q, v=None, tau=None, extra=(), ctrl=None, time=None, act=None, mocap=None):
        self.model = model
        dtype = jnp.asarray(q).dtype
        checked = []
        given = (("q", q, model.nq), ("v", v, model.nv), ("tau", tau, model.nv), ("ctrl", ctrl, model.nu), ("act", act, model.na))
        for name, x, width in (*given, *(("argument", e, model.nv) for e in extra)):
            x = None if x is None else jnp.asarray(x, dtype)
            if x is not None:
                check_width(name, x, width)
            checked.append(x)
        clock = [] if time is None else [(jnp.asarray(time, dtype), 0)]
        held = [] if mocap is None or not model.topology.size("nmocap") else [(jnp.asarray(mocap, dtype), 2)]
        self.lanes: Lanes = make_lanes(batch_shape(model, *((x, 1) for x in checked), *clock, *held))
        parts: list[Any] = [None if x is None else list(self.lanes.split(x, 1)) for x in checked]
        self.q, self.v, self.tau, self.ctrl, self.act = parts[:5]
        self.q = separate_kernels(self.q)
        self.extra = parts[5:]
        if self.tau is None:
            self.tau = [0.0] * model.nv
        if self.ctrl is None:
            self.ctrl = [0.0] * model.nu
        if self.act is None:
            self.act = [0.0] * model.na
        now = self.lanes.split(clock[0][0], 0) if clock else jnp.zeros((), dtype)
        placed = self.lanes.split(held[0][0], 2) if held else None
        self.system: System = at_time(prepare(model, self.lanes, placed), now, split_controls(model.topology, self.ctrl).functions)

    @classmethod
    def of_state(cls, model: Model, state: State, ctrl, tau) -> Call:
        """A call at a state with commands and generalized forces, None for none."""
        return cls(model, state.q, state.v, tau, ctrl=ctrl, time=state.time, act=state.act, mocap=state.mocap)

    def join(self, x, core: int = 1):
        out = self.lanes.join(x, core)
        return out.astype(self.dtype) if out.dtype != self.dtype else out

    def rows(self, x, *inner: int):
        """Array (*batch, n, *inner) of the components of n things, also of none."""
        return self.join(x, 1 + len(inner)) if x else jnp.zeros((*self.lanes.batch, 0, *inner), self.dtype)

    @property
    def dtype(self):
        return self.q[0].dtype if self.q else jnp.result_type(float)
