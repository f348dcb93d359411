"""Meshes and signed distance functions: contacts of the two, and the distance from a mesh as the function of a geom of type sdf, against
MuJoCo 3.2.7 and 4.0.0 in float64; derivatives, batches, and what is read and refused.

`reference/make_sdf_meshes.py` records the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_gradients import check_both_modes
from traced import by_numpy

import xsim
from xsim.io.errors import ParseError
from xsim.model.octree import CELLS, mesh_octree
from xsim.model.triangle_distance import signed_distances

FOLDER = Path(__file__).parent / "reference"
RECORDED = {release: json.loads((FOLDER / f"sdf_meshes_{release.replace('.', '_')}.json").read_text()) for release in ("3.2", "4.0")}
SLOW, NIGHTLY = pytest.mark.slow, pytest.mark.nightly
CASES = [(release, name) for release, models in RECORDED.items() for name, model in models.items() if "contacts" in model]
CASES.remove(("3.2", "sdflib"))
DAILY = (("3.2", "torus 3"), ("4.0", "torus 3"))
PLACE = 1e-6
"""m. MuJoCo's vertices have single precision."""


def near_numbers(release: str, name: str) -> tuple[xsim.Model, dict]:
    recorded = RECORDED[release][name]
    return xsim.with_contact_limit(xsim.loads(recorded["model"], "mjcf", rules=release), 1000), recorded


@pytest.mark.parametrize(("release", "name"), [pytest.param(*case, marks=() if case in DAILY else SLOW) for case in CASES])
def test_contacts(release, name, x64):
    """As many contacts of each pair, at the same places. In the middle of a box, and in the corners of the table of a mesh, rounding
    decides between directions: of contacts with simple shapes that are searched, one in four may differ."""
    model, recorded = near_numbers(release, name)
    names = np.array([geom.name for geom in model.topology.geoms])
    for q, wanted in zip(recorded["q"], recorded["contacts"], strict=True):
        found = by_numpy(xsim.contacts)(model, xsim.init(model, np.array(q)))
        active = np.asarray(found.active)
        rows = np.concatenate([np.asarray(found.distance)[:, None], found.point, found.frame[:, 0]], 1)[active]
        pairs = names[np.asarray(found.geoms)[active]]
        assert set(pairs.ravel()) - {"sdf"} == set(wanted)
        for other, expected in wanted.items():
            ours = rows[(pairs == other).any(1)]
            assert len(ours) == len(expected), other
            errors = np.abs(ours - np.array(expected)[:, None]).max(-1).min(1)
            assert np.quantile(errors, 1.0 if other in ("ball", "tet", "plane") else 0.75) < PLACE, (other, errors)


@pytest.mark.parametrize("dim", [pytest.param(1, marks=NIGHTLY), pytest.param(2, marks=SLOW), pytest.param(3, marks=NIGHTLY)])
def test_contacts_with_flexes(dim, x64):
    """In 3.2 with the convex hull of the mesh: as many, and those on its flat top as deep. Beside it, MuJoCo's depth is not the least."""
    model, recorded = near_numbers("3.2", f"flex {dim}")
    found = by_numpy(xsim.contacts)(model, xsim.init(model))
    distances, wanted = np.sort(np.asarray(found.distance)[np.asarray(found.active)]), np.array(recorded["distances"])
    assert len(distances) == len(wanted) > 1
    assert (distances > wanted - 1e-6).all()
    assert (np.abs(distances[:, None] - wanted) < 1e-6).any()


SHEETS = [name for name, model in RECORDED["4.0"].items() if "flex_contacts" in model]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (name != "sheet on a torus")) for name in SHEETS])
def test_contacts_of_triangles_of_flexes(name, x64):
    """In 4.0: the contacts of a sheet with a signed distance function, and its acceleration. One has more triangles below the surface than
    have contacts."""
    model, recorded = near_numbers("4.0", name)
    found, acceleration = by_numpy(lambda m, state: (xsim.contacts(m, state), xsim.forward(m, state).a))(model, xsim.init(model))
    rows = np.concatenate([np.asarray(found.distance)[:, None], found.point, found.frame[:, 0]], 1)[np.asarray(found.active)]
    wanted = np.array(recorded["flex_contacts"])
    assert len(rows) == len(wanted) > 5
    assert np.abs(rows - wanted[:, None]).max(-1).min(1).max() < 1e-7
    np.testing.assert_allclose(acceleration, recorded["acceleration"], rtol=0, atol=1e-7 * np.abs(recorded["acceleration"]).max())


