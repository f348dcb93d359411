"""Several calls of a function as one: as a kernel of a GPU, compiled for this processor, with what is around it; and as a call of machine
code of a processor."""

import ctypes

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.compile import cuda
from xsim.compile import function as compiled_function
from xsim.compile.choice import tracing_for
from xsim.compile.code_generation import UNOPTIMIZED, machine_code
from xsim.compile.compiled_call import turns_operand
from xsim.compile.function import Function, Replay
from xsim.compile.launch import launch_handler
from xsim.compile.machine import loaded
from xsim.compile.nvptx import BLOCK, GpuEmitter, Repetition
from xsim.compile.repeated import is_one_kernel, last_turn, repeated
from xsim.compile.turns import from_blocks, to_blocks

ENVIRONMENTS, TURNS = 5, 7


def pendulum() -> Function:
    """A step of a pendulum (leaf: gravity), whose acceleration is carried, too."""

    def step(gravity, q, v, last, tau):
        a = tau - gravity[0] * jnp.sin(q) - 0.1 * v + 0.01 * last
        v = v + 0.1 * a
        return [q + 0.1 * v, v, a]

    shapes = [jax.ShapeDtypeStruct((n,), jnp.float64) for n in (1, 2, 2, 2, 2)]
    return Function(step, shapes, "step", repetition=Repetition(((0, 1), (1, 2), (2, 3)), (4,)))


def damped() -> Function:
    """A step of a pendulum as `pendulum`, but that its acceleration is carried nowhere."""

    def step(gravity, q, v, tau):
        a = tau - gravity[0] * jnp.sin(q) - 0.1 * v
        return [q + 0.1 * (v + 0.1 * a), v + 0.1 * a, a]

    shapes = [jax.ShapeDtypeStruct((n,), jnp.float64) for n in (1, 2, 2, 2)]
    return Function(step, shapes, "step", repetition=Repetition(((0, 1), (1, 2)), (3,)))


def hardening() -> Function:
    """A step of a pendulum (leaves: gravity and a length) whose acceleration is the solution of an equation, at which derivatives are
    evaluated. The search of the next step starts there. Everything that has a derivative is carried."""

    def residual(gravity, length, q, v, tau, a):
        return a + 0.3 * a**3 - (tau - gravity[0] / length[0] * jnp.sin(q) - 0.1 * v)

    def improved(*xs):
        """By a step of Newton's method from the last of the arguments."""
        return xs[-1] - residual(*xs) / (1 + 0.9 * xs[-1] ** 2)

    def advanced(q, v, a):
        return [q + 0.1 * (v + 0.1 * a), v + 0.1 * a]

    def step(gravity, length, q, v, last, tau):
        a = last
        for _ in range(15):
            a = improved(gravity, length, q, v, tau, a)
        return [*advanced(q, v, a), a]

    def replay(gravity, length, q, v, last, tau, a):
        return advanced(q, v, improved(gravity, length, q, v, tau, jax.lax.stop_gradient(a)))

    shapes = [jax.ShapeDtypeStruct((n,), jnp.float64) for n in (1, 1, 2, 2, 2, 2)]
    return Function(step, shapes, "step", replay=Replay(replay, (2,)), repetition=Repetition(((0, 2), (1, 3), (2, 4)), (5,)))


BATCHED = (False, True, True, True, True)


def operands() -> list:
    """Those of `pendulum`, float64."""
    rng = np.random.default_rng(0)
    return [np.array([9.81]), *rng.normal(size=(3, ENVIRONMENTS, 2)), rng.normal(size=(TURNS, ENVIRONMENTS, 2))]


def one_by_one(function: Function, arguments) -> list:
    """The results of all turns, by calls of `Function.function`."""
    gravity, q, v, last, taus = (jnp.asarray(x) for x in arguments)
    out = []
    for tau in taus:
        q, v, last = jax.vmap(function.function, (None, 0, 0, 0, 0))(gravity, q, v, last, tau)
        out.append((q, v, last))
    return [jnp.stack(x) for x in zip(*out, strict=True)]


