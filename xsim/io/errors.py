"""Errors and warnings of readers and writers: one exception each, and warnings that are emitted once with all their lines."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import NoReturn

from xsim.spec import Source
from xsim.suggestions import did_you_mean

__all__ = ["Losses", "Notes", "ParseError", "SuspiciousInputWarning", "UnsupportedWarning", "WriteError", "WriteWarning", "allowed"]


class ParseError(ValueError):
    """A file that cannot be read. The text is ``file:line: element: what was found; what is allowed``; its parts are attributes."""

    def __init__(self, file: str, line: int | None, text: str):
        self.file, self.line, self.text = file, line, text
        super().__init__(f"{file}:{line}: {text}" if line else f"{file}: {text}")

    def __reduce__(self):
        return type(self), (self.file, self.line, self.text)  # so that it passes between processes


class UnsupportedWarning(UserWarning):
    """The file has an element or attribute that xsim does not use."""


class SuspiciousInputWarning(UserWarning):
    """The file is legal but probably not meant as written, or it breaks a rule of its format and was read as usual readers read it."""


def allowed(found: str, names: Iterable[str]) -> str:
    """List of the allowed names, with the nearest one first where the found name looks like a typing error."""
    names = list(names)
    return did_you_mean(found, names, "did you mean {!r}? ") + f"allowed: {', '.join(names)}"


class Notes:
    """Collects what one file leaves unused or breaks, and reports it once; ``strict`` makes it an error."""

    def __init__(self, file: str, strict: bool = False):
        self.file, self.strict = file, strict
        self._unsupported: list[tuple[str, int, str]] = []
        self._suspicious: list[tuple[str, int, str]] = []

    def unsupported(self, line: int, text: str, file: str | None = None) -> None:
        if self.strict:
            raise ParseError(file or self.file, line, f"{text} (strict)")
        self._unsupported.append((file or self.file, line, text))

    def suspicious(self, line: int, text: str, file: str | None = None) -> None:
        self._suspicious.append((file or self.file, line, text))

    def assumed(self, error: ParseError, meaning: str) -> None:
        """Note a broken rule that the usual readers of the format overlook. error: what a strict reader says; meaning: what is assumed.

        Raises the error where the notes are strict.
        """
        if self.strict:
            raise error
        self.suspicious(error.line or 0, f"{error.text}; assumed: {meaning}", error.file)

    def emit(self, stacklevel: int = 3) -> None:
        """One warning of each kind with every line."""
        for category, notes in ((UnsupportedWarning, self._unsupported), (SuspiciousInputWarning, self._suspicious)):
            if notes:
                text = "\n".join(f"{file}:{line}: {note}" for file, line, note in sorted(set(notes)))
                warnings.warn(text, category, stacklevel=stacklevel)
        self._unsupported.clear()
        self._suspicious.clear()


class WriteError(ValueError):
    """A model that a format cannot say. The text is ``file:line: element: what it has; what the format has``.

    source: where the element was read.
    """

    def __init__(self, source: Source, element: str, text: str):
        self.source, self.element, self.text = source, element, text
        super().__init__(f"{source}: {element}: {text}" if source.line else f"{element}: {text}")

    def __reduce__(self):
        return type(self), (self.source, self.element, self.text)


class WriteWarning(UserWarning):
    """The written file lacks something that the model has, or says something near it."""


class Losses:
    """Collects what a written file lacks, and reports it once.

    language: the name of its format. strict: what changes the physics is an error.
    """

    def __init__(self, language: str, strict: bool = True):
        self.language, self.strict = language, strict
        self._lines: list[str] = []

    def refuse(self, source: Source, element: str, text: str) -> NoReturn:
        """Raise a WriteError, strict or not: without this there is no model."""
        raise WriteError(source, element, text)

    def lose(self, source: Source, element: str, text: str, instead: str) -> None:
        """Note what the format cannot say, and what is written instead. Raises WriteError where strict."""
        error = WriteError(source, element, text)
        if self.strict:
            raise error
        self._lines.append(f"{error}; {instead}")

    def drop(self, source: Source, element: str, text: str) -> None:
        """Note what is lost without a change of forces and masses: pictures, rules of integration."""
        self._lines.append(str(WriteError(source, element, text)))

    def emit(self, stacklevel: int = 3) -> None:
        """One warning with every line."""
        if self._lines:
            warnings.warn("\n".join(dict.fromkeys(self._lines)), WriteWarning, stacklevel=stacklevel)
        self._lines.clear()
