"""Tactile sensors: python make_tactile.py tactile.json, in an environment with MuJoCo 4.0."""

import json
import sys
from pathlib import Path

import mujoco
import numpy as np

PLATE, WEDGE = 'builtin="plate" params="4 5" scale=".08 .1 .02"', 'builtin="wedge" params="4 3 40 30 .2" scale=".1 .12 .06"'
BALL = 'builtin="sphere" params="1" scale=".06 .08 .04"'
PAD, HIDDEN = '<geom name="pad" type="box" size=".08 .1 .02"/>', 'contype="0" conaffinity="0"'
MODEL = """<mujoco><option gravity="0 0 0"/>
<extension><plugin plugin="mujoco.sdf.torus"><instance name="t"><config key="radius1" value=".05"/><config key="radius2" value=".03"/>
</instance></plugin></extension>
<asset><mesh name="t"><plugin instance="t"/></mesh><mesh name="m" {mesh}/></asset>
<worldbody>{world}
<body name="b" pos="0 0 .3" euler="5 10 15">{joint}{pad}<geom name="s" {shape} {hidden} pos=".01 .02 .005" euler="0 0 20"/></body>
<body name="o" pos=".02 .01 .24" euler="10 5 25"><freejoint/>{other}</body></worldbody>
<sensor><tactile geom="s" mesh="m" {more}/></sensor></mujoco>"""


def text(other: str, mesh: str = PLATE, shape: str = 'type="mesh" mesh="m"', **more: str) -> str:
    rest = {"pad": PAD, "joint": "<freejoint/>", "world": "", "more": "", "hidden": HIDDEN} | more
    return MODEL.format(other=other, mesh=mesh, shape=shape, **rest)


SPHERE = '<geom type="sphere" size=".06" {}/>'
MODELS = {
    "sphere": text(SPHERE.format("")),
    "capsule": text('<geom type="capsule" size=".04 .05" pos=".01 0 0"/>'),
    "cylinder": text('<geom type="cylinder" size=".05 .06"/>'),
    "ellipsoid": text('<geom type="ellipsoid" size=".05 .04 .06"/>'),
    "box": text('<geom type="box" size=".05 .06 .05"/>'),
    "torus": text('<geom type="sdf" mesh="t" pos="0 0 .02"><plugin instance="t"/></geom>', pad='<geom type="box" size=".08 .1 .03"/>'),
    "wedge": text(SPHERE.format(""), WEDGE),
    "wedge that is turned": text('<geom type="box" size=".05 .06 .05"/>', WEDGE + ' refquat="1 .2 .3 .1" refpos=".01 .02 .01"'),
    "mesh without tangents": text(SPHERE.format(""), BALL, more='cutoff=".01"'),
    "points of a box": text(SPHERE.format(""), BALL, 'type="box" size=".06 .06 .02"', hidden="", pad=""),
    "two geoms": text(
        SPHERE.format("") + '<geom type="capsule" size=".03 .06" pos=".03 0 0"/><geom size=".07" contype="0" conaffinity="0"/>'
    ),
    "in the gap": text(SPHERE.format('gap=".05" pos="0 0 -.03"'), shape='type="sphere" size=".01"'),
    "not in contact": text(SPHERE.format('contype="2" conaffinity="2"')),
    "on the ground": text(SPHERE.format(""), world='<geom type="plane" size="1 1 1" pos="0 0 .29"/>'),
    "fixed pad": text(SPHERE.format(""), joint=""),
    "pad on another body": text(SPHERE.format(""), pad=f'<geom size=".001" pos=".5 0 0"/><body>{PAD}</body>'),
}


def record(model: str) -> dict:
    m = mujoco.MjModel.from_xml_string(model)
    d = mujoco.MjData(m)
    d.qvel[:] = np.random.default_rng(0).normal(size=m.nv)
    mujoco.mj_forward(m, d)
    return {"model": model, "v": d.qvel.tolist(), "sensors": d.sensordata.tolist()}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps({k: record(x) for k, x in MODELS.items()}, indent=None, separators=(",", ":")))
