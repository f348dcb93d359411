"""Programs of one environment have loops over the active contacts (`xsim.dynamics.constraints.active_contacts`): the same states and
derivatives as with all contacts, in float64; what does not depend on contacts that are not active."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.compile.choice import tracing_for
from xsim.dynamics.call import Call
from xsim.dynamics.constraints.contact_plan import LARGE
from xsim.dynamics.constraints.soft_set import constraints, loops_over_active_contacts
from xsim.dynamics.forward import soft_constraints
from xsim.dynamics.integration.equation import EquationOfMotion, effective_mass
from xsim.dynamics.linalg.dense import Cholesky, assembled
from xsim.spatial import one_environment

COUNT = 32
"""Balls of a raft: contacts that it can have with the ground."""
BALLS = "".join(f'<geom size=".05" pos="{0.12 * (i % 4)} {0.12 * (i // 4)} 0"/>' for i in range(COUNT))
RAFT = f"""<mujoco><option timestep=".002" {{}}/><worldbody><geom type="plane" size="5 5 1"/>
  <body name="raft" pos="0 0 .05"><freejoint/>{BALLS}
    <body pos=".2 .2 .1"><joint axis="0 1 0" range="-10 10"/><geom type="box" size=".05 .05 .05" contype="0" conaffinity="0"/></body>
  </body></worldbody></mujoco>"""
TILT = 0.05  # rad
HEIGHTS = {
    "in the air": (0.2, (TILT, TILT)), "on a corner": (0.049, (TILT, TILT)), "on an edge": (0.0495, (0.0, TILT)),
    "flat": (0.0495, (0.0, 0.0)),
}  # fmt: skip
"""Height (m) of the raft's origin, and by how much it is turned about x and y."""


def system_of(model: xsim.Model):
    """The system of a model at its start, traced: nothing is computed."""
    out, start = [], xsim.init(model)
    jax.eval_shape(lambda q, v: out.append(Call(model, q, v).system), start.q, start.v)
    return out[0]


def raft(option: str = "") -> tuple[xsim.Model, xsim.State, list[int]]:
    """The raft, its states one after the other, and their numbers of contacts."""
    model = xsim.loads(RAFT.format(option), "mjcf", rules="4.0")
    start, rng = xsim.init(model), np.random.default_rng(0)
    q = np.tile(np.asarray(start.q), (len(HEIGHTS), 1))
    for row, (height, tilt) in zip(q, HEIGHTS.values(), strict=True):
        turn = np.array([1.0, tilt[0] / 2, -tilt[1] / 2, 0.0])
        row[2], row[3:7] = height, turn / np.linalg.norm(turn)
    state = xsim.init(model, q, rng.normal(0, 0.3, (len(q), model.nv)))
    counts = np.asarray(by_numpy(xsim.contacts)(model, state).active).sum(1)
    return model, state, counts.tolist()


OPTIONS = {
    "pyramids": "", "ellipses": 'cone="elliptic"', "Runge-Kutta": 'integrator="RK4"',
    "without the loops": 'integrator="discrete" cone="elliptic"',
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_states_and_derivatives(name, x64):
    """Of a step of a batch with no, few, more and many contacts: by LLVM, whose program has loops over the active contacts, and by JAX,
    which has all contacts. With the integrator discrete the numbers of contacts depend on the step, and LLVM has all contacts, too."""
    model, state, counts = raft(OPTIONS[name])
    assert 0 == counts[0] < counts[1] < counts[2] < counts[3] == COUNT
    with one_environment():
        assert loops_over_active_contacts(system_of(model))
    weights = np.random.default_rng(1).normal(size=model.nv)

    def velocities(q, v, size):
        return xsim.step(model.replace({"geom.size": size}), state.replace(q=q, v=v)).v

    def loss(*arguments):
        return (velocities(*arguments) @ weights).sum()

    arguments = state.q, state.v, model.get("geom.size")
    with tracing_for("llvm"):
        found = jax.jit(lambda *xs: (velocities(*xs), jax.grad(loss, (0, 1, 2))(*xs)))(*arguments)
    wanted = by_numpy(lambda *xs: (velocities(*xs), jax.grad(loss, (0, 1, 2))(*xs)))(*arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * np.abs(b).max())
    assert np.abs(wanted[1][2]).max() > 0


TRAY = """<mujoco><option timestep=".002"/><worldbody><geom type="plane" size="5 5 1"/>
  <body name="tray" pos="0 0 .0195"><freejoint/><geom type="box" size=".5 1 .02" condim="4" surfacevel=".1 .2 0 0 0 .3"/></body>
  <body pos="-.2 -.4 .05"><freejoint/>{}</body></worldbody></mujoco>"""


@pytest.mark.slow
def test_derivatives_of_contacts_between_bodies(x64):
    """A raft of balls on a tray whose surface moves: each contact is one of two bodies, and has torsional friction. Environments have no
    contacts of the balls, few, and more than the buffer has entries."""
    balls = BALLS.replace("<geom", '<geom condim="4" friction=".8 .02 .01"')
    model = xsim.with_contact_limit(xsim.loads(TRAY.format(balls), "mjcf", rules="4.0"), 20)
    start, rng = xsim.init(model), np.random.default_rng(0)
    q = np.tile(np.asarray(start.q), (3, 1))
    q[:, 9] = (0.25, 0.089, 0.0887)  # the balls touch the tray at 0.0895
    q[:, 10:14] = [[1, 0, 0, 0], [1, 0.01, -0.01, 0], [1, 2e-4, -1e-4, 0]]
    q[:, 10:14] /= np.linalg.norm(q[:, 10:14], axis=1, keepdims=True)
    state = xsim.init(model, q, rng.normal(0, 0.3, (3, model.nv)))
    overflow = np.asarray(by_numpy(xsim.step)(model, state).flags) & int(xsim.Flags.CONTACT_OVERFLOW) > 0
    assert overflow.tolist() == [False, False, True]
    weights = rng.normal(size=model.nv)

    def loss(q, v, friction, size):
        new = model.replace({"surface.friction": friction, "geom.size": size})
        return (xsim.step(new, state.replace(q=q, v=v)).v @ weights).sum()

    arguments = state.q, state.v, model.get("surface.friction"), model.get("geom.size")
    with tracing_for("llvm"):
        found = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*arguments)
    wanted = by_numpy(jax.grad(loss, (0, 1, 2, 3)))(*arguments)
    for a, b in zip(found, wanted, strict=True):
        assert np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * np.abs(b).max())


