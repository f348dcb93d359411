"""From documents to models, links, joints and frames by name: nesting, includes, merging, old flat names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.io.sdf.document import Document, Library, boolean, flags, ignore
from xsim.io.sdf.frames import Frame, Model, Scope, attach, connect, place, place_model
from xsim.limits import limits
from xsim.poses import Pose

__all__ = ["Structure", "build"]

_KINDS = ("link", "joint", "frame", "model")
_SWITCHES = {"enable_wind": "there is no wind"}


class Chain(NamedTuple):
    """The files that are open around an element, innermost first."""

    file: str
    outer: Chain | None

    def __contains__(self, file) -> bool:
        link: Chain | None = self
        while link is not None:
            if link.file == file:
                return True
            link = link.outer
        return False


class Contents(NamedTuple):
    """A model element to read. document: that it is in. chain: the files that are open. include: the element that brings it, if any."""

    element: Element
    document: Document
    chain: Chain
    include: Element | None = None


@dataclass(eq=False)
class Level:
    """An open model element: where its contents go and how names in it are read.

    model: receives the contents. scope: for names in them. home: their default frame. flat: by prefix, the elements of the frames
    ``PREFIX::__model__`` (None without one) of a document that keeps nested models flat; unfolded: the levels made of them.
    """

    element: Element
    document: Document
    model: Model
    scope: Scope
    home: Frame
    chain: Chain
    flat: dict[str, Element | None] = field(default_factory=dict)
    unfolded: dict[str, Level] = field(default_factory=dict)
    placement: tuple[str, Element, str | None] | None = None
    canonical: tuple[str, Element, str] | None = None
    links: int = 0  # the contents are those of ``model`` from these places on (a merged model shares it)
    models: int = 0
    first: Frame | None = None  # the first link in it, or else the first nested model with a link


class Structure(NamedTuple):
    """What `build` finds: the world (of the file, or around its single model), all links nested models first, all joints and explicit
    frames in document order, all models."""

    world: Model
    links: list[Frame]
    joints: list[Frame]
    frames: list[Frame]
    models: list[Frame]


class Builder:
    def __init__(self, file: str, library: Library, notes: Notes):
        self.library, self.notes = library, notes
        self.chain = Chain(file, None)
        self.made: list[Frame] = []  # every frame but the world, in document order
        self.closed: list[Level] = []  # inner before outer

    # ---- frames and names ----

    def frame(self, kind: str, name: str, element: Element, level: Level, **more) -> Frame:
        if len(self.made) >= (most := limits().elements):  # files that include each other must not multiply
            raise element.error(f"the model has more than {most} links, joints, frames and models (limits: elements)")
        frame = Frame(kind, level.model.prefix + name, element, level.document, level.scope, level.home, level.model, **more)
        self.made.append(frame)
        return frame

    def add(self, kind: str, name: str, element: Element, level: Level, **more) -> Frame:
        """A frame that the level's model knows by name."""
        members, written, version = level.model.members, level.model.written, level.document.version
        self.check_name(kind, name, element, version)
        given = name
        if name in members or (kind, name) in written:
            name = self.other_name(kind, given, element, level)
        frame = self.frame(kind, name, element, level, **more)
        members[name] = frame
        written.setdefault((kind, given), frame)
        getattr(level.model, f"{kind}s").append(frame)
        return frame

    def check_name(self, kind: str, name: str, element: Element, version: int) -> None:
        """Refuse empty and reserved names. A link called world is common in files that were made of URDF."""
        if not name.strip():
            raise element.error("is empty", "name")
        if name == "world" or name.startswith("__") and name.endswith("__"):
            reserved = element.error(f"the name {name!r} is reserved; allowed: names other than world and __anything__")
            if kind != "link" or name != "world":
                raise reserved
            self.notes.assumed(reserved, "a link of the model" if element.child("inertial") else "a link that is fixed to the world")
        if "::" in name and version >= 8:
            raise element.error(f"the name {name!r} holds '::', which separates scopes; allowed: names without it")

    def other_name(self, kind: str, name: str, element: Element, level: Level) -> str:
        """The name of a model, or of a link or joint, whose name is taken by a sibling. Names are then those of the first one.

        Raises ParseError for two links, joints or frames of one name: what names them could mean either.
        """
        members, other = level.model.members, level.model.written.get((kind, name))
        first = other or members[name]
        taken = element.error(f"the name {name!r} is taken by {first.element} in line {first.element.line}; names of siblings must differ")
        if other is not None and kind != "model":
            raise taken
        free, count = f"{name}_{kind}", 0
        while free in members:
            free, count = f"{name}_{kind}{count}", count + 1
        if level.document.version <= 6 and other is None:  # a link and a joint may share a name
            text = f"{element}: the name is taken by {first.element}; it is called {free!r}"
            self.notes.suspicious(element.line, text, element.file)
        else:
            self.notes.assumed(taken, f"it is called {free!r}")
        return free

    # ---- opening elements ----

    def open(self, contents: Contents, level: Level, name: str) -> Level:
        """A nested model; the pose, placement frame and static of its include replace the model's."""
        element, document, _, include = contents
        frame = self.add("model", name, element, level, placed=self.placed(contents, level))
        inner = frame.model = Model(f"{frame.name}::", _static(element, include))
        inner.frame, frame.document = frame, document
        return self.inside(contents, inner, Scope(inner, frame), frame)

    def placed(self, contents: Contents, level: Level) -> tuple[Element, int, Scope]:
        """Where a model's pose is read: in its include, where that has one, else in the model."""
        element, document, _, include = contents
        if include is None or include.child("pose") is None:
            return element, document.version, level.scope
        ignore(element.all("pose"))
        return include, level.document.version, level.scope

    def inside(self, contents: Contents, model: Model, scope: Scope, home: Frame) -> Level:
        """The level of a model's contents."""
        element, document, chain, include = contents
        level = Level(element, document, model, scope, home, chain, links=len(model.links), models=len(model.models))
        flags(element, _SWITCHES, self.notes)
        boolean(element, "self_collide", False)  # used by the contacts of its links, if they have any
        ignore(element.all("plugin", "allow_auto_disable"))
        element.raw("name")
        placement, canonical = (element.raw("placement_frame") or "").strip(), (element.raw("canonical_link") or "").strip()
        if placement:
            level.placement = (placement, element, "placement_frame")
        if canonical:
            level.canonical = (canonical, element, "canonical_link")
        given = None if include is None else include.child("placement_frame")
        if include is not None and given is not None:
            if include.child("pose") is None:
                raise given.error("is given without <pose>; allowed: both")
            level.placement = (given.string(None), given, None)
        if document.version <= 7:
            level.flat = _flat(element)
        return level

    def include(self, element: Element, level: Level) -> Level | None:
        """The level of an included model; None for what holds no model (lights, actors)."""
        ignore(element.all("plugin"))
        uri = element.need("uri")
        file, document = self.library.include(uri, level.document)
        if file in level.chain:
            raise uri.error(f"{uri.string(None)!r} includes the file it stands in; includes must not form a cycle")
        models = document.models
        if document.root.tag == "sdf":
            ignore(document.root.all("light", "actor"))
            if len(models) > 1 or document.root.all("world"):
                raise uri.error(f"{document.root.file} holds {len(models)} models or a world; allowed: one model")
        if not models:
            return None
        model = models[0]
        contents = Contents(model, document, Chain(file, level.chain), element)
        if element.child("pose") is None:
            _no_outside(model, document)
        given = element.child("name")
        name = model.string("name") if given is None else given.string(None)
        if not element.boolean("merge", False):
            return self.open(contents, level, name)
        if _static(model, element):
            text = f"{element}: static of a merged model has no effect: its links join {level.element}"
            self.notes.unsupported(element.line, text, element.file)
        hidden = self.frame("model", f"{name}::__merged__", model, level, placed=self.placed(contents, level))
        return self.inside(contents, level.model, Scope(level.model, hidden), hidden)

    def unfold(self, name: str, level: Level) -> tuple[str, Level]:
        """The level and the rest of a name ``A::B::rest`` in a document that keeps nested models flat."""
        if "::" not in name or not level.flat:
            return name, level
        prefix, _, rest = name.rpartition("::")
        while prefix and prefix not in level.flat:
            prefix, _, part = prefix.rpartition("::")
            rest = f"{part}::{rest}"
        if not prefix:
            return name, level
        outer, at = level, ""
        for part in prefix.split("::"):
            at = f"{at}::{part}" if at else part
            if at not in level.unfolded:
                marker = level.flat.get(at)
                element = level.element if marker is None else marker
                # The marker's words are looked up where it stands, and so are those of all contents: they keep their flat names.
                frame = self.add("model", part, element, outer, placed=(marker, level.document.version, level.scope))
                inner = frame.model = Model(f"{frame.name}::")
                inner.frame = frame
                new = Level(element, level.document, inner, level.scope, frame, level.chain)
                if marker is not None and (marker.raw("attached_to") or "").strip():
                    new.canonical = (marker.string("attached_to").strip(), marker, "attached_to")
                level.unfolded[at] = new
            outer = level.unfolded[at]
        return rest, outer

    # ---- the walk ----

    def walk(self, level: Level) -> None:
        """Fill a level and all inside it, in document order. Models nest too deep for recursion."""
        open_levels: list[tuple[Level, Iterator[Element]]] = [(level, self.contents(level))]
        while open_levels:
            level, elements = open_levels[-1]
            element = next(elements, None)
            if element is None:
                for done in (*reversed(level.unfolded.values()), level):
                    links, models = done.model.links[done.links :], done.model.models[done.models :]
                    with_links = (m for m in models if m.model is not None and m.model.has_links)
                    done.first = links[0] if links else next(with_links, None)
                    done.model.has_links |= done.first is not None
                    self.closed.append(done)
                open_levels.pop()
                continue
            inner = self.enter(element, level)
            if inner is not None:
                open_levels.append((inner, self.contents(inner)))

    def contents(self, level: Level) -> Iterator[Element]:
        return iter(level.element.all(*_KINDS, "include"))

    def enter(self, element: Element, level: Level) -> Level | None:
        if element.tag == "include":
            return self.include(element, level)
        name, at = self.unfold(element.string("name"), level)
        if element.tag == "model":
            return self.open(Contents(element, level.document, level.chain), at, name)
        if element.tag == "frame" and at is not level and name == "__model__":
            return None  # unfolded to a model
        if element.tag == "link" and at.model.frame.kind == "world":
            raise element.error("a world holds no links of its own; allowed: links in models")
        self.add(element.tag, name, element, at)
        return None


