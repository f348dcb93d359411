"""Values of attributes that many elements share: numbers over class defaults, flags, limits, softness, users' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.nodes import scope
from xsim.io.reader import Element
from xsim.spec import Soft

__all__ = ["flag", "integer", "limits", "numbers", "padded", "polynomial", "read_rgba", "read_soft", "read_user"]

INT = 2**31


def flag(e: Element, name: str, default: bool) -> bool:
    """``true`` or ``false``."""
    return e.choice(name, ("false", "true"), "true" if default else "false") == "true"


def integer(e: Element, name: str, default: int) -> int:
    """An integer of 32 bits."""
    value = e.integer(name)
    if value is not None and not -INT <= value < INT:
        raise e.error(f"found {value}; allowed: integers of 32 bits", name)
    return default if value is None else value


def numbers(document: Document, e: Element, name: str, start: Sequence[float], *kinds: str) -> np.ndarray:
    """Numbers of a vector that may be given in part: the first ones from the element, what it leaves out from the default classes above
    it (elements of these kinds, none: its tag), what they leave out from ``start``. e: with its defaults."""
    counts = tuple(range(len(start) + 1))
    out = np.array(start, float)
    given = e.floats(name, counts)
    if given is None:
        return out
    if len(given) < len(out):
        for default in document.classes.chain(e, *(kinds or (e.tag,))):
            above = default.floats(name, counts)
            if above is not None:
                out[: len(above)] = above
    out[: len(given)] = given
    return out


def polynomial(e: Element, name: str, document: Document, *kinds: str) -> tuple[float, tuple[float, float] | None]:
    """A stiffness or damping: the linear coefficient, and those of second and third order, None if they are zero (3.2 has none). kinds: as
    for `numbers`."""
    if not document.release.polynomial_forces:
        return e.number(name, 0.0), None
    linear, second, third = numbers(document, e, name, (0.0, 0.0, 0.0), *kinds).tolist()
    return linear, (second, third) if second or third else None


def limits(e: Element, name: str, switch: str, angle: bool = False) -> tuple[float, float] | None:
    """A range that is enforced, else None: ``switch`` (limited, ...) is true, or it is auto and the range is not empty.

    angle: the range is in the file's unit of angles; what is returned is in rad. Raises ParseError for an empty range that is switched
    on, and for one without a switch where autolimits is off.
    """
    low, high = e.floats(name, 2, (0.0, 0.0))
    mode = e.choice(switch, ("false", "true", "auto"), "auto")
    if mode == "auto" and not scope(e).autolimits and (low or high):
        raise e.error(f'a range without {switch}, and autolimits is off; allowed: {switch}="true" or "false"', name)
    if mode == "false" or mode == "auto" and not (low < high and scope(e).autolimits):
        return None
    if not low < high:
        raise e.error(f'found {low:g} {high:g} with {switch}="true"; allowed: a range whose first number is the smaller one', name)
    return (scope(e).angles(low), scope(e).angles(high)) if angle else (low, high)


def read_soft(document: Document, e: Element, ending: str = "", *kinds: str) -> Soft:
    """solref and solimp, or those of limits or friction (``ending``). e: with its defaults."""
    soft = Soft()
    solref = numbers(document, e, "solref" + ending, soft.solref, *kinds)
    solimp = numbers(document, e, "solimp" + ending, soft.solimp, *kinds)
    return Soft(tuple(solref.tolist()), tuple(solimp.tolist()))


def read_rgba(e: Element) -> tuple[float, float, float, float] | None:
    """The colour of an element, None where it has none."""
    value = e.floats("rgba", 4)
    return None if value is None else tuple(value.tolist())


def read_user(e: Element, length: int, default: Sequence[float] = ()) -> tuple[float, ...]:
    """Users' numbers as given. Raises ParseError where there are more than a length (-1: any)."""
    value = e.floats("user", default=default)
    if 0 <= length < len(value):
        raise e.error(f"found {len(value)} numbers; allowed: {length}, as <size> says", "user")
    return tuple(value.tolist())


def padded(document: Document, specs: list, length: int) -> list:
    """Specs whose users' numbers are filled up with zeros to a length, at least that of the longest. Raises ParseError for too many."""
    longest = max([length, *(len(s.user) for s in specs)])
    document.budget.spend(next(iter(document.sections("size")), document.root), numbers=len(specs) * max(longest, 0))
    return [replace(s, user=s.user + (0.0,) * (longest - len(s.user))) if len(s.user) < longest else s for s in specs]
