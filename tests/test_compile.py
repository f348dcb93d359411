"""Programs compile in bounded time: what LLVM gets as one function stays small."""

import re

import jax
import jax.numpy as jnp
import pytest

import xsim
from xsim.bench.measure import ONE_KERNEL, _parse, _reached

MOST = 100
"""Kernels of one function of LLVM; hundreds take jaxlib 0.12 minutes."""


def kernels_of_functions(text: str) -> list[int]:
    """The numbers of kernels that XLA compiles as one function each, in the HLO text of a compiled program."""
    computations = _parse(text)
    roots = [re.search(r"to_apply=%?([\w.\-]+)", line)[1] for line in text.splitlines() if ONE_KERNEL in line]
    return [sum(i.opcode == "fusion" for name in (root, *_reached(computations, root)) for i in computations[name]) for root in roots]


def rollout(model, state):
    return xsim.rollout(model, state, steps=17)[0]


def loop_of_steps(model, state):
    return jax.lax.scan(lambda s, _: (xsim.step(model, s), None), state, None, length=17)[0]


def gradient(model, state):
    return jax.grad(lambda damping: rollout(model.replace({"dof.damping": damping}), state).v.sum())(model.get("dof.damping"))


CASES = [
    pytest.param("chain", None, rollout),
    pytest.param("chain", None, loop_of_steps),
    pytest.param("chain", None, gradient),
    pytest.param("chain", "rk4", rollout),
    pytest.param("hopper", None, rollout),
]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="about XLA's CPU backend")
@pytest.mark.parametrize("name, integrator, program", CASES)
def test_loops_over_steps_are_not_one_function(name, integrator, program):
    model = xsim.load(xsim.models.path(name))
    model = xsim.with_integrator(model, integrator) if integrator else model
    text = jax.jit(program).lower(model, xsim.init(model)).compile().as_text()
    assert max(kernels_of_functions(text), default=0) < MOST


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="jaxlib 0.10 makes no function of a loop of this size")
def test_a_loop_without_the_block_is_one_function():
    """The test above sees what it looks for."""
    text = jax.jit(lambda x: jax.lax.fori_loop(0, 17, lambda _, x: jnp.sin(x), x)).lower(jnp.ones(1024)).compile().as_text()
    assert kernels_of_functions(text)
