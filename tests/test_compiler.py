"""Functions compiled by LLVM agree with JAX: operations, loops, derivatives, steps of models."""

import functools
import itertools
import math
import operator
import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from memory import PROC, drop_programs, resident
from traced import by_numpy

import xsim
from xsim import cache
from xsim.compile import machine, processes
from xsim.compile.choice import tracing_for
from xsim.compile.compiled_call import CompilerWarning, compiled_call, warn_once
from xsim.compile.flatten import Unsupported, program_of
from xsim.compile.function import Function, Replay
from xsim.compile.llvm_types import Target
from xsim.compile.loops import Branch
from xsim.compile.placement import placement_of
from xsim.compile.program import INDEX, Program
from xsim.compile.scheduling import Scheduler
from xsim.dynamics.compiled_step import step_function
from xsim.dynamics.layout import row_of, true_indices
from xsim.dynamics.prepared import system_function

pytestmark = pytest.mark.xla

RNG = np.random.default_rng(0)


def compiled(function, *arguments, batched=None):
    """The results of a function of one environment, compiled. arguments (environments, ...), or without that axis where not batched."""
    batched = [True] * len(arguments) if batched is None else batched
    shapes = [jax.ShapeDtypeStruct(x.shape[int(b) :], x.dtype) for x, b in zip(arguments, batched, strict=True)]
    return Function(lambda *xs: jax.tree.leaves(function(*xs)), shapes, "test")(arguments, batched)


