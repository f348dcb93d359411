"""No attribute is dropped: a changed value of any attribute of any file changes what was read, warns, or is refused; a changed
physical value also changes the motion.

Each number is changed in the file's own text. What was read is compared field by field. For the motion, all changed copies of one
file become the environments of one model (leaves stacked along a batch axis), so that one call steps all of them from one state.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from dataclasses import fields, is_dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corpus import models
from lxml import etree
from traced import by_numpy

import xsim
import xsim.models
from xsim.io import ParseError, SuspiciousInputWarning, parse_text
from xsim.io import x_xy as xxy
from xsim.joints.types import JOINT_TYPES

WORDS = {"name", "model", "joint", "type", "color", "edge_color"}
PER_NUMBER = {"damping", "armature", "spring_stiff"}  # every single number moves something; of other vectors all together
PHYSICAL = {"pos", "quat", "euler", "spring_zero", "mass", "dim", "size", "gravity", "dt"} | PER_NUMBER
LARGEST = 10  # velocities of a model that is stepped; see stepped_files


class Change(NamedTuple):
    """One changed attribute. ``component``: which number of it, None for a word or all numbers. ``default``: in <defaults>."""

    tag: str
    attribute: str
    component: int | None
    text: str
    default: bool
    line: int

    def __str__(self) -> str:
        part = "" if self.component is None else f"[{self.component}]"
        return f"line {self.line}: <{self.tag}> {self.attribute}{part}"


BUNDLED = [p for p in map(xsim.models.path, xsim.models.names()) if p.parent.name == "x_xy"]
FILES = [*BUNDLED, *models("x_xy")]


def _id(path) -> str:
    return f"x_xy-{path.stem}"


def spec_of(text: str):
    """(spec, warnings)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spec = parse_text(text, "x_xy")
    return spec, sorted(str(w.message) for w in caught if issubclass(w.category, SuspiciousInputWarning))


def _turned(quat: np.ndarray) -> np.ndarray:
    """A file quaternion turned by half a radian about a skew axis."""
    turn = np.array([np.cos(0.25), *(np.sin(0.25) * np.array([2, 3, 6]) / 7)])
    return xxy.quat_mul(quat / np.linalg.norm(quat), turn)


def _new_word(element, attribute: str) -> str:
    old = element.get(attribute)
    if attribute == "joint":
        return "ry" if old != "ry" else "pz"
    if attribute == "type":
        return {"cylinder": "capsule", "capsule": "cylinder"}.get(old, "xyz" if old != "xyz" else "sphere")
    if attribute in ("color", "edge_color"):
        return "lime" if old != "lime" else "gold"
    return old + "_changed"


def _new_numbers(element, attribute: str, joint: str | None):
    """Lists of changed numbers with the component that changed: every number alone, and all together."""
    old = np.array([float(x) for x in element.get(attribute).split()])
    if attribute == "quat":
        yield None, _turned(old)
        return
    if attribute == "spring_zero" and joint in ("free", "cor", "spherical"):
        yield None, np.array([*_turned(old[:4]), *(old[4:] + 0.3)])
        start = 4
    else:
        yield None, _moved(old, attribute, np.arange(len(old)) + 1.0)
        start = 0
    if len(old) > 1:
        for i in range(start, len(old)):
            new = old.copy()
            new[i] = _moved(new[i], attribute, 1.0)
            yield i, new


def _moved(x, attribute: str, size):
    """Lengths and steps grow, everything else is shifted."""
    if attribute in ("dim", "size", "dt"):
        return x * (1 + 0.2 * size)
    return x + size * {"euler": 7.0, "pos_min": -0.11}.get(attribute, 0.11)


def changes(text: str) -> list[Change]:
    """One changed copy of the file per word, per number and per vector."""
    root = etree.fromstring(text.encode())
    found = []
    default_body = root.find("defaults/body")
    for element in [e for e in root.iter() if isinstance(e.tag, str)]:
        default = element.getparent() is not None and element.getparent().tag == "defaults"
        joint = None
        if element.tag == "body":
            joint = element.get("joint") or (None if default_body is None else default_body.get("joint"))
        for attribute, old in list(element.attrib.items()):
            if attribute in WORDS:
                new = [(None, _new_word(element, attribute))]
            elif attribute == "pos_marker":
                new = [(None, str(int(old) + 1))]
            else:
                new = [(i, " ".join(repr(float(x)) for x in x)) for i, x in _new_numbers(element, attribute, joint)]
            for component, value in new:
                element.set(attribute, value)
                changed = etree.tostring(root, encoding="unicode")
                found.append(Change(element.tag, attribute, component, changed, default, element.sourceline))
            element.set(attribute, old)
    return found


