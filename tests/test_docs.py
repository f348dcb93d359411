"""The documentation: its examples run as they stand, its pictures are there, and every public name has its place in the reference."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xsim
from xsim.envs import TASKS
from xsim.joints.types import JOINT_TYPES

pytestmark = pytest.mark.xla

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if not p.relative_to(DOCS).parts[0].startswith("_"))]
LANGUAGES = ("", "console", "python", "text", "toctree", "include", "literalinclude", "eval-rst", "xml", "yaml")
"""Of the fences of a page. Commands of the README have none."""
EXTRAS = {"formats.md": ["matplotlib", "coacd"], "identification.md": ["optimistix", "matplotlib"]}
"""What the examples of a page need besides xsim."""
FIRST = ("devices.md",)
"""Pages whose examples set JAX up before it computes anything: they run in a process of their own."""
MOST_LINES = 120


def _fences(page: Path) -> list[tuple[str, str]]:
    """Language and text of every block of a page."""
    return re.findall(r"^```\{?([\w-]*)\}?[^\n]*\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def _examples(page: Path) -> list[str]:
    return [text for language, text in _fences(page) if language == "python"]


@pytest.fixture
def registries(monkeypatch):
    """What a page registers is gone afterwards."""
    monkeypatch.setattr(JOINT_TYPES, "_entries", dict(JOINT_TYPES))
    tasks = dict(TASKS)
    yield
    TASKS.clear()
    TASKS.update(tasks)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_fence_says_what_it_is(page):
    assert {language for language, _ in _fences(page)} <= set(LANGUAGES)
    assert page.read_text().count("```") == 2 * len(_fences(page)), "a fence without its end"


LONG = ("control", "identification", "randomization", "training")


def _run_by(page: Path):
    """The README by the default run, the others by CI, but for the long ones whose functions have tests in CI."""
    mark = pytest.mark.nightly if page.stem in LONG else pytest.mark.slow
    return pytest.param(page, marks=() if page.name == "README.md" else mark)


@pytest.mark.parametrize("page", [_run_by(p) for p in PAGES if _examples(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_examples(page, tmp_path, monkeypatch, registries):
    for module in EXTRAS.get(page.name, ()):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    if page.name in FIRST:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", "\n".join(_examples(page))], env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return
    names: dict = {}
    for example in _examples(page):
        exec(compile(example, str(page), "exec"), names)
    for picture in _made_by_examples(page):
        assert (tmp_path / picture).read_bytes()[:8] == (page.parent / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def _made_by_examples(page: Path) -> list[str]:
    """Pictures of a page that stand beside it: its examples draw them."""
    return [picture for picture in re.findall(r"!\[.*?\]\((.*?)\)", page.read_text()) if "/" not in picture]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target and not target.startswith("_generated/"):
            assert (page.parent / target).exists(), target


def test_every_public_name_is_in_the_reference():
    text = "".join(p.read_text() for p in (DOCS / "api").glob("*.md"))
    found = set(re.findall(r"\.\. auto\w+:: xsim\.(\w+)", text))
    assert sorted(set(xsim.__all__) - found) == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES
