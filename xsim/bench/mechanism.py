"""A Model as data that other engines can read: an MJCF text with explicit inertias, an x_xy text, start states and forces.

A model that was read from MJCF is given to them as that file. Of any other the MJCF text has one body per moving body (bodies fixed to
another are merged into it), whose frame is its joint's, no geoms and no contact, friction, limits or couplings. Its coordinates are
xsim's: a root's free joint without an offset in orientation becomes ``free`` (q differs by the body's ``pos``), any other free joint
three slides and a ball.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim import models
from xsim.dynamics.constraints.holonomic import has_holonomic_rows
from xsim.dynamics.initial_state import init, project_constraints
from xsim.dynamics.queries import body_inertia, integrate
from xsim.load import load
from xsim.model.model import Model
from xsim.options import with_constraints, with_integrator
from xsim.poses import quat_from_matrix, rotation_matrix

__all__ = ["Push", "Refused", "as_mjcf", "describe", "load_model", "mjcf", "push", "start", "xxy"]


class Refused(ValueError):
    """The format cannot say this model; the text says why."""


def describe(model: Model, source: str | None) -> dict:
    """What a peer needs, as JSON: each format holds its text, or under ``refused`` the reason why it has none."""
    out: dict = {"name": model.topology.name, "nq": model.nq, "nv": model.nv, "bodies": len(model.body_names)}
    out["integrator"], out["dt"] = model.topology.integrator, float(_number(model, "option.dt"))
    out["gravity"] = _number(model, "option.gravity").tolist()
    for name, write in (("mjcf", lambda m: as_mjcf(m, source)), ("xxy", lambda m: xxy(m, source))):
        try:
            out[name] = write(model)
        except Refused as error:
            out[name] = {"refused": str(error)}
    return out


def load_model(source: str, rules: str | None, integrator: str | None, constraints: bool) -> Model:
    """A bundled model or a file; rules and integrator where they are not the file's; without its constraints unless they are asked for."""
    model = load(models.path(source) if source in models.names() else source, **({} if rules is None else {"rules": rules}))
    if integrator is not None:
        model = with_integrator(model, integrator)
    return model if constraints else with_constraints(model, ())


class Push(NamedTuple):
    """What moves each environment, the same at every step: generalized forces "tau" (batch, nv) or controls "ctrl" (batch, nu)."""

    kind: str
    values: jax.Array


def push(model: Model, batch: int, seed: int = 0) -> Push:
    """Scattered controls where the model has actuators, else scattered forces, but none on objects."""
    kind, width, size = ("ctrl", model.nu, 0.3) if model.topology.actuators else ("tau", model.nv, jnp.where(_of_objects(model), 0.0, 0.1))
    return Push(kind, size * jax.random.normal(jax.random.split(jax.random.key(seed))[1], (batch, width), model.option.dt.dtype))


NEAR = 0.02
"""Scatter of the coordinates, in m or rad, that a larger one would make unusable: it would push objects into each other."""


def _of_objects(model: Model) -> np.ndarray:
    """Which dofs (nv,) are those of objects: free bodies with nothing that moves on them."""
    top, out = model.topology, np.zeros(model.nv, bool)
    parents = {(link.body, top.links[link.parent].body if link.parent >= 0 else -1) for link in top.links}
    parents -= {(body, body) for body, _ in parents}  # a joint can be a chain of links
    carriers = {parent for _, parent in parents}
    for body, parent in parents:
        joints = top.bodies[body].joints
        if parent < 0 and body not in carriers and [joint.type for joint in joints] == ["free"]:
            first, width = joints[0].v
            out[first : first + width] = True
    return out


def start(model: Model, batch: int, seed: int = 0):
    """Scattered start configurations (batch, nq) near the one as loaded. Objects start near by, and closed loops, which are closed."""
    key_q, _ = jax.random.split(jax.random.key(seed))
    dtype = model.option.dt.dtype
    loaded = jnp.broadcast_to(jnp.asarray(model.topology.initial[0], dtype), (batch, model.nq))
    closed = has_holonomic_rows(model.topology)
    size = jnp.where(_of_objects(model) | closed, NEAR, 0.2)
    q = integrate(model, loaded, size * jax.random.normal(key_q, (batch, model.nv), dtype))
    if closed:
        q = project_constraints(model, init(model, q)).q
    return q


def _number(model: Model, path: str) -> np.ndarray:
    """A leaf as numpy; of environment 0 where it differs between environments."""
    leaf = model.get(path)
    value = np.asarray(getattr(leaf, "value", leaf), np.float64)
    width = len(model.shape(path))
    return value.reshape(-1, *value.shape[value.ndim - width :])[0] if value.ndim > width else value


# ---- MJCF --------------------------------------------------------------------------------------------------------------------

# Integrator of xsim: (MJCF integrator, whether joint damping is implicit).
INTEGRATORS = {
    "implicit": ("implicit", "enable"),
    "implicitfast": ("implicitfast", "enable"),
    "discrete": ("discrete", "enable"),
    "rk4_manifold": ("RK4", "disable"),
    "implicit_damping": ("Euler", "enable"),
    "euler": ("Euler", "disable"),
    "rk4": ("RK4", "disable"),
    "linearly_implicit": ("Euler", "enable"),
}  # the same rule without springs


