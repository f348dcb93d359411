"""Rangefinders before geoms of type sdf: python make_sdf_rays.py sdf_rays_3_2.json with MuJoCo 3.2, sdf_rays_4_0.json with 4.0."""

import json
import sys
from pathlib import Path

import mujoco
import numpy as np

SIZES = {"torus": 0.5, "bowl": 1.0, "bolt": 0.6, "nut": 0.5, "gear": 1.5}
"""About the largest half extent of each, m."""
RAYS = 40
MODEL = """<mujoco><extension><plugin plugin="mujoco.sdf.{kind}"><instance name="one"/></plugin></extension>
<asset><mesh name="one"><plugin instance="one"/></mesh></asset>
<worldbody>{sites}<geom size=".1" pos=".1 .2 .3" rgba="1 1 1 0.5"/>
<body pos="-.1 .1 .2" euler="20 30 40"><freejoint/>
<geom type="sdf" mesh="one" pos=".05 .02 .01" euler="10 50 20"><plugin instance="one"/></geom></body></worldbody>
<sensor>{sensors}</sensor></mujoco>"""


def text(kind: str) -> str:
    """A model with rays from around and from inside to near the middle of a geom."""
    rng, sites, sensors = np.random.default_rng(0), "", ""
    data = "" if mujoco.__version__.startswith("3") else 'data="dist normal"'
    for k in range(RAYS):
        pos, aim = rng.normal(size=3) * (1.4 if k % 3 else 0.5) * SIZES[kind], rng.normal(size=3) * 0.4 * SIZES[kind]
        pos, axis = (" ".join(f"{x:.4f}" for x in y) for y in (pos, aim - pos))
        sites += f'<site name="s{k}" pos="{pos}" zaxis="{axis}"/>'
        sensors += f'<rangefinder site="s{k}" {data}/>'
    return MODEL.format(kind=kind, sites=sites, sensors=sensors)


def record(kind: str) -> dict:
    model = mujoco.MjModel.from_xml_string(text(kind))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return {"model": text(kind), "sensors": data.sensordata.tolist()}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps({kind: record(kind) for kind in SIZES}, indent=None, separators=(",", ":")))
