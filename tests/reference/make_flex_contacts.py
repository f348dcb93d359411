"""Contacts of flexes of MuJoCo: python make_flex_contacts.py flex_contacts.json, once in an environment with MuJoCo 3.2 and once in one
with 4.0. Each run replaces what its version wrote before."""

import json
import sys
from pathlib import Path

import mujoco
import numpy as np

OPTION = '<option gravity="0 0 -10" cone="elliptic" tolerance="1e-14" iterations="500" ls_tolerance="1e-13" jacobian="dense"/>'
ASSETS = """<asset><hfield name="h" nrow="3" ncol="4" size=".25 .2 .04 .1" elevation="0 .2 .4 .1 .5 1 .3 .2 .1 0 .4 .7"/>
<mesh name="m" vertex="0 0 0 .06 0 0 0 .07 0 0 0 .05 .03 .03 .04"/></asset>"""
ALONE = 'selfcollide="none"'


def comp(attributes: str, contact: str = ALONE, inside: str = "", name: str = "f") -> str:
    return (
        f'<flexcomp name="{name}" type="grid" spacing=".1 .1 .1" mass="1" {attributes}>'
        f"<contact {contact}/>{inside or '<edge damping={q}1{q}/>'.format(q=chr(34))}</flexcomp>"
    )


def body(geom: str, at: str, inside: str = "") -> str:
    return f'<body {at}><freejoint/><geom mass="1" {geom}/>{inside}</body>'


SHEET = 'dim="2" count="3 3 1" radius=".01"'
LINE = 'dim="1" count="5 1 1" radius=".01"'
SOLID = 'dim="3" count="3 3 3" radius=".01"'
SOFT = '<elasticity young="1000" poisson=".1"/>'
PLANE = '<geom type="plane" size="1 1 1" pos="0 0 -.005"/>'
FELT = '<site name="s" type="sphere" size=".1"/>'
SENSED = '<sensor><touch site="s"/><accelerometer site="s"/></sensor>'
MODELS = {
    "a sheet, a ball, a plane": (PLANE + body('type="sphere" size=".04"', 'pos=".03 .02 .045"', FELT) + comp(SHEET), SENSED),
    "numbers of surfaces": (
        body('type="sphere" size=".04" friction=".4 .01 .002" condim="4" margin=".01" gap=".002" solmix="3"', 'pos=".03 .02 .052"')
        + comp(SHEET, ALONE + ' friction=".8 .02 .001" condim="6" margin=".004" solmix="2" solref=".03 .8" solimp=".8 .9 .01 .4 3"'), "",
    ),
    "priority": (
        body('type="sphere" size=".04" friction=".4 .01 .002" condim="4"', 'pos=".03 .02 .045"')
        + comp(SHEET, ALONE + ' friction=".8 .02 .001" condim="1" priority="1" solref="-500 -10"'), "",
    ),
    "a line, a box, a ball, a capsule": (
        body('type="box" size=".03 .05 .03"', 'pos=".03 .02 .035" euler="3 5 20"') + body('type="sphere" size=".03"', 'pos=".13 .02 .03"')
        + body('type="capsule" size=".02 .05"', 'pos="-.15 .01 .025" euler="88 0 20"') + comp(LINE), "",
    ),
    "a sheet, boxes, capsules": (
        body('type="box" size=".06 .07 .03" margin=".01"', 'pos=".04 .02 .042" euler="2 3 20"')
        + body('type="box" size=".02 .02 .02" margin=".02"', 'pos="-.06 .06 .035" euler="30 40 20"')
        + body('type="capsule" size=".02 .05" margin=".01"', 'pos="-.05 -.06 .035" euler="88 0 70"')
        + body('type="capsule" size=".02 .03"', 'pos="-.04 .01 -.05" euler="20 0 70"')
        + comp(SHEET, ALONE + ' margin=".01" gap=".005"'), "",
    ),
    "a line, round shapes, a mesh": (
        body('type="ellipsoid" size=".03 .05 .04"', 'pos=".03 .02 .045" euler="3 5 20"')
        + body('type="cylinder" size=".03 .02"', 'pos="-.15 .01 .03" euler="40 10 0"')
        + body('type="mesh" mesh="m"', 'pos=".15 .01 .02"') + comp(LINE), "",
    ),
    "a solid, a ball, a box": (
        body('type="sphere" size=".06"', 'pos=".03 .02 .165"') + body('type="box" size=".05 .03 .03"', 'pos="-.155 .02 0" euler="3 5 20"')
        + comp(SOLID, ALONE, SOFT), "",
    ),
    "layers of a solid": (
        body('type="ellipsoid" size=".08 .15 .08"', 'pos="-.205 0 0"')
        + comp('dim="3" count="4 4 4" radius=".01"', ALONE + ' activelayers="2"', SOFT), "",
    ),
    "on a height field": (
        '<geom type="hfield" hfield="h" pos="0 0 -.035"/>' + comp(SHEET)
        + comp('dim="1" count="3 1 1" radius=".01" pos="0 .15 .02"', ALONE, "", "g"), "",
    ),
    "pinned": (
        '<body name="p" pos="0 0 0"><joint axis="0 1 0" damping="1"/><geom type="sphere" size=".05" mass="1" pos="-.1 0 .055"/>'
        + comp(SHEET, ALONE, '<edge damping="1"/><pin id="0 1"/>') + "</body>" + body('type="sphere" size=".04"', 'pos=".03 .02 .045"'), "",
    ),
    "two flexes": (
        comp('dim="2" count="3 3 1" radius=".02"') + comp('dim="1" count="3 1 1" radius=".02" pos=".01 .02 .035"', ALONE, "", "g"), "",
    ),
    "nodes of cells, a ball, a plane": (
        PLANE.replace("-.005", "-.055") + body('type="sphere" size=".06"', 'pos=".03 .02 .105"')
        + comp('dim="3" count="3 3 2" radius=".01" dof="trilinear" cellcount="2 1 1"', "", SOFT + '<pin id="0 6"/>'), "",
    ),
    "elements over several cells": (
        body('type="sphere" size=".06"', 'pos=".03 .02 .115"')
        + comp('dim="3" count="3 2 2" radius=".01" dof="trilinear" cellcount="3 1 1"', ALONE, SOFT), "",
    ),
    "cells by themselves": (
        comp('dim="3" count="6 2 2" radius=".045" dof="trilinear" cellcount="3 1 1"', 'activelayers="2"', SOFT), "",
    ),
    "quadratic nodes, a box": (
        body('type="box" size=".05 .03 .03"', 'pos="-.105 .02 0" euler="3 5 20"')
        + comp('dim="3" count="3 2 2" radius=".01" dof="quadratic"', 'condim="4" friction=".8 .02 .001"', SOFT), "",
    ),
    "a sheet by itself": (comp('dim="2" count="4 4 1" radius=".045"', 'selfcollide="narrow" margin=".01"'), ""),
    "a sheet by itself, overridden": (
        comp('dim="2" count="4 4 1" radius=".045"', 'selfcollide="narrow" margin=".01"'),
        '<option o_margin=".01" o_solref=".03 .9"><flag override="enable"/></option>',
    ),
    "a solid by itself": (comp('dim="3" count="5 2 2" radius=".045"', 'selfcollide="auto"', SOFT), ""),
    "a line by itself": (
        comp('dim="1" count="8 1 1" radius=".024"', 'selfcollide="bvh"').replace('"grid"', '"circle"')
        .replace(".1 .1 .1", ".05 .05 .05"), "",
    ),
    "inside of a sheet": (comp('dim="2" count="3 3 1" radius=".04"', ALONE + ' internal="true"'), ""),
    "inside of a solid": (comp('dim="3" count="3 2 2" radius=".03"', ALONE + ' internal="true"', SOFT), ""),
    "inside of a line": (comp('dim="1" count="4 1 1" radius=".045"', ALONE + ' internal="true"'), ""),
}  # fmt: skip


