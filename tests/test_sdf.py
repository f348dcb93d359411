"""Signed distance functions (geoms of type sdf): masses and contacts against MuJoCo 3.2.7 and 4.0.0 in float64, derivatives, batches, and
what is read and refused.

`reference/make_sdf.py` records the numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_gradients import check_both_modes
from traced import by_numpy

import xsim
from xsim.dynamics.collide.distance_functions import DistanceFunction, gradient
from xsim.dynamics.collide.sdf import RADIAL_BOX, SIMPLE, halton
from xsim.io.errors import ParseError
from xsim.io.mjcf.sdf_meshes import marching_cubes
from xsim.registry import DISTANCE_FUNCTIONS, ConfigKey
from xsim.spatial import safe_norm

FOLDER = Path(__file__).parent / "reference"
RECORDED = {release: json.loads((FOLDER / f"sdf_{release.replace('.', '_')}.json").read_text()) for release in ("3.2", "4.0")}
SHAPES = tuple(RECORDED["4.0"])
SLOW = pytest.mark.slow
OTHERS = ("ring", "sphere", "capsule", "ellipsoid", "cylinder", "box")
NIGHTLY = pytest.mark.nightly
CASES = [pytest.param("4.0", "torus", ("sphere",)), pytest.param("4.0", "torus", OTHERS, marks=SLOW)]
CASES += [pytest.param(r, n, OTHERS, marks=NIGHTLY) for r in RECORDED for n in SHAPES if (r, n) != ("4.0", "torus")]
RAY, NORMAL = 1e-6, 1e-5
MASSES = {"3.2": 1e-6, "4.0": 1e-9}
"""Relative. MuJoCo 3.2 computes with vertices in single precision; the bowl of 4.0 has 2 of 63636 vertices less."""


@pytest.mark.parametrize(("release", "name"), [pytest.param(r, n, marks=() if n == "gear" else SLOW) for r in RECORDED for n in SHAPES])
def test_masses(release, name):
    """Of the mesh of marching cubes, about its centre in 3.2 and as if that were the origin in 4.0."""
    spec = xsim.parse(FOLDER / "sdf" / f"{name}.xml", rules=release)
    recorded = RECORDED[release][name]
    for mesh, mass, inertia in zip(spec.meshes, recorded["mass"], recorded["inertia"], strict=True):
        np.testing.assert_allclose(1000 * mesh.volume, mass, rtol=MASSES[release])
        np.testing.assert_allclose(1000 * mesh.volume * mesh.moments, inertia, rtol=MASSES[release])
        assert np.any(mesh.pos) == (release == "3.2")


def model_with(release: str, name: str, others: tuple[str, ...]) -> tuple[xsim.Model, xsim.State]:
    """The model of the signed distance function and these geoms alone, and its recorded states."""
    spec, recorded = xsim.parse(FOLDER / "sdf" / f"{name}.xml", rules=release), RECORDED[release][name]
    kept = [i for i, body in enumerate(spec.bodies) if body.geoms[0].name in (*others, "sdf")]
    world = spec.world_geoms if "plane" in others else ()
    spec = spec.replace(bodies=tuple(spec.bodies[i] for i in kept), world_geoms=world)
    model = xsim.with_contact_limit(xsim.build(spec), 1000)
    poses = jnp.asarray(recorded["q"]).reshape(-1, len(OTHERS) + 1, 7)[:, np.array(kept)]
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(poses), *x.shape)), xsim.init(model))
    return model, dataclasses.replace(start, q=poses.reshape(len(poses), -1))


@pytest.mark.parametrize(("release", "name", "others"), CASES)
def test_contacts(release, name, others, x64):
    """As many contacts of each pair, at the same places.

    Where the function cannot decrease any more, rounding decides between steps that differ by up to 1e-4 m, and in the middle of a box
    between directions. MuJoCo takes differences of 1e-8 for derivatives. In 3.2 the search starts in a frame of single precision. So most
    contacts agree to rounding (the median to 1e-6; the torus of 4.0 to 1e-11), three in four to 2e-4."""
    recorded = RECORDED[release][name]
    model, state = model_with(release, name, others)
    found = by_numpy(xsim.contacts)(model, state)
    names, errors = np.array([geom.name for geom in model.topology.geoms]), []
    for k, wanted in enumerate(recorded["contacts"]):
        pairs = [set(pair) - {"sdf"} for pair in names[np.asarray(found.geoms[k])].tolist()]
        ours = np.concatenate([found.distance[k][:, None], found.point[k], found.frame[k][:, 0]], 1)
        for other in others:
            rows = ours[np.array([pair == {other} for pair in pairs]) & np.asarray(found.active[k])]
            expected = np.array(wanted.get(other, np.zeros((0, 7))))
            assert abs(len(rows) - len(expected)) <= (other == "box"), (k, other)
            if len(rows):
                errors += np.abs(rows - expected[:, None]).max(-1).min(1).tolist()
    assert np.median(errors) < (1e-11 if (release, name) == ("4.0", "torus") else 1e-4 if release == "3.2" else 1e-6)
    assert np.quantile(errors, 0.75) < 2e-4


@SLOW
@pytest.mark.parametrize("name", SHAPES)
def test_contacts_with_planes(name, x64):
    """The deepest vertex of the mesh, and others of its face; MuJoCo 4.0."""
    model, state = model_with("4.0", name, ("plane",))
    found = by_numpy(xsim.contacts)(model, state)
    for k, wanted in enumerate(RECORDED["4.0"][name]["contacts"]):
        rows = np.asarray(found.distance[k])[np.asarray(found.active[k])]
        assert (len(rows) > 0) == ("plane" in wanted)
        if len(rows):
            assert abs(np.min(rows) - np.min(np.array(wanted["plane"])[:, 0])) < 1e-9


# ---- functions -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "name"), [
    pytest.param(r, n, marks=() if (r, n) in (("3.2", "torus"), ("4.0", "bolt")) else SLOW) for r in RECORDED for n in SHAPES
])  # fmt: skip
def test_rays(release, name, x64):
    """Rangefinders, also from inside, and the outer normals that 4.0 adds. Places and sizes of meshes differ by single precision."""
    recorded = json.loads((FOLDER / f"sdf_rays_{release.replace('.', '_')}.json").read_text())[name]
    model = xsim.loads(recorded["model"], "mjcf", rules=release)
    found, wanted = by_numpy(xsim.sensors)(model, xsim.init(model)), np.array(recorded["sensors"])
    width = 1 if release == "3.2" else 4
    np.testing.assert_allclose(found[::width], wanted[::width], atol=RAY)
    np.testing.assert_allclose(found, wanted, atol=NORMAL)


@pytest.mark.slow
def test_derivatives_of_rays(ring, x64):
    """Of distances and normals with respect to poses and numbers, in a batch; one ray starts inside, one misses."""
    places = ".3 .2 1", ".36 0 -.02", "2 2 2"
    sites = "".join(f'<site name="s{i}" pos="{pos}" zaxis=".01 .02 -1"/>' for i, pos in enumerate(places))
    sensors = "".join(f'<rangefinder site="s{i}" data="dist normal"/>' for i in range(len(places)))
    world = f"<worldbody>{sites}" + text().split("<worldbody>")[1].replace("</mujoco>", f"<sensor>{sensors}</sensor></mujoco>")
    model = xsim.loads(text().split("<worldbody>")[0] + world, "mjcf", rules="4.0")
    rng, count = np.random.default_rng(3), 2
    weights = rng.normal(size=4 * len(places))
    q = np.asarray(xsim.init(model).q) + 0.01 * rng.normal(size=(count, model.nq))
    point = {"q": q, "geom.sdf": np.asarray(model.get("geom.sdf")) * rng.uniform(0.98, 1.02, (count, *model.shape("geom.sdf")))}

    def loss(point):
        m = model.replace({"geom.sdf": point["geom.sdf"]})
        return xsim.sensors(m, xsim.init(m, point["q"])) @ weights

    reverse = check_both_modes(loss, point, 2, {"default": 1e-6}, 1e-6)
    assert np.any(reverse["geom.sdf"]) and np.any(reverse["q"])


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_functions(name, x64):
    """Against central differences, at points where the function is smooth."""
    function, rng = DISTANCE_FUNCTIONS[f"mujoco.sdf.{name}"], np.random.default_rng(0)
    numbers = function.named([x for key in function.config.values() for x in key.default])
    points = rng.uniform(-1, 1, (200, 3)) * function.box([x for key in function.config.values() for x in key.default])
    distance = lambda *p: function.distance(p, numbers)  # noqa: E731
    _, slope = gradient(lambda p: distance(*p), tuple(jnp.asarray(points.T)))
    steps = 1e-6 * np.eye(3)
    wanted = [(distance(*(points + s).T) - distance(*(points - s).T)) / 2e-6 for s in steps]
    finer = [(distance(*(points + s / 8).T) - distance(*(points - s / 8).T)) / 2.5e-7 for s in steps]
    smooth = np.abs(np.array(wanted) - np.array(finer)).max(0) < 1e-7
    assert smooth.mean() > 0.9
    assert np.abs(np.array(slope) - np.array(wanted))[:, smooth].max() < 1e-6


@pytest.mark.parametrize("name", [*SIMPLE, "radial box"])
def test_gradients_of_simple_shapes(name, x64):
    """They point where the distance grows, with unit length; those of distances that are exact are derivatives."""
    shape, size = SIMPLE.get(name, RADIAL_BOX), (0.3, 0.4, 0.5)
    points = np.random.default_rng(0).uniform(-0.8, 0.8, (3, 300))
    distance, slope = shape.gradient(tuple(jnp.asarray(points)), size)
    np.testing.assert_allclose(shape.distance(tuple(points), size), distance, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(slope, axis=0), 1.0, atol=1e-9)
    moved = shape.distance(tuple(points + 1e-6 * np.array(slope)), size)
    assert (moved > distance).all()
    outside = np.abs(points) > np.array(shape.half(size))[:, None]
    if name != "ellipsoid":
        np.testing.assert_allclose((moved - distance)[outside.any(0)], 1e-6, rtol=1e-4)


def test_halton():
    assert [halton(i, 2) for i in range(5)] == [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8]
    np.testing.assert_allclose([halton(i, 3) for i in range(5)], [0, 1 / 3, 2 / 3, 1 / 9, 4 / 9])


def test_marching_cubes():
    """A random surface is closed and turned outwards: the volume inside is positive and near the number of points inside."""
    distances = np.full((12, 12, 12), 1.0, np.float32)
    distances[1:-1, 1:-1, 1:-1] = np.random.default_rng(0).normal(size=(10, 10, 10))
    vertices, faces = marching_cubes(distances)
    edges = np.stack([faces, np.roll(faces, -1, 1)], -1).reshape(-1, 2)
    assert len(np.unique(edges, axis=0)) == len(edges)  # each edge once in each direction
    assert {tuple(e) for e in edges.tolist()} == {tuple(e) for e in edges[:, ::-1].tolist()}
    p = vertices[faces].astype(float)
    volume = np.einsum("fi,fi->", p[:, 0], np.cross(p[:, 1], p[:, 2])) / 6
    assert abs(volume / (distances < 0).sum() - 1) < 0.3


# ---- derivatives, batches, compilers ---------------------------------------------------------------------------------------------

RING = """<mujoco>
  <option sdf_initpoints="4" sdf_iterations="3" timestep="0.002"/>
  <extension><plugin plugin="test.ring"><instance name="ring"/></plugin></extension>
  <asset><mesh name="ring"><plugin instance="ring"/></mesh></asset>
  <worldbody>
    <geom type="sphere" size="0.3" pos="0.25 0.05 -0.33"/>
    <body euler="10 20 35">
      <freejoint/>
      <geom type="sdf" mesh="ring" mass="1"><plugin instance="ring"/></geom>
      <inertial mass="1" pos="0 0 0" diaginertia="0.1 0.1 0.15"/>
    </body>
  </worldbody>
