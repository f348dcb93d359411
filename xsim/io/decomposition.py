"""Division of the geoms that collide by the hull of a mesh: each becomes several geoms, one for each convex part of the mesh.

The geom itself stays, with its name, mass and place, and what refers to it; it no longer collides. Its parts collide in its place: they
have its surface, no mass, and neither viewers nor rays see them. This is one change of a ModelSpec, whatever format it comes from.
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from xsim.io.convex_parts import INSTALL, ConvexDecomposition, coacd_version, convex_parts
from xsim.io.errors import Notes, ParseError
from xsim.io.hulls import centred_mesh
from xsim.poses import rotate, rotation_matrix
from xsim.spec import GeomSpec, MeshSpec, ModelSpec, PairSpec, SensorSpec, TendonSpec
from xsim.suggestions import did_you_mean

__all__ = ["decomposed"]

SURFACES = {"distance": ("geom", "body"), "normal": ("geom", "body"), "fromto": ("geom", "body"), "contact": ("geom",)}
"""Sensors of the surfaces by which geoms collide, and the kinds of objects whose surfaces they need whole."""
INVISIBLE = (0.5, 0.5, 0.5, 0.0)


def decomposed(spec: ModelSpec, option: bool | ConvexDecomposition | None, notes: Notes) -> ModelSpec:
    """The model with its colliding meshes divided into convex parts.

    option: which meshes and how; True: all, as `ConvexDecomposition` does by default; None: those for which the file asks; False: none.
    A mesh that is convex within the threshold stays as it is.

    Raises ParseError where CoACD fails, or is not installed (for None it is then noted, and the hulls collide), and for sensors of the
    surface of a mesh that is divided; ValueError for a name that no colliding mesh has.
    """
    geoms = _all_geoms(spec)
    chosen = _chosen(spec, geoms, option)
    if not chosen:
        return spec
    if coacd_version() is None:
        source = geoms[min(chosen)].source
        if option is not None:
            raise ParseError(source.file, source.line, INSTALL)
        notes.unsupported(source.line, f"{INSTALL}; {len(chosen)} collide as their convex hulls", source.file)
        return spec
    meshes = list(spec.meshes)
    found: dict[tuple, list[_Part]] = {}
    parts = {}
    for number, options in chosen.items():
        geom = geoms[number]
        assert geom.asset is not None
        key = geom.asset, options
        if key not in found:
            found[key] = _parts(meshes, geom, options)
        if found[key]:
            parts[number] = found[key]
    return _divided(spec.replace(meshes=tuple(meshes)), parts) if parts else spec


def _all_geoms(spec: ModelSpec) -> list[GeomSpec]:
    """All geoms, those of the world first."""
    return [*spec.world_geoms, *(geom for body in spec.bodies for geom in body.geoms)]


# ---- which meshes ------------------------------------------------------------------------------------------------------------


def _chosen(spec: ModelSpec, geoms: list[GeomSpec], option: bool | ConvexDecomposition | None) -> dict[int, ConvexDecomposition]:
    """The numbers of the geoms to divide, and how. Raises ValueError for names that no colliding mesh has."""
    if not isinstance(option, bool | ConvexDecomposition | None):
        raise TypeError(f"convex_decomposition: found {option!r}; allowed: True, False, None or a ConvexDecomposition")
    if option is False:
        return {}
    options = option if isinstance(option, ConvexDecomposition) else ConvexDecomposition()
    in_pairs = {number for pair in spec.pairs for number in pair.geoms}
    colliding = [i for i, geom in enumerate(geoms) if _has_hull(spec, geom) and (geom.collision or i in in_pairs)]
    names = {i: (geoms[i].name, spec.meshes[geoms[i].asset or 0].name) for i in colliding}
    for pattern in options.names or ():
        known = sorted({name for both in names.values() for name in both if name})
        if not fnmatch.filter(known, pattern):
            text = f"no colliding mesh is named {pattern!r}{did_you_mean(pattern, known)}; names: {', '.join(known[:50]) or 'none'}"
            raise ValueError(f"convex_decomposition: {text}")
    chosen = {}
    for i in colliding:
        most = geoms[i].max_convex_hulls
        if option is None and most is None:
            continue
        if options.names is None or any(fnmatch.fnmatchcase(name, pattern) for name in names[i] for pattern in options.names):
            chosen[i] = replace(options, names=None, max_convex_hull=options.max_convex_hull or most)
    return chosen


def _has_hull(spec: ModelSpec, geom: GeomSpec) -> bool:
    """Whether a geom has a surface and collides by the hull of a mesh with a volume."""
    return geom.shape == "mesh" and geom.contact is not None and geom.asset is not None and spec.meshes[geom.asset].hull is not None


# ---- parts of a mesh ---------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A convex part of a mesh. asset: its number among the meshes. centre (3,): of its frame, in the frame of the whole mesh, m."""

    asset: int
    centre: np.ndarray


