"""Constraints on the tree: holonomic ones and MuJoCo's soft equalities."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsim.spec.contact import Soft
from xsim.spec.fields import zeros
from xsim.spec.forces import FunctionSpec
from xsim.spec.joints import JointSpec
from xsim.spec.source import Source

__all__ = ["ConstraintSpec", "EqualitySpec"]


@dataclass(frozen=True)
class ConstraintSpec:
    """A holonomic constraint on the tree.

    ``bodies``: the first and the second body (-1: the world). ``frames``: a frame in each, (pos (3,), quat (4,)); they coincide in the
    reference pose, except for distances. By ``kind``, seen from the first frame:

    * ``"joint"``: all but what the ``joint`` (type and parameters; the first body is its parent) leaves free; it closes a loop.
    * ``"point_on_line"``: the second origin is on the z axis; ``"point_on_plane"``: in the x-y plane.
    * ``"distance"``: the distance of the origins is that of the reference pose.
    * ``"revolute_spherical"``: the same, and the first frame's z axis is perpendicular to the line between the origins.
    * ``"revolute_translational"``: the first frame's z axis is perpendicular to the second frame's x and y axes; the line between the
      origins is perpendicular to the first z axis, and its component along the second frame's y axis is that of the reference pose.
    * ``"motor"``: the second frame moves along (``driven`` ``"slide"``) or about (``"hinge"``) the first frame's z axis by
      ``function`` (``mode`` ``"position"``), with that speed (``"speed"``, from zero at time zero), or freely (``""``, no ``function``).
      ``constrained``: the other constrained directions, some of x y z (translations) rx ry rz (rotations).
    * ``"motion"``: the same for the coordinate ``coordinates[0]``.
    * ``"mimic"``: coordinate ``coordinates[0]`` = ``multiplier`` (coordinate ``coordinates[1]`` - ``reference``) + ``offset``. A
      coordinate is (body whose joint it belongs to, index among the joint's coordinates).
    * ``"gearbox"``: with ``bodies`` = (parent, child, reference) and unit ``axes`` (2, 3) in the axes of the parent and of the
      child body: angle of the child about the second = -``multiplier`` times angle of the parent about the first, both relative to
      the reference body, zero in the reference pose.
    """

    kind: str
    name: str = ""
    bodies: tuple[int, ...] = ()
    frames: tuple = ()
    joint: JointSpec | None = None
    coordinates: tuple = ()
    axes: np.ndarray | None = None
    multiplier: float = 1.0
    offset: float = 0.0
    reference: float = 0.0
    driven: str = ""
    constrained: tuple[str, ...] = ()
    mode: str = ""
    function: FunctionSpec | None = None
    source: Source = Source()


@dataclass(frozen=True)
class EqualitySpec:
    """A soft equality constraint (MuJoCo).

    ``kind`` and ``items``: ``"connect"``, ``"weld"`` (two bodies, -1 the world, or with ``sites`` two sites), ``"joint"`` (coordinates
    (body, index); one or two), ``"tendon"`` (numbers; one or two), ``"flex"`` (a flex), ``"flexstrain"`` (a flex
    with a grid, and the three indices of a cell).
    ``anchor``: point in the first body (connect) or in the second (weld). ``relpose`` (7,): of a weld, position of the anchor in the
    first body and orientation of the second body in the first; None: as in the initial state. ``polycoef`` (5,): coefficients of the
    polynomial of a joint or tendon equality. ``torque_scale``: of a weld. ``active``: whether it acts at the start.
    """

    kind: str
    name: str = ""
    items: tuple = ()
    sites: bool = False
    anchor: np.ndarray = zeros(3)
    relpose: np.ndarray | None = None
    polycoef: np.ndarray = field(default_factory=lambda: np.array([0.0, 1, 0, 0, 0]))
    torque_scale: float = 1.0
    active: bool = True
    soft: Soft = Soft()
    source: Source = Source()