@pytest.fixture(autouse=True)
def numbers_of_this_test(monkeypatch):
    """The random numbers of a test do not depend on the tests before it, which differ between the workers of pytest."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(0))


def check(function, *arguments, batched=None, rtol=2e-6, atol=1e-7):
    """Compare with JAX on every environment."""
    batched = [True] * len(arguments) if batched is None else batched
    expected = jax.tree.leaves(jax.vmap(function, [0 if b else None for b in batched])(*arguments))
    for a, b in zip(compiled(function, *arguments, batched=batched), expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def numbers(*shape, dtype=np.float32):
    """Arrays of a batch of eleven environments, which is no multiple of a vector."""
    return jnp.asarray(RNG.normal(size=(11, *shape)), dtype)


# ---- elementary functions --------------------------------------------------------------------------------------------------------

DOMAINS = {
    "sin": (-1e4, 1e4), "cos": (-1e4, 1e4), "tan": (-50, 50), "arcsin": (-1, 1), "arccos": (-1, 1), "arctan": (-1e3, 1e3),
    "sinh": (-80, 80), "cosh": (-80, 80), "tanh": (-12, 12), "exp": (-100, 88), "exp2": (-126, 127), "expm1": (-20, 80),
    "log": (1e-30, 1e30), "log1p": (-0.999, 1e5), "arcsinh": (-1e3, 1e3), "arccosh": (1, 1e3), "arctanh": (-1, 1),
    "cbrt": (-1e3, 1e3), **({"log2": (1e-30, 1e30)} if hasattr(jax.lax, "log2") else {}),  # older JAX divides logarithms
}  # fmt: skip
ULPS = {np.float32: 0.51, np.float64: 2.0}
"""Largest error in units in the last place. Half is the least possible; the C library has up to 1.8 in double precision."""
SINGLE_SINE_ULPS = 0.8
"""The same of sine and cosine in single precision, which are not computed in double precision and rounded; numpy's have up to 1.5."""
ROOT_ULPS = 4.0
"""The same of the cube root in double precision, by the manual of the GNU C library."""
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 1e-6, 1e30, -1e30])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elementary_functions(dtype, x64):
    """Close to numpy's in extended precision (units in the last place: see `ULPS`); special values are the C library's."""
    names = list(DOMAINS)
    low, high = np.array(list(DOMAINS.values())).T
    x = (low + (high - low) * RNG.random((4000, len(names)))).astype(dtype)
    x[:500] *= 10.0 ** RNG.uniform(-8, 0, (500, 1)) * (low < 0)
    x[:500] += (x[:500] == 0) * 1e-3
    x[500:700, :2] *= 10.0 ** RNG.uniform(0, 6, (200, 2))  # sines of angles that single precision reduces in another way
    x[700:740, :2] = (np.arange(1, 41)[:, None] * 401 * np.pi / 2).astype(np.float32)  # near zeros
    x = np.concatenate([x, np.repeat(SPECIAL.astype(dtype)[:, None], len(names), 1)])
    (out,) = compiled(lambda x: jnp.stack([getattr(jnp, name)(x[i]) for i, name in enumerate(names)]), jnp.asarray(x))
    _accurate(names, np.asarray(out), [x], dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_two_numbers(dtype, x64):
    grid = np.stack(np.meshgrid(SPECIAL, SPECIAL), -1).reshape(-1, 2)
    bases = np.concatenate([SPECIAL, RNG.normal(size=64)])
    whole = [np.stack([bases, np.full(len(bases), power)], 1) for power in (1.0, 2.0)]  # whole vectors of small powers
    x = [np.stack([np.exp(RNG.uniform(-8, 8, 4000)), RNG.uniform(-5, 5, 4000)], 1), RNG.normal(size=(4000, 2)), grid, *whole]
    x = np.concatenate(x)
    x = x.astype(dtype)
    (out,) = compiled(lambda x: jnp.stack([jnp.power(x[0], x[1]), jnp.arctan2(x[0], x[1])]), jnp.asarray(x))
    _accurate(["power", "arctan2"], np.asarray(out), [x[:, :1].repeat(2, 1), x[:, 1:].repeat(2, 1)], dtype)


def test_elementary_functions_of_a_number_do_not_depend_on_the_others():
    """Of large angles, and of powers, some lanes of a vector take a branch."""
    x = np.array([[0.3, 1.0], [1e6, 2.0], [2.0, 2.0], [-4e8, 0.37], [np.nan, 2.0], [1e-3, 1.0]] * 7, np.float32)

    def function(x):
        return jnp.sin(x[0]), jnp.cos(x[0]), jnp.abs(x[0]) ** x[1]

    together = np.stack(compiled(function, x))
    for i in range(6):
        alone = np.stack(compiled(function, np.repeat(x[i : i + 1], len(x), 0)))
        np.testing.assert_array_equal(together[:, i::6], alone[:, i::6])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_functions(dtype, x64):
    """In relative units of the precision, which are at least half a unit in the last place."""
    x = np.concatenate([np.linspace(-6, 6, 4001), np.geomspace(1e-12, 26 if dtype == np.float64 else 9, 2000)]).astype(dtype)
    out = compiled(lambda x: (jax.lax.erf(x), jax.lax.erfc(x)), jnp.asarray(x))
    for found, function, limit in zip(out, (math.erf, math.erfc), (2.0, 4.0), strict=True):
        exact = np.array([function(float(y)) for y in x])
        assert (np.abs(np.asarray(found, float) - exact) <= limit * np.finfo(dtype).eps * np.abs(exact)).all()


def _accurate(names, out, arguments, dtype):
    for i, name in enumerate(names):
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(*(x[:, i].astype(np.longdouble) for x in arguments))
            expected = exact.astype(dtype)
        # The sine of 1e30 rad: angles beyond 2^45 have no meaning in single precision, and are NaN.
        large = np.abs(arguments[0][:, i]) > 2.0**45 if name in ("sin", "cos", "tan") and dtype == np.float32 else np.zeros(len(out), bool)
        special = ~np.isfinite(expected) & ~large
        np.testing.assert_array_equal(out[special, i], expected[special], err_msg=name)
        usual = np.isfinite(expected) & ~large & (np.abs(expected) >= np.finfo(dtype).tiny)
        error = np.abs(out[usual, i].astype(np.longdouble) - exact[usual]) / np.spacing(np.abs(expected[usual]))
        others = {("cbrt", np.float64): ROOT_ULPS, ("sin", np.float32): SINGLE_SINE_ULPS, ("cos", np.float32): SINGLE_SINE_ULPS}
        limit = others.get((name, dtype), ULPS[dtype])
        assert error.max() <= limit, (name, float(error.max()))


# ---- operations ------------------------------------------------------------------------------------------------------------------


def _search(x, n):
    """A loop whose number of turns differs between environments, with a loop inside and a counter that is used after it."""

    def turn(c):
        x, i = c
        inner = jax.lax.while_loop(lambda d: d[0] > 0.5, lambda d: (d[0] * 0.7, d[1] + 1), (jnp.abs(x[0]), jnp.int32(0)))
        return x.at[i % 3].add(inner[0]) + inner[1], i + 1

    x, i = jax.lax.while_loop(lambda c: c[1] < n, turn, (x, jnp.int32(0)))
    return x, i


def _tangent(function, x):
    return jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def _turn(x, _):
    return jnp.sin(x) * x + 0.1, None


def _long(x):
    """More operations than a branch that is evaluated whether it is chosen or not."""
    for _ in range(60):
        x = 0.5 * jnp.sin(x) * x[::-1] + 0.4 * jnp.roll(x, 1)
    return x, jnp.int32(9 * x[0])


def _bits(x):
    i, count = jnp.int32(x * 9), jnp.int32(28)
    logical = [jax.lax.shift_right_logical(k, count) for k in (i, jnp.int32(-3))]
    return x.view(f"u{x.dtype.itemsize}") >> 3, i >> 1, i << 2, logical


OPERATIONS = {
    "arithmetic": (lambda x, y: x * y + x / y - jnp.sqrt(jnp.abs(x)) + jax.lax.rsqrt(jnp.abs(y)), (4,), (4,)),
    "comparisons": (lambda x, y: jnp.where((x < y) & ~(x > 0.1) | (x == y), x, jnp.maximum(x, jnp.minimum(y, 0.2))), (5,), (5,)),
    "rounding": (lambda x: jnp.stack([jnp.floor(x), jnp.ceil(x), jnp.round(4 * x), jnp.sign(x), jnp.trunc(3 * x)]), (3,)),
    "powers": (lambda x: jnp.stack([x**2, x**3, x**-2, jnp.abs(x) ** 1.7, jnp.square(x), jnp.clip(x, -0.5, 0.5)]), (3,)),
    "sinc": (lambda x: jnp.sinc(x), (6,)),
    "tangents": (lambda x: _tangent(lambda y: (jnp.tanh(y), jnp.arcsin(y), jnp.arccos(y), jnp.arctanh(y)), 0.9 * jnp.tanh(x)), (6,)),
    "further tangents": (lambda x: _tangent(lambda y: (jnp.arcsinh(y), jnp.log2(y * y), jnp.cbrt(y), jax.nn.sigmoid(3 * y)), x), (6,)),
    "sigmoid": (lambda x: (jax.nn.sigmoid(200 * x), jax.grad(lambda y: jax.nn.sigmoid(200 * y).sum())(x)), (6,)),
    "integers": (lambda x: (jnp.int32(7 * x) % 5, jnp.int32(9 * x) // 4, jnp.abs(jnp.int32(5 * x)), jnp.int32(x * 3) ** 2), (4,)),
    "integers out of range": (lambda x: (jnp.int32(1e12 * x), jnp.uint8(400 * x), jnp.int32(jnp.log(x)), jnp.int32(x / (0 * x))), (4,)),
    "reductions": (lambda x: (x.sum(0), x.max(), x.min(1), x.prod(), (x > 0).any(0), (x > -1).all(), x.argmax(), x.argmin(1)), (3, 4)),
    "sums": (lambda x: (jnp.cumsum(x), jnp.cumsum(x[::-1], 0), jax.lax.cumsum(x, reverse=True), jnp.cumprod(x)), (6,)),
    "shapes": (lambda x: (x.T.reshape(6)[::2], jnp.pad(x, ((1, 0), (2, 1))), jnp.concatenate([x, x[:1]]), jnp.stack([x, x], 1)), (2, 3)),
    "products": (lambda x, y: (x @ y, jnp.einsum("ij,jk->ki", x, y), jnp.linalg.norm(x)), (2, 3), (3, 2)),
    "factorization": (lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4)), (4, 5)),
    "factorization of constants": (lambda x: x[0] * jnp.linalg.cholesky(jnp.array([jnp.eye(2), -jnp.eye(2), 4 * jnp.eye(2)])), (1,)),
    "triangular": (lambda x, y: jax.scipy.linalg.solve_triangular(x + 4 * jnp.eye(3), y, lower=True, trans=1), (3, 3), (3, 2)),
    "error function": (lambda x: (jax.scipy.special.erf(2 * x), jax.scipy.special.erfc(3 * x), jax.nn.gelu(x, approximate=False)), (9,)),
    "sort": (lambda x, y: (jnp.sort(x, 0), jnp.sort(x, descending=True), jnp.median(y), y[jnp.argsort(jnp.round(y))]), (3, 4), (7,)),
    "sort of NaN": (lambda x: (jnp.sort(jnp.log(x)), jnp.argsort(jnp.log(x)), jnp.lexsort((x, x > 0))), (7,)),
    "interpolation": (lambda x: jnp.interp(x, jnp.linspace(-1.0, 1.0, 9), jnp.sin(jnp.arange(9.0))), (5,)),
    # Well-conditioned, with pivots beside the diagonal: random matrices alone are sometimes nearly singular.
    "linear equations": (
        lambda x, y: (jnp.linalg.solve(x + 4 * jnp.eye(3)[::-1], y), jnp.linalg.det(x), jnp.linalg.inv(x + 4 * jnp.eye(3))), (3, 3), (3,)
    ),
    "bits": (_bits, (3,)),
    "top k": (lambda x: (*jax.lax.top_k(x, 3), *jax.lax.top_k(x.reshape(2, 3), 2)), (6,)),
    "top k of equal entries": (lambda x: (*jax.lax.top_k(abs(jnp.round(x)), 4), *jax.lax.top_k(jnp.log(x > 0), 7)), (7,)),
    "index": (lambda x, y: (x[jnp.argmax(y)], x[jnp.array([2, 0])], jnp.take_along_axis(x, jnp.arange(3)[::-1, None], 0)), (3, 2), (3,)),
    "own index": (lambda x, y: (jnp.take_along_axis(x, jax.lax.top_k(y, 2)[1], 0), x.at[jnp.argmin(y)].add(1.0)), (4,), (4,)),
    "updates at own places": (lambda x, i, y: (x.at[i].add(y), x.at[i[0], 1].set(y[0, 0])), (5, 2), "index", (4, 2)),
    "update": (lambda x: (x.at[1].set(0.0), x.at[:, 0].add(2.0), jax.lax.dynamic_update_slice(x, x[:1, :2], (1, 1))), (3, 3)),
    "cond": (lambda x: jax.lax.cond(x[0] > 0, lambda x: x + 1, lambda x: x * 2, x), (2,)),
    "long branch": (lambda x: jax.lax.cond(x[0] > 0.3, _long, lambda x: (2 * x, jnp.int32(7)), x), (4,)),
    "switch": (lambda x: jax.lax.switch(jnp.int32(jnp.abs(x[0]) * 2), [lambda x: x + 1, lambda x: x * 2, lambda x: -x], x), (2,)),
    "short scan": (lambda x: jax.lax.scan(lambda c, y: (c * 0.5 + y, c), x[0], x, reverse=True), (3,)),
    "long scan": (lambda x: jax.lax.scan(lambda c, y: (jnp.tanh(c * 0.5 + y), c * y), x[0], jnp.tile(x, 130)), (3,)),
    "long reverse scan": (lambda x: jax.lax.scan(lambda c, y: (c * 0.5 + y, c), x[0], jnp.tile(x, 170), reverse=True), (3,)),
    "checkpoint": (lambda x: jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sin(x) ** 2)(x).sum())(x), (3,)),
    "scan of checkpoints": (lambda x: jax.grad(lambda x: jax.lax.scan(jax.checkpoint(_turn), x, None, length=200)[0].sum())(x), (3,)),
    "counted loop": (lambda x: jax.lax.fori_loop(0, 700, lambda i, c: c * 0.9 + x[i % 3], x[0]), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    """An "index" is four integers, some twice and some outside of an array of five."""
    function, *shapes = OPERATIONS[name]
    index = jnp.asarray(RNG.integers(-9, 8, (11, 4)), jnp.int32)
    check(function, *(index if shape == "index" else numbers(*shape) for shape in shapes), atol=2e-6)


def test_shared_operands():
    """What depends on shared operands alone is computed once; arrays of them are indexed too."""
    check(lambda a, x: (jnp.cumsum(a) * x, a[jnp.argmax(x)], a @ a * x.sum()), numbers(3)[0], numbers(3), batched=[False, True])
    check(lambda a: a * 2, numbers(3))
    (out,) = compiled(lambda a: jnp.sin(a), numbers(3)[0], batched=[False])
    assert out.shape == (1, 3)


def test_loops_by_environment():
    check(_search, numbers(3), jnp.arange(11, dtype=jnp.int32))


def _joined(x, index):
    """Results of two long loops and of none as one array, from which each environment takes other entries, in either of two branches."""

    def long(a):
        for _ in range(200):
            a = 0.5 * jnp.sin(a) + 0.2
        return a

    whole = jnp.concatenate([jax.lax.map(long, x[:9]), x[3:5] * 2, jax.lax.map(long, 0.5 * x[:8])])
    taken = [lambda whole, k=k: long(whole[index + k]) for k in (0, 1)]
    return jax.lax.cond(x[0] > 0, *taken, whole), whole[index]


@pytest.mark.parametrize("chosen", [False, True])
def test_a_branch_is_flattened_once(chosen, monkeypatch):
    turns = []
    monkeypatch.setattr(Branch, "turn", lambda self, *args, turn=Branch.turn: turns.append(self) or turn(self, *args))

    def long(x):
        for _ in range(40):
            x = jnp.sin(x) * 1.5
        return x

    def inside(x):
        return jax.lax.cond(x[0] > 0, lambda y: long(-y), lambda y: y, x), jnp.zeros(2), x * 0.0

    def function(x):
        return jax.lax.cond(x[1] > 0, inside, lambda y: (y, jnp.zeros(2), y), x)

    check(function, jnp.array([[0.5, 1.0 if chosen else -1.0]]))
    assert len(turns) == len({id(turn) for turn in turns}) == 2, "the branch, and that within it"


def test_equal_entries_are_computed_once_in_a_branch():
    """A symmetric matrix is one in a branch, too."""

    def inside(x):
        return functools.reduce(lambda y, _: jnp.sin(y), range(20), x)

    def function(x):
        return jax.lax.cond(x[0] > 0, inside, lambda y: y, x[jnp.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])])

    check(function, numbers(6))
    program = program_of(Function(lambda x: [function(x)], [jax.ShapeDtypeStruct((6,), jnp.float32)], "test").traced, [True])
    assert sum(program.names[x] == "sin" for x in program.live()) == 20 * 6


