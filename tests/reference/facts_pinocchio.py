"""Mass matrix and bias that Pinocchio computes for URDF files: one line of JSON for each path on stdin.

Run by tests/test_robots.py with a Python that has pin. Each file at one random state, with its root fixed and with it free.
"""

import json
import sys

import numpy as np
import pinocchio as pin


def facts(path: str) -> dict:
    return {"fixed": _state(pin.buildModelFromUrdf(path)), "free": _state(pin.buildModelFromUrdf(path, pin.JointModelFreeFlyer()))}


def _state(model) -> dict:
    rng, data = np.random.default_rng(0), model.createData()
    q = pin.integrate(model, pin.neutral(model), 0.3 * rng.standard_normal(model.nv))
    v = 0.5 * rng.standard_normal(model.nv)
    upper = np.triu(pin.crba(model, data, q))
    bias = pin.rnea(model, data, q, v, np.zeros(model.nv))
    joints = {model.names[i]: {"q": [j.idx_q, j.nq], "v": [j.idx_v, j.nv]} for i, j in enumerate(model.joints) if i}
    return {"gravity": model.gravity.linear.tolist(), "joints": joints, "q": q.tolist(), "v": v.tolist(),
            "M": (upper + np.triu(upper, 1).T).tolist(), "bias": bias.tolist()}  # fmt: skip


for line in sys.stdin:
    try:
        answer = facts(line.rstrip("\n"))
    except ValueError as error:
        answer = {"error": str(error).strip()}
    print(json.dumps(answer), flush=True)