def close(found, wanted) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def on_this_processor(text: str) -> str:
    """The kernels as functions of this processor with one more parameter, the thread."""
    special = {"tid.x": "%thread", "ctaid.x": "0", "ntid.x": "64"}
    for name, value in special.items():
        text = text.replace(f"call i32 @llvm.nvvm.read.ptx.sreg.{name}()", f"add i32 {value}, 0")
    out = []
    for line in text.splitlines():
        if line.startswith("define ptx_kernel"):
            line = line.replace("ptx_kernel ", "").replace(') "nvvm', ', i32 %thread) "nvvm')
        out.append(line)
    return "\n".join(out)


@pytest.mark.parametrize("is_divided", [False, True])
def test_the_kernel_takes_all_turns(x64, monkeypatch, is_divided):
    """Each thread reads what it has stored in the turn before. is_divided: whether the kernel calls functions of parts."""
    if is_divided:
        monkeypatch.setattr(GpuEmitter, "limits", GpuEmitter.limits._replace(outside=0, part=5))
    function, arguments = pendulum(), operands()
    emitter = function.gpu_emitter(BATCHED)
    text = on_this_processor(emitter.module())
    assert (text.count("define internal void @part") > 1) == is_divided
    code = [machine_code(text, UNOPTIMIZED)]
    results = [np.zeros((TURNS, ENVIRONMENTS, 2)) for _ in range(3)]
    slots = np.zeros((max(emitter.slot_count, 1), 8), np.uint8)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*arguments, *results, slots)]
    if "uniform" in emitter.kernels:
        uniform = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6, ctypes.c_int32)(loaded(code, "uniform"))
        uniform(*pointers[:5], pointers[-1], 0)
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 9, *[ctypes.c_int64] * 3, ctypes.c_int32)(loaded(code, "block"))
    for thread in range(ENVIRONMENTS + 1):  # the last one repeats an environment
        kernel(*pointers, ENVIRONMENTS, TURNS, 8 * 2 * ENVIRONMENTS, thread)
    for found, wanted in zip(results, one_by_one(function, arguments), strict=True):
        close(found, wanted)


def test_calls_are_those_of_the_turns(x64):
    """Values and derivatives of first and second order, also of a batch of calls."""
    function, arguments = pendulum(), [jnp.asarray(x) for x in operands()]

    def of_kernel(*xs):
        return repeated(function, xs, BATCHED, TURNS)

    for found, wanted in zip(of_kernel(*arguments), one_by_one(function, arguments), strict=True):
        close(found, wanted)

    def loss(run):
        return lambda *xs: sum((x**2).sum() for x in run(*xs)[:2])

    every = tuple(range(5))
    wanted = jax.grad(loss(lambda *xs: one_by_one(function, xs)), every)(*arguments)
    for found, reference in zip(jax.grad(loss(of_kernel), every)(*arguments), wanted, strict=True):
        close(found, reference)
    second = [jax.jacfwd(jax.grad(loss(run)))(*arguments) for run in (of_kernel, lambda *xs: one_by_one(function, xs))]
    close(*second)


def test_members_of_vmap_are_one_batch(x64):
    """Of the start and the inputs; of gravity alone, with which all operands have members."""
    function, arguments = pendulum(), [jnp.asarray(x) for x in operands()]
    factors = jnp.array([1.0, 2.0, 0.5])
    for axes in ((None, 0, 0, None, 0), (0, None, None, None, None)):
        many = [x if a is None else factors[(...,) + (None,) * x.ndim] * x for x, a in zip(arguments, axes, strict=True)]
        found = jax.vmap(lambda *xs: repeated(function, xs, BATCHED, TURNS), axes)(*many)
        for m in range(3):
            wanted = one_by_one(function, [x if a is None else x[m] for x, a in zip(many, axes, strict=True)])
            for x, reference in zip(found, wanted, strict=True):
                close(x[m], reference)


def test_the_launch_of_several_turns(x64, monkeypatch):
    """The kernel gets the number of turns and the bytes from one turn of the sequence to the next; of a single call one turn."""
    seen = []
    monkeypatch.setattr(cuda, "architecture", lambda: "sm_90")
    monkeypatch.setattr(cuda, "load_kernels", lambda text, names: [0x10, 0x20][-len(names) :])
    monkeypatch.setattr(cuda, "function_address", lambda name: 1)
    monkeypatch.setattr(compiled_function, "launch_handler", lambda launch: seen.append(launch) or launch_handler(launch))
    function = pendulum()
    names = {function.gpu_target(BATCHED, turns).name for turns in (None, 1, TURNS)}
    assert len(names) == 3
    assert [(x.turns, x.rows) for x in seen] == [(1, (0,)), (1, (16,)), (TURNS, (16,))]


