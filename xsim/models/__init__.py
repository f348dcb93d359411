"""Models that come with xsim, one folder per format: ``path("chain")`` for `xsim.load`, ``names()`` for what there is."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["names", "path"]


def _found() -> dict[str, Path]:
    root = Path(str(files(__name__)))
    return {p.stem: p for p in sorted(root.glob("*/*")) if p.is_file() and p.parent.name != "__pycache__"}


def names() -> tuple[str, ...]:
    """Names of the bundled models, those that `path` takes."""
    return tuple(_found())


def path(name: str) -> Path:
    """File of a bundled model. Raises KeyError with the known names."""
    found = _found()
    if name not in found:
        raise KeyError(f"no bundled model {name!r}; known: {', '.join(found)}")
    return found[name]