def test_only_counted_loops_are_unrolled():
    """A condition that is constant before the loop, and depends on the state after a turn, does not begin to unroll it."""

    def search(x, tolerance=None):
        def proceeds(carry):
            return (carry[0] < 4) & ~carry[2]

        def turn(carry):
            y = jnp.sin(carry[1])
            return carry[0] + 1, y, jnp.asarray(False) if tolerance is None else y < tolerance

        return jax.lax.while_loop(proceeds, turn, (0, x, jnp.asarray(False)))[1]

    for tolerance, unrolled in ((None, 4), (0.5, 0)):
        function = functools.partial(search, tolerance=tolerance)
        program = program_of(Function(lambda x, f=function: [f(x)], [jax.ShapeDtypeStruct((), jnp.float32)], "test").traced, [True])
        scopes = [scope for name, scope in zip(program.names, program.scopes, strict=True) if name == "sin"]
        assert sum(scope is program.environment for scope in scopes) == unrolled
        check(function, numbers())


def test_buffers_lie_in_the_arrays_that_join_them():
    """The results of loops are not copied to an array of all, of which both branches have the same."""
    x, index = numbers(9), jnp.asarray(RNG.integers(0, 18, (11, 3)), jnp.int32)
    check(_joined, x, index)
    shapes = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in (x, index)]
    program = program_of(Function(lambda *xs: jax.tree.leaves(_joined(*xs)), shapes, "test").traced, [True, True])
    placement = placement_of(program, program.live())
    assert sorted(first for _, first in placement.parts.values()) == [0, 11]
    assert len(placement.memory) == 3 and len(set(placement.memory.values())) == 1
    assert all([position for position, _ in rest] == [9, 10] for rest in placement.rest.values())


