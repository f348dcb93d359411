"""<attach> without a model: a copy of a body or frame of the same model, with the elements that refer to it, under prefixed names."""

from __future__ import annotations

from xsim.io.errors import allowed
from xsim.io.mjcf.defaults import class_name
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.nodes import Node, scope
from xsim.io.mjcf.references import SECTIONS, Follower, Name, Relations, names, references, rename
from xsim.io.reader import Element

__all__ = ["attach_own"]


def attach_own(document: Document, node: Node, relations: Relations) -> None:
    """Turn an <attach> into a copy of a body or frame before it in the document.

    What is attached of a body around the <attach> ends there. Elements that refer to what is copied, themselves or through others, are
    copied too, and so are sensors that refer to nothing; their other references stay. Keyframes are about the model with all copies.
    Raises ParseError.
    """
    e = Element(node, node.file)
    prefix = e.raw("prefix")
    if prefix is None:
        raise e.error("attribute 'prefix' is missing")
    place = _place(document, e, node)
    document.budget.spend(e, nodes=place.size())
    copy = _copy_until(e, place, node)
    copied = {name for _, name in names(copy)}
    followers = [*relations.followers(copied), *_unrelated_sensors(relations)]
    document.budget.spend(e, nodes=sum(follower.node.size() for follower in followers))
    copied |= {name for follower in followers for _, name in names(follower.node)}
    _check_names(document, e, relations, {(kind, prefix + name) for kind, name in copied})

    def finish(made: Node) -> Node:
        """The copy with its new names and without numbers in keyframes."""
        rename(made, lambda name: prefix + name[1] if name in copied else name[1], e, document.budget)
        for n in made.walk():
            n.keys = None
        return made

    for follower in sorted(followers, key=lambda follower: follower.number):
        made = follower.node.copy()
        made.parent = follower.node.parent
        relations.add(follower.section, finish(made))
    node.become(finish(copy))


def _place(document: Document, e: Element, node: Node) -> Node:
    """The body or frame that an <attach> names."""
    given = [kind for kind in ("body", "frame") if e.has(kind)]
    if len(given) != 1:
        raise e.error(f"found {' and '.join(given) or 'no model'}; allowed without a model: one of body and frame")
    (kind,) = given
    name = e.string(kind)
    before: dict[str, Node] = {}
    for other in (n for section in _worlds(document) for n in section.walk()):
        if other is node:
            break
        if other.tag == kind and "name" in other.attrib:
            before[other.attrib["name"]] = other
    if name not in before:
        known = allowed(name, list(before)[:50]) if before else f"there is no {kind} with a name"
        raise e.error(f"unknown {kind} {name!r} before this element; {known}", kind)
    return before[name]


def _worlds(document: Document) -> list[Node]:
    return [section for section in document.root._node.children if section.tag == "worldbody"]


def _copy_until(e: Element, place: Node, end: Node) -> Node:
    """A copy of a node, without what is not before another one. It keeps its default class and compiler settings. Raises ParseError."""
    copy = place.copy()
    copy.attrib.setdefault("childclass", class_name(place))
    copy.compiler = scope(Element(place, place.file))
    around = [end, *end.iterancestors()]
    if place not in around:
        return copy
    path = around[: around.index(place)]  # from the end outwards
    if any(n.tag == "replicate" for n in path):
        raise e.error("found in a <replicate> inside of what it copies; allowed: outside of it")
    original, made = place, copy
    for inner in reversed(path):
        index = next(i for i, child in enumerate(original.children) if child is inner)
        made.children = made.children[: index if inner is end else index + 1]
        original, made = inner, made.children[-1] if made.children else made
    return copy


def _unrelated_sensors(relations: Relations) -> list[Follower]:
    """The sensors that refer to nothing, which MuJoCo copies too."""
    sensors = relations.elements("sensor")
    return [Follower("sensor", number, node) for number, node in sensors if next(references(node), None) is None]


def _check_names(document: Document, e: Element, relations: Relations, new: set[Name]) -> None:
    """Refuse names that are there already. Raises ParseError."""
    there = _worlds(document) + [node for section in SECTIONS for _, node in relations.elements(section)]
    for kind, name in sorted({name for node in there for _, name in names(node)} & new):
        raise e.error(f"{kind} {name!r} is in the model already; allowed: another prefix", "prefix")