</mujoco>"""


@pytest.fixture(scope="module")
def ring():
    """A model of a function of one's own: CONTRIBUTING.md has the same."""
    if "test.ring" not in DISTANCE_FUNCTIONS:

        def distance(p, numbers):
            """A torus about the z axis."""
            return safe_norm((safe_norm(p[:2]) - numbers["radius"], p[2])) - numbers["tube"]

        def half_extents(numbers):
            across = numbers["radius"] + numbers["tube"]
            return across, across, numbers["tube"]

        config = {"radius": ConfigKey((0.35,), low=(0.0,), above=True), "tube": ConfigKey((0.15,), low=(0.0,), above=True)}
        DISTANCE_FUNCTIONS.register("test.ring", DistanceFunction(distance, half_extents, config))
    return xsim.parse_text(RING, "mjcf", rules="4.0")


@SLOW
def test_gradients_of_steps(ring, x64):
    """With respect to the state and to the numbers of the function, against central differences."""
    model = xsim.build(ring)
    state, weights = xsim.init(model), np.random.default_rng(0).normal(size=model.nv)

    def end(q, numbers):
        after = xsim.step(model.replace({"geom.sdf": numbers}), state.replace(q=q))
        return (weights * after.v).sum()

    q, numbers = np.array(state.q), np.array(model.get("geom.sdf"))
    assert (np.asarray(by_numpy(xsim.contacts)(model, state).active)).sum() >= 2
    found = by_numpy(jax.grad(end, argnums=(0, 1)))(q, numbers)
    value = by_numpy(end)
    for which, (x, slope) in enumerate(zip((q, numbers), found, strict=True)):
        assert np.abs(slope).max() > 1e-3
        for i in range(len(x)):
            change = 1e-6 * np.eye(len(x))[i]
            ends = [value(*(a + s * change if k == which else a for k, a in enumerate((q, numbers)))) for s in (1, -1)]
            wanted = (ends[0] - ends[1]) / 2e-6
            assert abs(slope[i] - wanted) < 1e-6 * max(1.0, abs(wanted)), (which, i, slope[i], wanted)


