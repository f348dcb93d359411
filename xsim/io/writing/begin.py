"""The start of every writer: its arguments."""

from __future__ import annotations

from xsim.io.errors import Losses
from xsim.spec import ModelSpec

__all__ = ["UNSUPPORTED", "begin"]

UNSUPPORTED = ("error", "warn")


def begin(spec: ModelSpec, unsupported: str, language: str) -> Losses:
    """What collects the losses. language: the format's name in messages. Raises ValueError and TypeError for other arguments."""
    if unsupported not in UNSUPPORTED:
        raise ValueError(f"unsupported: found {unsupported!r}; allowed: {', '.join(UNSUPPORTED)}")
    if not isinstance(spec, ModelSpec):
        raise TypeError(f"found a {type(spec).__name__}; allowed: a ModelSpec, as `parse` and `with_numbers` give")
    return Losses(language, strict=unsupported == "error")
