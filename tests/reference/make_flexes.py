"""Deformables of MuJoCo: python make_flexes.py flexes.json, once in an environment with MuJoCo 3.2 and once in one with 4.0. Each run
replaces what its version wrote before."""

import json
import sys
from pathlib import Path

import mujoco
import numpy as np

OPTION = """<option timestep="0.002" jacobian="dense" tolerance="1e-14" iterations="500" {}><flag contact="disable" warmstart="disable"/>
</option>"""
BODIES = """
<body name="a" pos="0 0 1"><joint type="hinge" axis="0 1 .3"/><joint type="slide" axis="1 .2 0"/><geom size=".05" mass="1"/>
  <body name="b" pos=".3 0 0" quat="1 .2 .1 0"><joint type="ball"/><geom size=".05 .03 .1" type="box" mass=".5" pos=".02 .01 0"/>
    <body name="w" pos=".1 .1 0"/></body></body>
<body name="c" pos="0 .4 1.2"><freejoint/><geom type="box" size=".05 .1 .02" mass=".7"/></body>
<body name="s" pos=".3 .4 1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"/>
  <geom size=".05" mass=".2"/></body>"""
POINTS = 'body="a b w c s world c" vertex="0 0 0 .1 0 0 0 .05 .1 0 0 .1 0 0 0 .2 .3 .9 .1 .2 .05"'
ELEMENTS = {1: "0 1 1 2 2 3 3 4 4 5 5 6 6 3", 2: "0 1 2 1 2 3 2 3 4 3 4 5 4 5 6 3 6 5", 3: "0 1 2 3 1 2 3 4 2 3 4 5 3 4 5 6"}
EQUALITY = '<flex flex="f" solref=".03 .9" solimp=".8 .95 .01 .4 3"/>'
SPRINGS = '<edge stiffness="30" damping="2"/>'


def on_bodies(dim: int, inside: str = "", equality: str = "", option: str = "") -> str:
    """A flex on bodies of many kinds: several points on one, some on bodies that are fixed to each other, one in the world."""
    flex = f'<flex name="f" dim="{dim}" {POINTS} element="{ELEMENTS[dim]}" radius=".001">{inside}</flex>'
    return (
        f"<mujoco>{OPTION.format(option)}<worldbody>{BODIES}</worldbody><deformable>{flex}</deformable>"
        f"<equality>{equality}</equality></mujoco>"
    )


def comp(attributes: str, inside: str, option: str = "") -> str:
    made = f'<flexcomp name="f" spacing=".125 .125 .125" radius=".01" mass=".2" {attributes}>{inside}</flexcomp>'
    return f'<mujoco>{OPTION.format(option)}<worldbody><body name="p" pos="0 0 1">{made}</body></worldbody></mujoco>'


def elasticity(young: float, **more: float | str) -> str:
    return f'<elasticity young="{young}" {" ".join(f"{k}={chr(34)}{x}{chr(34)}" for k, x in more.items())}/>'


def bodies_in_line() -> str:
    """A straight chain of lines on bodies that turn, without joints for its twist."""
    joints = ('<joint axis="0 1 .2" pos="-.1 0 0"/>', "<freejoint/>", '<joint type="ball" pos="0 .1 0"/>', "<freejoint/>", "")
    bodies = "".join(f'<body name="b{i}" pos="{0.2 * i} 0 1">{x}<geom size=".03" mass=".1"/></body>' for i, x in enumerate(joints))
    flex = f'<flex name="f" dim="1" body="b0 b1 b2 b3 b4" element="0 1 1 2 2 3 3 4" radius=".02">{elasticity(2e6, damping=0.01)}</flex>'
    return f"<mujoco>{OPTION.format('')}<worldbody>{bodies}</worldbody><deformable>{flex}</deformable></mujoco>"


def curved(inside: str) -> str:
    points, lines = "0 0 0 .1 0 0 .2 .05 0 .25 .15 .05 .3 .15 .2 .3 .3 .25", "0 1 1 2 2 3 3 4 4 5"
    return comp(f'type="direct" dim="1" point="{points}" element="{lines}"', inside)


