"""The two graphs of frames: where each frame starts (poses) and which body it moves with (attachment)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from xsim.io.errors import ParseError, allowed
from xsim.io.reader import Element
from xsim.io.sdf.document import Document, read_pose
from xsim.poses import Pose

__all__ = ["Frame", "Model", "Scope", "attach", "connect", "place", "relative"]


@dataclass(eq=False)
class Model:
    """A model, or the world: its members by name and, in document order, by kind. prefix: of its members' scoped names."""

    prefix: str = ""
    static: bool = False
    has_links: bool = False
    frame: Frame = field(init=False)
    members: dict[str, Frame] = field(default_factory=dict)
    written: dict[tuple[str, str], Frame] = field(default_factory=dict)  # by kind and the name in the file, renamed or not
    links: list[Frame] = field(default_factory=list)
    joints: list[Frame] = field(default_factory=list)
    models: list[Frame] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)


@dataclass(eq=False)
class Scope:
    """Where names are looked up: a model and downward. frame: what ``__model__`` means there, None in a world."""

    model: Model
    frame: Frame | None

    def find(self, name: str, element: Element, attribute: str | None = None) -> Frame:
        """The frame of a name such as ``link`` or ``model::joint``. Raises ParseError."""
        found: Frame | None
        if name == "__model__" and self.frame is not None:
            return self.frame
        if name == "world" and self.frame is None:
            return self.model.frame
        found = self.model.members.get(name)
        if found is None and "::" in name:
            model: Model | None = self.model
            for part in name.split("::"):
                if model is None:
                    found = None
                    break
                inside = model is not self.model
                found = model.frame if part == "__model__" and inside else model.members.get(part)
                model = None if found is None or part == "__model__" else found.model
        if found is None:
            where = "this world" if self.frame is None else "this model"
            names = [*self.model.members][:20]
            tail = ", ..." if len(self.model.members) > len(names) else ""
            raise element.error(f"there is no frame {name!r} in {where}; {allowed(name, names)}{tail}", attribute)
        return found


@dataclass(eq=False)
class Frame:
    """A frame: of the world, a model, a link, a joint, or an explicit one.

    name: scoped, as the spec gives it. scope: where names inside its element are looked up. home: the frame of the model (or world)
    it sits in. placed: for a model, the element that holds its pose (an include replaces the model's own; None: no element), its version
    and scope.
    child: of a joint. base, pose: what it is placed in, and how. target: what it moves with.
    """

    kind: str
    name: str
    element: Element
    document: Document
    scope: Scope
    home: Frame | None
    owner: Model
    model: Model | None = None
    placed: tuple[Element | None, int, Scope] | None = None
    child: Frame | None = None
    base: Frame | None = None
    pose: Pose = Pose()
    target: Frame | None = None
    world: Pose | None = None
    body: Frame | None = None


def connect(frame: Frame) -> None:
    """Read where a frame starts and what it moves with. A joint's child must be known; what a model moves with comes later."""
    element, version, scope = frame.placed or (frame.element, frame.document.version, frame.scope)
    frame.base = default = frame.home
    if frame.kind == "frame":
        attached = (frame.element.raw("attached_to") or "").strip()
        frame.target = default = scope.find(attached, frame.element, "attached_to") if attached else frame.home
    elif frame.kind == "joint":
        frame.target = default = frame.child
    elif frame.kind == "link":
        frame.body = frame
    if element is not None:
        relative_to, frame.pose = read_pose(element, version)
        frame.base = scope.find(relative_to, element.need("pose"), "relative_to") if relative_to else default


def place_model(frame: Frame, inner: Frame) -> None:
    """Move a model so that its pose becomes that of a frame inside it (its placement frame)."""
    local, node, seen = Pose(), inner, set()
    while node is not frame:
        if node in seen:
            raise inner.element.error(f"its pose depends on itself, through {node.element}; poses must not form a cycle")
        seen.add(node)
        if node.base is None:
            raise frame.element.error(f"the placement frame {inner.element} is not placed in this model")
        local, node = node.pose @ local, node.base
    frame.pose = frame.pose @ local.inverse()


def _follow(frames: Iterable[Frame], step: Callable, known: Callable, settle: Callable, what: str) -> None:
    """Settle every frame after the one that ``step`` leads to; each is visited once, a cycle is an error."""
    for start in frames:
        path: dict[Frame, None] = {}
        node = start
        while not known(node):
            if node in path:
                names = [*(str(f.element) for f in path), str(node.element)]
                names = names[names.index(str(node.element)) :]
                names = names if len(names) < 12 else [*names[:5], "...", names[-1]]
                raise node.element.error(f"{what} form a cycle: {' -> '.join(names)}")
            path[node] = None
            node = step(node)
        for node in reversed(path):
            settle(node)


def place(frames: Iterable[Frame]) -> None:
    """World poses of all frames, every joint at zero. Raises ParseError for a cycle."""

    def settle(frame: Frame) -> None:
        assert frame.base is not None and frame.base.world is not None
        frame.world = frame.base.world @ frame.pose
        if not (np.isfinite(frame.world.pos).all() and np.isfinite(frame.world.quat).all()):
            raise frame.element.error("the pose is too large for a number")

    _follow(frames, lambda f: f.base, lambda f: f.world is not None, settle, "poses")


def attach(frames: Iterable[Frame]) -> None:
    """The link or world that each frame moves with. Raises ParseError for a cycle."""

    def settle(frame: Frame) -> None:
        assert frame.target is not None
        frame.body = frame.target.body

    _follow(frames, lambda f: f.target, lambda f: f.body is not None, settle, "attached_to")


def relative(inner: Frame, outer: Frame) -> Pose:
    """Pose of one frame in another with every joint at zero. Exact where one is placed in the other."""
    if inner is outer:
        return Pose()
    if inner.base is outer:
        return inner.pose
    if inner.world is None or outer.world is None:
        raise ParseError(inner.element.file, inner.element.line, f"{inner.element}: has no place")
    return inner.world if outer.kind == "world" else outer.world.inverse() @ inner.world