def as_mjcf(model: Model, source: str | None) -> dict:
    """The file itself, under ``file``, where it is MJCF; else what `mjcf` writes. ``integrator``: MJCF's name and whether joint damping is
    implicit."""
    integrator = INTEGRATORS.get(model.topology.integrator)
    if integrator is None:
        raise Refused(f"MJCF has no integrator that says {model.topology.integrator}")
    written = {"file": str(Path(source).resolve())} if source and model.topology.rules else mjcf(model)
    return {**written, "integrator": integrator}


def mjcf(model: Model) -> dict:
    """``xml`` and what MJCF attributes cannot say: ``damping`` and ``armature`` per velocity; ``joints``: (name, q, v) of each joint in
    xsim's addresses; ``offset``: added to xsim's q to give MuJoCo's. Raises `Refused`.
    """
    top = model.topology
    if (_number(model, "body.gravity") != 1).any():
        raise Refused("gravity of single bodies is not translated")
    driven = set(top.drives) - {"passive", "force"}
    if driven:
        raise Refused(f"prescribed motion and servos are not translated ({', '.join(sorted(driven))})")
    integrator, implicit = INTEGRATORS[top.integrator]
    root = ElementTree.Element("mujoco", model=top.name or "model")
    ElementTree.SubElement(root, "compiler", angle="radian", balanceinertia="true", boundmass="1e-9", boundinertia="1e-9")
    option = {"timestep": repr(float(_number(model, "option.dt"))), "gravity": _text(_number(model, "option.gravity"))}
    option = ElementTree.SubElement(root, "option", integrator=integrator, **option)
    ElementTree.SubElement(option, "flag", contact="disable", constraint="disable", eulerdamp=implicit)
    world = ElementTree.SubElement(root, "worldbody")
    carrier, inertials = _merged(model)
    elements: dict[int, ElementTree.Element] = {-1: world}
    offset, joints = np.zeros(model.nq), []
    for i, body in enumerate(top.bodies):
        if carrier[i][0] != i:
            continue
        parent, shift, turn = _hung(model, carrier, i)
        pose = shift, _quaternion(turn)
        element = ElementTree.SubElement(elements[parent], "body", name=body.name, pos=_text(pose[0]), quat=_text(pose[1]))
        elements[i] = element
        _check_axes(model, body)
        for joint in _joints(model, i, parent == -1, pose, offset):
            joints.append((joint["name"], joint.pop("q"), joint.pop("v")))
            ElementTree.SubElement(element, "joint", joint)
        mass, com, inertia = inertials[i]
        ElementTree.SubElement(element, "inertial", pos=_text(com), mass=repr(float(max(mass, 1e-9))), fullinertia=_text(_six(inertia)))
    if not joints:
        raise Refused("nothing moves")
    return {
        "xml": ElementTree.tostring(root, "unicode"),
        "damping": _number(model, "dof.damping").tolist(),
        "armature": (_number(model, "dof.armature") + _number(model, "option.regularization")).tolist(),
        "joints": joints,
        "offset": offset.tolist(),
    }


def _joints(model: Model, index: int, at_root: bool, pose, offset) -> list[dict]:
    """MJCF joints of a body, in order. Writes the offset of a free joint's position."""
    top = model.topology
    body = top.bodies[index]
    if body.joint.type == "cor":
        raise Refused(f"body {body.name!r}: MJCF has no joint that says cor (9 velocities for 6 freedoms)")
    stiffness, reference = _number(model, "dof.stiffness"), _number(model, "joint.spring_ref")
    (q0, _), (v0, nv) = body.q, body.v
    if body.joint.type == "free" and at_root and abs(abs(pose[1][0]) - 1) < 1e-9 and not stiffness[v0 : v0 + nv].any():
        offset[q0 : q0 + 3] = pose[0]
        return [{"name": f"{body.name}.free", "type": "free", "q": q0, "v": v0}]
    out = []
    for k, link in enumerate(x for x in top.links if x.body == index):
        if link.kind not in KINDS:
            raise Refused(f"body {body.name!r}: MJCF has no {link.kind} joint")
        joint = {"name": f"{body.name}.{k}", "type": KINDS[link.kind], "q": link.q, "v": link.v}
        stiff = stiffness[link.v : link.v + link.nv]
        if np.ptp(stiff) > 1e-9 * stiff.max():
            raise Refused(f"body {body.name!r}: MJCF has one stiffness for a ball joint, the model has {stiff.tolist()}")
        joint["stiffness"] = repr(float(stiff[0]))
        if link.kind == "ball":
            if stiff.any() and not np.allclose(np.abs(reference[link.q]), 1):
                raise Refused(f"body {body.name!r}: MJCF has no spring reference for a ball joint")
        else:
            joint["springref"] = repr(float(reference[link.q]))
            axis = _number(model, "joint.axes")[link.axis] if isinstance(link.axis, int) else link.axis
            joint["axis"] = _text(axis)
        out.append(joint)
    return out


