"""Extensions of xsim from outside of the package: each is one object and one line that registers it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import xsim
from xsim.io import FORMATS, Format, Notes, ParseError, UnsupportedWarning, register_format
from xsim.spec import BodySpec, InertialSpec, JointSpec, ModelSpec, Source

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
