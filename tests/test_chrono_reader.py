"""The Chrono YAML reader: what each key means, what is refused and how it is said, the corpus, hostile input."""

from __future__ import annotations

import copy
import json
import random
import re
import time
import warnings
from collections.abc import Iterator
from functools import cache

import jax
import mutations
import numpy as np
import pytest
import yaml
from corpus import corpus, models, needs_corpus, oracle
from scipy.spatial.transform import Rotation
from test_perturbation import plain

import xsim
from xsim.io import ParseError, SuspiciousInputWarning, UnsupportedWarning, parse, parse_text
from xsim.joints.types import JOINT_TYPES

HEAVY = "mass: 1, inertia: {moments: [1, 1, 1]}"
GROUND = "name: ground, fixed: true, location: [0, 0, 0]"
A = f"name: a, location: [1, 2, 3], orientation: [90, 0, 0], {HEAVY}"
B = f"name: b, location: [4, 5, 6], {HEAVY}"
C = f"name: c, location: [0, 0, 9], {HEAVY}"
ENDS = "body1: a, body2: b"
AT = f"{ENDS}, location: [1, 1, 1]"


def document(*lines: str, bodies=(GROUND, A, B), version: str = "10.0", **lists) -> str:
    """A model; lists: entries in flow style, one or several."""
    text = f"chrono-version: {version}\nmodel:\n" + "".join(f"  {line}\n" for line in lines)
    for key, entries in {"bodies": bodies, **lists}.items():
        entries = (entries,) if isinstance(entries, str) else entries
        text += f"  {key}:\n" + "".join(f"    - {{{entry}}}\n" for entry in entries)
    return text


def read(*lines: str, strict=False, gravity=None, **lists):
    return parse_text(document(*lines, **lists), "chrono", file="m.yaml", strict=strict, gravity=gravity)


def refused(*lines: str, **lists) -> str:
    return refused_text(document(*lines, **lists))


def refused_text(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        quiet(text, file="m.yaml")
    assert str(caught.value).startswith("m.yaml")
    return str(caught.value)


def quiet(source, **options):
    """Read with the two kinds of notes silenced; every other warning stays an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        warnings.simplefilter("ignore", UnsupportedWarning)
        return parse_text(source, "chrono", **options) if isinstance(source, str) else parse(source, **options)


def only(items):
    (item,) = items
    return item


def matrix(quat) -> np.ndarray:
    return Rotation.from_quat(np.asarray(quat)[[1, 2, 3, 0]]).as_matrix()


def placed(spec) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(R, pos) of all bodies in the world at the neutral configuration, and "" of the world."""
    found = [(np.eye(3), np.zeros(3))]
    for body in spec.bodies:
        R, p = found[body.parent + 1]
        R, p = R @ matrix(body.quat), p + R @ body.pos
        if body.joint.type == "free":
            R, p = R @ matrix(body.joint.q0[3:]), p + R @ body.joint.q0[:3]
        R = R @ matrix(body.joint.quat).T
        found.append((R, p - R @ body.joint.pos))
    return dict(zip(["", *(b.name for b in spec.bodies)], found, strict=True))


def frames(spec, element) -> list[tuple[np.ndarray, np.ndarray]]:
    """(R, pos) of the frames of a constraint or force as drawn."""
    poses = placed(spec)
    found = []
    for body, (pos, quat) in zip(element.bodies, element.frames, strict=True):
        R, p = poses[spec.bodies[body].name]
        found.append((R @ matrix(quat), p + R @ pos))
    return found


def names(spec, element) -> list[str]:
    return [spec.bodies[i].name for i in element.bodies]


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, atol=1e-12)


# ---- the document ------------------------------------------------------------------------------------------------------------


def test_model_and_options():
    spec = read("name: three")
    assert (spec.name, spec.format, spec.option.dt, spec.option.integrator) == ("three", "chrono", 0.001, "linearly_implicit")
    close(spec.option.gravity, [0, 0, -9.8])
    assert read().name == read('name: ""').name == "" and [b.name for b in read().bodies] == ["ground", "a", "b"]
    spec = parse_text(document(), "chrono", gravity=(1, 2, 3), dt=0.01)
    close([*spec.option.gravity, spec.option.dt], [1, 2, 3, 0.01])
    for options in ({"gravity": [1, 2]}, {"gravity": [1, 2, np.nan]}, {"dt": 0.0}, {"dt": np.inf}):
        with pytest.raises(ValueError, match="allowed"):
            parse_text(document(), "chrono", **options)
    assert read(bodies=()).bodies == ()
    assert "bodies: is missing" in refused_text("chrono-version: 9.0\nmodel: {name: x}")


def test_version():
    for version in ("9.0", "10.0", "10.0.3", '"9.1"'):
        read(version=version)
    for version in ("8.0", "11.2"):
        with pytest.warns(SuspiciousInputWarning, match=f"m.yaml:1: chrono-version: {version}"):
            read(version=version)
    for version in ("9", "x", "9.0.0.1", "[9]", "1e3"):
        assert "chrono-version" in refused(version=version)
    assert "chrono-version" in refused_text("model: {bodies: []}") and "model" in refused_text("chrono-version: 9.0")


def test_numbers_booleans_and_words():
    body = only(read(bodies="name: 12e3, location: [7e7, -8e3, .5], mass: +0.35e5, inertia: {moments: [1., 1, '1']}").bodies)
    assert body.name == "12e3" and body.inertial.mass == 35000
    close(body.joint.q0[:3], [7e7, -8e3, 0.5])
    for number in ("nan", ".nan", "inf", ".inf", "1e99", "1_0", "0x10", "x", "[1]", "{}", "~"):
        assert re.search(r"m.yaml:4: bodies 'a': mass: (found|is missing)", refused(bodies=A.replace("mass: 1", f"mass: {number}")))
    for word in ("true", "True", "yes", "on"):
        assert read(bodies=GROUND.replace("true", word)).bodies[0].joint.type == "fixed"
    assert "fixed: found 'maybe'; allowed: true, false" in refused(bodies=GROUND.replace("true", "maybe"))
    for word in ("point-line", "POINT_LINE", "Point Line", "pointline"):
        assert only(read(joints=f"name: j, type: {word}, {AT}").constraints).kind == "point_on_line"


def test_unknown_keys_are_named_once_and_errors_when_strict():
    text = document("gravity: [0, 0, 1]", bodies=(GROUND, A + ", lin_vel: [1, 2, 3], ang_vel: [0, 0, 0], collision_family: 1"))
    with pytest.warns(UnsupportedWarning) as caught:
        parse_text(text, "chrono", file="m.yaml")
    message = str(only(caught).message)
    assert "m.yaml:3: model: key 'gravity' is not read" in message
    for key in ("lin_vel", "ang_vel", "collision_family"):
        assert f"m.yaml:6: bodies 'a': key '{key}' is not read" in message
    with pytest.raises(ParseError, match="strict"):
        parse_text(text, "chrono", strict=True)
    with pytest.warns(UnsupportedWarning, match="key 'axis' is not read"):
        read(joints=f"name: j, type: lock, {AT}, axis: [0, 0, 1]")
    with pytest.warns(UnsupportedWarning, match="model: key 'FEA' is not read"):
        read("FEA: {beams: []}")
    with pytest.warns(UnsupportedWarning, match="document: key 'other' is not read"):
        parse_text(document() + "other: 1\n", "chrono")


def test_names():
    joint = f"name: a, type: lock, {AT}"
    assert only(read(joints=joint).constraints + tuple(b.joint for b in read(joints=joint).bodies if b.joint.name == "a")).name == "a"
    assert "m.yaml:5: bodies 'ground': name: duplicate name (the first is in line 4)" in refused(bodies=(GROUND, GROUND))
    for key, entry in (("joints", joint), ("motors", MOTOR), ("tsdas", TSDA), ("rsdas", RSDA), ("constraints", DISTANCE)):
        assert "duplicate" in refused(**{key: (entry, entry)})
    message = refused(joints=f"name: j, type: lock, {AT}".replace("body2: b", "body2: x"))
    assert "joints 'j': body2: no body is named 'x'; allowed: ground, a, b" in message
    assert "bodies[0]: name: is missing" in refused(bodies="location: [0, 0, 0]")


def test_yaml_that_is_none_is_refused_with_its_place():
    assert re.search(r"m.yaml:3: not valid YAML \(line 3, column 3\)", refused_text("chrono-version: 9.0\nmodel:\n  ]: 1"))
    comma = document(tsdas=TSDA).replace("}\n", "},\n")
    assert "not valid YAML" in refused_text(comma)
    twice = "chrono-version: 9.0\nmodel:\n  bodies:\n  - name: a\n    name: b\n"
    assert "m.yaml:5: duplicate key 'name' (the first is in line 4)" in refused_text(twice)
    assert "merge keys" in refused_text("chrono-version: 9.0\nx: &x {a: 1}\nmodel:\n  <<: *x\n")
    assert "a second document" in refused_text(document() + "---\n" + document())
    for text in ("", "[]", "text", "- a"):
        assert "allowed: a mapping" in refused_text(text)
    assert "tag" in refused_text("model: !!python/object/apply:os.system [ls]")
    assert "not valid YAML" in refused_text("a: \0")
    assert "not Unicode" in refused_text("a: \udc80")
    assert "as a key" in refused_text("? [a]\n: 1\n")
    assert parse_text("\ufeff" + document(), "chrono").bodies
    with pytest.raises(ParseError, match="not Unicode"):
        xsim.io.chrono.read(b"\xff\xfe\xfa", "m.yaml", xsim.io.Notes("m.yaml"))


