"""Textures and materials in the form of `ModelSpec.drawing`, under the names of MJCF; those of one picture, as URDF and SDF have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["MATERIAL", "SIDES", "TEXTURE", "picture_materials"]

TEXTURE = {
    "type": "cube", "builtin": "none", "mark": "none", "rgb1": (0.8, 0.8, 0.8), "rgb2": (0.5, 0.5, 0.5), "markrgb": (0, 0, 0),
    "random": 0.01, "width": 0, "height": 0, "hflip": False, "vflip": False, "nchannel": 3, "gridsize": (1, 1), "gridlayout": "",
    "colorspace": "auto",
}  # fmt: skip
MATERIAL = {
    "emission": 0.0, "specular": 0.5, "shininess": 0.5, "reflectance": 0.0, "metallic": 0.0, "roughness": 1.0, "rgba": (1, 1, 1, 1),
    "texrepeat": (1, 1), "texuniform": False,
}  # fmt: skip
"""Of a texture and of a material, the attributes and their defaults."""
SIDES = ("fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")
"""Attributes of a texture that name the pictures of a cube's sides."""


def picture_materials(pictures: Mapping[str, Path | None]) -> dict:
    """``textures`` and ``materials`` of `ModelSpec.drawing`. pictures: by the names of the materials; None for a file that is not found."""
    if not pictures:
        return {}
    textures = {name: TEXTURE | {"type": "2d"} | ({} if path is None else {"file": str(path)}) for name, path in pictures.items()}
    return {"textures": textures, "materials": {name: MATERIAL | {"texture": name} for name in pictures}}