def _sums_of_products(x):
    """All products are traced before the first sum."""
    products = [[x[i] * x[j] for j in range(i)] for i in range(1, 9)]
    return [functools.reduce(operator.add, row) for row in products]


def _most_alive(program: Program, order: list[int]) -> int:
    """The largest number of operations whose results are read later."""
    outputs = {x for output in program.outputs for x in output}
    operations = [x for x in order if program.names[x] in ("add", "mul")]
    last = {a: k for k, x in enumerate(operations) for a in program.arguments[x]}
    return max(sum(y not in outputs and last[y] > k for y in operations[: k + 1]) for k in range(len(operations)))


def test_operations_are_placed_where_they_are_read():
    shape = jax.ShapeDtypeStruct((9,), jnp.float32)
    program = program_of(Function(_sums_of_products, [shape], "test").traced, [True])
    order = Scheduler(program, program.live(), {}).ordered(program.environment)
    assert sorted(order) == sorted(program.environment.items)
    assert _most_alive(program, program.environment.items) == 35  # products of sums that have begun are not alive
    assert _most_alive(program, order) == 2
    check(_sums_of_products, numbers(9))


def test_reads_stay_before_later_stores():
    program, real = Program(), np.dtype(np.float32)
    x, zero, buffer = program.input(0, 0, real, True), program.constant(INDEX.type(0)), program.buffer(1, real)
    program.store(buffer, zero, 0, x)
    first = program.load(buffer, zero)
    program.store(buffer, zero, 0, program.operation("neg", real, (x,)))
    second = program.load(buffer, zero)
    program.outputs = [[second, first]]
    order = Scheduler(program, program.live(), {}).ordered(program.environment)
    stores = [k for k, item in enumerate(order) if not isinstance(item, int)]
    assert stores[0] < order.index(first) < stores[1] < order.index(second)


