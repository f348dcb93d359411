"""<sensor>: what is measured, of what, relative to what."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.histories import checked_history, read_history
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.joints import SCALAR
from xsim.io.mjcf.plugins import Plugin, read_plugin
from xsim.io.mjcf.scaling import UNIT
from xsim.io.mjcf.values import flag, integer, padded, read_user
from xsim.io.reader import Element
from xsim.model.topology import CONTACT_FIELDS, ENCLOSED, RANGE_FIELDS
from xsim.spec import ActuatorSpec, MeshSpec, SensorSpec, TendonSpec

__all__ = ["NAMED", "find_object", "read_sensors"]

# Kinds of elements that have names, by the words of objtype; "body" is the inertial frame of a body, "xbody" its body frame.
NAMED = (
    "body", "xbody", "joint", "geom", "site", "camera", "light", "flex", "mesh", "skin", "hfield", "texture", "material", "pair", "exclude",
    "equality", "tendon", "actuator", "sensor", "numeric", "text", "tuple", "key", "plugin",
)  # fmt: skip
FRAMES = ("body", "xbody", "geom", "site", "camera")
STAGES = {"pos": "position", "vel": "velocity", "acc": "acceleration"}
DIMS = {"real": None, "positive": None, "axis": 3, "quaternion": 4}  # width of a user sensor's data; None: any
OF_OUTPUTS = ("actuatorpos", "actuatorvel", "actuatorfrc")
"""Sensors with a number for each force of an actuator."""
MAX_DIM = 1_000_000
ENCLOSING, ENCLOSABLE = ("sphere", "capsule", "cylinder", "box"), ("sphere", "capsule", "box", "mesh")
"""Shapes of sites and of objects for which insidesite measures enclosure; sites that are objects are no meshes."""
REDUCTIONS = ("none", "mindist", "maxforce", "netforce")


class Sensor(NamedTuple):
    """read: what it measures and what that is relative to, from its element. data: "real", "positive", "axis" or "quaternion".
    fields, reduce: see `SensorSpec.data` and ``reduce``. pad: the mesh of a tactile sensor."""

    read: Callable[[Bodies, list[TendonSpec], Index, Element], tuple[tuple | None, tuple | None]]
    dim: int
    stage: str
    data: str = "real"
    fields: tuple[str, ...] = ()
    reduce: str = "none"
    pad: MeshSpec | None = None


def read_sensors(
    document: Document, bodies: Bodies, tendons: list[TendonSpec], actuators: list[ActuatorSpec], index: Index, user: int
) -> list[SensorSpec]:
    """All sensors, in order; index entries "sensor". user: how many users' numbers each has (-1: any). Raises ParseError."""
    out: list[SensorSpec] = []
    for e in document.elements("sensor"):
        name = index.add("sensor", e, len(out))
        plugin = read_plugin(document, e, index, "sensor") if e.tag == "plugin" else None
        if plugin is not None:
            kind = _plugin(e, plugin)
        else:
            kind = _PER_ELEMENT[e.tag](e, bodies, index) if e.tag in _PER_ELEMENT else SENSORS[e.tag]
        measured, reference = kind.read(bodies, tendons, index, e)
        if e.tag in OF_OUTPUTS and measured is not None:
            kind = kind._replace(dim=actuators[measured[1]].outputs)
        document.budget.spend(e, numbers=kind.dim)
        cutoff = e.number("cutoff", 0.0, nonnegative=True)
        if cutoff > 0 and kind.data in ("axis", "quaternion") and e.tag != "normal":
            raise e.error(f"found {cutoff:g} for a sensor of a unit {kind.data}; allowed: none", "cutoff")
        out.append(
            SensorSpec(
                kind=e.tag if plugin is None else plugin.name,
                name=name,
                object=measured,
                reference=reference,
                cutoff=cutoff,
                noise=e.number("noise", 0.0, nonnegative=True),
                dim=kind.dim,
                stage=kind.stage,
                data=kind.fields,
                reduce=kind.reduce,
                config={} if plugin is None else plugin.config,
                points=None if kind.pad is None else kind.pad.vertices,
                tangents=None if kind.pad is None else kind.pad.tangents,
                history=checked_history(e, read_history(e)),
                user=read_user(e, user),
                source=e.source,
            )
        )
    return padded(document, out, user)


def find_object(index: Index, e: Element, words: tuple[str, ...], ending: str = "obj") -> tuple:
    """(kind, number) of what the attributes objtype and objname (ending ``"ref"``: reftype, refname) say."""
    word = e.choice(f"{ending}type", words)
    return word, index.find("body" if word == "xbody" else word, e, f"{ending}name")