def plain(x):
    """Nested tuples of a spec, without the places it was read from; equal for equal specs."""
    kind = type(x)
    if kind in SCALARS:
        return x
    if names := _fields(kind):
        return tuple((name, plain(getattr(x, name))) for name in names)
    if isinstance(x, np.ndarray):
        return x.tolist()
    if isinstance(x, dict):
        return tuple((k, plain(v)) for k, v in sorted(x.items()))
    return tuple(map(plain, x)) if isinstance(x, (tuple, list)) else x


SCALARS = {str, int, float, bool, type(None)}


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    """Names of the fields that say what was read, of a dataclass."""
    return tuple(f.name for f in fields(kind) if f.name != "source") if is_dataclass(kind) else ()


# ---- what was read -------------------------------------------------------------------------------------------------------------


def not_read(change: Change, text: str) -> str | None:
    """Why a changed value may leave the ModelSpec as it is; None where it may not."""
    root = etree.fromstring(text.encode())
    if change.default:
        users = [e for e in root.iter(change.tag) if e.getparent().tag != "defaults"]
        if change.tag == "geom" and change.attribute == "mass":
            users = [e for e in users if e.get("type") != "xyz"]
        if all(change.attribute in e.attrib for e in users):
            return "a default that every element overrides"
    return None


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_every_attribute_is_read(path):
    text = path.read_text()
    base, doubts = spec_of(text)
    base = plain(base)
    silent, excused = [], 0
    all_changes = changes(text)
    assert all_changes
    for change in all_changes:
        try:
            spec, new_doubts = spec_of(change.text)
        except ParseError:
            continue
        if plain(spec) == base and new_doubts == doubts:
            if not_read(change, text) is None:
                silent.append(str(change))
            else:
                excused += 1
    assert not silent, f"{path.name}: changed without any effect: {silent}"
    assert excused <= 0.2 * len(all_changes), f"{path.name}: {excused} of {len(all_changes)} changes are excused"


# ---- what it moves -------------------------------------------------------------------------------------------------------------


def _combinations(path) -> set:
    """What a file uses: every attribute with the joint or shape it stands on."""
    text = path.read_text()
    root = etree.fromstring(text.encode())
    found = {("joint", b.joint.type, tuple(map(tuple, b.joint.params.get("axes", ())))) for b in spec_of(text)[0].bodies}
    for element in root.iter("body", "geom", "options"):
        kind = element.get("joint") or element.get("type")
        found |= {(element.tag, element.getparent().tag == "defaults", kind, a) for a in element.attrib if a in PHYSICAL}
    return found


def stepped_files() -> list:
    """The files whose motion is tried.

    A step is compiled for each of them, so it is not every file: the bundled ones and, smallest first, each file of the corpus that
    has an attribute on a joint or shape that none before had; no model of more than LARGEST velocities, whose compile time
    buys only more of the same joints.
    """

    def width(path) -> int:
        return sum(JOINT_TYPES[b.joint.type].nv for b in spec_of(path.read_text())[0].bodies)

    chosen, seen = [], set()
    for path in sorted(FILES, key=lambda p: (p not in BUNDLED, width(p), p.stem)):
        new = _combinations(path) - seen
        if 0 < width(path) <= LARGEST and new:
            chosen.append(path)
            seen |= new
    return chosen


