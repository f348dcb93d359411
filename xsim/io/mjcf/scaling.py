"""Scales of <frame>: factors of lengths and masses of what is in a frame. Source: MuJoCo 4.0's documentation, frame scale.

A quantity of the dimension length^a mass^b time^c is multiplied by s^a m^b; times and angles stay. With ``scaling="geometry"`` only
lengths, masses and moments of inertia change, not forces and what they are made of: stiffness, damping, armature, friction, gains.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from xsim.io.mjcf.assets import Assets
from xsim.io.mjcf.inertia import Inertial
from xsim.io.reader import Element
from xsim.poses import Pose
from xsim.spec import CameraSpec, GeomSpec, HfieldSpec, JointSpec, LightSpec, MeshSpec, SiteSpec, Soft, SurfaceSpec

__all__ = ["UNIT", "Scale", "Scaler", "read_scale", "scaled_inertial", "unscaled", "widened"]

POLICIES = ("similar", "geometry")


class Scale(NamedTuple):
    """length, mass: factors of lengths and masses. unit, unit_mass: those of the lengths and masses in forces and what they are made of.
    shift: of what is in a frame of the world: a place p in the world of the file is at length p + shift, m."""

    length: float = 1.0
    mass: float = 1.0
    unit: float = 1.0
    unit_mass: float = 1.0
    shift: tuple[float, ...] = (0.0, 0.0, 0.0)

    @property
    def factors(self) -> tuple[float, float, float, float]:
        return self.length, self.mass, self.unit, self.unit_mass

    def times(self, inner: Scale, origin: np.ndarray) -> Scale:
        """The scale of a frame with an own scale inside this one. origin: of that frame, which keeps its place."""
        shift = tuple((origin - inner.length * (origin - self.shift)).tolist()) if inner.length != 1 else self.shift
        length, mass, unit, unit_mass = (a * b for a, b in zip(self.factors, inner.factors, strict=True))
        return Scale(length, mass, unit, unit_mass, shift)

    def mean(self, other: Scale) -> Scale:
        """The geometric mean of two scales, without a shift."""
        length, mass, unit, unit_mass = (float(np.sqrt(a * b)) for a, b in zip(self.factors, other.factors, strict=True))
        return Scale(length, mass, unit, unit_mass)

    def force(self, power: int) -> float:
        """The factor of a quantity of the dimension mass length^power."""
        return self.unit_mass * self.unit**power


UNIT = Scale()


def read_scale(e: Element) -> Scale:
    """The scale of a <frame>. Raises ParseError."""
    given = e.floats("scale", (1, 3), (1.0,))
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise e.error(f"found {e.raw('scale')!r}; allowed: numbers > 0", "scale")
    if given.min() != given.max():
        raise e.error(f"found {e.raw('scale')!r}, three factors, which is not simulated; allowed: one factor", "scale")
    length, mass = float(given[0]), e.number("massscale", 0.0, nonnegative=True)
    mass = mass or length**3
    return Scale(length, mass, *((length, mass) if e.choice("scaling", POLICIES, POLICIES[0]) == "similar" else (1.0, 1.0)))


def widened(soft: Soft, length: float) -> Soft:
    """Softness whose width is a length, scaled."""
    low, high, width, *rest = soft.solimp
    return replace(soft, solimp=(low, high, width * length, *rest))


def unscaled(frame: Pose, scale: Scale) -> Pose:
    """The pose of a frame in coordinates that are scaled afterwards."""
    return frame if scale == UNIT else Pose(frame.quat, frame.pos / scale.length)


def _times(x: Any, factor: float) -> Any:
    """A number, a tuple or an array times a factor; None stays."""
    if x is None:
        return None
    return tuple(y * factor for y in x) if isinstance(x, tuple) else x * factor


class Scaler:
    """Scales the contents of bodies. assets: to which meshes and height fields of other sizes are added."""

    def __init__(self, assets: Assets):
        self.assets = assets
        self._sizes: dict[tuple, int] = {}

    def _sized(self, kind: str, number: int, factor: float) -> int:
        """The number of a mesh or height field in another size, which MuJoCo's names tell apart by @1, @2, ..."""
        items: list = self.assets.meshes if kind == "mesh" else self.assets.hfields
        key = kind, number, factor
        if key not in self._sizes:
            self._sizes[key] = len(items)
            count = sum(other[:2] == key[:2] for other in self._sizes)
            sized = _mesh(items[number], factor) if kind == "mesh" else _hfield(items[number], factor)
            items.append(replace(sized, name=f"{sized.name}@{count}"))
        return self._sizes[key]

    def geom(self, geom: GeomSpec, scale: Scale) -> GeomSpec:
        if scale == UNIT:
            return geom
        s, dimension = scale.length, 2 if geom.shell else 3
        asset = geom.asset
        if asset is not None and geom.shape in ("mesh", "hfield"):
            dimension = 2 if geom.shape == "mesh" and self.assets.meshes[asset].shell else dimension
            asset = self._sized(geom.shape, asset, s)
        velocity = geom.surface_velocity
        return replace(
            geom,
            size=geom.size if asset is not None and geom.shape == "mesh" else geom.size * s,
            pos=geom.pos * s,
            mass=geom.mass * scale.mass,
            density=None if geom.density is None else geom.density * scale.mass / s**dimension,
            asset=asset,
            contact=None if geom.contact is None else _surface(geom.contact, scale),
            surface_velocity=None if velocity is None else (*_times(velocity[:3], s), *velocity[3:]),
        )

    def site(self, site: SiteSpec, scale: Scale) -> SiteSpec:
        if scale == UNIT:
            return site
        s = scale.length
        planes = None if site.planes is None else site.planes * [1.0, 1.0, 1.0, s]
        asset = None if site.asset is None else self._sized("mesh", site.asset, s)
        return replace(site, pos=site.pos * s, size=site.size * s, planes=planes, asset=asset)

    def camera(self, camera: CameraSpec, scale: Scale) -> CameraSpec:
        if scale == UNIT:
            return camera
        return replace(camera, pos=camera.pos * scale.length, ipd=camera.ipd * scale.length)

    def light(self, light: LightSpec, scale: Scale) -> LightSpec:
        if scale == UNIT:
            return light
        sizes = {name: light.drawing[name] * scale.length for name in ("bulbradius", "range") if name in light.drawing}
        return replace(light, pos=light.pos * scale.length, drawing=light.drawing | sizes)

    def joint(self, joint: JointSpec, scale: Scale) -> JointSpec:
        """Free joints keep their numbers; where they start follows from the body."""
        if scale == UNIT:
            return joint
        s = scale.length
        fields: dict[str, Any] = {"pos": joint.pos * s}
        if joint.type == "free":
            return joint
        slides = joint.type == "slide"
        k, force = scale.force(0 if slides else 2), scale.force(1 if slides else 2)
        fields |= {name: _times(getattr(joint, name), k) for name in ("stiffness", "damping", "armature")}
        fields |= {name: _times(getattr(joint, name), force) for name in ("friction", "actuator_force_range")}
        for name in ("stiffness_poly", "damping_poly"):
            higher = getattr(joint, name)
            if higher is not None:
                fields[name] = tuple(x * scale.force(-i if slides else 2) for i, x in enumerate(higher, 1))
        if slides:
            lengths = ("position_range", "ref", "q0", "spring_ref", "margin", "spring_yield")
            fields |= {name: _times(getattr(joint, name), s) for name in lengths}
            fields |= {name: widened(getattr(joint, name), s) for name in ("limit_soft", "friction_soft")}
        return replace(joint, **fields)


