"""Writes panda.json: numbers of Pinocchio for Franka's own description of the Panda, for tests/test_manipulation.py.

    python make_panda.py PANDA.URDF panda.json     # the file of the package example-robot-data 6.0.0; with pin 4.1.0
"""

import json
import sys
from pathlib import Path

import numpy as np
import pinocchio as pin

model = pin.buildModelFromUrdf(sys.argv[1])
model.gravity.linear = np.array([0.0, 0.0, -9.81])
data = model.createData()
tcp = model.getFrameId("panda_hand_tcp")
rng = np.random.default_rng(0)
states = []
for _ in range(4):
    q = np.round(rng.uniform(model.lowerPositionLimit, model.upperPositionLimit), 4)
    v = np.round(rng.uniform(-1.0, 1.0, model.nv), 4)
    pin.framesForwardKinematics(model, data, q)
    pose = data.oMf[tcp]
    mass = pin.crba(model, data, q)
    mass = np.triu(mass) + np.triu(mass, 1).T
    bias = pin.nonLinearEffects(model, data, q, v)
    gravity = pin.computeGeneralizedGravity(model, data, q)
    found = {"q": q, "v": v, "position": pose.translation, "rotation": pose.rotation, "mass": mass, "coriolis": bias - gravity}
    states.append({name: np.asarray(x).tolist() for name, x in found.items()})
limits = {
    "lower": model.lowerPositionLimit.tolist(),
    "upper": model.upperPositionLimit.tolist(),
    "effort": model.effortLimit.tolist(),
    "speed": model.velocityLimit.tolist(),
}
out = {"pinocchio": pin.__version__, "joints": list(model.names)[1:], "limits": limits, "states": states}
Path(sys.argv[2]).write_text(json.dumps(out) + "\n")
