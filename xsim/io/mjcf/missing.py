"""Features of a model that are not simulated yet: one line for each kind in the warning about unsupported input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xsim.io.errors import Notes
from xsim.io.mjcf.releases import RELEASES
from xsim.spec import ModelSpec, Source

__all__ = ["note_missing"]


def note_missing(spec: ModelSpec, notes: Notes) -> None:
    """Note each kind of feature that the model has, that acts under its flags, and that is not simulated. Raises ParseError where the
    notes are strict."""
    for what, flags, find in _KINDS:
        if not set(flags) & set(spec.option.disabled):
            first = next(find(spec), None)
            if first is not None:
                notes.unsupported(first.line, f"{what} not simulated yet", first.file)


# ---- finders: the sources of the elements of each kind ----


def _asleep(spec: ModelSpec) -> Iterator[Source]:
    """Bodies that sleep at the start. Sleep that sets in later only saves time: MuJoCo wakes bodies before they would move."""
    return (body.source for body in spec.bodies if spec.option.solver["sleep"] and body.sleep == "init")


def _rods(spec: ModelSpec) -> Iterator[Source]:
    """Flexes made of lines that resist bending and twist."""
    elastic = RELEASES[spec.rules].elastic_lines
    return (flex.source for flex in spec.flexes if elastic and flex.dim == 1 and flex.numbers["young"])


# What is not simulated (and the verb), the flags without which it does not act, its finder.
_KINDS: list[tuple[str, tuple[str, ...], Callable[[ModelSpec], Iterator[Source]]]] = [
    ("bending and twist of flexes made of lines (rules 4.0) are", ("passive",), _rods),
    ('bodies that are asleep at the start (sleep="init"; they move as if awake) are', (), _asleep),
    ("inverse dynamics in discrete time (invdiscrete) is", (), lambda spec: iter([spec.source] * spec.option.solver["invdiscrete"])),
]
