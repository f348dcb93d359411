"""How collisions touch: what their <surface> means, and which of them do.

Collisions of one model touch only where <self_collide> of one of the two links (or of the models around them) asks for it; a model is
the outermost one, with all that is nested in it. Of two surfaces the smaller sliding friction counts (ODE, Bullet, DART), the larger
torsional and rolling one, and the stiffer contact. Masks as the specification has them: a contact where category and collide bits of the
two meet, either way round.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xsim.io.contact_parameters import ALL_BITS, FRICTION, SHAPES, default_surface, erp_cfm, spring_damper
from xsim.io.errors import Notes
from xsim.io.hulls import CollisionMeshes
from xsim.io.reader import Element
from xsim.io.sdf.frames import Frame
from xsim.io.sdf.geometry import Shape
from xsim.spec import GeomSpec, Soft, SurfaceSpec

__all__ = ["Contacts"]

CONTACT, ODE, BULLET, TORSION = "contact/", "friction/ode/", "friction/bullet/", "friction/torsional/"
# What does not act, the values at which that makes no difference, and what is said otherwise.
_UNUSED: dict[str, tuple[tuple[float, ...], str]] = {
    "bounce/restitution_coefficient": ((0.0,), "contacts do not bounce"),
    f"{ODE}slip1": ((0.0,), "contacts do not slip in proportion to their force"),
    f"{ODE}slip2": ((0.0,), "contacts do not slip in proportion to their force"),
    f"{TORSION}ode/slip": ((0.0,), "contacts do not slip in proportion to their force"),
    f"{TORSION}surface_radius": ((0.0,), "torsional friction is that of patch_radius"),
    f"{CONTACT}elastic_modulus": ((-1.0, 0.0), "contacts are springs, see kp"),
    f"{CONTACT}ode/max_vel": ((np.inf,), "how fast contacts push apart has no bound"),
    **{f"soft_contact/dart/{k}": ((0.0,), "links are rigid") for k in ("stiffness", "damping", "flesh_mass_fraction")},
}


class Contacts:
    """What the surfaces of a document need to know. dt: its time step, s."""

    def __init__(self, dt: float, notes: Notes):
        self.dt, self.notes, self.meshes = dt, notes, CollisionMeshes(notes)
        self._groups: dict[Frame, int] = {}

    def with_surface(self, geom: GeomSpec, shape: Shape, link: Frame, element: Element, mass: float) -> GeomSpec:
        """A collision with its surface. element: the <collision>; mass: of its link, kg."""
        numbers = geom.surface
        if geom.shape not in SHAPES:
            self.meshes.refuse(geom, self._group(link))
            return geom
        for path, (without, text) in _UNUSED.items():
            if numbers.get(path, without[0]) not in without:
                self.notes.unsupported(element.line, f"{element}: {path} {numbers[path]:g}: {text}", element.file)
        if numbers.get(f"{CONTACT}collide_without_contact"):  # it only tells that there is an overlap
            return geom
        geom = replace(geom, contact=self._surface(geom, link, element, mass))
        return self.meshes.with_hull(geom, shape.path, element) if geom.shape == "mesh" else geom

    def _surface(self, geom: GeomSpec, link: Frame, element: Element, mass: float) -> SurfaceSpec:
        numbers, surface = geom.surface, default_surface(self._group(link))
        collide = int(numbers.get(f"{CONTACT}collide_bitmask", ALL_BITS)) & ALL_BITS
        category = int(numbers.get(f"{CONTACT}category_bitmask", collide)) & ALL_BITS
        slide, torsion, roll = self._slide(geom, element), _torsion(numbers), numbers.get(f"{BULLET}rolling_friction", 0.0)
        for name, value in (("friction", slide), ("torsional friction", torsion), ("rolling friction", roll)):
            if value < 0 or np.isnan(value):
                raise element.error(f"{name} {value:g}; allowed: numbers >= 0")
        soft = _soft(numbers, self.dt, mass, element)
        depth = numbers.get(f"{CONTACT}ode/min_depth", 0.0)
        if depth < 0 or not np.isfinite(depth):
            raise element.error(f"min_depth {depth:g}; allowed: numbers >= 0")
        return replace(
            surface, contype=category, conaffinity=collide, condim=6 if roll > 0 else 4 if torsion > 0 else 3,
            friction=(slide, torsion, roll), soft=soft or surface.soft, solmix=0.0 if soft is None else 1.0, margin=0.0 - depth,
        )  # fmt: skip

    def _slide(self, geom: GeomSpec, element: Element) -> float:
        """Coulomb's coefficient, the smaller of two: the first and second direction of friction cannot differ."""
        numbers = geom.surface
        bullet = [numbers[f"{BULLET}{k}"] for k in ("friction", "friction2") if f"{BULLET}{k}" in numbers]
        coefficients = geom.friction or tuple(bullet) or (FRICTION,)
        if min(coefficients) != max(coefficients):
            text = f"{element}: friction {' and '.join(f'{x:g}' for x in coefficients)}: the smaller one counts in every direction"
            self.notes.unsupported(element.line, text, element.file)
        return min(min(coefficients), 1e10)

    def _group(self, link: Frame) -> int | None:
        """The outermost model of a link, by number; None where the link touches those of its own model."""
        given, outer = link.element.child("self_collide"), link
        while outer.home is not None and outer.home.kind == "model":
            outer = outer.home
            given = outer.element.child("self_collide") if given is None else given
        if given is not None and given.boolean(None):
            return None
        return self._groups.setdefault(outer, len(self._groups))


def _torsion(numbers: dict[str, float]) -> float:
    """Arm of the torsional friction, m: 3 pi / 16 of a patch's radius times the coefficient (specification, use_patch_radius)."""
    patch = numbers.get(f"{TORSION}patch_radius", 0.0) if numbers.get(f"{TORSION}use_patch_radius", 1.0) else 0.0
    return 3 * np.pi / 16 * numbers.get(f"{TORSION}coefficient", 1.0) * patch


def _soft(numbers: dict[str, float], dt: float, mass: float, element: Element) -> Soft | None:
    """How soft a contact is, None where the file does not say: by kp and kd, else by soft_erp and soft_cfm."""
    for engine in ("ode", "bullet"):
        kp, kd, erp, cfm = (numbers.get(f"{CONTACT}{engine}/{name}") for name in ("kp", "kd", "soft_erp", "soft_cfm"))
        given = [x for x in (kp, kd, erp, cfm) if x is not None]
        if any(x < 0 or np.isnan(x) for x in given):
            raise element.error("a contact with a negative stiffness, damping, soft_erp or soft_cfm; allowed: numbers >= 0")
        if kp is not None or kd is not None:
            return spring_damper(1e12 if kp is None else kp, 1.0 if kd is None else kd, dt, mass)
        if erp is not None or cfm is not None:
            return erp_cfm(min(0.2 if erp is None else erp, 1.0), cfm or 0.0, dt, mass)
    return None
