"""<tendon>: the shortest way through sites and around geoms, or a sum of joint coordinates."""

from __future__ import annotations

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.joints import SCALAR
from xsim.io.mjcf.values import integer, limits, padded, polynomial, read_rgba, read_soft, read_user
from xsim.io.reader import Element
from xsim.joints.types import JOINT_TYPES
from xsim.spec import TendonSpec, WrapSpec

__all__ = ["coordinate", "read_tendons"]

ROUND = ("sphere", "cylinder")


def read_tendons(document: Document, bodies: Bodies, index: Index, user: int) -> list[TendonSpec]:
    """All tendons, in order; index entries "tendon". user: how many users' numbers each has (-1: any). Raises ParseError."""
    shapes = [g.shape for g in (*bodies.world_geoms, *(g for body in bodies.bodies for g in body.geoms))]
    out: list[TendonSpec] = []
    for element in document.elements("tendon", "spatial", "fixed"):
        name = index.add("tendon", element, len(out))
        e = document.resolve(element, "tendon")
        path = _spatial(shapes, index, e) if e.tag == "spatial" else _fixed(document, bodies, index, e)
        out.append(_tendon(document, e, name, path, index, user))
    return padded(document, out, user)


def _tendon(document: Document, e: Element, name: str, path: tuple[WrapSpec, ...], index: Index, user: int) -> TendonSpec:
    material = e.string("material", "") if e.tag == "spatial" else ""
    if material:
        index.find("material", e, "material")
    (damping, damping_poly), (stiffness, stiffness_poly) = (polynomial(e, x, document, "tendon") for x in ("damping", "stiffness"))
    return TendonSpec(
        kind=e.tag,
        name=name,
        path=path,
        stiffness=stiffness,
        damping=damping,
        stiffness_poly=stiffness_poly,
        damping_poly=damping_poly,
        friction=e.number("frictionloss", 0.0),
        armature=_armature(e, path),
        force_range=_force_range(e),
        spring_length=_spring_length(e),
        spring_yield=e.number("springyield", 0.0, nonnegative=True) or None,
        range=limits(e, "range", "limited"),
        margin=e.number("margin", 0.0),
        limit_soft=read_soft(document, e, "limit", "tendon"),
        friction_soft=read_soft(document, e, "friction", "tendon"),
        width=e.number("width", 0.003, positive=True),
        rgba=read_rgba(e),
        group=integer(e, "group", 0),
        material=material,
        user=read_user(e, user),
        source=e.source,
    )


def _force_range(e: Element) -> tuple[float, float] | None:
    bounds = limits(e, "actuatorfrcrange", "actuatorfrclimited")
    if bounds is not None and not bounds[0] <= 0 <= bounds[1]:
        raise e.error(f"found {bounds[0]:g} {bounds[1]:g}; allowed: a range that contains 0", "actuatorfrcrange")
    return bounds


def _armature(e: Element, path: tuple[WrapSpec, ...]) -> float | None:
    armature = e.number("armature", 0.0, nonnegative=True)
    if armature and any(wrap.kind == "geom" for wrap in path):
        raise e.error("found with a geom in the path; allowed: tendons that wrap around no geom", "armature")
    return armature or None


def _spring_length(e: Element) -> tuple[float, float] | None:
    given = e.floats("springlength", (1, 2), (-1.0,)).tolist()
    low, high = given[0], given[-1]
    if low > high:
        raise e.error(f"found {low:g} {high:g}; allowed: one number, or two of which the first is not the larger one", "springlength")
    return None if low == high == -1 else (low, high)


def coordinate(bodies: Bodies, index: Index, e: Element, name: str, scalar: bool = True) -> tuple[int, int]:
    """The coordinate of the joint that an attribute names: (body, index among its degrees of freedom). scalar: the joint must be a
    hinge or slide; else it is the first one of any joint."""
    body, number = index.find("joint", e, name)
    joints = bodies.bodies[body].joints
    if scalar and joints[number].type not in SCALAR:
        raise e.error(f"found a {joints[number].type} joint; allowed: hinge and slide joints", name)
    return body, sum(JOINT_TYPES[joint.type].nv for joint in joints[:number])


def _fixed(document: Document, bodies: Bodies, index: Index, e: Element) -> tuple[WrapSpec, ...]:
    strict = document.release.fixed_tendon_scalar
    path: list[WrapSpec] = []
    for inner in e.all("joint"):
        item = coordinate(bodies, index, inner, "joint", scalar=strict)
        if strict and any(item == wrap.item for wrap in path):
            raise inner.error("found the same joint twice; allowed: each joint once", "joint")
        path.append(WrapSpec("joint", item, inner.number("coef")))
    if not path:
        raise e.error("the path is empty; allowed: one <joint> or more")
    return tuple(path)


def _spatial(shapes: list[str], index: Index, e: Element) -> tuple[WrapSpec, ...]:
    inside = list(e.children())
    path = tuple(_WRAPS[inner.tag](shapes, index, inner) for inner in inside)
    if len(path) < 2:
        raise e.error(f"the path of a spatial tendon has {len(path)} elements; allowed: two sites or more")
    kinds = [None, *(wrap.kind for wrap in path), None]
    for inner, wrap, before, after in zip(inside, path, kinds, kinds[2:], strict=False):
        if wrap.kind == "geom" and not (before == after == "site"):
            raise inner.error("the geom does not stand between two sites of its tendon; allowed: site, geom, site")
        if wrap.kind == "pulley" and after in (None, "pulley"):
            raise inner.error(f"the pulley is followed by {after or 'nothing'}; allowed: a branch that begins with a site")
        if wrap.kind == "site" and {before, after} <= {None, "pulley"}:
            raise inner.error("the site is alone in its branch; allowed: two sites or more")
    for inner, one, two in zip(inside[1:], path, path[1:], strict=False):
        if one.kind == two.kind == "site" and one.item == two.item:
            raise inner.error("found the same site twice in a row; allowed: two different ones", "site")
    return path


def _site(shapes: list[str], index: Index, e: Element) -> WrapSpec:
    return WrapSpec("site", index.find("site", e, "site"))


def _geom(shapes: list[str], index: Index, e: Element) -> WrapSpec:
    number = index.find("geom", e, "geom")
    if shapes[number] not in ROUND:
        raise e.error(f"found a {shapes[number]}; allowed: {' or '.join(ROUND)}", "geom")
    return WrapSpec("geom", number, side=index.find("site", e, "sidesite") if e.has("sidesite") else None)


def _pulley(shapes: list[str], index: Index, e: Element) -> WrapSpec:
    return WrapSpec("pulley", value=e.number("divisor", positive=True))


_WRAPS = {"site": _site, "geom": _geom, "pulley": _pulley}
