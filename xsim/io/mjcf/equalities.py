"""<equality>: soft constraints that hold as equations."""

from __future__ import annotations

import numpy as np

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.grids import check_strains
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.macros import integers
from xsim.io.mjcf.tendons import coordinate
from xsim.io.mjcf.values import flag, read_soft
from xsim.io.reader import Element
from xsim.spec import EqualitySpec, FlexSpec

__all__ = ["read_equalities"]

POLYNOMIAL = (0.0, 1.0, 0.0, 0.0, 0.0)


def read_equalities(document: Document, bodies: Bodies, index: Index, flexes: list[FlexSpec]) -> list[EqualitySpec]:
    """All equalities, in order; index entries "equality". Raises ParseError."""
    out: list[EqualitySpec] = []
    for element in document.elements("equality", *_KINDS):
        name = index.add("equality", element, len(out))
        e = document.resolve(element, "equality")
        fields = _KINDS[e.tag](bodies, index, e)
        items = fields["items"]
        if e.tag == "flexstrain":
            check_strains(e, flexes[items[0]], items[1:])
        if len(items) == 2 and items[0] == items[1]:
            raise e.error(f"found the same {'site' if fields.get('sites') else e.tag} twice; allowed: two different ones")
        soft = read_soft(document, e, "", "equality")
        out.append(EqualitySpec(kind=e.tag, name=name, active=flag(e, "active", True), soft=soft, source=e.source, **fields))
    return out


def _ends(index: Index, e: Element, with_bodies: tuple[str, ...], needed: tuple[str, ...]) -> dict:
    """The two bodies, or the two sites. with_bodies: attributes that only go with bodies; needed: those of them that must be there."""
    bodies = [name for name in ("body1", "body2", *with_bodies) if e.has(name)]
    sites = [name for name in ("site1", "site2") if e.has(name)]
    if bodies and sites:
        raise e.error(f"found {bodies[0]} and {sites[0]}; allowed: {' and '.join(needed)}, or site1 and site2", sites[0])
    if sites:
        return {"items": (index.find("site", e, "site1"), index.find("site", e, "site2")), "sites": True}
    missing = [name for name in needed if name not in bodies]
    if missing:
        raise e.error(f"{missing[0]} is missing; allowed: {' and '.join(needed)}, or site1 and site2")
    return {"items": (index.find("body", e, "body1"), index.find("body", e, "body2", -1))}


def _connect(bodies: Bodies, index: Index, e: Element) -> dict:
    return _ends(index, e, ("anchor",), ("body1", "anchor")) | {"anchor": e.floats("anchor", 3, np.zeros(3))}


def _weld(bodies: Bodies, index: Index, e: Element) -> dict:
    fields = _ends(index, e, ("anchor", "relpose"), ("body1",))
    pose = e.floats("relpose", 7)
    if pose is not None and pose[3:].any():
        pose[3:] /= np.linalg.norm(pose[3:])
        fields["relpose"] = pose
    return fields | {"anchor": e.floats("anchor", 3, np.zeros(3)), "torque_scale": e.number("torquescale", 1.0)}


def _polynomial(e: Element) -> np.ndarray:
    out, given = np.array(POLYNOMIAL), e.floats("polycoef", tuple(range(6)), ())
    out[: len(given)] = given
    return out


def _joint(bodies: Bodies, index: Index, e: Element) -> dict:
    names = [name for name in ("joint1", "joint2") if name == "joint1" or e.has(name)]
    return {"items": tuple(coordinate(bodies, index, e, name) for name in names), "polycoef": _polynomial(e)}


def _tendon(bodies: Bodies, index: Index, e: Element) -> dict:
    names = [name for name in ("tendon1", "tendon2") if name == "tendon1" or e.has(name)]
    return {"items": tuple(index.find("tendon", e, name) for name in names), "polycoef": _polynomial(e)}


def _flex(bodies: Bodies, index: Index, e: Element) -> dict:
    return {"items": (index.find("flex", e, "flex"),)}


def _flexstrain(bodies: Bodies, index: Index, e: Element) -> dict:
    return {"items": (index.find("flex", e, "flex"), *integers(e, "cell", 3, (0, 0, 0)).tolist())}


_KINDS = {"connect": _connect, "weld": _weld, "joint": _joint, "tendon": _tendon, "flex": _flex, "flexstrain": _flexstrain}
