"""SDFormat, URDF and SKEL: a changed value of any attribute or text of any file changes what was read, warns, or is refused.

Each number, switch and word is changed in the file's own text, one at a time, and what was read is compared field by field. What may
change without effect stands in UNUSED, with the reason; there nothing at all may come of a change.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from corpus import models
from lxml import etree
from test_perturbation import plain

import xsim.models
from xsim.io import ParseError, parse_text

FORMATS = ("sdf", "urdf", "skel")
BUNDLED = [p for p in map(xsim.models.path, xsim.models.names()) if p.parent.name in FORMATS]
FILES = [*BUNDLED, *(p for format in FORMATS for p in models(format))]

SWITCHES = {"true": "false", "false": "true", "True": "False", "False": "True", "1": "0", "0": "1"}
SWITCH_NAMES = {
    "static", "kinematic", "self_collide", "enable_wind", "use_parent_model_frame", "must_be_loop_joint", "degrees", "auto", "merge",
    "default", "mobile", "immobile", "collidable", "collide_without_contact", "split_impulse", "use_patch_radius",
}  # fmt: skip
DIRECTIONS = {"xyz", "normal"}  # their length does not count
COLOURS = {"rgba", "color", "diffuse"}
BOUNDS = {"effort", "velocity"}  # negative ones are none
INTEGERS = {"local_index"}
WORDS = [  # the same place may hold these; other words are changed to something that is no name
    {"revolute": "prismatic", "prismatic": "revolute", "continuous": "prismatic", "universal": "ball", "ball": "fixed", "weld": "revolute",
     "translational": "euler", "euler": "translational", "free": "weld", "planar": "weld", "floating": "fixed", "fixed": "floating"},
    {"force": "velocity", "velocity": "force", "passive": "servo", "locked": "servo", "servo": "acceleration", "acceleration": "force"},
    {"xy": "yz", "yz": "zx", "zx": "xy"}, {"xyz": "zyx", "zyx": "xyz"}, {"axis": "axis2", "axis2": "axis"},
]  # fmt: skip

# (format, XPath of the elements or attributes, whether a change is without effect always or with other numbers only, reason): the texts
# of the elements, or the attributes themselves. SOMETIMES also where the effect is one of rounding.
NEVER, SOMETIMES = True, False
ROOT = "ancestor::skeleton/joint[parent='world']"
UNUSED = [
    ("sdf", "//fluid_added_mass/*", NEVER, "warned about: there is no water"),
    ("sdf", "//joint[@type='fixed']/pose", SOMETIMES, "where a joint without motion sits is no physics"),
    ("sdf", "//joint[screw_thread_pitch]/thread_pitch", NEVER, "the newer spelling counts"),
    ("sdf", "//model[@name='joint_axis']/joint/axis/use_parent_model_frame", SOMETIMES, "the frames have one orientation in this file"),
    ("urdf", "//link/visual/material[*]/@name", NEVER, "a material of its own; the name is a label"),
    ("urdf", "//collision/material/@name | //collision/material//@*", NEVER, "collision shapes have no colour"),
    ("urdf", "//transmission//* | //transmission//@* | //gazebo//* | //gazebo//@*", NEVER, "noted: not of URDF itself"),
    ("urdf", "//joint[@type='continuous']/limit/@lower | //joint[@type='continuous']/limit/@upper", NEVER, "has no bounds"),
    ("urdf", "//joint[@type='fixed']/*[self::limit or self::axis or self::dynamics]/@*", NEVER, "has no motion"),
    ("urdf", "//safety_controller/@*", NEVER, "noted: a controller, not the mechanism"),
    ("urdf", "//dynamics/@D | //dynamics/@K | //dynamics/@mu_coulomb | //dynamics/@mu_viscous", NEVER, "warned about: unknown attributes"),
    ("urdf", "//inertial[mass/@value='0.0' and inertia/@ixx='0']/origin/@*", NEVER, "nothing is there"),
    ("urdf", "//inertial[inertia/@ixx=inertia/@iyy]/origin/@rpy", SOMETIMES, "turned about an axis of symmetry"),
    ("urdf", "//joint/@dont_collapse", NEVER, "for converters that lump fixed joints; all are kept"),
    ("skel", "/skel/@version", NEVER, "a label"),
    ("skel", "//dof/@name", NEVER, "a label: coordinates have the names of their joints"),
    ("skel", "//physics/collision_detector", NEVER, "how contacts are found is not physics"),
    ("skel", "//skeleton[mobile='false']/joint[parent='world']/@type", NEVER, "held in place anyhow"),
    ("skel", f"//skeleton/mobile[not({ROOT}[@type!='weld'])]", NEVER, "held in place anyhow"),
    ("skel", "//joint[@type='weld']/transformation", SOMETIMES, "where a joint without motion sits is no physics"),
    ("skel", "//joint[@type='free']/transformation", SOMETIMES, "the coordinates of free joints are those of the body's own frame"),
    ("skel", "//joint[@type='ball' or @type='euler' or @type='free']//axis/xyz", NEVER, "warned about, or the axis order says it (euler)"),
    ("skel", "//joint[@type='ball' or @type='free']//axis//damping", NEVER, "warned about: describes no coordinate"),
    ("skel", "//dof/acceleration/@*", NEVER, "warned about: not enforced"),
    ("skel", "//plane[@type='arbitrary']/translation_axis2/xyz", SOMETIMES, "only its part across the first axis counts"),
]


class Change(NamedTuple):
    """New text of an element (attribute None) or of its attribute."""

    element: etree._Element
    attribute: str | None
    value: str
    component: int | None = None

    @property
    def place(self) -> tuple[etree._Element, str | None]:
        return self.element, self.attribute

    def __str__(self) -> str:
        where = "/".join(e.tag for e in (*reversed([*self.element.iterancestors()]), self.element))
        part = "" if self.component is None else f"[{self.component}]"
        return f"line {self.element.sourceline}: {where}{'@' + self.attribute if self.attribute else ''}{part} = {self.value!r}"


def outcome(text: str, path: Path) -> str | None:
    """The spec and the warnings, as text that is the same for the same content; None where the file is refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            spec = parse_text(text, path.parent.name, file=str(path))
        except ParseError:
            return None
    return f"{plain(spec)} {sorted(str(w.message) for w in caught)}"


