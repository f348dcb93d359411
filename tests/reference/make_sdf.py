"""Writes sdf_3_2.json or sdf_4_0.json, by the release that runs: masses and contacts of signed distance functions, by MuJoCo.

    pip install mujoco==3.2.7
    python tests/reference/make_sdf.py
    pip install mujoco==4.0.0
    python tests/reference/make_sdf.py

Each model in sdf has a geom of a function and free bodies of simple shapes and of another function, at random places near it.
"""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parent
RELEASES = {"3.2.7": "3_2", "4.0.0": "4_0"}
STATES = 2
REACH = 0.5
"""Standard deviation of the places, m."""


def contacts(model: mujoco.MjModel, data: mujoco.MjData) -> dict[str, list]:
    """By the name of the other geom, the contacts with the geom "sdf": distance, point, normal from the geom of lower type."""
    out: dict[str, list] = {}
    for contact in data.contact:
        names = [model.geom(g).name for g in contact.geom]
        (other,) = set(names) - {"sdf"}
        out.setdefault(other, []).append([float(f"{x:.12g}") for x in (contact.dist, *contact.pos, *contact.frame[:3])])
    return out


def numbers(model: mujoco.MjModel) -> dict:
    """Mass and inertia of the bodies of functions, and contacts at some states."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    out: dict = {"mass": model.body_mass[1:3].tolist(), "inertia": model.body_inertia[1:3].tolist()}
    out |= {"q": [], "contacts": []}
    while len(out["q"]) < STATES:
        poses = np.concatenate([rng.normal(size=(7, 3)) * REACH, rng.normal(size=(7, 4))], 1)
        poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
        data.qpos[:] = poses.ravel()
        mujoco.mj_forward(model, data)
        found = contacts(model, data)
        if len(found) >= 5:
            out["q"].append(data.qpos.tolist())
            out["contacts"].append(found)
    return out


def main() -> None:
    release, out = RELEASES[mujoco.__version__], {}
    for path in sorted((FOLDER / "sdf").glob("*.xml")):
        out[path.stem] = numbers(mujoco.MjModel.from_xml_path(str(path)))
    lines = (f'"{name}": {json.dumps(values)}' for name, values in out.items())
    (FOLDER / f"sdf_{release}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
