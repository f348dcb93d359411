"""Run notebooks (by default all) and store their outputs, the pictures with few colours.

``python docs/figures/run_notebooks.py [NAME ...]``

Needs nbclient, nbformat, ipykernel, pillow and what the notebooks import.
"""

import base64
import io
import shutil
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat
from PIL import Image

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
COLORS = 64


def small(png: str) -> str:
    """The same picture with few colours. png: base64."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(COLORS)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode("ascii")


def stored(path: Path) -> nbformat.NotebookNode:
    """The notebook, run in a folder with nothing but its data, with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        for file in (f for kind in ("npz", "xml") for f in NOTEBOOKS.glob(f"*.{kind}")):
            shutil.copy(file, folder)
        nbclient.NotebookClient(notebook, timeout=1500, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = small(output.data["image/png"])
    notebook.metadata.language_info = {"name": "python"}
    return notebook


if __name__ == "__main__":
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(stored(path), path)
        print(f"{path.name}: {path.stat().st_size // 1000} kB")
