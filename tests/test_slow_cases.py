"""The tables of slow cases name tests that exist."""

import ast
from pathlib import Path

import pytest
from slow_cases import NIGHTLY_CASES, SLOW_CASES


@pytest.mark.parametrize("name", sorted({*SLOW_CASES, *NIGHTLY_CASES}))
def test_the_test_is_there(name):
    file, _, test = name.partition("::")
    tree = ast.parse((Path(__file__).parent / file).read_text())
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
