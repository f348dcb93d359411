"""Accelerations of MuJoCo with noslip iterations to their end (python make_noslip.py with mujoco 3.2.7): writes noslip.json."""

import json
from pathlib import Path

import mujoco
import numpy as np

SCENE = """<mujoco><option cone="{cone}" impratio="{impratio}" gravity="1 0.5 -9.81" solver="Newton" tolerance="1e-15" iterations="200"
noslip_iterations="{noslip}" noslip_tolerance="0"/><worldbody><geom type="plane" size="3 3 1" friction="0.3 0.01 0.001" condim="{condim}"/>
<body pos="0 0 0.098"><freejoint/><geom type="box" size="0.2 0.15 0.1" friction="0.3 0.01 0.001" condim="{condim}"/>
 <body pos="0 0 0.15"><joint axis="0 1 0.2" frictionloss="0.4" damping="0.1" range="-10 10" limited="true"/>
  <geom type="capsule" size="0.03 0.2" pos="0.05 0 0.1"/></body></body>
<body pos="0.6 0 0.0995"><freejoint/><geom type="sphere" size="0.1" friction="0.5 0.02 0.01" condim="{condim}"/></body>
</worldbody></mujoco>"""


def main() -> None:
    rng = np.random.default_rng(0)
    speeds = np.array([np.zeros(13), 0.3 * rng.normal(size=13), 0.01 * rng.normal(size=13)])
    cases = []
    for cone in ("pyramidal", "elliptic"):
        for condim, impratio in ((1, 1), (3, 5), (4, 1), (6, 1)):
            with_and_without = []
            for noslip in (0, 3000):
                text = SCENE.format(cone=cone, condim=condim, impratio=impratio, noslip=noslip)
                model = mujoco.MjModel.from_xml_string(text)
                rows = []
                for v in speeds:
                    data = mujoco.MjData(model)
                    data.qvel[:] = v
                    mujoco.mj_forward(model, data)
                    rows.append(data.qacc.tolist())
                with_and_without.append(rows)
            cases.append({"model": text, "without": with_and_without[0], "acceleration": with_and_without[1]})
    out = {"mujoco": mujoco.__version__, "v": speeds.tolist(), "cases": cases}
    (Path(__file__).parent / "noslip.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
