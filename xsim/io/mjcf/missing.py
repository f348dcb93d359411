"""Features of a model that are not simulated yet: one line for each kind in the warning about unsupported input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xsim.io.errors import Notes
from xsim.io.mjcf.releases import RELEASES
from xsim.spec import FlexSpec, ModelSpec, Source

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
    """Flexes made of lines that resist bending and twist in a way that is not simulated, see `xsim.io.mjcf.rods`."""
    elastic = RELEASES[spec.rules].elastic_lines
    lines = (flex for flex in spec.flexes if flex.dim == 1 and len(flex.elements) > 1)
    return (flex.source for flex in lines if elastic and flex.numbers["young"] and flex.rod is None)


def _touching_rods(spec: ModelSpec) -> Iterator[FlexSpec]:
    """Chains of lines that resist bending and twist, and that may touch something."""
    surfaces = ((flex, flex.numbers["contact"]) for flex in spec.flexes)
    return (flex for flex, surface in surfaces if flex.rod is not None and (surface.contype or surface.conaffinity))


def _rubbed(spec: ModelSpec) -> Iterator[Source]:
    """Chains of lines that twist and touch with friction."""
    return (flex.source for flex in _touching_rods(spec) if flex.rod and flex.rod.twists and flex.numbers["contact"].condim > 1)


def _boxes(spec: ModelSpec) -> Iterator[Source]:
    """Chains of lines that touch and are boxes."""
    return (flex.source for flex in _touching_rods(spec) if flex.rod and flex.rod.section)


# What is not simulated (and the verb), the flags without which it does not act, its finder.
_KINDS: list[tuple[str, tuple[str, ...], Callable[[ModelSpec], Iterator[Source]]]] = [
    ("bending and twist of lines of flexes that are loops, held by a mocap body, or bent without twist are", ("passive",), _rods),
    ("contacts of lines of flexes that are boxes (they collide as capsules) are", ("contact",), _boxes),
    ("the turning of lines of flexes by friction in contacts (rules 4.0) is", ("contact",), _rubbed),
    ('bodies that are asleep at the start (sleep="init"; they move as if awake) are', (), _asleep),
    ("inverse dynamics in discrete time (invdiscrete) is", (), lambda spec: iter([spec.source] * spec.option.solver["invdiscrete"])),
]