def test_vectors(monkeypatch):
    """A few environments, and long programs but derivatives in reverse mode, have short vectors. The results are the same."""
    for sizes, lanes in (((32, 64), {1: 8, 8: 8, 9: 16, 4096: 16}), ((32,), {1: 8, 9: 8}), ((16,), {4: 4, 5: 4})):
        monkeypatch.setattr(machine, "_vector_sizes", lambda sizes=sizes: sizes)
        assert {n: machine.vector_lanes(n, 4) for n in lanes} == lanes
    monkeypatch.setattr(machine, "_vector_sizes", lambda: (32, 64))
    shape, x, found = jax.ShapeDtypeStruct((2,), jnp.float32), numbers(2), []
    monkeypatch.setattr("xsim.compile.function.Target", lambda lanes, **more: found.append(lanes) or Target(lanes, **more))
    for most, lanes in ((10, 16), (1, 8)):
        monkeypatch.setattr("xsim.compile.function.MAX_WIDE_OPERATIONS", most)
        function = Function(lambda x: [3 * x], [shape], "test")
        np.testing.assert_array_equal(function([x], [True])[0], 3 * x)
        assert found.pop() == lanes
        np.testing.assert_array_equal(function.reverse((0,))([x, x], [True, True])[0], 3 * x)
        assert found.pop() == 16


def test_numbers_that_are_not_finite():
    """A zero that is written in the code keeps NaN, and so do maximum and minimum."""
    x = jnp.array([[1.0], [jnp.nan], [jnp.inf], [-jnp.inf], [0.0]], jnp.float32)
    check(lambda x: (x * 0.0, jnp.maximum(x, 0.5), jnp.minimum(0.5, x), jnp.isfinite(x), jnp.isnan(x), jnp.sign(x), x != x), x)


def test_batches_of_any_size_and_no_environment():
    f = Function(lambda x: [x * 2], [jax.ShapeDtypeStruct((2,), jnp.float32)], "double")
    for n in (0, 1, 7, 8, 9, 16, 17, 4096):  # vectors have 8 or 16 environments
        x = jnp.arange(2.0 * n).reshape(n, 2)
        np.testing.assert_array_equal(f([x], [True])[0], 2 * x)


