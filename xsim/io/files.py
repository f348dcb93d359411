"""Paths that documents name: none is trusted, a name that no file can have is no file. What is at a path, how large archives get."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["file_kind", "folder_of", "is_dir", "is_file", "unpacked_size"]

MAX_ENTRIES = 10_000  # files in a zip archive
_CHUNK = 1 << 16
_ZIP, _ZIP_ENTRY = b"PK\x03\x04", b"PK\x01\x02"
_PACKED: dict[bytes, Any] = {b"BZh": bz2.open, b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open}
"""First bytes of packed single files (also of packed tar archives), and what unpacks them."""
_DEFLATE = 1100  # more bytes than one byte of the deflate format can stand for (1032)
_KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe (FIFO)", stat.S_IFCHR: "device", stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
}  # fmt: skip


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


def file_kind(path: Path) -> str:
    """What is at a path: "file" for a regular file, which alone ends and can be read twice; else "folder", "pipe (FIFO)", "device" or
    "socket". Raises OSError where nothing is there, ValueError for a name that no file can have."""
    return _KINDS.get(stat.S_IFMT(path.stat().st_mode), "special file")


def unpacked_size(data: bytes, most: int) -> int:
    """Bytes that the contents of an archive (zip, bz2, gzip, xz) have when they are unpacked; 0 for what is no archive.

    Counts until the sum is above ``most`` and holds no more than a piece of the contents in memory. What the archive says about its size
    is not trusted. Raises ValueError for a zip archive that is broken, or that holds another archive or a rare compression.
    """
    total = 0
    for size in _pieces(data):
        total += size
        if total > most:
            break
    return total


def _pieces(data: bytes) -> Iterator[int]:
    """Sizes of the pieces that an archive's contents are unpacked in."""
    for start, unpack in _PACKED.items():
        if data.startswith(start):
            yield from _stream_pieces(unpack(io.BytesIO(data)))
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return
    if data.count(_ZIP_ENTRY) > MAX_ENTRIES:
        raise ValueError(f"a zip archive of more than {MAX_ENTRIES} files")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                yield from _entry_pieces(archive, entry, len(data))
    except Exception as error:  # zipfile raises whatever it likes
        raise ValueError(f"a zip archive that is broken or of a rare kind ({error})") from None


def _stream_pieces(contents: BinaryIO) -> Iterator[int]:
    """Sizes of the pieces of a single packed file, up to where it is broken: nothing unpacks more of it."""
    with contents, suppress(OSError, EOFError, zlib.error, lzma.LZMAError):
        while piece := contents.read(_CHUNK):
            yield len(piece)


def _entry_pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, packed: int) -> Iterator[int]:
    """Sizes of the pieces of a file in a zip archive. packed: bytes of the archive."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile("another compression than deflate")  # Python unpacks those without a bound
    entry = copy(entry)
    entry.file_size = _DEFLATE * packed  # what it says may be less than what it is
    with archive.open(entry) as contents:
        for number, piece in enumerate(iter(partial(contents.read, _CHUNK), b"")):
            if number == 0 and piece.startswith(_ZIP):
                raise zipfile.BadZipFile("an archive in an archive")
            yield len(piece)
