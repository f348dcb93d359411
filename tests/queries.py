"""Queries of concrete numbers (`xsim.forward`, `xsim.kinematics`, ...) evaluated by numpy.

A test asks a query of a small model once or twice. XLA compiles it for seconds, and numpy evaluates the trace that XLA would compile in
milliseconds. A module with the mark ``xla`` has its queries compiled, as users have them. What steps is compiled always.
"""

from __future__ import annotations

import inspect
import os

import jax
import jax.numpy as jnp
import numpy as np
from traced import traced

from xsim.dynamics import call

COMPILED = {"xsim.dynamics.step", "xsim.control.ilqr"}


class Queries:
    """enabled: whether queries are evaluated by numpy. programs: what they were traced to, by function, structure and types."""

    enabled = False
    programs: dict = {}


def install() -> None:
    """Once a session. Not where all tests are to run by XLA."""
    if os.environ.get("XSIM_COMPILER") != "xla":
        call.jit = _query


def _query(fn, **options):
    compiled = jax.jit(fn, **options)
    if fn.__module__ in COMPILED:
        return compiled
    signature, static = inspect.signature(fn), _names(options.get("static_argnames", ()))

    def query(*args, **kwargs):
        if not Queries.enabled or not _is_concrete((args, kwargs)):
            return compiled(*args, **kwargs)
        bound = signature.bind(*args, **kwargs).arguments
        fixed = {name: x for name, x in bound.items() if name in static}
        moving = {name: x for name, x in bound.items() if name not in static}
        leaves, tree = jax.tree.flatten(moving)
        key = fn, tuple(fixed.items()), tree, tuple((np.shape(x), jax.dtypes.result_type(x), _is_weak(x)) for x in leaves)
        if key not in Queries.programs:
            Queries.programs[key] = traced(lambda moving: fn(**fixed, **moving), moving)
        return jax.tree.map(jnp.asarray, Queries.programs[key](moving))

    query._cache_size = compiled._cache_size
    return query


def _names(names) -> set[str]:
    return {names} if isinstance(names, str) else set(names)


def _is_weak(x) -> bool:
    return isinstance(x, (bool, int, float))


def _is_concrete(tree) -> bool:
    leaves = jax.tree.leaves(tree)
    numbers = all(isinstance(x, (jax.Array, np.ndarray, np.generic, bool, int, float)) for x in leaves)
    return numbers and not any(isinstance(x, jax.core.Tracer) for x in leaves) and not jax.config.jax_disable_jit
