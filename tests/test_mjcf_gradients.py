"""Derivatives of a step of MJCF models with respect to every number, forward and reverse, against differences; and where formulas switch.

Every model is one batch: two random states, whose derivatives are compared, then states on a switch or where a formula degenerates, where
values and derivatives need be finite only. In float64; errors relative to the number or to 1e-3 of the norm of its leaf's gradient.
"""

from __future__ import annotations

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from test_gradients import REACH, STATE, check_both_modes

import xsim
from xsim import models

OPTION = '<option timestep="0.004" gravity="0.3 -0.5 -9.6" {}><flag contact="disable" constraint="disable" {}/></option>'


def _text(option: str, body: str, flags: str = "") -> str:
    return f'<mujoco><compiler angle="radian"/>{OPTION.format(option, flags)}{body}</mujoco>'


# The second muscle's length is a coordinate, so that its breakpoints are round numbers.
MUSCLE_ARM = _text("", """
<default><joint type="hinge" axis="0 1 0.1" damping="0.2" armature="0.01"/><geom density="900"/></default>
<worldbody>
  <site name="origin" pos="-0.03 0.01 0.95"/>
  <body pos="0 0 1">
    <joint name="shoulder"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03"/>
    <body pos="0 0 -0.3">
      <joint name="elbow" stiffness="1" springref="0.2"/>
      <geom type="capsule" fromto="0 0 0 0.25 0 0" size="0.025"/>
      <geom name="wheel" type="cylinder" size="0.035 0.03" euler="1.57 0 0.1" mass="0.05"/>
      <site name="side" pos="0.06 0 0.02"/>
      <site name="insertion" pos="0.03 0 -0.12"/>
    </body>
  </body>
</worldbody>
<tendon><spatial name="flexor"><site site="origin"/><geom geom="wheel" sidesite="side"/><site site="insertion"/></spatial></tendon>
<actuator>
  <muscle tendon="flexor" lengthrange="0.2 0.5" tausmooth="0.2" force="-1" scale="20" ctrllimited="true" ctrlrange="0 1"/>
  <muscle joint="shoulder" lengthrange="-1 1" range="0.5 1.5" lmin="0.6" lmax="1.4" force="5" vmax="1.5" fvmax="1.3"/>
</actuator>
""")  # fmt: skip

SPHERE = _text("", """
<worldbody>
  <geom name="ball" type="sphere" size="0.1" pos="0.05 0.02 0.03"/>
  <site name="fixed" pos="-0.3 0 0"/>
  <site name="other" pos="0 0.2 0.05"/>
  <site name="side" pos="0 0.3 0.05"/>
  <site name="inside" pos="0.06 0.01 0.05"/>
  <body pos="0.35 0 0.05" gravcomp="0.4">
    <joint type="slide" axis="1 0 0" damping="0.1"/>
    <joint type="slide" axis="0 1 0" pos="0.1 0 0"/>
    <joint type="slide" axis="0 0 1"/>
    <geom type="ellipsoid" size="0.03 0.02 0.04"/>
    <site name="moving"/>
    <site name="second" pos="0 0 0.05"/>
  </body>
</worldbody>
<tendon>
  <spatial stiffness="40" damping="0.5" springlength="0.35 0.5"><site site="fixed"/><geom geom="ball"/><site site="moving"/></spatial>
  <spatial stiffness="20" springlength="0.2"><site site="fixed"/><geom geom="ball" sidesite="side"/><site site="second"/>
    <pulley divisor="2.5"/><site site="fixed"/><geom geom="ball" sidesite="inside"/><site site="moving"/>
    <pulley divisor="2"/><site site="other"/><geom geom="ball"/><site site="moving"/></spatial>
</tendon>
""")  # fmt: skip

BALLS = _text('integrator="Euler"', """
<worldbody>
  <site name="post" pos="0.2 0.1 0.3" euler="0.2 0.3 0.4"/>
  <body pos="0 0 0.2" euler="0.1 0.2 0.3">
    <joint name="ball" type="ball" stiffness="3" damping="0.2" armature="0.01" pos="0 0.01 0.02"/>
    <geom type="box" size="0.05 0.03 0.1" pos="0.02 0 -0.1"/>
    <site name="tip" pos="0 0 -0.2" euler="0.3 0 0"/>
  </body>
</worldbody>
<actuator>
  <general joint="ball" gear="0.3 0.5 0.2" biastype="affine" biasprm="0.1 -1 -0.2"/>
  <motor jointinparent="ball" gear="0.2 0.1 0.4"/>
  <position site="tip" refsite="post" gear="1 0.5 0.2 0.3 0.2 0.1" kp="5" kv="0.3"/>
  <motor site="tip" gear="0.2 0 0.5 0 0.1 0"/>
</actuator>
<sensor><ballangvel joint="ball"/><gyro site="tip"/><framequat objtype="site" objname="tip" reftype="site" refname="post"/></sensor>
""")  # fmt: skip