def test_both_parsers_of_yaml_read_alike(monkeypatch):
    """The one in C and the one in Python: whichever PyYAML was built with."""
    texts = [everything(), document(), "a: [", "a: \0", "a: *b", "x: {a: 1, a: 2}", "? [a]\n: 1\n", "- " * 100_000, "%YAML 9\n---\na: 1"]

    def found() -> list[str]:
        return [plain(quiet(t)) if i < 2 else re.sub(r"(?s)not valid.*", "not valid", refused_text(t)) for i, t in enumerate(texts)]

    before = found()
    monkeypatch.setattr("xsim.io.chrono.document._LOADER", yaml.SafeLoader)
    assert found()[:2] == before[:2] and all("m.yaml" in text for text in found()[2:])


def test_aliases_share_values_but_cannot_grow():
    text = document(bodies=(GROUND, A.replace("{moments", "&i {moments"), B.replace("{moments: [1, 1, 1]}", "*i")))
    assert read(bodies=(GROUND, A)).bodies[1].inertial.mass == 1
    close(parse_text(text, "chrono").bodies[2].inertial.inertia, [1, 1, 1, 0, 0, 0])
    bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 40))
    start = time.perf_counter()
    assert "values" in refused_text(bomb)
    assert "no complete node" in refused_text("a: &a [*a]") and "no complete node" in refused_text("a: *b")
    assert "nested deeper than 100" in refused_text("a: " + "[" * 100_000)
    assert "nested deeper than 100" in refused_text("".join(" " * i + "a:\n" for i in range(1000)))
    assert "nested deeper than 100" in refused_text("- " * 100_000)
    assert time.perf_counter() - start < 30


# ---- simulation and solver files -------------------------------------------------------------------------------------------------

SIMULATION = """chrono-version: 10.0
type: MBS
model: {model}
solver: solver.yaml
output: {{type: NONE}}
visualization: {{render_fps: 60}}
simulation:
  end_time: 20
  gravity: [0, -1.62, 0]
  enforce_realtime: true
"""
SOLVER = "chrono-version: 10.0\ntype: MBS\ncontact_method: SMC\nintegrator: {type: HHT, time_step: 5e-4}\nsolver: {type: PARDISO}\n"


def test_simulation_file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "model.yaml").write_text(document("name: inner"))
    (tmp_path / "solver.yaml").write_text(SOLVER)
    (tmp_path / "sim.yaml").write_text(SIMULATION.format(model="sub/model.yaml"))
    spec = parse(tmp_path / "sim.yaml", strict=True)
    assert (spec.name, spec.option.dt) == ("inner", 5e-4)
    close(spec.option.gravity, [0, -1.62, 0])
    assert spec.bodies[1].source.file.endswith("model.yaml")
    spec = parse(tmp_path / "sim.yaml", gravity=[0, 0, 0], dt=0.1)
    close([*spec.option.gravity, spec.option.dt], [0, 0, 0, 0.1])
    old = "chrono-version: 9.0\nmodel: sub/model.yaml\nsimulation: {time_step: 2e-3, contact_method: NSC, solver: {type: PSOR}}\n"
    (tmp_path / "old.yaml").write_text(old)
    assert parse(tmp_path / "old.yaml").option.dt == 2e-3
    spec = parse_text(document() + "simulation: {time_step: 2e-3, gravity: [1, 2, 3]}\n", "chrono", strict=True)
    close([*spec.option.gravity, spec.option.dt], [1, 2, 3, 2e-3])


def test_simulation_files_name_files_in_their_folder_only(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "model.yaml").write_text(document())
    (inner / "sim2.yaml").write_text("model: sim.yaml")
    (inner / "link.yaml").symlink_to(tmp_path / "model.yaml")
    for name, words in (
        ("../model.yaml", "leads out"), (str(tmp_path / "model.yaml"), "leads out"), ("link.yaml", "leads out"),
        ("none.yaml", "is not a file"), (".", "is not a file"), ("sim2.yaml", "names another file"), ("x" * 5000, "is not a file"),
        ('"\\0"', "file"),
    ):  # fmt: skip
        (inner / "sim.yaml").write_text(f"chrono-version: 10.0\nmodel: {name}\n")
        with pytest.raises(ParseError, match=words):
            parse(inner / "sim.yaml")
    assert "relative to a file" in refused_text("chrono-version: 10.0\nmodel: model.yaml\n")
    (inner / "sim.yaml").write_text("type: VEHICLE\nmodel: model.yaml\n")
    with pytest.raises(ParseError, match="type: unknown value 'VEHICLE'; allowed: MBS"):
        parse(inner / "sim.yaml")


# ---- bodies ------------------------------------------------------------------------------------------------------------------


def test_three_angles_turn_about_z_then_y_then_x():
    wanted = Rotation.from_euler("ZYX", [20, 30, 40], degrees=True).as_matrix()
    body = only(read(bodies=f"name: a, location: [1, 2, 3], orientation: [20, 30, 40], {HEAVY}").bodies)
    close(matrix(body.joint.q0[3:]), wanted)
    close(body.joint.q0[:3], [1, 2, 3])
    angles = ", ".join(map(str, np.deg2rad([20, 30, 40])))
    body = only(read("angle_degrees: false", bodies=f"name: a, location: [1, 2, 3], orientation: [{angles}], {HEAVY}").bodies)
    close(matrix(body.joint.q0[3:]), wanted)


def test_quaternions():
    body = f"name: a, location: [0, 0, 0], orientation: [Q], {HEAVY}"
    close(only(read(bodies=body.replace("Q", "0.8, 0.2, -0.4, 0.4")).bodies).joint.q0[3:], [0.8, 0.2, -0.4, 0.4])
    with pytest.warns(SuspiciousInputWarning, match="bodies 'a': orientation: the quaternion has norm 2"):
        close(only(read(bodies=body.replace("Q", "0, 2, 0, 0")).bodies).joint.q0[3:], [0, 1, 0, 0])
    assert "the quaternion is zero" in refused(bodies=body.replace("Q", "0, 0, 0, 0"))
    assert "found 5 numbers; allowed: 3 or 4" in refused(bodies=body.replace("Q", "1, 0, 0, 0, 0"))


def test_mass_and_inertia_are_turned_to_body_axes():
    """products are Ixy, Ixz, Iyz, entries of the matrix, along the centroidal axes."""
    com = "com: {location: [1, 2, 3], orientation: [30, 0, 0]}"
    text = f"name: a, location: [0, 0, 0], {com}, mass: 2, inertia: {{moments: [3, 4, 5], products: [0.1, 0.2, 0.3]}}"
    inertial = only(read(bodies=text).bodies).inertial
    R = Rotation.from_euler("z", 30, degrees=True).as_matrix()
    I = R @ np.array([[3, 0.1, 0.2], [0.1, 4, 0.3], [0.2, 0.3, 5]]) @ R.T  # noqa: E741
    close(inertial.inertia, [I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]])
    close([inertial.mass, *inertial.com], [2, 1, 2, 3])
    with pytest.warns(SuspiciousInputWarning, match="com: a list is read as the location"):
        close(only(read(bodies=text.replace(com, "com: [1, 2, 3]")).bodies).inertial.com, [1, 2, 3])
    with pytest.warns(SuspiciousInputWarning, match="principal moments 1 1 3.*kept"):
        read(bodies=A.replace("[1, 1, 1]", "[1, 1, 3]"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("mass: 1, ", "", "mass: is missing"), ("mass: 1", "mass: 0", "mass: found 0; allowed: numbers > 0"),
        ("inertia: {moments: [1, 1, 1]}", "com: {}", "inertia: is missing"), ("moments", "products", "moments: is missing"),
        ("[1, 1, 1]", "[1, 1, -1]", "inertia: the matrix has the principal moments -1 1 1"), ("[1, 1, 1]", "[0, 0, 0]", "inertia"),
        ("[1, 1, 1]", "[1, 1]", "moments: found 2 numbers; allowed: 3"), ("[1, 2, 3]", "1 2 3", "location: found '1 2 3'; allowed: a list"),
        ("location: [1, 2, 3], ", "", "location: is missing"), ("{moments: [1, 1, 1]}", "[1, 1, 1]", "inertia: found a list; allowed"),
    ],
)  # fmt: skip
def test_bad_bodies_are_refused(old, new, words):
    assert words in refused(bodies=A.replace(old, new))


def test_fixed_bodies_are_welded_where_they_are_drawn():
    body = only(read(bodies="name: g, fixed: true, location: [1, 2, 3], orientation: [90, 0, 0]").bodies)
    assert (body.joint.type, body.parent, body.inertial.mass) == ("fixed", -1, 0)
    close(body.pos, [1, 2, 3])
    close(matrix(body.quat) @ [1, 0, 0], [0, 1, 0])
    with pytest.warns(SuspiciousInputWarning, match="bodies 'a': mass has no effect: the body is fixed"):
        assert only(read(bodies=A + ", fixed: true").bodies).inertial.mass == 0


def test_initial_velocities():
    """Linear: of the centre of mass, world axes. Angular: centroidal axes, here turned by 90 degrees about z twice."""
    start = "com: {orientation: [90, 0, 0]}, initial_linear_velocity: [1, 2, 3], initial_angular_velocity: [4, 5, 6]"
    spec = read(bodies=(GROUND, f"{A}, {start}", B))
    close(spec.bodies[1].velocity, [1, 2, 3, -4, -5, 6])
    assert spec.bodies[0].velocity is None and spec.bodies[2].velocity is None
    close(only(read(bodies=A + ", initial_linear_velocity: [1, 2, 3]").bodies).velocity, [1, 2, 3, 0, 0, 0])
    with pytest.warns(SuspiciousInputWarning, match="initial_linear_velocity has no effect: the body is fixed"):
        assert read(bodies=f"{GROUND}, initial_linear_velocity: [1, 2, 3]").bodies[0].velocity is None


