"""Models that differ between environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim import models
from xsim.model.selectors import row_names, select
from xsim.randomize import DISTRIBUTIONS, Sampler, make_sampler, randomize, read_ranges
from xsim.spec import BodySpec, JointSpec

KEY = jax.random.key(7)
NUM = 300


@pytest.fixture(scope="module")
def spec():
    return xsim.parse(models.path("chain"))


@pytest.fixture(scope="module")
def chain(spec):
    return xsim.build(spec)


@pytest.fixture(scope="module")
def sampled(chain):
    return randomize(chain, KEY, NUM)


def _one(model, path, entry, num=NUM, **options):
    return np.asarray(randomize(model, KEY, num, {path: entry}, axes=False, positions=False, **options).get(path.partition("[")[0]))


@pytest.mark.slow
def test_axes_and_positions(chain, sampled):
    changed = {p for p in chain.paths() if sampled.get(p).shape != chain.shape(p)}
    assert changed == {"joint.axes", "body.pos"}
    assert all(sampled.get(p) is chain.get(p) for p in chain.paths() if p not in changed), "shared leaves are not copied"
    axes = np.asarray(sampled.get("joint.axes"))
    np.testing.assert_allclose(np.linalg.norm(axes, axis=-1), 1, atol=1e-6)
    assert np.abs(axes[:, 0].mean(0)).max() < 4 / np.sqrt(3 * NUM), "isotropic"
    tip = chain.topology.bodies[chain.body_names.index("tip")].joint.axes
    # Nearly parallel draws lose digits when the second is made perpendicular.
    np.testing.assert_allclose(np.sum(axes[:, tip[0]] * axes[:, tip[1]], -1), 0, atol=1e-4)
    pos = np.asarray(sampled.get("body.pos"))
    for i, b in enumerate(chain.topology.bodies):
        if b.pos_min is None:
            np.testing.assert_array_equal(pos[:, i], np.broadcast_to(chain.get("body.pos")[i], (NUM, 3)))
        else:
            low, high = np.float32(b.pos_min), np.float32(b.pos_max)
            assert (pos[:, i] >= low).all() and ((pos[:, i] < high) | (low == high)).all()
            np.testing.assert_allclose(pos[:, i].mean(0), (low + high) / 2, atol=4 * (high - low).max() / np.sqrt(12 * NUM))


@pytest.mark.parametrize("num", [1, 5, 16])
def test_an_environment_does_not_depend_on_how_many_there_are(chain, sampled, num):
    few = randomize(chain, KEY, num)
    for path in ("joint.axes", "body.pos"):
        np.testing.assert_array_equal(few.get(path), sampled.get(path)[:num])
    truncated = {"normal": [1.0, 0.1], "limit": [0.5, 1.5], "relative": "scale"}  # its code depends on how many there are
    few, many = (_one(chain, "body.pos", truncated, n) for n in (num, 4096))
    np.testing.assert_array_equal(few, many[:num])


def test_equal_ranges_are_compiled_once(chain, monkeypatch):
    """Of models of one kind, with numbers and keys of their own."""
    traced, sample = [], Sampler.sample
    monkeypatch.setattr(Sampler, "sample", lambda *args: traced.append(1) or sample(*args))
    for factor in (1.0, 2.0):
        model = chain.replace({"dof.damping": chain.get("dof.damping") * factor})
        for seed in range(2):
            ranges = {"dof.damping": {"uniform": [0.25, 2.0], "relative": "scale"}, "option.gravity": {"uniform": [0, 1], "shared": True}}
            out = randomize(model, jax.random.key(seed), 3, ranges)
            relative = np.asarray(out.get("dof.damping")) / np.asarray(model.get("dof.damping"))
            assert (relative >= 0.25).all() and (relative < 2).all() and out.get("option.gravity").shape == (3,)
    assert len(traced) == 1


@pytest.mark.slow
def test_an_environment_does_not_depend_on_other_bodies_or_entries(spec):
    ranges = {"geom.mass": {"uniform": [0.5, 2], "relative": "scale"}, "dof.damping": {"log_uniform": [0.1, 1]}}
    extra = BodySpec("extra", -1, JointSpec("rr"))
    shifted = tuple(BodySpec(**{**vars(b), "parent": b.parent + 1 if b.parent >= 0 else -1}) for b in spec.bodies)
    a = randomize(xsim.build(spec), KEY, 3, ranges)
    b = randomize(xsim.build(spec.replace(bodies=(extra, *shifted))), KEY, 3, {"option.gravity": {"normal": [0, 1]}, **ranges})
    for path, added in {"joint.axes": 1, "body.pos": 1, "dof.damping": 1, "geom.mass": 0}.items():
        np.testing.assert_array_equal(a.get(path), b.get(path)[:, added:], err_msg=path)


def test_jit(chain, sampled):
    inside = jax.jit(lambda key: randomize(chain, key, 5).get("body.pos"))(KEY)
    np.testing.assert_allclose(inside, sampled.get("body.pos")[:5], rtol=1e-6)


def test_distributions(chain):
    nominal = np.asarray(chain.get("dof.damping"))
    x = _one(chain, "dof.damping", {"uniform": [0.5, 2.0], "relative": "scale"})
    ratio = x / nominal
    assert x.shape == (NUM, chain.nv) and (ratio >= 0.4999).all() and (ratio <= 2.0001).all()
    assert abs(ratio.mean() - 1.25) < 4 * 1.5 / np.sqrt(12 * ratio.size) and np.unique(ratio).size == ratio.size
    x = np.log(_one(chain, "dof.damping", {"log_uniform": [0.1, 10.0]}))
    assert np.abs(x).max() <= np.log(10.0) + 1e-6 and abs(x.mean()) < 4 * np.log(100) / np.sqrt(12 * x.size)
    x = _one(chain, "option.gravity", {"normal": [0.0, 0.1], "relative": "offset"}) - np.asarray(chain.get("option.gravity"))
    assert x.shape == (NUM, 3) and abs(x.std() - 0.1) < 0.01
    x = _one(chain, "geom.mass", {"normal": [1.0, 1.0], "limit": [0.2, 1.5]})
    assert x.min() >= np.float32(0.2) and x.max() <= 1.5 and x.max() - x.min() > 1


@pytest.mark.slow
def test_selector_per_and_shared(chain):
    imus = [i for i, n in enumerate(chain.body_names) if n.startswith("imu")]
    x = _one(chain, "body.pos[imu*]", {"uniform": [[1, 2, 3], [2, 3, 4]]}) - np.array([1, 2, 3])
    assert (x[:, imus] >= 0).all() and (x[:, imus] <= 1).all()
    others = np.array([i for i in range(len(chain.body_names)) if i not in imus])
    kept = np.broadcast_to(chain.get("body.pos")[others], (NUM, len(others), 3))
    np.testing.assert_allclose(x[:, others] + np.array([1, 2, 3]), kept, atol=1e-6)
    nominal = np.asarray(chain.get("dof.damping"))

    def different(per):
        factors = _one(chain, "dof.damping", {"uniform": [1, 2], "relative": "scale", "per": per}, 1)[0] / nominal
        return np.unique(np.round(factors, 5)).size

    assert (different("number"), different("body"), different("leaf")) == (7, 4, 1)
    sizes = _one(chain, "geom.size[upper]", {"uniform": [1, 2], "relative": "scale", "per": "row"}, 2)
    np.testing.assert_allclose(sizes[0, 0] / chain.get("geom.size")[0], (sizes[0, 0] / chain.get("geom.size")[0])[0], rtol=1e-6)
    shared = _one(chain, "geom.mass", {"uniform": [1, 2], "shared": True})
    assert shared.shape == chain.shape("geom.mass") and (shared >= 1).all()


def test_selectors(chain):
    """By name, by index where no row has that name, by column; ranges apply to whole rows. Options have indices alone."""
    tip = chain.body_names.index("tip")
    rows = lambda selector: {path: x.tolist() for path, x in select(chain, selector).items()}  # noqa: E731
    assert rows("body.pos[tip]") == rows(f"body.pos[{tip}]") == {"body.pos": [3 * tip, 3 * tip + 1, 3 * tip + 2]}
    assert rows("body.*[tip, 1]")["body.pos"] == [3 * tip + 1]
    assert rows("option.gravity[2]") == {"option.gravity": [2]} and rows("option.dt") == {"option.dt": [0]}
    with pytest.raises(ValueError, match="no column '3' in a row of shape"):
        select(chain, "body.pos[tip, 3]")
    upper = row_names(chain, "geom.mass").index("upper")
    by_name, by_index = (make_sampler(chain, {f"geom.mass[{x}]": {"uniform": [1, 2]}}).parts[0] for x in ("upper", upper))
    assert by_index.rows.tolist() == [upper] == by_name.rows[:1].tolist() and by_index.entry.numbers == by_name.entry.numbers
    for selector in ("body.pos[tip, 1]", "option.gravity[2]"):
        with pytest.raises(ValueError, match="ranges apply to rows of shape"):
            make_sampler(chain, {selector: {"uniform": [1, 2]}})


def test_the_function_hides_its_package_as_an_attribute_alone():
    """``xsim.randomize`` is the function; modules of the package are imported by name all the same."""
    import importlib

    assert xsim.randomize is randomize and importlib.import_module("xsim.randomize.sampler").randomize is randomize


def test_a_later_entry_counts(chain):
    both = randomize(chain, KEY, 2, {"geom.mass": {"uniform": [1, 2]}, "geom.mass[tip]": {"uniform": [7, 8]}}).get("geom.mass")
    first = randomize(chain, KEY, 2, {"geom.mass": {"uniform": [1, 2]}}).get("geom.mass")
    is_tip = np.array([g.body == chain.body_names.index("tip") for g in chain.topology.geoms if g.row is not None])
    assert (both[:, is_tip] >= 7).all() and is_tip.any()
    np.testing.assert_array_equal(both[:, ~is_tip], first[:, ~is_tip])


def test_rotations(chain):
    quat = np.asarray(randomize(chain, KEY, NUM, "sensors").get("body.quat"))
    np.testing.assert_allclose(np.linalg.norm(quat, axis=-1), 1, atol=1e-6)
    angle = 2 * np.arccos(np.clip(np.abs(quat[:, 1] @ np.asarray(chain.get("body.quat")[1])), 0, 1))
    assert abs(np.sqrt(np.mean(angle**2)) - 0.1 * np.sqrt(3)) < 0.02


@pytest.mark.parametrize("name, base", [("mild", "chain"), ("strong", "chain"), ("sensors", "chain"), ("mechanisms", "four_bar")])
def test_bundled_ranges(name, base):
    base = xsim.load(models.path(base))
    model = randomize(base, KEY, 2, name)
    assert any(model.get(p).shape != base.shape(p) for p in base.paths())
    for path in ("geom.mass", "dof.damping", "dof.armature", "dof.stiffness"):
        assert (np.asarray(model.get(path)) >= 0).all()


def test_yaml(chain, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("axes: false\npositions: false\n'dof.*[middle]': {uniform: [0.5, 0.6], relative: scale}\n")
    model = randomize(chain, KEY, 2, file)
    assert {p for p in chain.paths() if model.get(p).shape != chain.shape(p)} == {"dof.damping", "dof.armature", "dof.stiffness"}
    assert make_sampler(chain, file, axes=True).joints, "a keyword outranks the file"
    assert dict(read_ranges(str(file)))["axes"] is False


def test_ranges_of_a_model_that_differs_already(chain):
    base = chain.replace({"geom.mass": jnp.arange(1.0, 28.0).reshape(3, 9)})
    scaled = randomize(base, KEY, 3, {"geom.mass": {"uniform": [2, 2], "relative": "scale"}}).get("geom.mass")
    np.testing.assert_allclose(scaled, 2 * base.get("geom.mass"))
    with pytest.raises(ValueError, match="differs between environments"):
        randomize(base, KEY, 4, {"geom.mass": {"uniform": [2, 2]}})


def test_sampled_parameters_of_users_joint(spec):
    from xsim import GeneralJoint, JointType, Parameter, register_joint

    def pose(q, p):
        return jnp.array([1.0, 0, 0, 0]), q[0] * p["slope"]

    register_joint(JointType("test_ramp", (GeneralJoint(1, 1, pose),), {"slope": Parameter((3,), (1.0, 0, 0), sample="sphere")}))
    model = xsim.build(spec.replace(bodies=(*spec.bodies, BodySpec("ramp", -1, JointSpec("test_ramp")))))
    slope = randomize(model, KEY, 4).get("joint.params.test_ramp.slope")
    assert slope.shape == (4, 1, 3) and np.unique(slope).size == 12


BAD = {
    "unknown leaf": ({"dof.dampin": {"uniform": [1, 2]}}, KeyError, "did you mean 'dof.damping'"),
    "unknown body": ({"dof.damping[midle]": {"uniform": [1, 2]}}, KeyError, "did you mean 'middle'"),
    "body of an option": ({"option.dt[tip]": {"uniform": [1, 2]}}, KeyError, "no row is named 'tip'"),
    "unknown key": ({"dof.damping": {"unifrom": [1, 2]}}, KeyError, "did you mean 'uniform'"),
    "no distribution": ({"dof.damping": {"relative": "scale"}}, ValueError, "exactly one"),
    "not a mapping": ({"dof.damping": 3}, ValueError, "expected a mapping"),
    "unknown relative": ({"dof.damping": {"uniform": [1, 2], "relative": "scales"}}, ValueError, "did you mean 'scale'"),
    "order": ({"dof.damping": {"uniform": [2, 1]}}, ValueError, "ascending"),
    "one number": ({"dof.damping": {"uniform": [2]}}, ValueError, "two numbers"),
    "not finite": ({"dof.damping": {"uniform": [0, float("inf")]}}, ValueError, "finite"),
    "log of zero": ({"dof.damping": {"log_uniform": [0, 1]}}, ValueError, "positive"),
    "negative mass": ({"geom.mass": {"normal": [1, 0.1]}}, ValueError, "not negative"),
    "negative scale": ({"geom.mass": {"uniform": [-1, 1], "relative": "scale"}}, ValueError, "not negative"),
    "negative offset": ({"geom.mass": {"uniform": [-0.5, 1], "relative": "offset"}}, ValueError, "not negative"),
    "zero step": ({"option.dt": {"uniform": [0, 1]}}, ValueError, "positive"),
    "orientation": ({"body.quat": {"uniform": [0, 1]}}, ValueError, "rotate"),
    "rotated mass": ({"geom.mass": {"uniform": [0, 1], "relative": "rotate"}}, ValueError, "rotate"),
    "shape": ({"body.pos": {"uniform": [[0, 0], [1, 1]]}}, ValueError, "do not fit"),
    "no such numbers": ({"body.mass": {"uniform": [1, 2]}}, ValueError, "no such numbers"),
    "switch": ({"axes": "yes"}, ValueError, "true or false"),
    "name": ("stron", FileNotFoundError, "did you mean 'strong'"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(chain, case):
    ranges, error, text = BAD[case]
    with pytest.raises(error, match=text):
        make_sampler(chain, ranges)


ELEMENTS = """
chrono-version: 9.0
model:
  name: elements
  bodies:
    - {name: ground, fixed: true, location: [0, 0, 0]}
    - {name: a, location: [1, 0, 0], mass: 1.0, inertia: {moments: [0.05, 0.04, 0.03]}}
    - {name: b, location: [2, 0, 0], mass: 1.0, inertia: {moments: [0.05, 0.04, 0.03]}}
  joints:
    - name: mount
      type: lock
      body1: a
      body2: b
      location: [1.5, 0, 0]
      bushing_data: {stiffness_linear: 100, damping_linear: 2, stiffness_rotational: 5, damping_rotational: 0.1}
  constraints:
    - {name: rod, type: DISTANCE, body1: ground, body2: a, point1: [0, 0, 0], point2: [1, 0, 0]}
  tsdas:
    - {name: elastic, body1: ground, body2: a, point1: [0, 0, 1], point2: [1, 0, 0], spring_coefficient: 3, free_length: 1}
    - {name: damped, body1: ground, body2: a, point1: [0, 0, 1], point2: [1, 0, 0], damping_coefficient: 4}
    - {name: stopped, body1: ground, body2: a, point1: [0, 0, 1], point2: [1, 0, 0], spring_coefficient: 5, free_length: 1,
       minimum_length: 0.5, maximum_length: 2}
    - {name: curved, body1: ground, body2: b, point1: [0, 0, 1], point2: [2, 0, 0], free_length: 1,
       spring_curve_data: [[-1, -2], [0, 0], [1, 3]], damping_curve_data: [[-1, -1], [1, 1]]}
    - {name: mapped, body1: a, body2: b, point1: [1, 0, 0], point2: [2, 0, 0], deformation: [0.5, 1, 1.5],
       map_data: [[-1, -3, -2, -1], [1, 3, 2, 1]]}
  rsdas:
    - {name: torsion, body1: ground, body2: b, axis: [0, 0, 1], spring_coefficient: 6, damping_coefficient: 7, free_angle: 0}
  body_loads:
    - {name: push, type: FORCE, body: b, load: [1, 2, 3], local_load: false, point: [0, 0, 0], local_point: true}
