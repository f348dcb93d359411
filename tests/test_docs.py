"""The examples of the documentation run as they stand, and their pictures are there."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_examples_of_formats(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "formats.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text.partition("## Examples")[2], re.DOTALL)
    assert len(blocks) == 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, "formats.md", "exec"), names)
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (tmp_path / picture).read_bytes()[:8] == (DOCS / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