SHAPES = """{type: BOX, dimensions: [1, 2, 3], location: [1, 0, 0], orientation: [90, 0, 0], color: [1, 0, 0.5]},
  {type: sphere, radius: 2}, {type: CYLINDER, radius: 1, length: 4, axis: [0, -2, 0]}, {type: MESH, filename: f.obj, scale: 2}"""


def test_visualization_shapes_are_drawn_only():
    spec = read("data_path: {type: RELATIVE, root: ../data}", bodies=f"{A}, visualization: {{model_file: m.obj, shapes: [{SHAPES}]}}")
    box, sphere, cylinder, mesh, model = only(spec.bodies).geoms
    assert all(g.visual and not g.collision and g.mass == 0 for g in only(spec.bodies).geoms)
    assert [g.shape for g in (box, sphere, cylinder, mesh, model)] == ["box", "sphere", "cylinder", "mesh", "mesh"]
    close([*box.size, *box.pos, *box.rgba], [0.5, 1, 1.5, 1, 0, 0, 1, 0, 0.5, 1])
    close(matrix(box.quat) @ [1, 0, 0], [0, 1, 0])
    close([*sphere.size, *cylinder.size, *mesh.size], [2, 1, 2, 2, 2, 2])
    close(matrix(cylinder.quat) @ [0, 0, 1], [0, -1, 0])
    assert (mesh.file, model.file) == ("../data/f.obj", "../data/m.obj")
    spec = read("data_path: {type: ABSOLUTE}", bodies=f"{A}, visualization: {{shapes: [{{type: MESH, filename: /f.obj}}]}}")
    assert only(only(spec.bodies).geoms).file == "/f.obj"
    assert "data_path: type: unknown value" in refused("data_path: {type: HERE}")


def test_unknown_shapes_are_noted_and_the_body_stays():
    with pytest.warns(UnsupportedWarning, match="visualization: shapes.0.: type: shape 'TORUS' is not read; allowed: SPHERE, BOX"):
        assert not only(read(bodies=f"{A}, visualization: {{shapes: [{{type: TORUS, radius: x}}]}}").bodies).geoms
    with pytest.warns(SuspiciousInputWarning, match="color.*cut to 0..1"):
        read(bodies=f"{A}, visualization: {{shapes: [{{type: SPHERE, radius: 1, color: [2, 0, 0]}}]}}")


def test_contact_shapes_collide_only():
    materials = "materials: [{name: m, coefficient_of_friction: 0.4, coefficient_of_restitution: 0.1, properties: {Young_modulus: 1e8}}]"
    contact = f"contact: {{{materials}, shapes: [{{type: SPHERE, material: m, radius: 2}}], collision_family: 3}}"
    geom = only(only(read(bodies=f"{A}, {contact}", strict=True).bodies).geoms)
    assert (geom.shape, geom.visual, geom.collision, geom.mass) == ("sphere", False, True, 0.0)
    assert geom.friction == (0.4,) and geom.surface == {"restitution": 0.1, "Young_modulus": 1e8, "collision_family": 3.0}
    assert "no material is named 'x'" in refused(bodies=f"{A}, contact: {{shapes: [{{type: SPHERE, material: x, radius: 2}}]}}")


# ---- joints ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "more", "wanted", "axes"),
    [
        ("lock", "", "fixed", []), ("revolute", "axis: [0, 3, 4]", "hinge", [[0, 0.6, 0.8]]),
        ("PRISMATIC", "axis: [0, 0, -2]", "slide", [[0, 0, -1]]), ("spherical", "", "ball", []),
        ("universal", "axis1: [0, 2, 0], axis2: [1, 1, 0]", "universal", [[0, 1, 0], [1, 0, 0]]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("swap", [False, True])
def test_joints_of_the_tree(type, more, wanted, axes, swap):
    """The frame is at the location; axes in the model as drawn, whichever body comes first in the tree."""
    one, two = ("a", "b") if swap else ("ground", "a")
    bodies = (GROUND, A, B)
    spec = read(bodies=bodies, joints=(f"name: j, type: {type}, body1: {one}, body2: {two}, location: [1, 1, 1], {more}",))
    body = next(b for b in spec.bodies if b.joint.name == "j")
    assert (body.joint.type, body.name, spec.bodies[body.parent].name) == (wanted, two, one)
    poses = placed(spec)
    for name, R, p in (("a", Rotation.from_euler("z", 90, degrees=True).as_matrix(), [1, 2, 3]), ("b", np.eye(3), [4, 5, 6])):
        close(poses[name][0], R)
        close(poses[name][1], p)
    R, p = poses[two]
    if wanted != "fixed":
        close(p + R @ body.joint.pos, [1, 1, 1])
        close(np.reshape([R @ matrix(body.joint.quat) @ x for x in body.joint.params.get("axes", ())], (-1, 3)), np.reshape(axes, (-1, 3)))


def test_body1_may_be_the_one_that_moves():
    spec = read(joints="name: j, type: revolute, body1: a, body2: ground, location: [1, 1, 1], axis: [0, 0, 1]")
    body = spec.bodies[1]
    assert (body.joint.type, body.joint.reversed, body.parent) == ("hinge", True, 0)
    close(body.joint.params["axes"], [[0, 0, -1]])


def test_joints_that_close_a_loop_are_constraints():
    joints = [f"name: {n}, type: revolute, body1: {p}, body2: {q}, location: [0, 0, 0], axis: [0, 0, 1]" for n, p, q in
              (("j", "ground", "a"), ("k", "a", "b"), ("l", "b", "ground"))]  # fmt: skip
    spec = read(joints=joints)
    loop = only(spec.constraints)
    assert (loop.kind, loop.name, loop.joint.type, names(spec, loop)) == ("joint", "l", "hinge", ["b", "ground"])


@pytest.mark.parametrize(("type", "kind", "axis"), [("pointline", "point_on_line", [1, 0, 0]), ("pointplane", "point_on_plane", [0, 0, 1])])
def test_points_on_lines_and_planes(type, kind, axis):
    """The line is the model x axis, the normal the model z axis, in body2; `axis` is an addition of ours."""
    for more, wanted in (("", axis), (", axis: [0, 3, 4]", [0, 0.6, 0.8])):
        spec = read(joints=f"name: j, type: {type}, {AT}{more}")
        constraint = only(spec.constraints)
        assert constraint.kind == kind and names(spec, constraint) == ["b", "a"]
        for R, p in frames(spec, constraint):
            close(R[:, 2], wanted)
            close(p, [1, 1, 1])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("type: revolute", "axis: is missing"), ("type: prismatic, axis: [0, 0, 0]", "axis: the axis is zero"),
        ("type: universal, axis1: [1, 0, 0]", "axis2: is missing"), ("axis: [1, 0, 0]", "type: is missing"),
        ("type: universal, axis1: [1, 0, 0], axis2: [-2, 0, 0]", "axis2: is parallel"), ("type: screw", "allowed: lock, revolute"),
        ("type: prismatic, axis: [1, 0, 0], bushing_data: {}", "a prismatic joint cannot be a bushing"),
        ("type: pointline, bushing_data: {}", "cannot be a bushing"), ("type: lock, bushing_data: {}", "stiffness_linear: is missing"),
        ("type: lock, bushing_data: {stiffness_linear: 1, stiffness_rotational: 2, damping_linear: 3, damping_rotational: 4, DOF: {}}",
         "bushing_data: DOF: stiffness_linear: is missing"),
    ],
)  # fmt: skip
def test_bad_joints_are_refused(entry, words):
    message = refused(joints=f"name: j, {AT}, {entry}")
    assert message.startswith("m.yaml:8: joints 'j': ") and words in message


def test_joints_between_fixed_bodies_are_noted():
    other = GROUND.replace("ground", "wall")
    ends = "body1: ground, body2: wall, location: [0, 0, 0]"
    with pytest.warns(SuspiciousInputWarning, match="joints 'j': has no effect: both bodies are fixed"):
        assert not read(bodies=(GROUND, other), joints=f"name: j, type: lock, {ends}").constraints
    message = refused(bodies=(GROUND, other), motors=MOTOR.replace(AT, ends))
    assert "motors 'm': moves one fixed body against another" in message


BUSHING = "stiffness_linear: 7e7, damping_linear: 0.35e5, stiffness_rotational: 1e5, damping_rotational: 5e3"
DOF = "DOF: {stiffness_linear: 1, damping_linear: 2, stiffness_rotational: 500, damping_rotational: 25}"


