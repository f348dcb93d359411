"""Settings of the documentation: ``python -m sphinx -W --keep-going -b html docs docs/_build``."""

import shutil
import sys
from pathlib import Path

import xsim
from xsim.model.model import LEAVES

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

project = "xsim"
author = "The xsim developers"
release = version = xsim.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "docstrings"]
exclude_patterns = ["_build", "jupyter_execute", "figures"]

html_theme = "sphinx_book_theme"
html_title = "xsim"
html_theme_options = {"show_toc_level": 2, "home_page_in_toc": True}

# Notebooks are shown with the outputs that they are stored with: `docs/figures/run_notebooks.py` runs them.
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# Docstrings write code in single backticks; what is a documented name becomes a link.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["brax", "gymnasium"]
python_display_short_literal_types = True
python_maximum_signature_line_length = 100


def write_leaves(file: Path) -> None:
    """A table of all leaves of a model, from their declarations."""
    lines = ["| leaf | shape | unit | meaning |", "|---|---|---|---|"]
    for path, leaf in LEAVES.items():
        shape = ", ".join(map(str, leaf.shape)) or "scalar"
        sign = f", {leaf.sign}" if leaf.sign else ""
        lines.append(f"| `{path}` | {shape} | {leaf.unit} | {leaf.doc}{sign} |")
    text = "\n".join(lines) + "\n"
    if not file.is_file() or file.read_text() != text:
        file.write_text(text)


def copy_notebooks(folder: Path) -> None:
    """Sphinx reads what is below its own folder."""
    folder.mkdir(exist_ok=True)
    for notebook in (DOCS.parent / "notebooks").glob("*.ipynb"):
        shutil.copy2(notebook, folder)


def setup(app) -> None:
    generated = DOCS / "_generated"
    copy_notebooks(generated)
    write_leaves(generated / "leaves.inc")