@pytest.mark.slow
def test_a_batch_of_numbers(ring, x64):
    """Each environment moves as with its numbers alone."""
    model = xsim.build(ring)
    numbers = model.get("geom.sdf") * jnp.array([[1.0], [0.98]])
    step = by_numpy(xsim.step)
    batch = step(model.replace({"geom.sdf": numbers}), xsim.init(model))
    for i in range(2):
        alone = step(model.replace({"geom.sdf": numbers[i]}), xsim.init(model))
        np.testing.assert_allclose(batch.v[i], alone.v, atol=1e-12)
    assert np.abs(batch.v[0] - batch.v[1]).max() > 1e-3


# ---- reading and writing ---------------------------------------------------------------------------------------------------------


def text(mesh='<plugin instance="ring"/>', geom='<plugin instance="ring"/>', config="", attributes="", of_geom='mesh="ring"', more=""):
    extension = f'<extension><plugin plugin="test.ring"><instance name="ring">{config}</instance><instance name="b"/></plugin></extension>'
    asset = f'<asset><mesh name="ring" {attributes}>{mesh}</mesh><mesh name="box" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
    body = f'<body><freejoint/><geom type="sdf" {of_geom}>{geom}</geom></body>'
    return f"<mujoco>{extension}{asset}<worldbody>{body}{more}</worldbody></mujoco>"