@pytest.mark.parametrize(
    ("type", "free"),
    [
        ("lock", ()), ("revolute, axis: [0, 0, 1]", (5,)), ("spherical", (3, 4, 5)),
        ("universal, axis1: [0, 1, 0], axis2: [1, 0, 0]", (3, 4)),
    ],
)  # fmt: skip
def test_bushings(type, free):
    """Numbers along body2's frame, which comes first; DOF's in the directions that the joint leaves free, else nothing there."""
    for dof, values in ((f", {DOF}", (500, 25)), ("", (0, 0))):
        spec = read(joints=f"name: j, type: {type}, {AT}, bushing_data: {{{BUSHING}{dof}}}")
        assert not spec.constraints and spec.bodies[1].joint.type == spec.bodies[2].joint.type == "free"
        force = only(spec.forces)
        stiffness, damping = np.array([7e7] * 3 + [1e5] * 3), np.array([3.5e4] * 3 + [5e3] * 3)
        stiffness[list(free)], damping[list(free)] = values
        assert force.kind == "bushing" and names(spec, force) == ["b", "a"]
        close(force.stiffness, stiffness)
        close(force.damping, damping)
    if type.startswith("universal"):
        close(frames(spec, force)[0][0], np.array([[0, 1, 0], [1, 0, 0], [0, 0, -1]]).T)


# ---- constraints -------------------------------------------------------------------------------------------------------------

DISTANCE = f"name: c, type: DISTANCE, {ENDS}, point1: [0, 0, 0], point2: [1, 0, 0]"


def test_distance():
    spec = read(constraints=DISTANCE)
    constraint = only(spec.constraints)
    assert (constraint.kind, constraint.name, names(spec, constraint)) == ("distance", "c", ["a", "b"])
    close([p for _, p in frames(spec, constraint)], [[0, 0, 0], [1, 0, 0]])


def test_composite_constraints_take_directions_of_ours():
    spec = read(constraints=DISTANCE.replace("DISTANCE", "Revolute Spherical") + ", axis: [0, 0, 2]")
    constraint = only(spec.constraints)
    (R, p), (_, q) = frames(spec, constraint)
    assert (constraint.kind, names(spec, constraint)) == ("revolute_spherical", ["a", "b"])
    close([R[:, 2], p, q], [[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    spec = read(constraints=DISTANCE.replace("DISTANCE", "REVOLUTE-TRANSLATIONAL") + ", axis: [0, 0, 2], axis2: [1, 1, 0]")
    constraint = only(spec.constraints)
    assert (constraint.kind, names(spec, constraint)) == ("revolute_translational", ["a", "b"])
    for R, _ in frames(spec, constraint):
        close(R[:, 2], [0, 0, 1])
        close(R[:, 0], np.array([1, 1, 0]) / np.sqrt(2))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[1, 0, 0]", "[0, 0, 0]", "point2: is point1 too"), (", point2: [1, 0, 0]", "", "point2: is missing"),
        ("DISTANCE", "REVOLUTE-SPHERICAL", "axis: is missing; two points do not define REVOLUTE-SPHERICAL"),
        ("DISTANCE", "REVOLUTE-TRANSLATIONAL, axis: [0, 0, 1]", "axis2: is missing"),
        ("DISTANCE", "REVOLUTE-SPHERICAL, axis: [1, 0, 1]", "axis: is not perpendicular to the line"),
        ("DISTANCE", "REVOLUTE-TRANSLATIONAL, axis: [1, 0, 0], axis2: [0, 1, 0]", "axis: is not perpendicular to the line"),
        ("DISTANCE", "REVOLUTE-TRANSLATIONAL, axis: [0, 0, 1], axis2: [0, 1, 1]", "axis2: is not perpendicular to axis"),
        ("body2: b", "body2: a", "body2: 'a' is body1 too"), ("DISTANCE", "SCREW", "allowed: DISTANCE, REVOLUTE-SPHERICAL"),
    ],
)  # fmt: skip
def test_bad_constraints_are_refused(old, new, words):
    message = refused(constraints=DISTANCE.replace(old, new))
    assert "constraints 'c': " in message and words in message


# ---- spring-dampers ----------------------------------------------------------------------------------------------------------

TSDA = f"name: s, {ENDS}, point1: [6.5, 0, 0], point2: [5.5, 0, 0], spring_coefficient: 50.0, damping_coefficient: 5.0, free_length: 1.5"
RSDA = f"name: s, {ENDS}, axis: [0, 0, 2], spring_coefficient: 25, damping_coefficient: 3, free_angle: 90"
CURVE, DAMPER = "spring_curve_data: [[1, 10], [-1, -20], [0, 0]]", "damping_curve_data: [[0, 0], [1, 7]]"
MAP = "deformation: [0.2, 0.4, 0.5], map_data: [[-1, 1, 2, 3], [1, 4, 5, 6]]"


def bare(entry: str, *words: str) -> str:
    """The entry without some of its keys."""
    return ", ".join(part for part in re.split(r", (?=[a-z_0-9]+:)", entry) if part.split(":")[0] not in words)


LAWLESS = bare(TSDA, "spring_coefficient", "damping_coefficient")


def test_springs_along_a_line():
    drawn = "visualization: {type: SPRING, radius: 1, resolution: 80, turns: 15, color: [1, 0, 0]}"
    spec = read(tsdas=f"{TSDA}, type: TSDA, preload: 4, {drawn}", strict=True)
    assert read(tsdas=f"{TSDA}, visualization: {{type: segment}}", strict=True).forces
    force = only(spec.forces)
    assert (force.kind, force.name, names(spec, force)) == ("spring", "s", ["a", "b"])
    assert (force.stiffness, force.damping, force.rest, force.preload, force.stops) == (50, 5, 1.5, 4, None)
    close([p for _, p in frames(spec, force)], [[6.5, 0, 0], [5.5, 0, 0]])
    assert only(read(tsdas=TSDA + ", minimum_length: 0.5, maximum_length: 2").forces).stops == (0.5, 2)
    damper = only(read(tsdas=bare(TSDA, "spring_coefficient", "free_length")).forces)
    assert (damper.stiffness, damper.damping, damper.preload, damper.rest) == (None, 5, 0, 0)


def test_springs_with_tables():
    force = only(read(tsdas=f"{LAWLESS}, {CURVE}, {DAMPER}, preload: 1").forces)
    assert (force.spring.kind, force.damper.kind, force.stiffness, force.damping, force.preload) == ("table", "table", None, None, 1)
    close(force.spring.numbers, [[-1, -20], [0, 0], [1, 10]])
    close(force.damper.numbers, [[0, 0], [1, 7]])
    force = only(read(rsdas=f"{bare(RSDA, 'spring_coefficient', 'damping_coefficient')}, {CURVE}").forces)
    close(force.spring.numbers, [[-1, -20], [0, 0], [1, 10]])  # radians, whatever the unit of angles
    force = only(read(tsdas=f"{bare(TSDA, 'spring_coefficient', 'damping_coefficient', 'free_length')}, {MAP}, preload: 2").forces)
    rates, lengths, forces = force.map
    close([*rates, *lengths, *forces.ravel(), force.preload], [-1, 1, 0.2, 0.4, 0.5, 1, 2, 3, 4, 5, 6, 2])


def test_both_spellings_of_spring_dampers():
    spec = read(spring_dampers=(f"type: tsda, {TSDA}", f"type: RSDA, {RSDA.replace('name: s', 'name: r')}"), tsdas=TSDA, rsdas=RSDA)
    assert [f.kind for f in spec.forces] == ["spring", "torsion", "spring", "torsion"]
    assert "spring_dampers 's': type: is missing" in refused(spring_dampers=TSDA)
    assert "type: unknown value 'RSDA'; did you mean 'TSDA'?" in refused(tsdas=f"{TSDA}, type: RSDA")


def test_springs_about_an_axis():
    """On body2 by its angle relative to body1: body1 is the first body."""
    spec = read(rsdas=RSDA + ", location: [1, 2, 3], preload: 4, type: RSDA, visualization: {type: SPRING}")
    force = only(spec.forces)
    assert (force.kind, names(spec, force), force.stiffness, force.damping, force.preload) == ("torsion", ["a", "b"], 25, 3, 4)
    close(force.rest, np.pi / 2)
    for R, p in frames(spec, force):
        close(R[:, 2], [0, 0, 1])
        close(p, [1, 2, 3])
    close(only(read("angle_degrees: false", rsdas=RSDA).forces).rest, 90)
    close(frames(spec, force)[0][0], frames(spec, force)[1][0])


@pytest.mark.parametrize(
    ("key", "entry", "words", "forces"),
    [
        ("tsdas", bare(TSDA, "free_length"), "free_length is missing, the length 1 in the reference pose is taken", 1),
        ("rsdas", bare(RSDA, "free_angle"), "free_angle is missing, 0 is taken", 1),
        ("tsdas", bare(TSDA, "spring_coefficient", "damping_coefficient", "free_length"), "has no effect: none of spring_coefficient", 0),
        ("rsdas", bare(RSDA, "spring_coefficient", "damping_coefficient", "free_angle"), "has no effect: none of spring_coefficient", 0),
        ("tsdas", bare(TSDA, "spring_coefficient", "free_length") + ", preload: 3", "preload has no effect: there is no spring", 1),
        ("tsdas", bare(TSDA, "spring_coefficient"), "free_length has no effect: there is no spring", 1),
        ("rsdas", bare(RSDA, "spring_coefficient"), "free_angle has no effect: there is no spring", 1),
        ("tsdas", f"{TSDA}, {CURVE}, {DAMPER}", "spring_coefficient has no effect: curve data take its place", 1),
        ("tsdas", f"{TSDA}, {MAP}", "spring_coefficient has no effect: map_data takes its place", 1),
        ("tsdas", f"{TSDA}, minimum_length: 1", "minimum_length has no effect: stops act with a spring only", 1),
        ("tsdas", TSDA.replace("5.5", "6.5"), "point1 and point2 coincide", 1),
        ("tsdas", TSDA.replace("50.0", "-50"), "spring_coefficient: -50 is negative", 1),
    ],
)
def test_doubtful_spring_dampers_are_noted(key, entry, words, forces):
    with pytest.warns(SuspiciousInputWarning, match=re.escape(f"{key} 's': {words}")):
        assert len(read(**{key: entry}).forces) == forces


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (f"{bare(TSDA, 'spring_coefficient')}, {CURVE}", "damping_coefficient: stands beside spring_curve_data; allowed: damping_curve"),
        (f"{bare(TSDA, 'damping_coefficient')}, {DAMPER}", "spring_coefficient: stands beside damping_curve_data"),
        (f"{TSDA}, deformation: [1, 2]", "map_data: is missing"), (f"{TSDA}, map_data: [[1, 2]]", "deformation: is missing"),
        (f"{TSDA}, {MAP.replace('0.5', '0.3')}", "deformation: found 3 numbers; allowed: two or more, ascending"),
        (f"{TSDA}, {MAP.replace('[1,', '[-1,')}", "map_data: found 2 rates"),
        (f"{TSDA}, {MAP.replace('1, 2, 3', '1, 2')}", "map_data: found 3 numbers; allowed: 4"),
        (f"{TSDA}, deformation: [1], map_data: [[1, 2], [3, 4]]", "deformation: found 1"),
        (f"{LAWLESS}, {CURVE.replace('-1, -', '1, ')}", "spring_curve_data: 1 is given twice"),
        (f"{LAWLESS}, spring_curve_data: []", "spring_curve_data: found an empty list"),
        (f"{LAWLESS}, spring_curve_data: [[1, 2, 3]]", "spring_curve_data: found 3 numbers; allowed: 2"),
        (f"{TSDA}, minimum_length: 2, maximum_length: 1", "minimum_length: found 2 with maximum_length 1"),
        (bare(TSDA, "point1"), "point1: is missing"), (TSDA.replace("1.5", "-1.5"), "free_length: found -1.5"),
        (f"{TSDA}, visualization: {{type: torus}}", "visualization: type: unknown value"),
        (f"{TSDA}, degressivity_compression: 3", "degressivity_compression: degressive dampers are not simulated"),
        (f"{TSDA}, degressivity_expansion: 3", "degressivity_expansion: degressive dampers are not simulated"),
    ],
)  # fmt: skip
def test_bad_spring_dampers_are_refused(entry, words):
    message = refused(tsdas=entry)
    assert message.startswith("m.yaml:8: tsdas 's': ") and words in message