def held_rod() -> str:
    """A chain with its ends fixed to bodies that turn, and a box as cross-section."""
    more = {"shear": 2e5, "damping": 0.01, "section": "box", "sectionsize": ".02 .01"}
    points, lines = "0 0 0 .1 0 0 .2 .05 0 .25 .15 .05 .3 .15 .2", "0 1 1 2 2 3 3 4"
    made = (
        f'<flexcomp name="f" type="direct" dim="1" point="{points}" element="{lines}" radius=".01" mass=".2">{elasticity(1e5, **more)}'
        '<pin id="0 1"/></flexcomp>'
    )
    joints = '<joint axis="0 1 .2" pos="-.1 0 0"/><joint type="slide"/>'
    inner = f'<body name="in" pos=".1 0 .1" euler="20 30 10"><joint type="ball"/><geom size=".05" mass=".3"/>{made}</body>'
    world = f'<body name="p" pos="0 0 1">{joints}<geom size=".1 .05 .02" type="box" mass=".5"/>{inner}</body>'
    return f"<mujoco>{OPTION.format('')}<worldbody>{world}</worldbody></mujoco>"


def angle_of_cubes() -> str:
    """Three of the four cells of a grid are cubes of six tetrahedra each, one is empty."""
    points = [(i, j, k) for i in range(3) for j in range(2) for k in range(3)]
    tetrahedra = []
    for x, z in ((0, 0), (1, 0), (0, 1)):
        corner = [points.index((x + i, j, z + k)) for k in range(2) for j in range(2) for i in range(2)]
        tetrahedra += [[corner[p] for p in (0, *way, 7)] for way in ((1, 3), (3, 2), (2, 6), (6, 4), (4, 5), (5, 1))]
    flat = (" ".join(f"{x:g}" for x in np.ravel(rows)) for rows in (np.multiply(points, (0.1, 0.2, 0.15)), tetrahedra))
    attributes = 'type="direct" dim="3" dof="trilinear" cellcount="2 1 2" point="{}" element="{}"'.format(*flat)
    return comp(attributes, elasticity(500, poisson=0.3, damping=0.01))


def in_frame(text: str) -> str:
    """A flexcomp of `comp` in a turned frame of a turned body."""
    start, end = text.index("<flexcomp"), text.index("</flexcomp>") + len("</flexcomp>")
    inside = f'<frame euler="20 0 30" pos=".5 0 0">{text[start:end]}</frame>'
    return f'{text[:start]}<body name="q" pos="1 2 3" euler="10 0 0">{inside}</body>{text[end:]}'


def tetrahedron(attributes: str) -> str:
    """Its four faces."""
    points, faces = "0 0 0 .3 0 0 .1 .4 0 .05 .1 .35", "0 2 1 0 1 3 0 3 2 1 2 3"
    return comp(f'type="direct" dim="2" point="{points}" element="{faces}" {attributes}', SOFT)


