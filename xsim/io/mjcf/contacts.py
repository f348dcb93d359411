"""<contact>: pairs of geoms that are tested whatever their masks are, pairs of bodies that never collide."""

from __future__ import annotations

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.values import integer, numbers, read_soft
from xsim.io.reader import Element
from xsim.spec import PairSpec

__all__ = ["read_excludes", "read_pairs"]

FRICTION = (1.0, 1.0, 0.005, 0.0001, 0.0001)


def read_pairs(document: Document, bodies: Bodies, index: Index) -> list[PairSpec]:
    """All <pair> elements, in order; index entries "pair". The parameters of a pair replace those of its geoms."""
    # Number of the body of every geom.
    owners = [-1] * len(bodies.world_geoms) + [i for i, body in enumerate(bodies.bodies) for _ in body.geoms]
    out: list[PairSpec] = []
    for element in document.elements("contact", "pair"):
        name = index.add("pair", element, len(out))
        out.append(_pair(document, document.resolve(element), name, owners, index))
    return out


def _pair(document: Document, e: Element, name: str, owners: list[int], index: Index) -> PairSpec:
    first, second = index.find("geom", e, "geom1"), index.find("geom", e, "geom2")
    if owners[first] > owners[second]:
        first, second = second, first
    condim = integer(e, "condim", 3)
    if condim not in (1, 3, 4, 6):
        raise e.error(f"found {condim}; allowed: 1, 3, 4, 6", "condim")
    soft = read_soft(document, e)
    return PairSpec(
        geoms=(first, second),
        name=name,
        condim=condim,
        friction=tuple(numbers(document, e, "friction", FRICTION).tolist()),
        solref=soft.solref,
        solimp=soft.solimp,
        friction_solref=tuple(numbers(document, e, "solreffriction", (0.0, 0.0)).tolist()),
        margin=e.number("margin", 0.0),
        gap=e.number("gap", 0.0),
        adhesion=e.number("adhesion", 0.0),
        source=e.source,
    )


def read_excludes(document: Document, index: Index) -> list[tuple[int, int]]:
    """The body numbers of all <exclude> elements, in order; index entries "exclude"."""
    out: list[tuple[int, int]] = []
    for e in document.elements("contact", "exclude"):
        index.add("exclude", e, len(out))
        out.append((index.find("body", e, "body1"), index.find("body", e, "body2")))
    return out