def _static(element: Element, include: Element | None = None) -> bool:
    static = boolean(element, "static", False)
    return static if include is None else boolean(include, "static", static)


def _no_outside(model: Element, document: Document) -> None:
    pose = model.child("pose")
    named = pose is not None and (pose.raw("relative_to") or document.version <= 6 and pose.raw("frame"))
    if pose is not None and named:
        raise pose.error("the model at the top of a file has nothing around it; allowed: no frame", "relative_to")


def _flat(element: Element) -> dict[str, Element | None]:
    """Prefixes A, A::B of links and models in a flat document, with the frames that say where those models are."""
    prefixes: dict[str, Element | None] = {}
    for item in element.all("link", "model"):
        prefix = item.string("name").rpartition("::")[0]
        while prefix and prefix not in prefixes:
            prefixes[prefix] = None
            prefix = prefix.rpartition("::")[0]
    for item in element.all("frame") if prefixes else []:
        prefix, _, last = item.string("name").rpartition("::")
        if last == "__model__" and prefix in prefixes:
            if prefixes[prefix] is not None:
                raise item.error("the name is taken; names of siblings must differ")
            prefixes[prefix] = item
    return prefixes


# ---- the document ------------------------------------------------------------------------------------------------------------


def build(document: Document, file: str, library: Library, notes: Notes) -> Structure:
    """All frames of a document with their places and bodies. Raises ParseError."""
    builder = Builder(file, library, notes)
    root = document.root
    element, top = _top(document, notes)
    world = Model()
    frame = world.frame = Frame("world", "world", element, document, Scope(world, None), None, world, world)
    frame.world, frame.body = Pose(), frame
    outside = Level(element, document, world, frame.scope, frame, builder.chain)
    if top:  # a single model: its own name is no prefix
        _no_outside(element, document)
        level = builder.open(Contents(element, document, builder.chain), outside, element.string("name"))
        level.model.prefix = ""
    else:
        element.string("name")
        level = outside
    builder.walk(level)
    ignore(root.all("light", "actor"))
    _finish(builder, frame)
    models = [f for f in builder.made if f.kind == "model" and f.model is not None]
    joints, frames = ([f for f in builder.made if f.kind == kind] for kind in ("joint", "frame"))
    return Structure(world, _links(world), joints, frames, models)


