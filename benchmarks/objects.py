"""Scenes of objects in a box, compared with MuJoCo by `xsim.bench`.

    python benchmarks/objects.py [--count 10 20] [--batch 256] [--steps 200] [--peer-python PATH] [--json FILE]

The objects are boxes, spheres and capsules in layers of nine, which fall onto the ground and each other.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from xsim.bench.__main__ import main as bench

SHAPES = ('type="box" size=".03 .04 .05"', 'type="sphere" size=".04"', 'type="capsule" size=".03 .04"')


def scene(count: int) -> str:
    """A scene in MJCF."""
    rng, bodies = np.random.default_rng(1), []
    for i in range(count):
        pos = (i % 3 - 1) * 0.12, (i // 3 % 3 - 1) * 0.12, 0.1 + 0.13 * (i // 9)
        numbers = [" ".join(f"{x:.3f}" for x in row) for row in (pos, rng.normal(size=4))]
        bodies.append(f'<body pos="{numbers[0]}" quat="{numbers[1]}"><freejoint/><geom {SHAPES[i % 3]}/></body>')
    walls = [f'<geom type="box" size="{s}" pos="{p}"/>' for s, p in ((".02 .3 .1", ".26 0 .1"), (".02 .3 .1", "-.26 0 .1"))]
    walls += [f'<geom type="box" size="{s}" pos="{p}"/>' for s, p in ((".3 .02 .1", "0 .26 .1"), (".3 .02 .1", "0 -.26 .1"))]
    world = "".join(['<geom type="plane" size="1 1 .1"/>', *walls, *bodies])
    return f'<mujoco model="objects_{count}"><option timestep=".004"/><worldbody>{world}</worldbody></mujoco>'


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, nargs="+", default=[10, 20], help="numbers of objects")
    p.add_argument("--batch", default="256")
    p.add_argument("--steps", default="200")
    p.add_argument("--peer-python", help="a Python that has MuJoCo")
    p.add_argument("--json", metavar="FILE")
    args, reports = p.parse_args(), []
    with tempfile.TemporaryDirectory() as folder:
        for count in args.count:
            path, report = Path(folder, f"objects_{count}.xml"), Path(folder, "report.json")
            path.write_text(scene(count))
            options = ["--batch", args.batch, "--steps", args.steps, "--repeat", "3", "--vs", "mujoco", "--json", str(report)]
            options += ["--peer-python", args.peer_python] if args.peer_python else []
            bench(["--model", str(path), "--constraints", "--no-gradient", *options])
            reports.append(json.loads(report.read_text()))
    if args.json:
        Path(args.json).write_text(json.dumps(reports, indent=1) + "\n")


if __name__ == "__main__":
    main()
