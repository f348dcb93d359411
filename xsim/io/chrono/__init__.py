"""Chrono YAML reader: a model file, or the simulation file that names one.

Where the format differs from xsim: all frames are given in the model frame (only ``com`` is in a body), three angles turn about z, y, x in
that order, degrees are usual, tables and motors are always in radians. What the format leaves open is decided in docs/formats.md. Bodies
are in `bodies`, joints and motors in `joints`, springs and loads in `forces`, frames and functions in `values`, YAML in `document`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from xsim.io.chrono.bodies import read_body
from xsim.io.chrono.document import Item, parse_yaml
from xsim.io.chrono.forces import read_load, read_load_controller, read_rsda, read_spring_damper, read_tsda
from xsim.io.chrono.joints import Mechanism, read_constraint, read_joint, read_motor
from xsim.io.chrono.values import Reading
from xsim.io.errors import Notes
from xsim.io.formats import Format
from xsim.io.reader import read_bytes
from xsim.io.tree import assemble
from xsim.spec import ForceSpec, ModelSpec, OptionSpec

__all__ = ["FORMAT", "read"]

# Keys that do not concern the model: beside ``model`` or ``integrator``, in ``simulation``, in ``integrator``.
_BESIDE = ("chrono-version", "type", "output", "visualization", "run_time_visualization", "solver", "contact_method", "num_threads")
_SIMULATION = ("end_time", "enforce_realtime", "contact_method", "integrator", "solver", "visualization", "output", "num_threads")
_INTEGRATOR = (
    "type", "rel_tolerance", "abs_tolerance_states", "abs_tolerance_multipliers", "max_iterations", "use_stepsize_control",
    "use_modified_newton", "verbose",
)  # fmt: skip


def read(
    data: bytes | str, file: str, notes: Notes, *, gravity: Sequence[float] | None = None, dt: float | None = None
) -> ModelSpec:
    """ModelSpec of a Chrono YAML model file, or of the model that a simulation file names (a file in its own folder or below).

    gravity (3,), m/s^2, and dt, s: None: what the simulation and solver files say, else 0 0 -9.8 and 0.001.
    Raises ParseError, ValueError for options that are no such numbers; adds doubts and what is not used to ``notes``.
    """
    root = parse_yaml(data, file)
    option = _option(root, notes, gravity, dt)
    if root.kind("model") == "text":
        path = _beside(root, "model")
        document = parse_yaml(read_bytes(path), str(path))
        if document.kind("model") == "text":
            raise document.error("names another file; allowed: the model itself", "model")
        root.report_unread(notes)
    else:
        document = root
    spec = _model(document, notes)
    document.report_unread(notes)
    return replace(spec, option=option)


FORMAT = Format("chrono", "Chrono YAML", read, suffixes=(".yaml", ".yml"))


# ---- simulation and solver files -------------------------------------------------------------------------------------------------


def _option(root: Item, notes: Notes, gravity: Sequence[float] | None, dt: float | None) -> OptionSpec:
    """Gravity and step: as the caller says, as the simulation or solver file says, the format's defaults."""
    given = np.array([0.0, 0.0, -9.8]) if gravity is None else np.asarray(gravity, float)
    if given.shape != (3,) or not np.isfinite(given).all():
        raise ValueError(f"gravity: found {gravity!r}; allowed: three numbers")
    if dt is not None and not (math.isfinite(dt) and dt > 0):
        raise ValueError(f"dt: found {dt!r}; allowed: a number > 0")
    if root.kind("model") == "text" and root.has("type"):
        root.choice("type", ("MBS",))
    step = 0.001
    if root.kind("solver") == "text":
        path = _beside(root, "solver")
        solver = parse_yaml(read_bytes(path), str(path))
        step = _step(solver, step)
        solver.skip(*_BESIDE)
        solver.report_unread(notes)
    elif root.has("integrator"):
        step = _step(root, step)
    simulation = root.item("simulation")
    if simulation is not None:
        step = simulation.number("time_step", step, positive=True)
        found = simulation.vector("gravity", 3, given)
        given = found if gravity is None else given
        simulation.skip(*_SIMULATION)
    if simulation is not None or root.kind("model") == "text":
        root.skip(*_BESIDE)
    return OptionSpec(gravity=given, dt=step if dt is None else float(dt), integrator="linearly_implicit")


def _step(solver: Item, default: float) -> float:
    """The step that a solver file gives."""
    integrator = solver.item("integrator")
    if integrator is None:
        return default
    integrator.skip(*_INTEGRATOR)
    return integrator.number("time_step", default, positive=True)


