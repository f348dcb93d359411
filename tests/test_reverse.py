"""Reverse mode of programs agrees with JAX: operations, rules of functions, loops, steps of models."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_compiler import OPERATIONS, RNG, numbers

import xsim
from xsim.compile.adjoints import ADJOINTS
from xsim.compile.bounded import bounded_sum
from xsim.compile.compiled_call import compiled_call
from xsim.compile.function import Function
from xsim.compile.program import Loop
from xsim.compile.reverse import reverse_program
from xsim.dynamics.compiled_step import prepared_step, step_function
from xsim.dynamics.constraints import soft_set
from xsim.dynamics.constraints.contact_plan import LARGE
from xsim.dynamics.linalg.implicit import implicit
from xsim.dynamics.sharding import Inputs, parts


def check_reverse(function, *arguments, rtol=1e-12, atol=1e-12):
    """Compare the cotangents of the arguments that are floats with those of JAX. Raises Unsupported where a program has none."""
    shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in arguments]
    f = Function(lambda *xs: jax.tree.leaves(function(*xs)), shapes, "test")
    active = tuple(i for i, s in enumerate(shapes) if jnp.issubdtype(s.dtype, jnp.floating))
    cotangents = [numbers(*f.results[i].shape, dtype=f.results[i].dtype)[: len(arguments[0])] for i in f.differentiable]
    operands = [*arguments, *cotangents]
    reverse_program(f.traced, [True] * len(operands), active, f.differentiable)
    got = compiled_call.bind(*operands, function=f.reverse(active), batched=(True,) * len(operands), summed=(False,) * len(active))
    reverse = f.reverse(active).function
    expected = jax.vmap(lambda *xs: reverse(*xs))(*operands)
    for i, a, b in zip(active, got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=f"argument {i}")


def _searches(program):
    """The loops whose number of turns depends on the state."""
    return {id(loop): loop for x in program.live() if isinstance(loop := program.data[x], Loop) and loop.turns is None}


@pytest.fixture(autouse=True)
def _double(x64):
    """Single precision is that of the same program."""


# ---- operations ------------------------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide, "rem": jnp.fmod, "neg": jnp.negative,
    "max": jnp.maximum, "min": jnp.minimum, "abs": jnp.abs, "select_n": lambda x, y: jnp.where(x < y, x * y, y),
    "sqrt": lambda x: jnp.sqrt(jnp.abs(x)), "rsqrt": lambda x: jax.lax.rsqrt(jnp.abs(x)), "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan,
    "asin": lambda x: jnp.arcsin(x / 4), "acos": lambda x: jnp.arccos(x / 4), "atan": jnp.arctan, "atan2": jnp.arctan2,
    "sinh": jnp.sinh, "cosh": jnp.cosh, "tanh": jnp.tanh, "exp": jnp.exp, "exp2": jnp.exp2, "expm1": jnp.expm1,
    "log": lambda x: jnp.log(jnp.abs(x)), "log1p": lambda x: jnp.log1p(jnp.abs(x)), "log2": lambda x: jnp.log2(jnp.abs(x)),
    "asinh": jnp.arcsinh, "acosh": lambda x: jnp.arccosh(1.5 + x * x), "atanh": lambda x: jnp.arctanh(x / 4), "cbrt": jnp.cbrt,
    "pow": lambda x, y: jnp.abs(x) ** y,
    "sign": jnp.sign, "floor": jnp.floor, "ceil": jnp.ceil, "round_even": jnp.round, "round_away": lambda x: jax.lax.round(x),
}  # fmt: skip
POINTS = np.array([-2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 2.5])


@pytest.mark.slow
def test_every_operation():
    """Also at zero and where two numbers are equal."""
    assert set(FUNCTIONS) == set(ADJOINTS)
    x, y = (jnp.asarray(a.reshape(-1)) for a in np.meshgrid(POINTS, POINTS))
    unary = [f for name, f in FUNCTIONS.items() if len(ADJOINTS[name]) == 1]
    binary = [f for name, f in FUNCTIONS.items() if len(ADJOINTS[name]) > 1]

    def pulled(functions, *points):
        """The cotangents of the arguments of each function."""
        shapes = [jax.ShapeDtypeStruct((len(functions),), points[0].dtype)] * len(points)
        f = Function(lambda *xs: [jnp.stack([g(*(x[i] for x in xs)) for i, g in enumerate(functions)])], shapes, "functions")
        active, ones = tuple(range(len(points))), jnp.ones((len(points[0]), len(functions)))
        operands = [*(jnp.broadcast_to(p[:, None], ones.shape) for p in points), ones]
        got = compiled_call.bind(*operands, function=f.reverse(active), batched=(True,) * len(operands), summed=(False,) * len(points))
        return got, jax.vmap(f.reverse(active).function)(*operands)

    for functions, points in ((unary, (jnp.asarray(POINTS),)), (binary, (x, y))):
        for a, b in zip(*pulled(functions, *points), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    function, *shapes = OPERATIONS[name]
    index = jnp.asarray(RNG.integers(-9, 8, (11, 4)), jnp.int32)
    arguments = [index if shape == "index" else numbers(*shape, dtype=np.float64) for shape in shapes]
    check_reverse(function, *arguments)


# ---- rules and loops -------------------------------------------------------------------------------------------------------------


@jax.custom_jvp
def _twice(x, y):
    """Its derivative is not that of its operations."""
    return jax.lax.while_loop(lambda c: c < 0, lambda c: c + 1.0, 2.0 * x * y), x


@_twice.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return _twice(x, y), (3.0 * y * dx + 5.0 * x * jnp.sin(y) * dy, dx - dx)


def _rolled(x, y):
    """A scan with a body of its own rule, values from outside, an index that depends on the state, and an entry that stays constant."""

    def turn(carry, k):
        x, count, fixed, total = carry
        z = 0.2 * jnp.tanh(x @ y) + 0.1 * jnp.sin(k) * x[jnp.argmax(x)] + 0.1 * _twice(x[0], total)[0] + fixed
        return (z / (1 + z @ z), count + 1, fixed, total * 0.9 + x[count % 3] * y[0, 1]), None

    start = x, jnp.int32(0), jnp.ones(3), x.sum()
    x, count, _, total = jax.lax.scan(turn, start, jnp.linspace(0.0, 1.0, 150))[0]
    return x, total * count


def _solved_in_turns(x, y):
    """A scan whose turns search the roots of cubic equations: one as an implicit equation, one without derivative."""

    def root(a, steps):
        return jax.lax.while_loop(lambda c: c[1] < steps, lambda c: ((2 * c[0] ** 3 + a) / (3 * c[0] ** 2 + 1), c[1] + 1), (a, 0))[0]

    def primal(inputs, full, with_matrix):
        (a,) = inputs
        z = root(a, jnp.int32(20 + a))
        return _Scalar([3 * z**2 + 1]), [z], []

    def turn(a, k):
        (z,), _ = implicit([a + k], primal, lambda inputs, z: [z[0] ** 3 + z[0] - inputs[0]])
        return 0.5 * jnp.tanh(y) * z + root(jax.lax.stop_gradient(a), jnp.int32(30 + a)), z

    return jax.lax.scan(turn, x, jnp.linspace(0.0, 1.0, 150))


class _Scalar(NamedTuple):
    """The matrix of one equation, see `implicit`."""

    rows: list
    symmetric = True

    def solve(self, b, c):
        return [b[0] / self.rows[0]]

    def multiply(self, x):
        return [self.rows[0] * x[0]]


def _of_rows(x, y):
    """A long function of rows, with a value from outside, an index that depends on the row, and one sequence twice."""

    def row(parts):
        a, b, k = parts
        for _ in range(60):
            a = 0.5 * jnp.tanh(a @ y) + 0.1 * jnp.sin(b) * a[jnp.argmax(a)]
        return a * k, jnp.int32(k), _twice(a[0], b[1])[0]

    return jax.lax.map(row, (x, x, jnp.arange(4.0)))


PAIRS = np.array([[0, 2, 1, 2, 0, 1, 2], [3, 1, 3, 3, 3, 3, 3]], np.int32)


def _of_pairs(x, y):
    """A long function of two rows of an array of which one column is constant, in each turn other rows. One row is always the same."""
    table = jnp.concatenate([jnp.sin(x), jnp.full((4, 1), 0.5), jnp.broadcast_to(y, (4, 2))], 1)

    def row(pair):
        a, b = (jax.lax.dynamic_slice_in_dim(table, k, 1)[0] for k in pair)
        for _ in range(40):
            a = 0.5 * jnp.tanh(a + b[::-1]) + b[0] * y[1]
        return a

    return jax.lax.map(row, tuple(jnp.asarray(k) for k in PAIRS))


def _of_chosen_rows(x, y):
    """Loops in a loop, which take rows of an array from outside of both. Which rows depends on the environment."""

    def turn(a, k):
        def row(j):
            i = (jnp.floor(jnp.abs(5 * y[0])).astype(jnp.int32) + j + k) % 4
            b, c = (jax.lax.dynamic_slice_in_dim(z, i, 1)[0] for z in (x, jnp.sin(x)))
            for _ in range(30):
                b = 0.5 * jnp.tanh(b + a[::-1] * c)
            return b

        return a + 0.1 * jax.lax.map(row, jnp.arange(6)).sum(0), None

    return jax.lax.scan(turn, y, jnp.arange(3))[0]


FURTHER = {
    "rule": (lambda x, y: _twice(jnp.sin(x), x * y), (), ()),
    "rule of which one argument is active": (lambda x: _twice(x, 0.7), ()),
    "no gradient": (lambda x, y: jax.lax.stop_gradient(x) * y + jnp.where(y > 0, jax.lax.stop_gradient(y * x), x), (), ()),
    "solution": (lambda x, y: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(x @ x.T + jnp.eye(3)), True), y), (3, 3), (3,)),
    "loop": (_rolled, (3,), (3, 3)),
    "searches in turns": (_solved_in_turns, (), ()),
    "rows": (_of_rows, (4, 3), (3, 3)),
    "rows of pairs": (_of_pairs, (4, 3), (2,)),
    "rows that the environment chooses": (_of_chosen_rows, (4, 3), (3,)),
    "conversion": (lambda x: x.astype(jnp.float32).astype(jnp.float64) * jnp.int32(x), (2,)),
    "double where": (lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0), (5,)),
}


@pytest.mark.parametrize("name", FURTHER)
def test_rules_and_loops(name):
    function, *shapes = FURTHER[name]
    tolerance = 1e-6 if name == "conversion" else 1e-11  # in single precision; the others are sums in another order
    check_reverse(function, *(numbers(*shape, dtype=np.float64) for shape in shapes), rtol=tolerance, atol=tolerance)


def test_factors_of_sparse_matrices_have_sparse_derivatives():
    """Operations with the constant zeros of a matrix are left out of derivatives, too."""
    n = 16

    def solution(diagonal, last):
        matrix = jnp.diag(diagonal**2 + 5.0).at[-1, 0].set(last).at[0, -1].set(last)
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(matrix), diagonal, lower=True)

    check_reverse(solution, numbers(n, dtype=np.float64), numbers(dtype=np.float64))
    shapes = [jax.ShapeDtypeStruct(shape, float) for shape in ((n,), ())]
    program = reverse_program(Function(lambda *xs: [solution(*xs)], shapes, "test").traced, [True] * 3, [0, 1], [0])
    assert sum(program.count(program.live()).values()) < 20 * n


def test_searches_are_not_repeated():
    """The derivative of a scan loads the solutions that its turns have found."""
    number = jax.ShapeDtypeStruct((), jnp.float64)
    f = Function(lambda *xs: jax.tree.leaves(_solved_in_turns(*xs)), [number] * 2, "test")
    program = reverse_program(f.traced, [True] * 4, (0, 1), f.differentiable)
    searches = _searches(program)
    assert len(searches) == 2


def test_rows_add_their_cotangents_to_those_of_their_array():
    """Once for each number, and with no choice between the rows that a turn may take."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((4, 3), (2,))]
    f = Function(lambda *xs: [_of_pairs(*xs)], shapes, "test")
    program = reverse_program(f.traced, [True] * 3, (0, 1), f.differentiable)
    assert not any(program.names[x] == "select_n" and program.types[x].kind == "f" for x in program.live())
    assert 4 * 6 in {program.data[x] for x in program.live() if program.names[x] == "buffer"}


