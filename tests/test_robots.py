"""Robots of packages of the index, which many hands wrote: all that MuJoCo (MJCF) or Pinocchio (URDF) load, against the engines' numbers.

    python -m pytest -n 2 -m nightly tests/test_robots.py

`packages` installs files and engines once. Nothing is compiled: a model is evaluated at three states only. No file is a special case: what
MuJoCo's release does against its manual is told by the model's elements (`bugs`). A table at the end of the run counts the files.
"""

from __future__ import annotations

import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import packages
import pytest
from comparing import close
from lxml import etree
from memory import PROC, drop_programs, resident
from test_conformance_mjcf import (
    CLOSE,
    CONSTANT,
    FRAMES,
    LARGE,
    ROUGH,
    SMALL,
    Case,
    bugs,
    check_contacts,
    check_states,
    precision,
    states,
)
from traced import traced

import xsim
from xsim.io import ParseError
from xsim.io.mjcf.inertia import body_inertial
from xsim.io.solids import tensor
from xsim.joints.types import JOINT_TYPES
from xsim.poses import rotation_matrix

pytestmark = pytest.mark.nightly

RULES = "3.2"
PARTS = {"gymnasium-robotics": 6, "dm_control": 6, "metaworld": 8, "safety-gymnasium": 1}
"""Packages with MJCF, in so many tests each."""
URDF, URDF_PARTS = "example-robot-data", 4
FINE = {"mass matrix": 1e-8, "bias": 1e-8, "passive": 1e-8}
"""Without meshes, which 3.2.7 keeps in single precision. Other numbers: `precision`."""
MASSES = {CLOSE: 2e-8, ROUGH: 3e-6}
"""Precision of the masses of bodies, and of the mass matrix in units of its diagonal, by that of the model."""
PAIRS = 500  # of geoms: to look for the contacts of more takes minutes
MEMORY = 2.5e9  # bytes, above which what jax keeps of earlier files is dropped: parts of their programs are the same
# 3.2.7 ends its search for a body's principal axes where a turn by this angle is left, or moments of this size, kg m^2 (4.0.0 goes on, to
# xsim's numbers).
ANGLE, MOMENT = 2e-6, 1.5e-12
NORMAL = 1e-5  # of contacts of thin shapes: frames of a body that differ by less than 1e-6 are one to the engine
SINGLE = 2.0**-24  # rounding of single precision
# Of an inertia, left by that search or by single precision; and what it does to accelerations (1.6e-6 at most, 4.0.0: 2e-11).
NOISE, NOISY = 1e-9, 3e-6


class Differences(list):
    """Of one file's numbers: what `close` says."""

    def close(self, *args) -> None:
        try:
            close(*args)
        except AssertionError as error:
            self.append(str(error))

    def equal(self, name: str, found, wanted) -> None:
        if found != wanted:
            self.append(f"{name}: {found}, the engine has {wanted}")


def _report(name: str, counts: Counter, texts: list[str], record_property) -> None:
    """Count what was found, and fail on what is wrong."""
    record_property("counts", [name, dict(counts)])
    assert not texts, "\n".join(texts)


def _judge(path: Path, root: Path, known: dict, compare, counts: Counter, texts: list[str], **options) -> None:
    """Read one file and compare it. What the engine refuses, or takes for an empty world, is no model."""
    counts["files"] += 1
    name = path.relative_to(root)
    model = "error" not in known and known.get("size", {}).get("nbody", 2) + known.get("size", {}).get("ngeom", 0) > 1
    counts["no model"] += not model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = xsim.parse(path, **options)
    except ParseError as error:
        counts["refused"] += model
        texts += [f"{name} refused: {error}"] * model
        return
    if not model:
        return
    counts["loaded"] += 1
    differences = Differences()
    compare(path, source, known, differences, counts)
    counts["differ" if differences else "agree"] += 1
    texts += [f"{name}: {text}" for text in differences]
    if PROC.exists() and resident() > MEMORY:
        drop_programs()


# ---- MJCF ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in PARTS.items() for part in range(parts)])
def test_mjcf(name, part, x64, record_property):
    root = packages.robots(name)
    paths = [path for path in sorted(root.rglob("*.xml")) if _is_mjcf(path)][part :: PARTS[name]]
    counts, texts = Counter(), []
    for path, known in zip(paths, packages.ask("mujoco", "facts_mujoco.py", paths), strict=True):
        _judge(path, root, known, _compare_mjcf, counts, texts, format="mjcf", rules=RULES)
    _report(f"{name} {packages.version(name)}", counts, texts, record_property)


def _is_mjcf(path: Path) -> bool:
    root = etree.fromstring(path.read_bytes(), etree.XMLParser(recover=True))
    return root is not None and root.tag == "mujoco"


def _document(path: Path, folder: Path) -> ElementTree.Element:
    """With the contents of included files, whose paths start at the folder of the main file or at their own."""
    root = ElementTree.parse(path).getroot()
    for parent in list(root.iter()):
        for include in parent.findall("include"):
            file = include.get("file", "")
            own = next(place / file for place in (folder, path.parent) if (place / file).exists())
            parent.extend(list(_document(own, folder)))
    return root