def _beside(item: Item, key: str) -> Path:
    """The file that a key names: relative to the document's folder, and in it."""
    name, path, inside = item.text(key), None, False
    try:
        if Path(item.file).is_file():
            folder = Path(item.file).resolve().parent
            path = (folder / name).resolve()
            inside = path.is_relative_to(folder)
            if inside and path.is_file():
                return path
    except (OSError, RuntimeError, ValueError):  # no name of a file
        inside = True
    if path is None and not inside:
        raise item.error(f"{name[:80]!r} is relative to a file, and this document is none; allowed: reading from a file", key)
    if not inside:
        raise item.error(f"{name[:80]!r} leads out of the folder of the document; allowed: files in it", key)
    raise item.error(f"{name[:80]!r} is not a file; allowed: files in the folder of the document", key)


# ---- the model -------------------------------------------------------------------------------------------------------------------


def _model(document: Item, notes: Notes) -> ModelSpec:
    _version(document, notes)
    model = document.need("model")
    name, degrees = model.text("name", ""), model.boolean("angle_degrees", True)
    reading = Reading(notes, math.radians(1.0) if degrees else 1.0, _data_folder(model), [], [], {})
    if "bodies" not in model.keys:
        raise model.error("is missing", "bodies")
    velocities = []
    for item in _unique(model, "bodies"):
        body = read_body(item, reading)
        reading.number[body.link.name] = len(reading.links)
        reading.links.append(body.link)
        reading.centres.append(body.centre)
        velocities.append(body.velocity)

    into = Mechanism()
    for key, read_one in (("joints", read_joint), ("constraints", read_constraint), ("motors", read_motor)):
        for item in _unique(model, key):
            read_one(item, reading, into)
    for key, read_spring in (("tsdas", read_tsda), ("rsdas", read_rsda), ("spring_dampers", read_spring_damper)):
        into.forces += [force for item in _unique(model, key) if (force := read_spring(item, reading)) is not None]
    for key, read_loads in (("body_loads", read_load), ("load_controllers", read_load_controller)):
        into.forces += [force for item in _unique(model, key) for force in read_loads(item, reading)]

    tree = assemble(reading.links, into.joints)
    bodies = list(tree.bodies)
    for link, velocity in enumerate(velocities):
        i = tree.body_of_link[link]
        bodies[i] = replace(bodies[i], velocity=velocity)
    constraints = [*into.driven(tree), *(replace(c, bodies=_bodies(c.bodies, tree.body_of_link)) for c in into.constraints)]
    return ModelSpec(
        name=name,
        format="chrono",
        bodies=tuple(bodies),
        constraints=tuple(constraints),
        forces=tuple(_on_bodies(force, tree.body_of_link) for force in into.forces),
        source=document.source,
    )


def _on_bodies(force: ForceSpec, body_of_link: Sequence[int]) -> ForceSpec:
    return replace(force, bodies=_bodies(force.bodies, body_of_link))


def _bodies(links: Sequence[int], body_of_link: Sequence[int]) -> tuple[int, ...]:
    return tuple(body_of_link[link] for link in links)


def _version(document: Item, notes: Notes) -> None:
    version = document.text("chrono-version").strip()
    if not re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}(\.[0-9]{1,9})?", version):
        raise document.error(f"found {version[:80]!r}; allowed: a version such as 9.0 or 10.0.1", "chrono-version")
    if version.partition(".")[0] not in ("9", "10"):
        text = f"chrono-version: {version} is not known; read as 10.0"
        notes.suspicious(document.line_of("chrono-version"), text, document.file)


def _data_folder(model: Item) -> str:
    """What goes before the names of data files; none is opened."""
    data_path = model.item("data_path")
    if data_path is None:
        return ""
    relative = data_path.choice("type", ("ABSOLUTE", "RELATIVE")) == "RELATIVE"
    root = data_path.text("root", ".")
    return f"{root.rstrip('/')}/" if relative else ""


def _unique(model: Item, key: str) -> list[Item]:
    """The entries of a list, their names checked. Raises ParseError for a name that comes twice."""
    lines: dict[str, int] = {}
    items = model.items(key)
    for item in items:
        name = item.text("name")
        if name in lines:
            raise item.error(f"duplicate name (the first is in line {lines[name]}); allowed: different names", "name")
        lines[name] = item.line
    return items
