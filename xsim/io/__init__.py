"""Readers: one module per format. `parse` finds the format, reads the file and returns a ModelSpec. No jax here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from xsim.io import chrono, mjcf, sdf, skel, urdf
from xsim.io import x_xy as xxy
from xsim.io.errors import Notes, ParseError, SuspiciousInputWarning, UnsupportedWarning, allowed
from xsim.io.reader import parse_xml, read_bytes
from xsim.spec import ModelSpec

__all__ = ["FORMATS", "ParseError", "SuspiciousInputWarning", "UnsupportedWarning", "parse", "parse_text"]


class Format(NamedTuple):
    """read: (text or bytes, file, notes, **options) -> ModelSpec. roots: XML root elements that tell it. options: what `parse` passes
    on to it."""

    title: str
    read: Callable
    roots: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "x_xy": Format("x_xy XML", xxy.read, ("x_xy",)),
    "mjcf": Format("MuJoCo MJCF", mjcf.read, ("mujoco",), (), ("rules",)),
    "sdf": Format("SDFormat", sdf.read, ("sdf", "model", "gazebo"), (".sdf", ".world"), ("paths",)),
    "urdf": Format("URDF", urdf.read, ("robot",), (".urdf",), ("paths", "base", "self_collide")),
    "skel": Format("DART SKEL", skel.read, ("skel",), (".skel",), ("enforce_limits", "rule")),
    "chrono": Format("Chrono YAML", chrono.read, (), (".yaml", ".yml"), ("gravity", "dt")),
}


def parse(path, *, format: str | None = None, strict: bool = False, **options) -> ModelSpec:
    """Read a model file. format: a name of FORMATS, None to find it from the file. strict: what is not read is an error.

    Options of one format: ``paths`` (sdf, urdf: folders in which ``model://`` and ``package://`` names are looked up), ``base`` (urdf:
    ``"free"`` or ``"fixed"``, how the root link is held), ``self_collide`` (urdf: whether links touch each other), ``enforce_limits``
    (skel: whether joint limits act), ``rule`` (skel: ``"dart"`` or ``"soft"``, how limits and dry friction act), ``gravity`` and ``dt``
    (chrono: acceleration of free fall (3,), m/s^2, and step, s, which the model file does not say), ``rules`` (mjcf: ``"3.2"`` or
    ``"4.0"``, the MuJoCo release whose rules hold where releases differ).
    Raises ParseError, TypeError for an option that the format does not have; warns once (`UnsupportedWarning`,
    `SuspiciousInputWarning`) with all lines.
    """
    return _parse(read_bytes(path), format, str(path), strict, Path(path).suffix.lower(), options)


def parse_text(text: str, format: str | None = None, *, file: str = "<string>", strict: bool = False, **options) -> ModelSpec:
    """Read a model from text. See `parse`; ``file`` is the name that messages use."""
    return _parse(text, format, file, strict, "", options)


def _parse(data: bytes | str, format: str | None, file: str, strict: bool, suffix: str, options: dict) -> ModelSpec:
    name = format or _detect(data, file, suffix)
    if name not in FORMATS:
        raise ParseError(file, None, f"unknown format {name!r}; {allowed(name, FORMATS)}")
    entry = FORMATS[name]
    for option in options:
        if option not in entry.options:
            raise TypeError(f"{entry.title} has no option {option!r}; {allowed(option, entry.options) if entry.options else 'it has none'}")
    notes = Notes(file, strict)
    spec = entry.read(data, file, notes, **options)
    notes.emit(stacklevel=4)
    return spec


def _detect(data: bytes | str, file: str, suffix: str) -> str:
    for name, entry in FORMATS.items():
        if suffix in entry.suffixes:
            return name
    root = parse_xml(data, file)
    for name, entry in FORMATS.items():
        if root.tag in entry.roots:
            return name
    roots = [r for entry in FORMATS.values() for r in entry.roots]
    raise ParseError(file, root.line, f"{root}: unknown root element; {allowed(root.tag, roots)}")
