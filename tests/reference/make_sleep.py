"""Writes sleep.json: what MuJoCo 4.0.0 finds with the flag sleep, for a ball that comes to rest beside a pendulum that swings.

    pip install mujoco==4.0.0
    python tests/reference/make_sleep.py
"""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parent
STEPS, EVERY = 400, 20
MODEL = """<mujoco><option timestep="0.002"><flag sleep="enable"/></option><worldbody>
  <geom type="plane" size="1 1 1"/>
  <body pos="0 0 0.101"><joint type="slide" axis="0 0 1" damping="5"/><geom size="0.1" mass="1"/></body>
  <body pos="1 0 1"><joint axis="0 1 0"/><geom size="0.05" pos="0.3 0 0" mass="1" contype="0" conaffinity="0"/></body>
</worldbody></mujoco>"""


def main() -> None:
    assert mujoco.__version__ == "4.0.0", mujoco.__version__
    model = mujoco.MjModel.from_xml_string(MODEL)
    model.opt.tolerance, model.opt.iterations = 0, 100
    data, out = mujoco.MjData(model), {"model": MODEL, "tolerance": model.opt.sleep_tolerance, "steps": [], "q": [], "v": [], "asleep": []}
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            out["steps"].append(step)
            out["q"].append(data.qpos.tolist())
            out["v"].append(data.qvel.tolist())
            out["asleep"].append((data.tree_asleep >= 0).tolist())
        mujoco.mj_step(model, data)
    assert np.array(out["asleep"]).any(0).tolist() == [True, False]
    (FOLDER / "sleep.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
