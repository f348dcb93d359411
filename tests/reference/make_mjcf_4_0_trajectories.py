"""Writes mjcf_4_0_trajectories.json: what MuJoCo 4.0.0 finds on the way of the models in mjcf_4_0/trajectories, under controls that change
from step to step.

    pip install mujoco==4.0.0
    python tests/reference/make_mjcf_4_0_trajectories.py
"""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parent
STEPS, EVERY = 200, 10
FIRST = 12  # of these steps all are recorded
INTEGRATORS = ("Euler", "implicitfast", "RK4")


def controls(nu: int) -> np.ndarray:
    """(STEPS, nu): waves of the controls, each with its own frequency and phase."""
    k, i = np.arange(STEPS)[:, None], np.arange(nu)[None]
    return np.round(np.sin(0.05 * (1 + 0.3 * i) * k + i), 6)


def record(model: mujoco.MjModel, integrator: str, key: int | None) -> list[dict]:
    """Before some of the steps: the state, and what the engine computes at it. key: the keyframe to start from."""
    model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    data, out = mujoco.MjData(model), []
    if key is not None:
        mujoco.mj_resetDataKeyframe(model, data, key)
    for step, ctrl in enumerate(controls(model.nu)):
        data.ctrl[:] = ctrl
        if step < FIRST or step % EVERY == 0:
            mujoco.mj_forward(model, data)
            found = {"q": data.qpos, "v": data.qvel, "act": data.act, "plastic": data.plastic, "a": data.qacc}
            found |= {"passive": data.qfrc_passive, "actuator": data.qfrc_actuator, "sensor": data.sensordata}
            out.append({"step": step, **{name: x.round(12).tolist() for name, x in found.items()}})
        mujoco.mj_step(model, data)
    return out


def main() -> None:
    assert mujoco.__version__ == "4.0.0", mujoco.__version__
    out: dict = {"version": mujoco.__version__, "models": {}}
    for path in sorted((FOLDER / "mjcf_4_0" / "trajectories").glob("*.xml")):
        model = mujoco.MjModel.from_xml_path(str(path))
        cases = {name: record(model, name, None) for name in INTEGRATORS}
        cases |= {f"Euler from {model.key(k).name}": record(model, "Euler", k) for k in range(model.nkey)}
        out["models"][path.stem] = {"controls": controls(model.nu).tolist(), "cases": cases}
    (FOLDER / "mjcf_4_0_trajectories.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
