"""FEATURES.md: every element and attribute of the formats has a row, and every row names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from xsim.io import FORMATS
from xsim.io import x_xy as xxy
from xsim.io.mjcf.schema import MJCF

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {"x_xy": "x_xy", "mjcf": "MJCF", "sdf": "SDFormat", "urdf": "URDF", "skel": "DART SKEL", "chrono": "Chrono YAML"}
BODIES = dict.fromkeys(("worldbody", "frame", "replicate"), "body")  # what stands in them stands in a body
# What the test of a row must look for, by the row's status.
EVIDENCE = {"works": (), "warned": ("UnsupportedWarning",), "refused": ("raises", "refused")}


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


def test_inventory_holds_every_word_the_x_xy_reader_knows():
    known = set(inventory("x_xy"))
    words = {f"body@{a}" for a in xxy._BODY} | {f"geom@{a}" for a in xxy._GEOM}
    words |= {f"defaults/body@{a}" for a in xxy._BODY if a not in ("name", "axes")} | {f"defaults/geom@{a}" for a in xxy._GEOM}
    words |= {f"body@joint={j}" for j in xxy.TYPES} | {f"geom@type={g}" for g in xxy._DIMS}
    assert words <= known, sorted(words - known)


def test_inventory_holds_every_word_the_mjcf_reader_knows():
    """Those of default classes apart, which take the attributes of the elements that they stand for."""
    known = set(inventory("mjcf"))
    words, pending = {"mujoco@model"}, [("mujoco", MJCF)]
    seen = set()
    while pending:
        parent, rule = pending.pop()
        for tag, inner in rule.children.items():
            if tag in ("body", "frame", "replicate", "default") or parent == "mujoco":
                name = tag
            else:
                name = "instance/config" if tag == "config" else f"{BODIES.get(parent, parent)}/{tag}"
            words |= {name} | {f"{name}@{a}" for a in inner.attributes if parent != "default"}
            if (name, id(inner)) not in seen:
                seen.add((name, id(inner)))
                pending.append((tag, inner))
    assert words <= known, sorted(words - known)


def test_inventories_have_the_size_of_their_documents():
    """Counted from the documents; a shorter list has lost something."""
    least = {"x_xy": 78, "mjcf": 1370, "sdf": 158, "urdf": 72, "skel": 175, "chrono": 190}
    for name, count in least.items():
        assert len(inventory(name)) >= count, name
