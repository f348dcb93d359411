"""Materials and the colours of visuals."""

from __future__ import annotations

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.io.urdf.values import required_floats

__all__ = ["Color", "Colors", "read_materials", "read_rgba"]

Color = tuple[float, float, float, float]


Colors = dict[str, Color | None]


def _color(material: Element, notes: Notes) -> Color | None:
    for texture in material.all("texture"):
        texture.skip()
    color = material.child("color")
    if color is None:
        return None
    rgba = required_floats(color, "rgba", 4)
    if ((rgba < 0) | (rgba > 1)).any():
        notes.suspicious(color.line, f"{color} in {material}: rgba: {rgba} was cut to 0..1")
    r, g, b, a = map(float, np.clip(rgba, 0, 1))
    return r, g, b, a


def read_materials(root: Element, links: dict[str, Element], notes: Notes) -> Colors:
    """Colours by the name of their material, the first definition of a name: those of the robot, then those inside visuals."""
    colors: Colors = {}
    for material in root.all("material"):
        name = material.string("name")
        if name in colors:
            notes.suspicious(material.line, f"{material}: is defined a second time, the first one counts")
        colors.setdefault(name, _color(material, notes))
    silent = Notes(root.file)  # `read_rgba` reads them again
    for link in links.values():
        for visual in link.all("visual"):
            material = visual.child("material")
            if material is not None and material.child("color") is not None:
                colors.setdefault(material.raw("name") or "", _color(material, silent))
    return colors


def read_rgba(element: Element, materials: Colors, notes: Notes) -> Color | None:
    """Colour of a visual: of its material or of the material it names."""
    material = element.child("material")
    if material is None:
        return None
    if element.tag == "collision":  # not visible
        material.skip()
        return None
    name, color = material.raw("name") or "", _color(material, notes)
    if color is None and name not in materials and not material.all("texture"):
        notes.suspicious(material.line, f"{material}: no material has this name; drawn without colour")
    return materials.get(name) if color is None else color
