"""Extensions of xsim from outside of the package: each is one object and one line that registers it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

import xsim
from xsim import registry
from xsim.io import FORMATS, Format, Notes, ParseError, UnsupportedWarning, register_format
from xsim.joints.types import JOINT_TYPES
from xsim.spec import BodySpec, ConstraintSpec, EqualitySpec, InertialSpec, JointSpec, ModelSpec, SensorSpec, Source

PENDULUM = """<mujoco><worldbody><body><joint name="hinge"/><geom size="0.1"/></body></worldbody>
  <actuator><motor joint="hinge"/></actuator></mujoco>"""
CHAIN = {"lengths": [0.5, 0.25], "masses": [2.0, 3.0]}


def read_chain(data: bytes | str, file: str, notes: Notes, *, damping: float = 0.0) -> ModelSpec:
    """A chain of point masses (kg) on rods (m) that hang from hinges about y, as JSON."""
    content = json.loads(data)
    lengths, masses = content.pop("lengths"), content.pop("masses")
    if len(lengths) != len(masses):
        raise ParseError(file, None, f"found {len(masses)} masses; allowed: {len(lengths)}, one for each rod")
    for key in content:
        notes.unsupported(1, f"{key!r} is not read")
    bodies = []
    for i, (length, mass) in enumerate(zip(lengths, masses, strict=True)):
        joint = JointSpec("hinge", params={"axes": np.array([[0.0, 1.0, 0.0]])}, damping=np.array([damping]))
        inertial = InertialSpec(mass, np.array([0.0, 0.0, -length]))
        pos = np.array([0.0, 0.0, -lengths[i - 1] if i else 0.0])
        bodies.append(BodySpec(f"rod{i}", i - 1, joint, pos, inertial=inertial, source=Source(file, 1)))
    return ModelSpec("chain", "chain", tuple(bodies))


@pytest.fixture
def chain_format():
    yield register_format(Format("chain", "Chain JSON", read_chain, suffixes=(".chain",)))
    del FORMATS["chain"]


def test_a_format_from_outside(chain_format, tmp_path, x64):
    path = tmp_path / "double.chain"
    path.write_text(json.dumps(CHAIN))
    model = xsim.load(path, damping=0.5)  # recognized by its suffix
    np.testing.assert_allclose(model.get("dof.damping"), [0.5, 0.5])
    (l1, l2), (m1, m2), (a, b) = CHAIN["lengths"], CHAIN["masses"], (0.3, -0.7)
    wanted = [
        [m1 * l1**2 + m2 * (l1**2 + l2**2 + 2 * l1 * l2 * np.cos(b)), m2 * (l2**2 + l1 * l2 * np.cos(b))],
        [m2 * (l2**2 + l1 * l2 * np.cos(b)), m2 * l2**2],
    ]
    np.testing.assert_allclose(xsim.mass_matrix(model, np.array([a, b])), wanted, rtol=1e-12)

    text = json.dumps(CHAIN | {"colour": "red"})
    with pytest.warns(UnsupportedWarning, match="<string>:1: 'colour' is not read"):
        spec = xsim.parse_text(text, "chain")
    assert [body.name for body in spec.bodies] == ["rod0", "rod1"] and spec.bodies[1].joint.damping == [0.0]
    with pytest.raises(ParseError, match=r"<string>:1: 'colour' is not read \(strict\)"):
        xsim.parse_text(text, "chain", strict=True)
    with pytest.raises(ParseError, match="double.chain: found 1 masses; allowed: 2"):
        path.write_text(json.dumps(CHAIN | {"masses": [1.0]}))
        xsim.load(path)
    with pytest.raises(TypeError, match="Chain JSON has no option 'dampin'; did you mean 'damping'"):
        xsim.load(path, dampin=1.0)


def test_formats_do_not_share_names_suffixes_or_roots(chain_format):
    for clash in (chain_format, Format("other", "", read_chain, suffixes=(".urdf",)), Format("other", "", read_chain, roots=("robot",))):
        with pytest.raises(ValueError, match="chain|urdf"):
            register_format(clash)
    assert "other" not in FORMATS


def test_a_format_is_found_by_its_xml_root(chain_format):
    register_format(Format("hang", "Hang XML", lambda data, file, notes: read_chain(json.dumps(CHAIN), file, notes), roots=("hang",)))
    try:
        assert len(xsim.parse_text("<hang/>").bodies) == 2
    finally:
        del FORMATS["hang"]
    with pytest.raises(ParseError, match="unknown root element"):
        xsim.parse_text("<hang/>")


# ---- the examples of CONTRIBUTING.md -------------------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text()
SECTIONS = {
    title: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for title, text in re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
SETUP = "\n".join(SECTIONS["Adding a kind"])
EXAMPLES = [title for title, blocks in SECTIONS.items() if blocks and title != "Adding a kind"]
IMPORTS = "\n".join(re.findall(r"^from xsim\.spec import .*$", PAGE, re.MULTILINE))
"""Sections use what earlier ones import of the spec."""


@pytest.fixture
def registries(monkeypatch):
    """Registries as they were, after the test."""
    for value in (*vars(registry).values(), JOINT_TYPES):
        if isinstance(value, registry.Registry):
            monkeypatch.setattr(value, "_entries", dict(value._entries))
    formats = dict(FORMATS)
    yield
    for name in set(FORMATS) - set(formats):
        del FORMATS[name]


@pytest.mark.parametrize("title", EXAMPLES)
def test_example(title, registries):
    names: dict = {}
    exec(compile(IMPORTS + "\n" + SETUP + "\n" + "\n".join(SECTIONS[title]), title, "exec"), names)


def test_there_is_an_example_of_each_registry():
    used = set(re.findall(r"\b([A-Z_]+)\.register\(", PAGE)) | {"COLLIDERS", "ACTUATOR_BIASES", "TRANSMISSIONS"}
    assert used == {name for name, value in vars(registry).items() if isinstance(value, registry.Registry)}


def test_an_unknown_kind_is_refused_at_build():
    spec = xsim.parse_text(PENDULUM, "mjcf")
    motor = spec.actuators[0]
    changes = [
        ({"sensors": (SensorSpec("jointposs"),)}, "unknown kind of sensor 'jointposs' .did you mean 'jointpos'.."),
        ({"equalities": (EqualitySpec("welded"),)}, "unknown kind of soft constraint"),
        ({"actuators": (dataclasses.replace(motor, gain="fix"),)}, "unknown actuator gain"),
        ({"actuators": (dataclasses.replace(motor, dynamics="fix"),)}, "unknown activation dynamics"),
        ({"actuators": (dataclasses.replace(motor, transmission="joints"),)}, "unknown transmission"),
        ({"option": dataclasses.replace(spec.option, integrator="eulers")}, "unknown integrator 'eulers'"),
        ({"constraints": (ConstraintSpec("hooked", bodies=(-1, 0)),)}, "unknown kind of constraint"),
    ]
    for change, text in changes:
        with pytest.raises(ValueError, match=text):
            xsim.build(spec.replace(**change))