def _top(document: Document, notes: Notes) -> tuple[Element, bool]:
    """The world or single model of a document, and whether it is a model."""
    root = document.root
    models = document.models
    worlds = root.all("world") if root.tag == "sdf" else []
    if len(models) > 1 or models and worlds:
        raise (models[1] if len(models) > 1 else models[0]).error("a file holds one model or worlds; allowed: one of them")
    for world in worlds[1:]:
        notes.unsupported(world.line, f"{world}: only the first world of a file is read", world.file)
    if not models and not worlds:
        raise root.error("holds no model; allowed: one <model>, or <world>")
    ignore(worlds[1:])
    return (models or worlds)[0], bool(models)


def _finish(builder: Builder, world: Frame) -> None:
    """Resolve all names, inner models before outer ones."""
    made, closed = builder.made, builder.closed
    for frame in made:
        if frame.kind == "joint":
            frame.child = _child(frame)
    for frame in made:
        connect(frame)
    for level in closed:
        if level.placement is not None:
            name, element, attribute = level.placement
            place_model(level.home, level.scope.find(name, element, attribute))
        if level.home.kind == "model":
            level.home.target = _canonical(level, world)
    attach(made)
    place(made)


def _child(joint: Frame) -> Frame:
    """The frame that a joint's <child> names."""
    element = joint.element.need("child")
    name = element.string(None)
    if name == "world":
        raise joint.element.error("the child is world; allowed: frames of links (world only as the parent)")
    return joint_end(joint, name, element)