BOX_FLUID = _text('density="1.2" viscosity="0.3" wind="0.4 0.1 -0.2"', """
<worldbody>
  <body pos="0 0 1"><freejoint/><geom type="box" size="0.1 0.05 0.2" density="30" pos="0.01 0.02 0"/></body>
</worldbody>
""")  # fmt: skip

ELLIPSOID_FLUID = _text('integrator="implicit" density="1000" viscosity="0.1" wind="0.1 0.02 0"', """
<worldbody>
  <body><joint type="slide" axis="1 0.1 0" damping="0.2"/>
    <geom type="sphere" size="0.05"/>
    <body pos="0.1 0 0"><joint type="hinge" axis="0 0.2 1" stiffness="0.3"/>
      <geom type="ellipsoid" size="0.08 0.01 0.05" pos="0.06 0 0" fluidshape="ellipsoid" fluidcoef="0.4 0.2 1.2 0.9 1.1"/></body>
  </body>
</worldbody>
""")  # fmt: skip

ACTIVATIONS = _text("", """
<default><joint type="slide" damping="0.3"/></default>
<worldbody>
  <body><joint name="x" axis="1 0 0" actuatorfrclimited="true" actuatorfrcrange="-3 4"/><geom size="0.1" mass="0.5"/>
    <body><joint name="y" axis="0 1 0.2"/><geom size="0.1"/></body></body>
</worldbody>
<actuator>
  <general joint="x" dyntype="integrator" gainprm="2" actlimited="true" actrange="-0.5 0.8"/>
  <general joint="y" dyntype="filter" dynprm="0.1" gaintype="affine" gainprm="4 0.5 0.1" ctrllimited="true" ctrlrange="-1 1"/>
  <general joint="x" dyntype="filterexact" dynprm="0.04" actearly="true" forcelimited="true" forcerange="-0.5 0.5"/>
  <general joint="y" dyntype="muscle" dynprm="0.02 0.05 0" gainprm="1.5"/>
  <general joint="y" dyntype="muscle" dynprm="0.02 0.05 0.3" gainprm="1.5" biastype="affine" biasprm="0.1 -0.4 0"/>
  <cylinder joint="x" timeconst="0.2" area="3" bias="0.5 -1 -0.3"/>
  <damper joint="y" kv="0.5" ctrlrange="0 2"/>
</actuator>
""")  # fmt: skip

CRANK = _text("", """
<worldbody>
  <site name="slot" pos="0.4 0.1 0" zaxis="1 0.2 0.1"/>
  <body><joint type="hinge" axis="0 0 1" damping="0.1"/><geom type="box" size="0.1 0.05 0.02" pos="0.1 0 0"/>
    <site name="crank" pos="0.2 0 0.02"/></body>
  <body pos="0 0 1"><joint type="slide" axis="1 0 0" stiffness="3"/><geom size="0.1" mass="0.3"/><site name="own" zaxis="0 0 1"/></body>
</worldbody>
<actuator>
  <general cranksite="crank" slidersite="slot" cranklength="0.4" gainprm="3" biastype="affine" biasprm="0 -2 -0.1"/>
  <general cranksite="crank" slidersite="own" cranklength="0.3" gainprm="1" gear="1.2"/>
</actuator>
""")  # fmt: skip

