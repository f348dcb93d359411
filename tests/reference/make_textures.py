"""Writes textures.json: the pictures of built-in textures, and the texture coordinates of the corners of meshes, as MuJoCo 4.0.0 has them.

    pip install mujoco==4.0.0
    python tests/reference/make_textures.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parent


def corners(model: mujoco.MjModel, i: int) -> list:
    """The places of the corners of each face of a mesh, by the positions of its vertices in the file: (face, corner, (u, v))."""
    adr, count = model.mesh_faceadr[i], model.mesh_facenum[i]
    numbers = model.mesh_facetexcoord[adr : adr + count] + model.mesh_texcoordadr[i]
    return model.mesh_texcoord[numbers].tolist()


def main(path: Path) -> None:
    model = mujoco.MjModel.from_xml_path(str(FOLDER / "textures" / "built_in.xml"))
    pictures, meshes = {}, {}
    for i in range(model.ntex):
        shape = model.tex_height[i], model.tex_width[i], model.tex_nchannel[i]
        pictures[model.texture(i).name] = model.tex_data[model.tex_adr[i] :][: np.prod(shape)].reshape(shape).tolist()
    for i in range(model.nmesh):
        faces = model.mesh_face[model.mesh_faceadr[i] :][: model.mesh_facenum[i]]
        meshes[model.mesh(i).name] = {"faces": faces.tolist(), "corners": corners(model, i)}
    path.write_text(json.dumps({"pictures": pictures, "meshes": meshes}))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "textures.json")