SOFT = elasticity(200, poisson=0.3, damping=0.02)
MODELS = {
    "edges of triangles keep their lengths": on_bodies(2, "", EQUALITY),
    "lines keep their lengths": on_bodies(1, "", '<flex flex="f"/>'),
    "springs": on_bodies(1, SPRINGS),
    "dampers of triangles": on_bodies(2, '<edge damping="2"/>'),
    "dampers of tetrahedra": on_bodies(3, '<edge damping="2"/>'),
    "triangles": on_bodies(2, elasticity(2000, poisson=0.3, damping=0.02, thickness=0.01)),
    "triangles without thickness": on_bodies(2, elasticity(2, poisson=0.3, damping=0.02)),
    "triangles that stretch": on_bodies(2, elasticity(2000, poisson=0.3, damping=0.02, thickness=0.01, elastic2d="stretch")),
    "triangles that bend": on_bodies(2, elasticity(3e5, poisson=0.3, damping=0.02, thickness=0.02, elastic2d="bend")),
    "triangles that do both": on_bodies(2, elasticity(3e4, poisson=0.2, damping=0.01, thickness=0.05, elastic2d="both")),
    "tetrahedra": on_bodies(3, elasticity(2000, poisson=0.3, damping=0.02)),
    "tetrahedra keep their lengths": on_bodies(3, elasticity(500, poisson=0.1, damping=0.01), EQUALITY),
    "springs, implicitfast": on_bodies(1, SPRINGS, "", 'integrator="implicitfast"'),
    "springs, implicit": on_bodies(1, SPRINGS, "", 'integrator="implicit"'),
    "tetrahedra, implicit": on_bodies(3, SOFT, "", 'integrator="implicit"'),
    "tetrahedra, RK4": on_bodies(3, SOFT, "", 'integrator="RK4"'),
    "cloth of edges": comp('dim="2" count="3 3 1"', '<edge equality="true" damping=".01"/><pin gridrange="0 0 0 2"/>'),
    "cloth": comp('dim="2" count="3 3 1"', elasticity(2000, poisson=0.1, damping=0.001, thickness=0.01) + '<pin id="0"/>'),
    "cloth that bends": comp(
        'dim="2" count="3 3 1"', elasticity(2e4, poisson=0.1, damping=0.001, thickness=0.02, elastic2d="both") + '<pin id="0"/>'
    ),
    "shell": comp(
        'type="box" dim="2" count="3 3 3"', elasticity(2e4, poisson=0.2, damping=0.002, thickness=0.02, elastic2d="bend") + '<pin id="0"/>'
    ),
    "rod": comp('dim="1" count="5 1 1" euler="20 30 40"', elasticity(1e6, poisson=0.3, damping=0.01)),
    "rod, RK4": comp('dim="1" count="4 1 1"', elasticity(1e6, poisson=0.3), 'integrator="RK4"'),
    "rod with fixed ends": comp(
        'dim="1" count="6 1 1"', elasticity(1e6, shear=2e6, damping=0.001) + '<pin id="0 1 4 5"/><edge equality="true"/>'
    ),
    "rod that is bent": curved(elasticity(1e6, shear=3e5, damping=0.01)),
    "flat rod that is bent": curved(
        elasticity(1e5, poisson=0.2, damping=0.01, section="box", sectionsize=".02 .01") + '<pin id="0 1 4 5"/>'
    ),
    "upright rod": comp(
        'dim="1" count="4 1 1"', elasticity(1e5, poisson=0.2, damping=0.01, section="box", sectionsize=".01 .02") + '<pin id="0"/>'
    ),
    "rod that a body holds": held_rod(),
    "lines that bend": bodies_in_line(),
    "cloth that yields": comp('dim="2" count="3 3 1"', elasticity(2e4, thickness=0.02, elastic2d="stretch", **{"yield": 0.02})),
    "block that yields": comp('dim="3" count="2 2 2"', elasticity(2e3, poisson=0.2, damping=0.001, **{"yield": 0.02})),
    "sheet in its plane": comp('dim="2" count="3 3 1" dof="2d"', elasticity(2e4, thickness=0.02, elastic2d="both")),
    "ball": comp('type="ellipsoid" dim="3" count="3 3 3" dof="radial"', elasticity(2e4, poisson=0.2, damping=0.001)),
    "block": comp('dim="3" count="3 2 2"', elasticity(2000, poisson=0.1, damping=0.001) + '<pin id="0"/>'),
    "nodes, trilinear": comp('dim="3" count="3 3 2" dof="trilinear"', SOFT),
    "nodes of cells": comp('dim="3" count="4 3 2" dof="trilinear" cellcount="2 1 2"', SOFT + '<pin id="0"/><pin gridrange="2 0 0 2 1 1"/>'),
    "nodes, quadratic": comp('dim="3" count="2 2 3" dof="quadratic"', SOFT + '<pin grid="0 0 0 1 2 2"/>'),
    "nodes of quadratic cells, RK4": comp('dim="3" count="3 2 2" dof="quadratic" cellcount="2 1 1"', SOFT, 'integrator="RK4"'),
    "nodes of a surface": comp('type="box" dim="2" count="3 3 4" dof="trilinear" euler="0 90 0"', SOFT + '<pin id="1 6"/>'),
    "nodes without cells": angle_of_cubes(),
    "nodes of a sheet": comp(
        'type="ellipsoid" dim="2" count="4 4 4" dof="trilinear" cellcount="2 1 2"',
        elasticity(2e3, poisson=0.3, damping=0.01, thickness=0.02, elastic2d="stretch") + '<pin id="0 5"/>',
    ),
    "quadratic nodes of a sheet": comp(
        'type="box" dim="2" count="2 3 4" dof="quadratic"', elasticity(2e3, poisson=0.3, damping=0.01, thickness=0.02, elastic2d="stretch"),
    ),
    "cells without strain": comp(
        'dim="3" count="4 3 2" dof="trilinear" cellcount="2 1 1"',
        '<edge equality="strain" solref=".03 .9" solimp=".8 .95 .01 .4 3"/><pin id="0"/>',
    ),
    "a quadratic cell without strain": comp('dim="3" count="2 3 4" dof="quadratic"', '<edge equality="strain" solref=".03 .9"/>'),
    "nodes of an ellipsoid": comp('type="ellipsoid" dim="3" count="4 4 4" dof="trilinear" cellcount="3 2 3"', SOFT + '<pin id="0"/>'),
    "quadratic nodes of a cylinder": comp('type="cylinder" dim="3" count="4 4 4" dof="quadratic" cellcount="2 1 1"', SOFT),
    "turned nodes": in_frame(comp('dim="3" count="4 3 3" dof="trilinear" cellcount="2 2 2" euler="10 20 30"', SOFT + '<pin id="0 5"/>')),
    "nodes of a closed surface": tetrahedron('cellcount="2 2 2" dof="trilinear"'),
    "quadratic nodes of an open surface": comp('type="cylinder" dim="2" count="4 4 4" dof="quadratic" cellcount="2 1 1"', SOFT),
    "cells of an ellipsoid without strain": comp(
        'type="ellipsoid" dim="3" count="4 4 4" dof="trilinear" cellcount="2 1 2"', '<edge equality="strain" solref=".03 .9"/>'
    ),
    "rigid nodes": comp('dim="3" count="3 3 3" dof="trilinear" rigid="true"', ""),
    "string": comp('dim="1" count="5 1 1"', '<edge stiffness="30" damping=".2"/><pin id="0"/>'),
}


