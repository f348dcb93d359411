"""<keyframe>: named states."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.keyframes import key_length, key_numbers
from xsim.io.mjcf.scaled_relations import Relations
from xsim.io.reader import Element
from xsim.joints.types import JOINT_TYPES
from xsim.poses import IDENTITY_QUAT
from xsim.spec import ActuatorSpec, FlexSpec, JointSpec, KeySpec, TendonSpec

__all__ = ["read_keys"]

MAX_KEYS = 100_000


@dataclass(frozen=True)
class _Vectors:
    """The vectors of all keyframes, by attribute.

    starts: what a key has that does not say, in the units of the file. factors, shifts: a number of the model is that of the file times the
    factor plus the shift, which scaled frames define; without a shift it is zero. quaternions: where they begin in qpos."""

    starts: dict[str, np.ndarray]
    factors: dict[str, np.ndarray]
    shifts: dict[str, np.ndarray]
    quaternions: list[int]

    def read(self, document: Document, e: Element, name: str) -> np.ndarray | None:
        """The numbers of an attribute of a key in the model, None where there are none. Those that the key does not give are as at the
        start. Raises ParseError for a wrong length."""
        value, start = key_numbers(document, e, name), self.starts[name]
        if value is None:
            return None
        value = value[: key_length(document, e, name, len(value), len(start))]
        value = np.concatenate([value, start[len(value) :]])
        return np.where(np.isnan(value), start, value) * self.factors[name] + self.shifts.get(name, 0.0)


def read_keys(
    document: Document, bodies: Bodies, flexes: list[FlexSpec], tendons: list[TendonSpec], actuators: list[ActuatorSpec], index: Index,
    count: int, relations: Relations,
) -> list[KeySpec]:  # fmt: skip
    """All keyframes, in order, filled up with starts to a count; index entries "key". Raises ParseError for vectors of a wrong length.

    relations: scale what is in scaled frames."""
    joints = [joint for body in bodies.bodies for joint in body.joints]
    types = [JOINT_TYPES[joint.type] for joint in joints]
    ends = np.cumsum([t.nq for t in types])
    quaternions = [int(end) - 4 for end, t in zip(ends, types, strict=True) if t.name in ("ball", "free")]
    mocap = [body for body in bodies.bodies if body.mocap]
    starts = {
        "qpos": np.concatenate([np.zeros(0), *(t.neutral if j.q0 is None else j.q0 for j, t in zip(joints, types, strict=True))]),
        "qvel": np.zeros(sum(t.nv for t in types)),
        "act": np.zeros(sum(a.widths[1] for a in actuators)),
        "ctrl": np.zeros(sum(a.widths[0] for a in actuators)),
        "mpos": np.array([body.pos for body in mocap]).reshape(-1),
        "mquat": np.array([body.quat for body in mocap]).reshape(-1),
        "plastic": np.full(_plastic_width(joints, tendons, flexes), np.nan),
    }
    factors, shifts = relations.key_factors(), relations.key_shifts()
    of_flexes = len(starts["plastic"]) - len(factors["plastic"])  # no flex is in a frame with a scale
    factors["plastic"] = np.append(factors["plastic"], np.ones(of_flexes))
    starts = {word: (start - shifts.get(word, 0.0)) / factors[word] for word, start in starts.items()}
    vectors = _Vectors(starts, factors, shifts, quaternions)
    out: list[KeySpec] = []
    for e in document.elements("keyframe", "key"):
        name = index.add("key", e, len(out))
        key = _key(document, e, name, vectors)
        out.append(key if key.plastic is None else replace(key, plastic=_unit_rest(joints, key.plastic)))
    if count > MAX_KEYS:
        raise document.root.error(f"<size> asks for {count} keyframes; allowed: {MAX_KEYS}")
    return out + [KeySpec(source=document.root.source)] * (count - len(out))


def _unit_rest(joints: list[JointSpec], plastic: np.ndarray) -> np.ndarray:
    """Rest positions whose quaternions have length 1."""
    out, first = plastic.copy(), 0
    for joint in joints:
        if joint.spring_yield is not None:
            end = first + JOINT_TYPES[joint.type].nq
            if joint.type == "ball" and not np.isnan(out[first:end]).any():
                out[first:end] = _unit(out[first:end])
            first = end
    return out


def _plastic_width(joints: list[JointSpec], tendons: list[TendonSpec], flexes: list[FlexSpec]) -> int:
    """How many numbers the springs that yield, and the lines of flexes that twist, have in a keyframe."""
    of_joints = sum(JOINT_TYPES[joint.type].nq for joint in joints if joint.spring_yield is not None)
    of_flexes = sum(flex.nplastic for flex in flexes)
    return of_joints + sum(2 for tendon in tendons if tendon.spring_yield is not None) + of_flexes


def _key(document: Document, e: Element, name: str, vectors: _Vectors) -> KeySpec:
    given = {word: vectors.read(document, e, word) for word in vectors.starts}
    q, pos, quats = given["qpos"], given["mpos"], given["mquat"]
    if q is not None:
        for at in vectors.quaternions:
            q[at : at + 4] = _unit(q[at : at + 4])
    return KeySpec(
        name=name,
        time=e.number("time", 0.0),
        q=q,
        v=given["qvel"],
        act=given["act"],
        ctrl=given["ctrl"],
        mocap_pos=None if pos is None else pos.reshape(-1, 3),
        plastic=given["plastic"],
        mocap_quat=None if quats is None else np.array([_unit(quat) for quat in quats.reshape(-1, 4)]),
        source=e.source,
    )


def _unit(quat: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(quat)
    return quat / size if size > 0 else IDENTITY_QUAT.copy()
