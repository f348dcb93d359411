"""Writes discrete.json: what MuJoCo 4.0.0's integrator discrete finds for small models, on the way of a few steps.

    pip install mujoco==4.0.0
    python tests/reference/make_discrete.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mujoco
import numpy as np

STEPS = 5

ARM = """<joint name="{0}hinge" axis="0 1 0" stiffness="50 20 30" damping="2 1 .5" springref="20" armature=".01" {1}/>
      <geom type="capsule" size=".04" fromto="0 0 0 .3 .1 0" mass=".5"/>
      <body pos=".3 .1 0"><joint name="{0}ball" type="ball" stiffness="5 2 3" damping=".2 .1 .05" {2}/>
        <geom type="box" size=".05 .1 .2" pos=".1 0 0" mass=".4"/><site name="{0}tip" pos=".2 0 0" euler="10 20 30"/>
        <body pos=".2 0 0"><joint name="{0}slide" type="slide" axis="0 0 1" stiffness="300" {3}/>
          <geom size=".05" mass=".3"/></body></body>"""
TWO = f"""<body>{ARM.format("a", "", "", 'damping="1 -9 .5"')}</body>
    <body pos="0 0 1"><joint name="bhinge" axis="0 1 0" actuatorfrcrange="-.5 .5"/><geom size=".1" pos=".3 .1 0" mass="1"/>
      <site name="btip" pos=".2 0 0" euler="10 20 30"/><body pos=".2 0 0"><joint name="bslide" type="slide" axis="0 0 1"/>
        <geom size=".05" mass=".3"/></body></body>"""
FREE = '<geom type="box" size=".1 .2 .3" pos=".05 .02 0" mass="2" {}/>'
TENDONS = f"""<option timestep=".02"/><worldbody>{TWO}</worldbody>
  <tendon>
    <fixed stiffness="40 10 5" damping="2 1 .5" springlength=".1"><joint joint="ahinge" coef="1"/><joint joint="bhinge" coef="2"/></fixed>
    <fixed stiffness="40 -900 5" damping="2 -9 .5" springlength=".1"><joint joint="ahinge" coef="1"/>
      <joint joint="aslide" coef="2"/></fixed>
    <spatial stiffness="100" damping="3" springlength="0 .2"><site site="atip"/><site site="btip"/></spatial>
    <fixed name="t" stiffness="40" springlength="-9 9"><joint joint="aslide" coef="1"/><joint joint="bslide" coef="2"/></fixed>
  </tendon>
  <actuator><pid tendon="t" kp="50" kv="2" ki="30" slewmax="3" input="pos vel ff"/></actuator>
  <sensor><accelerometer site="atip"/><force site="atip"/><torque site="atip"/></sensor>"""
SERVOS = f"""<option timestep=".02"/><worldbody>{TWO}</worldbody>
  <actuator>
    <position joint="ahinge" kp="60" kv="3"/> <position joint="bhinge" kp="60" kv="3"/>
    <position joint="aslide" kp="200" kv="9" forcerange="-1 1"/>
    <orientation joint="aball" kp="20" kv="1"/> <position joint="bslide" kp="20" gear="2"/>
    <position site="atip" refsite="btip" kp="300" gear="1 .3 -2 0 0 0"/> <general joint="ahinge" gaintype="affine" gainprm="3 -4 -5"/>
    <general joint="aslide" gainprm="9" biastype="affine" biasprm="1 70 5"/>
  </actuator>
  <sensor><force site="btip"/><torque site="btip"/></sensor>"""
MOTORS = f"""<option timestep=".02"/><worldbody><body>{ARM.format("a", "", "", 'actuatorfrcrange="-3 3"')}</body></worldbody>
  <actuator>
    <dcmotor joint="ahinge" motorconst=".2" resistance="2" inductance=".1 .05" controller="3 0 .4" input="pos vel" lugre="1 .3 1 1.5 .1"/>
    <muscle joint="ahinge" lengthrange="-.5 .5" force="30"/> <motor joint="ahinge" damping="1 2 3" gear="2"/>
    <position joint="ahinge" kp="20" kv="2" timeconst=".1"/> <position joint="aslide" kp="2000"/>
  </actuator>"""
BODIES = f"""<option timestep=".02"/><worldbody>
    <body><freejoint/>{FREE.format("")}<site name="a"/></body>
    <body pos="0 2 0"><joint type="free" stiffness="20 5 3" damping="1"/>{FREE.format("")}</body>
  </worldbody>
  <actuator><position site="a" kp="30" gear="1 0 2 .3 0 1"/></actuator> <sensor><accelerometer site="a"/></sensor>"""
ROWS = f"""<option timestep=".01"><flag contact="disable" {{}}/></option><worldbody>
    <body name="a"><joint name="h" axis="0 1 0" range="-5 5" limited="true" solimplimit=".8 .95 .5" frictionloss=".5"/>
      <geom size=".1" pos=".3 .1 0" mass="1"/>
      <body pos=".3 .1 0"><joint type="ball" range="0 5" limited="true" solreflimit=".004 .7" frictionloss=".1" damping=".1"/>
        <geom type="box" size=".05 .1 .2" pos=".1 0 0" mass=".4"/>
        <body pos=".2 0 0"><joint name="s" type="slide" axis="0 0 1" range="-.01 .01" limited="true" solreflimit="-9e6 -30" stiffness="9"/>
          <geom size=".05" mass=".3"/></body></body></body>
    <body pos="0 0 1" name="b"><joint name="g" axis="0 1 0" damping="3" solreffriction=".001 1" frictionloss=".5"/>
      <geom size=".1" pos=".3 .1 0" mass="1"/></body>
    <body pos="0 1 0" name="c"><freejoint/>{FREE.format("")}</body> <body pos="0 2 0"><freejoint/>{FREE.format("")}</body>
  </worldbody>
  <tendon><fixed name="t" range="-.1 .1" limited="true" solreflimit=".001 1" frictionloss=".2" damping="3"><joint joint="h" coef="1"/>
    <joint joint="g" coef="2"/></fixed></tendon>
  <equality><connect body1="a" body2="b" anchor=".2 0 .3" solref=".003 1"/><weld body1="b" body2="c" solimp=".5 .8 .1"/>
    <joint joint1="g" joint2="s" polycoef="0 1.5"/><tendon tendon1="t" solref="-900 -3"/></equality>
  <sensor><tendonlimitfrc tendon="t"/><jointlimitfrc joint="h"/></sensor>"""
BALL = """<body pos="{0} 0 .1"><joint type="slide" axis="1 0 0" damping="30" stiffness="400"/>
      <joint type="slide" axis="0 0 1" damping="40"/><joint axis="1 2 3" damping=".1"/>
      <geom name="g{0}" size=".2" mass="2" priority="1" {1}/><site name="s{0}" size=".3"/></body>"""
KINDS = ('condim="1"', 'condim="3" solref=".004 .7"', 'condim="4" friction=".6 .01 .01" solref="-3e5 -9"')
OTHERS = ('condim="3" adhesion="3" margin=".005" gap=".1"', 'condim="3" surfacevel=".3 .2 0 0 .1 0"', 'condim="6" solimp=".5 .9 .05"', "")
CONTACTS = f"""<option timestep=".01" impratio="3" {{}}</option><worldbody><geom name="floor" type="plane" size="9 9 1"/>
    {" ".join(BALL.format(i, kind) for i, kind in enumerate(KINDS))}
  </worldbody>
  <actuator><position site="s0" kp="900" gear="0 0 1 0 0 0"/></actuator>
  <sensor><touch site="s0"/><touch site="s2"/><accelerometer site="s1"/></sensor>"""
OTHER_CONTACTS = f"""<option timestep=".01" cone="elliptic"/><worldbody><geom name="floor" type="plane" size="9 9 1"/>
    {" ".join(BALL.format(i, kind) for i, kind in enumerate(OTHERS))}
  </worldbody>
  <contact><pair geom1="floor" geom2="g3" condim="3" solreffriction=".002 .8"/></contact>"""
BOX = """<option timestep=".01"/><worldbody><geom type="plane" size="9 9 1"/><body pos="0 3 .25"><freejoint/>
    <geom type="box" size=".1 .2 .3" mass="2"/><site name="s"/></body></worldbody> <sensor><force site="s"/></sensor>"""
FLEX = """<option timestep=".02"/><worldbody><geom type="plane" size="9 9 1"/>
    <flexcomp name="{0}" type="direct" mass="3" radius=".02" {1} pos="0 0 {2}"><contact selfcollide="none" solref=".03 1"/>
      <elasticity young="{3}" poisson=".3" damping=".02" {4}/>{5}</flexcomp></worldbody>"""
SHEET = 'dim="2" point="0 0 0 .3 0 0 0 .3 .02 .3 .3 .05" element="0 1 2 2 1 3"'
SOLID = 'dim="3" point="0 0 0 .3 0 0 0 .3 0 0 0 .3 .3 .3 .3" element="0 1 2 3 1 2 4 3"'
GRID = 'type="grid" count="2 2 2" spacing=".2 .2 .2" dim="3" mass="3" radius=".02" dof="trilinear"'
GRID_FLEX = f"""<option timestep=".02"/><worldbody>
    <flexcomp name="f" {GRID}><contact contype="0" conaffinity="0"/>{{}}</flexcomp></worldbody>"""
YIELD = """<option timestep=".02"/><worldbody><body><joint name="a" axis="0 1 0" stiffness="40" springyield="3"/>
      <geom size=".1" pos=".3 0 0"/><body pos=".3 0 0"><joint type="ball" stiffness="9 1 2" springyield="5"/><geom size=".1" pos=".1 .2 0"/>
      </body></body></worldbody>
  <tendon><fixed stiffness="30" springyield=".02" springlength="0"><joint joint="a" coef="1"/></fixed></tendon>"""
MIXED = """<option timestep=".02" gravity="1 2 -9"/><worldbody><site name="o" pos="-.2 .3 .4"/>
    <geom name="g" size=".05" pos="-.1 .1 .2" contype="0" conaffinity="0"/>
    <body name="m" mocap="true" pos="0 0 1"><geom size=".05" contype="0" conaffinity="0"/></body>
    <body name="a" gravcomp=".5"><joint name="a" axis="0 1 0" actuatorgravcomp="true" armature=".1"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
      <body pos=".3 0 0"><joint name="b" axis="0 1 0" damping="1"/><geom size=".1" pos=".2 .1 0"/><site name="s" pos=".3 0 0"/></body>
    </body></worldbody>
  <equality><weld body1="m" body2="a" solref="-300 -20"/></equality>
  <tendon><spatial name="t" stiffness="99" damping="4" frictionloss=".4"><site site="s"/><geom geom="g"/><site site="o"/></spatial></tendon>
  <actuator><position name="p" tendon="t" kp="100" kv="3" timeconst=".1"/><adhesion body="a" ctrlrange="0 1"/>
    <general joint="a" dyntype="integrator" actearly="true" actlimited="true" actrange="-1 1" gainprm="50" biastype="affine"
      biasprm="0 -50 -2"/>
    <velocity joint="b" kv="5"/><damper joint="b" kv="2" ctrlrange="0 1"/><cylinder joint="b" timeconst=".1" area="2"/></actuator>
  <sensor><accelerometer site="s"/><framelinacc objtype="site" objname="s"/><actuatorfrc actuator="p"/></sensor>"""
POINT = """<body name="{}" pos="{}"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"
      armature=".3"/><geom size=".01" mass="{}" contype="0" conaffinity="0"/></body>"""
PASSIVE_SHEET = """<option timestep=".02"/><worldbody>
    <geom type="plane" size="9 9 1" margin=".2" pos="0 0 -.1"/> <geom size=".3" pos=".1 .1 -.36"/>
    <body pos=".2 .2 .38"><freejoint/><geom size=".3" mass="2"/><site name="s" size=".4"/></body>
    <flexcomp name="f" type="direct" mass="3" radius=".1" dim="2" point="0 0 0 .3 0 0 0 .3 .02 .3 .3 .05" element="0 1 2 2 1 3">
      <contact selfcollide="none" passive="true"/>
      <elasticity young="2e4" poisson=".3" damping=".02" elastic2d="both" thickness=".05"/></flexcomp></worldbody>
  <sensor><touch site="s"/></sensor>"""
PLACES = ("0 0 0", ".5 0 0", "0 .5 0", ".15 .15 .35", ".6 .15 .7", ".15 .6 .7", ".1 .2 -.35", ".7 .2 -.7", ".1 .7 -.7")
MASSES = (3, 1, 2, 0.4, 0.6, 0.5, 0.7, 0.2, 0.9)
PASSIVE_FLEXES = f"""<option timestep=".02" gravity="0 0 0" ccd_tolerance="1e-13" ccd_iterations="500"/><worldbody>
    {" ".join(POINT.format(f"v{i}", *part) for i, part in enumerate(zip(PLACES, MASSES, strict=True)))} <body name="still" pos=".7 .7 -.1"/>
  </worldbody>
  <deformable>
    <flex name="f" dim="2" radius=".2" body="v0 v1 v2 v3 v4 v5 still" element="0 1 2 3 4 5 1 2 6"><contact selfcollide="narrow"
      passive="true"/></flex>
    <flex name="g" dim="1" radius=".2" body="v6 v7 v8" element="0 1 1 2"><contact selfcollide="none"/></flex>
  </deformable>"""
PASSIVE_GRID = """<option timestep=".02"/><worldbody><geom size=".3" pos=".1 .05 -.46"/> <geom type="plane" size="9 9 1" pos="0 0 -.17"/>
    <flexcomp name="f" type="grid" count="3 2 2" spacing=".2 .2 .2" dim="3" mass="3" radius=".1" dof="trilinear"><pin id="7"/>
      <contact selfcollide="none" passive="true"/><elasticity young="2e4" poisson=".3" damping=".02"/></flexcomp></worldbody>"""
DIAGEXACT = '<flag diagexact="enable"/>'
CASES = {
    "tendons": TENDONS,
    "servos": SERVOS,
    "motors": MOTORS,
    "springs that yield": YIELD,
    "mixed": MIXED,
    "free bodies": BODIES,
    "rows": ROWS.format(""),
    "rows as given": ROWS.format('refsafe="disable" diagexact="enable"'),
    "pyramids": CONTACTS.format('cone="pyramidal">'),
    "pyramids, exact": CONTACTS.format(f'cone="pyramidal">{DIAGEXACT}'),
    "other contacts": OTHER_CONTACTS,
    "box": BOX,
    "ellipses": CONTACTS.format('cone="elliptic">'),
    "ellipses, exact": CONTACTS.format(f'cone="elliptic">{DIAGEXACT}'),
    "sheet": FLEX.format("f", SHEET, ".01", "2e4", 'elastic2d="both" thickness=".05"', ""),
    "sheet in the air": FLEX.format("f", SHEET, "1", "2e4", 'elastic2d="both" thickness=".05"', ""),
    "sheet of edges": FLEX.format("f", SHEET, ".01", "2e4", 'elastic2d="bend" thickness=".05"', '<edge equality="true" solref=".01 1"/>'),
    "solid": FLEX.format("f", SOLID, ".01", "2e4", "", ""),
    "grid": GRID_FLEX.format('<elasticity young="2e4" poisson=".3" damping=".02"/>'),
    # One impedance: where it grows with the strain, velocities differ by up to 3e-3 (docs/mjcf.md).
    "grid of strains": GRID_FLEX.format('<edge equality="strain" solref=".03 1" solimp=".9 .9"/>'),
    "fluid": f"""<option timestep=".02" density="300" viscosity="2" wind="1 0 0"/><worldbody><body>{ARM.format("a", "", "", "")}</body>
      <body pos="0 2 0"><freejoint/>{FREE.format('fluidshape="ellipsoid"')}<geom size=".1" pos=".3 0 0" fluidshape="ellipsoid"/></body>
      </worldbody>""",
    "passive contacts with a plane": FLEX.format("f", SHEET, ".01", "2e4", 'elastic2d="both" thickness=".05"', "").replace(
        "<contact ", '<contact passive="true" margin=".01" '),
    "passive contacts": PASSIVE_SHEET,
    "passive contacts of flexes": PASSIVE_FLEXES,
    "passive contacts of nodes": PASSIVE_GRID,
}


def text(name: str) -> str:
    """The file of a model."""
    return f"<mujoco>{CASES[name].replace('<option', '<option integrator=' + chr(34) + 'discrete' + chr(34), 1)}</mujoco>"


def record(model: mujoco.MjModel, seed: int) -> dict:
    """A state, what the engine computes at it, and the states after steps."""
    data, rng = mujoco.MjData(model), np.random.default_rng(seed)
    move = rng.normal(size=model.nv) * 0.05
    mujoco.mj_integratePos(model, data.qpos, move, 1.0)
    data.qvel[:] = rng.normal(size=model.nv)
    data.ctrl[:], data.act[:] = 0.3 * rng.normal(size=model.nu), 0.3 * rng.normal(size=model.na)
    out = {"q": data.qpos.tolist(), "v": data.qvel.tolist(), "act": data.act.tolist(), "ctrl": data.ctrl.tolist()}
    mujoco.mj_forward(model, data)
    found = {"a": data.qacc, "passive": data.qfrc_passive, "actuator": data.qfrc_actuator, "constraint": data.qfrc_constraint}
    out |= {name: x.tolist() for name, x in found.items()} | {"sensor": data.sensordata.tolist(), "rows": int(data.nefc), "states": []}
    for _ in range(STEPS):
        mujoco.mj_step(model, data)
        out["states"].append([*data.qpos.tolist(), *data.qvel.tolist(), *data.act.tolist()])
    return out


def main() -> None:
    assert mujoco.__version__ == "4.0.0", mujoco.__version__
    out: dict = {"version": mujoco.__version__, "models": {}}
    for seed, name in enumerate(CASES):
        model = mujoco.MjModel.from_xml_string(text(name))
        # Without constraints conjugate gradients, which flexes need, divide by zero at their end.
        model.opt.tolerance, model.opt.iterations = 1e-15 if model.nflex else 0.0, 300
        out["models"][name] = {"text": text(name), **record(model, seed)}
    Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parent / "discrete.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
