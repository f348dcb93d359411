"""How the collision shapes of links touch."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from xsim.io.contact_parameters import default_surface, erp_cfm, spring_damper
from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.spec import SurfaceSpec

__all__ = ["BULLET", "COEFFICIENTS", "DT", "Surface", "read_collision_surface", "read_surface"]

DT = 0.001  # s


BULLET = ("lateral_friction", "rolling_friction", "spinning_friction", "stiffness", "damping", "contact_cfm", "contact_erp")
"""Elements of Bullet's ``<contact>`` in a link."""

COEFFICIENTS = ("mu", "kp", "kd")
"""Attributes of ``<contact_coefficients>`` of a collision."""


# Elements of Bullet's that do not act, and the values at which that makes no difference.
_BULLET_UNUSED = {"restitution": (0.0, "contacts do not bounce"), "inertia_scaling": (1.0, "inertias are as written")}


class Surface(NamedTuple):
    """A surface, and the numbers of the file that it comes from."""

    spec: SurfaceSpec
    numbers: dict[str, float]


def read_surface(link: Element, group: int | None, mass: float, notes: Notes) -> Surface:
    """The surface of the collisions of a link: the default, or that of Bullet's ``<contact>``. mass: of the link, kg."""
    surface, contact = default_surface(group), link.child("contact")
    if contact is None:
        return Surface(surface, {})
    numbers = {child.tag: child.number("value", nonnegative=True) for child in contact.all(*BULLET)}
    for child in contact.all(*_BULLET_UNUSED):
        (without, text), value = _BULLET_UNUSED[child.tag], child.number("value")
        if value != without:
            notes.unsupported(child.line, f"{child} in {contact}: value {value:g}: {text}", child.file)
    slide, roll, spin = (numbers.get(name, default) for name, default in zip(BULLET, (surface.friction[0], 0.0, 0.0), strict=False))
    surface = replace(surface, friction=(slide, spin, roll), condim=6 if roll > 0 else 4 if spin > 0 else 3)
    if "stiffness" in numbers or "damping" in numbers:
        soft = spring_damper(numbers.get("stiffness", np.inf), numbers.get("damping", 0.0), DT, mass)
        surface = replace(surface, soft=soft, solmix=1.0)
    elif "contact_erp" in numbers or "contact_cfm" in numbers:
        soft = erp_cfm(min(numbers.get("contact_erp", 0.2), 1.0), numbers.get("contact_cfm", 0.0), DT, mass)
        surface = replace(surface, soft=soft, solmix=1.0)
    return Surface(surface, numbers)


def read_collision_surface(collision: Element, surface: Surface, mass: float) -> Surface:
    """The surface of a collision: that of its link, or what its ``<contact_coefficients>`` (mu, kp, kd; of old ROS) give."""
    coefficients = collision.child("contact_coefficients")
    if coefficients is None:
        return surface
    spec = surface.spec
    numbers = {name: coefficients.number(name, nonnegative=True) for name in COEFFICIENTS if coefficients.has(name)}
    if "mu" in numbers:
        spec = replace(spec, friction=(numbers["mu"], *spec.friction[1:]))
    if "kp" in numbers or "kd" in numbers:
        spec = replace(spec, soft=spring_damper(numbers.get("kp", np.inf), numbers.get("kd", 0.0), DT, mass), solmix=1.0)
    return Surface(spec, surface.numbers | numbers)
