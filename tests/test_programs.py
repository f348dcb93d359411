"""Which steps of the corpus LLVM compiles: all but those of large scenes."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

import xsim
from tests.corpus import corpus, needs_corpus
from xsim.compile.choice import tracing_for
from xsim.compile.flatten import Unsupported
from xsim.dynamics.compiled_step import step_function

LARGE = {
    "mjcf/authored/collide_all_primitives.xml",
    "mjcf/authored/flexcomp_types.xml",
    "mjcf/dmc/humanoid_CMU.xml",
    "mjcf/feature/contact_planks.xml",
    "mjcf/feature/stacked_boxes.xml",
    "mjcf/mujoco/cable/cable.xml",
    "mjcf/mujoco/floppy/floppy.xml",
    "mjcf/mujoco/hammock/hammock.xml",
    "mjcf/mujoco/pulley/pulley.xml",
    "mjcf/mujoco/replicate_tendon.xml",
    "mjcf/mujoco/sdf_torus/sdf_torus.xml",
    "mjcf/mujoco/stonehenge.xml",
}
"""Models whose step has more operations than LLVM compiles in a bearable time."""

SUFFIXES, REFUSED = {".sdf", ".skel", ".urdf", ".xml", ".yaml"}, {"bad", "invalid", "refused"}
"""Of the files of the corpus, and folders of files that cannot be loaded."""


def _files() -> list[str]:
    root = corpus()
    if root is None:
        return []
    found = (path.relative_to(root / "models") for path in (root / "models").rglob("*") if path.suffix in SUFFIXES)
    return sorted(path.as_posix() for path in found if REFUSED.isdisjoint(path.parts))


@needs_corpus
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _files())
def test_the_step_has_a_program(name):
    root = corpus()
    assert root is not None
    try:
        model = xsim.load(Path(root) / "models" / name)
    except xsim.ParseError:
        pytest.skip("a part of another file")
    step_function.cache_clear()  # which keeps traces and programs that were not compiled
    with tracing_for("llvm"):
        if name in LARGE:
            with pytest.raises(Unsupported, match="operations"):
                jax.eval_shape(xsim.step, model, xsim.init(model))
        else:
            jax.eval_shape(xsim.step, model, xsim.init(model))