def test_bad_torsion_springs_are_refused():
    assert "rsdas 's': axis: is missing" in refused(rsdas=bare(RSDA, "axis"))
    assert "axis: the axis is zero" in refused(rsdas=RSDA.replace("[0, 0, 2]", "[0, 0, 0]"))
    for key in ("degressivity_compression", "degressivity_expansion"):
        assert f"rsdas 's': {key}: degressive" in refused(rsdas=f"{RSDA}, {key}: 3")


# ---- motors ------------------------------------------------------------------------------------------------------------------

CONSTANT = "actuation_function: {type: CONSTANT, value: 3}"
MOTOR = f"name: m, type: ROTATION, {AT}, axis: [0, 3, 4], actuation_type: SPEED, {CONSTANT}"
LINEAR = MOTOR.replace("ROTATION", "LINEAR")
KEEPS = {
    "LINEAR": {"FREE": "", "PRISMATIC": "x y rx ry rz", "SPHERICAL": "x y"},
    "ROTATION": {"FREE": "", "REVOLUTE": "x y z rx ry", "CYLINDRICAL": "x y rx ry"},
}
HELD = [(type, guide) for type, guides in KEEPS.items() for guide in guides]


def motor(type: str, guide: str, mode: str) -> str:
    key = "guide" if type == "LINEAR" else "spindle"
    return MOTOR.replace("ROTATION", f"{type}, {key}: {guide}").replace("SPEED", mode)


@pytest.mark.parametrize(("entry", "joint"), [(MOTOR, "hinge"), (LINEAR, "slide")])
def test_a_motor_is_a_joint_of_the_tree_from_body2_to_body1_and_drives_its_coordinate(entry, joint):
    """body1 moves along or about +axis relative to body2."""
    for mode in ("POSITION", "SPEED"):
        text = entry.replace("SPEED", mode).replace("CONSTANT, value: 3", "RAMP, slope: 2")
        for ends, child, sign in (("body1: a, body2: ground", "a", 1), ("body1: ground, body2: a", "a", -1)):
            spec = read(motors=text.replace(ENDS, ends))
            motion = only(spec.constraints)
            (held,) = [i for i, b in enumerate(spec.bodies) if b.joint.name == "m"]
            body = spec.bodies[held]
            assert (body.name, body.joint.type, body.joint.reversed) == (child, joint, sign < 0)
            assert (motion.kind, motion.coordinates, motion.mode) == ("motion", ((held, 0),), mode.lower())
            assert (motion.function.kind, motion.driven, motion.bodies) == ("ramp", joint, ())
            R = placed(spec)[child][0] @ matrix(body.joint.quat)
            close(R @ body.joint.params["axes"][0], sign * np.array([0, 0.6, 0.8]))
            assert not spec.forces


def test_motors_that_close_loops_are_joint_and_drive_in_one():
    joint = f"name: j, type: revolute, {AT}, axis: [0, 3, 4]"
    for type, guide, other in (("ROTATION", "REVOLUTE", joint), ("LINEAR", "PRISMATIC", joint.replace("revolute", "prismatic"))):
        spec = read(joints=other, motors=motor(type, guide, "SPEED"))
        drive = only(spec.constraints)
        assert (drive.kind, drive.name, names(spec, drive), drive.mode) == ("motor", "m", ["b", "a"], "speed")
        assert " ".join(drive.constrained) == KEEPS[type][guide]
        spec = read(joints=other, motors=motor(type, guide, "FORCE"))
        assert (only(spec.constraints).kind, only(spec.forces).kind) == ("joint", "motor")


@pytest.mark.parametrize(("type", "guide"), HELD)
@pytest.mark.parametrize("mode", ["POSITION", "SPEED", "FORCE"])
def test_what_motors_keep_and_drive(type, guide, mode):
    text = motor(type, guide, mode).replace("value: 3", "value: 0" if mode == "POSITION" else "value: 3")
    spec = read(motors=text)
    driven = "slide" if type == "LINEAR" else "hinge"
    in_tree = guide in ("PRISMATIC", "REVOLUTE")
    assert [b.joint.type for b in spec.bodies if b.joint.name == "m"] == ([driven] if in_tree else [])
    if mode == "FORCE":
        force = only(spec.forces)
        assert (force.kind, force.driven, names(spec, force), force.function.kind) == ("motor", driven, ["b", "a"], "constant")
        close([frames(spec, force)[0][0][:, 2], frames(spec, force)[1][1]], [[0, 0.6, 0.8], [1, 1, 1]])
    else:
        assert not spec.forces
    kinds = [c.kind for c in spec.constraints]
    assert kinds == (["motion"] if in_tree and mode != "FORCE" else [] if in_tree or mode == "FORCE" and guide == "FREE" else ["motor"])
    for constraint in spec.constraints:
        assert constraint.mode == {"FORCE": ""}.get(mode, mode.lower()) and (constraint.function is None) == (mode == "FORCE")
        if constraint.kind == "motor":
            assert (names(spec, constraint), constraint.driven) == (["b", "a"], driven)
            assert " ".join(constraint.constrained) == KEEPS[type][guide]
            close([R[:, 2] for R, _ in frames(spec, constraint)], [[0, 0.6, 0.8]] * 2)


def test_motors_keep_the_usual_rows_unless_told():
    for entry, joint in ((MOTOR, "hinge"), (LINEAR, "slide")):
        assert [b.joint.type for b in read(motors=entry).bodies if b.joint.name == "m"] == [joint]


def test_motors_that_contradict_the_drawn_pose_are_noted():
    with pytest.warns(SuspiciousInputWarning, match="motors 'm': actuation_function: is 3 at time zero"):
        read(motors=MOTOR.replace("SPEED", "POSITION"))
    for function, value in (
        ("SINE, amplitude: 2, frequency: 1, phase: 90", 2), ("POLYNOMIAL, coefficients: [5, 1]", 5), ("RAMP, slope: 1, intercept: 4", 4),
        ("DATA, data: [[-1, 0], [1, 2]]", 1), ("RAMP, slope: 1, repeat: {start: 2, width: 4, shift: 5}", 3),
    ):  # fmt: skip
        with pytest.warns(SuspiciousInputWarning, match=f"is {value} at time zero"):
            read(motors=MOTOR.replace("SPEED", "POSITION").replace("CONSTANT, value: 3", function))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("SPEED", "JERK", "actuation_type: unknown value 'JERK'; allowed: POSITION, SPEED, FORCE"),
        ("ROTATION", "SCREW", "type: unknown value 'SCREW'; allowed: LINEAR, ROTATION"),
        ("ROTATION", "ROTATION, guide: FREE", "guide: is not for a ROTATION motor; allowed: spindle"),
        ("ROTATION", "LINEAR, spindle: FREE", "spindle: is not for a LINEAR motor; allowed: guide"),
        ("ROTATION", "LINEAR, guide: REVOLUTE", "guide: unknown value 'REVOLUTE'; allowed: FREE, PRISMATIC, SPHERICAL"),
        ("axis: [0, 3, 4]", "axis: [0, 0, 0]", "axis: the axis is zero"), ("axis: [0, 3, 4], ", "", "axis: is missing"),
        (CONSTANT, "x: 1", "actuation_function: is missing"), ("{type: CONSTANT, value: 3}", "3", "actuation_function: found '3'"),
    ],
)  # fmt: skip
def test_bad_motors_are_refused(old, new, words):
    message = refused(motors=MOTOR.replace(old, new))
    assert "motors 'm': " in message and words in message


