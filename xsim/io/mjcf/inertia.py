"""Mass properties of bodies: <inertial>, what the geoms give, and the rules of <compiler>."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from xsim.io.mjcf.compiler import Compiler
from xsim.io.mjcf.meshes import principal_axes
from xsim.io.mjcf.orientation import read_pose, read_quat
from xsim.io.reader import Element
from xsim.io.solids import SOLIDS, Solid, shift, tensor, turned
from xsim.poses import IDENTITY_QUAT, Pose, rotation_matrix
from xsim.spec import MESH_SHAPES, BodySpec, GeomSpec, InertialSpec, MeshSpec

__all__ = ["Inertial", "body_inertial", "bounded", "geoms_inertial", "merged", "read_inertial", "spread"]

SMALL = 1e-15  # kg, kg m^2: what counts as none
SLACK = 1e-12  # relative: flat bodies meet the triangle rule with equality, but for rounding


class Inertial(NamedTuple):
    """Mass (kg), pose of the principal axes at the centre of mass in the body, moments along them (kg m^2)."""

    mass: float = 0.0
    pose: Pose = Pose()
    moments: np.ndarray = np.zeros(3)

    def seen_from(self, pose: Pose) -> Inertial:
        """The same of a body that has a pose, in the frame of that pose."""
        return self._replace(pose=pose @ self.pose)

    def scaled(self, factor: float) -> Inertial:
        return self._replace(mass=self.mass * factor, moments=self.moments * factor)

    def spec(self) -> InertialSpec:
        return InertialSpec(self.mass, self.pose.pos, turned([*self.moments, 0.0, 0.0, 0.0], self.pose))

    def moves(self) -> bool:
        """Whether a body of this mass can move."""
        return self.mass > SMALL and bool((self.moments > SMALL).all())


def read_inertial(e: Element) -> Inertial:
    """An <inertial>."""
    place = Pose(IDENTITY_QUAT.copy(), _needed(e, "pos", 3))
    mass = e.number("mass", nonnegative=True)
    diagonal, full = e.floats("diaginertia", 3), e.floats("fullinertia", 6)
    if full is None:
        moments = np.zeros(3) if diagonal is None else diagonal
        if (moments < 0).any():
            raise e.error(f"found {e.raw('diaginertia')!r}; allowed: numbers >= 0", "diaginertia")
        return Inertial(mass, read_pose(e), moments)
    if diagonal is not None:
        raise e.error("found diaginertia and fullinertia; allowed: one of them", "fullinertia")
    if read_quat(e) is not None:
        raise e.error("found fullinertia and an orientation; allowed: one of them", "fullinertia")
    quat, moments = principal_axes(tensor(full))
    if not (moments > 0).all():
        raise e.error(f"found {e.raw('fullinertia')!r}; allowed: a positive definite inertia", "fullinertia")
    return Inertial(mass, place._replace(quat=quat), moments)


def _needed(e: Element, name: str, count: int) -> np.ndarray:
    value = e.floats(name, count)
    if value is None:
        raise e.error(f"attribute {name!r} is missing")
    return value


def spread(geom: GeomSpec, meshes: Sequence[MeshSpec]) -> tuple[float, Pose, np.ndarray]:
    """How the mass of a geom is spread: volume or area, pose of its principal axes in the geom, moments per unit mass (m^2); zeros for a
    plane or height field."""
    if geom.shape in MESH_SHAPES:
        assert geom.asset is not None
        mesh = meshes[geom.asset]
        if not geom.shell:
            return mesh.volume, Pose(), mesh.moments
        quat, moments = principal_axes(tensor(mesh.shell_inertia))
        return mesh.area, Pose(quat, mesh.shell_com), moments
    find = (SHELLS if geom.shell else SOLIDS).get(geom.shape)
    if find is None:
        return 0.0, Pose(), np.zeros(3)
    solid = find(geom.size)
    return solid.volume, Pose(IDENTITY_QUAT, solid.com), solid.moments


def geoms_inertial(geoms: Iterable[GeomSpec], meshes: Sequence[MeshSpec], count_massless: bool = True) -> Inertial:
    """Mass properties of rigidly joined geoms, see `merged`: of a single one along its axes."""
    parts = []
    for geom in geoms:
        if not geom.massless:
            amount, pose, moments = spread(geom, meshes)
            mass = geom.mass if geom.density is None else geom.density * amount
            parts.append(Inertial(mass, Pose(geom.quat, geom.pos) @ pose, mass * moments))
    return merged(parts, count_massless)


def merged(parts: Iterable[Inertial], count_massless: bool = True) -> Inertial:
    """Mass properties of rigidly joined parts, along the principal axes of their sum, with moments in decreasing order; one alone stays as
    it is.

    count_massless: whether one is not alone beside others without mass.
    """
    given = list(parts)
    if not count_massless:
        given = [part for part in given if part.mass > SMALL] or given
    if len(given) == 1:
        return given[0]
    mass = sum(part.mass for part in given)
    com = sum((part.mass * part.pose.pos for part in given), np.zeros(3)) / mass if mass > SMALL else np.zeros(3)
    total = np.zeros((3, 3))
    for part in given:
        R = rotation_matrix(part.pose.quat)
        total += R @ np.diag(part.moments) @ R.T + shift(part.mass, part.pose.pos - com)
    quat, moments = principal_axes(total)
    return Inertial(mass, Pose(quat, com), moments)


def body_inertial(body: BodySpec, meshes: Sequence[MeshSpec]) -> InertialSpec:
    """Mass properties of a body: given, or computed from its geoms."""
    return body.inertial if body.inertial is not None else geoms_inertial(body.geoms, meshes).spec()


def bounded(inertial: Inertial, settings: Compiler, e: Element) -> tuple[Inertial, bool]:
    """What boundmass, boundinertia and balanceinertia make of a body, and whether they changed it.

    Raises ParseError where one principal moment is larger than the sum of the others.
    """
    mass = max(inertial.mass, settings.bound_mass)
    moments = np.maximum(inertial.moments, settings.bound_inertia)
    if 2 * moments.max() > moments.sum() * (1 + SLACK):
        if not settings.balance_inertia:
            found = " ".join(f"{x:g}" for x in moments)
            raise e.error(f"found the principal moments of inertia {found}; allowed: none above the sum of the others, or balanceinertia")
        moments = np.full(3, moments.mean())
    changed = mass != inertial.mass or bool((moments != inertial.moments).any())
    return Inertial(mass, inertial.pose, moments), changed


def _sphere_shell(s) -> Solid:
    return Solid(4 * np.pi * s[0] ** 2, np.zeros(3), np.full(3, 2 / 3 * s[0] ** 2))


def _ellipsoid_shell(s) -> Solid:
    """Area by Thomsen's formula; moments of a layer whose semi-axes are all larger by the same small length."""
    x, y, z = s
    p = 1.6075
    area = 4 * np.pi * ((x**p * y**p + x**p * z**p + y**p * z**p) / 3) ** (1 / p)
    layer = 5 * (x * y + x * z + y * z)
    xx, yy, zz = ((3 * a * a * b * c + a**3 * (b + c)) / layer for a, b, c in ((x, y, z), (y, x, z), (z, x, y)))
    return Solid(area, np.zeros(3), np.array([yy + zz, xx + zz, xx + yy]))