SERVOS = _text('integrator="implicitfast"', """
<worldbody>
  <body name="upper" gravcomp="0.7"><joint name="a" axis="0 1 0" actuatorgravcomp="true" armature="0.02" stiffness="2" springref="0.3"
      ref="0.1" damping="0.1"/>
    <geom type="cylinder" size="0.03 0.1" pos="0 0 -0.1"/>
    <body name="lower" pos="0 0 -0.2" gravcomp="1.2"><joint name="b" axis="0 1 0.3" springdamper="0.3 0.8"/>
      <geom type="capsule" size="0.02 0.1" pos="0.1 0 0" euler="0 1.57 0"/></body></body>
</worldbody>
<tendon><fixed name="both" stiffness="2" damping="0.3" springlength="-0.1 0.1"><joint joint="a" coef="0.5"/><joint joint="b" coef="-0.7"/>
</fixed></tendon>
<actuator>
  <position joint="a" kp="10" dampratio="0.8" timeconst="0.05" forcelimited="true" forcerange="-6 6"/>
  <intvelocity joint="b" kp="3" kv="0.2" actrange="-2 2"/>
  <general tendon="both" gaintype="affine" gainprm="1 0.3 0.2" biastype="affine" biasprm="0.2 -0.5 -0.1"/>
  <muscle joint="b" lengthrange="-1 1" range="0.5 1.5" force="3"/>
</actuator>
""")  # fmt: skip

RUNGE_KUTTA = _text('integrator="RK4"', """
<worldbody>
  <body><joint name="a" axis="0 1 0" ref="0.2" damping="0.2"/><geom type="cylinder" size="0.05 0.1" pos="0.1 0 0"/>
    <body pos="0.2 0 0"><joint name="b" type="slide" axis="1 0 0" stiffness="20" springref="0.1"/><geom size="0.04"/></body></body>
</worldbody>
<tendon><fixed name="t" stiffness="3" springlength="0"><joint joint="a" coef="0.5"/><joint joint="b" coef="2"/></fixed></tendon>
<actuator><velocity tendon="t" kv="0.5"/><position joint="a" kp="2" timeconst="0.1"/></actuator>
""")  # fmt: skip

MOCAP = _text("", """
<worldbody>
  <body name="hand" mocap="true" pos="0.3 0.1 0.5" euler="0.1 0.2 0.3"><geom name="wheel" type="cylinder" size="0.05 0.1"/>
    <site name="held" pos="-0.2 0.1 0"/></body>
  <camera name="eye" pos="0 -1 0.5" mode="targetbody" target="arm"/>
  <light name="lamp" pos="0 0 2" mode="trackcom"/>
  <body name="arm" pos="0.3 0 0.3"><joint axis="0 1 0" damping="0.1"/><geom type="capsule" fromto="0 0 0 0.3 0 0.2" size="0.02"/>
    <site name="tip" pos="0.3 0 0.2"/><camera name="wrist" pos="0.1 0 0.1" mode="track"/></body>
</worldbody>
<tendon><spatial name="rope" stiffness="30" damping="1"><site site="held"/><geom geom="wheel"/><site site="tip"/></spatial></tendon>
<sensor>
  <accelerometer site="tip"/><force site="tip"/><subtreeangmom body="arm"/><camprojection site="tip" camera="eye"/>
  <framelinvel objtype="site" objname="tip" reftype="camera" refname="wrist"/>
</sensor>
""")  # fmt: skip