def _compare_mjcf(path: Path, source: xsim.ModelSpec, known: dict, differences: Differences, counts: Counter) -> None:
    root = _document(path, path.parent)
    both = states(known) + [known["states"][name] for name in known["states"] if name == "settled"]
    model = _with_contact_limit(xsim.build(source), both)
    wrong, exact = bugs(root, source, model.nv), precision(root, source)
    adhesive = any(a.transmission == "body" for a in source.actuators)  # its forces depend on contacts

    _compare_elements(source, model, known, differences)
    noise = _compare_inertias(source, known["bodies"], MASSES[exact], differences) if source.bodies and "mass matrix" not in wrong else 0.0
    noisy = noise > NOISE or exact == ROUGH

    def near(name, found, wanted, allowed=exact):
        scale = np.abs(wanted).max(initial=SMALL)
        if exact == CLOSE:
            allowed = min(allowed, FINE.get(name, allowed))
        if name == "mass matrix":  # in units of its diagonal too
            unit = np.sqrt(np.diag(wanted))
            units, rough = np.outer(unit, unit), max(MASSES[exact], noise, MOMENT / unit.min() ** 2)
            differences.close(f"{name} in units of its diagonal", found / units, wanted / units, rough)
        elif name.endswith("acceleration"):
            allowed = max(allowed, NOISY if noisy else 0.0)
        elif name.endswith(("position", "axes")):
            allowed, scale = max(allowed, ANGLE + 2 * FRAMES if name.endswith("axes") else 0.0), max(scale, 1.0)
        differences.close(name, found, wanted, allowed, scale)

    q, v, ctrl, act = (np.array([s[k] for s in both], float) for k in ("qpos", "qvel", "ctrl", "act"))
    state, ctrl = xsim.init(model, q, v).replace(act=jnp.asarray(act)), ctrl if model.nu else None
    model = model.freeze(*CONSTANT)
    contacts, own = _compare_contacts(source, model, both, q, wrong, differences, counts)
    bare = xsim.with_constraints(model, ())
    if model.nv and "acceleration" not in wrong and not adhesive:
        smooth = traced(partial(_smooth, bare), state, ctrl)(state, ctrl)
        near("smooth acceleration", smooth, [s["qacc_smooth"] for s in both])
    if model.nv > LARGE:
        _compare_products(bare, q, v, both, near)
        model, wrong = bare, wrong | ({"actuator", "acceleration"} if adhesive else set())
        counts["constraints not compared"] += 1
    check_states(Case(source, model, both, wrong, near, exact, contacts, own, partial(_noise, source)), state, ctrl)


def _noise(source: xsim.ModelSpec, geom) -> tuple[float, float]:
    """What 3.2.7 may have wrong in the frame of a mesh: the integrals of thin ones cancel, and the search for axes ends early. 4.0.0 has
    xsim's."""
    if geom.shape != "mesh":
        return 0.0, 0.0
    mesh = source.meshes[geom.asset]
    rounding = SINGLE * mesh.area**1.5 / max(mesh.volume, 1e-300)
    gap = mesh.volume * np.diff(np.sort(mesh.moments)).min()
    return rounding * np.abs(mesh.vertices).max(), rounding + MOMENT / max(gap, 1e-300)


def _with_contact_limit(model: xsim.Model, both: list[dict]) -> xsim.Model:
    """A limit that holds all contacts of the states, where that is more than the default."""
    most = max(s["ncon"] for s in both)
    return xsim.with_contact_limit(model, most) if most > max(32, 2 * model.nv) else model


def _compare_contacts(source, model: xsim.Model, both: list[dict], q, wrong: set[str], differences: Differences, counts: Counter):
    """What `check_contacts` gives; no contacts where there are too many pairs to look."""
    if len(model.topology.pairs) > PAIRS:
        counts["contacts not compared"] += 1
        return [None] * len(both), False
    try:
        contacts, own = check_contacts(source, model, both, q, wrong, NORMAL)
    except AssertionError as error:
        differences.append(str(error))
        return [None] * len(both), False
    counts["same contacts"] += own and any(s["ncon"] for s in both)
    return contacts, own


def _smooth(model: xsim.Model, state: xsim.State, ctrl):
    return xsim.smooth_acceleration(model, state.q, state.v, None, ctrl, state.time, state.act)


def _compare_elements(source: xsim.ModelSpec, model: xsim.Model, known: dict, differences: Differences) -> None:
    """Sizes, and names in their order."""
    size, names = known["size"], known["names"]
    elements = {
        "joint": [j for b in source.bodies for j in b.joints], "geom": [*source.world_geoms, *(g for b in source.bodies for g in b.geoms)],
        "site": source.sites, "camera": source.cameras, "light": source.lights, "tendon": source.tendons, "actuator": source.actuators,
        "sensor": source.sensors, "equality": source.equalities, "mesh": source.meshes, "key": source.keys,
    }  # fmt: skip
    for kind, found in elements.items():
        differences.equal(f"{kind} names", [x.name or "" for x in found], names[kind])
    bodies = names["body"][1:]  # xsim names those without
    differences.equal("body names", [b.name if wanted else "" for b, wanted in zip(source.bodies, bodies, strict=True)], bodies)
    found = {"nq": model.nq, "nv": model.nv, "nu": model.nu, "na": model.na, "npair": len(source.pairs), "nexclude": len(source.exclude),
             "nhfield": len(source.hfields), "nsensordata": sum(s.dim for s in source.sensors)}  # fmt: skip
    differences.equal("sizes", found, {name: size[name] for name in found})