CLOSED = [
    "a sheet, a ball, a plane", "numbers of surfaces", "priority", "a line, a box, a ball, a capsule", "pinned", "a line by itself",
    "inside of a sheet", "inside of a solid", "inside of a line",
]  # fmt: skip
"""Those in closed form; 3.2's search of the others ends far from where shapes are nearest."""


def text(world: str, more: str) -> str:
    internal = "" if mujoco.__version__ >= "4" or 'internal="true"' in world else ' internal="false"'
    world = world.replace("<contact ", f"<contact{internal} ") if internal else world
    if mujoco.__version__ >= "4":  # there elements of lines and solids have one contact also where the flag gives geoms several
        world, more = world.replace(' internal="true"', ""), more + '<option><flag multiccd="disable"/></option>'
    return f"<mujoco>{OPTION}{ASSETS}<worldbody>{world}</worldbody>{more}</mujoco>"


def record(xml: str) -> dict:
    """Four states near the one that is drawn: contacts, accelerations, sensors."""
    m = mujoco.MjModel.from_xml_string(xml)
    if hasattr(m.opt, "ccd_tolerance"):
        m.opt.ccd_tolerance, m.opt.ccd_iterations = 1e-13, 1000
    rng, d, out = np.random.default_rng(0), mujoco.MjData(m), []
    folded = np.zeros(m.nv)  # so that cells touch which others separate
    if 'cellcount="3 1 1"' in xml and "<geom" not in xml:
        folded.reshape(-1, 3)[:4, 0], folded.reshape(-1, 3)[-4:, 0] = 0.21, -0.21
    for _ in range(4):
        mujoco.mj_resetData(m, d)
        d.qpos += folded if folded.any() else 0.0
        mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv) * 0.008, 1.0)
        d.qvel = rng.normal(size=m.nv) * 0.1
        mujoco.mj_forward(m, d)
        acting = [c for c in d.contact[: d.ncon] if not c.exclude]
        contacts = [[c.dist, *c.pos, *c.frame[:3], c.dim] for c in acting]
        sides = [np.stack([c.geom, c.flex, c.elem, c.vert], 1).tolist() for c in acting]
        state = {"q": d.qpos, "v": d.qvel, "a": d.qacc, "sensors": d.sensordata}
        out.append({k: x.tolist() for k, x in state.items()} | {"contacts": contacts, "sides": sides})
    return {"model": xml, "states": out}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    known = json.loads(path.read_text()) if path.exists() else {}
    known[".".join(mujoco.__version__.split(".")[:2])] = {
        name: record(text(*model)) for name, model in MODELS.items()
        if (not name.startswith("inside") if mujoco.__version__ >= "4" else name in CLOSED)
    }
    path.write_text(json.dumps(known, sort_keys=True))
    print({name: [len(s["contacts"]) for s in case["states"]] for name, case in known[list(known)[-1]].items()})
