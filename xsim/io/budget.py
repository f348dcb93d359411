"""Bounds of the size of one model, for what files include, attach, replicate or unpack."""

from __future__ import annotations

from xsim.io.reader import Element
from xsim.limits import limits

__all__ = ["MAX_CHARACTERS", "MAX_NUMBERS", "Budget"]

MAX_CHARACTERS = 30_000_000  # of the names made for them
MAX_NUMBERS = 50_000_000  # of arrays that are longer than what the file writes


class Budget:
    """Bounds of the size of one model: files that include, attach, replicate or name sizes can ask for more than any memory holds."""

    def __init__(self):
        self._nodes = self._characters = self._numbers = 0

    def spend(self, e: Element, nodes: int = 0, characters: int = 0, numbers: int = 0) -> None:
        """Count elements, characters of generated names, or generated numbers; e: their cause. Raises ParseError above the bounds."""
        self._nodes += nodes
        self._characters += characters
        self._numbers += numbers
        if self._nodes > limits().elements:
            raise e.error(f"the model grows to {self._nodes} elements; allowed: {limits().elements} (limits: elements)")
        if self._characters > MAX_CHARACTERS:
            raise e.error(f"the names of the model grow to {self._characters} characters; allowed: {MAX_CHARACTERS}")
        if self._numbers > MAX_NUMBERS:
            raise e.error(f"the arrays of the model grow to {self._numbers} numbers; allowed: {MAX_NUMBERS}")
