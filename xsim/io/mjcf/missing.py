"""What a model asks for and the dynamics does not do yet: one line for each kind in the warning about what is not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xsim.io.errors import Notes
from xsim.spec import ModelSpec, Source

__all__ = ["note_missing"]


def note_missing(spec: ModelSpec, notes: Notes) -> None:
    """Add a line for each kind of thing that the model has, that acts under its flags, and that is not simulated. Raises ParseError where
    the notes are strict."""
    for what, flags, find in _KINDS:
        if not set(flags) & set(spec.option.disabled):
            first = next(find(spec), None)
            if first is not None:
                notes.unsupported(first.line, f"{what} not simulated yet", first.file)


# ---- where the first of each kind stands ----


def _rods(spec: ModelSpec) -> Iterator[Source]:
    """Lines that 4.0 bends and twists."""
    return (flex.source for flex in spec.flexes if flex.dim == 1 and flex.numbers["young"] and spec.rules == "4.0")


# What there is (and the verb), the flags without which nothing of it acts, and where it stands.
_KINDS: list[tuple[str, tuple[str, ...], Callable[[ModelSpec], Iterator[Source]]]] = [
    ("bending and twist of flexes made of lines (rules 4.0) are", ("passive",), _rods),
    ("inverse dynamics in discrete time (invdiscrete) is", (), lambda spec: iter([spec.source] * spec.option.solver["invdiscrete"])),
]
