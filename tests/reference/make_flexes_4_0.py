"""Deformables that only MuJoCo 4.0 has: python make_flexes_4_0.py flexes_4_0.json, in an environment with MuJoCo 4.0."""

import json
import sys
from pathlib import Path

import mujoco
from make_flexes import comp, elasticity, record

MODELS = {
    "cloth that creases": comp(
        'dim="2" count="3 3 1"', elasticity(2e4, poisson=0.2, thickness=0.02, damping=0.001, elastic2d="both", **{"yield": ".02 .005"})
    ),
    "shell that creases": comp(
        'type="box" dim="2" count="2 3 2"', elasticity(2e4, poisson=0.2, thickness=0.02, elastic2d="both", **{"yield": "0 .001"})
    ),
    "cloth that cannot crease without springs": comp(
        'dim="2" count="3 2 1"', elasticity(2e4, thickness=0.02, elastic2d="both", **{"yield": ".001"})
    ).replace("<flag ", '<flag spring="disable" '),
}

if __name__ == "__main__":
    assert mujoco.__version__.startswith("4.0")
    known = {name: {"model": text} | record(text) for name, text in MODELS.items()}
    Path(sys.argv[1]).write_text(json.dumps(known, indent=None, separators=(",", ":")))
