"""From the bodies of a ModelSpec to links, addresses and the numbers of joints: the part of `build` that numbers the tree."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from xsim.joints.elementary import draw_parameters
from xsim.joints.types import JOINT_TYPES, GeneralJoint, JointType
from xsim.model.leaf_rows import LeafRows
from xsim.model.model import ROW_LEAVES
from xsim.model.topology import BodyInfo, JointInfo, Link
from xsim.spec import ACTUATORS, BodySpec, JointSpec, ModelSpec

__all__ = ["Tree", "fail", "number_tree", "unit_quat"]

COMMANDED = ("force", "acceleration", "velocity", "servo")
"""Drives of joints that take a command."""


def fail(source, text: str) -> NoReturn:
    raise ValueError(f"{source}: {text}")


class Tree:
    """Bodies, joints and links in order. rows: of the leaves. dof_rows: the dofs of the rows that only some dofs have, by leaf. neutral,
    q0: one number per coordinate; v0, drives: one per dof. nplastic: width of `State.plastic`."""

    def __init__(self, rows: LeafRows):
        self.rows = rows
        self.bodies: list[BodyInfo] = []
        self.links: list[Link] = []
        self.params: dict[str, list] = {}
        self.mocaps: list[BodySpec] = []
        self.neutral: list[float] = []
        self.q0: list[float] = []
        self.v0: list[float] = []
        self.drives: list[str] = []
        self.nplastic = 0
        self.dof_rows: dict[str, list[int]] = {leaf: [] for leaf in ROW_LEAVES}

    nq = property(lambda self: len(self.neutral))
    nv = property(lambda self: len(self.drives))

    def add_plastic(self, width: int) -> int:
        """The address of new numbers in `State.plastic`."""
        self.nplastic += width
        return self.nplastic - width

    def structure(self, spec: ModelSpec) -> dict[str, tuple]:
        """Fields of the Topology."""
        return {
            "bodies": tuple(self.bodies),
            "links": tuple(self.links),
            "neutral": tuple(map(float, self.neutral)),
            "initial": (tuple(map(float, self.q0)), tuple(map(float, self.v0))),
            "velocities": tuple(
                (i, tuple(map(float, b.velocity)))
                for i, b in enumerate(spec.bodies) if b.velocity is not None and self.bodies[i].link >= 0
            ),
            "dof_rows": tuple((path, tuple(dofs)) for path, dofs in self.dof_rows.items()),
            "drives": tuple(self.drives),
            "commands": tuple(i for i, drive in enumerate(self.drives) if drive in COMMANDED),
        }  # fmt: skip

    def joint_parameters(self) -> dict[str, np.ndarray]:
        """Parameters of general joints, rows by ``type.name``."""
        return {name: np.stack(values) for name, values in self.params.items()}

    def add_dof_row(self, path: str, dof: int, value: float) -> None:
        """A number that only some dofs have."""
        self.dof_rows[path].append(dof)
        self.rows.add(path, value)


def number_tree(spec: ModelSpec, key, rows: LeafRows) -> Tree:
    """Links and numbers of all bodies. key: for random joint parameters. Raises ValueError where the spec is inconsistent."""
    tree, names, parents = Tree(rows), set(), {body.parent for body in spec.bodies}
    for index, body in enumerate(spec.bodies):
        if not -1 <= body.parent < index:
            fail(body.source, f"body {body.name!r}: parent {body.parent} does not come before it")
        if body.name in names:
            fail(body.source, f"two bodies are named {body.name!r}")
        names.add(body.name)
        _add_body(tree, body, key, index not in parents and _only_slides(spec, body))
    return tree


def _only_slides(spec: ModelSpec, body: BodySpec) -> bool:
    """`BodyInfo.only_slides` of a body without children."""
    above = None if body.parent < 0 else spec.bodies[body.parent]
    if not body.aligned or above is not None and (above.parent >= 0 or above.joints):
        return False
    slides = [j for j in body.joints if j.type == "slide" and not j.pos.any() and np.count_nonzero(j.params["axes"]) == 1]
    return bool(slides) and len(slides) == len(body.joints)


def _add_body(tree: Tree, body: BodySpec, key, only_slides: bool) -> None:
    q, v = tree.nq, tree.nv
    link = tree.bodies[body.parent].link if body.parent >= 0 else -1
    if len(body.joints) > 1 and not all(j.anchored for j in body.joints):
        fail(body.source, f"body {body.name!r}: several joints must be anchored in the body")
    tree.rows.add_to("body", pos=body.pos, quat=unit_quat(body.source, body.quat))
    joints, i = [], body.inertial
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
            explicit=None if i is None else tree.rows.add_to("body", mass=i.mass, com=i.com, inertia=i.inertia),
            pos_min=None if body.pos_min is None else tuple(map(float, body.pos_min)),
            pos_max=None if body.pos_max is None else tuple(map(float, body.pos_max)),
            gravity=None if body.gravity == 1.0 else tree.rows.add("body.gravity", body.gravity),
            gravcomp=tree.rows.add("body.gravcomp", body.gravcomp) if body.gravcomp else None,
            mocap=len(tree.mocaps) if body.mocap else None,
            principal=(1.0, 0.0, 0.0, 0.0) if body.principal is None else tuple(map(float, body.principal)),
            only_slides=only_slides,
        )
    )
    if body.mocap:
        tree.mocaps.append(body)


def _add_joint(tree: Tree, body: BodySpec, place: int, joint: JointSpec, link: int, key) -> tuple[JointInfo, int]:
    """The joint and the last link of the body so far."""
    kind = JOINT_TYPES.get(joint.type)
    if kind is None:
        fail(body.source, f"body {body.name!r}: unknown joint type {joint.type!r}; known: {', '.join(JOINT_TYPES)}")
    values = _parameters(body, joint, kind, key)
    axes = tree.rows["joint.axes"]
    first_axis, first_pitch = len(axes), len(tree.rows["joint.pitch"])
    row = _add_parameters(tree, body, kind, values)
    ref = None
    if joint.ref:
        if kind.name not in ("hinge", "slide"):
            fail(body.source, f"body {body.name!r}: a {kind.name} joint has no reference position")
        ref = tree.rows.add("joint.ref", joint.ref)
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
        axes=tuple(range(first_axis, len(axes))),
        general=row,
        frame=tree.rows.add_to("joint", pos=joint.pos, quat=unit_quat(body.source, joint.quat)) if framed else None,
        anchored=joint.anchored,
        spring_damper=tree.rows.add_optional("joint.spring_damper", joint.spring_damper),
        actuator_gravcomp=joint.actuator_gravcomp,
        stiffness_poly=tree.rows.add_optional("joint.stiffness_poly", joint.stiffness_poly),
        damping_poly=tree.rows.add_optional("joint.damping_poly", joint.damping_poly),
        spring_yield=tree.rows.add_optional("joint.spring_yield", joint.spring_yield),
        plastic=None if _checked_yield(body, joint) is None else tree.add_plastic(kind.nq),
    )
    return info, link


def _checked_yield(body: BodySpec, joint: JointSpec) -> float | None:
    if joint.spring_yield is not None and (joint.type not in ("hinge", "slide", "ball") or joint.spring_yield < 0):
        text = f"spring_yield {joint.spring_yield:g} of a {joint.type} joint; allowed: >= 0, for hinge, slide and ball joints"
        fail(body.source, f"body {body.name!r}: {text}")
    return joint.spring_yield


def _add_parameters(tree: Tree, body: BodySpec, kind: JointType, values: dict[str, np.ndarray]) -> int | None:
    """The parameters of a joint as rows of leaves. Returns the row of a general joint among those of its type, None for other joints."""
    if any(isinstance(part, GeneralJoint) for part in kind.chain):
        for name, value in values.items():
            tree.params.setdefault(f"{kind.name}.{name}", []).append(value)
        return sum(j.type == kind.name for b in tree.bodies for j in b.joints)
    axes = np.reshape(values.get("axes", np.zeros((0, 3))), (-1, 3))
    if any(not np.linalg.norm(axis) > 1e-9 for axis in axes):
        fail(body.source, f"body {body.name!r}: a joint axis is zero")
    tree.rows["joint.axes"].extend(axes)
    tree.rows["joint.pitch"].extend(np.reshape(values.get("pitch", ()), -1))
    return None


def _add_numbers(tree: Tree, body: BodySpec, joint: JointSpec, kind: JointType) -> None:
    """What the joint has per coordinate and per dof."""
    v = tree.nv
    for name in ("damping", "armature", "stiffness"):
        numbers = _vector(body, joint, name, getattr(joint, name), kind.nv, np.zeros(kind.nv))
        if (numbers < 0).any():
            fail(body.source, f"body {body.name!r}: {name} is negative")
        tree.rows[f"dof.{name}"].extend(numbers)
    reference = kind.neutral + joint.ref if joint.ref else kind.neutral
    tree.rows["joint.spring_ref"].extend(_vector(body, joint, "spring_ref", joint.spring_ref, kind.nq, reference))
    tree.neutral.extend(reference)
    tree.q0.extend(_vector(body, joint, "q0", joint.q0, kind.nq, reference))
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
        for i in np.flatnonzero(~np.isnan(friction)).tolist():
            tree.add_dof_row("dof.friction", v + i, friction[i])
    if joint.actuator_force_range is not None:
        for side, x in zip(("lower", "upper"), joint.actuator_force_range, strict=True):
            for i in range(nv):
                tree.add_dof_row(f"limit.actuator_{side}", v + i, x)
    if joint.angle_limit is not None:
        tree.add_dof_row("limit.angle", v, joint.angle_limit)
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
                    tree.add_dof_row(f"limit.{stem}{side}", v + i, x)


def _parameters(body: BodySpec, joint: JointSpec, kind: JointType, key) -> dict[str, np.ndarray]:
    unknown = set(joint.params) - set(kind.parameters)
    if unknown:
        fail(body.source, f"body {body.name!r}: joint {kind.name} has no parameter {', '.join(sorted(unknown))}")
    sampled = {}
    if any(p.sample is not None and name not in joint.params for name, p in kind.parameters.items()):
        sampled = draw_parameters(kind, key, body.name)
    out = {}
    for name, p in kind.parameters.items():
        value = joint.params.get(name, sampled.get(name, p.default))
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
