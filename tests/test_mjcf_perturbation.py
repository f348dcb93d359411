"""MJCF: a changed value of any attribute changes what was read, warns, or is refused.

Every pair of element and attribute that the corpus has is tried: each of its numbers (of long lists some) and each of its words, in the
file's own text, one at a time, in the smallest files that have the pair, until one shows an effect. What may change without effect stands
in UNUSED, with the reason; there nothing at all may come of a change.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from corpus import corpus, needs_corpus
from lxml import etree
from test_perturbation import plain

from xsim.io import ParseError, parse_text

SECTIONS = ("mujoco", "include", "compiler", "option", "size", "visual", "statistic", "default", "extension", "custom", "asset",
            "worldbody", "deformable", "contact", "equality", "tendon", "actuator", "sensor", "keyframe")  # fmt: skip
BODIES = ("worldbody", "body", "frame", "replicate")  # what stands in them stands in a body
NESTED = ("body", "frame", "replicate", "default")
DIRECTIONS = ("quat", "axis", "axisangle", "xyaxes", "zaxis", "refquat", "bindquat")  # not each of their numbers counts everywhere
PLACES = 6  # of a pair, that are tried
NUMBERS = 12  # of a list that are all changed
SWITCHES = {"true": "false", "false": "true", "enable": "disable", "disable": "enable"}

UNUSED = {
    "size@memory": "memory is no physics",
    "size@njmax": "memory is no physics",
    "size@nconmax": "memory is no physics",
    "size@nstack": "memory is no physics",
    "size@nuserdata": "memory of users' programs",
    "compiler@usethread": "says how to compile, not what",
    "option@apirate": "of a removed way to talk to the engine",
    "asset/mesh@smoothnormal": "normals are for drawing; they are not read",
    "frame@name": "a label; frames disappear",
    "contact/exclude@name": "a label that nothing refers to",
    "sensor/user@datatype": "rules how the number of a user's program is cut off; there is none",
    "extension/plugin@plugin": "a declared plugin that nothing uses does nothing",
    "plugin/instance@name": "a declared plugin that nothing uses does nothing",
    "instance/config@key": "a declared plugin that nothing uses does nothing",
    "instance/config@value": "a declared plugin that nothing uses does nothing",
    "composite/joint@solreffix": "ties joints of composites that the release has removed",
    "composite/joint@solimpfix": "ties joints of composites that the release has removed",
}
IN_CORPUS = {
    "compiler@assetdir": "stands beside the folders of meshes and textures, which count",
    "compiler@texturedir": "the model has no texture",
    "compiler@strippath": "the files of the model have no path",
    "body/flexcomp@scale": "generated points are not scaled",
    "skin/bone@vertweight": "weights of a vertex with one bone, which are made to sum to 1",
    "default/general@forcerange": "elements of the class, or a later default of it, have one of their own",
    "default/motor@forcerange": "elements of the class, or a later default of it, have one of their own",
    "default/light@diffuse": "every element of the class has one of its own",
}  # as the corpus has them; tests of the readers show what they do


class Place(NamedTuple):
    path: Path
    element: etree._Element


def _models() -> list[Place]:
    """The roots of the models of the corpus, those with the least to say first."""
    root = corpus()
    assert root is not None
    folder = root / "models" / "mjcf"
    parts = {folder / part for part in json.loads((folder / "parts.json").read_text())["parts"]}
    found = (p for p in folder.rglob("*.xml") if p not in parts and "refused" not in p.parts)
    return sorted((Place(p, _root(p)) for p in found), key=lambda place: (len(base(place) or ""), place.path))


def _root(path: Path) -> etree._Element:
    """A model without what needs a plugin."""
    root = etree.fromstring(path.read_bytes(), etree.XMLParser(remove_comments=True))
    for plugin in root.xpath("//plugin[not(parent::extension)]"):
        plugin.getparent().remove(plugin)
    for geom in root.xpath("//geom[@type='sdf']"):
        geom.getparent().remove(geom)
    return root


def _name(element: etree._Element) -> str:
    """What the element is called in FEATURES.md."""
    parent = element.getparent()
    if parent is None or parent.getparent() is None or element.tag in NESTED:
        return element.tag
    return f"{'body' if parent.tag in BODIES else parent.tag}/{element.tag}"


@cache
def pairs() -> dict[str, dict[str, list[Place]]]:
    """By section: the places of every pair of element and attribute, two of a file."""
    found: dict[str, dict[str, list[Place]]] = {section: {} for section in SECTIONS}
    for path, root in _models():
        seen: dict[str, int] = {}
        for section, elements in (("mujoco", [root]), *((child.tag, child.iter()) for child in root)):
            for element in elements:
                for attribute in element.attrib:
                    pair = f"{_name(element)}@{attribute}"
                    seen[pair] = seen.get(pair, 0) + 1
                    if seen[pair] <= 2:
                        found[section].setdefault(pair, []).append(Place(path, element))
    return found


def outcome(place: Place) -> tuple[str | None, str]:
    """The spec and the warnings, as text that is the same for the same content; None, and the message, where the file is refused."""
    text = etree.tostring(place.element.getroottree(), encoding="unicode")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            spec = parse_text(text, "mjcf", file=str(place.path))
        except ParseError as error:
            return None, str(error)
    return f"{plain(spec)} {sorted(str(w.message) for w in caught)}", ""


_BASES: dict[Path, str | None] = {}


def base(place: Place) -> str | None:
    if place.path not in _BASES:
        _BASES[place.path] = outcome(place)[0]
    return _BASES[place.path]


# ---- changes -----------------------------------------------------------------------------------------------------------------


def _numbers(text: str) -> list[float]:
    try:
        return [float(x) for x in text.split()]
    except ValueError:
        return []


def new_values(old: str) -> dict[int | None, list[str]]:
    """By the number that changes (None: a word): texts to try, one after the other, until one has an effect."""
    numbers, words = _numbers(old), old.split()
    if not numbers:
        return {None: [SWITCHES.get(old.strip(), f"{old.strip()}_changed")]}
    every = range(len(words)) if len(words) <= NUMBERS else sorted({0, 1, len(words) // 2, len(words) - 1})
    return {i: [" ".join([*words[:i], new, *words[i + 1 :]]) for new in _moved(words[i])] for i in every}


def _moved(word: str) -> Iterator[str]:
    if re.fullmatch(r"[-+]?\d+", word):
        yield from (str(int(word) + 1), str(int(word) - 1))
    x, step = float(word), 0.11 * (1 + abs(float(word)))
    yield from (repr(x + step), repr(x - step), repr(0.9 * x + 0.05 * (x == 0)))


def effect(place: Place, attribute: str, texts: list[str]) -> str:
    """What comes of the changes: "changed", else "silent" if any of them is without effect, else "refused"."""
    old, before = place.element.get(attribute), base(place)
    outcomes, texts = set(), list(texts)
    try:
        for text in texts:  # grows
            place.element.set(attribute, text)
            after, message = outcome(place)
            if after is not None and after != before:
                return "changed"
            outcomes.add("silent" if after is not None else "refused")
            known = re.search(r"allowed: (.*?)(?: \(|$)", message)
            if known and not _numbers(old) and len(texts) == 1:  # the words that may stand there
                texts += [word for word in re.split(r"[,\s]+", known[1]) if word not in (old, text)][:6]
    finally:
        place.element.set(attribute, old)
    return "silent" if "silent" in outcomes else "refused"


def _found(pair: str, places: list[Place]) -> dict[int | None, str]:
    """The effect of changing each number or word of an attribute."""
    attribute = pair.split("@")[1]
    found: dict[int | None, str] = {}
    for place in places[:PLACES]:
        if base(place) is None:
            continue
        for i, texts in new_values(place.element.get(attribute)).items():
            if found.get(i, "silent") == "silent":
                found[i] = effect(place, attribute, texts)
        if "silent" not in found.values():
            break
    return found


LONG = ("default", "worldbody")


@needs_corpus
@pytest.mark.parametrize("section", [pytest.param(s, marks=[pytest.mark.slow] * (s in LONG)) for s in SECTIONS])
def test_every_value_is_read(section):
    silent, untrue = [], []
    for pair, places in sorted(pairs()[section].items()):
        if pair in UNUSED or pair in IN_CORPUS:
            place = places[0]
            attribute = pair.split("@")[1]
            untrue += [pair] * any(effect(place, attribute, new) == "changed" for new in new_values(place.element.get(attribute)).values())
            continue
        found = _found(pair, places)
        lost = [str(i) for i, what in found.items() if what == "silent"]
        if lost and not (pair.split("@")[1] in DIRECTIONS and "changed" in found.values()):
            silent.append(f"{pair} ({', '.join(lost)}) in {places[0].path.stem}")
    assert not silent, f"changed without any effect: {silent}"
    assert not untrue, f"changed with an effect, and said to have none: {untrue}"


@needs_corpus
def test_nearly_every_pair_is_tried():
    """Models that need a plugin are read without it; what is left must be readable."""
    readable = sum(any(base(place) is not None for place in places) for found in pairs().values() for places in found.values())
    every = sum(map(len, pairs().values()))
    assert every > 1100 and readable == every
