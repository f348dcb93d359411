"""What SDFormat, URDF and SKEL share about touching: which shapes can, how soft a contact is, convex hulls of meshes.

These formats describe contact by the stiffness K (N/m) and damping D (N s/m) of a spring and damper between the bodies, or by what the
Open Dynamics Engine makes of them for a step of h: erp = h K / (h K + D), the part of an overlap that a step takes back, and
cfm = 1 / (h K + D), how much the velocity of the contact gives way to its force (manual of ODE, "Joint error and the error reduction
parameter"). The force at the end of a step is then f = (erp / h x overlap - velocity) / cfm. In the terms of `xsim.spec.Soft`, where a
contact of two bodies with the effective mass m has f = m d / (1 - d) (k d overlap - b velocity - acceleration), this is

    k d = erp / h^2,   b = 1 / h,   d = 1 / (1 + m cfm / h):

a body of mass m rests at the depth m g / K, and no stiffness is too large for the step. The effective mass is taken once, from the file:
of a contact the mass of the link, of a joint's stop the inertia that the joint moves.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from xsim.io.errors import Notes, ParseError
from xsim.io.mjcf.meshes import convex_hull
from xsim.io.poses import rotate
from xsim.io.reader import Element, read_bytes
from xsim.spec import ROWS, BodySpec, GeomSpec, JointSpec, MeshSpec, OptionSpec, Soft, SurfaceSpec

__all__ = [
    "ALL_BITS", "FRICTION", "SHAPES", "STOP", "Meshes", "compliant", "default_surface", "folder_of", "is_file", "spring_damper",
    "touching", "with_soft_limits",
]  # fmt: skip

SHAPES = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
"""What touches: of the shapes of these formats, those that `xsim.model.contact_pairs` knows."""
FRICTION = 1.0
"""Coulomb's coefficient where a file says none: SDFormat's and DART's default."""
ALL_BITS = 0xFFFF
"""The bit masks where a file says none."""
STOP = Soft()
"""How soft the limits of joints are where a file does not say: a time constant of 0.02 s, critically damped, as in MuJoCo."""
_SOLVER = {"cone": "elliptic", "impratio": 10.0, "multiccd": True}
_LEAST = 1e-4  # the impedance d stays between this and 1 minus this, as in MuJoCo


def touching(option: OptionSpec, soft: bool) -> OptionSpec:
    """The option with contacts (Coulomb's cone, friction ten times as hard as the normal direction, several where faces meet); soft: and
    soft limits."""
    acting = {*option.rows, "contact", *(("soft",) if soft else ())}
    return replace(option, rows=tuple(row for row in ROWS if row in acting), solver={**_SOLVER, **option.solver})


def default_surface(group: int | None) -> SurfaceSpec:
    """Of a shape of whose surface a file says nothing. It leaves how soft a contact is to the other shape, if that says so."""
    return SurfaceSpec(contype=ALL_BITS, conaffinity=ALL_BITS, friction=(FRICTION, 0.0, 0.0), solmix=0.0, group=group)


def spring_damper(stiffness: float, damping: float, dt: float, mass: float) -> Soft:
    """Of a spring (N/m, may be infinite) and a damper (N s/m) on an effective mass (kg); for rotations N m/rad, N m s/rad, kg m^2."""
    if np.isinf(stiffness):
        return compliant(1.0, 0.0, dt, mass)
    give = dt * stiffness + damping
    return compliant(dt * stiffness / give if give > 0 else 0.0, 1.0 / give if give > 0 else np.inf, dt, mass)


def compliant(erp: float, cfm: float, dt: float, mass: float) -> Soft:
    """Of ODE's numbers (module docstring). mass: kg, or kg m^2."""
    d = float(np.clip(1.0 / (1.0 + mass * cfm / dt) if mass > 0 else 1.0, _LEAST, 1.0 - _LEAST))
    return Soft((-erp / dt**2 * d, -1.0 / dt * d), (d, d, 0.001, 0.5, 2.0))


def with_soft_limits(bodies: tuple[BodySpec, ...], friction: bool = False) -> tuple[BodySpec, ...]:
    """The bodies with soft limits of their joints, where these do not say how soft they are; friction: and soft dry friction."""

    def softened(joint: JointSpec) -> JointSpec:
        if joint.limit_soft is None and joint.position_range is not None and np.isfinite(joint.position_range).any():
            joint = replace(joint, limit_soft=STOP)
        if friction and joint.friction is not None and joint.friction_soft is None:
            joint = replace(joint, friction_soft=STOP)
        return joint

    joints = [body.joints if isinstance(body.joints, tuple) else (body.joints,) for body in bodies]
    return tuple(replace(body, joints=tuple(map(softened, own))) for body, own in zip(bodies, joints, strict=True))


