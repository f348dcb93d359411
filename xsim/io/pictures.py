"""Materials of one picture each, as URDF and SDF have them, in the form of `ModelSpec.drawing`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from xsim.io.files import is_file
from xsim.spec import BodySpec, GeomSpec

__all__ = ["picture_materials"]

_TEXTURE = {
    "type": "2d", "builtin": "none", "mark": "none", "rgb1": (0.8, 0.8, 0.8), "rgb2": (0.5, 0.5, 0.5), "markrgb": (0.0, 0.0, 0.0),
    "random": 0.01, "width": 0, "height": 0, "hflip": False, "vflip": False, "nchannel": 3, "gridsize": (1, 1), "gridlayout": "",
}  # fmt: skip
_MATERIAL = {
    "emission": 0.0, "specular": 0.5, "shininess": 0.5, "reflectance": 0.0, "metallic": 0.0, "roughness": 1.0, "rgba": (1.0, 1.0, 1.0, 1.0),
    "texrepeat": (1.0, 1.0), "texuniform": False,
}  # fmt: skip


def picture_materials(bodies: Iterable[BodySpec], world_geoms: Iterable[GeomSpec]) -> dict:
    """``textures`` and ``materials`` of `ModelSpec.drawing` for geoms whose materials are named by the paths of their pictures."""
    geoms = [*world_geoms, *(geom for body in bodies for geom in body.geoms)]
    files = dict.fromkeys(geom.material for geom in geoms if geom.material)
    if not files:
        return {}
    textures = {file: _TEXTURE | ({"file": file} if is_file(Path(file)) else {}) for file in files}
    return {"textures": textures, "materials": {file: _MATERIAL | {"texture": file} for file in files}}