# Of each model its text and states on switches: {what: {path: number, or numbers}} over the first random state.
MODELS = {
    "muscle_arm": (MUSCLE_ARM, {
        "still": {"v": 0.0},
        "at_rest": {"q": 0.0, "v": 0.0, "act": 0.0, "ctrl": 0.0},
        "fully_active": {"act": 1.0, "ctrl": 1.0},
        # L = 1 + 0.5 q of the second muscle: lmin, the middle of its rise, its peak, where passive force turns straight, lmax.
        **{f"length {L}": {"q": [2 * (L - 1), 0.3], "v": 0.0} for L in (0.6, 0.8, 1.0, 1.2, 1.4)},
        # V = v / (2 x 1.5), breakpoints at -1, 0 and fvmax - 1.
        **{f"velocity {V}": {"q": [0.1, 0.2], "v": [3 * V, 0.1]} for V in (-1.0, 0.3)},
        "no_range": {"actuator.length_range": 0.3},
        "no_activation_time": {"actuator.dynamics": 0.0},
    }),
    "sphere_tendon": (SPHERE, {
        "sites_coincide": {"q": [-0.65, 0.0, -0.05]},
        "on_the_surface": {"q": [-0.2, 0.02, -0.02]},
        "inside": {"q": [-0.29, 0.02, -0.03]},
        "at_the_centre": {"q": [-0.3, 0.02, -0.02]},
        "through_the_centre": {"q": [0.05, 0.04, 0.01]},
        "grazing": {"geom.pos": [[0.0, 0.1, 0.0], [0.0, 0.0, 0.0]], "q": [-0.05, 0.0, -0.05]},
        "edge_of_slack": {"q": [-0.15, 0.0, -0.05], "geom.pos": 5.0, "v": 0.0},
        "no_radius": {"geom.size": 0.0},
    }),
    "ball_joints": (BALLS, {
        "identity": {"q": [1.0, 0.0, 0.0, 0.0], "v": 0.0},
        "minus_identity": {"q": [-1.0, 0.0, 0.0, 0.0], "v": 0.0},
        "half_turn": {"q": [0.0, 0.6, 0.0, 0.8], "v": 0.0},
        "aligned_sites": {"q": [1.0, 0, 0, 0], "body.quat": [[1.0, 0, 0, 0]], "site.quat": [[1.0, 0, 0, 0]] * 2, "site.pos": 0.0,
                          "joint.pos": 0.0, "body.pos": 0.0},
    }),
    "fluid_on_boxes": (BOX_FLUID, {
        "still": {"v": 0.0},
        "still_air": {"v": 0.0, "medium.wind": 0.0},
        "with_the_wind": {"q": [0, 0, 1, 1, 0, 0, 0.0], "v": [0.4, 0.1, -0.2, 0, 0, 0]},
        "vacuum": {"medium.density": 0.0, "medium.viscosity": 0.0},
        "a_needle": {"geom.size": [[0.1, 0.0, 0.0]]},
        "no_mass": {"geom.density": 0.0},
    }),
    "fluid_on_ellipsoids": (ELLIPSOID_FLUID, {
        "still": {"v": 0.0},
        "still_water": {"v": 0.0, "medium.wind": 0.0},
        "along_an_axis": {"q": 0.0, "v": [1.0, 0.0], "medium.wind": 0.0},
        "two_equal_axes": {"geom.size": [[0.05, 0, 0], [0.05, 0.05, 0.02]]},
        "spheres": {"geom.size": 0.05, "v": [0.0, 1.0]},
    }),
    "activations": (ACTIVATIONS, {
        "at_zero": {"q": 0.0, "v": 0.0, "act": 0.0, "ctrl": 0.0},
        "at_one": {"act": 1.0, "ctrl": 1.0},
        "balanced": {"act": 0.3, "ctrl": 0.3},
        "at_the_lower_edges": {"act": -0.5, "ctrl": -1.0},
        "at_the_upper_edges": {"act": 0.8, "ctrl": 2.0},
        "force_at_its_edge": {"act": 0.5, "ctrl": 0.5},
        "edge_of_the_blend": {"act": 0.25, "ctrl": 0.4},
        "no_time": {"actuator.dynamics": 0.0},
    }),
    "slider_crank": (CRANK, {
        # The rod just reaches the line: crank at 0.2 from the axis of the slot that is drawn for it.
        "stretched": {"q": 0.0, "site.pos": [[0.5, 0.3, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]], "actuator.crank_length": 0.3,
                      "site.quat": [[1.0, 0, 0, 0]] * 3},
        "out_of_reach": {"actuator.crank_length": 0.01},
        "no_rod": {"actuator.crank_length": 0.0, "q": 0.0, "site.pos": 0.0, "body.pos": 0.0},
    }),
    "servos": (SERVOS, {
        "at_rest": {"q": 0.0, "v": 0.0, "act": 0.0, "ctrl": 0.0},
        "edge_of_slack": {"q": [0.2, 0.0], "joint.ref": 0.0},
        "force_at_its_edge": {"act": 1.0, "q": [0.4, 0.0], "v": 0.0},
        "muscle_still": {"v": [0.1, 0.0], "act": 1.0},
        "weightless": {"option.gravity": 0.0},
    }),
    "runge_kutta": (RUNGE_KUTTA, {"at_rest": {"q": 0.0, "v": 0.0, "act": 0.0, "ctrl": 0.0}, "slack": {"q": 0.0, "joint.ref": 0.0}}),
    "mocap": (MOCAP, {
        "still": {"q": 0.0, "v": 0.0},
        "target_at_the_camera": {"camera.pos": 0.3, "body.pos": 0.3, "q": 0.0},
        "tip_on_the_hand": {"body.pos": 0.0, "body.quat": [[1.0, 0, 0, 0]] * 2, "site.pos": 0.0, "q": 0.0},
    }),
}  # fmt: skip