def _box_shell(s) -> Solid:
    x, y, z = s
    faces = x * y + x * z + y * z
    xx, yy, zz = (a * a * (b * c + a * (b + c) / 3) / faces for a, b, c in ((x, y, z), (y, x, z), (z, x, y)))
    return Solid(8 * faces, np.zeros(3), np.array([yy + zz, xx + zz, xx + yy]))


def _cylinder_shell(s) -> Solid:
    r, half = s
    side, ends = 2 * half / (2 * half + r), r / (2 * half + r)
    across = side * (r * r / 2 + half * half / 3) + ends * (r * r / 4 + half * half)
    return Solid(2 * np.pi * r * (2 * half + r), np.zeros(3), np.array([across, across, side * r * r + ends * r * r / 2]))


def _capsule_shell(s) -> Solid:
    r, half = s
    side, ball = half / (half + r), r / (half + r)
    across = side * (r * r / 2 + half * half / 3) + ball * (2 / 3 * r * r + half * half + half * r)
    return Solid(4 * np.pi * r * (half + r), np.zeros(3), np.array([across, across, side * r * r + ball * 2 / 3 * r * r]))


SHELLS = {
    "sphere": _sphere_shell, "ellipsoid": _ellipsoid_shell, "box": _box_shell, "cylinder": _cylinder_shell, "capsule": _capsule_shell,
}  # fmt: skip
