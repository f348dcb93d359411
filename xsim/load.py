"""load = parse + build."""

from __future__ import annotations

from .build import build
from .io import parse, parse_text
from .model import Model


def load(path, *, format: str | None = None, strict: bool = False, seed: int = 0, **options) -> Model:
    """Read a model file and build it.

    format: ``"x_xy"``, ...; None: from the file itself. strict: whatever the file holds that is not read is an error.
    seed: for joint parameters that the format leaves to chance. options: of the format, see `parse`.
    Raises `ParseError` for a file that cannot be read.
    """
    return build(parse(path, format=format, strict=strict, **options), seed=seed)


def loads(text: str, format: str, *, strict: bool = False, seed: int = 0, **options) -> Model:
    """Build a model from the text of a file of the given format. See `load`."""
    return build(parse_text(text, format, strict=strict, **options), seed=seed)