# ---- files -------------------------------------------------------------------------------------------------------------------


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the system, or no name at all
        return False


def folder_of(file: str) -> Path | None:
    """The folder of a document, None where it did not come from a file."""
    return Path(file).resolve().parent if is_file(Path(file)) else None


# ---- meshes ------------------------------------------------------------------------------------------------------------------


class Meshes:
    """Collision meshes of a model, as convex hulls, and the shapes that cannot touch. specs: of `ModelSpec.meshes`."""

    def __init__(self, notes: Notes):
        self.specs: list[MeshSpec] = []
        self._notes = notes
        self._numbers: dict[tuple[str, tuple[float, ...]], int | str] = {}
        self._lost: list[tuple[GeomSpec, str]] = []
        """With the surface that they would have, and why they have none."""

    def placed(self, geom: GeomSpec, path: Path | None, element: Element) -> GeomSpec:
        """A collision mesh with its hull, about the mean of whose corners it then is placed. path: of the file, None: it is not found.

        A mesh whose file is not there or cannot be read has no surface."""
        signs = tuple(np.sign(geom.size).tolist())
        key = str(path), signs
        if key not in self._numbers:
            self._numbers[key] = "is not found" if path is None else self._read(path, signs, element)
        number = self._numbers[key]
        if isinstance(number, str):
            self._lost.append((geom, number))
            return replace(geom, contact=None)
        size = np.abs(geom.size)
        return replace(geom, size=size, asset=number, pos=geom.pos + rotate(geom.quat, size * self.specs[number].pos))

    def refuse(self, geom: GeomSpec, group: int | None) -> None:
        """Remember a collision of a shape that touches nothing. group: of its surface, if it had one."""
        text = f"is no shape that touches ({', '.join(SHAPES)})"
        self._lost.append((replace(geom, contact=default_surface(group)), text))

    def _read(self, path: Path, signs, element: Element) -> int | str:
        """Number of the mesh, or why there is none."""
        try:
            import trimesh  # pyright: ignore[reportMissingImports]
        except ImportError:
            return 'needs trimesh: pip install "xsim[mesh]"'
        try:
            data = read_bytes(path)
            mesh = trimesh.load(io.BytesIO(data), file_type=path.suffix[1:].lower(), force="mesh", process=False, skip_materials=True)
            vertices = np.unique(np.asarray(mesh.vertices, float), axis=0) * signs
            if len(vertices) < 4 or not np.isfinite(vertices).all():
                return f"has {len(vertices)} vertices"
            self.specs.append(_hull(path, vertices, element))
        except ParseError as error:
            return str(error)
        except Exception as error:  # the loaders of the many formats raise whatever they like
            return f"cannot be read: {type(error).__name__}: {str(error)[:100]}"
        return len(self.specs) - 1

    def report(self, bodies: tuple[BodySpec, ...], scenery: tuple[GeomSpec, ...] = ()) -> None:
        """Note the shapes without a surface, one line for each kind, where there is something that they could touch."""
        parties = {_party(geom, i) for i, body in enumerate(bodies) for geom in body.geoms} | {_party(geom, -1) for geom in scenery}
        parties |= {_party(geom, len(bodies) + i) for i, (geom, _) in enumerate(self._lost)}
        if len(parties - {None}) < 2:
            return
        kinds: dict[str, list] = {}
        for geom, why in self._lost:
            kinds.setdefault(geom.shape, []).append((geom, why))
        for kind, found in kinds.items():
            geom, why = found[0]
            name = f"mesh {geom.file!r}" if kind == "mesh" else kind
            text = f"collision {name} {why}: it touches nothing ({len(found)} of this kind in the model)"
            self._notes.unsupported(geom.source.line, text, geom.source.file)


def _party(geom: GeomSpec, body: int):
    """What stands for all that never touch each other: a group, or a body's shapes without one; None: what touches nothing."""
    if geom.contact is None or not geom.collision:
        return None
    return ("body", body) if geom.contact.group is None else ("group", geom.contact.group)


def _hull(path: Path, vertices: np.ndarray, element: Element) -> MeshSpec:
    """Convex hull of points (n, 3), placed about the mean of its corners; of points in a plane all of them."""
    faces = convex_hull(vertices)
    if faces is not None:
        used = np.unique(faces)
        number = np.zeros(len(vertices), int)
        number[used] = np.arange(len(used))
        vertices, faces = vertices[used], number[faces]
    centre = vertices.mean(0)
    none = np.zeros((0, 3), int)
    own = none if faces is None else faces
    return MeshSpec(path.name, vertices - centre, own, pos=centre, hull=faces, file=str(path), source=element.source)
