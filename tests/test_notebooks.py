"""Every notebook runs from top to bottom, and is stored with outputs of the kinds that it gives."""

import os
import shutil
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("optimistix")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DATA = [f for kind in ("npz", "xml") for f in (ROOT / "notebooks").glob(f"*.{kind}")]


def test_there_is_a_notebook():
    assert NOTEBOOKS


DAILY = ("fit_spring_chain",)
CASES = [pytest.param(p, marks=[pytest.mark.nightly] * (p.stem not in DAILY)) for p in NOTEBOOKS]


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    stored = [[o.output_type for o in c.outputs] for c in code]
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1)), "run docs/figures/run_notebooks.py"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    for file in DATA:
        shutil.copy(file, tmp_path)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    drawn = [o for c in code for o in c.outputs if o.output_type == "display_data" and "image/png" in o.data]
    assert drawn and not [o for c in code for o in c.outputs if o.output_type == "stream" and o.name == "stderr"]
    assert [[o.output_type for o in c.outputs] for c in code] == stored, "run docs/figures/run_notebooks.py"
    nbformat.write(notebook, tmp_path / path.name)