"""


def test_rows_of_constraints_forces_and_functions_have_their_names():
    model = xsim.loads(ELEMENTS, "chrono")
    names = {path: row_names(model, path) for path in model.paths()}
    for path, found in names.items():
        assert len(found) == (1 if path.startswith("option.") else model.shape(path)[0]), path
    assert names["constraint.pos1"] == ["rod"]
    assert names["force.pos1"] == ["mount", "elastic", "damped", "stopped", "curved", "mapped", "torsion", "push"]
    assert names["force.rest"] == ["elastic", "damped", "stopped", "curved", "mapped", "torsion"]
    assert names["force.stiffness"] == ["mount"] * 6 + ["elastic", "stopped", "torsion"]
    assert names["force.damping"] == ["mount"] * 6 + ["damped", "torsion"]
    assert names["force.stop"] == ["stopped"] and names["force.map"] == ["mapped"] * 11 and names["force.vector"] == ["push"]
    assert names["function.numbers"] == ["curved spring"] * 6 + ["curved damper"] * 4
    # The name leads to the number of this very element, here and in identification.
    for name, value in (("elastic", 3.0), ("stopped", 5.0), ("torsion", 6.0)):
        assert float(model.force.stiffness[names["force.stiffness"].index(name)]) == value
    ranges = {"force.stiffness[mount]": {"uniform": [1.0, 2.0]}, "*.damping[torsion]": {"uniform": [8.0, 9.0]}}
    sampled = randomize(model, jax.random.key(0), 3, ranges)
    np.testing.assert_array_equal(sampled.force.stiffness[:, 6:], np.tile(model.force.stiffness[6:], (3, 1)))
    assert (sampled.force.stiffness[:, :6] < 2).all() and (sampled.force.damping[:, 7] >= 8).all()
    assert (sampled.force.damping[:, :7] == model.force.damping[:7]).all()


RELATED = """<mujoco><option density="1"/>
<worldbody><geom type="plane" size="1 1 1"/><body name="a" pos="0 0 1"><joint name="j" frictionloss="1" limited="true" range="0 1"/>
  <geom name="g" size=".1" fluidshape="ellipsoid"/><site name="s"/></body>
  <body name="b" pos="1 0 1"><freejoint/><geom name="h" size=".1"/></body>
  <flexcomp name="sheet" type="grid" dim="2" count="3 3 1" spacing=".1 .1 .1" radius=".01" mass="1" pos="0 0 2">
    <elasticity young="100" poisson="0.1" thickness="0.01"/><edge equality="true" damping=".1"/></flexcomp></worldbody>
