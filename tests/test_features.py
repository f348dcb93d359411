"""FEATURES.md: every element and attribute of the formats has a row, and every row names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from xsim.io import FORMATS, xxy

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {"x_xy": "x_xy", "mjcf": "MJCF", "sdf": "SDFormat", "urdf": "URDF", "skel": "DART SKEL", "chrono": "Chrono YAML"}
# What the test of a row must look for, by the row's status.
EVIDENCE = {"works": (), "warned": ("UnsupportedWarning",), "refused": ("raises", "refused")}
UNREAD = "tests/test_xxy_reader.py::test_formats_without_reader_are_refused"


class Row(NamedTuple):
    element: str
    attributes: tuple[str, ...]
    status: str
    test: str


@cache
def rows(section: str) -> tuple[Row, ...]:
    """Rows of the tables of a section."""
    text = (ROOT / "FEATURES.md").read_text()
    (body,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    found = []
    for line in body.splitlines():
        if line.startswith("| `"):
            element, attributes, status, *_, test = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append(Row(element.strip("` "), tuple(re.findall(r"`([^`]+)`", attributes)), status, test.strip(" |")))
    return tuple(found)


def inventory(name: str) -> list[str]:
    """Entries ``element`` and ``element@attribute``."""
    return (Path(__file__).parent / "inventory" / f"{name}.txt").read_text().split("\n")[:-1]


def entries(section: str) -> set[str]:
    return {r.element for r in rows(section)} | {f"{r.element}@{a}" for r in rows(section) for a in r.attributes}


@cache
def bodies_of_tests(file: str) -> dict[str, str]:
    """The bodies of the tests of a file, by name."""
    path = ROOT / file
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return {n.name: "\n".join(map(ast.unparse, n.body)) for n in found}


def test_every_format_has_an_inventory_and_a_section():
    assert set(SECTIONS) == set(FORMATS) == {p.stem for p in (Path(__file__).parent / "inventory").glob("*.txt")}
    assert all(rows(s) for s in SECTIONS.values())


@pytest.mark.parametrize("name", SECTIONS)
def test_every_entry_of_the_inventory_has_a_row(name):
    wanted = inventory(name)
    assert len(wanted) == len(set(wanted))
    missing = [e for e in wanted if e not in entries(SECTIONS[name])]
    assert not missing, f"no row in FEATURES.md: {missing}"


@pytest.mark.parametrize("section", sorted(set(SECTIONS.values())))
def test_every_row_is_in_the_inventory(section):
    known = {e for name, s in SECTIONS.items() if s == section for e in inventory(name)}
    assert entries(section) <= known, f"rows that no inventory knows: {sorted(entries(section) - known)}"


@pytest.mark.parametrize("section", sorted(set(SECTIONS.values())))
def test_every_row_names_a_test_that_exists(section):
    for row in rows(section):
        file, _, name = row.test.partition("::")
        assert file.startswith("tests/test_") and name in bodies_of_tests(file), f"{row.element}: no test {row.test}"


@pytest.mark.parametrize("section", sorted(set(SECTIONS.values())))
def test_every_row_names_a_test_of_its_status(section):
    for row in rows(section):
        file, _, name = row.test.partition("::")
        words = EVIDENCE[row.status]
        assert not words or any(w in bodies_of_tests(file)[name] for w in words), f"{row}: the test looks for none of {words}"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_format_with_a_reader_is_not_called_unread(name):
    if FORMATS[name].read is None:
        mine = {e.split("@")[0] for e in inventory(name)}
        assert all(r.status == "refused" for r in rows(SECTIONS[name]) if r.element in mine)
    else:
        mine = {e.split("@")[0] for e in inventory(name)}
        assert not [r for r in rows(SECTIONS[name]) if r.element in mine and r.test == UNREAD]


def test_inventory_holds_every_word_the_x_xy_reader_knows():
    known = set(inventory("x_xy"))
    words = {f"body@{a}" for a in xxy._BODY} | {f"geom@{a}" for a in xxy._GEOM}
    words |= {f"defaults/body@{a}" for a in xxy._BODY if a not in ("name", "axes")} | {f"defaults/geom@{a}" for a in xxy._GEOM}
    words |= {f"body@joint={j}" for j in xxy.TYPES} | {f"geom@type={g}" for g in xxy._DIMS}
    assert words <= known, sorted(words - known)


def test_inventories_have_the_size_of_their_documents():
    """Counted from the documents; a shorter list has lost something."""
    least = {"x_xy": 78, "mjcf": 1300, "sdf": 158, "urdf": 72, "skel": 175, "chrono": 190}
    for name, count in least.items():
        assert len(inventory(name)) >= count, name
