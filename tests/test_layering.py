"""Imports go one way, readers stay free of jax, and importing xsim changes no setting."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "xsim"

# A module may import from its own layer and the layers before it.
LAYERS = (
    ("spec", "jointtypes", "models"),
    ("structure",),
    ("pairs",),
    ("io",),
    ("spatial",),
    ("joints",),
    ("model",),
    ("rows", "bodies", "flexes"),
    ("devices", "softness"),
    ("build", "dynamics"),
    ("load",),
    ("randomize", "sysid"),
    ("envs", "viewer"),
    ("bench", "view", "train", "__main__"),
)
RANK = {name: i for i, names in enumerate(LAYERS) for name in names}
FORBIDDEN = {"dynamics": {"io", "spec", "build", "load"}, "io": {"spatial", "joints", "model"}, "build": {"dynamics", "io"}}


def _imports(path: Path):
    """Top-level xsim modules that a file imports."""
    here = path.relative_to(PACKAGE.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level]
            target = (*base, *(node.module.split(".") if node.module else ()))
            names = [target[1]] if len(target) > 1 else [a.name for a in node.names]
            yield from names
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "xsim":
            yield from [node.module.split(".")[1]] if "." in node.module else [a.name for a in node.names]


def test_no_private_module_of_jax():
    """What jax does not promise changes without notice: releases 0.10 and 0.12 differ in much of it."""
    private = re.compile(r"\bjax(lib)?\.(_src|interpreters)\b")
    assert [p.relative_to(PACKAGE) for p in sorted(PACKAGE.rglob("*.py")) if private.search(p.read_text())] == []


def test_imports_go_one_way():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own not in RANK:
            assert own == "__init__", f"{path.name} has no layer: add it to LAYERS"
            continue
        for name in _imports(path):
            if name in RANK and (RANK[name] > RANK[own] or name in FORBIDDEN.get(own, ())):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("folder", ["io", "spec.py", "jointtypes.py"])
def test_readers_do_not_import_jax(folder):
    for path in [PACKAGE / folder] if folder.endswith(".py") else sorted((PACKAGE / folder).rglob("*.py")):
        assert "import jax" not in path.read_text() and "from jax" not in path.read_text(), path


def test_importing_changes_no_setting():
    code = (
        "import jax, logging, numpy as np\n"
        "before = (dict(jax.config.values), np.geterr(), logging.getLogger().level)\n"
        "import xsim\n"
        "assert before == (dict(jax.config.values), np.geterr(), logging.getLogger().level)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
