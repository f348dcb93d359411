"""Where elements of a model come from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """Where an element was read: file name and line, for messages that come after parsing."""

    file: str = "<string>"
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
