"""What the parts of the writer share: the document, and the link of each body."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from lxml import etree

from xsim.io.errors import Losses
from xsim.io.writing.elements import XML, add
from xsim.io.writing.names import Names
from xsim.poses import IDENTITY_QUAT, Pose, rotation_matrix
from xsim.spec import ModelSpec

__all__ = ["WORLD", "Document", "ScalarJoint", "add_origin"]

WORLD = "world"


class ScalarJoint(NamedTuple):
    """A hinge or slide that has been written. reference: its coordinate in the reference pose, rad or m."""

    element: XML
    reference: float


@dataclass
class Document:
    """The URDF of a model.

    losses: what URDF cannot say. folder: of the mesh files, relative to the document. files: the contents of mesh files by their names;
    file_names: those by path, or by number of a mesh.
    links: the name of the link of each body. offsets: the origin of its frame in the frame of the body, m; their axes are parallel.
    joints: the hinges and slides by body and number of the dof in it.
    """

    spec: ModelSpec
    losses: Losses
    folder: str
    root: XML = field(init=False)
    names: Names = field(init=False)
    files: dict[str, bytes] = field(default_factory=dict)
    file_names: dict[str, str] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    offsets: list[np.ndarray] = field(default_factory=list)
    joints: dict[tuple[int, int], ScalarJoint] = field(default_factory=dict)

    def __post_init__(self):
        self.root = etree.Element("robot", name=self.spec.name or "robot")
        self.names = Names(self.spec, "link")
        self.names.free("link", WORLD)

    def link_frame(self, body: int) -> tuple[str, Pose]:
        """The name of the link of a body (-1: the world), and the pose of the body's frame in it."""
        return (WORLD, Pose()) if body < 0 else (self.links[body], Pose(IDENTITY_QUAT, -self.offsets[body]))


def add_origin(parent: XML, pose: Pose) -> None:
    """``<origin>``, none for the identity."""
    if not pose.is_identity():
        add(parent, "origin", xyz=pose.pos, rpy=_roll_pitch_yaw(pose.quat))


def _roll_pitch_yaw(quat: np.ndarray) -> np.ndarray:
    """Angles of R = Rz(yaw) Ry(pitch) Rx(roll), rad.

    Pitch and roll are found after the rotation by the yaw is taken off: so they are precise at a pitch of 90 degrees too (Shoemake, Euler
    Angle Conversion, Graphics Gems IV).
    """
    R = rotation_matrix(quat)
    yaw = np.arctan2(R[1, 0], R[0, 0])
    sine, cosine = np.sin(yaw), np.cos(yaw)
    pitch = np.arctan2(-R[2, 0], cosine * R[0, 0] + sine * R[1, 0])
    roll = np.arctan2(sine * R[0, 2] - cosine * R[1, 2], cosine * R[1, 1] - sine * R[0, 1])
    return np.array([roll, pitch, yaw])