def _one(kind: str):
    def read(bodies, tendons, index: Index, e: Element):
        return (kind, index.find(kind, e, kind)), None

    return read


def _touched(bodies: Bodies, tendons, index: Index, e: Element):
    number = index.find("site", e, "site")
    if bodies.sites[number].shape == "mesh":
        raise e.error("found a site of the type mesh; allowed: sites of the other types", "site")
    return ("site", number), None


def _joint(*types: str, limited: bool = False):
    def read(bodies: Bodies, tendons, index: Index, e: Element):
        where = index.find("joint", e, "joint")
        joint = bodies.bodies[where[0]].joints[where[1]]
        if joint.type not in types:
            raise e.error(f"found a {joint.type} joint; allowed: {' and '.join(types)} joints", "joint")
        if limited and joint.position_range is None and joint.angle_limit is None:
            raise e.error("found a joint without limits; allowed: a limited joint", "joint")
        return ("joint", where), None

    return read


def _limited_tendon(bodies, tendons: list[TendonSpec], index: Index, e: Element):
    number = index.find("tendon", e, "tendon")
    if tendons[number].range is None:
        raise e.error("found a tendon without limits; allowed: a limited tendon", "tendon")
    return ("tendon", number), None


def _frame(bodies, tendons, index: Index, e: Element):
    for one, other in (("refname", "reftype"), ("reftype", "refname")):
        if e.has(one) and not e.has(other):
            raise e.error(f"found without {other}; allowed: both or none", one)
    return find_object(index, e, FRAMES), find_object(index, e, FRAMES, "ref") if e.has("reftype") else None


def _camera(bodies, tendons, index: Index, e: Element):
    return ("site", index.find("site", e, "site")), ("camera", index.find("camera", e, "camera"))


def _inside(bodies: Bodies, tendons, index: Index, e: Element):
    measured, site = find_object(index, e, FRAMES), index.find("site", e, "site")
    if flag(e, "enclosed", False):
        _check_enclosed(bodies, e, measured, bodies.sites[site].shape)
    return measured, ("site", site)


def _check_enclosed(bodies: Bodies, e: Element, measured: tuple, site: str) -> None:
    """Raises ParseError where it is not simulated how far an object juts out of a site of this shape."""
    if site not in ENCLOSING:
        raise e.error(f"enclosed is not simulated for sites of the type {site}; allowed: {', '.join(ENCLOSING)}", "site")
    kind, number = measured
    if kind == "camera":
        raise e.error("found camera with enclosed; allowed: body, xbody, geom, site", "objtype")
    geoms = [(-1, geom) for geom in bodies.world_geoms] + [(i, geom) for i, body in enumerate(bodies.bodies) for geom in body.geoms]
    shapes = [bodies.sites[number].shape] if kind == "site" else [geoms[number][1].shape] if kind == "geom" else []
    if kind in ("body", "xbody"):
        inside = {number}
        for i, body in enumerate(bodies.bodies):
            if kind == "xbody" and body.parent in inside:
                inside.add(i)
        shapes = [geom.shape for body, geom in geoms if body in inside]
    if not shapes:
        raise e.error("the object has no geoms; allowed: an object with geoms", "objname")
    for shape in shapes:
        if shape not in ENCLOSABLE or kind == "site" and shape == "mesh":
            raise e.error(f"enclosed is not simulated for a {shape}; allowed: {', '.join(ENCLOSABLE)}", "objname")


def _two(bodies, tendons, index: Index, e: Element):
    ends = []
    for number in ("1", "2"):
        given = [kind for kind in ("geom", "body") if e.has(kind + number)]
        if len(given) != 1:
            found = " and ".join(kind + number for kind in given) or "neither"
            raise e.error(f"found {found}; allowed: one of geom{number} and body{number}", given[0] + number if given else None)
        ends.append((given[0], index.find(given[0], e, given[0] + number)))
    if ends[0] == ends[1]:
        raise e.error(f"found the same {ends[0][0]} twice; allowed: two different ones", f"{ends[0][0]}2")
    return ends[0], ends[1]


def _nothing(bodies, tendons, index: Index, e: Element):
    return None, None


def _sides(bodies, tendons, index: Index, e: Element):
    return _side(index, e, ("geom1", "body1", "subtree1", "site")), _side(index, e, ("geom2", "body2", "subtree2"))


