"""<keyframe> and <custom>: named states, users' numbers, texts and tuples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xsim.io.mjcf.writer.context import Context
from xsim.io.writing.chains import Link
from xsim.io.writing.elements import add, unless
from xsim.joints.types import JOINT_TYPES
from xsim.poses import quat_conj, rotate
from xsim.spec import BodySpec

__all__ = ["state_of_mjcf", "write_custom", "write_keys"]

INITIAL = "initial"
"""The name of the key that holds the initial velocities."""


def write_keys(context: Context) -> None:
    """All keyframes, and one with the initial velocities where there are any."""
    q0, v0 = (np.concatenate([np.zeros(0), *(start for body in context.spec.bodies for start in _starts(body, k))]) for k in (0, 1))
    for number, key in enumerate(context.spec.keys):
        qpos, qvel = state_of_mjcf(context, q0 if key.q is None else key.q, np.zeros_like(v0) if key.v is None else key.v)
        e = add(
            context.section("keyframe"), "key",
            time=unless(0.0, key.time),
            qpos=_given(qpos if key.q is not None else None),
            qvel=_given(qvel if key.v is not None else None),
            act=_given(key.act),
            ctrl=_given(key.ctrl),
            mpos=_given(key.mocap_pos),
            mquat=_given(key.mocap_quat),
            plastic=_given(key.plastic),
        )  # fmt: skip
        context.names.enter("key", number, e, key.name)
    _, velocities = state_of_mjcf(context, q0, v0)
    velocities = velocities + _body_velocities(context)
    if velocities.any():
        e = add(context.section("keyframe"), "key", qvel=velocities)
        context.names.enter("key", INITIAL, e, INITIAL)


def _given(value) -> np.ndarray | None:
    return None if value is None or not np.size(value) else value


def _starts(body: BodySpec, k: int) -> Iterator[np.ndarray]:
    """Initial coordinates (k = 0) or velocities (1) of the joints of a body."""
    for joint in body.joints:
        kind = JOINT_TYPES[joint.type]
        rest = np.zeros(kind.nv) if k else kind.neutral + joint.ref if joint.ref else kind.neutral
        value = joint.v0 if k else joint.q0
        yield rest if value is None else np.asarray(value, float)


def state_of_mjcf(context: Context, q, v) -> tuple[np.ndarray, np.ndarray]:
    """qpos and qvel of a state of the spec: in the coordinates of MJCF, in the order of the written bodies."""
    widths = [[sum(getattr(JOINT_TYPES[j.type], n) for j in body.joints) for body in context.spec.bodies] for n in ("nq", "nv")]
    starts = [np.cumsum([0, *of_bodies]) for of_bodies in widths]
    qpos, qvel = [np.zeros(0)], [np.zeros(0)]
    for i, link in _in_order(context):
        before = context.spec.bodies[i].joints[: link.place]
        at = [int(start[i]) + sum(getattr(JOINT_TYPES[j.type], n) for j in before) for start, n in zip(starts, ("nq", "nv"), strict=True)]
        of_link = q[at[0] + link.q.start : at[0] + link.q.stop], v[at[1] + link.v.start : at[1] + link.v.stop]
        qpos.append(link.coordinates(np.asarray(of_link[0], float)))
        qvel.append(link.velocities(*(np.asarray(x, float) for x in of_link)))
    return np.concatenate(qpos), np.concatenate(qvel)


def _in_order(context: Context) -> Iterator[tuple[int, Link]]:
    """The joints of MJCF, each with its body, in the order of MuJoCo: depth first over bodies."""
    children: dict[int, list[int]] = {}
    for i, body in enumerate(context.spec.bodies):
        children.setdefault(body.parent, []).append(i)
    pending = children.get(-1, [])[::-1]
    while pending:
        i = pending.pop()
        yield from ((i, link) for link in context.chains[i].links)
        pending += children.get(i, [])[::-1]


def _body_velocities(context: Context) -> np.ndarray:
    """qvel of the initial velocities that bodies give by their centre of mass. Raises WriteError where their joint is no free one."""
    out = [np.zeros(0)]
    for i, link in _in_order(context):
        body = context.spec.bodies[i]
        velocity = None if link.kind != "free" else body.velocity
        out.append(np.zeros(JOINT_TYPES[link.kind].nv))
        if velocity is not None and body.inertial is not None:
            linear, angular = np.reshape(velocity, (2, 3))
            quat = context.chains[i].pose.quat
            origin = linear - np.cross(angular, rotate(quat, body.inertial.com))
            out[-1] = np.concatenate([origin, rotate(quat_conj(quat), angular)])
    for body, chain in zip(context.spec.bodies, context.chains, strict=True):
        if body.velocity is not None and np.any(body.velocity) and [link.kind for link in chain.links] not in ([], ["free"]):
            text = "an initial velocity of a body on a joint; MJCF has those of coordinates"
            context.losses.lose(body.source, f"body {body.name!r}", text, "it starts at rest")
    return np.concatenate(out)


def write_custom(context: Context) -> None:
    """Users' numbers, texts and tuples."""
    custom = context.spec.custom
    for name, numbers in custom.get("numeric", {}).items():
        add(context.section("custom"), "numeric", name=name, data=numbers)
    for name, text in custom.get("text", {}).items():
        add(context.section("custom"), "text", name=name, data=text)
    for name, entries in custom.get("tuple", {}).items():
        e = add(context.section("custom"), "tuple", name=name)
        for kind, member, number in entries:
            add(e, "element", objtype=kind, objname=member, prm=unless(0.0, number))
