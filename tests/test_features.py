"""docs/features: every element and attribute of the formats has a row, every row names a test that exists, the pages are up to date."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from xsim.io import FORMATS
from xsim.io import x_xy as xxy
from xsim.io.mjcf.schema_tables import SCHEMAS

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "features"
BODIES = dict.fromkeys(("worldbody", "frame", "replicate"), "body")  # what stands in them stands in a body
# What the test of a row must look for, by the row's status.
EVIDENCE = {"works": (), "warned": ("UnsupportedWarning",), "refused": ("raises", "refused")}
TABLE_EDGE = re.compile(r"(?<!\\)\|")  # a bar between cells; one in a cell is escaped


def load_script(file: Path):
    """The module of a script that is not in a package."""
    spec = importlib.util.spec_from_file_location(f"script_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


MAKE = load_script(PAGES / "make.py")
TABLES = {fmt.name: fmt for fmt in MAKE.read_all()}


def inventory(name: str) -> list[str]:
    """Entries ``element`` and ``element@attribute``."""
    return (Path(__file__).parent / "inventory" / f"{name}.txt").read_text().split("\n")[:-1]


def entries(name: str) -> set[str]:
    rows = TABLES[name].rows
    return {r.element for r in rows} | {f"{r.element}@{a}" for r in rows for a in r.attributes}


@cache
def bodies_of_tests(file: str) -> dict[str, str]:
    """The bodies of the tests of a file, by name."""
    path = ROOT / file
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return {n.name: "\n".join(map(ast.unparse, n.body)) for n in found}


def test_every_format_has_an_inventory_and_tables():
    assert set(TABLES) == set(FORMATS) == {p.stem for p in (Path(__file__).parent / "inventory").glob("*.txt")}
    assert all(section.rows for fmt in TABLES.values() for section in fmt.sections)


@pytest.mark.parametrize("name", FORMATS)
def test_every_entry_of_the_inventory_has_a_row(name):
    wanted = inventory(name)
    assert len(wanted) == len(set(wanted))
    missing = [e for e in wanted if e not in entries(name)]
    assert not missing, f"no row in docs/features/data/{name}.yaml: {missing}"


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_is_in_the_inventory(name):
    unknown = entries(name) - set(inventory(name))
    assert not unknown, f"rows that the inventory does not list: {sorted(unknown)}"


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_names_a_test_that_exists(name):
    for row in TABLES[name].rows:
        file, _, test = row.test.partition("::")
        assert file.startswith("tests/test_") and test in bodies_of_tests(file), f"{row.element}: no test {row.test}"


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_names_a_test_of_its_status(name):
    for row in TABLES[name].rows:
        file, _, test = row.test.partition("::")
        words = EVIDENCE[row.status]
        assert not words or any(w in bodies_of_tests(file)[test] for w in words), f"{row}: the test looks for none of {words}"


def test_pages_are_up_to_date():
    assert not MAKE.outdated(), "run python docs/features/make.py"


@pytest.mark.slow
def test_a_page_that_differs_from_its_data_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(MAKE, "ROOT", tmp_path)
    (tmp_path / "FEATURES.md").write_text("# Features\n")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "data").symlink_to(PAGES / "data")
    monkeypatch.setattr(MAKE, "HERE", tmp_path / "pages")
    assert set(MAKE.outdated()) == {"FEATURES.md", "pages/index.md", *(f"pages/{name}.md" for name in FORMATS)}
    assert MAKE.main([]) == 0 and not MAKE.outdated()
    (tmp_path / "pages" / "old.md").write_text("")
    assert MAKE.outdated() == ["pages/old.md"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_page_shows_every_row_once_and_what_is_not_supported_first(name):
    text = (PAGES / f"{name}.md").read_text()
    first, _, second = text.partition("\n## Supported\n")
    shown = {part: [tuple(TABLE_EDGE.split(line))[1:3] for line in part.splitlines() if line.startswith("| `")] for part in (first, second)}
    wanted = {first: ("warned", "refused"), second: ("works",)}
    for part, statuses in wanted.items():
        rows = [r for r in TABLES[name].rows if r.status in statuses]
        cells = [(f" `{r.element}` ", f" {', '.join(f'`{a}`' for a in r.attributes)} ") for r in rows]
        assert sorted(shown[part]) == sorted(cells)


@pytest.mark.parametrize("file", [ROOT / "FEATURES.md", *sorted(PAGES.glob("*.md"))], ids=lambda file: file.stem)
def test_pages_are_valid_markdown(file):
    """Rows of a table have as many cells as its head, code is closed, and links lead to files that exist."""
    text = file.read_text()
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(TABLE_EDGE.findall(line)) for line in table.splitlines()}) == 1, table
    assert not [line for line in text.splitlines() if line.replace("```", "").count("`") % 2]
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert not [link for link in links if not (file.parent / link).is_file()]


GOOD = """
title: Sample
summary: [Reads samples.]
sections:
  - title: Parts
    rows:
      - {element: part, attributes: [a, b=1], status: works, meaning: 'a|b, *c* and `d`', test: 'tests/test_x.py::test_y'}
