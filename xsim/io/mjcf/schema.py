"""Checks of a document against the schema of its release."""

from __future__ import annotations

from xsim.io.errors import allowed
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.releases import Release
from xsim.io.mjcf.schema_tables import SCHEMAS, Rule
from xsim.io.reader import MAX_DEPTH, Element

__all__ = ["check_schema", "check_tree"]

NEWEST = SCHEMAS["4.0"]
ZERO = ("0", "0.0", "0.", "false", "disable")


def check_schema(root: Node, release: Release) -> None:
    """Refuse elements and attributes that are not allowed in their parent or that are not simulated, and second ones of what is allowed
    once. Raises ParseError."""
    if root.tag != "mujoco":
        raise Element(root, root.file).error("unknown root element; allowed: <mujoco>")
    pending = [(root, SCHEMAS[release.schema], NEWEST)]
    while pending:
        node, rule, newest = pending.pop()
        _check_attributes(node, rule, newest)
        first: dict[str, Node] = {}
        for child in node.children:
            inner = _child(node, child, rule, newest)
            if inner.once and child.tag in first:
                before = Element(first[child.tag], first[child.tag].file).source
                text = f"second <{child.tag}> in <{node.tag}> (the first is in {before}); allowed: one"
                raise Element(child, child.file).error(text)
            first.setdefault(child.tag, child)
            pending.append((child, inner, newest.children.get(child.tag, inner)))


def _check_attributes(node: Node, rule: Rule, newest: Rule) -> None:
    """Raises ParseError for what is not allowed. Attributes that are not simulated are removed where they are zero."""
    e = Element(node, node.file)
    for name, text in list(node.attrib.items()):
        if name in rule.attributes:
            continue
        if name in rule.unsupported:
            if set(text.split()) <= set(ZERO):
                del node.attrib[name]
                continue
            raise e.error(f"found {text!r}, which is not simulated; allowed: without it, or zero", name)
        if name in newest.attributes + newest.unsupported:
            raise e.error(f'unknown attribute {name!r}; allowed: with rules="4.0"')
        known = allowed(name, sorted(rule.attributes)) if rule.attributes else "it has none"
        raise e.error(f"unknown attribute {name!r}; {known}")


def _child(parent: Node, child: Node, rule: Rule, newest: Rule) -> Rule:
    """The rule of a child of an element. Raises ParseError if it cannot be there."""
    inner, e = rule.children.get(child.tag), Element(child, child.file)
    if inner is None:
        if child.tag in newest.children:
            raise e.error('not in MuJoCo 3.2; allowed: with the option rules="4.0"')
        known = allowed(child.tag, sorted(rule.children)) if rule.children else "none is allowed"
        raise e.error(f"unknown element in <{parent.tag}>; {known}")
    if not inner.supported:
        raise e.error("not simulated; allowed: models without it")
    return inner


def check_tree(root: Node) -> None:
    """Refuse what no single file could have, once all files are one: too deep a tree, two frames of one name. Raises ParseError."""
    frames: dict[str, Node] = {}
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise Element(node, node.file).error(f"nested deeper than {MAX_DEPTH} elements")
        if node.tag == "frame" and "name" in node.attrib:
            first = frames.setdefault(node.attrib["name"], node)
            if first is not node:
                before = Element(first, first.file).source
                text = f"second frame of this name (the first is in {before}); allowed: a name of its own"
                raise Element(node, node.file).error(text, "name")
        pending.extend((child, depth + 1) for child in reversed(node.children))
