"""Hashes of what a compiled function depends on, which are equal in all processes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import platform
import time
from pathlib import Path

import jax
import jaxlib
import llvmlite
import numpy as np

import xsim
from xsim.cache import cache_folder
from xsim.compile.code_generation import processor
from xsim.model.table import Table
from xsim.registry import extensions

__all__ = ["fingerprint", "function_fingerprint"]

_IMPORTED = time.time()


class _UnknownKind(Exception):
    """There is a value that has no fingerprint."""


def fingerprint(*values) -> str | None:
    """A hash of values: numbers, texts, types of numbers, arrays, shapes with types, `Table`, and tuples, lists, dicts, sets and
    dataclasses of them. None if a value of another kind is among them, such as a function."""
    try:
        return _hash(values)
    except _UnknownKind:
        return None


def _hash(value) -> str:
    digest = hashlib.sha256()
    _add(digest, value)
    return digest.hexdigest()


def _add(digest, value) -> None:
    """Add a value to a hash: its type, its length if it has one, and its contents."""
    kind = type(value)
    if value is None or kind in (bool, int, float, complex):
        digest.update(f"{kind.__name__} {value!r};".encode())
    elif isinstance(value, (str, bytes)):
        data = value.encode() if isinstance(value, str) else value
        digest.update(f"{kind.__name__} {len(data)};".encode() + data)
    elif isinstance(value, Table):
        _add(digest, (kind.__name__, value.value))
    elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
        if isinstance(value, jax.core.Tracer) or getattr(value.dtype, "hasobject", True):
            raise _UnknownKind
        array = np.asarray(value)
        digest.update(f"array {array.dtype.str} {array.shape};".encode() + array.tobytes())
    elif isinstance(value, (np.dtype, jax.ShapeDtypeStruct)):
        digest.update(f"{kind.__name__} {value!r};".encode())
    elif isinstance(value, (set, frozenset)):
        _add(digest, (kind.__name__, sorted(map(_hash, value))))
    elif isinstance(value, dict):
        _add(digest, (kind.__name__, tuple(value.items())))
    elif isinstance(value, (tuple, list)):
        digest.update(f"{kind.__name__} {len(value)};".encode())
        for x in value:
            _add(digest, x)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _add(digest, (kind.__name__, tuple(getattr(value, field.name) for field in dataclasses.fields(value))))
    else:
        raise _UnknownKind


def function_fingerprint(*values) -> str | None:
    """A hash of values, and of all else that the machine code of a function depends on: the source of this package, what was registered
    from outside, the libraries, the processor, and JAX's settings. None as `fingerprint`, if the source changed after it was imported, or
    if nothing is kept on disk."""
    source = source_fingerprint() if cache_folder() else None
    settings = bool(jax.config.jax_enable_x64), jax.config.jax_numpy_dtype_promotion, jax.default_backend()
    return None if source is None else fingerprint(source, extensions(), settings, values)


@functools.cache
def source_fingerprint() -> str | None:
    """A hash of the files of this package and of the versions of what makes programs of them. None if a file is newer than the import: what
    was imported is not known."""
    files = sorted(Path(xsim.__file__).parent.rglob("*.py"))
    try:
        if any(max(status.st_mtime, status.st_ctime) > _IMPORTED for status in (file.stat() for file in files)):
            return None
        source = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()
    except OSError:
        return None
    libraries = platform.python_version(), jax.__version__, jaxlib.__version__, np.__version__, llvmlite.__version__
    return fingerprint(source, libraries, processor())
