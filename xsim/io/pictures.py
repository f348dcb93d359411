"""Materials of one picture each, as URDF and SDF have them, in the form of `ModelSpec.drawing`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["picture_materials"]

_TEXTURE = {
    "type": "2d", "builtin": "none", "mark": "none", "rgb1": (0.8, 0.8, 0.8), "rgb2": (0.5, 0.5, 0.5), "markrgb": (0.0, 0.0, 0.0),
    "random": 0.01, "width": 0, "height": 0, "hflip": False, "vflip": False, "nchannel": 3, "gridsize": (1, 1), "gridlayout": "",
}  # fmt: skip
_MATERIAL = {
    "emission": 0.0, "specular": 0.5, "shininess": 0.5, "reflectance": 0.0, "metallic": 0.0, "roughness": 1.0, "rgba": (1.0, 1.0, 1.0, 1.0),
    "texrepeat": (1.0, 1.0), "texuniform": False,
}  # fmt: skip


def picture_materials(pictures: Mapping[str, Path | None]) -> dict:
    """``textures`` and ``materials`` of `ModelSpec.drawing`. pictures: by the names of the materials; None for a file that is not found."""
    if not pictures:
        return {}
    textures = {name: _TEXTURE | ({} if path is None else {"file": str(path)}) for name, path in pictures.items()}
    return {"textures": textures, "materials": {name: _MATERIAL | {"texture": name} for name in pictures}}
