"""The conformance corpus: real files of every format and the numbers of reference engines, read from outside the repository."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

MUJOCO_VERSIONS = {"3.2": "3.2.7", "4.0": "4.0.0"}
"""The versions of MuJoCo that have recorded numbers, by the rules of `xsim.load`."""

_SUFFIXES = {"x_xy": ".xml", "mjcf": ".xml", "sdf": ".sdf", "urdf": ".urdf", "skel": ".skel", "chrono": ".yaml"}


def corpus() -> Path | None:
    """Folder with models/ and oracles/: XSIM_CORPUS, or ``shared`` beside the checkout; None where there is none."""
    path = Path(os.environ.get("XSIM_CORPUS") or Path(__file__).resolve().parents[1].parent / "shared")
    return path if (path / "models").is_dir() else None


def models(format: str) -> list[Path]:
    """Model files of a format, in order; empty without a corpus."""
    root = corpus()
    return [] if root is None else sorted((root / "models" / format).glob(f"*{_SUFFIXES[format]}"))


def oracle(path: Path) -> dict:
    """The reference numbers for a model file."""
    return json.loads((path.parents[2] / "oracles" / path.parent.name / f"{path.stem}.json").read_text())


def small(paths: list[Path], size: Callable[[Path], int], most: int) -> list:
    """Parameters of a test of every model, those of a larger size nightly: the default run takes minutes, the corpus hours."""
    return [pytest.param(p, marks=[pytest.mark.nightly] * (size(p) > most)) for p in paths]


needs_corpus = pytest.mark.skipif(corpus() is None, reason="no conformance corpus: set XSIM_CORPUS to a folder with models/ and oracles/")
