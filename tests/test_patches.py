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

REFERENCE = json.loads((Path(__file__).parent / "reference/patches.json").read_text())


def found_and_recorded(recorded: dict):
    """Distance, point and normal of xsim's contacts and of MuJoCo's in each state, with the same geom first."""
    model, states = xsim.loads(recorded["model"], "mjcf", rules="4.0"), recorded["states"]
    q, start = np.array([s["q"] for s in states]), xsim.init(model)
    found = by_numpy(xsim.contacts)(model, jax.tree.map(lambda x: jnp.broadcast_to(x, (len(q), *x.shape)), start).replace(q=q))
    for i, s in enumerate(states):
        wanted, there = np.array(s["contacts"])[:, :7], found.active[i]
        own = np.concatenate([found.distance[i][there, None], found.point[i][there], found.frame[i][there, 0]], 1)
        own[:, 4:] *= np.sign(wanted[0, 4:] @ own[0, 4:])
        yield own, wanted


@pytest.mark.parametrize("name", REFERENCE["faces"])
def test_as_recorded(name, x64):
    """Faces on faces, leaning and over the border, edges on faces, corners: as many contacts, where MuJoCo has them."""
    counts = set()
    for i, pair in enumerate(found_and_recorded(REFERENCE["faces"][name])):
        own, wanted = (x[np.lexsort(np.round(x[:, 1:4].T, 5))] for x in pair)
        assert own.shape == wanted.shape, (i, own, wanted)
        np.testing.assert_allclose(own, wanted, atol=1e-7, err_msg=str(i))  # meshes of MuJoCo have single precision
        counts.add(len(own))
    assert counts == {1, 2, 4}


def area(points) -> float:
    """Of the triangles that four points in a plane make with each other, half of them all."""
    a, b, c, d = points
    return 0.25 * sum(np.linalg.norm(np.cross(q - p, r - p)) for p, q, r in ((a, b, c), (a, b, d), (a, c, d), (b, c, d)))


@pytest.mark.parametrize("name", REFERENCE["curved"])
def test_caps_and_sides_as_recorded(name, x64):
    """Cylinders on their caps and sides, capsules on their sides. Of a patch with more than four corners xsim keeps others than MuJoCo: as
    deep or deeper, in the same plane, as far apart."""
    counts = set()
    for i, (own, wanted) in enumerate(found_and_recorded(REFERENCE["curved"][name])):
        np.testing.assert_allclose(own[:, 4:], np.broadcast_to(wanted[:1, 4:], (len(own), 3)), atol=1e-6, err_msg=str(i))
        assert own[:, 0].min() < wanted[:, 0].min() + 2e-7
        if len(wanted) == 4:
            plane = np.linalg.lstsq(np.c_[np.ones(4), wanted[:, 1:4]], wanted[:, 0], rcond=None)[0]
            np.testing.assert_allclose(np.c_[np.ones(len(own)), own[:, 1:4]] @ plane, own[:, 0], atol=2e-7, err_msg=str(i))
            assert len(own) == 4 and area(own[:, 1:4]) > 0.75 * area(wanted[:, 1:4]), i
        else:
            # the side of a cylinder on a cap: MuJoCo has the second end only where it is exactly parallel
            more = 1 if name == "plate-drum" and len(wanted) == 1 and len(own) == 2 else 0
            assert len(own) == len(wanted) + more, (i, own, wanted)
            apart = np.abs(own[:, None, :4] - wanted[:, :4]).max(-1)
            assert (apart.min(0) < 4e-7).all() and (np.sort(apart.min(1))[: len(wanted)] < 4e-7).all(), (i, own, wanted)
        counts.add(len(own))
    assert counts == ({1, 2} if "rod" in name else {1, 2, 4} if "box" in name or "small" in name else {1, 2, 3, 4})


