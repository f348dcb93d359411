"""The document: xacro and deep nesting are refused, second elements and blocks of other programs are skipped."""

from __future__ import annotations

import re
from typing import NamedTuple

from lxml import etree

from xsim.io.errors import Notes, ParseError
from xsim.io.reader import Element

__all__ = ["drop_repeated", "elements_by_name", "inspect", "skip_foreign"]

_MAX_DEPTH = 100  # elements; URDF's own nest five deep, what is deeper sits in blocks of other programs


_XACRO = ("http://www.ros.org/wiki/xacro", "http://ros.org/wiki/xacro", "http://wiki.ros.org/xacro")


_EXPAND = "xacro has to be expanded first: `xacro model.urdf.xacro > model.urdf`"


_OPTENV = re.compile(r"\$\(optenv\s+\w+\s*([^$()]*)\)")


# What an element holds once; urdfdom, Drake and Bullet read the first one.
_ONCE: dict[str, tuple[str, ...]] = {
    "robot": (),
    "link": ("inertial",),
    "inertial": ("origin", "mass", "inertia"),
    "visual": ("origin", "geometry", "material"),
    "collision": ("origin", "geometry"),
    "joint": ("origin", "parent", "child", "axis", "limit", "dynamics", "mimic"),
}


# Blocks of other programs: skipped whole, named once per kind.
_FOREIGN = {
    "transmission": "the gearing of motors is not read, joints are driven directly",
    "ros2_control": "controller set-up is not read",
    "gazebo": "Gazebo's extensions are not read",
    "mujoco": "MuJoCo's extensions are not read",
}


def inspect(root: Element, notes: Notes) -> None:
    """One pass over the whole document, blocks of other programs too: refuse xacro and deep nesting, take off a default namespace.

    ``$(optenv NAME default)`` becomes its default, whatever the environment says.
    """
    depth, space = 0, _name(root._node).namespace
    for event, node in etree.iterwalk(root._node, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if event == "end":
            continue
        if depth > _MAX_DEPTH:
            raise ParseError(root.file, node.sourceline, f"<{node.tag}>: nested deeper than {_MAX_DEPTH} elements")
        name = _name(node)
        if name.prefix == "xacro" or name.namespace in _XACRO:
            raise ParseError(root.file, node.sourceline, f"<xacro:{name.local}>: {_EXPAND}")
        for attribute, value in node.attrib.items():
            if "${" in value or "$(" in value:
                error = Element(node, root.file).error(f"found {value[:80]!r}; {_EXPAND}", attribute)
                default = _OPTENV.sub(lambda match: match[1].strip(), value)
                if "${" in default or "$(" in default:
                    raise error
                notes.assumed(error, f"the default, {default[:80]!r}")
                node.set(attribute, default)
        if space and not name.prefix and name.namespace == space:
            node.tag = name.local


class _Name(NamedTuple):
    prefix: str | None
    namespace: str | None
    local: str


def _name(node) -> _Name:
    """Name of an element in its parts; a prefix that nobody declared has no namespace."""
    namespace, _, local = node.tag[1:].rpartition("}") if node.tag[0] == "{" else ("", "", node.tag)
    prefix, _, local = local.rpartition(":")
    return _Name(prefix or node.prefix, namespace or None, local)


def drop_repeated(root: Element, notes: Notes) -> None:
    """Remove the second and later ones of elements that an element holds once."""
    stack = [root._node]
    while stack:
        node = stack.pop()
        first: dict[str, int] = {}
        for child in list(node):
            if child.tag in first:
                text = f"second <{child.tag}> in {Element(node, root.file)} (the first is in line {first[child.tag]}); allowed: one"
                notes.assumed(Element(child, root.file).error(text), "the first one")
                node.remove(child)
            elif child.tag in _ONCE[node.tag]:
                first[child.tag] = child.sourceline
            if child.tag in _ONCE:
                stack.append(child)


def elements_by_name(root: Element, tag: str) -> dict[str, Element]:
    """The elements with this tag by name, in document order."""
    elements: dict[str, Element] = {}
    for element in root.all(tag):
        name = element.string("name")
        if name in elements:
            raise element.error(f"the name is taken by the {tag} in line {elements[name].line}; names must differ", "name")
        elements[name] = element
    return elements


def skip_foreign(root: Element, inside: list[Element], notes: Notes) -> None:
    """Note the blocks of other programs in the root and in links and joints (``inside``), one line for each kind."""
    for tag, meaning in _FOREIGN.items():
        blocks = [block for parent in (root, *inside) for block in parent.all(tag)]
        for block in blocks:
            block.skip()
        if blocks:
            notes.unsupported(blocks[0].line, f"<{tag}> ({len(blocks)} in the file): {meaning}", root.file)
