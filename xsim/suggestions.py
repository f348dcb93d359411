"""What a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str], form: str = " (did you mean {!r}?)") -> str:
    """``form`` filled with the known name that is nearest to ``name``; empty where none is near."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return form.format(nearest[0]) if nearest else ""