@SLOW
def test_contacts_of_sdflib(x64):
    """The mesh's distance in 3.2.7 is interpolated in another table. On a mesh of a metre the deepest contacts differ by up to 13 mm."""
    model, recorded = near_numbers("3.2", "sdflib")
    names = np.array([geom.name for geom in model.topology.geoms])
    for q, wanted in zip(recorded["q"], recorded["contacts"], strict=True):
        found = by_numpy(xsim.contacts)(model, xsim.init(model, np.array(q)))
        active = np.asarray(found.active)
        distances, pairs = np.asarray(found.distance)[active], names[np.asarray(found.geoms)[active]]
        for other, expected in wanted.items():
            ours = distances[(pairs == other).any(1)]
            assert abs(len(ours) - len(expected)) <= 1
            assert abs(ours.min() - np.array(expected)[:, 0].min()) < 0.015


@pytest.mark.nightly
@pytest.mark.parametrize("release", ["3.2", "4.0"])
def test_distance_sensors(release, x64):
    """Of surfaces that overlap, the deepest contact; of others the cutoff. Planes measure the distance from the mesh."""
    model, recorded = near_numbers(release, "distances")
    found = by_numpy(xsim.sensors)(model, xsim.init(model))
    np.testing.assert_allclose(found, recorded["sensors"], atol=2e-4 if release == "4.0" else 1e-5)  # see `test_sdf.test_contacts`


def test_rays(x64):
    """Distances and normals, also from inside and through the box around the mesh."""
    model, recorded = near_numbers("4.0", "mesh with rays")
    found = by_numpy(xsim.sensors)(model, xsim.init(model))
    assert 0.3 < np.mean(np.array(recorded["sensors"])[::4] > 0) < 0.7
    np.testing.assert_allclose(found, recorded["sensors"], atol=1e-9)


@pytest.mark.parametrize(("release", "name"), [("3.2", "torus 3"), ("4.0", "mesh with meshes")])
def test_masses(release, name):
    """Those of the meshes."""
    recorded = RECORDED[release][name]
    spec = xsim.parse_text(recorded["model"], "mjcf", rules=release)
    found = [1000 * spec.meshes[body.geoms[0].asset].volume for body in spec.bodies]
    np.testing.assert_allclose(found, recorded["mass"], rtol=1e-6)