def _compare_inertias(source: xsim.ModelSpec, known: dict, allowed: float, differences: Differences) -> float:
    """Mass, centre and inertia of each body, those that cannot move too. Gives the largest difference of an inertia, in units of it."""
    rough, worst = max(allowed, ANGLE), 0.0
    for body, mass, com, inertia in zip(source.bodies, *(known[key][1:] for key in ("mass", "com", "inertia")), strict=True):
        mine = body_inertial(body, source.meshes)
        differences.close(f"mass of {body.name}", mine.mass, mass, allowed, mass or 1.0)
        differences.close(f"inertia of {body.name}", tensor(mine.inertia), inertia, rough, np.abs(inertia).max() + MOMENT / rough)
        if mass:  # else it is nowhere
            differences.close(f"centre of mass of {body.name}", mine.com, com, allowed)
            worst = max(worst, np.abs(tensor(mine.inertia) - inertia).max() / np.abs(inertia).max(initial=1e-300))
    return worst


def _compare_products(model: xsim.Model, q, v, both: list[dict], near) -> None:
    """The columns of a large mass matrix by inverse dynamics: a far shorter program than the matrix."""
    for i, s in enumerate(both):
        lanes = np.vstack([np.zeros(model.nv), np.eye(model.nv)])
        given = np.broadcast_to(q[i], (len(lanes), model.nq)), np.broadcast_to(v[i], lanes.shape), lanes
        if i == 0:
            inverse = traced(partial(xsim.inverse_dynamics, model), *given)
        forces = inverse(*given)
        near("mass matrix", forces[1:] - forces[0], np.array(s["M"]))


# ---- URDF ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(URDF_PARTS))
def test_urdf(part, x64, record_property):
    root = packages.robots(URDF)
    paths = sorted(root.rglob("*.urdf"))[part::URDF_PARTS]
    counts, texts = Counter(), []
    for path, known in zip(paths, packages.ask("pin", "facts_pinocchio.py", paths), strict=True):
        _judge(path, root, known, _compare_urdf, counts, texts)
    _report(f"{URDF} {packages.version(URDF)}", counts, texts, record_property)


def _compare_urdf(path: Path, source: xsim.ModelSpec, known: dict, differences: Differences, counts: Counter) -> None:
    """Mass matrix and bias in Pinocchio's coordinates: v = T v_pinocchio, whose velocity of a free root is along the root's axes."""
    floating = source.bodies[0].joint.type == "free"
    theirs = known["free" if floating else "fixed"]
    model = xsim.build(source).replace({"option.gravity": np.array(theirs["gravity"][:3])})
    model = xsim.with_constraints(model.freeze("*"), ())
    q, T, rate = _coordinates(source, model, theirs)
    v = T @ theirs["v"]
    mass, bias = traced(lambda q, v: (xsim.mass_matrix(model, q), xsim.bias(model, q, v)), q, v)(q, v)
    differences.close("mass matrix", T.T @ mass @ T, theirs["M"], 1e-8)
    differences.close("bias", T.T @ (bias + mass @ rate), theirs["bias"], 1e-8)


def _coordinates(source: xsim.ModelSpec, model: xsim.Model, theirs: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, T and (dT/dt) v_pinocchio."""
    q, T, rate, joints, at_q, at_v = np.zeros(model.nq), np.zeros((model.nv, model.nv)), np.zeros(model.nv), dict(theirs["joints"]), 0, 0
    for body in source.bodies:
        kind = JOINT_TYPES[body.joint.type]
        if kind.nv:
            free = body.joint.type == "free"
            own = joints.pop("root_joint" if free else body.joint.name)
            x, u = (np.array(theirs[key][own[key][0] : sum(own[key])]) for key in ("q", "v"))
            T[at_v : at_v + kind.nv, own["v"][0] : sum(own["v"])] = np.eye(kind.nv)
            if free:
                q[at_q : at_q + 7] = x[[0, 1, 2, 6, 3, 4, 5]]
                turn = rotation_matrix(q[at_q + 3 : at_q + 7])
                T[at_v : at_v + 3, own["v"][0] : own["v"][0] + 3] = turn
                rate[at_v : at_v + 3] = turn @ np.cross(u[3:], u[:3])
            else:  # a continuous joint is cosine and sine to Pinocchio
                q[at_q] = np.arctan2(x[1], x[0]) if len(x) == 2 else x[0]
        at_q, at_v = at_q + kind.nq, at_v + kind.nv
    assert not joints, f"joints that xsim has not: {sorted(joints)}"
    return q, T, rate
