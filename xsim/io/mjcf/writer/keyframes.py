"""<keyframe> and <custom>: named states, users' numbers, texts and tuples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xsim.io.mjcf.writer.chains import Link
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.elements import add, unless
from xsim.joints.types import JOINT_TYPES
from xsim.spec import KeySpec

__all__ = ["write_custom", "write_keys"]

INITIAL = "initial"
"""The name of the key that holds the initial velocities."""


def write_keys(context: Context) -> None:
    """All keyframes, with the numbers of the joints in the order of the written bodies. Raises WriteError for coordinates of another kind."""
    order = list(_depth_first(context))
    for number, key in enumerate(context.spec.keys):
        if key.q is not None or key.v is not None:
            _check_plain(context, key)
        e = add(
            context.section("keyframe"), "key",
            time=unless(0.0, key.time),
            qpos=_ordered(context, key.q, order, "nq"),
            qvel=_ordered(context, key.v, order, "nv"),
            act=_given(key.act),
            ctrl=_given(key.ctrl),
            mpos=_given(key.mocap_pos),
            mquat=_given(key.mocap_quat),
        )  # fmt: skip
        context.names.enter("key", number, e, key.name)
    _write_initial(context, order)


def _given(value) -> np.ndarray | None:
    return None if value is None or not np.size(value) else value


def _check_plain(context: Context, key: KeySpec) -> None:
    for i, link in context.links():
        if not link.plain:
            text = f"the state of body {context.spec.bodies[i].name!r}, whose joint has other coordinates in MJCF; MJCF has its own"
            context.losses.refuse(key.source, f"key {key.name!r}", text)


def _depth_first(context: Context) -> Iterator[int]:
    """The bodies in the order of MuJoCo."""
    children: dict[int, list[int]] = {}
    for i, body in enumerate(context.spec.bodies):
        children.setdefault(body.parent, []).append(i)
    pending = children.get(-1, [])[::-1]
    while pending:
        i = pending.pop()
        yield i
        pending += children.get(i, [])[::-1]


def _ordered(context: Context, value, order: list[int], width: str) -> np.ndarray | None:
    """A vector with the numbers of each body in the order of the written ones. width: ``"nq"`` or ``"nv"``."""
    if value is None or not np.size(value):
        return None
    widths = [sum(getattr(JOINT_TYPES[joint.type], width) for joint in _joints(body)) for body in context.spec.bodies]
    parts = np.split(np.asarray(value, float), np.cumsum(widths)[:-1])
    return np.concatenate([parts[i] for i in order])


def _joints(body) -> tuple:
    return body.joints if isinstance(body.joints, tuple) else (body.joints,)


def _write_initial(context: Context, order: list[int]) -> None:
    """A key with the initial velocities, where there are any."""
    velocities = [_velocity(context, link) for i in order for link in context.chains[i].links]
    numbers = np.concatenate([np.zeros(0), *velocities])
    if numbers.any():
        e = add(context.section("keyframe"), "key", qvel=numbers)
        context.names.enter("key", INITIAL, e, INITIAL)


def _velocity(context: Context, link: Link) -> np.ndarray:
    """Initial velocities of a joint in the coordinates of MJCF."""
    v = link.numbers("v0")
    if v.any() and not link.plain:
        text = "an initial velocity in other coordinates than those of MJCF"
        context.losses.lose(link.joint.source, f"joint {link.joint.name!r}", text, "it starts at rest")
        return np.zeros(len(v))
    return v


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
