"""Mass matrix, bias and passive forces of model files in MuJoCo: one line of JSON for each path on stdin.

Run by tests/test_mjcf_writer.py with a Python that has mujoco. Two states: with the velocity 0, and 0.3 s away from the reset state along a
random velocity, which depends on the number of degrees of freedom alone.
"""

import json
import sys

import mujoco as mj
import numpy as np

SCALES = (0.0, 0.3)


def forces(path: str) -> dict:
    """The numbers of both states, or why MuJoCo does not load the file."""
    try:
        model = mj.MjModel.from_xml_path(path)
    except ValueError as error:
        return {"error": str(error)}
    v = np.random.default_rng(0).normal(size=model.nv)
    return {"nmesh": model.nmesh, "states": [_state(model, scale * v) for scale in SCALES]}


def _state(model, v: np.ndarray) -> dict:
    data = mj.MjData(model)
    mj.mj_integratePos(model, data.qpos, v, 1.0)
    data.qvel[:] = v
    mj.mj_forward(model, data)
    return {"M": _mass_matrix(model, data), "bias": data.qfrc_bias.tolist(), "passive": data.qfrc_passive.tolist()}


def _mass_matrix(model, data) -> list:
    columns = np.empty((model.nv, model.nv))
    for column, unit in zip(columns, np.eye(model.nv), strict=True):
        mj.mj_mulM(model, data, column, unit)
    return columns.tolist()


for line in sys.stdin:
    print(json.dumps(forces(line.strip())), flush=True)
