"""Several contacts of flat faces that lie on each other: against MuJoCo 4.0.0, their derivatives, and what they are for."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_contact import check_derivatives
from traced import by_numpy

import xsim

pytestmark = pytest.mark.slow

REFERENCE = json.loads((Path(__file__).parent / "reference/patches.json").read_text())


@pytest.mark.parametrize("name", REFERENCE)
def test_as_recorded(name, x64):
    """Faces on faces, leaning and over the border, edges on faces, corners: as many contacts, where MuJoCo has them."""
    model, states = xsim.loads(REFERENCE[name]["model"], "mjcf", rules="4.0"), REFERENCE[name]["states"]
    q, start, counts = np.array([s["q"] for s in states]), xsim.init(model), set()
    found = by_numpy(xsim.contacts)(model, jax.tree.map(lambda x: jnp.broadcast_to(x, (len(q), *x.shape)), start).replace(q=q))
    for i, s in enumerate(states):
        wanted, there = np.array(s["contacts"]), found.active[i]
        own = np.concatenate([found.distance[i][there, None], found.point[i][there], found.frame[i][there, 0]], 1)
        own[:, 4:] *= np.sign(wanted[0, 4:7] @ own[0, 4:7])  # which geom is the first
        wanted, own = (x[np.lexsort(np.round(x[:, 1:4].T, 5))] for x in (wanted[:, :7], own))
        assert own.shape == wanted.shape, (i, own, wanted)
        np.testing.assert_allclose(own, wanted, atol=1e-7, err_msg=str(i))  # meshes of MuJoCo have single precision
        counts.add(len(own))
    assert counts == {1, 2, 4}


TABLE = """<mujoco><option timestep="0.002"/><asset>
<mesh name="m" vertex="-1 -1 -1 1 -1 -1 -1 1 -1 1 1 -1 -1 -1 1 1 -1 1 -1 1 1 1 1 1"/></asset><worldbody><geom type="mesh" mesh="m"/>
<body pos="0.1 0.2 {}"><freejoint/><geom type="{}" mesh="m" {}/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("rules", ["4.0", "3.2"])
def test_a_box_of_vertices_rests_on_another(rules, x64):
    """On four corners under the rules 4.0 and where the flag asks for them; on one contact it sinks in deeper and rocks."""
    text = TABLE.format(1.999, "mesh", "")
    for flag in (True, False):
        option = f'<option><flag multiccd="{"enable" if flag else "disable"}"/></option>'
        model = xsim.loads(text.replace("<asset>", option + "<asset>"), "mjcf", rules=rules)
        state = by_numpy(lambda m, s: xsim.rollout(m, s, steps=150)[0])(model, xsim.init(model))
        found = by_numpy(xsim.contacts)(model, state)
        assert not state.flags and found.active.sum() == (4 if flag else 1)
        assert (found.distance[found.active] > -2e-4).all() == flag


def test_derivatives(x64):
    """Of the acceleration of a hull on a hull and of a box on a hull that lean a little, by every number of state and model."""
    for text in (TABLE.format(1.99, "mesh", ""), TABLE.format(1.99, "box", "").replace('type="box" mesh="m"', 'type="box" size="1 1 1"')):
        model = xsim.loads(text, "mjcf", rules="4.0")
        axis, rng = np.array([0.6, 0.8, 0.3]), np.random.default_rng(0)
        quats = [[1.0, *(0.5 * angle * axis)] for angle in (0.003, 0.02, 0.05)]
        q = np.array([[0.1, 0.2, height, *quat] for height, quat in zip((1.995, 1.99, 1.97), quats, strict=True)])
        check_derivatives(model, q, 0.1 * rng.normal(size=(3, 6)))


def test_lying_exactly_flat_is_finite(x64):
    """Values and derivatives where corners are over borders, whatever is chosen."""
    model = xsim.loads(TABLE.format(1.99, "mesh", ""), "mjcf", rules="4.0")
    places = [(0, 0), (2, 0), (1, 1), (2, 2), (0.1, 0.2)]
    q = np.array([[x, y, z, 1.0, 0, 0, 0] for x, y in places for z in (1.99, 2.0, 0.0)])
    grad = by_numpy(lambda m, q: jax.jacrev(lambda q: xsim.forward_dynamics(m, q, 0.1 * q[..., :6]).sum(0))(q))
    assert np.isfinite(grad(model, q)).all()


def test_a_face_of_many_corners_lies_on_a_box(x64):
    """A drum of 40 corners, single precision too: four contacts at its depth, its centre between them."""
    ring = [(np.cos(t), np.sin(t)) for t in 2 * np.pi * np.arange(40) / 40]
    vertices = " ".join(f"{x} {y} {z}" for x, y in ring for z in (-0.5, 0.5))
    text = f"""<mujoco><asset><mesh name="m" vertex="{vertices}"/></asset><worldbody><geom type="box" size="2 2 .5"/>
        <body pos="0.1 0.2 0.99"><freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>"""
    model = xsim.loads(text, "mjcf", rules="4.0")
    for dtype in (jnp.float64, jnp.float32):
        single, state = jax.tree.map(lambda x, t=dtype: jnp.asarray(x, t) if x.dtype == jnp.float64 else x, (model, xsim.init(model)))
        found = jax.jit(xsim.contacts)(single, state)
        assert found.active.sum() == 4
        np.testing.assert_allclose(found.distance[found.active], -0.01, atol=1e-6)
        place = np.asarray(found.point[found.active])
        assert (np.ptp(place, axis=0)[:2] > 1.4).all() and (np.abs(place.mean(0) - (0.1, 0.2, 0.495)) < 0.3).all()