def _side(index: Index, e: Element, attributes: tuple[str, ...]) -> tuple | None:
    """(kind, number) of what one side of a contact is on, None where it may be on anything."""
    given = [attribute for attribute in attributes if e.has(attribute)]
    if len(given) > 1:
        raise e.error(f"found {' and '.join(given)}; allowed: one of {', '.join(attributes)}", given[0])
    if not given:
        return None
    kind = given[0].rstrip("12")
    return kind, index.find("body" if kind == "subtree" else kind, e, given[0])


def _contact(e: Element, bodies: Bodies, index: Index) -> Sensor:
    fields = _fields(e, CONTACT_FIELDS) or ("found",)
    reduce = e.choice("reduce", REDUCTIONS, "none")
    if reduce == "netforce" and {"linvel", "angvel"}.intersection(fields):
        raise e.error("found netforce with linvel or angvel; allowed: the other fields", "reduce")
    width, number = sum(CONTACT_FIELDS[name] for name in fields), integer(e, "num", 1)
    if not 1 <= number <= MAX_DIM // width:
        raise e.error(f"found {number}; allowed: integers from 1 to {MAX_DIM // width}", "num")
    stage = "position"
    if {"force", "torque"}.intersection(fields) or reduce in ("maxforce", "netforce"):
        stage = "acceleration"
    elif {"linvel", "angvel"}.intersection(fields):
        stage = "velocity"
    return Sensor(_sides, number * width, stage, "real", fields, reduce)


def _fields(e: Element, known: dict[str, int]) -> tuple[str, ...]:
    """The words of the attribute data."""
    fields = tuple((e.raw("data") or "").split())
    if fields != tuple(name for name in known if name in fields):
        raise e.error(f"found {e.raw('data')!r}; allowed: some of {', '.join(known)}, each once and in this order", "data")
    return fields


def _rangefinder(e: Element, bodies: Bodies, index: Index) -> Sensor:
    """One ray of a site, or one for each pixel of a camera."""
    fields = _fields(e, RANGE_FIELDS)
    width = sum(RANGE_FIELDS[name] for name in fields) or 1
    if not e.has("camera"):
        return SENSORS["rangefinder"]._replace(dim=width, fields=fields)
    if e.has("site"):
        raise e.error("found site and camera; allowed: one of them", "camera")
    columns, rows = bodies.cameras[index.find("camera", e, "camera")].resolution
    if not 0 < rows * columns <= MAX_DIM // width:
        raise e.error(f"found a camera of {columns} x {rows} pixels; allowed: 1 to {MAX_DIM // width} pixels", "camera")
    return Sensor(_one("camera"), rows * columns * width, "position", "positive", fields)


def _insidesite(e: Element, bodies: Bodies, index: Index) -> Sensor:
    if not flag(e, "enclosed", False):
        return SENSORS["insidesite"]
    return Sensor(_inside, 1, "position", fields=ENCLOSED)


def _tactile(e: Element, bodies: Bodies, index: Index) -> Sensor:
    number, geom = index.find("mesh", e, "mesh"), index.find("geom", e, "geom")
    geoms = [(-1, g) for g in bodies.world_geoms] + [(i, g) for i, body in enumerate(bodies.bodies) for g in body.geoms]
    mesh = next((m for m in bodies.meshes[: number + 1][::-1] if m.name == e.string("mesh")), None)
    if any(bodies.scales.get(item, UNIT) != UNIT for item in (("geom", geom), ("body", geoms[geom][0]))):
        raise e.error("is in a frame with a scale; allowed: a geom elsewhere", "geom")
    if mesh is None:
        raise e.error("the mesh is discarded, since no geom needs it; allowed: a mesh of a geom, or discardvisual false", "mesh")
    if not any(g.collision for body, g in geoms if body == geoms[geom][0]):
        raise e.error("the body of the geom has no geom that collides; allowed: a body with one", "geom")
    if 3 * len(mesh.vertices) > MAX_DIM:
        raise e.error(f"found {len(mesh.vertices)} vertices; allowed: at most {MAX_DIM // 3}", "mesh")
    return Sensor(_one("geom"), 3 * len(mesh.vertices), "velocity", pad=mesh)


def _named(bodies, tendons, index: Index, e: Element):
    for one, other in (("objname", "objtype"), ("objtype", "objname")):
        if e.has(one) and not e.has(other):
            raise e.error(f"found without {other}; allowed: both or none", one)
    return find_object(index, e, NAMED) if e.has("objtype") else None, None