@pytest.mark.parametrize("lean, wanted", [(0.05, [-0.0078739, -0.0018764]), (0.08, [-0.0094756])])
def test_capsules_that_lean_on_a_mesh(lean, wanted, x64):
    """Distances of MuJoCo 4.0.0: the line of a capsule is less deep than its end by the radius times the squared sine of the angle."""
    corners = " ".join(f"{x} {y} {z}" for x in (-0.3, 0.3) for y in (-0.3, 0.3) for z in (-0.1, 0))
    text = f"""<mujoco><compiler angle="radian"/><asset><mesh name="m" vertex="{corners}"/></asset><worldbody><geom type="mesh" mesh="m"/>
      <body pos="0 0 .045" euler="{np.pi / 2 + lean} 0 0"><freejoint/><geom type="capsule" size=".05 .06"/></body></worldbody></mujoco>"""
    model = xsim.loads(text, "mjcf", rules="4.0")
    found = xsim.contacts(model, xsim.init(model))
    np.testing.assert_allclose(np.sort(found.distance[found.active]), wanted, atol=1e-7)


TABLE = """<mujoco><option timestep="0.002"/><asset>
<mesh name="m" vertex="-1 -1 -1 1 -1 -1 -1 1 -1 1 1 -1 -1 -1 1 1 -1 1 -1 1 1 1 1 1"/></asset><worldbody><geom type="mesh" mesh="m"/>
<body pos="0.1 0.2 {}"><freejoint/><geom type="{}" mesh="m" {}/></body></worldbody></mujoco>"""


def test_the_rules_and_the_flag_choose():
    """Whether there are several contacts at all."""
    for rules, flag, several in (("4.0", "", True), ("3.2", "", False), ("4.0", "disable", False), ("3.2", "enable", True)):
        option = f'<option><flag multiccd="{flag}"/></option>' if flag else ""
        text = TABLE.format(1.999, "mesh", "").replace("<asset>", option + "<asset>")
        assert xsim.loads(text, "mjcf", rules=rules).topology.multiccd == several


@pytest.mark.slow
@pytest.mark.parametrize("rules, count", [("4.0", 4), ("3.2", 1)])
def test_a_box_of_vertices_rests_on_another(rules, count, x64):
    """On four corners; on one contact it sinks in deeper and rocks."""
    model = xsim.loads(TABLE.format(1.999, "mesh", ""), "mjcf", rules=rules)
    state, found = _rested(model, xsim.init(model))
    assert not state.flags and found.active.sum() == count
    assert (found.distance[found.active] > -2e-4).all() == (count == 4)


def _rested(model, start):
    """Where it is after 150 steps, and the contacts there."""
    state = xsim.rollout(model, start, steps=150)[0]
    return state, by_numpy(xsim.contacts)(model, state)


SLAB = '<mujoco><worldbody><geom type="box" size="1 1 1"/><body pos="0.1 0.2 {}"><freejoint/>{}</body></worldbody></mujoco>'
HULL = TABLE.format(1.99, "mesh", "")
BOX = TABLE.format(1.99, "box", "").replace('type="box" mesh="m"', 'type="box" size="1 1 1"')
DRUM = SLAB.format(1.29, '<geom type="cylinder" size="0.5 0.3"/>')
ROD = TABLE.format(1.19, "capsule", "").replace('type="capsule" mesh="m"', 'type="capsule" size="0.2 0.5"')


def turned(start, axis, angles):
    """Quaternions: a quarter turn or none (w, x), then small angles about an axis."""
    small = np.array([[1.0, *(0.5 * angle * np.asarray(axis))] for angle in angles])
    w, x = start
    return np.stack([small @ row for row in ([w, -x, 0, 0], [x, w, 0, 0], [0, 0, w, x], [0, 0, -x, w])], 1)


@pytest.mark.slow
@pytest.mark.parametrize("text, heights, start", [
    pytest.param(HULL, (1.995, 1.99, 1.97), (1, 0), id="hull"),
    pytest.param(BOX, (1.995, 1.99, 1.97), (1, 0), id="box", marks=pytest.mark.nightly),  # the code of hulls
    pytest.param(DRUM, (1.295, 1.29, 1.27), (1, 0), id="cap", marks=pytest.mark.nightly),
    pytest.param(DRUM, (1.495, 1.49, 1.48), (1, 1), id="side", marks=pytest.mark.nightly),
    pytest.param(ROD, (1.195, 1.19, 1.18), (1, 1), id="capsule", marks=pytest.mark.nightly),  # the code of the side
])  # fmt: skip
def test_derivatives(text, heights, start, x64):
    """Of the acceleration of what leans a little on a flat face, by every number of state and model."""
    model, rng = xsim.loads(text, "mjcf", rules="4.0"), np.random.default_rng(0)
    lean = (0.003, 0.02, 0.05) if start == (1, 0) else (0.001, 0.003, 0.01)
    q = np.array([[0.1, 0.2, z, *quat] for z, quat in zip(heights, turned(start, (0.6, 0.8, 0.3), lean), strict=True)])
    check_derivatives(model, q, 0.1 * rng.normal(size=(3, 6)))