def _parts(meshes: list[MeshSpec], geom: GeomSpec, options: ConvexDecomposition) -> list[_Part]:
    """The parts of the mesh of a geom, which are added to the meshes; none where it is convex. Raises ParseError."""
    assert geom.asset is not None
    whole = meshes[geom.asset]
    try:
        points = convex_parts(whole.vertices, whole.faces, options)
    except RuntimeError as error:
        text = f"mesh {whole.name!r} cannot be divided into convex parts: {error}"
        raise ParseError(geom.source.file, geom.source.line, text) from None
    out = []
    for k, vertices in enumerate(points if len(points) > 1 else ()):
        part = centred_mesh(f"{whole.name}/{k}", vertices, source=whole.source)
        out.append(_Part(len(meshes), part.pos))
        meshes.append(replace(part, pos=whole.pos + rotation_matrix(whole.quat) @ part.pos, quat=whole.quat, file=whole.file))
    return out


def _geoms(geom: GeomSpec, parts: list[_Part]) -> list[GeomSpec]:
    """A geom that does not collide any more, then its parts."""
    assert geom.contact is not None
    whole = replace(geom, collision=False, contact=replace(geom.contact, contype=0, conaffinity=0))
    return [whole, *(_geom(geom, part, f"{geom.name}/{k}" if geom.name else "") for k, part in enumerate(parts))]


def _geom(geom: GeomSpec, part: _Part, name: str) -> GeomSpec:
    """The geom of a part."""
    return replace(
        geom, name=name, asset=part.asset, pos=geom.pos + rotate(geom.quat, geom.size * part.centre), mass=0.0, density=None, shell=False,
        massless=True, fluid=None, visual=False, rgba=INVISIBLE, material="", max_convex_hulls=None,
    )  # fmt: skip


# ---- the model ---------------------------------------------------------------------------------------------------------------


def _divided(spec: ModelSpec, parts: dict[int, list[_Part]]) -> ModelSpec:
    """The model with the parts of these geoms. What refers to a geom by its number then refers to the same one. Raises ParseError."""
    _check_sensors(spec, parts)
    geoms = [_geoms(geom, parts[i]) if i in parts else [geom] for i, geom in enumerate(_all_geoms(spec))]
    first = np.cumsum([0, *map(len, geoms)]).tolist()
    colliding = [range(n + (i in parts), n + len(some)) for i, (n, some) in enumerate(zip(first, geoms, strict=False))]
    rest = iter(geoms)

    def of_body(old: tuple[GeomSpec, ...]) -> tuple[GeomSpec, ...]:
        return tuple(geom for _ in old for geom in next(rest))

    return spec.replace(
        world_geoms=of_body(spec.world_geoms),
        bodies=tuple(replace(body, geoms=of_body(body.geoms)) for body in spec.bodies),
        pairs=_pairs(spec, colliding),
        tendons=tuple(_tendon(tendon, first) for tendon in spec.tendons),
        sensors=tuple(_sensor(sensor, first) for sensor in spec.sensors),
    )


def _check_sensors(spec: ModelSpec, parts: dict[int, list[_Part]]) -> None:
    """Refuse sensors of the surfaces of geoms that are divided, or of their bodies."""
    geoms = _all_geoms(spec)
    owners = [-1] * len(spec.world_geoms) + [i for i, body in enumerate(spec.bodies) for _ in body.geoms]
    divided = {("geom", i): i for i in parts} | {("body", owners[i]): i for i in parts}
    for sensor in spec.sensors:
        for end in (sensor.object, sensor.reference):
            if end in divided and end[0] in SURFACES.get(sensor.kind, ()):
                mesh = spec.meshes[geoms[divided[end]].asset or 0].name
                found = f"sensor {sensor.name!r}: a {sensor.kind} of mesh {mesh!r}, which is divided into convex parts"
                text = f"{found}; allowed: convex meshes, bodies (contact), or a convex_decomposition without this one (names)"
                raise ParseError(sensor.source.file, sensor.source.line, text)


def _pairs(spec: ModelSpec, colliding: list[range]) -> tuple[PairSpec, ...]:
    """Pairs of all parts. Those that are new come last, so that pairs keep their numbers."""
    every = [[replace(pair, geoms=both) for both in product(*(colliding[i] for i in pair.geoms))] for pair in spec.pairs]
    return (*(some[0] for some in every), *(pair for some in every for pair in some[1:]))


def _tendon(tendon: TendonSpec, numbers: list[int]) -> TendonSpec:
    """A tendon with new numbers of the geoms that it wraps around."""
    path = [replace(p, item=numbers[p.item]) if p.kind == "geom" and isinstance(p.item, int) else p for p in tendon.path]
    return replace(tendon, path=tuple(path))


def _sensor(sensor: SensorSpec, numbers: list[int]) -> SensorSpec:
    """A sensor with new numbers of its geoms."""

    def end(item: tuple | None) -> tuple | None:
        return ("geom", numbers[item[1]]) if item is not None and item[0] == "geom" else item

    return replace(sensor, object=end(sensor.object), reference=end(sensor.reference))