SMALL_TUBE = '<config key="tube" value="0.1"/>'


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"geom": ""}, "found sdf without a plugin; allowed: with one, or the rules of 4.0"),
        ({"of_geom": ""}, "mesh"),
        ({"of_geom": 'mesh="box"'}, "has no signed distance function, the geom test.ring"),
        ({"config": SMALL_TUBE, "geom": '<plugin instance="b"/>'}, "ring 0.35 0.1, the geom test.ring 0.35 0.15; allowed: the same"),
        ({"config": '<config key="tube" value="-1"/>'}, "allowed: numbers > 0"),
        ({"config": '<config key="tube" value="x"/>'}, "tube|value"),
        ({"config": '<config key="thickness" value="1"/>'}, "unknown key 'thickness'.*radius, tube"),
        ({"attributes": 'scale="1 1 2"'}, "scale: found beside a signed distance function"),
        ({"attributes": 'vertex="0 0 0 1 0 0 0 1 0 0 0 1"'}, "vertex: found beside a signed distance function"),
        ({"config": '<config key="tube" value="1e-9"/>'}, "grid of test.ring has .* points"),
        ({"mesh": '<plugin instance="ring"/><plugin instance="ring"/>'}, "second <plugin>"),
        ({"mesh": '<plugin plugin="mujoco.sdf.sdflib"/>'}, "'mujoco.sdf.sdflib' is not declared"),
        ({"of_geom": 'mesh="ring" fromto="0 0 0 1 1 1"'}, "fromto"),
    ],
)
def test_refused(parts, match, ring):
    """What is wrong is said in its line; and a function that xsim has not."""
    extension = '<extension><plugin plugin="mujoco.sdf.sdflib"/></extension>'
    of_files = text(mesh='<plugin plugin="mujoco.sdf.sdflib"/>').replace("<asset>", f"{extension}<asset>")
    with pytest.raises(ParseError, match="the mesh needs the plugin 'mujoco.sdf.sdflib', which xsim has for no mesh"):
        xsim.parse_text(of_files, "mjcf")
    with pytest.raises(ParseError, match=match):
        xsim.parse_text(text(**parts), "mjcf")


def test_round_trip(ring, tmp_path):
    spec = xsim.parse_text(text(config=SMALL_TUBE, more='<geom type="sphere" size="1"/>'), "mjcf")
    xsim.write(spec, tmp_path / "ring.xml")
    written = (tmp_path / "ring.xml").read_text()
    assert "vertex" in written and written.count('plugin="test.ring"') == 3
    again = xsim.parse_text(written, "mjcf")
    assert again.meshes[0].sdf == spec.meshes[0].sdf
    np.testing.assert_allclose(again.meshes[0].vertices, spec.meshes[0].vertices)
    assert again.bodies[0].geoms[0].shape == "sdf"
