"""Readers of model files: `parse` finds the format, reads the file and returns a ModelSpec. `write` writes MJCF and URDF. No jax here.

Each format is a module with a record ``FORMAT``; `register_format` adds one, also from outside of the package.
"""

from __future__ import annotations

from pathlib import Path

from xsim.io import chrono, mjcf, sdf, skel, urdf, x_xy
from xsim.io.convex_parts import ConvexDecomposition
from xsim.io.decomposition import decomposed
from xsim.io.errors import Notes, ParseError, SuspiciousInputWarning, UnsupportedWarning, WriteError, WriteWarning, allowed
from xsim.io.formats import FORMATS, Format, detect_format, find_format, register_format
from xsim.io.mjcf.writer import to_mjcf
from xsim.io.reader import read_bytes
from xsim.io.urdf.writer import to_urdf
from xsim.io.x_xy import to_x_xy
from xsim.limits import Limits, limited
from xsim.spec import ModelSpec

__all__ = [
    "FORMATS", "ConvexDecomposition", "Format", "Notes", "ParseError", "SuspiciousInputWarning", "UnsupportedWarning", "WriteError",
    "WriteWarning", "parse", "parse_text", "register_format", "to_mjcf", "to_urdf",
    "to_x_xy", "write",
]  # fmt: skip

register_format(x_xy.FORMAT)
register_format(mjcf.FORMAT)
register_format(sdf.FORMAT)
register_format(urdf.FORMAT)
register_format(skel.FORMAT)
register_format(chrono.FORMAT)


def parse(
    path, *, format: str | None = None, strict: bool = False, convex_decomposition: bool | ConvexDecomposition | None = None,
    limits: Limits | None = None, **options,
) -> ModelSpec:  # fmt: skip
    """Read a model file. format: a name of FORMATS, None to find it from the file. strict: what is not read is an error.

    convex_decomposition: whether meshes that collide are divided into convex parts, so that what is hollow stays hollow. None: where the
    file asks for it (SDFormat); elsewhere a mesh collides by its convex hull. True: all of them. A `ConvexDecomposition`: which, and how.
    False: none. Each part is a geom of the same body, with the same surface, without mass, named after its geom (``mug/0``, ``mug/1``);
    the geom itself stays and no longer collides. It needs ``xsim[mesh]``. limits: of the sizes of files and of the model, None: the
    defaults of `Limits`.

    Options of one format:

    * ``paths`` (sdf, urdf): folders in which ``model://`` and ``package://`` names are looked up;
    * ``base`` (urdf): ``"free"`` or ``"fixed"``, how the root link is connected to the world;
    * ``self_collide`` (urdf): whether links touch each other;
    * ``enforce_limits`` (skel): whether joint limits act;
    * ``rule`` (skel): ``"dart"`` or ``"soft"``, how limits and dry friction act;
    * ``gravity`` and ``dt`` (chrono): acceleration of free fall (3,), m/s^2, and time step, s, which the model file does not say;
    * ``rules`` (mjcf): ``"3.2"`` or ``"4.0"``, the MuJoCo release whose rules count where releases differ.

    A registered format has the options of its reader.
    Raises ParseError, TypeError for an option that the format does not have; warns once (`UnsupportedWarning`,
    `SuspiciousInputWarning`) with all lines.
    """
    with limited(limits):
        data, file = read_bytes(path), str(path)
        entry = find_format(format, file) if format else detect_format(data, file, Path(path).suffix.lower())
        return _read(entry, data, file, strict, convex_decomposition, options)


def parse_text(
    text: str, format: str | None = None, *, file: str = "<string>", strict: bool = False,
    convex_decomposition: bool | ConvexDecomposition | None = None, limits: Limits | None = None, **options,
) -> ModelSpec:  # fmt: skip
    """Read a model from text. Options and errors as in `parse`; ``file`` is the name that messages use."""
    with limited(limits):
        entry = find_format(format, file) if format else detect_format(text, file, "")
        return _read(entry, text, file, strict, convex_decomposition, options)


def _read(
    format: Format, data: bytes | str, file: str, strict: bool, decomposition: bool | ConvexDecomposition | None, options: dict
) -> ModelSpec:
    for option in options:
        if option not in format.options:
            known = allowed(option, format.options) if format.options else "it has none"
            raise TypeError(f"{format.title} has no option {option!r}; {known}")
    notes = Notes(file, strict)
    spec = decomposed(format.read(data, file, notes, **options), decomposition, notes)
    notes.emit(stacklevel=4)
    return spec


def write(spec: ModelSpec, path, *, unsupported: str = "error") -> None:
    """Write a model as a URDF file where the name ends in ``.urdf``, else as an MJCF file, whatever format it was read from.

    What is written, ``unsupported`` and errors: see `to_urdf` and `to_mjcf`. The meshes of a URDF are files in a folder beside it,
    ``NAME_meshes`` for ``NAME.urdf``; those of MJCF are in the file. Only a complete file is written: after an error an old file of this
    name is as it was. Raises ValueError for a name that ends as those of a format that is not written (``.sdf``).
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix != ".urdf" and any(suffix in format.suffixes for format in FORMATS.values()):
        raise ValueError(f"{path}: files {suffix} are read, not written; allowed: .urdf for URDF, .xml for MJCF")
    if suffix == ".urdf":
        text, files, losses = urdf.writer.written(spec, unsupported, f"{path.stem}_meshes")
    else:
        (text, losses), files = mjcf.writer.written(spec, unsupported), {}
    for name, contents in files.items():
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_bytes(contents)
    path.write_text(text, encoding="utf-8")
    losses.emit(stacklevel=3)
