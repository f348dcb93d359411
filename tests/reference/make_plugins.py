"""Writes plugins_3_2.json or plugins_4_0.json, by the release that runs: MuJoCo's numbers for the models in plugins.

    pip install mujoco==3.2.7
    python tests/reference/make_plugins.py
    pip install mujoco==4.0.0
    python tests/reference/make_plugins.py

Each model moves from its start under varying controls. The numbers are those of some states on its way.
"""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parent
RELEASES = {"3.2.7": "3_2", "4.0.0": "4_0"}
ONLY_3_2 = ("cable", "shell")
STEPS, RECORDED = 30, (0, 1, 20)
INTEGRATORS = ("Euler", "implicitfast")


def trajectory(model: mujoco.MjModel, controls: np.ndarray) -> dict[str, list]:
    """What the engine computes at the recorded states, and the last state."""
    data, out = mujoco.MjData(model), {}
    mujoco.mj_resetDataKeyframe(model, data, 0) if model.nkey else mujoco.mj_resetData(model, data)
    for step, ctrl in enumerate(controls):
        data.ctrl[:] = ctrl
        if step in RECORDED:
            mujoco.mj_forward(model, data)
            found = {"time": np.array(data.time), "q": data.qpos, "v": data.qvel, "act": data.act, "ctrl": data.ctrl}
            found |= {"passive": data.qfrc_passive, "actuator_force": data.actuator_force, "act_rate": data.act_dot}
            found |= {"a": data.qacc, "sensor": data.sensordata}
            for name, value in found.items():
                out.setdefault(name, []).append(value.tolist())
        mujoco.mj_step(model, data)
    return out | {"end": np.concatenate([data.qpos, data.qvel, data.act]).tolist()}


def main() -> None:
    release, out = RELEASES[mujoco.__version__], {}
    for path in sorted((FOLDER / "plugins").glob("*.xml")):
        if path.stem in ONLY_3_2 and release != "3_2":
            continue
        model, rng = mujoco.MjModel.from_xml_path(str(path)), np.random.default_rng(0)
        model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0, 100, 200
        phase = rng.uniform(0, 2 * np.pi, model.nu)
        controls = np.sin(np.arange(STEPS)[:, None] * 0.3 + phase)
        out[path.stem] = {"controls": controls.tolist()}
        for name in INTEGRATORS:
            model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{name.upper()}")
            out[path.stem][name] = trajectory(model, controls)
    lines = (f'"{name}": {json.dumps(numbers)}' for name, numbers in out.items())
    (FOLDER / f"plugins_{release}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
