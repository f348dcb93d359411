"""The evaluation of traces by numpy, which other tests stand on, against compiled programs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import traced

import xsim
from xsim import models


def numbers(x, y):
    """A loop, a scan, a choice, systems of equations, and what they are made of."""
    m = x @ x.T + 5 * jnp.eye(len(x))
    low = jnp.linalg.cholesky(m)
    solved = jax.scipy.linalg.solve_triangular(low, y, lower=True)
    back = jax.scipy.linalg.solve_triangular(low, y, lower=True, trans=1)

    def unfinished(c):
        return (c[0] < 20) & (jnp.abs(c[1] ** 2 - 2) > 1e-5)

    count, root = jax.lax.while_loop(unfinished, lambda c: (c[0] + 1, c[1] / 2 + 1 / c[1]), (0, 1.0))
    last, kept = jax.lax.scan(lambda c, row: (c + row.sum(), jnp.maximum(c, row)), 0.0, x, reverse=True)
    chosen = jax.lax.cond(y[0] > 0, jnp.sin, jnp.cos, y)
    return solved, back, count, root, last, kept, chosen, jnp.where(y > 0, y, -y) // 2, jnp.arange(7) // 2, x[::2, 1:], ~(x > 0)


def picked(x, y):
    """Whatever is chosen by number."""
    order, cells = jnp.argsort(y), jnp.array([[0, 3], [2, 1]])
    own = jax.vmap(lambda row, i: row[i])(x, order)
    part = jax.vmap(lambda row, i: jax.lax.dynamic_slice(row, (i,), (2,)))(x, order)
    kept = jnp.take_along_axis(x, order[:, None], 1), jnp.take_along_axis(x, jnp.stack([order, order])[:, :4], 0)
    columns = x[:, order], x[order, order[::-1]], x[cells], x[order][:, None], jnp.take(x, jnp.array([1, 9]), 0, fill_value=7.0)
    tops = jax.lax.top_k(x, 2), jnp.argmax(x, 0), jnp.argmin(x, 1), jax.lax.dynamic_slice(x, (order[0], order[1]), (2, 3))
    loops = jax.vmap(lambda row: jax.lax.while_loop(lambda c: c[0] < 3.0, lambda c: (c[0] + 1.0, c[1] * row), (row[0], row)))(x)
    return own, part, kept, columns, tops, jnp.fmod(y, 0.3), jax.lax.rem(order - 2, 3), loops


def derived(x, y):
    """What differentiation adds: sums of cotangents, padding, recomputing, transposed scans and solutions."""

    @jax.checkpoint
    def walk(c, row):
        return jnp.sin(c * row) + row[::2].sum() + row[1:3].sum(), jnp.linalg.solve(x + 5 * jnp.eye(4), row * c)

    def loss(x, y):
        last, kept = jax.lax.scan(walk, y, x)
        root = jax.lax.custom_root(lambda z: z**3 - y, jnp.ones_like(y), lambda f, z: y ** (1 / 3), lambda g, b: b / g(jnp.ones_like(b)))
        return (last**2).sum() + (kept * jnp.stack(jnp.unstack(x))).sum() + root.sum()

    y = jnp.abs(y)
    return jax.grad(loss, (0, 1))(x, y), jax.jvp(loss, (x, y), (y * x, x @ y)), jax.lax.pad(y, 2.0, [(-1, 2, 1)])


@pytest.mark.parametrize("fn", [numbers, picked, derived])
@pytest.mark.parametrize("double", [False, True])
def test_numbers(fn, double):
    with jax.enable_x64(double):
        rng = np.random.default_rng(0)
        x, y = jnp.asarray(rng.normal(size=(4, 4)), float), jnp.asarray(rng.normal(size=4), float)
        for found, wanted in zip(*map(jax.tree.leaves, (traced(fn, x, y)(x, y), jax.jit(fn)(x, y))), strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-12 if double else 1e-5, atol=1e-14 if double else 1e-6)


def test_constants_and_repeated_equations():
    """They are evaluated once, and a result that is changed changes no other."""
    fn = traced(lambda x: (jnp.arange(3) * 2, jnp.arange(3) * 2, x + 1, x + 1, x), np.ones(2))
    for out in fn(np.ones(2)):
        out += 1
    for found, wanted in zip(fn(np.ones(2)), [[0, 2, 4]] * 2 + [[2, 2]] * 2 + [[1, 1]], strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_a_step(x64):
    model = xsim.load(models.path("springy_tree"))
    state = xsim.init(model, v=np.full(model.nv, 0.3))
    found, wanted = traced(partial(xsim.step, model), state)(state), xsim.step(model, state)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
