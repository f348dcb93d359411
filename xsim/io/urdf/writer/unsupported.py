"""What a model has beside bodies and mimic joints, and URDF does not."""

from __future__ import annotations

import numpy as np

from xsim.io.urdf.writer.document import Document
from xsim.io.urdf.writer.effort import is_motor

__all__ = ["report_unsupported"]

ACTING = {
    "tendons": "tendons", "forces": "springs and dampers between bodies", "flexes": "flexes", "passive": "passive forces",
    "pairs": "pairs with contact parameters of their own",
}  # fmt: skip
SHOWN = {"sensors": "sensors", "sites": "sites", "cameras": "cameras", "lights": "lights", "keys": "keyframes", "frames": "named frames"}
GRAVITY = (9.8, 9.81)
"""What the simulators that read URDF take, m/s^2."""
SAME = 0.02  # m/s^2


def report_unsupported(document: Document) -> None:
    """Raises WriteError for what acts and that URDF has no word for; what only shows or measures is a line of the warning."""
    _report_elements(document)
    _report_actuators(document)
    _report_bodies(document)
    _report_options(document)


def _report_elements(document: Document) -> None:
    for field, what in ACTING.items():
        elements = getattr(document.spec, field)
        if elements:
            document.losses.lose(elements[0].source, what, f"{len(elements)} of them; URDF has none", "they are left out")
    for field, what in SHOWN.items():
        elements = getattr(document.spec, field)
        if elements:
            document.losses.drop(getattr(elements[0], "source", document.spec.source), what, f"{len(elements)} of them; URDF has none")


def _report_actuators(document: Document) -> None:
    for number, actuator in enumerate(document.spec.actuators):
        if is_motor(actuator):
            continue
        text = f"a {actuator.controller or actuator.transmission} actuator that is no motor of a joint; URDF has joints driven by forces"
        document.losses.lose(actuator.source, f"actuator {actuator.name or number!r}", text, "its largest force is written at most")


def _report_bodies(document: Document) -> None:
    for number, body in enumerate(document.spec.bodies):
        found = {
            "mocap": body.mocap, "gravity compensation": body.gravcomp or body.gravity != 1.0,
            "a fluid shape": any(geom.fluid is not None for geom in body.geoms),
            "a moving surface": any(geom.surface_velocity is not None for geom in body.geoms),
        }  # fmt: skip
        for what in (name for name, given in found.items() if given):
            document.losses.lose(body.source, f"body {body.name or number!r}", f"{what}; URDF has none", "it is left out")


def _report_options(document: Document) -> None:
    option, source = document.spec.option, document.spec.source
    x, y, z = option.gravity
    if x or y or not GRAVITY[0] - SAME < -z < GRAVITY[1] + SAME:
        text = f"gravity {np.asarray(option.gravity).tolist()}; URDF has none, its readers take 0 0 -9.8"
        document.losses.lose(source, "model", text, "it is left out")
    if option.density or option.viscosity:
        document.losses.lose(source, "model", "a fluid around the bodies; URDF has none", "it is left out")