def _user(e: Element, bodies: Bodies, index: Index) -> Sensor:
    data = e.choice("datatype", DIMS, "real")
    dim = integer(e, "dim", -1)
    if not 0 <= dim <= MAX_DIM:
        raise e.error(f"found {e.raw('dim')}; allowed: integers from 0 to {MAX_DIM}", "dim")
    if DIMS[data] not in (None, dim):
        raise e.error(f"found {dim} with the datatype {data}; allowed: {DIMS[data]}", "dim")
    return Sensor(_named, dim, STAGES[e.choice("needstage", STAGES, "acc")], data)


def _plugin(e: Element, plugin: Plugin) -> Sensor:
    width = int(plugin.entry.dim(plugin.values))
    if not 1 <= width <= MAX_DIM:
        raise e.error(f"found {width} numbers; allowed: 1 to {MAX_DIM}")
    return Sensor(_object_of_plugin(plugin.entry.objects), width, "acceleration")


def _object_of_plugin(words: tuple[str, ...]):
    def read(bodies, tendons, index: Index, e: Element):
        if words:
            e.choice("objtype", words)
        measured, _ = _named(bodies, tendons, index, e)
        return measured, find_object(index, e, FRAMES, "ref") if e.has("reftype") else None

    return read


_PER_ELEMENT = {"user": _user, "contact": _contact, "rangefinder": _rangefinder, "insidesite": _insidesite, "tactile": _tactile}
"""Kinds whose width or meaning an element says."""
_scalar, _limited = _joint(*SCALAR), _joint(*SCALAR, "ball", limited=True)
_ball = _joint("ball")
_site, _body, _tendon, _actuator = _one("site"), _one("body"), _one("tendon"), _one("actuator")

SENSORS = {
    "touch": Sensor(_touched, 1, "acceleration", "positive"),
    "accelerometer": Sensor(_site, 3, "acceleration"),
    "velocimeter": Sensor(_site, 3, "velocity"),
    "gyro": Sensor(_site, 3, "velocity"),
    "force": Sensor(_site, 3, "acceleration"),
    "torque": Sensor(_site, 3, "acceleration"),
    "magnetometer": Sensor(_site, 3, "position"),
    "rangefinder": Sensor(_site, 1, "position", "positive"),
    "camprojection": Sensor(_camera, 2, "position"),
    "jointpos": Sensor(_scalar, 1, "position"),
    "jointvel": Sensor(_scalar, 1, "velocity"),
    "tendonpos": Sensor(_tendon, 1, "position"),
    "tendonvel": Sensor(_tendon, 1, "velocity"),
    "actuatorpos": Sensor(_actuator, 1, "position"),
    "actuatorvel": Sensor(_actuator, 1, "velocity"),
    "actuatorfrc": Sensor(_actuator, 1, "acceleration"),
    "tendonactuatorfrc": Sensor(_tendon, 1, "acceleration"),
    "jointactuatorfrc": Sensor(_scalar, 1, "acceleration"),
    "ballquat": Sensor(_ball, 4, "position", "quaternion"),
    "ballangvel": Sensor(_ball, 3, "velocity"),
    "jointlimitpos": Sensor(_limited, 1, "position"),
    "jointlimitvel": Sensor(_limited, 1, "velocity"),
    "jointlimitfrc": Sensor(_limited, 1, "acceleration"),
    "tendonlimitpos": Sensor(_limited_tendon, 1, "position"),
    "tendonlimitvel": Sensor(_limited_tendon, 1, "velocity"),
    "tendonlimitfrc": Sensor(_limited_tendon, 1, "acceleration"),
    "framepos": Sensor(_frame, 3, "position"),
    "framequat": Sensor(_frame, 4, "position", "quaternion"),
    "framexaxis": Sensor(_frame, 3, "position", "axis"),
    "frameyaxis": Sensor(_frame, 3, "position", "axis"),
    "framezaxis": Sensor(_frame, 3, "position", "axis"),
    "framelinvel": Sensor(_frame, 3, "velocity"),
    "frameangvel": Sensor(_frame, 3, "velocity"),
    "framelinacc": Sensor(_frame, 3, "acceleration"),
    "frameangacc": Sensor(_frame, 3, "acceleration"),
    "subtreecom": Sensor(_body, 3, "position"),
    "subtreelinvel": Sensor(_body, 3, "velocity"),
    "subtreeangmom": Sensor(_body, 3, "velocity"),
    "distance": Sensor(_two, 1, "position", "positive"),
    "normal": Sensor(_two, 3, "position", "axis"),
    "fromto": Sensor(_two, 6, "position"),
    "insidesite": Sensor(_inside, 1, "position", "positive"),
    "e_potential": Sensor(_nothing, 1, "position"),
    "e_kinetic": Sensor(_nothing, 1, "velocity"),
    "clock": Sensor(_nothing, 1, "position"),
}
