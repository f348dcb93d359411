"""<composite>: grids of particles, nets of particles and tendons, and cables, as the bodies, joints and tendons they stand for.

Generated elements take no default class: an attribute that is not given has MuJoCo's default, or that of the composite's type.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from xsim.io.errors import allowed
from xsim.io.mjcf.cable import read_points, tangent_frames
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.macros import NO_DEFAULTS, Maker, integers, plugin_of_bodies
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.skins import grid_skin
from xsim.io.reader import Element

__all__ = ["composite"]

REMOVED = ("rope", "loop", "cloth", "box", "cylinder", "ellipsoid")
HIDDEN = "3"  # a group that is not visible by default
ELEMENTS_PER_BODY = 20  # of a grid, at most: joints, geom, site, tendons, equalities, bone

_LIMITED = ("limited", "range", "margin", "solreflimit", "solimplimit", "frictionloss", "solreffriction", "solimpfriction")
_JOINT = ("group", "stiffness", "damping", "armature", *_LIMITED)
_TENDON = ("group", "stiffness", "damping", *_LIMITED, "material", "rgba", "width")
_EQUALITY = {"solreffix": "solref", "solimpfix": "solimp"}


class _Expansion(NamedTuple):
    """bodies: in place of the composite; the others: for the sections of their names."""

    bodies: list[Node]
    tendon: list[Node]
    equality: list[Node]
    contact: list[Node]
    deformable: list[Node]
    extension: list[Node] = []  # noqa: RUF012  (never changed)


def composite(document: Document, e: Element) -> tuple[list[Node], dict[str, list[Node]]]:
    """What a <composite> stands for: a `Macro`. Raises ParseError."""
    if not document.release.has_composite:
        raise e.error("composite is not in MuJoCo 4.0; allowed: flexcomp, replicate, or the rules of 3.2")
    kind = e.string("type")
    if kind in REMOVED:
        raise e.error(f"composite type {kind!r} was removed; {allowed(kind, _TYPES)}, or flexcomp", "type")
    e.choice("type", _TYPES)
    for plugin in e.all("plugin") if kind != "cable" else ():
        name = plugin.raw("plugin") or plugin.raw("instance") or ""
        raise plugin.error(f"unknown plugin {name!r}: it would act on the composite; allowed: plugins of cables only")
    for name in ("flatinertia", "solrefsmooth", "solimpsmooth"):  # of removed types
        e.floats(name)
    expansion = _TYPES[kind](document, e, e.raw("prefix") or "", Maker(e))
    return expansion.bodies, {section: getattr(expansion, section) for section in _Expansion._fields[1:]}


# ---- elements inside a composite ----


def _settings(e: Element | None, names) -> dict[str, str]:
    """The attributes of an element, of those listed, as written."""
    return {} if e is None else {name: e.string(name) for name in names if e.has(name)}


def _joints(e: Element, kind: str) -> list[Element]:
    """The <joint> elements of a kind. Raises ParseError for a second one, unless the kind is particle."""
    joints = [j for j in e.all("joint") if j.choice("kind", ("main", "twist", "stretch", "particle")) == kind]
    if len(joints) > 1 and e.raw("type") != "particle":
        raise joints[1].error('second joint of this kind; allowed: one, or more in a composite of type "particle"', "kind")
    return joints


def _main_joint(e: Element) -> dict[str, str]:
    joints = _joints(e, "main")
    return {**NO_DEFAULTS, "group": HIDDEN, **_settings(joints[0] if joints else None, _JOINT)}


def _geom(e: Element) -> dict[str, str]:
    geom = e.child("geom")
    return dict(NO_DEFAULTS) if geom is None else {**NO_DEFAULTS, **{name: geom.string(name) for name in geom.attributes}}


def _site(e: Element) -> dict[str, str]:
    return {**NO_DEFAULTS, "group": HIDDEN, **_settings(e.child("site"), ("group", "size", "material", "rgba"))}


def _tendons(e: Element, kind: str, group: str | None) -> tuple[dict, dict] | None:
    """Attributes of the tendons of a kind and of their equalities; None where the file has no <tendon> of this kind."""
    elements = [t for t in e.all("tendon") if t.choice("kind", ("main", "shear")) == kind]
    if not elements:
        return None
    tendon, equality = {**NO_DEFAULTS, "group": group}, dict(NO_DEFAULTS)
    for t in elements:
        tendon |= _settings(t, _TENDON)
        equality |= {_EQUALITY[name]: value for name, value in _settings(t, _EQUALITY).items()}
    return tendon, equality


def _counts(document: Document, e: Element) -> np.ndarray:
    """Numbers of bodies along x, y, z."""
    counts = np.ones(3, int)
    given = integers(e, "count", (1, 2, 3), (1,))
    counts[: len(given)] = given
    if (counts < 1).any() or (np.diff((counts > 1).astype(int)) > 0).any():
        raise e.error(f"found {e.raw('count')!r}; allowed: positive integers, those that are 1 last", "count")
    _spend(document, e, int(counts.astype(object).prod()))
    return counts


def _spend(document: Document, e: Element, bodies: int) -> None:
    """Count the elements of bodies against the budget, before anything is made. Raises ParseError."""
    document.budget.spend(e, nodes=ELEMENTS_PER_BODY * bodies, characters=ELEMENTS_PER_BODY * len(e.raw("prefix") or "") * bodies)


def _refuse_vertex(e: Element) -> None:
    if e.has("vertex"):
        raise e.error('allowed: only in a composite of type "cable"', "vertex")


def _spacing(e: Element) -> float:
    """Distance of neighbours, m: at least the size of their geoms."""
    spacing = e.number("spacing", positive=True)
    geom = e.child("geom")
    sizes = None if geom is None else geom.floats("size", (1, 2, 3))
    if sizes is not None and spacing < sizes.max():
        raise e.error(f"found {spacing:g}; allowed: at least the size of the geoms, {sizes.max():g}", "spacing")
    return spacing


# ---- types ----


def _slides(make: Maker, settings: dict[str, str], names) -> list[Node]:
    axes = ("1 0 0", "0 1 0", "0 0 1")
    return [make("joint", name=n, type="slide", axis=axis, **settings) for n, axis in zip(names, axes, strict=True)]


def _particle(document: Document, e: Element, prefix: str, make: Maker) -> _Expansion:
    """A grid of bodies, each with three slides or the joints of kind particle."""
    counts, spacing, offset = _counts(document, e), _spacing(e), e.floats("offset", 3, np.zeros(3))
    _refuse_vertex(e)
    joint_settings = [{**NO_DEFAULTS, "group": HIDDEN, **_settings(j, (*_JOINT, "axis", "type"))} for j in _joints(e, "particle")]
    geom, site, main = {"condim": "1", "priority": "1", **_geom(e)}, _site(e), _main_joint(e)
    bodies = []
    for number, cell in enumerate(product(*map(range, counts))):
        joints = [make("joint", **settings) for settings in joint_settings] or _slides(make, main, (None, None, None))
        inside = [*joints, make("geom", **geom), make("site", name=f"{prefix}S{number}", **site)]
        pos = offset + spacing * (np.array(cell) - counts / 2)
        bodies.append(make("body", inside, name=f"{prefix}B{'_'.join(map(str, cell))}", pos=pos))
    return _Expansion(bodies, [], [], [], [])


def _grid(document: Document, e: Element, prefix: str, make: Maker) -> _Expansion:
    """A string or net of bodies on three slides, tied to their neighbours by tendons of constant length; pinned bodies have no joints."""
    counts, spacing, offset = _counts(document, e), _spacing(e), e.floats("offset", 3, np.zeros(3))
    _refuse_vertex(e)
    if counts[2] > 1:
        raise e.error(f"found {e.raw('count')!r}; allowed: one or two dimensions", "count")
    flat, skin = counts[1] > 1, e.child("skin")
    if skin is not None and not flat:
        raise skin.error("allowed: only in a grid of two dimensions")
    group = HIDDEN if skin is not None else None
    geom, site, main = {"group": group, **_geom(e)}, _site(e), _main_joint(e)
    _joints(e, "particle")
    if geom.get("type", "sphere") not in ("sphere", "capsule", "ellipsoid"):
        raise e.need("geom").error(f"found {geom['type']!r}; allowed in a grid: sphere, capsule, ellipsoid", "type")
    geom["type"] = "sphere"  # whatever the file says
    pinned = _pinned(document, e, counts)
    bodies = []
    for i, j in product(range(counts[0]), range(counts[1])):
        at = f"{i}_{j}"
        joints = [] if (i, j) in pinned else _slides(make, main, [f"{prefix}J{axis}_{at}" for axis in range(3)])
        inside = [*joints, make("geom", name=f"{prefix}G{at}", **geom), make("site", name=f"{prefix}S{at}", **site)]
        pos = offset + spacing * (np.array([i, j, 0]) - np.array([counts[0], counts[1], 0]) / 2)
        bodies.append(make("body", inside, name=f"{prefix}B{at}", pos=pos))
    tendons, equalities = _net(e, prefix, make, counts, group)
    skins = [] if skin is None else [grid_skin(skin, make, prefix, counts[:2], spacing)]
    return _Expansion(bodies, tendons, equalities, [], skins)


def _pinned(document: Document, e: Element, counts: np.ndarray) -> set[tuple[int, int]]:
    pinned = set()
    for pin in e.all("pin"):
        given = integers(pin, "coord", (1, 2))
        if given is None:
            raise pin.error("attribute 'coord' is missing")
        at = int(given[0]), int(given[1]) if len(given) > 1 else 0
        if not (0 <= at[0] < counts[0] and 0 <= at[1] < counts[1]):
            document.notes.suspicious(pin.line, f"{pin}: coord {at[0]} {at[1]} is outside the grid and pins nothing", pin.file)
        pinned.add(at)
    return pinned


def _net(e: Element, prefix: str, make: Maker, counts: np.ndarray, group: str | None) -> tuple[list[Node], list[Node]]:
    """Tendons along x, along y and, where asked for, along one diagonal, and what keeps their lengths."""
    stiff = {**NO_DEFAULTS, "solref": "0.01 1", "solimp": "0.99 0.99"}
    tendon, equality = _tendons(e, "main", group) or ({**NO_DEFAULTS, "group": group}, {})
    kinds = [("T0_", (1, 0), tendon, stiff | equality), ("T1_", (0, 1), tendon, stiff | equality)]
    shear = _tendons(e, "shear", group)
    if shear is not None:
        if counts[1] == 1:
            raise e.all("tendon")[-1].error("shear tendons need two dimensions; allowed: main", "kind")
        kinds.append(("TS", (1, 1), *shear))
    tendons, equalities = [], []
    for letters, (di, dj), tendon, equality in kinds:
        for i, j in product(range(counts[0] - di), range(counts[1] - dj)):
            name = f"{prefix}{letters}{i}_{j}"
            ends = [make("site", site=f"{prefix}S{i}_{j}"), make("site", site=f"{prefix}S{i + di}_{j + dj}")]
            tendons.append(make("spatial", ends, name=name, **tendon))
            equalities.append(make("tendon", tendon1=name, **equality))
    return tendons, equalities


def _cable(document: Document, e: Element, prefix: str, make: Maker) -> _Expansion:
    """A chain of bodies with ball joints, each carrying the piece from one point to the next."""
    if e.has("spacing"):
        raise e.error("allowed: the spacing of a cable follows from its points, without this attribute", "spacing")
    initial = e.choice("initial", ("free", "ball", "none"), "ball")
    points = read_points(e)
    _spend(document, e, len(points))
    lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
    if not (lengths > 0).all():
        raise e.error("two neighbouring points are the same; allowed: different ones")
    geom, site, ball = _geom(e), _site(e), _main_joint(e)
    if geom.get("type") not in ("capsule", "cylinder", "box"):
        raise (e.child("geom") or e).error(f"found geom type {geom.get('type', 'sphere')!r}; allowed in a cable: capsule, cylinder, box")
    # A free joint of a cable has neither limits nor losses, whatever the others have.
    free = {name: value for name, value in ball.items() if name not in ("limited", "range", "damping", "armature", "frictionloss")}
    first = {"free": [("free", free)], "ball": [("ball", ball)], "none": []}[initial]
    last = len(lengths) - 1
    names = ["first", *map(str, range(1, last)), *(["last"] if last else [])]
    frames = tangent_frames(points)
    plugin, extension = plugin_of_bodies(document, e, f"composite{prefix}", make)
    outer: Node | None = None
    bodies, inner = [], outer
    for k, (name, length) in enumerate(zip(names, lengths, strict=True)):
        joints = first if k == 0 else [("ball", ball)]
        inside = [make("joint", name=f"{prefix}J_{name}", type=kind, **settings) for kind, settings in joints]
        inside += [] if plugin is None else [make("plugin", **plugin)]
        inside.append(make("geom", name=f"{prefix}G{k}", **_segment(e, geom, length)))
        if k == 0:
            inside.append(make("site", name=f"{prefix}S_first", **site))
        elif k == last:
            inside.append(make("site", name=f"{prefix}S_last", pos=(length, 0, 0), **site))
        turn = frames[0] if k == 0 else frames[k - 1].T @ frames[k]
        pos = points[0] if k == 0 else (lengths[k - 1], 0, 0)
        body = make("body", inside, name=f"{prefix}B_{name}", pos=pos, xyaxes=(*turn[:, 0], *turn[:, 1]))
        if inner is None:
            bodies.append(body)
        else:
            inner.append(body)
        inner = body
    excludes = [make("exclude", body1=f"{prefix}B_{a}", body2=f"{prefix}B_{b}") for a, b in pairwise(names)]
    return _Expansion(bodies, [], [], excludes, [], extension)


def _segment(e: Element, geom: dict[str, str], length: float) -> dict:
    """The geom of a cable's piece of a length, along x from its body's origin."""
    if geom["type"] != "box":
        return {**geom, "fromto": (0, 0, 0, length, 0, 0)}
    size = e.need("geom").floats("size", 3)
    if size is None:
        raise e.need("geom").error("attribute 'size' is missing")
    return {**geom, "pos": (length / 2, 0, 0), "size": (length / 2, size[1], size[2])}


_TYPES = {"particle": _particle, "grid": _grid, "cable": _cable}