def no_effect(model, path: str, row: int) -> str | None:
    """Why row ``row`` of a leaf may change without any motion; None where it may not."""
    top = model.topology
    if path.startswith("geom."):
        info = next(g for g in top.geoms if g.row == row)
        if info.body < 0:
            return "scenery"
        link, kinds = top.bodies[info.body].link, set()
        while link >= 0:
            kinds.add(top.links[link].kind)
            link = top.links[link].parent
        if not kinds:
            return "fixed to the world"
        if path == "geom.mass":
            return None
        if not model.geom.mass[row] > 0:
            return "massless"
        if kinds <= {"slide"}:
            return "moves without turning"
        size = np.asarray(model.geom.size[row])
        if path == "geom.quat" and (info.shape == "sphere" or info.shape == "box" and np.ptp(size) == 0):
            return "the same inertia about all axes"
    if path == "option.gravity":
        heavy = [g for g in top.geoms if g.row is not None and g.body >= 0 and model.geom.mass[g.row] > 0 and top.bodies[g.body].link >= 0]
        if all(_hangs_balanced(model, g) for g in heavy):
            return "nothing heavy moves, or only about its own centre"
    if path == "joint.spring_ref":
        body = next(b for b in top.bodies if b.q[0] <= row < sum(b.q))
        if not np.all(np.asarray(model.dof.stiffness[body.v[0] : sum(body.v)]) > 0):
            return "no spring"
    return None


def _hangs_balanced(model, geom) -> bool:
    """Whether a geom sits at the origin of a body that only turns, on a joint fixed to the world."""
    links, link = model.topology.links, model.topology.bodies[geom.body].link
    if not all(x == 0 for x in geom.pos):
        return False
    while link >= 0:
        if links[link].body != geom.body or links[link].kind not in ("hinge", "ball"):
            return False
        link = links[link].parent
    return True


def _moves(model, q, v, tau):
    # tau: without a force that is not a weight, the motion would be the same for all masses in proportion
    state = xsim.step(model, xsim.init(model, q, v), tau=tau)
    return state.q, state.v, xsim.kinematics(model, q)


@pytest.mark.parametrize("path", stepped_files(), ids=_id)
def test_every_physical_value_moves_something(path, x64):
    text = path.read_text()
    base = xsim.build(spec_of(text)[0])
    variants, names = [base], ["unchanged"]
    expected: list[str | None] = [None]
    for change in changes(text):
        if change.attribute not in PHYSICAL or change.tag == "omc":
            continue
        if change.component is not None and change.attribute not in PER_NUMBER:
            continue
        try:
            model = xsim.build(spec_of(change.text)[0])
        except ParseError:
            continue
        moved = [(leaf, row) for leaf in base.paths() for row in np.flatnonzero(_rows(base, leaf, model.get(leaf)))]
        reasons = [no_effect(model, leaf, row) for leaf, row in moved]
        drawn = change.tag == "geom" and any(g.row is None for g in base.topology.geoms)
        if not moved and (drawn or not_read(change, text)):
            continue  # an axes marker, or a default nobody uses
        assert moved, f"{path.name}: {change} reaches no number of the model"
        variants.append(model)
        names.append(str(change))
        expected.append(None if None in reasons else reasons[0])
    stacked = base.replace({leaf: jnp.stack([m.get(leaf) for m in variants]) for leaf in base.paths()})
    rng = np.random.default_rng(zlib.crc32(path.stem.encode()))
    q = np.asarray(base.topology.neutral) + rng.uniform(0.2, 0.6, base.nq) * rng.choice([-1, 1], base.nq)
    v = rng.uniform(0.3, 1.0, base.nv) * rng.choice([-1, 1], base.nv)
    found = by_numpy(_moves)(stacked, q, v, rng.uniform(0.5, 1.0, base.nv))
    still = np.ones(len(variants), bool)
    for x in map(np.asarray, jax.tree.leaves(found)):
        assert np.isfinite(x).all()
        still &= (np.abs(x - x[:1]) <= 1e-11 * (1 + np.abs(x[:1]))).reshape(len(x), -1).all(1)
    silent = [n for n, s, reason in zip(names[1:], still[1:], expected[1:], strict=True) if s and reason is None]
    assert not silent, f"{path.name}: changed without any motion: {silent}"


def _rows(base, leaf: str, new) -> np.ndarray:
    """Which rows of a leaf differ."""
    old, new = np.asarray(base.get(leaf)), np.asarray(new)
    return np.atleast_1d(old != new) if old.ndim < 2 else (old != new).any(1)
