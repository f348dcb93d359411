"""Contacts of random pairs of geoms, by MuJoCo: python make_collide.py collide.npz, once in an environment with MuJoCo 3.2 and once in
one with 4.0. Each run replaces what its version wrote before.
"""

import sys
from pathlib import Path

import mujoco
import numpy as np

PAIRS = {
    ("plane", "sphere"): 10.0,
    ("plane", "capsule"): 10.0,
    ("plane", "ellipsoid"): 10.0,
    ("plane", "cylinder"): 10.0,
    ("plane", "box"): 10.0,
    ("plane", "mesh"): 10.0,
    ("sphere", "sphere"): 10.0,
    ("sphere", "capsule"): 10.0,
    ("sphere", "cylinder"): 10.0,
    ("sphere", "box"): 10.0,
    ("capsule", "capsule"): 10.0,
    ("capsule", "box"): 10.0,
    ("box", "box"): 0.02,
}
"""Margin (m) of each pair: large, so that all contacts are made; of boxes the contacts depend on it."""
COUNT = 24
UNIT = 'size="1 1 1"'
VERTICES = np.random.default_rng(5).normal(size=(14, 3)) * (0.3, 0.2, 0.25)


def model_of(kinds: tuple[str, str], margin: float) -> mujoco.MjModel:
    each = margin / 2 if mujoco.__version__ >= "4" else margin  # 4.0 adds the margins of both geoms, 3.2 takes the larger
    size = {"plane": 'size="0 0 1"', "mesh": 'mesh="m"'}
    a, b = (f'<geom type="{kind}" {size.get(kind, UNIT)} margin="{each}" mass="1"/>' for kind in kinds)
    return mujoco.MjModel.from_xml_string(f"""
    <mujoco>
      <asset><mesh name="m" vertex="{" ".join(map(repr, VERTICES.ravel().tolist()))}"/></asset>
      <worldbody><body mocap="true">{a}</body><body><freejoint/>{b}</body></worldbody>
    </mujoco>""")


def contacts_of(kinds: tuple[str, str], margin: float) -> dict:
    """size, pos (COUNT, 2, 3), mat (COUNT, 2, 3, 3); contacts (COUNT, 10, 10): distance, point, normal, first tangent; nan for none."""
    model = model_of(kinds, margin)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(sum(map(ord, "".join(kinds))))
    out: dict[str, list] = {"size": [], "pos": [], "mat": [], "contacts": []}
    while len(out["pos"]) < COUNT:
        size, pos, quat = rng.uniform(0.1, 0.6, (2, 3)), rng.normal(size=(2, 3)) * 0.3, rng.normal(size=(2, 4))
        for i, kind in enumerate(kinds):
            model.geom_size[i] = model.geom_size[i] if kind in ("plane", "mesh") else size[i]
        model.geom_rbound[:] = np.where([kind in ("plane", "mesh") for kind in kinds], model.geom_rbound, 50.0)
        model.geom_aabb[:, 3:] = 50.0
        data.mocap_pos[0], data.mocap_quat[0] = pos[0], quat[0] / np.linalg.norm(quat[0])
        data.qpos[:] = *pos[1], *quat[1] / np.linalg.norm(quat[1])
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        if kinds == ("box", "box") and not data.ncon:
            continue
        contacts = np.full((10, 10), np.nan)
        for k, contact in enumerate(data.contact):
            contacts[k] = contact.dist, *contact.pos, *contact.frame[:6]
        out["size"].append(np.where(np.array(kinds)[:, None] == "mesh", 1.0, model.geom_size))
        out["pos"].append(data.geom_xpos.copy())
        out["mat"].append(data.geom_xmat.reshape(2, 3, 3).copy())
        out["contacts"].append(contacts)
    return {name: np.array(values) for name, values in out.items()} | {"margin": np.array(margin), "vertices": model.mesh_vert}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    version = mujoco.__version__[:3]
    old = dict(np.load(path)) if path.exists() else {}
    new = {k: v for k, v in old.items() if not k.startswith(version)}
    for kinds, margin in PAIRS.items():
        for name, values in contacts_of(kinds, margin).items():
            new[f"{version}/{'_'.join(kinds)}/{name}"] = values
    np.savez_compressed(path, **new)
    print(version, len(new), path.stat().st_size)
