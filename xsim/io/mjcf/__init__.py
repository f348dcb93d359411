"""MuJoCo MJCF, the format of MuJoCo's models (.xml), in the meaning of its release 3.2.7.

`open` makes one document of a file and of those that it includes and attaches, and replaces its macros. Then assets, bodies, and the
elements that refer to them are read from it. Nothing is simulated here: what needs the inertia of the model is left to `xsim.build`.
"""

from __future__ import annotations

from dataclasses import replace

from xsim.io.errors import Notes
from xsim.io.formats import Format
from xsim.io.mjcf.actuators import read_actuators
from xsim.io.mjcf.assets import read_assets
from xsim.io.mjcf.bodies import read_bodies
from xsim.io.mjcf.contacts import read_excludes, read_pairs
from xsim.io.mjcf.custom import read_custom
from xsim.io.mjcf.deformable import read_flexes
from xsim.io.mjcf.equalities import read_equalities
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.keys import read_keys
from xsim.io.mjcf.missing import note_missing
from xsim.io.mjcf.open import read_document
from xsim.io.mjcf.options import read_drawing, read_option, read_sizes
from xsim.io.mjcf.plugins import read_extensions
from xsim.io.mjcf.releases import RELEASES
from xsim.io.mjcf.scaled_relations import Relations
from xsim.io.mjcf.sensors import read_sensors
from xsim.io.mjcf.skins import read_skins
from xsim.io.mjcf.tendons import read_tendons
from xsim.spec import ModelSpec

__all__ = ["FORMAT", "read"]


def read(data: bytes | str, file: str, notes: Notes, *, rules: str = "3.2") -> ModelSpec:
    """Read an MJCF document. rules: the release, ``"3.2"`` or ``"4.0"``, see `releases`. Raises ParseError."""
    if rules not in RELEASES:
        raise ValueError(f"rules: found {rules!r}; allowed: {', '.join(RELEASES)}")
    document = read_document(data, file, notes, rules)
    index, sizes = Index(), read_sizes(document)
    read_extensions(document, index)
    assets = read_assets(document, index)
    bodies = read_bodies(document, assets, index)
    flexes = read_flexes(document, bodies, index)
    tendons = read_tendons(document, bodies, index, sizes["tendon"])
    actuators = read_actuators(document, bodies, tendons, index, sizes["actuator"])
    equalities, pairs = read_equalities(document, bodies, index, flexes), read_pairs(document, bodies, index)
    sensors = read_sensors(document, bodies, tendons, actuators, index, sizes["sensor"])
    relations = Relations(document, bodies, tendons, actuators)
    keys = read_keys(document, bodies, flexes, tendons, actuators, index, sizes["nkey"], relations)
    spec = ModelSpec(
        name=document.root.raw("model") or "",
        format="mjcf",
        bodies=tuple(bodies.bodies),
        world_geoms=tuple(bodies.world_geoms),
        option=read_option(document, flexes),
        sites=tuple(bodies.sites),
        cameras=tuple(bodies.cameras),
        lights=tuple(bodies.lights),
        meshes=tuple(bodies.meshes),
        hfields=tuple(assets.hfields),
        flexes=tuple(flexes),
        passive=tuple(bodies.passive),
        tendons=tuple(map(relations.tendon, tendons)),
        actuators=tuple(map(relations.actuator, actuators, document.elements("actuator"))),
        equalities=tuple(map(relations.equality, equalities)),
        pairs=tuple(map(relations.pair, pairs)),
        exclude=tuple(read_excludes(document, index)),
        sensors=tuple(map(relations.sensor, sensors)),
        keys=tuple(keys),
        custom=read_custom(document, index),
        drawing=assets.drawing | {"skins": read_skins(document, index)} | read_drawing(document),
        rules=rules,
        source=document.root.source,
    )
    for section in document.sections("default"):
        section.skip()  # read through what it reaches
    document.root.report_unread(notes)
    note_missing(spec, notes)
    return _with_length_range(spec, document.compiler.length_range)


FORMAT = Format("mjcf", "MuJoCo MJCF", read, roots=("mujoco",))


def _with_length_range(spec: ModelSpec, rule: dict) -> ModelSpec:
    """Keep the numbers of <lengthrange> where an actuator's range must be found by simulation."""
    if all(actuator.length_range is not None for actuator in spec.actuators):
        return spec
    return spec.replace(option=replace(spec.option, solver=spec.option.solver | {"length_range": rule}))
