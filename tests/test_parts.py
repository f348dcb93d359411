"""Long programs are divided into parts, and compute the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xsim.compile.function import Function
from xsim.compile.host import HostEmitter
from xsim.compile.llvm_types import Target
from xsim.compile.parts import CPU_LIMITS, DividedLoop, Divider, Lifetimes, Limits, Output, Part, parts_of, places_of, results_of, width_of
from xsim.compile.scheduling import Scheduler

SHORT = Limits(outside=0, part=20, undivided_loops=0, loop=20)


@pytest.fixture
def divided(monkeypatch):
    """Parts and loops of 20 operations at most."""
    monkeypatch.setattr(HostEmitter, "limits", SHORT)


def everything(a, x):
    """Shared numbers; loops of which environments make different numbers of turns, within each other; a loop that exchanges its carried
    values; arrays at positions that depend on the state; elementary functions; booleans."""

    def inner(c):
        return jax.lax.while_loop(lambda d: jnp.abs(d).max() > 1, lambda d: d * 0.8 + 0.01 * jnp.sin(a), c)

    y = jax.lax.while_loop(lambda c: (c**2).sum() > 0.1, lambda c: inner(1.7 * c) * 0.3, x * jnp.cos(a))
    z = jax.lax.scan(lambda c, u: ((jnp.tanh(c[0] + u), c[2], c[1]), c[0] * u), (y[0], y[1], y[2]), jnp.tile(x, 200))
    positive = x > 0
    w = jnp.where(positive[jnp.argmax(x)] & positive[0], jnp.exp(-x), a[:1])
    return [y.at[jnp.argmax(x)].add(a[0]), z[1][:3], jnp.stack(z[0]), w, positive.any()[None]]


def test_shared_arrays_are_beside_the_values_of_the_call():
    """They are not copied for each block of environments."""
    shapes = [jax.ShapeDtypeStruct((300,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)]
    function = Function(lambda table, i: [jnp.sin(table)[i], jnp.sin(table)[300 - i]], shapes, "rows")
    emitter = HostEmitter(function.program((False, True)), Target(4), [300, 1], [False, True], [False, False])
    emitter.modules()
    assert (emitter.scratch, emitter.slot_count) == (0, 150)  # two numbers of four bytes in a slot
    table, i = jnp.linspace(0.0, 9.0, 300), jnp.array([3, 299, 41, 7, 0], jnp.int32)
    for found, wanted in zip(function([table, i], [False, True]), (jnp.sin(table)[i], jnp.sin(table)[300 - i]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-7)


def operands(dtype):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=6), dtype), jnp.asarray(rng.normal(0, 2, (13, 6)), dtype)


def called(dtype):
    """Values, and derivatives of a sum of squares."""
    a, x = operands(dtype)
    function = Function(everything, [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in (a, x[0])], "everything")

    def loss(a, x):
        return sum((y**2).sum() for y in function([a, x], [False, True])[:4])

    return jax.tree.map(np.asarray, (function([a, x], [False, True]), jax.jvp(loss, (a, x), (a, x))[1]))


def division(limits, early=False):
    """Of the program of `everything`: (program, live values, scheduler, parts and divided loops)."""
    function = Function(everything, [jax.ShapeDtypeStruct((6,), jnp.float32)] * 2, "everything")
    program = function.program((False, True))
    live = program.live()
    scheduler = Scheduler(program, live, {})
    return program, live, scheduler, Divider(program, live, scheduler, limits, program.count(live), early).divided()


def test_loops_are_divided():
    """The loop of tangents within another one; every part is short, but for a single long item."""
    program, live, scheduler, found = division(SHORT)
    outer = [x for x in found if isinstance(x, DividedLoop)]
    assert len(outer) == 2 and any(isinstance(x, DividedLoop) for loop in outer for x in loop.body)
    every = list(parts_of(found))
    assert len(every) > 10 and all(part.operations <= 20 or len(part.items) <= 2 for part in every)
    lifetimes = Lifetimes(program, live, scheduler, found)
    places = places_of(program, lifetimes, 8)
    kept = sorted(places.offsets, key=lifetimes.first.__getitem__)
    widths = {x: width_of(program, x, 8) for x in kept}
    assert len(kept) > 30 and places.size < sum(widths.values())  # some share a place
    for k, x in enumerate(kept):
        for y in kept[k + 1 :]:
            apart = lifetimes.last[x] < lifetimes.first[y]
            (begin, width), (other, _) = sorted((places.offset(z), widths[z]) for z in (x, y))
            assert apart or other >= begin + width  # of those that are needed at a time none
    assert set(widths.values()) == {1, 4, 32}  # booleans and numbers of each environment, and numbers that they share


@pytest.mark.parametrize("early", [False, True])
def test_each_entry_of_a_result_is_stored_once(early):
    """Last, or early: directly after what computes it."""
    program, _, _, found = division(CPU_LIMITS, early)
    (part,) = parts_of(found)
    outputs = [x for x in part.items if isinstance(x, Output)]
    stored = [(x.result, i) for x in outputs for i in x.entries]
    assert sorted(stored) == [(k, i) for k, values in enumerate(program.outputs) for i in range(len(values))]
    if not early:
        assert part.items[-len(outputs) :] == outputs and len(outputs) == len(program.outputs)
        return
    assert len(outputs) == len(stored) > 10
    for position, item in enumerate(part.items):
        if isinstance(item, Output):
            computing = next(x for x in reversed(part.items[:position]) if not isinstance(x, Output))
            assert {*map(program.original, item.values(program))} <= {*results_of(computing)}


def test_what_parts_compute_again():
    """Cheap operations on values that are in scratch memory anyway, as long as parts need them."""
    program, live, scheduler, found = division(SHORT)
    lifetimes = Lifetimes(program, live, scheduler, found)
    first, last = dict(lifetimes.first), dict(lifetimes.last)
    places = places_of(program, lifetimes, 8)
    assert places.recomputed and places.recomputed.isdisjoint(places.offsets) and places.recomputed < set(first)
    for x in places.recomputed:
        assert program.names[x] in ("add", "sub", "mul", "neg")
        for argument in map(program.original, program.arguments[x]):
            if program.scopes[argument] is not program.call:
                assert argument in places.offsets and first[argument] <= first[x] and lifetimes.last[argument] >= last[x]


def test_what_is_not_divided():
    """Loops of a program that is not very long; nothing of a program whose operations are in loops."""
    *_, found = division(SHORT._replace(undivided_loops=1_000_000))
    assert len(found) > 3 and all(isinstance(x, Part) for x in found)
    program, live, *_ = division(SHORT)
    outside = program.count(live)[0]
    assert outside < sum(program.count(live).values())
    *_, found = division(Limits(outside=outside, part=20, undivided_loops=1_000_000, loop=20))
    assert len(found) == 1


@pytest.mark.parametrize("lanes", [1, None])
@pytest.mark.parametrize("double", [False, True])
def test_parts_compute_the_same(monkeypatch, divided, lanes, double):
    """Equal numbers: the operations are the same, in the same order."""
    with jax.enable_x64(double):
        dtype = jnp.float64 if double else jnp.float32
        if lanes:
            monkeypatch.setattr("xsim.compile.function.vector_lanes", lambda *_: lanes)
        found = called(dtype)
        monkeypatch.setattr(HostEmitter, "limits", CPU_LIMITS)
        wanted = called(dtype)
    for x, reference in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, reference, rtol=1e-12 if double else 1e-5)