# ---- functions ---------------------------------------------------------------------------------------------------------------


def function(text: str, *lines: str):
    return only(read(*lines, motors=MOTOR.replace("SPEED", "FORCE").replace("type: CONSTANT, value: 3", text)).forces).function


@pytest.mark.parametrize(
    ("text", "kind", "numbers"),
    [
        ("type: constant, value: 7e1", "constant", [70]), ("type: POLYNOMIAL, coefficients: [1, 2, 3]", "polynomial", [1, 2, 3]),
        ("type: POLYNOMIAL, coefficients: [1]", "polynomial", [1]), ("type: RAMP, slope: 2", "ramp", [0, 2]),
        ("type: RAMP, slope: 2, intercept: 3", "ramp", [3, 2]), ("type: SINE, amplitude: 2, frequency: 3", "sine", [2, 3, 0, 0]),
        ("type: SINE, amplitude: 2, frequency: 3, phase: 180, shift: 4", "sine", [2, 3, np.pi, 4]),
        ("type: DATA, data: [[2, 3], [0, 1]]", "table", [[0, 1], [2, 3]]),
    ],
)  # fmt: skip
def test_functions(text, kind, numbers):
    found = function(text)
    assert (found.kind, found.repeat) == (kind, None)
    close(found.numbers, numbers)
    assert function(f"{text}, repeat: {{start: 1, width: 2, shift: 3}}").repeat == (1, 2, 3)


def test_phase_follows_angle_degrees_and_frequency_does_not():
    close(function("type: SINE, amplitude: 2, frequency: 3, phase: 2", "angle_degrees: false").numbers, [2, 3, 2, 0])


def test_controllers_are_controls():
    found = function("type: CONTROLLER")
    assert (found.kind, found.name, found.numbers.shape) == ("external", "m", (0,))
    with pytest.warns(SuspiciousInputWarning, match="repeat has no effect: the value of a controller comes from outside"):
        assert function("type: CONTROLLER, repeat: {start: 0, width: 0, shift: 0}").repeat is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("value: 3", "type: is missing"), ("type: CONSTANT", "value: is missing"), ("type: POLYNOMIAL, coefficients: []", "coefficients"),
        ("type: SINE, amplitude: 1", "frequency: is missing"), ("type: RAMP", "slope: is missing"),
        ("type: DATA, data: [1, 2]", "data: found '1'; allowed: a list of 2 numbers"),
        ("type: DATA, data: [[0, 1], [0, 2]]", "data: 0 is given twice"),
        ("type: RAMP, slope: 1, repeat: {start: 0, shift: 1}", "repeat: width: is missing"),
        ("type: RAMP, slope: 1, repeat: {start: 0, width: 0, shift: 1}", "repeat: width: found 0; allowed: numbers > 0"),
    ],
)  # fmt: skip
def test_bad_functions_are_refused(text, words):
    message = refused(motors=MOTOR.replace("type: CONSTANT, value: 3", text))
    assert "motors 'm': actuation_function: " in message and words in message


# ---- loads -------------------------------------------------------------------------------------------------------------------

COM = "name: d, location: [0, 0, 1], com: {location: [1, 0, 0], orientation: [90, 0, 0]}, mass: 1, inertia: {moments: [1, 1, 1]}"
LOAD = "name: l, type: FORCE, body: d, load: [1, 2, 3], point: [4, 5, 6]"


def test_body_loads():
    """Local: in the centroidal frame, here turned by 90 degrees about z and shifted by 1 along x."""
    spec = read(bodies=(GROUND, COM), body_loads=LOAD)
    force = only(spec.forces)
    assert (force.kind, force.driven, force.local, force.at_world, force.function) == ("load", "slide", True, False, None)
    assert names(spec, force) == ["d"]
    close([*force.vector, *force.frames[0][0]], [-2, 1, 3, -4, 4, 6])
    force = only(read(bodies=COM, body_loads=f"{LOAD}, local_load: false, local_point: false").forces)
    close([*force.vector, *force.frames[0][0]], [1, 2, 3, 4, 5, 6])
    assert (force.local, force.at_world) == (False, True)
    text = f"{bare(LOAD, 'point').replace('FORCE', 'torque')}, modulation_function: {{type: RAMP, slope: 1}}"
    force = only(read(bodies=COM, body_loads=text).forces)
    assert (force.driven, force.function.kind, force.at_world) == ("hinge", "ramp", False)
    close(force.vector, [-2, 1, 3])


