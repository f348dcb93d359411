"""Bounding spheres, and pairs of geoms that programs of one environment leave out because their spheres are apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.compile.choice import tracing_for
from xsim.dynamics.collide.broadphase import BOUNDED, bounding_radius, can_touch

FARTHEST = {
    "sphere": lambda s: s[0], "capsule": lambda s: s[0] + s[1], "cylinder": lambda s: np.hypot(s[0], s[1]),
    "ellipsoid": lambda s: max(s), "box": np.linalg.norm,
}  # fmt: skip
"""The distance of the farthest point of a shape from its centre, by its size."""
SHAPES = (
    '<geom type="capsule" size=".05 .1"/>', '<geom type="box" size=".1 .05 .08"/>', '<geom size=".07"/>',
    '<geom type="capsule" size=".04 .2"/>',
)  # fmt: skip
PILE = f"""<mujoco><option timestep=".002"/><worldbody><geom type="plane" size="5 5 1"/>
  {"".join(f'<body pos="{0.22 * i} 0 .12"><freejoint/>{shape}</body>' for i, shape in enumerate(SHAPES))}
</worldbody></mujoco>"""
APART = (0.3, 1.0, 3.0)
"""By environment, the factor of the distances between the bodies along x."""


@pytest.mark.parametrize("kind", BOUNDED)
def test_spheres_contain_their_shapes(kind, x64):
    for size in np.random.default_rng(0).uniform(0.1, 1.0, (5, 3)):
        radius = float(bounding_radius(kind, tuple(jnp.asarray([x]) for x in size))[0])
        assert FARTHEST[kind](size) * (1 - 1e-12) <= radius <= 1.74 * FARTHEST[kind](size)


def test_spheres_that_touch():
    a, b = tuple(jnp.zeros(3)), tuple(jnp.array([3.0, 4.0, 0.0]))
    assert can_touch(a, b, 5.0) and not can_touch(a, b, 4.9) and not can_touch(a, b, -6.0)
    assert not can_touch(a, tuple(jnp.array([jnp.nan, 0.0, 0.0])), 5.0)


@pytest.mark.nightly
def test_states_and_derivatives(x64):
    """Of a step of bodies that lie on each other, beside each other and far apart: by LLVM, which leaves pairs out, and by JAX."""
    model = xsim.loads(PILE, "mjcf", rules="4.0")
    start, rng = xsim.init(model), np.random.default_rng(0)
    q = np.tile(np.asarray(start.q), (len(APART), 1))
    q[:, 0::7] *= np.array(APART)[:, None]
    q[:, 3:] += rng.normal(0, 0.02, (len(APART), 1))
    state = xsim.init(model, q, rng.normal(0, 0.3, (len(q), model.nv)))
    counts = np.asarray(by_numpy(xsim.contacts)(model, state).active).sum(1)
    assert counts[0] > counts[1] >= counts[2] > 0
    weights = rng.normal(size=model.nv)

    def velocities(q, v, size):
        return xsim.step(model.replace({"geom.size": size}), state.replace(q=q, v=v)).v

    def step_and_derivatives(*arguments):
        return velocities(*arguments), jax.grad(lambda *xs: (velocities(*xs) @ weights).sum(), (0, 1, 2))(*arguments)

    arguments = state.q, state.v, model.get("geom.size")
    with tracing_for("llvm"):
        found = jax.jit(step_and_derivatives)(*arguments)
    wanted = by_numpy(step_and_derivatives)(*arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(b).max())
