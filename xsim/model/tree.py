"""From the bodies of a ModelSpec to links, addresses and the numbers of joints: the part of `build` that numbers the tree."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from xsim.joints.elementary import draw_parameters
from xsim.joints.types import JOINT_TYPES, GeneralJoint, JointType
from xsim.model.model import ROW_LEAVES
from xsim.model.topology import BodyInfo, JointInfo, Link
from xsim.spec import ACTUATORS, BodySpec, JointSpec, ModelSpec

__all__ = ["Tree", "fail", "number_tree", "unit_quat"]


def fail(source, text: str) -> NoReturn:
    raise ValueError(f"{source}: {text}")


class Tree:
    """What the bodies of a spec come to. frames: (pos, quat) of the joints that have a frame of their own. rowed: (dof, number) of what
    only some dofs have, by leaf. dofs, spring_ref, neutral, q0, v0: one number per dof or coordinate."""

    def __init__(self):
        self.bodies: list[BodyInfo] = []
        self.links: list[Link] = []
        self.axes: list[np.ndarray] = []
        self.pitch: list[float] = []
        self.params: dict[str, list] = {}
        self.frames: list[tuple[np.ndarray, np.ndarray]] = []
        self.refs: list[float] = []
        self.spring_dampers: list[tuple[float, float]] = []
        self.gravcomp: list[float] = []
        self.mocaps: list[BodySpec] = []
        self.explicit: list = []
        self.weights: list[float] = []
        self.dofs: dict[str, list[float]] = {"damping": [], "armature": [], "stiffness": []}
        self.spring_ref: list[float] = []
        self.neutral: list[float] = []
        self.q0: list[float] = []
        self.v0: list[float] = []
        self.drives: list[str] = []
        self.rowed: dict[str, list[tuple[int, float]]] = {leaf: [] for leaf in ROW_LEAVES}

    nq = property(lambda self: len(self.neutral))
    nv = property(lambda self: len(self.drives))


def number_tree(spec: ModelSpec, key) -> Tree:
    """Links and numbers of all bodies. key: for the joint parameters that are drawn. Raises ValueError where the spec is inconsistent."""
    tree, names = Tree(), set()
    for index, body in enumerate(spec.bodies):
        if not -1 <= body.parent < index:
            fail(body.source, f"body {body.name!r}: parent {body.parent} does not come before it")
        if body.name in names:
            fail(body.source, f"two bodies are named {body.name!r}")
        names.add(body.name)
        _add_body(tree, body, key)
    return tree


def _add_body(tree: Tree, body: BodySpec, key) -> None:
    assert isinstance(body.joints, tuple)
    q, v = tree.nq, tree.nv
    link = tree.bodies[body.parent].link if body.parent >= 0 else -1
    if len(body.joints) > 1 and not all(j.anchored for j in body.joints):
        fail(body.source, f"body {body.name!r}: several joints must be anchored in the body")
    joints = []
    for place, joint in enumerate(body.joints):
        info, link = _add_joint(tree, body, place, joint, link, key)
        joints.append(info)
    tree.bodies.append(
        BodyInfo(
            name=body.name,
            parent=body.parent,
            joints=tuple(joints),
            link=link,
            q=(q, tree.nq - q),
            v=(v, tree.nv - v),
            explicit=None if body.inertial is None else _entered(tree.explicit, body.inertial),
            pos_min=None if body.pos_min is None else tuple(map(float, body.pos_min)),
            pos_max=None if body.pos_max is None else tuple(map(float, body.pos_max)),
            gravity=None if body.gravity == 1.0 else _entered(tree.weights, body.gravity),
            gravcomp=_entered(tree.gravcomp, body.gravcomp) if body.gravcomp else None,
            mocap=_entered(tree.mocaps, body) if body.mocap else None,
            principal=(1.0, 0.0, 0.0, 0.0) if body.principal is None else tuple(map(float, body.principal)),
        )
    )


def _entered(store: list, item) -> int:
    """Append an item; its row."""
    store.append(item)
    return len(store) - 1


def _add_joint(tree: Tree, body: BodySpec, place: int, joint: JointSpec, link: int, key) -> tuple[JointInfo, int]:
    """The joint and the last link of the body so far."""
    kind = JOINT_TYPES.get(joint.type)
    if kind is None:
        fail(body.source, f"body {body.name!r}: unknown joint type {joint.type!r}; known: {', '.join(JOINT_TYPES)}")
    values = _parameters(body, joint, kind, key)
    first_axis, first_pitch, row = len(tree.axes), len(tree.pitch), None
    if any(isinstance(j, GeneralJoint) for j in kind.chain):
        row = sum(j.type == joint.type for b in tree.bodies for j in b.joints)
        for name, value in values.items():
            tree.params.setdefault(f"{kind.name}.{name}", []).append(value)
    else:
        tree.axes.extend(np.reshape(values.get("axes", np.zeros((0, 3))), (-1, 3)))
        tree.pitch.extend(np.reshape(values.get("pitch", ()), -1))
        if any(not np.linalg.norm(axis) > 1e-9 for axis in tree.axes[first_axis:]):
            fail(body.source, f"body {body.name!r}: a joint axis is zero")
    ref = None
    if joint.ref:
        if kind.name not in ("hinge", "slide"):
            fail(body.source, f"body {body.name!r}: a {kind.name} joint has no reference position")
        ref = _entered(tree.refs, joint.ref)
    q, v = tree.nq, tree.nv
    for position, part in enumerate(kind.chain):
        axis = None if isinstance(part, GeneralJoint) else part.axis
        tree.links.append(
            Link(
                kind=part.kind,
                parent=link,
                body=len(tree.bodies),
                joint=place,
                first=position == 0,
                q=q + sum(p.nq for p in kind.chain[:position]),
                v=v + sum(p.nv for p in kind.chain[:position]),
                nq=part.nq,
                nv=part.nv,
                axis=first_axis + axis if isinstance(axis, int) else axis,
                pitch=first_pitch if part.kind == "screw" else None,
                general=row,
                ref=ref,
            )
        )
        link = len(tree.links) - 1
    _add_numbers(tree, body, joint, kind)
    framed = np.any(joint.pos) or np.any(np.asarray(joint.quat)[1:])
    info = JointInfo(
        name=joint.name or body.name,
        type=kind.name,
        q=(q, kind.nq),
        v=(v, kind.nv),
        damper_axes=_choice(body, joint, "damper_axes", ("joint", "body", "parent")),
        armature_axes=_choice(body, joint, "armature_axes", ("joint", "body")),
        spring_law=_choice(body, joint, "spring_law", ("rotation", "components")),
        axes=tuple(range(first_axis, len(tree.axes))),
        general=row,
        frame=_entered(tree.frames, (joint.pos, unit_quat(body.source, joint.quat))) if framed else None,
        anchored=joint.anchored,
        spring_damper=None if joint.spring_damper is None else _entered(tree.spring_dampers, joint.spring_damper),
        actuator_gravcomp=joint.actuator_gravcomp,
    )
    return info, link


def _add_numbers(tree: Tree, body: BodySpec, joint: JointSpec, kind: JointType) -> None:
    """What the joint has per coordinate and per dof."""
    v = tree.nv
    for name, store in tree.dofs.items():
        numbers = _vector(body, joint, name, getattr(joint, name), kind.nv, np.zeros(kind.nv))
        if (numbers < 0).any():
            fail(body.source, f"body {body.name!r}: {name} is negative")
        store.extend(numbers)
    drawn = kind.neutral + joint.ref if joint.ref else kind.neutral
    tree.spring_ref.extend(_vector(body, joint, "spring_ref", joint.spring_ref, kind.nq, drawn))
    tree.neutral.extend(drawn)
    tree.q0.extend(_vector(body, joint, "q0", joint.q0, kind.nq, drawn))
    tree.v0.extend(_vector(body, joint, "v0", joint.v0, kind.nv, np.zeros(kind.nv)))
    if _choice(body, joint, "actuator", ACTUATORS) == "locked" and np.any(tree.v0[v:]):
        fail(body.source, f"body {body.name!r}: a locked joint cannot start with a velocity")
    tree.drives.extend([joint.actuator] * kind.nv)
    _add_rows(tree, body, joint, v, kind.nv)


def _add_rows(tree: Tree, body: BodySpec, joint: JointSpec, v: int, nv: int) -> None:
    """Numbers that only some dofs have, with their dofs."""
    if joint.friction is not None:
        friction = np.asarray(joint.friction, np.float64)
        if friction.shape != (nv,) or (friction < 0).any():
            fail(body.source, f"body {body.name!r}: friction must be {nv} numbers >= 0, found {friction}")
        tree.rowed["dof.friction"] += [(v + i, x) for i, x in enumerate(friction) if not np.isnan(x)]
    if joint.actuator_force_range is not None:
        for side, x in zip(("lower", "upper"), joint.actuator_force_range, strict=True):
            tree.rowed[f"limit.actuator_{side}"] += [(v + i, x) for i in range(nv)]
    if joint.angle_limit is not None:
        tree.rowed["limit.angle"].append((v, joint.angle_limit))
    for name, stem in (("position_range", ""), ("velocity_range", "velocity_"), ("force_range", "force_")):
        value = getattr(joint, name)
        if value is None:
            continue
        value = np.asarray(value, np.float64)
        if value.shape != (nv, 2) or np.isnan(value).any() or (value[:, 0] > value[:, 1]).any():
            fail(body.source, f"body {body.name!r}: {name} must be {nv} pairs, lower bound first; found {value}")
        for i, pair in enumerate(value):
            for side, x in zip(("lower", "upper"), pair, strict=True):
                if np.isfinite(x):
                    tree.rowed[f"limit.{stem}{side}"].append((v + i, x))


def _parameters(body: BodySpec, joint: JointSpec, kind: JointType, key) -> dict[str, np.ndarray]:
    unknown = set(joint.params) - set(kind.parameters)
    if unknown:
        fail(body.source, f"body {body.name!r}: joint {kind.name} has no parameter {', '.join(sorted(unknown))}")
    drawn = {}
    if any(p.draw is not None and name not in joint.params for name, p in kind.parameters.items()):
        drawn = draw_parameters(kind, key, body.name)
    out = {}
    for name, p in kind.parameters.items():
        value = joint.params.get(name, drawn.get(name, p.default))
        value = np.asarray(value, np.float64)
        if value.shape != p.shape or not np.isfinite(value).all():
            fail(body.source, f"body {body.name!r}: joint parameter {name} must be {p.shape} finite numbers, found {value.shape}")
        out[name] = value
    return out


def _vector(body: BodySpec, joint: JointSpec, name: str, value, width: int, default) -> np.ndarray:
    value = np.asarray(default if value is None else value, np.float64)
    if value.shape != (width,) or not np.isfinite(value).all():
        fail(body.source, f"body {body.name!r}: {name} must be {width} finite numbers for joint {joint.type}, found {value}")
    return value


def _choice(body: BodySpec, joint: JointSpec, name: str, known: tuple[str, ...]) -> str:
    value = getattr(joint, name)
    if value not in known:
        fail(body.source, f"body {body.name!r}: {name} must be one of {', '.join(known)}; found {value!r}")
    return value


def unit_quat(source, quat) -> np.ndarray:
    """A quaternion of length 1. Raises ValueError for one of length 0."""
    quat = np.asarray(quat, np.float64)
    norm = np.linalg.norm(quat)
    if quat.shape != (4,) or not norm > 1e-9:
        fail(source, f"orientation {quat} is not a quaternion")
    return quat / norm
