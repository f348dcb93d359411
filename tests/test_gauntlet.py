"""No NaN and no infinity: values and gradients of a step of every bundled model, at random and at degenerate states."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim import models

FEW, MANY = 150, (10_000, 500)  # states; random and degenerate ones
CHUNK = 500
DAILY = ("cart_arm", "four_bar", "pendulum")


def load(name: str) -> xsim.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xsim.load(models.path(name))


def random_states(model, rng, count: int) -> dict:
    """Near and far from the neutral pose, slow and fast: sizes over many decades."""
    size = lambda low, high: 10.0 ** rng.uniform(low, high, (count, 1))  # noqa: E731
    neutral = np.broadcast_to(np.asarray(model.topology.neutral, float), (count, model.nq))
    q = by_numpy(xsim.integrate)(model, neutral, size(-9, 0.5) * rng.normal(size=(count, model.nv)))
    v = size(-9, 1.5) * rng.normal(size=(count, model.nv))
    ctrl, tau = size(-3, 1) * rng.normal(size=(count, model.nu)), size(-3, 1) * rng.normal(size=(count, model.nv))
    return {"q": q, "v": v, "act": rng.uniform(0, 1, (count, model.topology.size("na"))), "ctrl": ctrl, "tau": tau}


def degenerate_states(model, rng, count: int) -> dict:
    """Exact zeros, quarter and half turns, limits, whole revolutions away, at rest or with one number that is not zero."""
    start = np.asarray(model.topology.initial[0], float)
    neutral = np.asarray(model.topology.neutral, float)
    angles = np.array([0.0, 0.5 * np.pi, -0.5 * np.pi, np.pi, -np.pi, 2 * np.pi, 1e-30])
    limits = [x for side in ("lower", "upper") for x in np.ravel(getattr(model.limit, side)) if np.isfinite(x) and abs(x) < 10]
    values = np.concatenate([angles, limits])
    still = np.zeros((count, model.nv))
    out = {"q": np.empty((count, model.nq)), "v": still.copy(), "act": np.zeros((count, model.topology.size("na"))),
           "ctrl": np.zeros((count, model.nu)), "tau": still.copy()}  # fmt: skip
    moves = still.copy()
    for i in range(count):
        kind = i % 5
        if kind in (1, 3):
            moves[i] = rng.choice(values)  # all at once
        elif kind == 2:
            moves[i] = rng.choice(values, model.nv)
        if kind >= 3 and model.nv:
            out["v"][i, rng.integers(model.nv)] = rng.choice([1e-30, 1.0, -30.0])
    base = np.where(np.arange(count)[:, None] % 2, neutral, start)
    out["q"] = by_numpy(xsim.integrate)(model, base, moves)
    return out


def everything(model):
    """Values of a step, and the gradient of their weighted sum by state, inputs and every number of the model."""
    weights = np.random.default_rng(1).normal(size=2000)

    def value(leaves, s):
        m = model.replace(leaves)
        state = xsim.init(m, s["q"], s["v"]).replace(act=s["act"])
        after = xsim.step(m, state, s["ctrl"] if m.nu else None, s["tau"])
        seen = xsim.forward(m, after, s["ctrl"] if m.nu else None, s["tau"])
        parts = jnp.concatenate([after.q, after.v, after.act, seen.a, seen.sensor], -1)
        return (parts @ weights[: parts.shape[-1]].astype(parts.dtype)).sum(), (after.q, after.v, after.act, seen.a)

    return jax.value_and_grad(value, argnums=(0, 1), has_aux=True)


def check(model, states: dict, run) -> None:
    leaves = {path: model.get(path) for path in model.paths()}
    (_, values), (by_leaf, by_state) = run(leaves, states)
    for part, x in zip(("q", "v", "act", "a"), values, strict=True):
        bad = np.flatnonzero(~np.isfinite(np.asarray(x)).all(-1))
        assert not len(bad), f"{part} of states {bad[:5]}: {[{k: y[i].tolist() for k, y in states.items()} for i in bad[:2]]}"
    for part, x in by_state.items():
        bad = np.flatnonzero(~np.isfinite(np.asarray(x)).all(-1))
        assert not len(bad), f"gradient by {part} at {bad[:5]}: {[{k: y[i].tolist() for k, y in states.items()} for i in bad[:2]]}"
    bad = [path for path, x in by_leaf.items() if not np.isfinite(np.asarray(x)).all()]
    assert not bad, f"gradients by {bad}"


@pytest.mark.slow
@pytest.mark.parametrize("name", DAILY)
def test_a_few_hundred_states(name, x64):
    model, rng = load(name), np.random.default_rng(0)
    run = by_numpy(everything(model))
    check(model, random_states(model, rng, FEW), run)
    check(model, degenerate_states(model, rng, FEW), run)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [n for n in models.names() if not n.startswith("dmc_")])  # those are much like gymnasium's
def test_ten_thousand_states(name, x64):
    model, rng = load(name), np.random.default_rng(0)
    run = jax.jit(everything(model))
    for _ in range(MANY[0] // CHUNK):
        check(model, random_states(model, rng, CHUNK), run)
    check(model, degenerate_states(model, rng, MANY[1]), run)