def test_bounded_sums():
    """Of as many turns as the environment has. What they read is of the environment, or of a turn."""
    indices = jnp.array([2, 0, 3, 1, 2], jnp.int32)

    def term(x, y, i):
        return jnp.tanh(jax.lax.dynamic_index_in_dim(x, i, keepdims=False) * y) * y[0]

    def found(x, y, count):
        def add(total, i):
            return total.at[i % 2].add(term(x, y, i))

        return jnp.sin(bounded_sum(add, jnp.ones((2, 3)) * y, indices, count))

    def wanted(x, y, count):
        total = jnp.ones((2, 3)) * y
        for k, i in enumerate(indices.tolist()):
            total = total.at[i % 2].add(jnp.where(k < count, term(x, y, i), 0.0))
        return jnp.sin(total)

    x, y = numbers(4, 3, dtype=float), numbers(3, dtype=float)
    count = jnp.arange(len(x), dtype=jnp.int32) % (len(indices) + 1)
    weight = numbers(2, 3, dtype=float)
    f = Function(lambda *xs: [found(*xs)], [jax.ShapeDtypeStruct(z.shape[1:], z.dtype) for z in (x, y, count)], "test")
    got = compiled_call.bind(x, y, count, weight, function=f.reverse((0, 1)), batched=(True,) * 4, summed=(False,) * 2)
    expected = jax.vmap(lambda x, y, n, g: jax.vjp(lambda x, y: wanted(x, y, n), x, y)[1](g))(x, y, count, weight)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def _of_few_rows(x, y):
    """The sum of some long functions of the rows of x. The environment has them of the first y[1] rows."""

    def function(i):
        row = jax.lax.dynamic_index_in_dim(x, i, keepdims=False)
        return sum(jnp.sin(k * row * y[0]) for k in range(1, 60))

    return jnp.sum(jnp.where(np.arange(len(x))[:, None] < y[1], jax.lax.map(function, np.arange(len(x))), 0.0), 0)


