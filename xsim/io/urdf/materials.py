"""Materials: the colours and pictures of visuals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.io.urdf.values import required_floats

__all__ = ["Color", "Material", "Materials", "read_material", "read_materials"]

Color = tuple[float, float, float, float]


class Material(NamedTuple):
    """color: None for none. texture: the name of a picture as the file has it, None for none."""

    color: Color | None = None
    texture: str | None = None


Materials = dict[str, Material]


def _own(material: Element, notes: Notes) -> Material:
    """What is written in a material."""
    color, files = material.child("color"), [texture.raw("filename") for texture in material.all("texture")]
    file = next(filter(None, files), None)
    if color is None:
        return Material(None, file)
    rgba = required_floats(color, "rgba", 4)
    if ((rgba < 0) | (rgba > 1)).any():
        notes.suspicious(color.line, f"{color} in {material}: rgba: {rgba} was cut to 0..1")
    r, g, b, a = map(float, np.clip(rgba, 0, 1))
    return Material((r, g, b, a), file)


def read_materials(root: Element, links: dict[str, Element], notes: Notes) -> Materials:
    """Materials by name, the first definition of a name: those of the robot, then those inside visuals."""
    materials: Materials = {}
    for material in root.all("material"):
        name = material.string("name")
        if name in materials:
            notes.suspicious(material.line, f"{material}: is defined a second time, the first one counts")
        materials.setdefault(name, _own(material, notes))
    silent = Notes(root.file)  # `read_material` reads them again
    for link in links.values():
        for visual in link.all("visual"):
            material = visual.child("material")
            if material is not None and (own := _own(material, silent)) != Material():
                materials.setdefault(material.raw("name") or "", own)
    return materials


def read_material(element: Element, materials: Materials, notes: Notes) -> Material:
    """The material of a visual: its own, or the one it names."""
    material = element.child("material")
    if material is None:
        return Material()
    if element.tag == "collision":  # not visible
        material.skip()
        return Material()
    name, own = material.raw("name") or "", _own(material, notes)
    if own == Material() and name not in materials:
        notes.suspicious(material.line, f"{material}: no material has this name; drawn without colour")
    return materials.get(name, own) if own == Material() else own
