"""A bounded sum and its derivative as one loop, and sums in tables of few and of many rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xsim.compile.bounded import bounded_sum
from xsim.compile.compiled_call import compiled_call
from xsim.compile.function import Function
from xsim.compile.llvm_ir import MAX_ADDED, MAX_LOADED
from xsim.compile.program import Loop

TURNS = 5


def total_of(x, y, places, count, mode, has_loop=False):
    """The sum (rows, 2) over the first turns of a function of a row of x, each at a place of its own, in the program of an environment."""

    def add(total, i):
        row = jax.lax.dynamic_index_in_dim(x, i, keepdims=False)
        if has_loop:
            row = jax.lax.fori_loop(0, 60, lambda k, z: z + 0.01 * jnp.sin(z * y + k), row)
        return total.at[jax.lax.dynamic_index_in_dim(places, i, keepdims=False)].add(jnp.tanh(row * y) * y[0], mode=mode)

    return bounded_sum(add, jnp.zeros(x.shape), jnp.arange(TURNS, dtype=jnp.int32) % len(x), count)


def reference_of(x, y, places, count, has_loop=False):
    total = jnp.zeros(x.shape)
    for k in range(TURNS):
        row, place = x[k % len(x)], places[k % len(x)]
        if has_loop:
            row = jax.lax.fori_loop(0, 60, lambda k, z: z + 0.01 * jnp.sin(z * y + k), row)
        term = jnp.tanh(row * y) * y[0] * (k < count)
        total = total.at[place].add(term, mode="drop")
    return total


def operands(rows: int, environments: int, outside: bool) -> list:
    """x, y, z, the places, some of which count from the end, and the number of turns of each environment. outside: whether some places are
    no rows."""
    rng = np.random.default_rng(rows)
    places = rng.integers(-rows, rows + 3 * outside, (environments, rows))
    numbers = [rng.normal(size=(environments, *shape)) for shape in ((rows, 2), (2,), (rows, 2))]
    return [*map(jnp.asarray, numbers), jnp.asarray(places, jnp.int32), jnp.arange(environments, dtype=jnp.int32) % (TURNS + 1)]


def loops_of(function: Function, active) -> list[Loop]:
    """The loops of the program of the derivative that store or return something that is used."""
    program = function.reverse(active).program((True,) * (len(function.shapes) + 1))
    live = program.live()
    return [x for x in program.environment.items if isinstance(x, Loop) and not live.isdisjoint({*x.stored, *x.phis})]


def check(function: Function, reference, arguments, active) -> None:
    """The derivative of a result in the active arguments, which are the first ones, is that by JAX."""
    g = jnp.asarray(np.random.default_rng(1).normal(size=(len(arguments[0]), *function.results[0].shape)))
    flags = {"batched": (True,) * (len(arguments) + 1), "summed": (False,) * len(active)}
    found = compiled_call.bind(*arguments, g, function=function.reverse(active), **flags)
    wanted = jax.vmap(lambda *xs: jax.vjp(lambda *ys: reference(*ys, *xs[len(active) : -1]), *xs[: len(active)])[1](xs[-1]))(*arguments, g)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [2, MAX_LOADED, MAX_ADDED, MAX_ADDED + 1])
@pytest.mark.parametrize("mode", ["promise_in_bounds", "drop"])
def test_a_sum_and_its_derivative(rows, mode, x64):
    """Products with the sum: their cotangents do not depend on it, but it is the cotangent of the other factor."""
    arguments = operands(rows, 20, mode == "drop")
    shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in arguments]
    function = Function(lambda x, y, z, places, n: [z * total_of(x, y, places, n, mode)], shapes, "test")
    assert len(loops_of(function, (0, 1, 2))) == 1
    check(function, lambda x, y, z, places, n: z * reference_of(x, y, places, n), arguments, (0, 1, 2))


@pytest.mark.parametrize("has_loop", [False, True])
def test_cotangents_that_depend_on_the_sum(has_loop, x64):
    """The sum has to be known before its derivative."""
    arguments = operands(3, 7, False)
    shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in arguments]
    function = Function(lambda x, y, z, places, n: [jnp.sin(z * total_of(x, y, places, n, "drop", has_loop))], shapes, "test")
    assert len(loops_of(function, (0, 1, 2))) == 2
    check(function, lambda x, y, z, places, n: jnp.sin(z * reference_of(x, y, places, n, has_loop)), arguments, (0, 1, 2))


def test_loops_within_a_turn(x64):
    arguments = operands(3, 7, False)
    shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in arguments]
    function = Function(lambda x, y, z, places, n: [z * total_of(x, y, places, n, "drop", True)], shapes, "test")
    (loop,) = loops_of(function, (0, 1, 2))
    assert any(isinstance(x, Loop) for x in loop.body.items)
    check(function, lambda x, y, z, places, n: z * reference_of(x, y, places, n, True), arguments, (0, 1, 2))