def joint_end(joint: Frame, name: str, element: Element) -> Frame:
    """The frame of a joint's end. Where a link and something else have one name it is the link."""
    end = joint.scope.model.written.get(("link", name)) or joint.scope.find(name, element)
    if end is joint:
        raise element.error(f"{joint.element} names itself; allowed: another frame")
    return end


def _canonical(level: Level, world: Frame) -> Frame:
    """What a model's frame moves with: its canonical link; the world where the model is static."""
    home, link = level.home, level.first
    if level.canonical is not None:
        name, element, attribute = level.canonical
        link = level.scope.find(name, element, attribute)
        if link.kind != "link":
            raise element.error(f"{name!r} is no link; allowed: links of this model", attribute)
    if home.model is not None and home.model.static:
        return world
    if link is None:
        if home.home is world and not any(True for _ in level.element.children()):
            return world  # an empty model
        raise level.element.error("holds no link; allowed: one link or more, here or in nested models (a static model needs none)")
    return link


def _links(world: Model) -> list[Frame]:
    """All links: those of nested models before those of the model around them, each group in document order."""
    links: list[Frame] = []
    stack = [(world, False)]
    while stack:
        model, done = stack.pop()
        if done:
            links += model.links
        else:
            stack.append((model, True))
            stack.extend((m.model, False) for m in reversed(model.models) if m.model is not None)
    return links
