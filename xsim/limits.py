"""How large files and models may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["Limits", "limits", "limited"]


@dataclass(frozen=True)
class Limits:
    """How large files and models may be. They guard against files that would take all memory. For a larger model, pass larger limits to
    `xsim.load`: ``limits=xsim.Limits(pairs=10_000_000)``.

    * bytes: of a file, of what an archive unpacks to, and of all files that a file includes.
    * elements: of a model with all that it includes, attaches and replicates.
    * pairs: of geoms that can collide.
    """

    bytes: int = 100_000_000
    elements: int = 500_000
    pairs: int = 2_000_000


_DEFAULTS = Limits()
_limits: ContextVar[Limits] = ContextVar("limits", default=_DEFAULTS)


def limits() -> Limits:
    """The limits of the model that is read or built."""
    return _limits.get()


@contextmanager
def limited(limits: Limits | None) -> Iterator[None]:
    """What is read and built within has these limits. None: those that hold already."""
    token = _limits.set(_limits.get() if limits is None else limits)
    try:
        yield
    finally:
        _limits.reset(token)