def _points(model, switches: dict, near: float) -> dict[str, np.ndarray]:
    """Every number of a step: two random states, then one per switch. near: how far they are from the initial one."""
    rng, n = np.random.default_rng(4), 2 + len(switches)
    point = {p: np.broadcast_to(np.asarray(model.get(p)), (n, *model.shape(p))).copy() for p in model.paths()}
    which = [0, 1] + [0] * len(switches)
    point["q"] = (np.array(model.topology.initial[0]) + near * rng.normal(size=(2, model.nq)))[which]
    point["v"] = 0.5 * rng.normal(size=(2, model.nv))[which]
    point["act"] = 0.2 + 0.5 * rng.random((2, model.na))[which]
    point["ctrl"] = 0.1 + 0.5 * rng.random((2, model.nu))[which]
    for i, changes in enumerate(switches.values()):
        for path, value in changes.items():
            assert path in point and point[path][i + 2].size, path
            point[path][i + 2] = value
            assert np.shape(value) in ((), point[path].shape[1:]), path
    return point


def _loss(model):
    weights = np.random.default_rng(5).normal(size=1000)

    def loss(point):
        m = model.replace({p: x for p, x in point.items() if p not in STATE})
        state = xsim.init(m, point["q"], point["v"]).replace(act=point["act"])
        ctrl = point["ctrl"] if m.nu else None
        after = xsim.step(m, state, ctrl)
        seen = [0.01 * xsim.sensors(m, state, ctrl)] if m.topology.sensors else []
        parts = jnp.concatenate([after.q, after.v, after.act, *seen], -1)
        return parts @ weights[: parts.shape[-1]]

    return loss


NO_TURN = (1, 0, 0, 0)
FOLDER_4_0 = Path(__file__).parent / "reference" / "mjcf_4_0"
MODELS_4_0 = {name: ((FOLDER_4_0 / f"{file}.xml").read_text(), switches) for name, file, switches in (
    ("forces_of_4_0", "forces", {"at_rest": {"q": 0.0, "v": 0.0, "ctrl": 0.0}, "wild": {"v": 30.0}}),
    ("pid_of_4_0", "pid", {"at_rest": {"v": 0.0, "act": 0.0, "ctrl": 0.0}, "wound_up": {"act": 0.05}}),
    ("dcmotor_of_4_0", "dcmotor", {"at_rest": {"v": 0.0, "act": 0.0, "ctrl": 0.0}, "cold": {"act": 0.0}, "wild": {"v": 30.0, "act": 5.0}}),
    ("surfaces_of_4_0", "surfaces", {"at_rest": {"v": 0.0}, "apart": {"q": [0, 0, 3, *NO_TURN, 0, 0, 2, *NO_TURN, 5, 5, 5, *NO_TURN]}}),
    ("orientation_of_4_0", "orientation", {"at_rest": {"v": 0.0, "act": 0.0, "ctrl": 0.0}, "wound_up": {"act": 3.0}, "wild": {"v": 30.0}}),
    ("enclosure_of_4_0", "enclosure", {"at_rest": {"v": 0.0}}),
    ("rangefinders_of_4_0", "rangefinders", {"far_away": {"q": [50, 50, 50, *NO_TURN]}}),
)}  # fmt: skip
# Parts of the two slowest, daily: one ball on the belt; cameras of two pixels, and a mesh of twenty triangles.
BELT, PIXELS = (MODELS_4_0[f"{name}_of_4_0"][0] for name in ("surfaces", "rangefinders"))
BELT = BELT[: BELT.index('    <body pos="5.6 0.2 0.02">')] + "</worldbody></mujoco>"
PIXELS = re.sub(r'resolution="\d \d"', 'resolution="2 1"', PIXELS).replace('builtin="sphere" params="1"', 'builtin="sphere" params="0"')
STICKY = """<mujoco><option timestep="0.004"/><worldbody><geom name="floor" type="plane" size="5 5 0.1" adhesion="2" gap="0.1"/>
  <body pos="0 0 0.08"><freejoint/><geom size="0.1" adhesion="3" friction="0.7 0.01 0.0002"/></body>
  <body pos="1 0 0.13"><joint type="slide" axis="0 0 1"/><geom name="near" size="0.1" contype="0" conaffinity="0"/></body></worldbody>
  <contact><pair geom1="floor" geom2="near" adhesion="6" condim="1" gap="0.1"/></contact></mujoco>"""
