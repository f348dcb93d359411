"""Writes speculative.json: contacts that MuJoCo 4.0.0 finds within the next step (flag speculative), and the states after steps.

    pip install mujoco==4.0.0
    python tests/reference/make_speculative.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mujoco

STEPS = 3

PLATE, PLANE = '<geom type="box" size="1 1 .01" {}/>', '<geom type="plane" size="1 1 1" {}/>'
BODY = '<body pos="{}"><freejoint/><geom {}/></body>'
SPHERE, CAPSULE, CYLINDER = 'size=".1" {}', 'type="capsule" size=".05 .1" {}', 'type="cylinder" size=".05 .1" {}'
BOX, SLATE = 'type="box" size=".1 .1 .1" {}', 'type="box" size=".1 .05 .02" {}'
DOWN = (0, 0, -200, 0, 0, 0)


def above(ground: str, geom: str, more: str = "", of_ground: str = "", pos: str = "0 0 .3") -> str:
    """A body above what stands still."""
    return ground.format(of_ground) + BODY.format(pos, geom.format(more))


def two(first: str, second: str, pos: str) -> str:
    """A body, and one at pos."""
    return BODY.format("0 0 0", first) + BODY.format(pos, second)


CASES = {  # bodies, velocities, <option>
    "ball on a plane": (above(PLANE, SPHERE), (100, 0, -200, 30, 0, 0), ""),
    "ball on a plate": (above(PLATE, SPHERE), DOWN, 'cone="elliptic"'),
    "ball that is slow at first": (above(PLATE, SPHERE), (0, 0, -40, 300, 0, 0), ""),
    "ball that is too slow": (above(PLANE, SPHERE, pos="0 0 .17"), (0, 0, -40, 300, 0, 0), ""),
    "margin and gap": (above(PLANE, SPHERE, of_ground='margin=".02" gap=".01"'), DOWN, ""),
    "without a spring": (above(PLATE, SPHERE, 'solref="0 -499" solimp=".995 .995 .03" priority="1"'), DOWN, ""),
    "discrete": (above(PLATE, SPHERE), DOWN, 'integrator="discrete"'),
    "discrete, stiff": (above(PLATE, SPHERE, 'solref=".001 1" priority="1"'), DOWN, 'integrator="discrete"'),
    "two balls": (two('size=".1"', 'size=".05"', ".05 0 .6"), (0, 0, 9, 0, 0, 0, 20, 0, -300, 0, 0, 0), ""),
    "capsule on a plate": (above(PLATE, CAPSULE, 'euler="0 80 0"', 'euler="5 3 0"'), (0, 0, -200, 0, 100, 30), ""),
    "cylinder on a plane": (above(PLANE, CYLINDER, 'euler="0 80 0"'), (0, 0, -200, 0, 100, 0), ""),
    "box on a plane": (above(PLANE, BOX, 'euler="3 4 0"'), (0, 0, -200, 60, 30, 0), ""),
    "box on a plate": (above(PLATE, BOX), (0, 0, -200, 0, 0, 50), ""),
    "two boxes": (
        two(SLATE.format('euler="10 20 30"'), 'type="box" size=".05 .1 .07" euler="40 -20 5"', ".1 .05 .3"),
        (10, 5, 60, 30, -50, 20, -20, 3, -90, 60, 20, -80), "",
    ),
    "ellipsoid on a plate": (above(PLATE, 'type="ellipsoid" size=".05 .1 .07" {}', 'euler="0 80 0"', 'euler="5 3 0"'), DOWN, ""),
    "hull on a plate": (above(PLATE, 'type="mesh" mesh="m" euler="30 20 0"'), (0, 0, -200, 20, 30, 0), ""),
}  # fmt: skip
MESH = '<asset><mesh name="m" vertex="0 0 0 .2 0 0 0 .15 0 0 0 .12 .15 .12 .02"/></asset>'


def text(world: str, option: str) -> str:
    """The file of a model."""
    flag = '<flag speculative="enable"/>'
    return f'<mujoco><option timestep=".002" {option}>{flag}</option>{MESH}<worldbody>{world}</worldbody></mujoco>'


def main() -> None:
    assert mujoco.__version__ == "4.0.0", mujoco.__version__
    out: dict = {"version": mujoco.__version__, "models": {}}
    for name, (world, v, option) in CASES.items():
        file = text(world, option)
        model = mujoco.MjModel.from_xml_string(file)
        model.opt.tolerance, model.opt.iterations, model.opt.ccd_tolerance, model.opt.ccd_iterations = 0, 200, 1e-12, 200
        data = mujoco.MjData(model)
        data.qvel[:] = v
        mujoco.mj_forward(model, data)
        found = sorted([c.dist, *c.pos.tolist()] for c in data.contact[: data.ncon])
        states = []
        for _ in range(STEPS):
            mujoco.mj_step(model, data)
            states.append([*data.qpos.tolist(), *data.qvel.tolist()])
        out["models"][name] = {"text": file, "v": list(map(float, v)), "contacts": found, "states": states}
    path = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parent / "speculative.json")
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