def test_load_controllers_are_three_controls():
    spec = read(bodies=COM, load_controllers=f"{bare(LOAD, 'load')}, local_load: true, local_point: true")
    assert [f.function.name for f in spec.forces] == ["l_x", "l_y", "l_z"] == [f.name for f in spec.forces]
    assert all(f.kind == "load" and f.function.kind == "external" for f in spec.forces)
    close([f.vector for f in spec.forces], [[0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    with pytest.warns(UnsupportedWarning, match="key 'load' is not read"):
        read(bodies=COM, load_controllers=LOAD)


def test_doubtful_and_bad_loads():
    with pytest.warns(SuspiciousInputWarning, match="body_loads 'l': has no effect: the body is fixed"):
        assert not read(body_loads=LOAD.replace("body: d", "body: ground")).forces
    with pytest.warns(SuspiciousInputWarning, match="point has no effect: a torque has no point"):
        read(bodies=COM, body_loads=LOAD.replace("FORCE", "TORQUE"))
    for old, new, words in (
        ("FORCE", "WRENCH", "type: unknown value 'WRENCH'; allowed: FORCE, TORQUE"), (", point: [4, 5, 6]", "", "point: is missing"),
        ("body: d", "body: x", "body: no body is named 'x'"), ("load: [1, 2, 3], ", "", "load: is missing"),
    ):  # fmt: skip
        message = refused(bodies=COM, body_loads=LOAD.replace(old, new))
        assert "body_loads 'l': " in message and words in message


# ---- simulation --------------------------------------------------------------------------------------------------------------

# At the start two bodies that are joined to nothing else fall side by side, so constraints between them would do nothing: these hold on to
# the ground. A motor that starts from rest shows itself by what its function does next.
HANGING = DISTANCE.replace(ENDS, "body1: a, body2: ground").replace("[1, 0, 0]", "[0, 0, 1]")
ACROSS = DISTANCE.replace(ENDS, "body1: a, body2: ground")
MOVING = (GROUND, A, f"{B}, initial_linear_velocity: [-10, 0, 0], initial_angular_velocity: [0, 0, 1]")  # what dampers need
SOFT = f"{AT}, bushing_data: {{{BUSHING}"
TORSION = bare(RSDA, "spring_coefficient", "damping_coefficient", "free_angle")
FUNCTIONS = {  # of motors that start from rest
    "POSITION": ("POLYNOMIAL, coefficients: [0, 0, 3]", "SINE, amplitude: 1, frequency: 1, phase: -90, shift: 1"),
    "SPEED": ("RAMP, slope: 2", "DATA, data: [[-1, -1], [1, 1]]"),
    "FORCE": ("CONSTANT, value: 3", "RAMP, slope: 1, repeat: {start: 1, width: 2, shift: 0}"),
}
MOTORS = [
    motor(type, guide, mode).replace("CONSTANT, value: 3", FUNCTIONS[mode][i % 2]) for i, (type, guide) in enumerate(HELD)
    for mode in (FUNCTIONS if guide == "FREE" else ("POSITION", "SPEED", "FORCE")[i % 3 : i % 3 + 1])
]  # fmt: skip
FELT = [
    ("constraints", HANGING, ()), ("constraints", ACROSS.replace("DISTANCE", "REVOLUTE-SPHERICAL, axis: [0, 0, 1]"), ()),
    ("constraints", ACROSS.replace("DISTANCE", "REVOLUTE-TRANSLATIONAL, axis: [0, 0, 1], axis2: [1, 0, 0]"), ()),
    *(("motors", entry, ()) for entry in MOTORS),
    ("joints", f"name: j, type: lock, {SOFT}}}", MOVING), ("joints", f"name: j, type: spherical, {SOFT}, {DOF}}}", MOVING),
    ("joints", f"name: j, type: revolute, axis: [0, 1, 0], {SOFT}, {DOF}}}", MOVING),
    ("joints", f"name: j, type: universal, axis1: [1, 0, 0], axis2: [0, 0, 1], {SOFT}}}", MOVING),
    ("tsdas", TSDA, ()), ("tsdas", bare(TSDA, "spring_coefficient", "free_length"), MOVING), ("tsdas", f"{LAWLESS}, {CURVE}", ()),
    ("tsdas", f"{bare(LAWLESS, 'free_length')}, {DAMPER}", MOVING), ("tsdas", f"{bare(LAWLESS, 'free_length')}, {MAP}", ()),
    ("tsdas", f"{TSDA.replace('1.5', '1')}, preload: 2", ()),
    ("tsdas", f"{TSDA.replace('1.5', '1')}, minimum_length: 1.05, maximum_length: 2", ()),
    ("tsdas", f"{TSDA.replace('1.5', '1')}, minimum_length: 0.5, maximum_length: 0.95", ()),
    ("rsdas", RSDA, ()), ("rsdas", f"{TORSION}, damping_coefficient: 3", MOVING), ("rsdas", f"{TORSION}, {DAMPER}", MOVING),
    ("rsdas", f"{TORSION}, {CURVE}, free_angle: 90", ()), ("rsdas", f"{TORSION}, spring_coefficient: 25, free_angle: 0, preload: 2", ()),
    ("spring_dampers", f"type: TSDA, {TSDA}", ()), ("spring_dampers", f"type: RSDA, {RSDA}", ()),
    ("body_loads", LOAD.replace("body: d", "body: a"), ()), ("body_loads", f"{LOAD}, local_load: false, local_point: false", (GROUND, COM)),
    ("body_loads", f"{bare(LOAD, 'point')}, modulation_function: {{type: CONSTANT, value: 2}}".replace("FORCE", "TORQUE"), (GROUND, COM)),
]  # fmt: skip


def start(spec, ctrl=None):
    """The model, where its motion starts, and how its bodies accelerate, by name. Not compiled: once each is faster so."""
    model = xsim.build(spec)
    with jax.disable_jit():
        state = xsim.init(model, *model.topology.initial) if spec.constraints else xsim.init(model)
        data = xsim.forward(model, state, ctrl=ctrl)
    accelerations = np.concatenate([data.lin_acc, data.ang_acc], -1)[np.argsort(model.body_names)]
    assert np.isfinite(accelerations).all() and data.flags == 0
    return model, state, accelerations


@cache
def untouched(bodies: tuple) -> np.ndarray:
    """What happens without the entry."""
    return start(read(bodies=bodies))[2]


@pytest.mark.parametrize(("key", "entry", "bodies"), FELT)
def test_what_is_read_acts(key, entry, bodies, x64):
    """Every force and constraint changes the accelerations of the bodies (how much: tests/test_conformance_chrono.py)."""
    bodies = bodies or (GROUND, A, B)
    model, _, found = start(read(bodies=bodies, **{key: entry}))
    assert np.abs(found - untouched(bodies)).max() > 1e-2 and model.ctrl_names == ()


@pytest.mark.parametrize(
    ("key", "entry", "bodies", "controls"),
    [
        ("motors", motor("LINEAR", "FREE", "FORCE").replace("CONSTANT, value: 3", "CONTROLLER"), (GROUND, A, B), ("m",)),
        ("motors", MOTOR.replace("SPEED", "FORCE").replace("CONSTANT, value: 3", "CONTROLLER"), (GROUND, A, B), ("m",)),
        ("load_controllers", bare(LOAD, "load"), (GROUND, COM), ("l_x", "l_y", "l_z")),
        ("load_controllers", bare(LOAD, "load", "point").replace("FORCE", "TORQUE"), (GROUND, COM), ("l_x", "l_y", "l_z")),
    ],
)
def test_what_comes_from_outside_is_a_control(key, entry, bodies, controls, x64):
    """Nothing happens unless it is given."""
    spec = read(bodies=bodies, **{key: entry})
    model, _, found = start(spec)
    assert model.ctrl_names == controls
    np.testing.assert_allclose(found, untouched(bodies), atol=1e-12)
    for i in range(model.nu):
        assert np.abs(start(spec, np.eye(model.nu)[i])[2] - untouched(bodies)).max() > 1e-2


def test_motion_starts_as_the_bodies_are_told_to(x64):
    """Of the centre of mass along world axes, and about centroidal axes: here x is the body's y, and the centre 1 along the body's x.
    Moving on changes no acceleration; turning does, of the body's origin."""
    bodies = (GROUND, f"{COM}, initial_linear_velocity: [1, 2, 3]")
    model, state, found = start(read(bodies=bodies))
    np.testing.assert_allclose(state.v, [1, 2, 3, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found, untouched((GROUND, COM)), atol=1e-12)
    _, state, found = start(read(bodies=(GROUND, f"{COM}, initial_angular_velocity: [2, 0, 0]")))
    np.testing.assert_allclose(state.v, [0, 0, 2, 0, 2, 0], atol=1e-12)  # v of the origin: w x (from the centre to it)
    np.testing.assert_allclose(found - untouched((GROUND, COM)), [[4, 0, 0, 0, 0, 0], [0] * 6], atol=1e-12)


def test_a_start_that_a_motor_contradicts_is_moved(x64):
    """A speed from the first moment on, and a position that is not the drawn one."""
    text = MOTOR.replace(ENDS, "body1: a, body2: ground")
    with pytest.warns(SuspiciousInputWarning, match="is 3 at time zero"):
        turned = read(bodies=(GROUND, A), motors=text.replace("SPEED", "POSITION"))
    for spec, part, wanted in ((read(bodies=(GROUND, A), motors=text), "velocity", (0, 3)), (turned, "configuration", (3, 0))):
        with pytest.warns(UserWarning, match=f"the {part} at the start does not satisfy the constraints, moved by 3"):
            state = xsim.init(xsim.build(spec))
        np.testing.assert_allclose([state.q[0], state.v[0]], wanted, atol=1e-12)


def test_torsion_springs_count_turns_where_hinges_tell(x64):
    """Two turns and a bit about a hinge, and the same orientation of a ball: there the angle is the one within half a turn."""
    angle, k = 4 * np.pi + 0.5, 25.0
    ends = "body1: ground, body2: a"
    torsion = RSDA.replace(ENDS, ends).replace("free_angle: 90", "free_angle: 0")
    found = []
    for type in ("revolute, axis: [0, 0, 1]", "spherical"):
        model = xsim.build(read(joints=f"name: j, type: {type}, {ends}, location: [1, 2, 3]", rsdas=torsion))
        (i,) = [b.q[0] for b in model.topology.bodies if b.joint.name == "j"]
        q = np.array(model.topology.neutral)
        q[i : i + 4] = angle if type != "spherical" else [np.cos(angle / 2), 0, 0, np.sin(angle / 2)]
        with jax.disable_jit():
            found.append(xsim.forward(model, xsim.init(model, q)).element)
    np.testing.assert_allclose(np.abs(found[0]).max(), k * angle, rtol=1e-12)
    np.testing.assert_allclose(np.abs(found[1]).max(), k * 0.5, rtol=1e-12)


# ---- the corpus --------------------------------------------------------------------------------------------------------------


def check(spec) -> None:
    """Numbers are finite, directions and quaternions unit, parents come first, references point at something."""
    count = range(-1, len(spec.bodies))
    for i, body in enumerate(spec.bodies):
        joint = body.joint
        assert -1 <= body.parent < i and body.name and joint.type in JOINT_TYPES
        numbers = [body.pos, body.inertial.mass, body.inertial.com, body.inertial.inertia, joint.pos, *joint.params.values()]
        numbers += [x for x in (body.velocity, joint.q0) if x is not None]
        for geom in body.geoms:
            numbers += [geom.size, geom.pos, geom.rgba or 0.0, geom.friction or 0.0, *geom.surface.values()]
        assert all(np.isfinite(x).all() for x in numbers)
        units = [body.quat, joint.quat, *(geom.quat for geom in body.geoms), *joint.params.get("axes", ())]
        np.testing.assert_allclose([np.linalg.norm(u) for u in units], 1, atol=1e-12)
    for element in (*spec.constraints, *spec.forces):
        assert all(b in count for b in element.bodies) and len(element.bodies) == len(element.frames)
        assert all(np.isfinite(pos).all() for pos, _ in element.frames)
        np.testing.assert_allclose([np.linalg.norm(quat) for _, quat in element.frames], 1, atol=1e-12)
    for constraint in spec.constraints:
        assert constraint.bodies or all(0 <= b and 0 <= i < JOINT_TYPES[spec.bodies[b].joint.type].nv for b, i in constraint.coordinates)
        assert (constraint.mode == "") == (constraint.function is None)
    for force in spec.forces:
        numbers = [force.stiffness, force.damping, force.vector, force.rest, force.preload, *(force.map or ())]
        tables = [f.numbers for f in (force.spring, force.damper, force.function) if f is not None]
        assert all(np.isfinite(x).all() for x in (*numbers, *tables) if x is not None)


@needs_corpus
def test_the_corpus_is_there():
    assert len(models("chrono")) == 33


@pytest.mark.parametrize("path", models("chrono"), ids=lambda p: p.stem)
def test_corpus_is_drawn_as_the_reference_engine_draws_it(path):
    """Names and order of the bodies, their poses as loaded, gravity where the format has its own. 1e-9: the reference's quaternions."""
    numbers = oracle(path)
    spec = quiet(path, gravity=numbers["gravity"])
    check(spec)
    poses = placed(spec)
    first = numbers["states"][0]
    assert first["time"] == 0 and set(first["body_pose"]) == {b.name for b in spec.bodies}
    for name, x in first["body_pose"].items():
        if "projected" not in first.get("note", ""):
            np.testing.assert_allclose(poses[name][1], x[:3], atol=1e-9)
            np.testing.assert_allclose(poses[name][0], matrix(x[3:]), atol=1e-9)


def bad() -> dict[str, list[str]]:
    root = corpus()
    return {} if root is None else json.loads((root / "oracles" / "chrono" / "bad_inputs.json").read_text())["files"]


@pytest.mark.parametrize("file", bad())
def test_bad_files_are_refused_with_their_words(file):
    with pytest.raises(ParseError) as caught:
        parse(corpus() / file)
    message = str(caught.value).replace(str((corpus() / file).parent), "")
    assert re.search(r"\.yaml:\d+: ", message) and all(word.lower() in message.lower() for word in bad()[file]), message


@needs_corpus
def test_every_bad_file_is_listed():
    assert {f"models/chrono/bad/{p.name}" for p in (corpus() / "models" / "chrono" / "bad").glob("*")} == set(bad())


# ---- nothing is dropped --------------------------------------------------------------------------------------------------------

MOST = 150  # changes tried in one file, evenly spread over it
DIRECTIONS = ("axis", "axis1", "axis2")  # their length does not count
# Keys, with the files (none: any) where some of their values have no effect: a label; no angle or no mesh file in the file; nobody's keys;
# DOF of a joint that leaves no translation free; a ball bushing holds no rotation; a fixed body; a drawn spring; a damper's preload; a
# stop alone; the part of axis2 along axis1.
UNUSED = {
    "chrono-version": "", "root": "", "lin_vel": "", "ang_vel": "", "resolution": "", "turns": "",
    "angle_degrees": "model_baffle_flow model_bushing model_cylinder_drop model_dam_break model_flap model_inverted_pendulum_load "
                     "model_slider_crank",
    "stiffness_linear": "bushing_revolute_dof bushing_spherical_dof model_bushing",
    "damping_linear": "bushing_revolute_dof bushing_spherical_dof model_bushing",
    "stiffness_rotational": "bushing_spherical_dof", "damping_rotational": "bushing_spherical_dof",
    "mass": "model_motors", "moments": "model_motors", "products": "model_motors",
    "radius": "model_slider_crank spring_dampers_section", "preload": "tsda_linear", "maximum_length": "tsda_stops",
    "axis2": "model_slider_crank universal_chain",
}  # fmt: skip


def outcome(text: str) -> str | None:
    """The spec and the warnings as text, None where the file is refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            spec = parse_text(text, "chrono")
        except ParseError:
            return None
    return f"{plain(spec)} {sorted(str(w.message) for w in caught)}"


def scalars(node, key: str = "") -> Iterator[tuple[str, yaml.ScalarNode]]:
    """All values with the last key above them."""
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    for child in node.value if isinstance(node, yaml.SequenceNode) else ():
        yield from scalars(child, key)
    for name, child in node.value if isinstance(node, yaml.MappingNode) else ():
        yield from scalars(child, name.value)


@pytest.mark.parametrize("path", models("chrono"), ids=lambda p: p.stem)
def test_no_value_is_dropped(path):
    """A changed number, switch or word changes what was read or warned, or the file is refused."""
    text = path.read_text()
    places = list(scalars(yaml.compose(text, Loader=yaml.SafeLoader)))
    before, dropped = outcome(text), []
    assert before is not None
    for key, node in places[:: 1 + len(places) // MOST]:
        try:
            x = float(node.value)
            new = repr(-x if x and key in DIRECTIONS else 1.1 * x + 0.11)
        except ValueError:
            new = {"true": "false", "false": "true"}.get(node.value.lower(), f"{node.value}_changed")
        if outcome(text[: node.start_mark.index] + new + text[node.end_mark.index :]) == before:
            dropped.append((key, f"line {node.start_mark.line + 1}: {node.value} -> {new}"))
    assert [(key, place) for key, place in dropped if key not in UNUSED or path.stem not in (UNUSED[key] or path.stem).split()] == []


# ---- hostile input -----------------------------------------------------------------------------------------------------------


def everything() -> str:
    """A document with every element."""
    composite = [DISTANCE.replace("name: c", f"name: c{i}").replace("DISTANCE", t) for i, t in enumerate(
        ("REVOLUTE-SPHERICAL, axis: [0, 0, 1]", "REVOLUTE-TRANSLATIONAL, axis: [0, 0, 1], axis2: [1, 1, 0]"))]  # fmt: skip
    motors = [motor(type, guide, mode).replace("name: m", f"name: {type}{guide}{mode}").replace("body2: b", "body2: ground")
              for type, guide in HELD for mode in ("POSITION", "SPEED", "FORCE")]  # fmt: skip
    functions = ("POLYNOMIAL, coefficients: [1, 2]", "SINE, amplitude: 1, frequency: 2, phase: 3, shift: 4", "DATA, data: [[0, 1], [2, 3]]",
                 "RAMP, slope: 1, intercept: 2, repeat: {start: 1, width: 2, shift: 3}", "CONTROLLER")  # fmt: skip
    motors = [m.replace("CONSTANT, value: 3", functions[i % 6]) if i % 6 < 5 else m for i, m in enumerate(motors)]
    shapes = f"visualization: {{model_file: m.obj, shapes: [{SHAPES}]}}"
    contact = "contact: {materials: [{name: m, coefficient_of_friction: 1}], shapes: [{type: BOX, dimensions: [1, 2, 3], material: m}]}"
    joints = (
        f"name: j, type: revolute, {AT}, axis: [0, 0, 1]", f"name: k, type: universal, {AT}, axis1: [1, 0, 0], axis2: [0, 1, 1]",
        f"name: l, type: lock, {AT}, bushing_data: {{{BUSHING}, {DOF}}}", f"name: p, type: pointline, {AT}",
        "name: q, type: spherical, body1: ground, body2: c, location: [0, 0, 0]",
    )  # fmt: skip
    return document(
        "name: all", "angle_degrees: true", "data_path: {type: RELATIVE, root: ..}",
        bodies=(GROUND, f"{A}, {shapes}", f"{B}, {contact}", C, f"{COM}, initial_linear_velocity: [1, 2, 3]"), joints=joints,
        constraints=(DISTANCE, *composite), motors=motors, rsdas=RSDA, spring_dampers=f"type: TSDA, {TSDA}",
        tsdas=(f"{TSDA}, preload: 1, minimum_length: 1, maximum_length: 2", f"{LAWLESS}, {CURVE}, {DAMPER}".replace("name: s", "name: t"),
               f"{LAWLESS}, {MAP}".replace("name: s", "name: u")),
        body_loads=f"{LOAD}, modulation_function: {{type: RAMP, slope: 1}}", load_controllers=bare(LOAD, "load"),
    )  # fmt: skip


JUNK = (
    "", " ", None, "nan", "inf", "-1", "0", 0, [0, 0, 0], "1e308", [1e308] * 3, 1e49, [1e50, -1e50, 1e-320], [1e-300] * 3, [1] * 4,
    [1e-30] * 4, "x", "a", "b", "ground", [], {}, [[]], [[1, 2], [1, 3]], [None], {"type": "SINE"}, True, "REVOLUTE", "FREE", "POSITION",
    "../../x.yaml", "\u0663", "1_0",
)  # fmt: skip
TYPOS = ("", ":", "- ", "\n", "{", "]", "*a", "&a ", "'", "\t", "\x00", "9", "e99", "# ")


def mutate(text: str, rng: random.Random) -> str:
    """The document with one to four faults in its nodes, or a few in its text."""
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 3)):
            i = rng.randrange(len(text) + 1)
            text = text[:i] + rng.choice(TYPOS) + text[i + rng.randint(0, 3) :]
        return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.2 else text
    data = yaml.safe_load(text)
    for _ in range(rng.randint(1, 4)):
        places, stack = [], [data]
        while stack:
            node = stack.pop()
            keys = list(node) if isinstance(node, dict) else range(len(node))
            places += [(node, key) for key in keys]
            stack += [node[key] for key in keys if isinstance(node[key], (dict, list))]
        (node, key), (other, from_) = rng.choice(places), rng.choice(places)
        kind = rng.choice(("value", "value", "value", "delete", "copy", "rename", "scale"))
        if kind == "value":
            node[key] = copy.deepcopy(rng.choice(JUNK))
        elif kind == "delete":
            del node[key]
        elif kind == "copy":
            node[key] = copy.deepcopy(other[from_])
        elif kind == "rename" and isinstance(node, dict):
            node[rng.choice(("name", "type", "axis", "location", "map_data", "unknown", str(from_)))] = node.pop(key)
        elif kind == "scale" and isinstance(node[key], float):
            node[key] *= rng.choice((-1, 1e-20, 1e20, 0))
        if not data:
            break
    return yaml.safe_dump(data, sort_keys=False)


def check_mutated(rng: random.Random) -> None:
    text = mutate(rng.choice(documents()), rng)
    try:
        spec = quiet(text)
    except ParseError as error:
        assert str(error).startswith("<string>")
        return
    check(spec)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", mutations.SEEDS, ids=mutations.IDS)
def test_mutated_files_end_in_a_spec_or_a_parse_error(seeds):
    mutations.check_each(seeds, check_mutated)


@cache
def documents() -> list[str]:
    return [everything(), everything(), *(path.read_text() for path in models("chrono"))]


def test_the_mutated_files_are_good_before():
    for text in documents():
        check(quiet(text))
    spec = quiet(everything())
    assert {f.kind for f in spec.forces} == {"spring", "torsion", "bushing", "motor", "load"}
    assert {c.kind for c in spec.constraints} == {
        "joint", "point_on_line", "distance", "revolute_spherical", "revolute_translational", "motor", "motion",
    }  # fmt: skip


@pytest.mark.slow
def test_long_chains_take_seconds():
    n = 3_000
    bodies = [f"name: b{i}, location: [{i}, 0, 0], {HEAVY}" for i in range(n)]
    joints = [f"name: j{i}, type: revolute, body1: b{i}, body2: b{i + 1}, location: [{i}, 0, 0], axis: [0, 0, 1]" for i in range(n - 1)]
    start = time.perf_counter()
    assert len(read(bodies=bodies, joints=joints).bodies) == n
    assert time.perf_counter() - start < 60