# ---- changes -----------------------------------------------------------------------------------------------------------------


def _numbers(text: str) -> list[float] | None:
    try:
        return [float(x) for x in text.split()]
    except ValueError:
        return None


def _moved(x: float, name: str) -> float:
    if name in COLOURS:
        return 0.5 * x + 0.11
    if abs(x) > 1e15:  # no bound
        return 7.5 if x > 0 else -7.5
    if name in BOUNDS:
        return abs(x) * 1.1 + 0.11
    if name == "lower":
        return x - 0.11
    return x + 0.11 * (1 + abs(x))


def _new_values(old: str, name: str) -> Iterator[tuple[int | None, str]]:
    """Changed texts, with the number that changed (None: all of them, or a word)."""
    if old.strip() in ("true", "false", "True", "False") or name in SWITCH_NAMES and old.strip() in SWITCHES:
        yield None, SWITCHES[old.strip()]
        return
    numbers = _numbers(old)
    if name in INTEGERS:
        yield None, str(int(old) + 1)
    elif not numbers or name in ("name", "version"):
        swaps = [words[old.strip()] for words in WORDS if old.strip() in words]
        yield None, swaps[0] if swaps else f"{old.strip()}_changed"
    else:
        moved = [_moved(x, name) for x in numbers]
        for i in range(len(numbers)) if len(numbers) > 1 else ():
            if name not in DIRECTIONS or any(numbers[:i] + numbers[i + 1 :]):
                yield i, " ".join(repr(moved[k] if k == i else x) for k, x in enumerate(numbers))
        if name in DIRECTIONS:
            moved = [x + 0.1 * (k + 1) for k, x in enumerate(numbers)]
        yield None, " ".join(map(repr, moved))


def changes(root: etree._Element) -> list[Change]:
    found = []
    for element in [e for e in root.iter() if isinstance(e.tag, str)]:
        places = [(a, str(x)) for a, x in element.attrib.items()]
        if not len(element) and element.text and element.text.strip():
            places.append((None, element.text))
        for attribute, old in places:
            found += [Change(element, attribute, new, i) for i, new in _new_values(old, attribute or element.tag)]
    return found


def one_of_each(every: list[Change], path: Path) -> list[Change]:
    """Of the changes in a file, one of each number or word that elements of one kind have; in another file that of another element."""
    kinds: dict[tuple, list[Change]] = {}
    for change in every:
        tags = tuple(e.tag for e in (change.element, change.element.getparent()) if e is not None)
        kinds.setdefault((tags, change.attribute, change.component), []).append(change)
    return [same[zlib.crc32(path.stem.encode()) % len(same)] for same in kinds.values()]


def changed(root: etree._Element, change: Change) -> str:
    element, attribute = change.place
    old = element.text if attribute is None else element.get(attribute)
    _set(element, attribute, change.value)
    text = etree.tostring(root, encoding="unicode")
    _set(element, attribute, old)
    return text


def _set(element, attribute: str | None, value: str) -> None:
    if attribute is None:
        element.text = value
    else:
        element.set(attribute, value)


# ---- what was read -----------------------------------------------------------------------------------------------------------


def unused(root: etree._Element, format: str) -> dict[tuple[etree._Element, str | None], bool]:
    """Places whose change may be without effect, and whether it must."""
    found = {}
    for name, path, never, _ in UNUSED:
        for x in root.xpath(path) if name == format else ():
            found[(x.getparent(), x.attrname) if isinstance(x, str) else (x, None)] = never
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_value_is_read(path):
    root = etree.fromstring(path.read_bytes(), etree.XMLParser(recover=True))
    base = outcome(etree.tostring(root, encoding="unicode"), path)
    assert base is not None
    excuses = unused(root, path.parent.name)
    tried = one_of_each(changes(root), path)
    silent, untrue, excused = [], [], 0
    for change in tried:
        found = outcome(changed(root, change), path)
        if change.place in excuses:
            excused += 1
            if excuses[change.place] and found not in (base, None):
                untrue.append(str(change))
        elif found == base:
            silent.append(str(change))
    assert not silent, f"{path.name}: changed without any effect: {silent}"
    assert not untrue, f"{path.name}: changed with an effect, and said to have none: {untrue}"
    most = 0.2 * len(tried) + 21  # 21: the numbers of one added mass
    assert excused <= most, f"{path.name}: {excused} of {len(tried)} changes are excused"
