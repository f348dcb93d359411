"""<attach>: a body, frame or world of another model, with the elements that refer to it, under prefixed names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from xsim.io.errors import allowed
from xsim.io.mjcf.conflicts import merge_settings
from xsim.io.mjcf.defaults import MAIN, class_name
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.files import locate
from xsim.io.mjcf.keyframes import assign_keys
from xsim.io.mjcf.nodes import Budget, Node, scope
from xsim.io.mjcf.references import SECTIONS, Name, Relations, names, references, rename
from xsim.io.mjcf.schema_tables import SCHEMAS
from xsim.io.reader import Element

__all__ = ["Submodel", "attach", "read_submodels"]

WORLD = ("body", "world")


@dataclass
class Attached:
    """What is attached of a model under one prefix. names, numbers: of its elements, before renaming. classes: new names by old names."""

    names: set[Name] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    classes: dict[str, str] = field(default_factory=dict)


class Submodel:
    """A model to attach from.

    document: the model, expanded. bodies, frames: by name. contents: all of the world, as a frame. independent: section, number and node
    of each element that refers to no body; all of them are attached with the first body. independent_names: their names. attached: what
    was attached, by prefix.
    """

    def __init__(self, document: Document):
        assign_keys(document)
        root = document.root._node
        self.document = document
        self.relations = Relations(root)
        self.relations.write()
        self.bodies, self.frames = (
            {n.attrib["name"]: n for n in root.walk() if n.tag == tag and n.attrib.get("name")} for tag in ("body", "frame")
        )
        self.bodies["world"] = Node("body", {"name": "world"}, document.file, root.sourceline)
        self.contents = Node("frame", {}, document.file, root.sourceline)
        for node in (self.bodies["world"], self.contents):
            node.children = [child for n in root.children if n.tag == "worldbody" for child in n.children]
            node.compiler = document.compiler
        self.independent: list[tuple[str, int, Node]] = []
        self.independent_names: set[Name] = set()
        for section in SECTIONS:
            # Those that refer to nothing first: order does not matter within a section.
            for number, node in sorted(self.relations.elements(section), key=lambda x: next(references(x[1]), None) is not None):
                if section in ("asset", "keyframe") or all(name in self.independent_names for _, _, name in references(node)):
                    self.independent.append((section, number, node))
                    self.independent_names |= {name for _, name in names(node)}
        self.attached: dict[str, Attached] = {}


def read_submodels(document: Document, relations: Relations, read: Callable[[Element, Path], Document]) -> dict[str, Submodel]:
    """The <model> assets of a document by name, which are removed from it. read: element and file -> document."""
    models: dict[str, Submodel] = {}
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
        if name in models:
            raise e.error(f"second model {name!r}; allowed: a name of its own", "name")
        models[name] = files[path]
        relations.remove("asset", number)
    return models


def attach(document: Document, node: Node, relations: Relations, models: dict[str, Submodel]) -> None:
    """Turn an <attach> into the body or frame that it names, or into a frame with the contents of the model's world.

    With it come the model's assets, default classes and keyframes, and each element that refers, itself or through others, only to
    what is attached or to the world. All names get the prefix. The elements keep the compiler settings of their file; what becomes of the
    options of the model says `merge_settings`. The frames around the body or frame have no effect. Raises ParseError.
    """
    e = Element(node, node.file)
    model, body, prefix = _read_attach(document, e, models)
    first = prefix not in model.attached
    attached = model.attached.setdefault(prefix, Attached())
    inside = {name for _, name in names(body)}
    for kind, name in sorted(inside & attached.names):
        raise e.error(f"{kind} {name!r} is in the model with this prefix already; allowed: another prefix", "prefix")
    document.budget.spend(e, nodes=body.size())
    attached.names |= inside
    members = _members(document, e, model, attached, inside, first)
    prefixing = _Prefixing(document.budget, e, prefix, attached, model.independent_names)
    if first:
        merge_settings(document, model.document, e)
        attached.classes = document.classes.adopt(model.document.classes, prefix, prefixing.apply, e)
    _replace_by_body(node, body, prefixing)
    for section, member in members:
        copy = member.copy()
        copy.parent = member.parent
        if "class" in SCHEMAS[document.release.schema].children[section].children[member.tag].attributes:
            copy.attrib.setdefault("class", MAIN)
        prefixing.apply(copy)
        relations.add(section, copy)


def _read_attach(document: Document, e: Element, models: dict[str, Submodel]) -> tuple[Submodel, Node, str]:
    """The model, the body or frame, and the prefix of an <attach>."""
    name, prefix = e.string("model"), e.raw("prefix")
    if prefix is None:
        raise e.error("attribute 'prefix' is missing")
    if name not in models:
        raise e.error(f"unknown model {name!r}; {allowed(name, models) if models else '<asset> has no <model>'}", "model")
    model = models[name]
    if e.has("frame") and e.has("body"):
        raise e.error("found body and frame; allowed: one of them, or none", "frame")
    kind, places = ("frame", model.frames) if e.has("frame") else ("body", model.bodies)
    if not e.has(kind) and document.release.schema != "3.2":
        return model, model.contents, prefix
    place = e.string(kind)
    if place not in places:
        known = allowed(place, list(places)[:50]) if places else f"it has no {kind} with a name"
        raise e.error(f"unknown {kind} {place!r} in {model.document.file}; {known}", kind)
    return model, places[place], prefix


class _Prefixing(NamedTuple):
    """The names of what an <attach> (e) attaches: those attached with it and those of the model's independent elements get the prefix."""

    budget: Budget
    e: Element
    prefix: str
    attached: Attached
    independent_names: set[Name]

    def new_name(self, name: Name) -> str:
        if name[0] == "class":
            return self.attached.classes[name[1]]
        return self.prefix + name[1] if name in self.attached.names or name in self.independent_names else name[1]

    def apply(self, copy: Node) -> None:
        """Change the names, references and keyframes of a copied node and all inside."""
        for n in copy.walk():
            if n.keys:
                self.budget.spend(self.e, nodes=len(n.keys))
                n.keys = {(self.prefix, key): numbers for key, numbers in n.keys.items()}
        rename(copy, self.new_name, self.e, self.budget)


def _replace_by_body(node: Node, body: Node, prefixing: _Prefixing) -> None:
    """Turn an <attach> node into a copy of the body or frame."""
    copy = body.copy()
    copy.attrib.setdefault("childclass", class_name(body))
    prefixing.apply(copy)
    copy.compiler = scope(Element(body, body.file))
    node.become(copy)


def _members(document: Document, e: Element, model: Submodel, attached: Attached, inside: set[Name], first: bool) -> list[tuple[str, Node]]:
    """The elements outside the bodies that are attached with a body, in order; they are added to ``attached``.

    inside: the names in the body. first: whether it is the first body with its prefix.
    """
    referring = model.relations.referring(inside)
    out = list(model.independent) if first else []
    document.budget.spend(e, nodes=sum(node.size() for _, _, node in (*referring, *out)))
    taken = {number for _, number, _ in out} | attached.numbers
    for section, number, node in referring:
        known = all(r in attached.names or r in model.independent_names or r == WORLD for _, _, r in references(node))
        if known and number not in taken and section != "keyframe":
            out.append((section, number, node))
            attached.names |= {name for _, name in names(node)}
    attached.numbers |= {number for _, number, _ in out}
    order = {section: i for i, section in enumerate(SECTIONS)}
    return [(section, node) for section, _, node in sorted(out, key=lambda x: (order[x[0]], x[1]))]