<contact><pair geom1="g" geom2="h"/></contact>
<tendon><fixed name="t" range="0 1" limited="true" frictionloss="1"><joint joint="j" coef="2"/></fixed></tendon>
<equality><connect name="pin" body1="a" body2="b" anchor="0 0 0"/><weld name="glue" body1="a" body2="b" relpose="1 0 0 1 0 0 0"/>
  <joint name="bend" joint1="j"/><tendon name="stretch" tendon1="t"/></equality>
<actuator><general name="m" joint="j" ctrlrange="0 1" forcerange="0 1"/></actuator></mujoco>"""


def test_rows_of_mjcf_have_their_names():
    """Of every leaf as many names as it has rows."""
    model = xsim.loads(RELATED, "mjcf")
    names = {path: row_names(model, path) for path in model.paths() if not path.startswith("option.")}
    assert {path: len(found) for path, found in names.items()} == {path: model.shape(path)[0] for path in names}
    assert names["equality.anchor"] == ["pin", "glue"] and names["equality.polynomial"] == ["bend", "stretch"]
    assert names["flex.thickness"] == names["flex.radius"] == names["flex.young"] == names["flex.edge_stiffness"] == ["sheet"]
    assert names["pair.friction"] == ["a", "sheet"] and "sheet" in names["surface.friction"] and names["tendon.coefficient"] == ["t"]


def test_frozen_leaves_raise(chain):
    frozen = chain.freeze("joint.axes", "geom.mass")
    with pytest.raises(ValueError, match="joint.axes is frozen.*axes=False"):
        make_sampler(frozen)
    with pytest.raises(ValueError, match="geom.mass is frozen"):
        make_sampler(frozen, {"geom.mass": {"uniform": [1, 2]}}, axes=False)
    assert make_sampler(frozen, axes=False).varying == ("body.pos",)


def test_negative_offset_of_a_traced_leaf(chain):
    entry = {"uniform": [-0.001, 1], "relative": "offset"}

    def mass(nominal):
        return randomize(chain.replace({"geom.mass": nominal}), KEY, 2, {"geom.mass": entry}).get("geom.mass")

    with pytest.raises(ValueError, match="traced"):
        jax.jit(mass)(chain.get("geom.mass"))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_degenerate_range_is_a_constant(chain, name):
    numbers = {"uniform": [2, 2], "log_uniform": [2, 2], "normal": [2, 0]}[name]
    np.testing.assert_allclose(_one(chain, "option.gravity", {name: numbers}, 2), 2, rtol=1e-6)