@pytest.mark.slow
@pytest.mark.parametrize("text, heights", [
    pytest.param(HULL, (1.99, 2.0, 0.0), id="hull"),
    pytest.param(DRUM, (1.29, 1.3, 0.0), id="drum"),
    pytest.param(ROD, (1.19, 1.2, 0.0), id="capsule", marks=pytest.mark.nightly),  # the code of the drum's side
])  # fmt: skip
def test_lying_exactly_flat_is_finite(text, heights, x64):
    """Values and derivatives where corners are over borders, upright and on the side, whatever is chosen."""
    model = xsim.loads(text, "mjcf", rules="4.0")
    places = [(0, 0), (2, 0), (1, 1), (2, 2), (0.1, 0.2)]
    q = np.array([[x, y, z, 1.0, turn, 0, 0] for x, y in places for z in heights for turn in (0.0, 1.0)])
    grad = by_numpy(lambda m, q: jax.jacrev(lambda q: xsim.forward_dynamics(m, q, 0.1 * q[..., :6]).sum(0))(q))
    assert np.isfinite(grad(model, q)).all()


def test_rounding_does_not_choose_the_contacts_of_a_cap(x64):
    """Corners of a regular polygon are as far from each other: poses that differ by rounding have the same contacts, flat and tilted."""
    model, noise = xsim.loads(DRUM, "mjcf", rules="4.0"), 1e-15 * np.random.default_rng(0).normal(size=(80, 7))
    q = np.repeat([[0.1, 0.2, 1.298, 1, 0, 0, 0], [-0.001, -0.004, 1.298, 1, -0.004, 0.004, -0.006]], 40, 0) + noise
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (80, *x.shape)), xsim.init(model))
    found = by_numpy(xsim.contacts)(model, start.replace(q=q))
    assert found.active.all()
    points = found.point.reshape(2, 40, -1)
    np.testing.assert_allclose(points, np.broadcast_to(points[:, :1], points.shape), atol=1e-9)


@pytest.mark.slow
def test_a_cylinder_stands_and_lies_on_a_box(x64):
    """Upright and on its side, at rest where it was put down: with one contact it would roll about its rim."""
    model = xsim.loads(DRUM.replace("<worldbody>", '<option timestep="0.002"/><worldbody>'), "mjcf", rules="4.0")
    q = np.array([[0.1, 0.2, 1.2999, 1, 0, 0, 0], [0.1, 0.2, 1.4999, np.sqrt(0.5), np.sqrt(0.5), 0, 0]])
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (2, *x.shape)), xsim.init(model)).replace(q=jnp.asarray(q))
    state, found = _rested(model, start)
    assert found.active.sum(1).tolist() == [4, 2] and not state.flags.any()
    np.testing.assert_allclose(state.q, q, atol=2e-4)
    np.testing.assert_allclose(state.v, 0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [8, pytest.param(None, marks=pytest.mark.nightly)])
