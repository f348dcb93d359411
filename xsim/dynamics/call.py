"""A call of a public function: checks the arguments, splits them into components, and compiles the function."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import jit

from xsim.compile.announcement import announce, announced
from xsim.compile.choice import compiler, tracing_for, uses_llvm
from xsim.compile.compiled_call import warn_once
from xsim.compile.flatten import Unsupported
from xsim.dynamics.actuation.commands import split_controls
from xsim.dynamics.actuation.delays import delayed_controls
from xsim.dynamics.compiled_query import compiled_query, query_batch
from xsim.dynamics.forces.plasticity import with_plastic_springs
from xsim.dynamics.forces.time_functions import at_time
from xsim.dynamics.layout import Lanes, batch_shape, make_lanes
from xsim.dynamics.prepare import prepare
from xsim.dynamics.sharding import division, mesh_of
from xsim.dynamics.tree.system import System
from xsim.model.model import Model, State
from xsim.spatial import in_one_region, one_region, separate_kernels

MAX_ONE_REGION_DOFS = 2
"""Largest nv of a model whose step is compiled as one fusion region (docs/concepts/compilation.md)."""


def _compiles_as_one_region(model: Model) -> bool:
    top = model.topology
    plain = all(a.transmission == "joint" and "muscle" not in (a.gain, a.bias, a.dynamics) for a in top.actuators)
    return model.nv <= MAX_ONE_REGION_DOFS and plain and not (top.tendons or top.sensors or top.size("nmedium"))


def compiled(fn, **options):
    """jit of a public function whose first argument is the model, for the compiler and the devices in use, and for `one_region` where a
    caller asks for it. options: those of jax.jit."""

    def traced_for(name: str, whole: bool):
        @functools.wraps(fn)
        def traced(model, *args, **kwargs):
            announce(f"{fn.__name__} of {model.topology.name or 'the model'}")
            with one_region(whole or _compiles_as_one_region(model)), tracing_for(name):
                return fn(model, *args, **kwargs)

        return jit(traced, **options)

    versions: dict = {}
    takes_state = list(inspect.signature(fn).parameters)[1:2] == ["state"]

    @functools.wraps(fn)
    def call(*args, **kwargs):
        if args:
            check_model(fn.__name__, args[0])
        if takes_state and len(args) > 1:
            check_state(fn.__name__, args[0], args[1])
        with announced():
            return version()(*args, **kwargs)

    def version():
        key = compiler(), in_one_region(), division()
        return versions[key] if key in versions else versions.setdefault(key, traced_for(*key[:2]))

    call._cache_size = lambda: version()._cache_size()  # as functions of `jax.jit` have it
    return call


def query(fn, **options):
    """`compiled`, for a function of a configuration or a state that returns arrays: by LLVM where it is the compiler, else by XLA.
    A batch that is divided among devices is always evaluated by XLA. options: as of `compiled`."""
    signature, static = inspect.signature(fn), options.get("static_argnames", ())

    @functools.wraps(fn)
    def evaluated(model, *args, **kwargs):
        def by_xla():
            return fn(model, *args, **kwargs)

        def by_llvm():
            given = dict(list(signature.bind(model, *args, **kwargs).arguments.items())[1:])
            fixed = tuple((name, given.pop(name)) for name in list(given) if name in static)
            is_divided = mesh_of(math.prod(query_batch(model, given))) is not None
            return by_xla() if is_divided else compiled_query(fn, model, given, fixed)

        return by_xla() if jax.config.jax_disable_jit else llvm_or_xla(fn.__name__, by_llvm, by_xla)

    return compiled(evaluated, **options)


def llvm_or_xla(what: str, by_llvm: Callable, by_xla: Callable):
    """by_llvm() where the compiler is LLVM, else by_xla(); also, with one warning that names what, where by_llvm raises Unsupported and the
    user has not asked for LLVM."""
    if uses_llvm():
        try:
            return by_llvm()
        except Unsupported as error:
            if compiler() == "llvm":
                raise
            warn_once(f"XLA compiles {what}: {error}")
    return by_xla()


def check_model(function: str, model) -> None:
    """Raise TypeError for what is no model."""
    if not isinstance(model, Model):
        hint = "xsim.load(...) reads one from a file" if isinstance(model, (str, Path)) else "the model is the first argument"
        raise TypeError(f"{function} needs a Model, found {type(model).__name__}: {hint}")


def check_state(function: str, model: Model, state) -> None:
    """Raise TypeError for what is no state and for one of whole numbers, ValueError for that of another model."""
    if not isinstance(state, State):
        raise TypeError(f"{function} needs a State, found {type(state).__name__}: xsim.init(model, q, v) makes one")
    for name, x, width in (("state.q", state.q, model.nq), ("state.v", state.v, model.nv)):
        check_width(name, x, width)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(f"{name} must have a floating type, found {x.dtype}")


def check_width(name: str, x, width: int) -> None:
    """Raise ValueError if the last axis of x does not have this size."""
    if x.ndim == 0 or x.shape[-1] != width:
        raise ValueError(f"{name} must have shape (*batch, {width}), found {x.shape}")


class Call:
    """The arguments of a public function as components, and the system prepared for them.

    q (*batch, nq), v, tau and each array of extra (*batch, nv), ctrl (*batch, nu), time (*batch,), act (*batch, na),
    mocap (*batch, nmocap, 7), history (*batch, nhistory), plastic (*batch, nplastic). None: zero; for mocap the poses and for plastic the
    rest positions of the model; for history: controls act at once. Raises ValueError for an array of another width."""

    def __init__(self, model: Model, q, v=None, tau=None, extra=(), ctrl=None, time=None, act=None, mocap=None, history=None, plastic=None):
        self.model = model
        dtype = jnp.asarray(q).dtype
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else model.option.dt.dtype  # of whole numbers: that of the model
        checked = []
        history, plastic = (x if x is None or x.shape[-1] else None for x in (history, plastic))
        top = model.topology
        arguments = (
            ("q", q, model.nq), ("v", v, model.nv), ("tau", tau, model.nv), ("ctrl", ctrl, model.nu), ("act", act, model.na),
            ("history", history, top.size("nhistory")), ("plastic", plastic, top.size("nplastic")),
        )  # fmt: skip
        for name, x, width in (*arguments, *(("argument", e, model.nv) for e in extra)):
            x = None if x is None else jnp.asarray(x, dtype)
            if x is not None:
                check_width(name, x, width)
            checked.append(x)
        times = [] if time is None else [(jnp.asarray(time, dtype), 0)]
        mocaps = [] if mocap is None or not model.topology.size("nmocap") else [(jnp.asarray(mocap, dtype), 2)]
        self.lanes: Lanes = make_lanes(batch_shape(model, *((x, 1) for x in checked), *times, *mocaps))
        parts: list[Any] = [None if x is None else list(self.lanes.split(x, 1)) for x in checked]
        self.q, self.v, self.tau, self.ctrl, self.act, self.history, self.plastic = parts[:7]
        self.q = separate_kernels(self.q)
        self.extra = parts[7:]
        if self.tau is None:
            self.tau = [0.0] * model.nv
        if self.ctrl is None:
            self.ctrl = [0.0] * model.nu
        if self.act is None:
            self.act = [0.0] * model.na
        now = self.lanes.split(times[0][0], 0) if times else jnp.zeros((), dtype)
        mocap_poses = self.lanes.split(mocaps[0][0], 2) if mocaps else None
        external = split_controls(model.topology, self.ctrl).functions
        self.system: System = at_time(prepare(model, self.lanes, mocap_poses), now, external)
        if self.plastic is not None:
            self.system = with_plastic_springs(self.system, self.plastic)
        if self.history is not None:
            self.ctrl = delayed_controls(self.system, self.history, now, self.ctrl)

    @classmethod
    def of_state(cls, model: Model, state: State, ctrl, tau) -> Call:
        """A call at a state. ctrl, tau: commands and generalized force, None for zero."""
        rest = {name: getattr(state, name) for name in ("time", "act", "mocap", "history", "plastic")}
        return cls(model, state.q, state.v, tau, ctrl=ctrl, **rest)

    def join(self, x, core: int = 1):
        """Components as an array (*batch, ...) of the call's dtype. core: number of axes after the batch."""
        out = self.lanes.join(x, core)
        return out.astype(self.dtype) if out.dtype != self.dtype else out

    def rows(self, x, *inner: int):
        """Components of n bodies, sites, ... as an array (*batch, n, *inner), also for n = 0."""
        return self.join(x, 1 + len(inner)) if x else jnp.zeros((*self.lanes.batch, 0, *inner), self.dtype)

    @property
    def dtype(self):
        return self.q[0].dtype if self.q else jnp.result_type(float)
