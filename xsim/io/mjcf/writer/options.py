"""<compiler>, <option>, <statistic> and <visual>."""

from __future__ import annotations

from typing import Any

from xsim.io.mjcf.options import EXTRAS, EXTRAS_4_0, PARTS, PASSIVE, PASSIVE_4_0, SOLVER, VECTORS
from xsim.io.mjcf.writer.context import Context
from xsim.io.writing.elements import add, unless
from xsim.rules import RULES

__all__ = ["check_friction", "write_compiler", "write_drawing", "write_option"]

EXACT = {
    "implicit_damping": "Euler", "euler": "Euler", "rk4_manifold": "RK4", "rk4": "RK4", "implicit": "implicit",
    "implicitfast": "implicitfast", "discrete": "discrete",
}  # fmt: skip
"""MuJoCo's names of rules of integration."""
NEAR = {"dart": "Euler", "linearly_implicit": "implicit"}
"""Rules of other engines, and those of MuJoCo that are nearest to them."""
QUATERNIONS = {"3.2": "rk4_manifold", "4.0": "rk4"}
"""The Runge-Kutta rule of a release."""
SAID = ("multiccd", "island", "nativeccd")
"""Flags that are always written: their defaults differ between releases."""
COMPILER = {"angle": "radian", "autolimits": False, "inertiafromgeom": False}


def write_compiler(context: Context) -> None:
    """Everything as it is written: radians, limits where they are said to be, mass properties of their own."""
    e = add(context.root, "compiler", **COMPILER)
    if any(actuator.length_range is None for actuator in context.spec.actuators):
        add(e, "lengthrange", **context.spec.option.solver.get("length_range", {}))


def write_option(context: Context) -> None:
    """<option> and its flags."""
    option, default = context.spec.option, SOLVER
    given = {name: option.solver[name] for name in default if name in option.solver and name not in ("ccd_iterations", "sleep_tolerance")}
    e = add(
        context.root, "option",
        timestep=option.dt,
        integrator=_integrator(context),
        **{name: unless(VECTORS[name], getattr(option, name)) for name in VECTORS},
        density=unless(0.0, option.density),
        viscosity=unless(0.0, option.viscosity),
        **{name: unless(default[name], value) for name, value in given.items()},
        ccd_iterations=option.solver.get("ccd_iterations"),
        sleep_tolerance=option.solver.get("sleep_tolerance") if context.rules == "4.0" else None,
        actuatorgroupdisable=option.actuator_groups_off or None,
    )  # fmt: skip
    if option.regularization:
        text = f"regularization {option.regularization:g} of the mass matrix; MJCF has none; it is left out"
        context.losses.drop(context.spec.source, "option", text)
    add(e, "flag", **_flags(context))


def _integrator(context: Context) -> str:
    option = context.spec.option
    name = EXACT.get(option.integrator) or NEAR.get(option.integrator)
    if name is None or name == "discrete" and context.rules != "4.0":
        context.losses.refuse(context.spec.source, "option", f"integrator {option.integrator!r}; MJCF has {', '.join(EXACT)}")
    if option.integrator in NEAR or name == "RK4" and option.integrator != QUATERNIONS[context.rules]:
        text = f"integrator {option.integrator!r}; MJCF has {', '.join(EXACT)}; {name} is written"
        context.losses.drop(context.spec.source, "option", text)
    return name


def _flags(context: Context) -> dict[str, Any]:
    """Flags that are not at their defaults, and those of SAID."""
    option, extras = context.spec.option, EXTRAS + (EXTRAS_4_0 if context.rules == "4.0" else ())
    parts = PARTS + (PASSIVE_4_0 if context.rules == "4.0" else PASSIVE)
    off = set(option.disabled) | _kinds_off(context)
    # The integrator says whether joint dampers act at the end of the step.
    off -= {"eulerdamp"} if option.integrator == "implicit_damping" else set()
    off |= {"eulerdamp"} if option.integrator == "euler" and "damper" not in off else set()
    flags: dict[str, Any] = {name: "disable" for name in parts if name in off}
    on = {name for name in extras if option.solver.get(name)}
    return flags | {name: "enable" if name in on else "disable" for name in extras if name in on or name in SAID}


def _kinds_off(context: Context) -> set[str]:
    """Flags of the constraints of MuJoCo that do not act in the model."""
    kinds = context.spec.option.constraint_kinds
    off = set() if "contact" in kinds or not _has_contacts(context) else {"contact"}
    if "soft" in kinds:
        return off
    joints = [joint for body in context.spec.bodies for joint in body.joints]
    limited = any(joint.limit_soft is not None and "limit" not in kinds for joint in joints) or any(t.range for t in context.spec.tendons)
    rubbed = any(joint.friction_soft is not None and "friction" not in kinds for joint in joints)
    off |= {"limit"} if limited else set()
    off |= {"frictionloss"} if rubbed or any(tendon.friction for tendon in context.spec.tendons) else set()
    return off | ({"equality"} if context.spec.equalities else set())


def _has_contacts(context: Context) -> bool:
    return any(geom.contact is not None and geom.collision for _, geom in context.geoms())


def check_friction(context: Context) -> None:
    """Raises WriteError where the smaller of two coefficients of friction counts: in MuJoCo it is the larger one."""
    spec = context.spec
    touching = [g.contact.friction[0] for _, g in context.geoms() if g.contact is not None and g.collision and g.contact.contype]
    if RULES[spec.rules].smaller_friction and "contact" in spec.option.constraint_kinds and len(set(touching)) > 1:
        text = f"friction from {min(touching):g} to {max(touching):g}, of two surfaces the smaller one; MJCF has the larger one"
        context.losses.lose(spec.source, "contact", text, "each surface keeps its own")


def write_drawing(context: Context) -> None:
    """<statistic> and <visual>, which only pictures need."""
    statistic, visual = context.spec.drawing.get("statistic"), context.spec.drawing.get("visual")
    if statistic:
        add(context.root, "statistic", **statistic)
    for part, attributes in (visual or {}).items():
        add(context.section("visual"), part, **attributes)