def test_octree():
    """As many leaves of each size, and the same distances, as MuJoCo's."""
    model, recorded = near_numbers("4.0", "mesh with meshes")
    tree = next(sdf.octree for sdf in model.topology.sdfs if sdf.name == "ell")
    assert np.bincount(np.log2(CELLS // tree.size.value).astype(int)).tolist() == recorded["octree"]["leaves"]
    distances = tree.distances.value
    np.testing.assert_allclose([distances.sum(), np.abs(distances).sum()], recorded["octree"]["sums"], rtol=1e-9)


# ---- the distance from a mesh ------------------------------------------------------------------------------------------------------

CORNERS = np.array([[x, y, z] for z in (-0.3, 0.3) for y in (-0.2, 0.2) for x in (-0.1, 0.1)])
SIDES = np.array([
    [0, 2, 1], [1, 2, 3], [4, 5, 6], [5, 7, 6], [0, 1, 4], [1, 5, 4], [2, 6, 3], [3, 6, 7], [0, 4, 2], [2, 4, 6], [1, 3, 5], [3, 7, 5],
])  # fmt: skip


def test_signed_distances():
    """Of a box, inside and outside, near faces, edges and corners."""
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (3000, 3))
    beyond = np.abs(points) - [0.1, 0.2, 0.3]
    wanted = np.linalg.norm(np.maximum(beyond, 0), axis=1) + np.minimum(beyond.max(1), 0)
    np.testing.assert_allclose(signed_distances(points, CORNERS, SIDES), wanted, atol=1e-12)
    apart = CORNERS[SIDES].reshape(-1, 3), np.arange(36).reshape(-1, 3)  # no vertex twice
    np.testing.assert_allclose(signed_distances(points, *apart), wanted, atol=1e-12)


def test_octree_is_continuous():
    """Also between leaves of different sizes: beside each face the distances are the same. Near the mesh they are its distances."""
    from xsim.dynamics.collide.octrees import octree_distance

    tree, rng = mesh_octree(CORNERS, SIDES), np.random.default_rng(0)
    low, high = np.array(tree.low), np.array(tree.high)
    points = rng.uniform(low, high, (3000, 3))
    axis, step = rng.integers(0, 3, len(points)), (high - low) / CELLS
    faces = np.rint((points - low) / step) * step + low
    points[np.arange(len(points)), axis] = faces[np.arange(len(points)), axis]
    aside = 1e-9 * np.eye(3)[axis]
    inside = ((points > low + 1e-6) & (points < high - 1e-6)).all(1)
    with jax.enable_x64(True):
        sides = [np.asarray(octree_distance(tree, tuple((points[inside] + s * aside[inside]).T))) for s in (-1, 1)]
    np.testing.assert_allclose(*sides, atol=1e-8)
    assert np.abs(sides[0] - signed_distances(points[inside], CORNERS, SIDES)).max() < 0.02


# ---- derivatives, batches ----------------------------------------------------------------------------------------------------------

TWO = """<mujoco>
  <option sdf_initpoints="2" sdf_iterations="3" timestep="0.002"/>
  <asset><mesh name="box" vertex="{vertex}" face="{face}"/><mesh name="tet" vertex="0 0 0 .3 0 0 .05 .25 0 .02 .01 .35"
    face="0 2 1 0 1 3 0 3 2 1 2 3"/></asset>
  <worldbody>
    <geom name="fixed" type="sdf" mesh="{of}" euler="10 20 30"/>
    <body pos="0.03 0.02 {height}" euler="35 15 5">
      <freejoint/>
      <geom {geom}/>
      <inertial mass="1" pos="0 0 0" diaginertia="0.1 0.1 0.15"/>
    </body>
  </worldbody>
</mujoco>"""


def two(geom: str, height: float, of: str = "box") -> xsim.Model:
    """A mesh's distance function and one geom."""
    vertex, face = (" ".join(map(str, x.ravel().tolist())) for x in (CORNERS, SIDES))
    return xsim.loads(TWO.format(vertex=vertex, face=face, geom=geom, height=height, of=of), "mjcf", rules="4.0")


PAIRS = {"mesh": ('type="mesh" mesh="tet"', 0.2), "sphere": ('size=".2"', 0.42), "sdf": ('type="sdf" mesh="tet"', 0.18, "tet")}


@NIGHTLY
@pytest.mark.parametrize("pair", [*PAIRS, "sheet"])
def test_gradients_of_steps(pair, x64):
    """With respect to the state and the pose of the geom of type sdf, forward and reverse, against central differences, in a batch."""
    model, count = two(*PAIRS[pair]) if pair in PAIRS else near_numbers("4.0", "sheet on a torus")[0], 2
    rng = np.random.default_rng(0)
    weights = rng.normal(size=model.nv)
    q = np.asarray(xsim.init(model).q) + 0.003 * rng.normal(size=(count, model.nq))
    point = {"q": q, "geom.pos": np.broadcast_to(model.get("geom.pos"), (count, *model.shape("geom.pos"))).copy()}
    assert np.asarray(by_numpy(xsim.contacts)(model, xsim.init(model, q)).active).any(1).all()

    def loss(point):
        m = model.replace({"geom.pos": point["geom.pos"]})
        return xsim.step(m, xsim.init(m, point["q"])).v @ weights

    reverse = check_both_modes(loss, point, 2, {"default": 1e-6}, 1e-6)
    assert np.abs(reverse["geom.pos"]).max() > 1e-3 and np.abs(reverse["q"]).max() > 1e-3


@NIGHTLY
def test_a_batch(x64):
    """Each environment moves as alone; both compilers agree."""
    model = two(*PAIRS["mesh"])
    start = jnp.asarray(xsim.init(model).q) + 0.01 * np.random.default_rng(0).normal(size=(3, model.nq))
    batch = by_numpy(xsim.step)(model, xsim.init(model, start))
    for i in range(3):
        np.testing.assert_allclose(by_numpy(xsim.step)(model, xsim.init(model, start[i])).v, batch.v[i], atol=1e-10)
    compiled = xsim.step(model, xsim.init(model, start))
    np.testing.assert_allclose(compiled.v, batch.v, atol=1e-9)


# ---- reading and writing -----------------------------------------------------------------------------------------------------------


def test_refused():
    vertex = 'vertex="0 0 0 1 0 0 0 1 0 0 0 1"'
    text = f'<mujoco><asset><mesh name="a" {vertex}/></asset><worldbody><geom type="sdf" mesh="a"/></worldbody></mujoco>'
    with pytest.raises(ParseError, match="found sdf without a plugin; allowed: with one, or the rules of 4.0"):
        xsim.parse_text(text, "mjcf", rules="3.2")
    extension = '<extension><plugin plugin="mujoco.sdf.torus"><instance name="t"/></plugin></extension>'
    of_function = text.replace("<asset>", f"{extension}<asset>").replace(f" {vertex}/>", '><plugin instance="t"/></mesh>')
    with pytest.raises(ParseError, match="the mesh 'a' has mujoco.sdf.torus 0.35 0.15, the geom none; allowed: the same"):
        xsim.parse_text(of_function, "mjcf", rules="4.0")


@pytest.mark.parametrize(("config", "match"), [("aabb", None), ("depth", "unknown key 'depth'")])
def test_sdflib(config, match, tmp_path):
    """The plugin of 3.2 for the distance from a mesh, read and written."""
    key = f'<plugin plugin="mujoco.sdf.sdflib"><config key="{config}" value="1"/></plugin>'
    text = f"""<mujoco><extension><plugin plugin="mujoco.sdf.sdflib"/></extension>
    <asset><mesh name="a" vertex="0 0 0 1 0 0 0 2 0 .2 .1 3"/></asset>
    <worldbody><geom type="sdf" mesh="a">{key}</geom></worldbody></mujoco>"""
    if match is not None:
        with pytest.raises(ParseError, match=match):
            xsim.parse_text(text, "mjcf", rules="3.2")
        return
    spec = xsim.parse_text(text, "mjcf", rules="3.2")
    xsim.write(spec, tmp_path / "a.xml")
    written = (tmp_path / "a.xml").read_text()
    assert written.count('plugin="mujoco.sdf.sdflib"') == 2
    assert xsim.parse_text(written, "mjcf", rules="3.2").world_geoms[0].shape == "sdf"
    with pytest.raises(ParseError, match="is not in MuJoCo 4.0"):
        xsim.parse_text(text, "mjcf", rules="4.0")


def test_height_fields():
    """They have no contacts with signed distance functions, in MuJoCo too; a warning says so."""
    text = """<mujoco><asset><mesh name="a" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/></asset>
    <worldbody><geom type="hfield" hfield="h"/><body><freejoint/><geom type="sdf" mesh="a"/></body></worldbody></mujoco>"""
    spec = xsim.parse_text(text, "mjcf", rules="4.0")
    with pytest.warns(UserWarning, match="height fields have no contacts with signed distance functions"):
        model = xsim.build(spec)
    assert not model.topology.pairs


@pytest.mark.parametrize(("dim", "count"), [(1, "3 1 1"), (2, "2 2 1"), (3, "2 2 2")])
def test_flexes(dim, count):
    """In 4.0 triangles have contacts with signed distance functions, lines and tetrahedra none; a warning says so."""
    grid = f'<flexcomp name="f" type="grid" dim="{dim}" count="{count}" spacing=".1 .1 .1" mass="1" radius=".02"/>'
    text = f"""<mujoco><asset><mesh name="a" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
    <worldbody><geom name="b" type="sdf" mesh="a"/>{grid}</worldbody></mujoco>"""
    spec = xsim.parse_text(text, "mjcf", rules="4.0")
    if dim == 2:
        (info,) = xsim.build(spec).topology.pairs
        assert info.shapes == ("sdf", "simplex") and len(info.geoms.value) == 2
        return
    with pytest.warns(UserWarning, match="flexes of lines and tetrahedra have no contacts with signed distance functions"):
        model = xsim.build(spec)
    assert not any("sdf" in info.shapes for info in model.topology.pairs)


def test_round_trip(tmp_path):
    vertex = 'vertex="0 0 0 1 0 0 0 2 0 .2 .1 3"'
    text = f"""<mujoco><asset><mesh name="a" {vertex}/></asset><worldbody><body><freejoint/><geom type="sdf" mesh="a"/></body>
    <geom size=".1"/></worldbody></mujoco>"""
    spec = xsim.parse_text(text, "mjcf", rules="4.0")
    xsim.write(spec, tmp_path / "a.xml")
    again = xsim.parse_text((tmp_path / "a.xml").read_text(), "mjcf", rules="4.0")
    assert again.bodies[0].geoms[0].shape == "sdf" and again.meshes[0].sdf is None
    np.testing.assert_allclose(again.meshes[0].vertices, spec.meshes[0].vertices, atol=1e-7)