def test_unsupported_operations_go_to_xla():
    warn_once.cache_clear()
    f = Function(lambda x: [jax.lax.lgamma(x)], [jax.ShapeDtypeStruct((5,), jnp.float32)], "gamma")
    with pytest.raises(Unsupported, match="lgamma"):
        f([numbers(5)], [True])
    g = Function(lambda x: [jnp.where(x > 0, jnp.sin(x), x)], [jax.ShapeDtypeStruct((5,), jnp.float32)], "sine")
    shape, odd = f.shapes[0], lambda x, c: [jax.lax.lgamma(c) * jnp.cos(x)]
    g.reverse = lambda active: Function(odd, [shape] * 2, "odd reverse", results=[shape])
    x = numbers(5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = jax.grad(lambda x: (g([x], [True])[0] * x).sum())(x)
    np.testing.assert_allclose(got, g([x], [True])[0] + jax.lax.lgamma(x) * jnp.cos(x), rtol=1e-6)
    assert [str(w.message) for w in caught if w.category is CompilerWarning] == ["XLA compiles the odd reverse: the operation lgamma"]


# ---- transformations -------------------------------------------------------------------------------------------------------------


def _smooth(a, x):
    y = jnp.sin(a * x[0]) + x[1] ** 2 * a
    return [jnp.stack([y, y * x[0]]), (y > 0).astype(jnp.int32)]


SMOOTH = Function(_smooth, [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((), (2,))], "smooth")


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.grad(f, (0, 1)), lambda f: jax.jacfwd(f, (0, 1)), lambda f: jax.hessian(f, (0, 1)),
        lambda f: jax.jit(jax.grad(jax.grad(f))), lambda f: lambda a, x: jax.vmap(jax.grad(f, (0, 1)), (0, None))(a + jnp.arange(3.0), x),
        lambda f: lambda a, x: jax.vmap(f, (None, 0))(a, jnp.stack([x, 2 * x])),
        lambda f: jax.grad(lambda a, x: jax.lax.scan(lambda c, _: (c * 0.9 + f(c, x) * 1e-2, c), a, None, length=3)[0], (0, 1)),
        lambda f: jax.checkpoint(jax.grad(f)),
    ],
    ids=["grad", "jacfwd", "hessian", "grad of grad", "vmap of grad", "vmap", "grad of scan", "checkpoint"],
)  # fmt: skip
def test_transformations(transform):
    a, x = jnp.float32(0.7), numbers(2)

    def by(call):
        return transform(lambda a, x: jnp.sum(call(a, x) ** 2))(a, x)

    got = by(lambda a, x: SMOOTH([a, x], [False, True])[0])
    expected = by(lambda a, x: jax.vmap(lambda x: _smooth(a, x)[0])(x))
    for p, q in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(p, q, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_derivatives_are_evaluated_with_known_results(shared, x64):
    """The derivative of x sqrt(x) + c x at the square root that the function has found, which is held: sqrt(x) + c."""
    shapes = [jax.ShapeDtypeStruct((3,), np.dtype(float)), jax.ShapeDtypeStruct((), np.dtype(float))]
    replay = Replay(lambda x, c, root: [x * root + c * x], known=(0,))
    f = Function(lambda x, c: [jnp.sqrt(x), x * jnp.sqrt(x) + c * x], shapes, "test", replay=replay)
    x, c = jnp.abs(numbers(3, dtype=np.float64)), jnp.asarray(0.3)
    c = c if shared else jnp.broadcast_to(c, len(x))

    def product(x, c):
        return compiled_call.bind(x, c, function=f, batched=(True, not shared), summed=(False, False))[1]

    np.testing.assert_allclose(product(x, c), x**1.5 + 0.3 * x, rtol=1e-14)
    by_x, by_c = jax.jit(jax.grad(lambda *xs: product(*xs).sum(), (0, 1)))(x, c)
    np.testing.assert_allclose(by_x, jnp.sqrt(x) + 0.3, rtol=1e-14)
    np.testing.assert_allclose(by_c, x.sum() if shared else x.sum(1), rtol=1e-13)
    change = jax.jit(lambda *xs: jax.jvp(product, xs, (jnp.ones_like(x), jnp.ones_like(c)))[1])(x, c)
    np.testing.assert_allclose(change, jnp.sqrt(x) + 0.3 + x, rtol=1e-14)


def test_sums_over_environments_do_not_depend_on_threads():
    """Gradients of shared operands are the same bits in every run, though threads take chunks of the batch in any order."""
    x = jnp.asarray(RNG.normal(size=(40_000, 2)), jnp.float32)
    gradient = jax.jit(jax.grad(lambda a: jnp.sum(SMOOTH([a, x], [False, True])[0])))
    assert len({float(gradient(jnp.float32(0.3))) for _ in range(20)}) == 1


# ---- steps of models -------------------------------------------------------------------------------------------------------------


def _perturbed(model, count, rng):
    start = xsim.init(model)
    v = jnp.asarray(rng.normal(0, 0.3, (count, model.nv)))
    q = xsim.integrate(model, jnp.broadcast_to(start.q, (count, model.nq)), jnp.asarray(rng.normal(0, 0.1, (count, model.nv))))
    return xsim.init(model, q, v), jnp.asarray(rng.uniform(-0.5, 0.5, (3, count, model.nu))) if model.nu else None


REPEATED = [pytest.param(name, marks=pytest.mark.nightly) for name in ("zoo", "slider_crank")]
STEPPED = ["half_cheetah", "servo_arm", "four_bar", "springy_tree", "two_links", *REPEATED]


@pytest.mark.parametrize("name", STEPPED)
def test_steps_are_those_of_xla(name, x64):
    """Three steps, with a time step and a gravity of their own for each environment, in a batch that is no multiple of a vector."""
    model, rng = xsim.load(xsim.models.path(name)), np.random.default_rng(3)
    model = model.replace({"option.dt": model.option.dt * jnp.linspace(0.5, 1, 5)})
    state, ctrls = _perturbed(model, 5, rng)
    with tracing_for("llvm"):
        got = xsim.rollout(model, state, ctrls, steps=3)[0]
    with tracing_for("xla"):
        expected = by_numpy(lambda m, s: xsim.rollout(m, s, ctrls, steps=3)[0])(model, state)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_step_without_a_batch_and_with_two_axes(x64):
    model = xsim.load(xsim.models.path("chain"))
    state = xsim.init(model)
    one = xsim.step(model, state)
    assert one.q.shape == state.q.shape and one.flags.shape == ()
    many = xsim.step(model, jax.tree.map(lambda x: jnp.broadcast_to(x, (2, 3, *x.shape)), state))
    np.testing.assert_array_equal(many.q, jnp.broadcast_to(one.q, many.q.shape))
    mapped = jax.vmap(lambda m, s: xsim.step(m, s), (None, 0))(model, jax.tree.map(lambda x: x[0], many))
    # XLA computes some numbers before the program: as the tests compile it (conftest.py), they round differently in another batch.
    np.testing.assert_allclose(mapped.q[1], xsim.step(model, jax.tree.map(lambda x: x[0, 1], many)).q, rtol=1e-13)


@pytest.mark.slow
def test_states_that_are_not_finite_are_flagged():
    """One environment that is not finite changes no other, and the step ends."""
    model = xsim.load(xsim.models.path("half_cheetah"))
    start = xsim.init(model)
    q = jnp.broadcast_to(start.q, (9, model.nq)).at[3, 2].set(jnp.nan).at[5, 0].set(jnp.inf)
    state = xsim.init(model, q, jnp.zeros((9, model.nv)).at[7, 1].set(jnp.inf))
    with tracing_for("llvm"):
        after = xsim.rollout(model, state, steps=2)[0]
        alone = xsim.rollout(model, xsim.init(model, start.q[None], jnp.zeros((1, model.nv))), steps=2)[0]
    assert (np.asarray(after.flags) & xsim.Flags.DIVERGED != 0).tolist() == [i in (3, 5, 7) for i in range(9)]
    np.testing.assert_array_equal(after.q[0], alone.q[0])


@pytest.mark.parametrize("limit", ["MAX_OPERATIONS", "MAX_TRACED_OPERATIONS"])
def test_large_steps_go_to_xla(limit, monkeypatch):
    """The choice "llvm" says so."""
    monkeypatch.setattr(f"xsim.compile.function.{limit}", 1000)
    system_function.cache_clear()  # the size of a function that was made before is known
    step_function.cache_clear()
    model = xsim.load(xsim.models.path("half_cheetah"))
    with tracing_for("llvm"), pytest.raises(Unsupported, match="operations, more than 1000"):
        jax.eval_shape(xsim.step, model, xsim.init(model))


def test_long_loops_are_tried_once(monkeypatch):
    """The trace tells which carried arrays stay constant, are counters, or get numbers of environments: the same program as by trials."""
    tried, loop = [], Program.loop
    monkeypatch.setattr(Program, "loop", lambda self, *args: tried.append(1) or loop(self, *args))

    def function(n, x):
        def turn(carry):
            k, same, zero, y, z = carry
            return k + 1, same, zero + y[0], y * 0.5 + same, y[::-1]

        start = jnp.int32(0), jnp.arange(3.0), jnp.float32(0), x, jnp.zeros(3)
        return list(jax.lax.while_loop(lambda c: c[0] < n[0], turn, start))

    shapes = [jax.ShapeDtypeStruct((1,), jnp.int32), jax.ShapeDtypeStruct((3,), jnp.float32)]
    programs = []
    for least, attempts in ((10**9, 2), (0, 1)):
        monkeypatch.setattr("xsim.compile.flatten.MIN_SUPPOSED", least)
        tried.clear()
        programs.append(Function(function, shapes, "loop").program((False, True)))
        assert len(tried) == attempts
    one, other = ([p.varying[x] for values in p.outputs for x in values] + [p.count(p.live())] for p in programs)
    assert one == other and one[:4] == [False, False, False, False]


@pytest.mark.parametrize("reverse", [False, True])
def test_no_entry_is_loaded_after_the_last_turn(reverse):
    """Entry 500 or -1 of an array of 500 numbers does not exist: loops load after they have found out that there is another turn."""
    numbers = jnp.asarray(np.random.default_rng(0).normal(size=500), jnp.float32)

    def function(x):
        return [jax.lax.scan(lambda c, n: (jnp.sin(c) * n + x, None), x, numbers, reverse=reverse)[0]]

    module = Function(function, [jax.ShapeDtypeStruct((2,), jnp.float32)], "scan").modules((True,), (False,), 8)[0]
    block = module[module.index("@part0(") :]
    block = block[: block.index("\n}")]
    head, body = block.index("\nhead"), block.index("\nbody")
    assert "load" not in block[head:body] and "load float, ptr" in block[body : block.index("\nend")]


def test_very_long_programs_are_not_optimized(monkeypatch):
    """Equal results, of other machine code."""
    made = []

    def code_of(texts, optimization):
        made.append(optimization)
        return machine.code_of(texts, optimization)

    monkeypatch.setattr("xsim.compile.function.code_of", code_of)
    x = jnp.linspace(-1.0, 1.0, 12).reshape(6, 2)
    results = []
    for limit in (1000, 1):
        monkeypatch.setattr("xsim.compile.function.MAX_OPTIMIZED_OPERATIONS", limit)
        function = Function(lambda v: [jnp.sin(v) * v[0]], [jax.ShapeDtypeStruct((2,), x.dtype)], "product")
        results += function([x], [True])
    assert made == [1, 0]
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.slow
def test_both_precisions_in_one_process():
    """A model with contacts in double, then in single precision."""
    for double in (True, False):
        with jax.enable_x64(double), tracing_for("xla"):
            model = xsim.load(xsim.models.path("half_cheetah"))
            after = jax.eval_shape(xsim.step, model, xsim.init(model))
        assert after.q.dtype == (jnp.float64 if double else jnp.float32)


@pytest.mark.nightly
@pytest.mark.skipif(not PROC.exists(), reason="reads the memory of the process where Linux tells it")
def test_memory_does_not_grow_with_the_number_of_models():
    """Of 30 models of one size, each compiled with its gradient and dropped, the last twenty take no more than the first ten."""
    memory = []
    for axes in itertools.islice(itertools.product(("1 0 0", "0 1 0", "0 0 1"), repeat=4), 30):
        links = "".join(f'<body pos="0 0 -.1"><joint axis="{axis}"/><geom size=".05"/>' for axis in axes) + "</body>" * 4
        model = xsim.loads(f'<mujoco><worldbody><geom type="plane" size="1 1 1" pos="0 0 -.5"/>{links}</worldbody></mujoco>', "mjcf")
        state = xsim.init(model)
        gradient = jax.grad(lambda v, m=model, s=state: xsim.step(m, s.replace(v=v)).v.sum())
        assert np.isfinite(gradient(state.v)).all()
        drop_programs()
        memory.append(resident())
    assert memory[-1] - memory[9] < 20e6, memory


# ---- choice and cache ------------------------------------------------------------------------------------------------------------


def test_choice_of_the_compiler():
    with pytest.raises(ValueError, match="unknown compiler 'gcc'; known: auto, llvm, xla"):
        xsim.use_compiler("gcc")
    model = xsim.load(xsim.models.path("pendulum"))
    state = xsim.init(model)
    calls = {}
    for name in ("auto", "llvm", "xla"):
        with tracing_for(name):
            calls[name] = "xsim_compiled_call" in str(jax.make_jaxpr(lambda m, s: xsim.step(m, s))(model, state))
    assert calls == {"auto": True, "llvm": True, "xla": False}


MODULE = "define i64 @seven() {{ ret i64 {} }}"


def test_cache(tmp_path, monkeypatch):
    """Compiled code is read back; damaged files and folders of others are not used."""
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    made = []
    monkeypatch.setattr(processes, "machine_code", lambda *args, make=processes.machine_code: made.append(args) or make(*args))
    for _ in range(2):
        assert machine.loaded(machine.code_of([MODULE.format(7)]), "seven")
    assert len(made) == 1
    (file,) = (tmp_path / "cache").glob("*.o")
    file.write_bytes(file.read_bytes()[:-40] + bytes(40))
    assert machine.loaded(machine.code_of([MODULE.format(7)]), "seven") and len(made) == 2
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "open"))
    assert cache.cache_folder() is None
    monkeypatch.setenv(cache.CACHE_VARIABLE, "")
    assert cache.cache_folder() is None


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_arrays_of_every_width_and_type(lanes, x64, monkeypatch):
    """Columns are read and written in groups; the last block of a batch has fewer environments than lanes. Some columns are not read."""
    monkeypatch.setattr(Function, "lanes", lambda *_: lanes)
    types = {np.float32: range(1, 10), np.float64: range(1, 7), np.int32: (1, 2, 5), np.int8: (3, 4), np.bool_: (1, 4)}
    shapes = [jax.ShapeDtypeStruct((n,), t) for t, widths in types.items() for n in widths]
    function = Function(lambda *xs: [*(x[::-1] for x in xs), *(x[x.shape[0] // 2 :] for x in xs)], shapes, "permutation")
    call, rng = jax.jit(lambda *xs: function(xs, [True] * len(xs))), np.random.default_rng(0)
    for count in (1, 3, 16, 33):
        given = [rng.integers(0, 2 if s.dtype == bool else 100, (count, *s.shape)).astype(s.dtype) for s in shapes]
        expected = [*(x[:, ::-1] for x in given), *(x[:, x.shape[1] // 2 :] for x in given)]
        for got, x in zip(call(*given), expected, strict=True):
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("size", [1, 16, 31, 32, 33, 70, 256, 257])
def test_true_entries(size):
    """As bits of words, or in order. All, none and as many as there is room for."""
    rng, room = np.random.default_rng(size), (size + 2) // 3
    mask = rng.random((19, size)) > 0.6
    mask[0], mask[1] = False, True
    wanted = np.zeros((19, room), int)
    for row, entries in zip(wanted, mask, strict=True):
        found = np.flatnonzero(entries)[:room]
        row[: len(found)] = found
    for count in (1, 19):
        np.testing.assert_array_equal(compiled(lambda x: true_indices(x, room), mask[:count])[0], wanted[:count])


@pytest.mark.parametrize("size", [2, 8, 9, 16, 17, 32, 33])
def test_rows_of_tables(size):
    """Constant, shared, or of each environment: short tables that environments share are read by an instruction of their own."""
    rng = np.random.default_rng(size)
    numbers, integers = rng.normal(size=(size, 3)).astype(np.float32), rng.integers(0, 100, (size, 2)).astype(np.int32)

    def rows(i, shared, own):
        return [row_of(x, i) for x in (jnp.asarray(numbers), jnp.asarray(integers), shared, own)]

    for count in (2, 8, 9, 40):
        i, shared = rng.integers(0, size, count).astype(np.int32), rng.normal(size=(size, 4)).astype(np.float32)
        own = rng.normal(size=(count, size, 2)).astype(np.float32)
        wanted = numbers[i], integers[i], shared[i], own[np.arange(count), i]
        for found, reference in zip(compiled(rows, i, shared, own, batched=[True, False, True]), wanted, strict=True):
            np.testing.assert_array_equal(found, reference)
