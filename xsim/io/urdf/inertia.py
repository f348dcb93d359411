"""Mass properties of links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.io.solids import tensor, turned
from xsim.io.urdf.values import read_origin
from xsim.spec import BodySpec, InertialSpec

__all__ = ["note_massless", "read_inertial"]

ROUNDING = 1e-12  # kg m^2, of programs that export moments


def read_inertial(link: Element, notes: Notes) -> InertialSpec:
    """Mass properties of a link in its frame, zeros where it has no ``<inertial>``. Notes moments that no body can have."""
    inertial = link.child("inertial")
    if inertial is None:
        return InertialSpec(0.0)
    pose = read_origin(inertial, notes)
    mass = _read_mass(inertial, notes)
    inertia = inertial.need("inertia")
    diagonal = [_read_moment(inertia, a, notes) for a in ("ixx", "iyy", "izz")]
    six = np.array([*diagonal, *(inertia.number(a) for a in ("ixy", "ixz", "iyz"))])
    scale = np.abs(six).max()
    if scale > 1e100:  # so that the products below stay finite
        raise inertia.error(f"found {scale:g}; allowed: moments below 1e100 kg m^2")
    if scale > 0:
        low, middle, high = moments = np.linalg.eigvalsh(tensor(six / scale))
        if high > low + middle + 1e-9:  # so it is too where low < 0; 1e-9: rounding of the eigenvalues
            shown = " ".join(f"{m:.6g}" for m in moments * scale)
            notes.suspicious(
                inertia.line, f"{inertia} in {link}: no body has the principal moments {shown}: each is at least 0 and at most the sum "
                "of the others; kept as written"
            )  # fmt: skip
    return InertialSpec(mass, pose.pos, turned(six, pose) if pose.quat[1:].any() else six)


def _read_mass(inertial: Element, notes: Notes) -> float:
    mass = inertial.child("mass")
    if mass is not None:
        return mass.number("value", nonnegative=True)
    notes.assumed(inertial.error("<mass> is missing"), "0 kg")
    return 0.0


def _read_moment(inertia: Element, attribute: str, notes: Notes) -> float:
    """A moment of inertia, kg m^2; one that is negative by rounding is 0."""
    value = inertia.number(attribute)
    if not -ROUNDING <= value < 0:
        return inertia.number(attribute, nonnegative=True)
    notes.assumed(inertia.error(f"found {value:g}; allowed: numbers >= 0", attribute), "0")
    return 0.0


def note_massless(bodies: Sequence[BodySpec], notes: Notes) -> None:
    """Name the joints that move nothing with mass (or, where they turn, with inertia): their accelerations are not defined.

    Of joints below each other only the first.
    """
    mass = [b.inertial.mass for b in bodies if b.inertial]
    inertia = [bool(b.inertial.inertia.any()) for b in bodies if b.inertial]
    for i in reversed(range(len(bodies))):
        parent = bodies[i].parent
        if parent >= 0:
            mass[parent] += mass[i]
            inertia[parent] |= inertia[i]
    noted = [False] * len(bodies)
    for i, body in enumerate(bodies):
        noted[i] = body.parent >= 0 and noted[body.parent]
        turns = body.joint.type in ("fixed", "hinge")
        if not noted[i] and body.joint.type != "fixed" and mass[i] == 0 and not (turns and inertia[i]):
            noted[i] = True
            joint = f'joint "{body.joint.name}"' if body.joint.name else "free base"
            what = "mass or inertia" if turns or not inertia[i] else "mass"
            notes.suspicious(
                body.joint.source.line, f'link "{body.name}": {joint} moves nothing that has {what}; forward dynamics is singular'
            )
