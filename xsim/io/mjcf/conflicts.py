"""Settings that both an attaching and an attached model give (manual: compiler conflict; Model Editing, Attribute Merging).

With conflict="warning" those of the attaching model hold. With "merge" they are combined, or refused where no rule says how. With "error"
they are refused unless they are equal.
"""

from __future__ import annotations

from collections.abc import Callable

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.nodes import Node
from xsim.io.reader import Element

__all__ = ["merge_settings"]

Path = tuple[str, ...]  # tags, then the attribute


def _smallest(ours: str, theirs: str) -> str:
    return min(ours, theirs, key=float)


def _largest(ours: str, theirs: str) -> str:
    return max(ours, theirs, key=float)


def _ours(ours: str, theirs: str) -> str:
    return ours


def _disabled(ours: str, theirs: str) -> str:
    return "disable" if "disable" in (ours, theirs) else "enable"


def _enabled(ours: str, theirs: str) -> str:
    return "enable" if "enable" in (ours, theirs) else "disable"


def _union(ours: str, theirs: str) -> str:
    return " ".join(dict.fromkeys((*ours.split(), *theirs.split())))


def _for_all(place: Path, names: str, rule: Callable[[str, str], str] | None) -> dict[Path, Callable[[str, str], str] | None]:
    return {(*place, name): rule for name in names.split()}


# How a value of both models is combined; None: not at all.
RULES = {
    **_for_all(("option",), "timestep tolerance ls_tolerance noslip_tolerance ccd_tolerance sleep_tolerance", _smallest),
    **_for_all(("option",), "iterations ls_iterations noslip_iterations ccd_iterations sdf_iterations sdf_initpoints", _largest),
    **_for_all(("option",), "gravity wind magnetic density viscosity integrator cone jacobian solver impratio", None),
    **_for_all(("option",), "o_margin o_solref o_solimp o_friction", None),
    **_for_all(("option",), "actuatorgroupdisable", _union),
    **_for_all(("option", "flag"), "override energy fwdinv invdiscrete sleep diagexact speculative", _enabled),
    **_for_all(
        ("option", "flag"),
        "constraint equality frictionloss limit contact spring damper gravity clampctrl warmstart filterparent actuation refsafe sensor"
        " midphase eulerdamp autoreset nativeccd island multiccd",
        _disabled,
    ),
    **_for_all(("size",), "nkey nuserdata nuser_body nuser_jnt nuser_geom nuser_site nuser_cam nuser_tendon nuser_actuator", _largest),
    **_for_all(("size",), "nuser_sensor", _largest),
    **_for_all(("size",), "memory", _ours),  # without effect here
    **_for_all(("visual", "map"), "znear", _smallest),
    **_for_all(("visual", "map"), "zfar", _largest),
    **_for_all(("visual", "global"), "realtime", _smallest),
}


def merge_settings(document: Document, inner: Document, e: Element) -> None:
    """Give a document the settings of a model that an element attaches, as its compiler's ``conflict`` says. Raises ParseError."""
    policy = document.compiler.conflict
    ours, theirs = _settings(document), _settings(inner)
    for path, text in theirs.items() if policy != "warning" else ():
        rule, mine = RULES[path], ours.get(path, text)
        if rule is not _union and not _same(mine, text) and (policy == "error" or rule is None):
            wanted = f'the same value in both, with the compiler setting conflict="{policy}"'
            raise e.error(f"{' '.join(path)}: found {mine!r}, and {text!r} in {inner.file}; allowed: {wanted}", "model")
        if policy == "merge":
            _write(document, path, text if path not in ours or rule is None else rule(mine, text))
    for option in inner.sections("option") if policy != "merge" else ():
        if option.attributes or option._node.children:
            document.notes.suspicious(option.line, f"{option}: the model is attached to another one, whose options hold", option.file)


def _settings(document: Document) -> dict[Path, str]:
    """The values that a document gives, the last ones of each attribute."""
    out: dict[Path, str] = {}
    pending: list[tuple[Path, Node]] = [((node.tag,), node) for node in reversed(document.root._node.children)]
    while pending:
        path, node = pending.pop()
        out |= {(*path, name): text for name, text in node.attrib.items() if (*path, name) in RULES}
        if node.tag in ("option", "visual"):
            pending += [((*path, child.tag), child) for child in reversed(node.children)]
    return out


def _same(one: str, other: str) -> bool:
    """Whether two texts say the same numbers or words."""
    try:
        return [float(x) for x in one.split()] == [float(x) for x in other.split()]
    except ValueError:
        return one.split() == other.split()


def _write(document: Document, path: Path, text: str) -> None:
    """Add an element with one attribute at the end of a document; later values win."""
    root = document.root._node
    *tags, name = path
    parent = root
    for tag in tags:
        node = Node(tag, {}, root.file, root.sourceline)
        parent.append(node)
        parent = node
    parent.attrib[name] = text
