"""Paths that documents name: none is trusted, a name that no file can have is no file."""

from __future__ import annotations

from pathlib import Path

__all__ = ["folder_of", "is_dir", "is_file"]


def is_file(path: Path) -> bool:
    """Whether there is a file at a path, whatever the path holds."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the system, or no name at all
        return False


def is_dir(path: Path) -> bool:
    """Whether there is a folder at a path, whatever the path holds."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def folder_of(file: str) -> Path | None:
    """The folder of a document, resolved; None where the document did not come from a file."""
    return Path(file).resolve().parent if is_file(Path(file)) else None