CART = """<mujoco><option timestep=".01"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/><geom size=".1"/>
<body pos="0 0 .5"><joint damping=".1" range="-20 20" axis="0 1 0"/><geom size=".05"/></body></body></worldbody>
<actuator><motor joint="x" gear="20"/></actuator></mujoco>"""


@pytest.mark.parametrize("is_cuda", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_recorded_rollouts(shared, is_cuda, x64, monkeypatch):
    """In calls of two steps and a rest, as on a GPU or on a processor: the states, what is recorded, and gradients are those of single
    steps.

    shared: all environments get the same controls."""
    model = xsim.loads(CART, "mjcf")
    rng = np.random.default_rng(1)
    ctrls = jnp.asarray(rng.uniform(-1, 1, size=(5, model.nu) if shared else (5, 2, model.nu)))
    state = xsim.init(model, jnp.asarray(rng.normal(size=(2, model.nq))))

    def by_steps(model, state, ctrls, record):
        recorded = []
        for ctrl in ctrls:
            state = xsim.step(model, state, ctrl)
            recorded.append(record(state, xsim.forward(model, state, ctrl)))
        return state, jax.tree.map(lambda *xs: jnp.stack(xs), *recorded)

    def results(run):
        def loss(damping, state, ctrls):
            final, q = run(model.replace({"dof.damping": damping}), state, ctrls, record=lambda state, data: (state.q, data.pos, state.act))
            return (final.v**2).sum() + (q[0] ** 2).sum(), (final, q)

        arguments = model.get("dof.damping"), state, ctrls
        text = str(jax.make_jaxpr(loss)(*arguments))
        return jax.jit(jax.grad(loss, (0, 2), has_aux=True))(*arguments), jax.jit(loss)(*arguments)[1], text

    *wanted, _ = results(by_steps)
    monkeypatch.setattr("xsim.dynamics.compiled_step.is_cuda", lambda: is_cuda)
    monkeypatch.setattr(cuda, "multiprocessors", lambda: 1)
    monkeypatch.setattr("xsim.dynamics.compiled_step.MOST_TURNS", 2)
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    monkeypatch.setattr("xsim.dynamics.compiled_step.CACHED_BYTES", 2 * size)
    *found, text = results(xsim.rollout)
    assert "xsim_repeated_call" in text and "turns=2" in text
    for x, reference in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        close(x, reference)


def test_when_all_turns_are_one_kernel(x64, monkeypatch):
    """With a block of environments for each multiprocessor, or if the code is short."""
    function = pendulum()
    monkeypatch.setattr(cuda, "multiprocessors", lambda: 3)
    assert is_one_kernel(function, BATCHED, 3 * BLOCK + 1)
    monkeypatch.setattr("xsim.compile.repeated.CACHED_OPERATIONS", 2)
    assert is_one_kernel(function, BATCHED, 3 * BLOCK)
    assert not is_one_kernel(function, BATCHED, 3 * BLOCK + 1)


def test_without_a_driver_there_are_no_kernels(x64, monkeypatch):
    """Each call is then compiled by XLA, with the warning of a call."""

    def fails():
        raise cuda.DriverError("the CUDA driver was not found")

    monkeypatch.setattr(cuda, "multiprocessors", fails)
    assert not is_one_kernel(pendulum(), BATCHED, 1)


# ---- machine code of a processor -------------------------------------------------------------------------------------------------

OF_DAMPED = BATCHED[:-1]


def operands_of_damped(environments: int) -> list:
    """Those of `damped`, float64."""
    rng = np.random.default_rng(0)
    start, taus = rng.normal(size=(2, environments, 2)), rng.normal(size=(TURNS, environments, 2))
    return [jnp.array([9.81]), *map(jnp.asarray, start), jnp.asarray(taus)]


def of_turns(function: Function, gravity, q, v, taus) -> list:
    """What the last turn of `damped` gives, by calls of `Function.function`."""
    for tau in taus:
        q, v, _ = jax.vmap(function.function, (None, 0, 0, 0))(gravity, q, v, tau)
    return [q, v]


@pytest.mark.parametrize("environments", [1, 5, 8, 21, 200])
def test_machine_code_takes_all_turns(environments, x64):
    """In blocks that are full and in the last one, which works on copies; by several threads. What is given stays as it is."""
    function, arguments = damped(), operands_of_damped(environments)
    before = [np.array(x) for x in arguments]
    found = jax.jit(lambda *xs: last_turn(function, xs, OF_DAMPED, TURNS))(*arguments)
    wanted = of_turns(function, *arguments)
    for x, reference in zip(found, wanted, strict=True):
        close(x, reference)
    for x, reference in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(x, reference)
    with jax.disable_jit():
        close(last_turn(function, arguments, OF_DAMPED, TURNS)[0], wanted[0])


def test_transformations_of_the_last_turn(x64):
    """Derivatives of first and second order, and members of `jax.vmap`, which may share what is carried or have their own leaf."""
    function, arguments = damped(), operands_of_damped(ENVIRONMENTS)

    def losses(*which):
        ways = (lambda *xs: last_turn(function, xs, OF_DAMPED, TURNS)), (lambda *xs: of_turns(function, *xs))
        return [jax.grad(lambda *xs, run=run: sum((x**2).sum() for x in run(*xs)), which) for run in ways]

    for which in ((0, 1, 2, 3), (3,), (0,)):
        for found, reference in zip(*(f(*arguments) for f in losses(*which)), strict=True):
            close(found, reference)
    close(*(jax.jacfwd(f)(*arguments)[0] for f in losses(0)))
    factors = jnp.array([1.0, 2.0, 0.5])
    for axes in ((None, 0, 0, 0), (0, None, None, None), (None, None, 0, None)):
        many = [x if a is None else factors[(...,) + (None,) * x.ndim] * x for x, a in zip(arguments, axes, strict=True)]
        found = jax.vmap(lambda *xs: last_turn(function, xs, OF_DAMPED, TURNS), axes)(*many)
        for m in range(3):
            wanted = of_turns(function, *(x if a is None else x[m] for x, a in zip(many, axes, strict=True)))
            for x, reference in zip(found, wanted, strict=True):
                close(x[m], reference)


OF_HARDENING = (False, True, True, True, True, True)


def of_hardening(function: Function, gravity, length, q, v, last, taus) -> tuple:
    """What all turns give, by calls of `Function.function`; derivatives by the equation that the accelerations fulfil."""

    def turn(carry, tau):
        found = jax.vmap(function.function, (None, 0, 0, 0, 0, 0))(gravity, length, *carry, tau)
        a = jax.lax.stop_gradient(found[2])
        q, v = jax.vmap(function.replay.function, (None, 0, 0, 0, 0, 0, 0))(gravity, length, *carry, tau, a)
        return (q, v, a), (q, v, a)

    return jax.lax.scan(turn, (q, v, last), taus)[1]


@pytest.mark.parametrize("environments", [1, 5, 8, 21, 200])
def test_gradients_of_all_turns_are_one_call(environments, x64):
    """By all operands: sums over the environments (gravity), over the turns (length), cotangents of the start and of each turn (tau); of a
    loss of the last turn, and of one of all turns. No loop of XLA's remains."""
    function, rng = hardening(), np.random.default_rng(3)
    start, taus = rng.normal(size=(3, environments, 2)), rng.normal(size=(TURNS, environments, 2))
    arguments = [jnp.array([9.81]), *map(jnp.asarray, (rng.uniform(1, 2, (environments, 1)), *start, taus))]
    weights = jnp.asarray(rng.normal(size=(2, TURNS, environments, 2)))

    def of_last(results):
        return (weights[0, 0] * results[0]).sum() + (results[1] ** 2).sum()

    def of_all(results):
        return (weights[0] * results[0]).sum() + (weights[1] * results[1] ** 2).sum()

    for loss, run, reference in (
        (of_last, lambda *xs: last_turn(function, xs, OF_HARDENING, TURNS), lambda *xs: [x[-1] for x in of_hardening(function, *xs)]),
        (of_all, lambda *xs: repeated(function, xs, OF_HARDENING, TURNS), lambda *xs: of_hardening(function, *xs)),
    ):
        gradient = jax.jit(jax.value_and_grad(lambda *xs, loss=loss, run=run: loss(run(*xs)), (0, 1, 2, 3, 5)))
        assert " while(" not in gradient.lower(*arguments).compile().as_text()
        wanted = jax.value_and_grad(lambda *xs, loss=loss, run=reference: loss(run(*xs)), (0, 1, 2, 3, 5))(*arguments)
        for x, y in zip(jax.tree.leaves(gradient(*arguments)), jax.tree.leaves(wanted), strict=True):
            close(x, y)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_blocked_arrays(width):
    """Arrays of no numbers and of several axes."""
    for shape in ((3, 20, 2, 5), (1, 3), (4, 17, 0)):
        x = np.random.default_rng(0).normal(size=shape)
        blocks = to_blocks(jnp.asarray(x), width)
        assert blocks.shape == (shape[0], -(-shape[1] // width), int(np.prod(shape[2:])), width)
        np.testing.assert_array_equal(from_blocks(blocks, shape[1], shape[2:]), np.float32(x))


@pytest.mark.parametrize(("environments", "lanes"), [(3, 16), (21, 1), (21, 2), (21, 16)])
def test_gradients_by_vectors_of_every_width(environments, lanes, x64, monkeypatch):
    """Wider than a block of what derivatives store, which then is in rows; or several in a block."""
    monkeypatch.setattr(Function, "lanes", lambda *_: lanes)
    function, arguments = damped(), operands_of_damped(environments)
    ways = (lambda *xs: last_turn(function, xs, OF_DAMPED, TURNS)), (lambda *xs: of_turns(function, *xs))
    gradients = [jax.grad(lambda *xs, run=run: sum((x**2).sum() for x in run(*xs)), (0, 1, 3)) for run in ways]
    for found, wanted in zip(*(f(*arguments) for f in gradients), strict=True):
        close(found, wanted)


def test_results_that_no_derivative_needs(x64):
    """Where others are stored of all turns, they are those of the last turn. Here the array of one is that of the inputs of all turns, of
    which those after the first turn stay as they are."""
    function, arguments, width = damped(), operands_of_damped(21), 16
    stored = jax.ShapeDtypeStruct((TURNS, 2, 2, width), jnp.float64)
    target = function.target(OF_DAMPED, (False,) * 3, 21)
    call = jax.ffi.ffi_call(target, [stored, stored, jax.ShapeDtypeStruct(arguments[3].shape, jnp.float64)], input_output_aliases={3: 2})
    q, v, last = jax.jit(lambda *xs: call(*xs, turns_operand(TURNS, stacked=True, width=width)))(*arguments)
    np.testing.assert_array_equal(last[1:], arguments[3][1:])
    gravity, *start, taus = arguments
    for x, end in zip((q, v), of_turns(function, *arguments), strict=True):
        close(from_blocks(x, 21, (2,))[-1], end)
    before = of_turns(function, gravity, *start, taus[:-1])
    close(last[0], jax.vmap(function.function, (None, 0, 0, 0))(gravity, *before, taus[-1])[2])


@pytest.mark.slow
@pytest.mark.parametrize("each", [False, True])
def test_transformations_of_gradients_of_turns(each, x64):
    """Second derivatives, forward over reverse mode and reverse over reverse mode, and members of `jax.vmap`, which may share operands."""
    function, rng = hardening(), np.random.default_rng(4)
    start, taus = rng.normal(size=(3, ENVIRONMENTS, 2)), rng.normal(size=(TURNS, ENVIRONMENTS, 2))
    arguments = [jnp.array([9.81]), *map(jnp.asarray, (rng.uniform(1, 2, (ENVIRONMENTS, 1)), *start, taus))]

    def losses(which):
        ways = (repeated if each else last_turn, lambda f, xs, *_: of_hardening(f, *xs))

        def loss(run, *xs):
            q, v, _ = run(function, xs, OF_HARDENING, TURNS)
            return (q**3).sum() + (v**2).sum() if each or run is last_turn else (q[-1] ** 3).sum() + (v[-1] ** 2).sum()

        return [jax.grad(lambda *xs, run=run: loss(run, *xs), which) for run in ways]

    for k in (0, 1, 5):
        found, wanted = (jax.jit(f)(*arguments) for f in losses(k))
        close(found, wanted)
        found, wanted = (jax.jit(jax.jacfwd(f, 0))(*arguments) for f in losses(k))
        close(found, wanted)
    found, wanted = (jax.jit(jax.grad(lambda *xs, f=f: (f(*xs) ** 2).sum(), 5))(*arguments) for f in losses(5))
    close(found, wanted)
    factors = jnp.array([1.0, 2.0, 0.5])
    for axes in ((None, None, 0, 0, None, 0), (0, *[None] * 5), (None, 0, *[None] * 4)):
        many = [x if a is None else factors[(...,) + (None,) * x.ndim] * x for x, a in zip(arguments, axes, strict=True)]
        found, wanted = (jax.vmap(f, axes)(*many) for f in losses((0, 1, 2, 5)))
        for x, y in zip(found, wanted, strict=True):
            close(x, y)


def test_arrays_that_are_several_fields_of_a_state():
    """A call may replace its operands: not an array that is two of them, that is a constant, or that is read afterwards."""
    model, x = xsim.loads(CART, "mjcf"), jnp.asarray(np.random.default_rng(2).normal(size=(9, 2)), jnp.float32)

    def run(rollout, x):
        states = [xsim.init(model, q, v) for q, v in ((x, x), (jnp.zeros_like(x), jnp.zeros_like(x)), (x, 2 * x))]
        ends = [rollout(state) for state in states]
        return [end.q + end.v * state.q for end, state in zip(ends, states, strict=True)]

    def by_steps(state):
        for _ in range(4):
            state = xsim.step(model, state)
        return state

    found = jax.jit(lambda x: run(lambda state: xsim.rollout(model, state, steps=4)[0], x))(x)
    for y, reference in zip(found, run(by_steps, x), strict=True):
        np.testing.assert_allclose(y, reference, rtol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_rollouts_are_single_steps_to_the_last_bit(shared, monkeypatch):
    """Without a record, in single precision: in one call, or where all environments get the same controls in calls of two steps and a
    rest."""
    monkeypatch.setattr("xsim.dynamics.compiled_step.INPUT_BYTES", 2 * 19 * 4)
    model, rng = xsim.loads(CART, "mjcf"), np.random.default_rng(1)
    ctrls = jnp.asarray(rng.uniform(-1, 1, size=(5, model.nu) if shared else (5, 19, model.nu)), jnp.float32)
    start = xsim.init(model, jnp.asarray(rng.normal(size=(19, model.nq)), jnp.float32))
    rollout = jax.jit(lambda state, ctrls: xsim.rollout(model, state, ctrls)[0])
    assert "xsim_last_turn_call" in str(jax.make_jaxpr(rollout)(start, ctrls))
    before, found, state = jax.tree.map(np.array, start), rollout(start, ctrls), start
    for ctrl in ctrls:
        state = xsim.step(model, state, ctrl)
    for x, reference in zip(jax.tree.leaves((found, start)), jax.tree.leaves((state, before)), strict=True):
        np.testing.assert_array_equal(x, reference)


@pytest.mark.parametrize("compiler", ["llvm", "xla"])
def test_rollouts_of_no_step(compiler):
    """The state stays as it is, and nothing is recorded."""
    model = xsim.loads(CART, "mjcf")
    state = xsim.init(model, jnp.ones((3, model.nq)))

    def end(q, **inputs):
        return xsim.rollout(model, xsim.init(model, q), **inputs, record=lambda state, data: state.q)

    with tracing_for(compiler):
        for inputs in ({"steps": 0}, {"ctrls": jnp.zeros((0, 3, model.nu))}, {"taus": jnp.zeros((0, model.nv))}):
            for final, recorded in (xsim.rollout(model, state, **inputs), end(state.q, **inputs)):
                for x, reference in zip(jax.tree.leaves(final), jax.tree.leaves(state), strict=True):
                    np.testing.assert_array_equal(x, reference)
                assert recorded is None or recorded.shape == (0, 3, model.nq)
            gradient = jax.grad(lambda q, inputs=inputs: end(q, **inputs)[0].q.sum())(state.q)
            np.testing.assert_array_equal(gradient, jnp.ones((3, model.nq)))