BALL = """<mujoco><option timestep="0.004" integrator="implicitfast"/><worldbody><body><joint name="b" type="ball"/>
  <geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/></body></worldbody><actuator><orientation joint="b" kp="30" kv="1" forcerange="0 9"/>
  <general joint="b" gaintype="so3" biastype="so3" dyntype="integrator" gainprm="20" biasprm="0 -20 -2"/></actuator></mujoco>"""
EXACT = """<mujoco><option timestep="0.004" cone="elliptic"><flag diagexact="enable"/></option><worldbody>
  <geom type="plane" size="5 5 0.1" friction="1 0.02 0.002"/><body pos="0 0 0.06"><freejoint/><geom size="0.1" friction="0.7 0.01 0.001"/>
    <body name="a" pos="0.2 0 0"><joint axis="0 1 0" range="10 60" limited="true"/><geom size="0.05" pos="0.1 0 0"/>
      <site name="s" pos="0.1 0 0.1"/></body></body>
  <body name="b" pos="0.3 0 0.3"><joint type="ball" frictionloss="0.01"/><geom size="0.05" pos="0 0.1 0"/></body></worldbody>
  <equality><connect body1="a" body2="b" anchor="0.1 0 0.1"/></equality></mujoco>"""
MODELS_4_0 |= {
    "exact_of_4_0": (EXACT, {"at_rest": {"v": 0.0}}),
    "ball_servos_of_4_0": (BALL, {"at_rest": {"v": 0.0, "act": 0.0, "ctrl": 0.0}, "wound_up": {"act": 3.0}, "wild": {"v": 30.0}}),
    "belt_of_4_0": (BELT, {"at_rest": {"v": 0.0}, "apart": {"q": [0, 0, 3, *NO_TURN]}}),
    "sticky_of_4_0": (STICKY, {"at_rest": {"v": 0.0}}),
    "pixels_of_4_0": (PIXELS, MODELS_4_0["rangefinders_of_4_0"][1]),
}
LONG = (
    "surfaces_of_4_0", "rangefinders_of_4_0", "forces_of_4_0", "dcmotor_of_4_0", "orientation_of_4_0", "enclosure_of_4_0",
)
IN_CONTACT = ("surfaces_of_4_0", "belt_of_4_0", "exact_of_4_0", "sticky_of_4_0")
# Columns of limits: 0, no limit, is not near 1e-9. The largest integral of pid; voltage, rate of the current, integral of dcmotor.
LIMITS = {"pid_of_4_0": {"actuator.dynamics": [0]}, "dcmotor_of_4_0": {"actuator.gain": [7], "actuator.dynamics": [1, 8]}}
BUNDLED = {f"bundled_{name}": (models.path(name).read_text(), {}) for name in ("muscle_arm", "servo_arm", "fish")}
REACHES = {
    "bundled_fish": REACH | {"dof.armature": 1e-7, "option.regularization": 1e-7},  # its fins weigh grams
    "exact_of_4_0": REACH | {"dof.armature": 1e-6},  # its arm weighs half a kilogram
    "dcmotor_of_4_0": REACH | {"actuator.armature": 1e-6},  # of a motor; the joint has gear^2 as much
}
OTHERS = [pytest.param(name, marks=pytest.mark.nightly) for name in (*BUNDLED, *LONG)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *(name for name in MODELS_4_0 if name not in LONG), *OTHERS])
def test_every_number_of_a_step(name, x64):
    (text, switches), reach = (BUNDLED | MODELS | MODELS_4_0)[name], REACHES.get(name, REACH)
    model = xsim.loads(text, "mjcf", rules="4.0" if name in MODELS_4_0 else "3.2")
    point = _points(model, switches, 0.01 if name in IN_CONTACT else 0.3)
    for path, columns in LIMITS.get(name, {}).items():
        limits = point[path][..., columns]
        point[path][..., columns] = np.where(limits == 0, 1e3, limits)
    reverse = check_both_modes(_loss(model), point, 2, reach, 1e-6, ["random", "random", *switches])
    for path in ("ctrl", "geom.surface_velocity", "geom.adhesion", "pair.adhesion"):  # what acts has derivatives
        assert reverse[path].size == 0 or (np.abs(reverse[path][:2]).reshape(2, -1).max(1) > 0).all(), path