def test_forward_mode(x64):
    model, state, _ = raft()
    direction = np.random.default_rng(2).normal(size=state.v.shape)

    def along(v, direction):
        return jax.jvp(lambda v: xsim.step(model, state.replace(v=v)).v, (v,), (direction,))[1]

    with tracing_for("llvm"):
        found = jax.jit(along)(state.v, direction)
    np.testing.assert_allclose(found, by_numpy(along)(state.v, direction), rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("outer", "inner"), [
    pytest.param(jax.jacfwd, jax.grad, marks=pytest.mark.nightly, id="forward over reverse"),
    pytest.param(jax.jacrev, jax.jacfwd, id="reverse over forward"),
])  # fmt: skip
def test_second_derivatives(outer, inner, x64):
    """Derivatives of loops over contacts that slide in elliptic cones: the only ones whose force is not linear."""
    model, state, _ = raft(OPTIONS["ellipses"])
    state = jax.tree.map(lambda x: x[1:3], state)

    def loss(v):
        return (xsim.step(model, state.replace(v=v)).v ** 2).sum()

    with tracing_for("llvm"):
        found = jax.jit(outer(inner(loss)))(state.v)
    wanted = by_numpy(jax.hessian(loss))(state.v)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8 * np.abs(wanted).max())


def test_small_buffers_have_no_loops():
    """Models whose buffers are small, and those whose contacts are found otherwise, have no loops over the active contacts."""
    ball = '<body pos="0 0 {}"><freejoint/><geom size=".1" {}/></body>'

    def has_loops(text: str, **options) -> bool:
        model = xsim.loads(f"<mujoco><worldbody><geom type='plane' size='1 1 1'/>{text}</worldbody></mujoco>", "mjcf", rules="4.0")
        model = xsim.with_contact_limit(model, **options) if options else model
        with one_environment():
            return loops_over_active_contacts(system_of(model))

    many = "".join(ball.format(i, "") for i in range(1, 7))  # with each other and the ground: 21 pairs
    assert has_loops(many)
    assert not has_loops(ball.format(1, ""))
    assert not has_loops(many, contacts=LARGE - 1)
    assert not has_loops(many + ball.format(9, 'adhesion="1"'))


# ---- Newton's method -------------------------------------------------------------------------------------------------------------


def test_contacts_that_are_not_active_have_no_zones(x64):
    """Otherwise their relative accelerations, which mean nothing, would cost further turns."""
    for option in OPTIONS["pyramids"], OPTIONS["ellipses"]:
        model, state, _ = raft(option)

        def zones_and_stiffness(q, v, model=model):
            c = Call(model, q, v)
            (cones,) = constraints(c.system, c.q, c.v).cones
            return cones.zone(jnp.full(cones.offset.shape, -1.0)), cones.stiffness

        zones, stiffness = by_numpy(zones_and_stiffness)(state.q[1], state.v[1])
        inactive = stiffness[:, 0] == 0
        assert inactive.any() and not inactive.all()
        zones = zones.reshape(len(inactive), -1)
        assert not zones[inactive].any() and zones[~inactive].any()


def test_mass_matrices_have_no_fill_in(x64):
    """The factor of a tree's mass matrix has zeros where the matrix has them."""
    model = xsim.load("ant")
    state = xsim.init(model, q=np.asarray(xsim.init(model).q) + 0.1)
    ancestors, b = system_of(model).tables.ancestors, np.random.default_rng(0).normal(size=model.nv)

    def factored(q, v):
        c = Call(model, q, v)
        rows = effective_mass(EquationOfMotion(c.system, c.q, c.v, [0.0] * model.nv, soft=soft_constraints(c)))
        lower = {(i, j): x for i, row in enumerate(rows) for j, x in zip((*ancestors[i], i), row, strict=True)}
        matrix = assembled(lower | {(j, i): x for (i, j), x in lower.items()}, (model.nv,) * 2, c.q[0])
        factor = Cholesky(matrix)
        return matrix, [column for column, _ in factor.columns], factor.solve(jnp.asarray(b))

    matrix, columns, x = by_numpy(factored)(state.q, state.v)
    others = {k: [j for j in range(k) if j not in ancestors[k]] for k in range(model.nv)}
    assert sum(map(len, others.values())) == 24  # between the four legs of two joints
    for k, column in zip(reversed(range(model.nv)), columns, strict=True):
        assert not column[others[k]].any() and column.any() == (k > 0)
    np.testing.assert_allclose(matrix @ x, b, atol=1e-10)
