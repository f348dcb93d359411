"""<attach>: a body of another model, with everything below it and all that belongs to it, under prefixed names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from xsim.io.errors import allowed
from xsim.io.mjcf.defaults import MAIN, class_name
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.files import locate
from xsim.io.mjcf.keyframes import scatter
from xsim.io.mjcf.nodes import Node, scope
from xsim.io.mjcf.references import SECTIONS, Name, Relations, names, references, rename
from xsim.io.mjcf.schema import MJCF
from xsim.io.reader import Element

__all__ = ["Submodel", "attach", "read_submodels"]

WORLD = ("body", "world")


@dataclass
class Attached:
    """What a model has attached under one prefix: names (old ones) and numbers of elements; its classes, by old name."""

    names: set[Name] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    classes: dict[str, str] = field(default_factory=dict)


class Submodel:
    """A model to attach from: its document, expanded; its bodies; the elements that belong to no body, which come along with any; and
    what was attached, by prefix."""

    def __init__(self, document: Document):
        scatter(document)
        root = document.root._node
        self.document = document
        self.relations = Relations(root)
        self.relations.write()
        world = Node("body", {"name": "world"}, document.file, root.sourceline)
        world.children = [child for n in root.children if n.tag == "worldbody" for child in n.children]
        world.compiler = document.compiler
        self.bodies = {n.attrib["name"]: n for n in root.walk() if n.tag == "body" and n.attrib.get("name")} | {"world": world}
        self.free: list[tuple[str, int, Node]] = []
        self.free_names: set[Name] = set()
        for section in SECTIONS:
            # Those that refer to nothing first: order does not matter within a section.
            for number, node in sorted(self.relations.elements(section), key=lambda x: next(references(x[1]), None) is not None):
                if section in ("asset", "keyframe") or all(found in self.free_names for _, _, found in references(node)):
                    self.free.append((section, number, node))
                    self.free_names |= {found for _, found in names(node)}
        self.attached: dict[str, Attached] = {}


def read_submodels(document: Document, relations: Relations, read: Callable[[Element, Path], Document]) -> dict[str, Submodel]:
    """The <model> assets of a document by name; they leave its assets. read: element and file -> document."""
    found: dict[str, Submodel] = {}
    files: dict[Path, Submodel] = {}
    for number, node in relations.elements("asset"):
        if node.tag != "model":
            continue
        e = Element(node, node.file)
        e.choice("content_type", ("text/xml",), "text/xml")
        path = locate(e, "file", e.string("file"))
        if path not in files:
            files[path] = Submodel(read(e, path))
        name = e.string("name", files[path].document.root.raw("model") or "MuJoCo Model")
        if name in found:
            raise e.error(f"second model {name!r}; allowed: a name of its own", "name")
        found[name] = files[path]
        relations.remove("asset", number)
    return found


def attach(document: Document, node: Node, relations: Relations, models: dict[str, Submodel]) -> None:
    """Turn an <attach> into the body that it names.

    Along come the model's assets, default classes and keyframes, and each element that refers to nothing but what comes along (or the
    world), itself or by way of others. All names get the prefix. The elements keep the compiler settings of their own file; the other
    settings of the model are left behind, and so are the frames around the body. Raises ParseError.
    """
    e = Element(node, node.file)
    name, wanted, prefix = e.string("model"), e.string("body"), e.raw("prefix")
    if prefix is None:
        raise e.error("attribute 'prefix' is missing")
    if name not in models:
        raise e.error(f"unknown model {name!r}; {allowed(name, models) if models else '<asset> has no <model>'}", "model")
    model = models[name]
    if wanted not in model.bodies:
        raise e.error(f"unknown body {wanted!r} in {model.document.file}; {allowed(wanted, list(model.bodies)[:50])}", "body")
    body = model.bodies[wanted]
    first = prefix not in model.attached
    attached = model.attached.setdefault(prefix, Attached())
    if ("body", wanted) in attached.names:
        raise e.error(f"body {wanted!r} is in the model with this prefix already; allowed: another prefix", "prefix")
    document.budget.spend(e, nodes=body.size())
    inside = {found for _, found in names(body)}
    attached.names |= inside
    members = _members(document, e, model, attached, inside, first)

    def namer(found: Name) -> str:
        if found[0] == "class":
            return attached.classes[found[1]]
        return prefix + found[1] if found in attached.names or found in model.free_names else found[1]

    def change(twin: Node) -> None:
        for n in twin.walk():
            if n.keys:
                document.budget.spend(e, nodes=len(n.keys))
                n.keys = {(prefix, mark): said for mark, said in n.keys.items()}
        rename(twin, namer, e, document.budget)

    if first:
        _note_settings(document, model.document)
        attached.classes = document.classes.adopt(model.document.classes, prefix, change, e)
    copy = body.copy()
    copy.attrib.setdefault("childclass", class_name(body))
    change(copy)
    node.tag, node.attrib, node.children = copy.tag, copy.attrib, []
    node.file, node.sourceline, node.keys = copy.file, copy.sourceline, copy.keys
    node.compiler = scope(Element(body, body.file))
    for child in copy.children:
        node.append(child)
    for section, member in members:
        twin = member.copy()
        twin.parent = member.parent
        if "class" in MJCF.children[section].children[member.tag].attributes:
            twin.attrib.setdefault("class", MAIN)
        change(twin)
        relations.add(section, twin)


def _members(document: Document, e: Element, model: Submodel, attached: Attached, inside: set[Name], first: bool) -> list[tuple[str, Node]]:
    """The elements outside the bodies that come along with a body, in order; they enter what is attached.

    inside: the names in the body; first: whether it is the first one with its prefix.
    """
    found = model.relations.referring(inside)
    document.budget.spend(e, nodes=sum(node.size() for _, _, node in (*found, *(model.free if first else []))))
    out = list(model.free) if first else []
    taken = {number for _, number, _ in out} | attached.numbers
    for section, number, node in found:
        known = all(r in attached.names or r in model.free_names or r == WORLD for _, _, r in references(node))
        if known and number not in taken and section != "keyframe":
            out.append((section, number, node))
            attached.names |= {name for _, name in names(node)}
    attached.numbers |= {number for _, number, _ in out}
    order = {section: i for i, section in enumerate(SECTIONS)}
    return [(section, node) for section, _, node in sorted(out, key=lambda x: (order[x[0]], x[1]))]


def _note_settings(document: Document, inner: Document) -> None:
    """Say that the options of an attached model have no effect."""
    for e in inner.sections("option"):
        if e.attributes or e._node.children:
            document.notes.suspicious(e.line, f"{e}: the model is attached to another one, whose options hold", e.file)