def record(text: str) -> dict:
    """A random state, forces, rows and acceleration there, and where five steps lead; or why the release refuses the model."""
    try:
        m = mujoco.MjModel.from_xml_string(text)
    except ValueError as error:
        return {"error": str(error)}
    rng, d = np.random.default_rng(1), mujoco.MjData(m)
    mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv) * (0.1 if m.nbody < 8 else 0.02), 1.0)
    d.qvel = rng.normal(size=m.nv) * 0.4
    out = {}
    if len(_plastic(d)):  # the frames of lines are those of a step before
        mujoco.mj_forward(m, d)
        out = {"first_q": d.qpos.copy(), "first_v": d.qvel.copy(), "first_passive": d.qfrc_passive.copy()}
        mujoco.mj_step(m, d)
    out |= {"q": d.qpos.copy(), "v": d.qvel.copy(), "plastic": np.array(_plastic(d))}
    mujoco.mj_forward(m, d)
    out |= {"passive": d.qfrc_passive.copy(), "a": d.qacc.copy(), "lengths": m.flexedge_length0.copy()}
    out |= {"R": d.efc_R.copy(), "aref": d.efc_aref.copy(), "J": np.reshape(d.efc_J, (d.nefc, m.nv)).copy()}
    for _ in range(5):
        mujoco.mj_step(m, d)
    return {k: x.tolist() for k, x in out.items()} | {"later_q": d.qpos.tolist(), "later_v": d.qvel.tolist(), "later_plastic": _plastic(d)}


def _plastic(d: mujoco.MjData) -> list:
    return d.plastic.tolist() if hasattr(d, "plastic") else []


if __name__ == "__main__":
    path = Path(sys.argv[1])
    known = json.loads(path.read_text()) if path.exists() else {}
    models = MODELS if mujoco.__version__.startswith("4") else {name: text for name, text in MODELS.items() if "<frame" not in text}
    # In a frame 3.2.7 ignores the attributes that it does not know.
    known[".".join(mujoco.__version__.split(".")[:2])] = {name: {"model": text} | record(text) for name, text in models.items()}
    path.write_text(json.dumps(known, indent=None, separators=(",", ":")))
