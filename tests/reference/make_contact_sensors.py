"""Contact sensors of MuJoCo: python make_contact_sensors.py contact_sensors.json, in an environment with MuJoCo 4.0. Writes the model and,
by the attributes of each sensor, its data at key 0 after mj_forward, without trailing zeros."""

import json
import sys
from pathlib import Path

import mujoco
import numpy as np

WORLD = """
<geom name="floor" type="plane" size="3 3 .1"/>
<site name="sphere" size=".3" pos=".2 .1 .02"/>
<site name="box" type="box" size=".3 .1 .1" pos="-.1 -.52 0" euler="0 0 120"/>
<site name="cylinder" type="cylinder" size=".2 .1" pos=".25 -.15 0"/>
<site name="capsule" type="capsule" size=".1 .5" pos=".4 0 0" euler="90 0 0"/>
<site name="ellipsoid" type="ellipsoid" size="1 .2 .1" pos=".2 0 0" euler="0 0 10"/>
<body name="crate" pos="0 0 .196" euler=".6 .4 20">
  <freejoint/>
  <geom name="crate" type="box" size=".3 .25 .2" mass="3" condim="4" friction=".7 .02 .001"/>
  <body name="knob" pos="0 0 .3">
    <joint axis="1 0 0" stiffness="50"/><geom name="knob" size=".08" mass=".5" pos=".02 0 0" condim="6" friction=".6 .02 .003"/>
    <body name="bell" pos=".2 .1 0"><joint axis="0 1 0"/><geom name="bell" size=".106" mass=".1"/></body>
  </body>
</body>
<body name="top" pos=".05 .02 .655" euler="3 1 0">
  <freejoint/><geom name="top" type="capsule" size=".1 .2" mass="1" euler="0 90 0"/>
</body>
<body name="side" pos=".55 .05 .2"><freejoint/><site name="moving" size=".25"/><geom name="side" size=".205" mass="1"/></body>
<body name="twin" pos=".9 .2 .2"><freejoint/><geom name="twin" size=".203" mass="2"/></body>
<body name="near" pos="2 2 .11"><freejoint/><geom name="near" size=".1" mass="1" condim="1" gap=".03"/></body>
<body name="log" pos="-1 -1 .098" euler="0 .1 0"><freejoint/><geom name="log" type="capsule" size=".1 .3" euler="0 90 0" mass="1"/></body>
<geom name="table" type="box" size=".5 .5 .1" pos="-3 0 .1"/>
<body name="tray" pos="-3 0 .296" euler=".3 .5 30"><freejoint/><geom name="tray" type="box" size=".4 .3 .1" mass="2"/></body>
"""
PAIRS = '<pair geom1="twin" geom2="side" condim="3" friction=".3 .3 .1 .1 .1"/>'
ALL = "found force torque dist pos normal tangent linvel angvel"
NET = "found force torque dist pos normal tangent"
SENSORS = [
    f'reduce="mindist" num="24" data="{ALL}"', f'reduce="maxforce" num="5" data="{ALL}"', f'reduce="netforce" num="2" data="{NET}"',
    'num="24" data="found normal"', 'num="3"', 'reduce="mindist" data="dist"', 'reduce="maxforce"', 'geom1="bell" data="pos" cutoff=".1"',
    *(f'{who} num="3" data="found force torque dist normal tangent linvel"' for who in (
        'geom1="knob" geom2="top"', 'geom1="top" geom2="knob"', 'geom1="bell"', 'geom2="bell"', 'body1="twin" body2="side"',
        'body1="side" geom2="twin"', 'body1="near"', 'geom2="near"', 'geom1="knob" body2="world"',
        'subtree1="knob" subtree2="knob"', 'subtree1="crate" subtree2="crate"', 'subtree1="near" body2="world"',
        'body1="world" subtree2="near"',
    )),
    *(f'{who} reduce="maxforce" num="4" data="found force dist normal"' for who in (
        'body1="world"', 'body2="world"', 'subtree1="crate"', 'subtree2="crate"', 'subtree1="world" subtree2="world"',
        'subtree1="world" subtree2="crate"',
    )),
    'subtree1="crate" body2="world" reduce="maxforce" num="2" data="found force dist normal"',
    *(f'site="{site}" reduce="mindist" num="3" data="found dist pos normal"' for site in (
        "sphere", "box", "cylinder", "capsule", "ellipsoid", "moving",
    )),
    'site="sphere" geom2="crate" reduce="maxforce" num="2" data="found force"',
    'site="moving" subtree2="crate" num="2" data="found force normal"',
    *(f'{who} reduce="netforce" data="{NET}"' for who in (
        'body1="crate" body2="world"', 'body1="world" body2="crate"', 'subtree2="crate"', 'geom1="near"', 'geom1="knob" geom2="side"',
        'subtree1="crate" subtree2="crate"', 'site="capsule"', 'body1="tray"',
    )),
    'geom1="crate" geom2="floor" num="5" data="found dist pos"', 'geom1="log" geom2="floor" num="5" data="found dist pos"',
    'geom1="tray" geom2="table" num="5" data="found dist pos"',
]  # fmt: skip
rng = np.random.default_rng(0)
VELOCITY = " ".join(f"{x:.2f}" for x in 0.3 * rng.normal(size=6 + 2 + 6 * 6))


def model_text() -> str:
    option = '<option cone="elliptic" impratio="2" tolerance="1e-15" iterations="500" ls_tolerance="1e-13" ls_iterations="200"/>'
    sensors = "".join(f"<contact {sensor}/>\n" for sensor in SENSORS)
    return (
        f"<mujoco>{option}<worldbody>{WORLD}</worldbody><contact>{PAIRS}</contact><sensor>\n{sensors}</sensor>"
        f'<keyframe><key qvel="{VELOCITY}"/></keyframe></mujoco>'
    )


def main(path: Path) -> None:
    text = model_text()
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    for contact in data.contact:
        print([model.geom(g).name for g in contact.geom], contact.dim, contact.dist, contact.pos)
    out = {}
    for i, sensor in enumerate(SENSORS):
        values = data.sensordata[model.sensor_adr[i] :][: model.sensor_dim[i]]
        out[sensor] = np.trim_zeros(values, "b").tolist()
    assert len(out) == len(SENSORS)
    path.write_text(json.dumps({"model": text, "sensors": out}))


main(Path(sys.argv[1]))