def test_turns_without_cotangents(monkeypatch):
    """Are left out, where no environment of a block has some: equal derivatives, with one branch more."""
    x = numbers(6, 2, dtype=float)
    y = jnp.stack([numbers(dtype=float), jnp.arange(len(x)) // 4.0], 1)  # none, one or two rows, as many in all environments of a vector
    check_reverse(_of_few_rows, x, y)
    branches = []
    for least in (4, 10**6):
        monkeypatch.setattr("xsim.compile.reverse.MIN_OPERATIONS_OF_RESULT", least)
        f = Function(lambda *xs: [_of_few_rows(*xs)], [jax.ShapeDtypeStruct(z.shape[1:], z.dtype) for z in (x, y)], "test")
        program = reverse_program(f.traced, [True] * 3, (0, 1), f.differentiable)
        loops = {id(loop): loop for k in program.live() if isinstance(loop := program.data[k], Loop)}
        branches.append(sum(loop.turns == 1 for loop in loops.values()))
    assert branches == [1, 0], branches


def _by_sign(x, y):
    """A choice between two long functions. The derivative of the first is infinite where it is not chosen."""

    def root(x, y):
        return sum(jnp.sqrt(jnp.maximum(x, 0.0)) * jnp.sin(k * y) for k in range(1, 30))

    def product(x, y):
        return sum(jnp.cos(k * x) * y for k in range(1, 30))

    return jax.lax.cond(x[0] > 0, root, product, x, y)


def test_derivatives_of_a_call_without_environments():
    """They have none, either: the cotangents are shared operands, and the program is evaluated once."""
    f = Function(lambda x, y: [jnp.sin(x) * y, y.sum()], [jax.ShapeDtypeStruct((3,), jnp.float64)] * 2, "test")

    def loss(x, y, weight):
        a, b = f([x, y], [False, False])
        return weight * (a[0] ** 2).sum() + b[0]

    def wanted(x, y, weight):
        return weight * ((jnp.sin(x) * y) ** 2).sum() + y.sum()

    x, y, weights = numbers(3, dtype=float)[0], numbers(3, dtype=float)[0], numbers(dtype=float)
    calls = [e for e in jax.make_jaxpr(jax.grad(loss, (0, 1)))(x, y, 1.0).eqns if e.primitive is compiled_call]
    assert len(calls) == 2 and not any(any(call.params["batched"]) for call in calls)
    got, expected = (jax.vmap(jax.grad(g, (0, 1)), (None, None, 0))(x, y, weights) for g in (loss, wanted))
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(loss)(x, y, 1.0), jax.grad(wanted)(x, y, 1.0), rtol=1e-12)


def test_branches_that_are_not_chosen():
    """A block of environments evaluates a branch that any of them chooses. The others add nothing, and write nothing beside an array."""
    x, y = numbers(3, dtype=np.float64), numbers(3, dtype=np.float64)
    x = jnp.abs(x) * jnp.where(jnp.arange(len(x)) % 3 == 0, 1.0, -1.0)[:, None]
    f = Function(lambda *xs: [_by_sign(*xs)], [jax.ShapeDtypeStruct((3,), x.dtype)] * 2, "test")
    got = compiled_call.bind(x, y, jnp.ones_like(x), function=f.reverse((0, 1)), batched=(True,) * 3, summed=(False,) * 2)
    derivative = jax.jit(jax.grad(lambda x, y: _by_sign(x, y).sum(), (0, 1)))
    for i in range(len(x)):
        np.testing.assert_allclose([a[i] for a in got], derivative(x[i], y[i]), rtol=1e-11, atol=1e-11)
    program = reverse_program(f.traced, [True] * 3, (0, 1), f.differentiable)
    assert program.stores and not any(program.varying[s.index] for stores in program.stores.values() for s, _ in stores)


# ---- models ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, integrator", [("half_cheetah", None), ("muscle_arm", None), ("four_bar", None), ("hopper", "rk4")])
def test_steps_are_differentiated_by_their_programs(name, integrator):
    """The values of these gradients are tested by differences, with those of other models."""
    model = xsim.load(xsim.models.path(name))
    model = xsim.with_integrator(model, integrator) if integrator else model
    state = jax.tree.map(lambda x: x[None], xsim.init(model))
    system, step = prepared_step(model, state, (1,), Inputs(None, None))
    replayed = step.replayed
    varying = [b for _, b in system.operands()] + [True] * (len(parts(state)) + 1 + len(step.known) + len(step.differentiable))
    active = [i for i, s in enumerate(step.shapes) if jnp.issubdtype(s.dtype, jnp.floating)]
    program = reverse_program(replayed.traced, varying, active, replayed.differentiable)
    assert [len(x) for x in program.outputs] == [int(np.prod(step.shapes[i].shape)) for i in active]


@pytest.mark.slow
def test_programs_do_not_grow_with_the_buffers_of_contacts():
    """What belongs to a contact is in loops over the active ones, in a step and in its derivative."""
    counts = []
    for limit in LARGE, 2 * LARGE:
        model = xsim.with_contact_limit(xsim.load("half_cheetah"), limit)
        state = jax.tree.map(lambda x: x[None], xsim.init(model))
        system, step = prepared_step(model, state, (1,), Inputs(None, None))
        batched = [b for _, b in system.operands()] + [True] * (len(parts(state)) + 1)
        varying = batched + [True] * (len(step.known) + len(step.differentiable))
        active = [i for i, s in enumerate(step.shapes) if jnp.issubdtype(s.dtype, jnp.floating)]
        reverse = reverse_program(step.replayed.traced, varying, active, step.replayed.differentiable)
        counts.append([sum(program.count(program.live()).values()) for program in (step.program(tuple(batched)), reverse)])
    assert (np.array(counts[1]) < 1.05 * np.array(counts[0])).all(), counts


@pytest.fixture
def without_loops_over_contacts(monkeypatch):
    """Steps without loops over the active contacts. Those of other tests have them."""
    monkeypatch.setattr(soft_set, "LARGE", 100)
    step_function.cache_clear()
    yield
    step_function.cache_clear()


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_derivatives_do_not_search_the_acceleration_again(integrator, without_loops_over_contacts):
    """Newton's method and its line search are the only loops of these steps whose number of turns depends on the state."""
    model = xsim.with_integrator(xsim.load("hopper"), integrator)
    state = jax.tree.map(lambda x: x[None], xsim.init(model))
    system, step = prepared_step(model, state, (1,), Inputs(None, None))
    batched = [b for _, b in system.operands()] + [True] * (len(parts(state)) + 1)
    assert _searches(step.program(tuple(batched)))
    active = tuple(i for i, s in enumerate(step.shapes) if jnp.issubdtype(s.dtype, jnp.floating))
    reverse = step.replayed.reverse(active)
    program = reverse.program((*batched, *[True] * (len(reverse.shapes) - len(batched))))
    assert program.live() and not _searches(program)
