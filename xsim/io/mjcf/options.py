"""<option>, <size>, <statistic> and <visual>: settings that are no part of the tree."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from xsim.io.errors import ParseError
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.values import integer
from xsim.io.reader import Element
from xsim.spec import FlexSpec, OptionSpec

__all__ = ["read_drawing", "read_option", "read_sizes"]

INTEGRATORS = ("Euler", "RK4", "implicit", "implicitfast")
INTEGRATORS_4_0 = ("discrete",)
PARTS = (
    "constraint", "equality", "frictionloss", "limit", "contact", "gravity", "clampctrl", "warmstart", "filterparent", "actuation",
    "refsafe", "sensor", "midphase", "eulerdamp", "autoreset",
)  # fmt: skip
PASSIVE = ("passive",)
PASSIVE_4_0 = ("spring", "damper")  # without both there are no passive forces at all
EXTRAS = ("override", "energy", "fwdinv", "invdiscrete", "multiccd", "island", "nativeccd")  # flags that are off at first
EXTRAS_4_0 = ("sleep", "diagexact", "speculative")
ON_BY_DEFAULT_4_0 = ("multiccd", "island", "nativeccd")
WORDS = {"cone": ("pyramidal", "elliptic"), "jacobian": ("dense", "sparse", "auto"), "solver": ("PGS", "CG", "Newton")}
SOLVER: dict = {
    "impratio": 1.0, "tolerance": 1e-8, "ls_tolerance": 0.01, "noslip_tolerance": 1e-6, "ccd_tolerance": 1e-6, "sleep_tolerance": 1e-3,
    "o_margin": 0.0,
    "iterations": 100, "ls_iterations": 50, "noslip_iterations": 0, "ccd_iterations": 50, "sdf_iterations": 10, "sdf_initpoints": 40,
    "o_solref": (0.02, 1.0), "o_solimp": (0.9, 0.95, 0.001, 0.5, 2.0), "o_friction": (1.0, 1.0, 0.005, 0.0001, 0.0001),
    "cone": "pyramidal", "jacobian": "auto", "solver": "Newton",
}  # fmt: skip
VECTORS = {"gravity": (0.0, 0.0, -9.81), "wind": (0.0, 0.0, 0.0), "magnetic": (0.0, -0.5, 0.0)}

USERS = ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")
COUNTS = ("nuserdata", "nkey")
MEMORY = ("njmax", "nconmax", "nstack")  # no effect here

STATISTIC = {"meanmass": 1, "meaninertia": 1, "meansize": 1, "extent": 1, "center": 3}
LETTERS = re.compile(r"[A-Za-z]+")


def read_option(document: Document, flexes: Sequence[FlexSpec] = ()) -> OptionSpec:
    """All <option> sections, later values winning. The constraint solver's numbers are in ``solver`` by the file's names, with the flags
    of what is switched on there. flexes: those of the model. Raises ParseError."""
    names = {"timestep": 0.002, "density": 0.0, "viscosity": 0.0}
    vectors = {name: np.array(value) for name, value in VECTORS.items()}
    release = document.release
    solver = SOLVER | ({"ccd_iterations": 35} if release.more_contact_defaults else {})
    parts = PARTS + (PASSIVE_4_0 if release.schema == "4.0" else PASSIVE)
    on = parts + (ON_BY_DEFAULT_4_0 if release.more_contact_defaults else ())
    flags = {name: name in on for name in parts + EXTRAS + (EXTRAS_4_0 if release.schema == "4.0" else ())}
    integrator, groups = "Euler", set()
    for e in document.sections("option"):
        names = {name: e.number(name, value, positive=name == "timestep", nonnegative=True) for name, value in names.items()}
        vectors = {name: e.floats(name, 3, value) for name, value in vectors.items()}
        solver = {name: _solver_value(e, name, value) for name, value in solver.items()}
        integrator = e.choice("integrator", INTEGRATORS + (INTEGRATORS_4_0 if release.schema == "4.0" else ()), integrator)
        groups |= _groups(e)
        e.number("apirate", 100.0)
        section = e.child("flag")
        if section is not None:
            flags = {n: section.choice(n, ("disable", "enable"), "enable" if on else "disable") == "enable" for n, on in flags.items()}
    for e in document.sections("option") if integrator == "discrete" else ():
        _check_discrete(e, solver, flags, flexes)
    _check_passive_contact(integrator, flexes)
    return OptionSpec(
        gravity=vectors["gravity"],
        dt=names["timestep"],
        integrator=_rule(integrator, flags, release.rk4_on_manifold),
        constraint_kinds=("soft", "contact"),
        density=names["density"],
        viscosity=names["viscosity"],
        wind=vectors["wind"],
        magnetic=vectors["magnetic"],
        disabled=_disabled(parts, flags),
        actuator_groups_off=tuple(sorted(groups)),
        solver=solver | {name: flags.get(name, False) for name in EXTRAS + EXTRAS_4_0},
    )


def _check_discrete(e: Element, solver: dict, flags: dict[str, bool], flexes: Sequence[FlexSpec]) -> None:
    """Raise ParseError for what is not simulated, or is an error in MuJoCo, with the integrator discrete."""
    for unknown, name, wanted in (
        (solver["solver"] == "PGS", 'solver="PGS"', "the solvers CG and Newton"),
        (solver["noslip_iterations"], "noslip_iterations", "noslip_iterations 0"),
        (flags["sleep"] and not flags["island"], "sleep without islands", "sleep with the flag island"),
        (any(map(_has_other_slopes, flexes)), "flexes with edge stiffness or damping, lines that bend, or yielding",
         "elasticity of triangles, tetrahedra and grids, and equalities"),
    ):
        if unknown:
            raise e.error(f"found 'discrete' with {name}, which is not simulated; allowed: {wanted}", "integrator")


def _check_passive_contact(integrator: str, flexes: Sequence[FlexSpec]) -> None:
    """Raise ParseError for passive contact without the integrator discrete, as MuJoCo does in a step."""
    for flex in flexes if integrator != "discrete" else ():
        if flex.has_passive_contact:
            text = f'<contact>: passive of flex {flex.name!r}: found integrator {integrator!r}; allowed: integrator="discrete"'
            raise ParseError(flex.source.file, flex.source.line, text)


def _has_other_slopes(flex: FlexSpec) -> bool:
    springs = flex.numbers["edge_stiffness"] or flex.numbers["edge_damping"]
    return bool(springs or flex.rod is not None or flex.nplastic)


def _disabled(parts: tuple[str, ...], flags: dict[str, bool]) -> tuple[str, ...]:
    off = tuple(name for name in parts if not flags[name])
    return (*off, "passive") if {"spring", "damper"}.issubset(off) else off


def _rule(integrator: str, flags: dict[str, bool], rk4_on_manifold: bool) -> str:
    """xsim's name of an integrator. Euler's rule takes the joints' damping at the new velocity; rk4_on_manifold: Runge-Kutta's
    moves quaternions by the mean velocity of the stages; else as four numbers."""
    if integrator == "Euler":
        return "implicit_damping" if flags["eulerdamp"] and flags.get("damper", True) else "euler"
    if integrator == "RK4":
        return "rk4_manifold" if rk4_on_manifold else "rk4"
    return integrator


def _solver_value(e: Element, name: str, value):
    if name in WORDS:
        return e.choice(name, WORDS[name], value)
    if isinstance(value, tuple):
        given = e.floats(name, tuple(range(len(value) + 1)), ())
        return (*given.tolist(), *value[len(given) :])
    if isinstance(value, float):
        return e.number(name, value, nonnegative=name != "o_margin")
    found = integer(e, name, value)
    if found < 0:
        raise e.error(f"found {found}; allowed: integers >= 0", name)
    return found


def _groups(e: Element) -> set[int]:
    groups = e.floats("actuatorgroupdisable", default=())
    if ((groups < 0) | (groups > 30) | (groups % 1 != 0)).any():
        raise e.error(f"found {e.raw('actuatorgroupdisable')!r}; allowed: integers from 0 to 30", "actuatorgroupdisable")
    return {int(group) for group in groups}


def read_sizes(document: Document) -> dict[str, int]:
    """All <size> sections: how many users' numbers a body, jnt, geom, site, cam, tendon, actuator, sensor has (-1: as many as the longest),
    ``nuserdata`` and ``nkey``. Raises ParseError."""
    out: dict[str, int] = {name: -1 for name in USERS} | {name: 0 for name in COUNTS}
    for e in document.sections("size"):
        for name in out:
            attribute, least = (name, 0) if name in COUNTS else (f"nuser_{name}", -1)
            out[name] = integer(e, attribute, out[name])
            if not least <= out[name] <= 1_000_000:
                raise e.error(f"found {out[name]}; allowed: integers from {least} to 1000000", attribute)
        for name in MEMORY:
            integer(e, name, -1)
        memory = e.string("memory", "-1")
        if not re.fullmatch(r"-1|\d+[KMGTPE]?", memory):
            raise e.error(f"found {memory!r}; allowed: an integer, and one of the letters K M G T P E", "memory")
    return out


def read_drawing(document: Document) -> dict:
    """<statistic> and <visual>, as numbers by the file's names: ``{"statistic": {...}, "visual": {part: {...}}}``. Raises ParseError."""
    statistic: dict = {}
    visual: dict = {}
    for e in document.sections("statistic"):
        for name, count in STATISTIC.items():
            if e.has(name):
                value = e.floats(name, count)
                statistic[name] = tuple(value.tolist()) if count > 1 else float(value[0])
        if statistic.get("extent", 1.0) <= 0:
            raise e.error(f"found {statistic['extent']:g}; allowed: numbers > 0", "extent")
    for section in document.sections("visual"):
        for e in section.children():
            part = visual.setdefault(e.tag, {})
            for name in e.attributes:
                part[name] = _drawn(e, name)
    return {"statistic": statistic, "visual": visual}


def _drawn(e: Element, name: str):
    word = e.string(name)
    if LETTERS.fullmatch(word):
        return e.boolean(name)
    value = e.floats(name, (1, 3, 4))
    return tuple(value.tolist()) if len(value) > 1 else float(value[0])
