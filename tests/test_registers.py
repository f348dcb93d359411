"""Which values are in registers: every value is where it is read, and few are stored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_parts import called

from xsim.compile.registers import Allocator, Memory, Use

WIDTH = 4


def allocated(uses, in_memory, registers):
    """The moves, and the bytes in memory."""
    memory = Memory(100)
    values = {x for use in uses for x in (*use.reads, *use.computes)}
    moves = Allocator(uses, in_memory, dict.fromkeys(values, WIDTH), registers, memory).moves()
    return moves, memory.end - 100


def check(uses, in_memory, registers):
    """Follow the moves. Returns the numbers of loads and stores, and the bytes in memory."""
    moves, size = allocated(uses, in_memory, registers)
    inside: set[int] = set()  # registers
    places: dict[int, int] = {}  # what is in memory, by offset
    loads = stores = 0
    for use, around in zip(uses, moves, strict=True):
        for x in around.loaded:
            assert x in in_memory or x in places.values()
            inside.add(x)
        for x in use.reads:
            assert x in inside or not use.at_once and (x in in_memory or x in places.values())
        assert len(inside - {*use.reads}) <= registers
        inside |= {*use.computes}
        for x, offset in around.stored:
            assert x in inside and (offset - 100) % WIDTH == 0 and 100 <= offset < 100 + size
            places[offset] = x
        inside -= {*around.dropped}
        assert len(inside) <= registers
        loads, stores = loads + len(around.loaded), stores + len(around.stored)
    return loads, stores, size


def operations(rows):
    return [Use(reads, True, (x,)) for x, reads in rows]


def test_the_value_that_is_read_last_leaves():
    """Of a, b and c in two registers, a is read last."""
    a, b, c, *rest = range(8)
    uses = operations([(a, ()), (b, ()), (c, ()), (rest[0], (b, c)), (rest[1], (rest[0], b)), (rest[2], (rest[1], a))])
    moves, size = allocated(uses, set(), 2)
    assert [(k, m.stored) for k, m in enumerate(moves) if m.stored] == [(2, [(a, 100)])]
    assert [(k, m.loaded) for k, m in enumerate(moves) if m.loaded] == [(5, [a])] and size == WIDTH
    assert check(uses, {a}, 2) == (1, 0, 0)  # it is in memory already
    assert check(uses, set(), 3) == (0, 0, 0)


def test_places_are_used_again():
    """Each of ten values waits for its turn; never more than two at a time."""
    rows = []
    for k in range(0, 100, 10):
        rows += [(k, ()), (k + 1, ()), (k + 2, ()), (k + 3, (k + 1, k + 2)), (k + 4, (k, k + 3))]
    loads, stores, size = check(operations(rows), set(), 1)
    assert stores >= 10 and loads == stores and size <= 2 * WIDTH


@pytest.mark.parametrize("registers", [1, 3, 8, 24])
def test_random_code(registers):
    """Operations on random earlier values, some of which are in memory; loops and arrays, which find values where they are."""
    rng = np.random.default_rng(registers)
    uses = []
    for x in range(400):
        earlier = rng.choice(x, min(x, int(rng.integers(0, 4))), replace=False).tolist() if x else []
        uses.append(Use(earlier, bool(rng.random() < 0.9), (x,)))
    in_memory = set(rng.choice(400, 80, replace=False).tolist())
    loads, stores, size = check(uses, in_memory, registers)
    assert 0 < stores < 320 and loads > 0 and size < 400 * WIDTH
    assert check(uses, in_memory, 1000) == (0, 0, 0)


@pytest.mark.parametrize("lanes", [1, 4, None])
@pytest.mark.parametrize("double", [False, True])
def test_few_registers_compute_the_same(monkeypatch, lanes, double):
    """Loops, arrays, elementary functions and booleans with two values in registers."""
    with jax.enable_x64(double):
        dtype = jnp.float64 if double else jnp.float32
        if lanes:
            monkeypatch.setattr("xsim.compile.function.vector_lanes", lambda *_: lanes)
        wanted = called(dtype)
        monkeypatch.setattr("xsim.compile.host.vector_registers", lambda: 2)
        found = called(dtype)
    for x, reference in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, reference, rtol=1e-12 if double else 1e-5)
