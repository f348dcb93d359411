"""XML: elements, and numbers as texts that read back exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from lxml import etree
from lxml.etree import _Element as XML

__all__ = ["XML", "add", "put_names_first", "unless"]


def add(parent: XML, tag: str, /, **attributes: Any) -> XML:
    """A new element in a parent. Attributes are texts, numbers, truth values, or arrays of numbers; None leaves one out."""
    e = etree.SubElement(parent, tag)
    for name, value in attributes.items():
        if value is not None:
            e.set(name, _text(value))
    return e


def unless(default, value):
    """The value, None where it is the default, which the format then assumes."""
    return None if np.array_equal(value, default) else value


def _text(value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    return " ".join(_number(x) for x in np.ravel(value).tolist())


def _number(x: float) -> str:
    """The shortest decimal that reads back as this number."""
    return repr(x).removesuffix(".0")


def put_names_first(root: XML) -> None:
    """Let every element begin with its name, as people write it."""
    for e in root.iter():
        attributes = dict(e.attrib)
        if "name" in attributes:
            e.attrib.clear()
            e.attrib.update({"name": attributes.pop("name"), **attributes})
