"""Imports go one way, readers stay free of jax, and importing xsim changes no setting."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "xsim"

# Of parts of the package, lowest first: a module may import from its own layer and from those before it. The longest prefix counts.
LAYERS = (
    ("registry", "rules", "limits", "poses", "suggestions", "cache"),
    ("spec", "joints.types", "models"),
    ("model.table", "model.triangle_distance", "model.face_order"),
    ("model.octree",),
    ("model.drawing",),
    ("model.flex_topology", "model.shape_functions"),
    ("model.topology",),
    ("model.names", "model.selectors", "model.colors"),
    ("io",),
    (
        "spatial", "compile.arrays", "compile.block_functions", "compile.blocks", "compile.bounded", "compile.choice",
        "compile.code_generation", "compile.columns", "compile.elementary", "compile.handler", "compile.program", "compile.registers",
        "compile.rules",
    ),
    ("compile.processes",),
    ("compile.machine",),
    (
        "compile.simplify", "compile.indexing", "compile.factorization", "compile.matrices", "compile.sparsity", "compile.tiled",
        "compile.placement", "compile.scheduling", "compile.loop_fusion",
    ),
    ("compile.assembly",),
    ("compile.traced", "compile.llvm_types", "compile.parts"),
    ("compile.llvm_ir",),
    ("compile.loops", "compile.expansions"),
    ("compile.adjoints", "compile.flatten", "compile.host"),
    ("compile.cotangents",),
    ("compile.reverse",),
    ("compile",),
    ("joints.elementary",),
    ("model.model",),
    ("model.data",),
    ("model.leaf_rows", "model.appearance"),
    ("model.tree", "model.geoms", "model.contact_pairs", "model.holonomic", "model.flexes", "model.devices", "model.soft_constraints"),
    ("model.build",),
    ("model.readback",),
    ("dynamics.layout", "dynamics.history"),
    ("dynamics.tree",),
    ("dynamics.linalg",),
    ("dynamics.tendons",),
    ("dynamics.flex",),
    ("dynamics.forces",),
    ("dynamics.collide",),
    ("dynamics.constraints",),
    ("dynamics.actuation",),
    ("dynamics.integration",),
    ("dynamics.sensors",),
    ("dynamics",),
    ("load", "options"),
    ("randomize", "sysid", "control"),
    ("envs", "viewer"),
    ("bench", "view", "train", "demo"),
    ("__main__",),
)
RANK = {name: i for i, names in enumerate(LAYERS) for name in names}
FORBIDDEN = {"dynamics": ("io", "spec", "model.build", "load"), "io": ("spatial", "joints.elementary", "model.model"), "model": ("io",)}


def _files() -> dict[str, Path]:
    """Files of the package by module, "" for xsim itself."""
    names = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in sorted(PACKAGE.rglob("*.py"))}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path for path, parts in names.items()}


FILES = _files()


def _imports(path: Path) -> set[str]:
    """Modules of xsim that a file imports, also inside functions and for types alone."""
    out = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: imports are absolute"
            module = node.module or ""
            for alias in node.names if module.split(".")[0] == "xsim" else ():
                name = f"{module}.{alias.name}".partition(".")[2]
                out.add(name if name in FILES else module.partition(".")[2])
        elif isinstance(node, ast.Import):
            out |= {alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("xsim.")}
    return out


GRAPH = {module: _imports(path) for module, path in FILES.items()}


def _within(module: str, parts) -> str | None:
    """The longest of the parts that a module is in."""
    fitting = [part for part in parts if f"{module}.".startswith(f"{part}.")]
    return max(fitting, key=len, default=None)


def test_no_private_module_of_jax():
    """What jax does not promise changes without notice: releases 0.10 and 0.12 differ in much of it."""
    private = re.compile(r"\bjax(lib)?\.(_src|interpreters)\b")
    found = [p.relative_to(PACKAGE).as_posix() for p in sorted(PACKAGE.rglob("*.py")) if private.search(p.read_text())]
    # Primitives with derivatives and a batched form can be defined in no other way (JAX's documentation, "JAX Internals: primitives").
    names = "bounded", "compiled_call", "function", "primitives", "repeated", "repeated_derivatives"
    assert found == [f"compile/{name}.py" for name in names]


def test_every_module_has_a_layer():
    assert [m for m in FILES if m and _within(m, RANK) is None and not FILES[m].name == "__init__.py"] == []


def test_imports_go_one_way():
    wrong = []
    for module, imported in GRAPH.items():
        own = _within(module, RANK)
        for name in imported if own is not None else ():
            other = _within(name, RANK)
            if other is not None and RANK[other] > RANK[own]:
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_parts_that_do_not_know_each_other():
    wrong = [
        f"{module} imports {name}"
        for module, imported in GRAPH.items()
        for name in imported
        if _within(name, FORBIDDEN.get(module.split(".")[0], ()))
    ]
    assert wrong == []


def test_imports_have_no_circle():
    """Also of those inside functions and for types alone, within layers and between them."""
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]):
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for name in sorted(GRAPH[module]):
                visit(name, (*path, module))
            done.add(module)

    for module in GRAPH:
        if module:  # the package itself imports everything that is public
            visit(module, ())


@pytest.mark.parametrize("folder", ["io", "spec", "poses.py", "suggestions.py", "joints/types.py"])
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
