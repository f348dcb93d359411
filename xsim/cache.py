"""Results of long computations, kept on disk between processes: compiled programs, convex parts of meshes."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "MAX_CACHED", "cache_folder", "cached", "read_cached", "remove_oldest", "write_cached"]

CACHE_VARIABLE = "XSIM_CACHE_DIR"
"""Environment variable: the folder of the cache. An empty value switches the cache off."""
MAX_CACHED = 1000
"""Number of files with one suffix that are kept; the oldest are removed."""


def cache_folder() -> Path | None:
    """The folder of the cache, which only this user can write to; None if there is none.

    Files of compiled programs are executed. A folder that others can write to, or that belongs to another user, is not used."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen == "" or not hasattr(os, "getuid"):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(chosen) if chosen else Path(base) / "xsim"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return None
    mine = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if mine else None


def read_cached(name: str) -> bytes | None:
    """The contents of a file of the cache; None if there is none, or if it is damaged (its last bytes are a hash of the others)."""
    folder = cache_folder()
    try:
        data = (folder / name).read_bytes() if folder else b""
    except OSError:
        return None
    contents, digest = data[:-32], data[-32:]
    return contents if hashlib.sha256(contents).digest() == digest else None


def write_cached(name: str, contents: bytes) -> None:
    """Keep a file in the cache, if there is one. name: a hash of all that the contents depend on, and a suffix. A full disk is no error."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(contents + hashlib.sha256(contents).digest())
        os.replace(file.name, folder / name)
        remove_oldest(folder, f"*{Path(name).suffix}")
    except OSError:
        pass


def cached(name: str, make: Callable[[], bytes]) -> bytes:
    """The contents of a file of the cache, or of make(), which is kept. name: as of `write_cached`."""
    found = read_cached(name)
    if found is None:
        found = make()
        write_cached(name, found)
    return found


def remove_oldest(folder: Path, pattern: str) -> list[Path]:
    """Remove all but the newest `MAX_CACHED` files that fit a pattern; which were removed."""
    files = sorted(folder.glob(pattern), key=lambda p: p.stat().st_mtime)
    old = files[: max(0, len(files) - MAX_CACHED)]
    for file in old:
        file.unlink(missing_ok=True)
    return old