KINDS = {"hinge": "hinge", "slide": "slide", "ball": "ball"}


def _check_axes(model: Model, body) -> None:
    """Refuse what MuJoCo cannot do: damping along axes that are neither the joint's nor, where it does not matter, others."""
    if body.joint.damper_axes == "parent" and np.ptp(_number(model, "dof.damping")[slice(body.v[0], sum(body.v))]) > 1e-12:
        raise Refused(f"body {body.name!r}: damping of a free body along its parent's axes")
    if body.joint.spring_law == "components" and _number(model, "dof.stiffness")[slice(body.v[0], sum(body.v))].any():
        raise Refused(f"body {body.name!r}: a spring on the components of a rotation vector")
    v = slice(body.v[0], body.v[0] + 3)
    for law, leaf in ((body.joint.damper_axes, "dof.damping"), (body.joint.armature_axes, "dof.armature")):
        if law == "body" and body.joint.type in ("free", "cor", "planar") and np.ptp(_number(model, leaf)[v]) > 1e-12:
            raise Refused(f"body {body.name!r}: {leaf} along body axes differs between axes, which MJCF cannot say")


def _merged(model: Model):
    """carrier: for each body the moving body it is part of (-1: the world) and its pose in that body's joint frame; inertials of the
    carriers."""
    mass, com, inertia = (np.asarray(x, np.float64) for x in body_inertia(model))
    if mass.ndim > 1:
        mass, com, inertia = mass[0], com[0], inertia[0]
    carrier: list[tuple] = []
    parts: dict[int, list] = {}
    for i, body in enumerate(model.topology.bodies):
        host, shift, turn = (i, np.zeros(3), np.eye(3)) if body.v[1] else _hung(model, carrier, i)
        if body.frame is not None:
            joint_turn = turn @ rotation_matrix(_number(model, "joint.quat")[body.frame]).T
            shift, turn = shift - joint_turn @ _number(model, "joint.pos")[body.frame], joint_turn
        carrier.append((host, shift, turn))
        host, shift, turn = carrier[i]
        parts.setdefault(host, []).append((mass[i], shift + turn @ com[i], turn @ _square(inertia[i]) @ turn.T))
    return carrier, {host: _sum(inertials) for host, inertials in parts.items()}


def _hung(model: Model, carrier, index: int):
    """The moving body that a body hangs on (-1: the world), and position and rotation matrix of its joint frame there."""
    parent = model.topology.bodies[index].parent
    host, shift, turn = carrier[parent] if parent >= 0 else (-1, np.zeros(3), np.eye(3))
    return host, shift + turn @ _number(model, "body.pos")[index], turn @ rotation_matrix(_number(model, "body.quat")[index])


def _sum(parts):
    """Mass, centre of mass and inertia about it of rigidly joined parts."""
    mass = sum(m for m, _, _ in parts)
    centre = sum((m * c for m, c, _ in parts), np.zeros(3)) / mass if mass > 0 else np.zeros(3)
    inertia = np.zeros((3, 3))
    for m, c, about_com in parts:
        d = c - centre
        inertia += about_com + m * (d @ d * np.eye(3) - np.outer(d, d))
    return mass, centre, inertia


def _square(six) -> np.ndarray:
    xx, yy, zz, xy, xz, yz = six
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _six(m) -> np.ndarray:
    return np.array([m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]])


def _quaternion(m) -> np.ndarray:
    """The quaternion of a rotation matrix whose first number is not negative."""
    quat = quat_from_matrix(m)
    return quat if quat[0] >= 0 else -quat


def _text(x) -> str:
    return " ".join(repr(float(v)) for v in np.ravel(x))


# ---- x_xy --------------------------------------------------------------------------------------------------------------------


def xxy(model: Model, source: str | None) -> dict:
    """``xml`` in RING's dialect, ``axes``: {body: random axes}, and ``layout``: (joint type, q, v) of each body in xsim's addresses."""
    path = Path(source) if source else None
    if path is None or not path.is_file() or not (root := _xml_root(path)).tag == "x_xy":
        raise Refused("RING reads x_xy files only")
    top = model.topology
    for body in top.bodies:
        if body.joint.type == "cor":
            raise Refused(f"body {body.name!r}: RING refuses joint cor in a file")
    if "name" in root.attrib:
        root.attrib["model"] = root.attrib.pop("name")
    for geom in root.iter("geom"):
        if "size" in geom.attrib:
            geom.attrib["dim"] = geom.attrib.pop("size")
    axes = _number(model, "joint.axes")
    random_axes = {b.name: axes[list(b.joint.axes)].tolist() for b in top.bodies if b.joint.type in ("rr", "rr_imp", "rsaddle")}
    return {
        "xml": ElementTree.tostring(root, "unicode"),
        "axes": random_axes,
        "layout": [(b.name, b.joint.type, b.q[0], b.v[0], b.q[1], b.v[1]) for b in top.bodies],
    }


def _xml_root(path: Path):
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise Refused("RING reads x_xy files only") from error
