"""Programs of XLA compile in bounded time: what it gives LLVM as one function stays small."""

import re

import jax
import jax.numpy as jnp
import pytest

import xsim
from xsim.bench.measure import ONE_KERNEL, _parse, _reached
from xsim.compile.choice import tracing_for

pytestmark = pytest.mark.xla


@pytest.fixture(autouse=True)
def _xla():
    with tracing_for("xla"):
        yield


MOST = 100
"""Kernels of one function of LLVM; hundreds take jaxlib 0.12 minutes."""


def kernels_of_functions(text: str) -> list[int]:
    """The numbers of kernels that XLA compiles as one function each, in the HLO text of a compiled program."""
    computations, _ = _parse(text)
    roots = [re.search(r"to_apply=%?([\w.\-]+)", line)[1] for line in text.splitlines() if ONE_KERNEL in line]
    return [sum(i.opcode == "fusion" for name in (root, *_reached(computations, root)) for i in computations[name]) for root in roots]


def rollout(model, state, checkpoint=True):
    return xsim.rollout(model, state, steps=17, checkpoint=checkpoint)[0]


def rollout_with_tape(model, state):
    return rollout(model, state, checkpoint=False)


def loop_of_steps(model, state):
    return jax.lax.scan(lambda s, _: (xsim.step(model, s), None), state, None, length=17)[0]


def own_integrator(model, state):
    """A user's loop over `forward_dynamics`."""

    def euler(s, _):
        v = s.v + 0.001 * xsim.forward_dynamics(model, s.q, s.v)
        return s.replace(q=xsim.integrate(model, s.q, 0.001 * v), v=v), None

    return jax.lax.scan(euler, state, None, length=17)[0]


def gradient(program):
    """Of the final velocities by the start velocities."""
    return lambda model, state: jax.grad(lambda v: program(model, state.replace(v=v)).v.sum())(state.v)


CASES = {
    "rollout": ("chain", None, rollout),
    "rollout, gradient": ("chain", None, gradient(rollout)),
    "rollout, gradient without recomputing": ("chain", None, gradient(rollout_with_tape)),
    "loop of steps": ("chain", None, loop_of_steps),
    "loop of steps, gradient": ("chain", None, gradient(loop_of_steps)),
    "own integrator": ("chain", None, own_integrator),
    "Runge-Kutta": ("chain", "rk4", rollout),
    "Runge-Kutta, gradient": ("chain", "rk4", gradient(rollout)),
    "Runge-Kutta, gradient of a loop": ("chain", "rk4", gradient(loop_of_steps)),
    "loops": ("four_bar", None, rollout),
    "loops, gradient": ("four_bar", None, gradient(rollout)),
    "impulses": ("cart_arm", None, rollout),
    "contacts": ("hopper", None, rollout),
    "contacts, gradient": ("hopper", None, gradient(rollout)),
}
NIGHTLY = {
    "loops", "own integrator", "impulses", "rollout, gradient", "rollout, gradient without recomputing", "loop of steps, gradient",
    "Runge-Kutta, gradient", "Runge-Kutta, gradient of a loop", "loops, gradient", "contacts, gradient",
}  # fmt: skip
"""Each of these compiles for ten seconds what the other cases compile in parts."""


@pytest.mark.slow
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="about XLA's CPU backend")
@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.nightly] * (case in NIGHTLY)) for case in CASES])
def test_loops_are_not_one_function(case):
    name, integrator, program = CASES[case]
    model = xsim.load(xsim.models.path(name))
    model = xsim.with_integrator(model, integrator) if integrator else model
    lowered = jax.jit(program).lower(model, xsim.init(model))
    # LLVM comes after the choice that is tested: without optimization it takes a tenth of the time.
    text = lowered.compile({"xla_backend_optimization_level": 0}).as_text()
    assert max(kernels_of_functions(text), default=0) < MOST


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="jaxlib 0.10 makes no function of a loop of this size")
def test_a_loop_without_the_block_is_one_function():
    """The test above sees what it looks for."""
    text = jax.jit(lambda x: jax.lax.fori_loop(0, 17, lambda _, x: jnp.sin(x), x)).lower(jnp.ones(1024)).compile().as_text()
    assert kernels_of_functions(text)


def test_loading_compiles_nothing():
    """Of a second model: the first one makes the random key of its joint axes."""
    xsim.init(xsim.load("chain"))
    compiled = []

    def note(event: str, duration: float, **_):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        xsim.init(xsim.load("half_cheetah"))
        assert compiled == []
        jax.jit(lambda x: x + 1)(1.0)
        assert compiled  # what is listened to
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
