"""<custom>: users' numbers, texts and lists of elements."""

from __future__ import annotations

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.sensors import NAMED, find_object
from xsim.io.mjcf.values import integer
from xsim.io.reader import Element

__all__ = ["read_custom"]

MAX_NUMBERS = 1_000_000


def read_custom(document: Document, index: Index) -> dict[str, dict]:
    """``{"numeric": {name: numbers}, "text": {name: text}, "tuple": {name: ((kind, name, number), ...)}}``, each in the file's order;
    index entries "numeric", "text", "tuple". Every other kind of element must be in the index. Raises ParseError."""
    by_kind: dict[str, list[Element]] = {kind: document.elements("custom", kind) for kind in _KINDS}
    for kind, elements in by_kind.items():
        for number, e in enumerate(elements):
            e.string("name")
            index.add(kind, e, number)
    return {kind: {e.string("name"): _KINDS[kind](document, index, e) for e in elements} for kind, elements in by_kind.items()}


def _numeric(document: Document, index: Index, e: Element) -> np.ndarray:
    given = e.floats("data", default=())
    size = integer(e, "size", len(given))
    if not 1 <= size <= MAX_NUMBERS:
        raise e.error(f"found {size} numbers; allowed: from 1 to {MAX_NUMBERS}", "size")
    if len(given) > size:
        raise e.error(f"found {len(given)} numbers; allowed: {size}, as its size says", "data")
    document.budget.spend(e, numbers=size)
    return np.concatenate([given, np.zeros(size - len(given))])


def _text(document: Document, index: Index, e: Element) -> str:
    return e.string("data")


def _tuple(document: Document, index: Index, e: Element) -> tuple[tuple[str, str, float], ...]:
    out = []
    for inner in e.all("element"):
        kind, _ = find_object(index, inner, NAMED)
        out.append((kind, inner.string("objname"), inner.number("prm", 0.0)))
    if not out:
        raise e.error("the tuple is empty; allowed: one <element> or more")
    return tuple(out)


_KINDS = {"numeric": _numeric, "text": _text, "tuple": _tuple}
