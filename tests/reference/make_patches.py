"""Contacts of flat faces and edges as MuJoCo finds them (its flag multiccd). With MuJoCo 4.0.0, into patches.json."""

import json
from pathlib import Path

import mujoco
import numpy as np


def corners(x, y, z):
    return " ".join(f"{a * x} {b * y} {c * z}" for a in (-1, 1) for b in (-1, 1) for c in (-1, 1))


WEDGE = "-.2 -.2 -.1 .2 -.2 -.1 -.2 .2 -.1 .2 .2 -.1 -.2 0 .1 .2 0 .1"
SHAPES = {"big": corners(0.5, 0.5, 0.1), "small": corners(0.1, 0.2, 0.1), "wedge": WEDGE}
ASSETS = "".join(f'<mesh name="{name}" vertex="{vertices}"/>' for name, vertices in SHAPES.items())
GEOMS = {
    **{name: f'<geom type="mesh" mesh="{name}"/>' for name in SHAPES},
    "box": '<geom type="box" size=".1 .2 .1"/>', "slab": '<geom type="box" size=".5 .5 .1"/>',
    "drum": '<geom type="cylinder" size=".2 .1"/>', "plate": '<geom type="cylinder" size=".5 .1"/>',
    "rod": '<geom type="capsule" size=".1 .2"/>',
}  # fmt: skip
PAIRS = [("big", "small"), ("big", "box"), ("slab", "small"), ("slab", "wedge"), ("big", "wedge")]
CURVED = [("slab", "drum"), ("big", "drum"), ("plate", "drum"), ("plate", "box"), ("plate", "small"), ("big", "rod"), ("plate", "rod")]


def turn(axis, angle):
    q = np.zeros(4)
    mujoco.mju_axisAngle2Quat(q, np.array(axis, float), angle)
    return q


def times(a, b):
    q = np.zeros(4)
    mujoco.mju_mulQuat(q, a, b)
    return q


def poses(rng):
    """Flat, leaning by less and by more than counts as parallel, over the border by a right angle, on an edge."""
    for lean in (0.0, 1e-3, 0.02, 0.06, 0.3):
        for _ in range(3):
            angle = rng.uniform(-3, 3)
            yield rng.uniform(-0.2, 0.2, 2), times(turn([np.cos(angle), np.sin(angle), 0], lean), turn([0, 0, 1], rng.uniform(-3, 3)))
    for _ in range(3):
        yield np.array([rng.uniform(0.42, 0.55), rng.uniform(-0.2, 0.2)]), turn([0, 0, 1], np.pi / 2 * rng.integers(4))
        yield rng.uniform(-0.2, 0.2, 2), times(turn([0, 0, 1], rng.uniform(-3, 3)), turn([1, 0, 0], np.pi / 4 + rng.uniform(-0.3, 0.3)))


def lying(rng):
    """Cylinders and capsules on their sides, the second half a little raised; over the border too."""
    for x in (0.0, 0.0, 0.45):
        for lean in (0.0, 1e-3, 0.3):
            yield np.array([x, rng.uniform(-0.2, 0.2)]), times(turn([0, 0, 1], rng.uniform(-1, 1)), turn([0, 1, 0], np.pi / 2 + lean))


def record(one, two, every):
    xml = f"<mujoco><asset>{ASSETS}</asset><worldbody>{GEOMS[one]}<body><freejoint/>{GEOMS[two]}</body></worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(xml)
    model.opt.ccd_tolerance = 1e-12
    data, out = mujoco.MjData(model), []

    def contacts(place, height, quat):
        data.qpos[:] = *place, height, *quat
        mujoco.mj_forward(model, data)
        return [[c.dist, *c.pos, *c.frame[:3], *map(int, c.geom)] for c in data.contact[: data.ncon]]

    for place, quat in every:
        low, high = 0.1, 0.8
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if contacts(place, middle, quat) else (low, middle)
        found = contacts(place, low - 2e-3, quat)
        out.append({"q": data.qpos.tolist(), "contacts": found})
    return {"model": xml, "states": out}


if __name__ == "__main__":
    assert mujoco.__version__ == "4.0.0"
    rng = np.random.default_rng(0)
    faces = {f"{one}-{two}": record(one, two, poses(rng)) for one, two in PAIRS}
    curved = {f"{one}-{two}": record(one, two, [*poses(rng), *lying(rng)]) for one, two in CURVED}
    Path(__file__).with_name("patches.json").write_text(json.dumps({"faces": faces, "curved": curved}))