def scaled_inertial(inertial: Inertial, scale: Scale) -> Inertial:
    """Mass properties that an <inertial> gives."""
    if scale == UNIT:
        return inertial
    pose = Pose(inertial.pose.quat, inertial.pose.pos * scale.length)
    return Inertial(inertial.mass * scale.mass, pose, inertial.moments * scale.mass * scale.length**2)


def _surface(surface: SurfaceSpec, scale: Scale) -> SurfaceSpec:
    s = scale.length
    sliding, *turning = surface.friction
    return replace(
        surface,
        friction=(sliding, *_times(tuple(turning), s)),
        soft=widened(surface.soft, s),
        margin=surface.margin * s,
        gap=surface.gap * s,
        adhesion=surface.adhesion * scale.force(1),
    )


def _mesh(mesh: MeshSpec, s: float) -> MeshSpec:
    return replace(
        mesh,
        vertices=mesh.vertices * s,
        volume=mesh.volume * s ** (2 if mesh.shell else 3),
        area=mesh.area * s**2,
        moments=mesh.moments * s**2,
        shell_com=mesh.shell_com * s,
        shell_inertia=mesh.shell_inertia * s**2,
        pos=mesh.pos * s,
        scale=mesh.scale * s,
    )


def _hfield(field: HfieldSpec, s: float) -> HfieldSpec:
    return replace(field, size=field.size * s)