"""


def test_text_of_a_cell_is_not_read_as_markup(tmp_path):
    (tmp_path / "sample.yaml").write_text(GOOD)
    page = MAKE._page(MAKE.read(tmp_path / "sample.yaml"))
    assert "| `part` | `a`, `b=1` | a\\|b, \\*c\\* and `d` | `tests/test_x.py::test_y` |\n" in page


@pytest.mark.parametrize("found, wrong, message", [
    ("works", "fine", "part: status 'fine': one of works, warned, refused"),
    ("[a, b=1]", "a", "part: attributes: a list"),
    ("[a, b=1]", "[a, a]", "sample: more than one row: part@a"),
    ("`d`", "`d", "a backtick without its other"),
    ("[Reads samples.]", str(list("0123456789")), "sample: summary: at most 9 lines"),
    ("Reads samples.", "Reads " * 30, "sample: summary: at most 9 lines of 138 characters"),
])
def test_data_that_breaks_a_rule_is_refused(tmp_path, found, wrong, message):
    assert GOOD.count(found) == 1
    (tmp_path / "sample.yaml").write_text(GOOD.replace(found, wrong))
    with pytest.raises(ValueError, match=re.escape(message)):
        MAKE._page(MAKE.read(tmp_path / "sample.yaml"))


def test_index_lists_every_page():
    (toctree,) = re.findall(r"^```\{toctree\}\n(.*?)^```$", (PAGES / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    assert {line for line in toctree.splitlines() if line and not line.startswith(":")} == set(FORMATS)


def test_overview_is_short():
    assert len((ROOT / "FEATURES.md").read_text().splitlines()) <= 120


def test_inventory_holds_every_word_the_x_xy_reader_knows():
    known = set(inventory("x_xy"))
    words = {f"body@{a}" for a in xxy._BODY} | {f"geom@{a}" for a in xxy._GEOM}
    words |= {f"defaults/body@{a}" for a in xxy._BODY if a not in ("name", "axes")} | {f"defaults/geom@{a}" for a in xxy._GEOM}
    words |= {f"body@joint={j}" for j in xxy.TYPES} | {f"geom@type={g}" for g in xxy._DIMS}
    assert words <= known, sorted(words - known)


@pytest.mark.parametrize("release", SCHEMAS)
def test_inventory_holds_every_word_of_mjcf(release):
    """Those of default classes apart, which take the attributes of the elements that they stand for."""
    known = set(inventory("mjcf"))
    words, pending = {"mujoco@model"}, [("mujoco", SCHEMAS[release])]
    seen = set()
    while pending:
        parent, rule = pending.pop()
        for tag, inner in rule.children.items():
            if tag in ("body", "frame", "replicate", "default") or parent == "mujoco":
                name = tag
            else:
                name = "instance/config" if tag == "config" else f"{BODIES.get(parent, parent)}/{tag}"
            words |= {name} | {f"{name}@{a}" for a in inner.attributes + inner.unsupported if parent != "default"}
            if (name, id(inner)) not in seen:
                seen.add((name, id(inner)))
                pending.append((tag, inner))
    assert words <= known, sorted(words - known)


def test_inventories_have_the_size_of_their_documents():
    """Counted from the documents; a shorter list has lost something."""
    least = {"x_xy": 78, "mjcf": 1825, "sdf": 158, "urdf": 72, "skel": 175, "chrono": 190}
    for name, count in least.items():
        assert len(inventory(name)) >= count, name
