"""What a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "unknown_leaf"]


def did_you_mean(name: str, known: Iterable[str], form: str = " (did you mean {!r}?)") -> str:
    """``form`` filled with the known name that is nearest to ``name``, whatever the case; empty where none is near."""
    known = list(known)
    nearest = [x for x in known if x.lower() == name.lower()] or difflib.get_close_matches(name, known, n=1)
    return form.format(nearest[0]) if nearest else ""


def unknown_leaf(path: str, paths: Iterable[str]) -> str:
    """What an error says of a leaf that a model does not have: the leaves of its group, or the groups. paths: of the leaves there are."""
    paths, group = list(paths), path.split(".")[0]
    leaves = [x for x in paths if x.split(".")[0] == group]
    known = f"leaves of {group}: {', '.join(leaves)}" if leaves else f"groups: {', '.join(dict.fromkeys(x.split('.')[0] for x in paths))}"
    return f"no leaf {path!r}{did_you_mean(path, paths)}; {known}"
