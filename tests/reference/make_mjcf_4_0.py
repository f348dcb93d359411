"""Writes mjcf_4_0.json: the numbers of MuJoCo 4.0.0 for the models in mjcf_4_0, at random states and after steps from them.

    pip install mujoco==4.0.0
    python tests/reference/make_mjcf_4_0.py
"""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parent
STATES, STEPS = 3, 20
DISPLACEMENT, IN_CONTACT = 0.5, 0.02  # of a state from the initial one, m or rad: without and with contacts
INTEGRATORS = ("Euler", "implicitfast")


def state(model: mujoco.MjModel, rng) -> mujoco.MjData:
    """A random state near the initial one, with random activations and controls."""
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0) if model.nkey else mujoco.mj_resetData(model, data)
    collides = not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT
    mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv) * (IN_CONTACT if collides else DISPLACEMENT), 1)
    data.qvel[:] += rng.normal(size=model.nv)
    data.act[:] += rng.normal(size=model.na) * 0.1
    data.ctrl[:] += rng.normal(size=model.nu)
    return data


def record(model: mujoco.MjModel, data: mujoco.MjData) -> dict[str, list]:
    """What the engine computes at a state, and its state after one and after many steps."""
    out = {"q": data.qpos, "v": data.qvel, "act": data.act, "ctrl": data.ctrl}
    out = {name: value.copy() for name, value in out.items()}
    mujoco.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass)
    out |= {"mass": mass, "bias": data.qfrc_bias, "passive": data.qfrc_passive, "actuator": data.qfrc_actuator, "a": data.qacc}
    out |= {"actuator_force": data.actuator_force, "act_rate": data.act_dot, "sensor": data.sensordata}
    out = {name: value.copy() for name, value in out.items()}
    trajectories = {}
    for name in INTEGRATORS:
        moving = mujoco.MjData(model)
        mujoco.mj_copyData(moving, model, data)
        before, model.opt.integrator = model.opt.integrator, getattr(mujoco.mjtIntegrator, f"mjINT_{name.upper()}")
        for step in range(STEPS):
            mujoco.mj_step(model, moving)
            if step in (0, STEPS - 1):
                trajectories[f"{name} {step + 1}"] = np.concatenate([moving.qpos, moving.qvel, moving.act])
        model.opt.integrator = before
    return {name: value.tolist() for name, value in {**out, **trajectories}.items()}


def main() -> None:
    assert mujoco.__version__ == "4.0.0", mujoco.__version__
    out = {}
    for path in sorted((FOLDER / "mjcf_4_0").glob("*.xml")):
        model, rng = mujoco.MjModel.from_xml_path(str(path)), np.random.default_rng(0)
        model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0, 100, 200
        out[path.stem] = [record(model, state(model, rng)) for _ in range(STATES)]
    lines = (f'"{name}": {json.dumps(states)}' for name, states in out.items())
    (FOLDER / "mjcf_4_0.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