def test_all_kinds_at_once(pairs, x64):
    """Cylinders, a box and a capsule over what they lie on, also where only some of the pairs are held against each other."""
    corners = " ".join(f"{x} {y} {z}" for x in (-1, 1) for y in (-1, 1) for z in (-0.25, 0.25))
    scenery = '<geom type="box" size="1 1 .25"/><geom type="cylinder" size="1 .25" pos="5 0 0"/><geom type="mesh" mesh="m" pos="10 0 0"/>'
    drum, box, rod = 'type="cylinder" size=".2 .3"', 'type="box" size=".2 .1 .3"', 'type="capsule" size=".2 .3"'
    things = [(drum, 0, 0.3, 4), (drum + ' euler="0 90 0"', 5, 0.2, 2), (drum, 9.5, 0.3, 4), (box, 10, 0.3, 4),
              (rod + ' euler="90 0 0"', 10.5, 0.2, 2)]  # fmt: skip
    bodies = "".join(
        f'<body pos="{x} 0.1 {0.249 + half}"><freejoint/><geom name="{i}" {shape}/></body>' for i, (shape, x, half, _) in enumerate(things)
    )
    text = f'<mujoco><asset><mesh name="m" vertex="{corners}"/></asset><worldbody>{scenery}{bodies}</worldbody></mujoco>'
    model = xsim.with_contact_limit(xsim.loads(text, "mjcf", rules="4.0"), None, pairs)
    found = by_numpy(xsim.contacts)(model, xsim.init(model))
    active = np.asarray(found.active)
    np.testing.assert_allclose(found.distance[active], -1e-3, atol=1e-9)
    names = [model.topology.geoms[g].name for g in np.asarray(found.geoms)[active].ravel()]
    assert [names.count(str(i)) for i in range(len(things))] == [count for *_, count in things]


@pytest.mark.slow
def test_a_face_of_many_corners_lies_on_a_box(x64):
    """A drum of 40 corners, single precision too: four contacts at its depth, its centre between them."""
    ring = [(np.cos(t), np.sin(t)) for t in 2 * np.pi * np.arange(40) / 40]
    vertices = " ".join(f"{x} {y} {z}" for x, y in ring for z in (-0.5, 0.5))
    text = f"""<mujoco><asset><mesh name="m" vertex="{vertices}"/></asset><worldbody><geom type="box" size="2 2 .5"/>
        <body pos="0.1 0.2 0.99"><freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>"""
    model = xsim.loads(text, "mjcf", rules="4.0")
    for dtype in (jnp.float64, jnp.float32):
        single, state = jax.tree.map(lambda x, t=dtype: jnp.asarray(x, t) if x.dtype == jnp.float64 else x, (model, xsim.init(model)))
        found = by_numpy(xsim.contacts)(single, state)
        assert found.active.sum() == 4
        np.testing.assert_allclose(found.distance[found.active], -0.01, atol=1e-6)
        place = np.asarray(found.point[found.active])
        assert (np.ptp(place, axis=0)[:2] > 1.4).all() and (np.abs(place.mean(0) - (0.1, 0.2, 0.495)) < 0.3).all()


@pytest.mark.parametrize(("sides", "depth"), [
    (16, 0.00188587), (64, 0.00192629), pytest.param(100, 0.00192826, marks=pytest.mark.nightly),
])  # fmt: skip
def test_the_deepest_corner_of_a_face_with_many_corners_is_a_contact(sides, depth, x64):
    """An elliptic prism, tilted by a degree on a box. The depths are those of MuJoCo 4.0.0 (mj_forward) on a plane in place of the box. On
    the box it misses the deepest corner: 0.00188558, 0.00174082, 0.00174229."""
    angles = 2 * np.pi * np.arange(sides) / sides + 0.013
    corners = [(0.2 * np.cos(a), 0.15 * np.sin(a), h) for h in (-0.05, 0.05) for a in angles]
    mesh = f'<asset><mesh name="m" vertex="{" ".join(f"{x:.17g}" for p in corners for x in p)}"/></asset>'
    height = 0.05 + 0.2 * np.sin(np.radians(1)) - 0.002
    body = f'<body pos="0 0 {height}" axisangle=".3 1 0 1"><freejoint/><geom type="mesh" mesh="m"/></body>'
    world = f'<worldbody><geom type="box" size="1 1 .5" pos="0 0 -.5"/>{body}</worldbody>'
    model = xsim.loads(f"<mujoco>{mesh}{world}</mujoco>", "mjcf", rules="4.0")
    distance = by_numpy(xsim.contacts)(model, xsim.init(model)).distance
    touching = np.sort(distance[distance < 0])
    assert len(touching) == 4
    # The distances are along the normal of the prism.
    np.testing.assert_allclose(-touching[0], depth * np.cos(np.radians(1)), atol=1e-8)
