"""Which steps of the corpus LLVM compiles: all but those of large scenes."""

from __future__ import annotations

import jax
import pytest
from corpus import corpus, needs_corpus

import xsim
from xsim.compile.choice import tracing_for
from xsim.compile.flatten import Unsupported
from xsim.dynamics.compiled_step import step_function

LARGE = {"mjcf/mujoco/floppy/floppy.xml"}
"""Models whose step has more operations than LLVM compiles in a bearable time: a body of 384 vertices that can touch anything, so that each
contact has a Jacobian of 1,153 columns."""

SUFFIXES, OTHERS = {".sdf", ".skel", ".urdf", ".xml", ".yaml"}, {"bad", "invalid", "refused", "include_tree"}
"""Of the files of the corpus, and folders of files that are refused or are parts of others, as files ``.inc.xml`` are."""


def _files() -> list[str]:
    root = corpus()
    if root is None:
        return []
    found = (path.relative_to(root / "models") for path in (root / "models").rglob("*") if path.suffix in SUFFIXES)
    return sorted(path.as_posix() for path in found if OTHERS.isdisjoint(path.parts) and not path.name.endswith(".inc.xml"))


@needs_corpus
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _files())
def test_the_step_has_a_program(name):
    root = corpus()
    assert root is not None
    model = xsim.load(root / "models" / name)
    step_function.cache_clear()  # which keeps traces and programs that were not compiled
    with tracing_for("llvm"):
        if name in LARGE:
            with pytest.raises(Unsupported, match="operations"):
                jax.eval_shape(xsim.step, model, xsim.init(model))
        else:
            jax.eval_shape(xsim.step, model, xsim.init(model))
