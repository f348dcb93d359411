"""Tactile sensors: numbers of MuJoCo 4.0.0, derivatives, batches, and what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from test_gradients import check_both_modes
from traced import by_numpy

import xsim

KNOWN = json.loads((Path(__file__).parent / "reference/tactile.json").read_text())
"""By name, recorded by reference/make_tactile.py."""
DAILY = "box", "wedge that is turned", "two geoms"


def load(text: str) -> xsim.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xsim.UnsupportedWarning)
        return xsim.loads(text, "mjcf", rules="4.0")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in DAILY else pytest.mark.slow) for n in KNOWN])
def test_numbers_of_the_engine(name, x64):
    """Depths and speeds. The vertices of meshes are single-precision numbers in MuJoCo."""
    known = KNOWN[name]
    model = load(known["model"])
    found = by_numpy(xsim.sensors)(model, xsim.init(model, v=np.array(known["v"])))
    np.testing.assert_allclose(found, known["sensors"], atol=2e-7)
    assert np.any(known["sensors"]) == (name != "not in contact")


@pytest.mark.parametrize("name", [pytest.param("box", marks=pytest.mark.nightly), pytest.param("wedge", marks=pytest.mark.slow)])
def test_derivatives(name, x64):
    """With respect to the state and the numbers of geoms, in a batch, of whose environments the last has no contact."""
    model = load(KNOWN[name]["model"])
    rng, count, leaves = np.random.default_rng(1), 3, ("geom.size", "geom.pos")
    q = np.asarray(xsim.init(model).q) + 0.002 * rng.normal(size=(count, model.nq))
    q[-1, 9] -= 0.2
    point = {path: np.broadcast_to(np.asarray(model.get(path), float), (count, *model.shape(path))).copy() for path in leaves}
    point |= {"q": q, "v": rng.normal(size=(count, model.nv))}
    sample = by_numpy(xsim.sensors)(model, xsim.init(model))
    weights = rng.normal(size=sample.shape)

    def loss(point):
        m = model.replace({path: point[path] for path in leaves})
        return xsim.sensors(m, xsim.init(m, point["q"], point["v"])) @ weights

    reverse = check_both_modes(loss, point, 2, {"default": 1e-6}, 1e-6)
    assert np.any(reverse["q"][:2]) and np.any(reverse["v"][:2]) and np.any(reverse["geom.size"][:2])
    assert not np.any(reverse["q"][-1])


def test_pads_that_cannot_be():
    """And what is read: the width, a delay."""
    text = KNOWN["box"]["model"]
    spec = xsim.parse_text(text.replace("<tactile ", '<tactile nsample="3" delay=".004" '), "mjcf", rules="4.0")
    sensor = spec.sensors[0]
    assert (sensor.dim, sensor.stage, sensor.object) == (60, "velocity", ("geom", 1)) and sensor.history is not None
    with pytest.raises(xsim.WriteError, match="points that are no mesh of the model"):
        xsim.to_mjcf(spec)
    for old, new, message in (
        ('geom="s" ', "", "attribute 'geom' is missing"), ('mesh="m" />', "/>", "attribute 'mesh' is missing"),
        ("<tactile ", '<tactile noise="1" ', "unknown attribute 'noise'"), ('mesh="m" />', 'mesh="n"/>', "unknown mesh 'n'"),
        ('name="pad" ', 'name="pad" contype="0" conaffinity="0" ', "has no geom that collides"),
    ):  # fmt: skip
        assert old in text
        with pytest.raises(xsim.ParseError, match=message):
            xsim.parse_text(text.replace(old, new), "mjcf", rules="4.0")
    with pytest.raises(xsim.ParseError, match="tactile"):
        xsim.parse_text(text, "mjcf", rules="3.2")
