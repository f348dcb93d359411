"""Writes sdf_meshes_3_2.json or sdf_meshes_4_0.json, by the release that runs: contacts, rays and masses of meshes with signed distance
functions, and of signed distance functions that are those of meshes, by MuJoCo.

    pip install mujoco==3.2.7
    python tests/reference/make_sdf_meshes.py
    pip install mujoco==4.0.0
    python tests/reference/make_sdf_meshes.py
"""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parent
RELEASES = {"3.2.7": "3_2", "4.0.0": "4_0"}
STATES = 2


def numbers(x) -> str:
    return " ".join(f"{v:g}" for v in np.ravel(x))


def ball() -> tuple[np.ndarray, list]:
    """An octahedron whose triangles are divided once, stretched."""
    points = [np.array(p, float) for p in [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]]
    faces, middles = [(0, 2, 4), (2, 1, 4), (1, 3, 4), (3, 0, 4), (2, 0, 5), (1, 2, 5), (3, 1, 5), (0, 3, 5)], {}

    def middle(a: int, b: int) -> int:
        key = (min(a, b), max(a, b))
        if key not in middles:
            middles[key] = len(points)
            points.append((points[a] + points[b]) / np.linalg.norm(points[a] + points[b]))
        return middles[key]

    out = []
    for a, b, c in faces:
        x, y, z = middle(a, b), middle(b, c), middle(c, a)
        out += [(a, x, z), (b, y, x), (c, z, y), (x, y, z)]
    return np.array(points) * [0.25, 0.2, 0.3] + [0.03, 0.02, 0], out


def ell() -> tuple[np.ndarray, list]:
    """A prism over the letter L."""
    outline = [(0, 0), (0.8, 0), (0.8, 0.3), (0.3, 0.3), (0.3, 1.0), (0, 1.0)]
    caps = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    faces = [(a, c, b) for a, b, c in caps] + [(a + 6, b + 6, c + 6) for a, b, c in caps]
    for i in range(6):
        j = (i + 1) % 6
        faces += [(i, j, j + 6), (i, j + 6, i + 6)]
    return np.array([(x, y, z) for z in (0, 0.4) for x, y in outline]), faces


def mesh(name: str, vertices, faces=None) -> str:
    face = "" if faces is None else f' face="{numbers(faces)}"'
    return f'<mesh name="{name}" vertex="{numbers(vertices)}"{face}/>'


TET = [(0, 0, 0), (0.3, 0, 0), (0.05, 0.25, 0), (0.02, 0.01, 0.35)], [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
MESHES = mesh("ball", *ball()) + mesh("tet", *TET)
FUNCTION = '<mesh name="function"><plugin instance="one"/></mesh>'
SIMPLE = {
    "sphere": 'size=".2"', "capsule": 'type="capsule" size=".1 .2"', "ellipsoid": 'type="ellipsoid" size=".1 .2 .3"',
    "cylinder": 'type="cylinder" size=".15 .2"', "box": 'type="box" size=".1 .2 .3"',
}  # fmt: skip


def model(kind: str, points: int, assets: str, geoms: dict[str, str], of: str, more: str = "", iterations: int = 10) -> str:
    """A geom "sdf" and free bodies near it, which do not meet each other."""
    masks = 'contype="1" conaffinity="2"'
    bodies = "".join(f'<body><freejoint/><geom name="{name}" {geom} {masks}/></body>' for name, geom in geoms.items())
    extension = f'<extension><plugin plugin="{kind}"><instance name="one"/></plugin></extension>' if kind else ""
    plugin = '<plugin instance="one"/>' if kind else ""
    return f"""<mujoco><option sdf_initpoints="{points}" sdf_iterations="{iterations}"/>{extension}<asset>{assets}</asset>
<worldbody>{bodies}
<body><freejoint/><geom name="sdf" type="sdf" mesh="{of}" contype="2" conaffinity="1">{plugin}</geom></body>{more}</worldbody></mujoco>"""


def models() -> dict[str, str]:
    both = {name: f'type="mesh" mesh="{name}"' for name in ("ball", "tet")}
    out = {}
    for kind, points in (("torus", 40), ("torus", 3), ("bolt", 3)):
        out[f"{kind} {points}"] = model(f"mujoco.sdf.{kind}", points, MESHES + FUNCTION, both, "function")
    out["distances"] = distances()
    if mujoco.__version__.startswith("3"):
        out["sdflib"] = model("mujoco.sdf.sdflib", 10, mesh("ell", *ell()) + MESHES, SIMPLE | {"ball": both["ball"]}, "ell", "", 4)
        out |= {f"flex {dim}": flex(dim, 'internal="false"') for dim in FLEXES}
    else:
        plane = '<geom name="plane" type="plane" size="2 2 .1" contype="1" conaffinity="2"/>'
        out["mesh with shapes"] = model("", 10, mesh("ell", *ell()), SIMPLE, "ell", plane, 4)
        others = {"ball": both["ball"], "other": 'type="sdf" mesh="tet"'}
        out["mesh with meshes"] = model("", 5, mesh("ell", *ell()) + MESHES, others, "ell", iterations=4)
        out["mesh with rays"] = rays()
        moving = "<freejoint/>"
        out |= {
            "sheet on a torus": sheet("mujoco.sdf.torus", "4 4 1", 0.2, 'pos=".03 .02 .14"', moving, points=40),
            "sheet on a nut": sheet("mujoco.sdf.nut", "5 5 1", 0.13, 'pos=".03 .02 -.3"'),
            "sheet on a mesh": sheet("", "7 7 1", 0.1, 'pos=".03 .02 .12" euler="3 4 0"'),
        }
    return out


def rays() -> str:
    """Rays from around, from inside and from beyond the box of the octree."""
    rng, sites, sensors = np.random.default_rng(0), "", ""
    for k in range(30):
        pos, aim = rng.normal(size=3) * (1.0 if k % 3 else 0.2), rng.normal(size=3) * 0.2
        sites += f'<site name="s{k}" pos="{numbers(np.round(pos, 4))}" zaxis="{numbers(np.round(aim - pos, 4))}"/>'
        sensors += f'<rangefinder site="s{k}" data="dist normal"/>'
    text = model("", 5, mesh("ell", *ell()), {}, "ell", sites).replace("</mujoco>", f"<sensor>{sensors}</sensor></mujoco>")
    return text.replace('<geom name="sdf"', '<geom name="sdf" pos=".05 .02 .01" euler="10 50 20"')


def distances() -> str:
    """Distance sensors between geoms that overlap a signed distance function, that are far from it, and whole bodies."""
    geoms = {"far": 'size=".1" pos="5 0 0"', "sphere": 'size=".3"', "box": 'type="box" size=".2 .3 .25"'}
    geoms |= {"ball": 'type="mesh" mesh="ball"', "plane": 'type="plane" size="1 1 1"'}
    world = "".join(f'<geom name="{name}" {geom}/>' for name, geom in geoms.items())
    ring = '<geom name="sdf" type="sdf" mesh="function"><plugin instance="one"/></geom><geom name="near" size=".1" pos="0 0 .4"/>'
    sensors = "".join(f'<{kind} geom1="{name}" geom2="sdf" cutoff="3"/>' for name in geoms for kind in ("distance", "normal", "fromto"))
    sensors += '<distance geom1="sdf" geom2="sphere" cutoff="3"/><normal geom1="sdf" geom2="sphere" cutoff="3"/>'
    sensors += '<distance body1="world" body2="ring" cutoff="3"/><fromto body1="ring" body2="world" cutoff="3"/>'
    return f"""<mujoco><extension><plugin plugin="mujoco.sdf.torus"><instance name="one"/></plugin></extension>
<asset>{MESHES + FUNCTION}</asset><worldbody>{world}
<body name="ring" pos=".1 .05 .28" euler="20 30 10"><freejoint/>{ring}</body></worldbody>
<sensor>{sensors}</sensor></mujoco>"""


FLEXES = {1: ("3 1 1", 0.165), 2: ("2 2 1", 0.165), 3: ("2 2 2", 0.21)}
"""Numbers of points and height (m) of flexes of lines, triangles and tetrahedra."""


def flex(dim: int, internal: str = "") -> str:
    """A flex just above a geom of type sdf, which it overlaps a little."""
    count, height = FLEXES[dim]
    grid = f'dim="{dim}" count="{count}" spacing=".1 .1 .1" pos=".36 .02 {height}" mass="1" radius=".02"'
    return f"""<mujoco><extension><plugin plugin="mujoco.sdf.torus"><instance name="one"/></plugin></extension><asset>{FUNCTION}</asset>
<worldbody><geom name="sdf" type="sdf" mesh="function"><plugin instance="one"/></geom>
<flexcomp name="flex" type="grid" {grid}><contact selfcollide="none" {internal}/></flexcomp></worldbody></mujoco>"""


BOX = mesh("function", np.array([(x, y, z) for z in (-0.2, 0.2) for y in (-0.5, 0.5) for x in (-0.5, 0.5)]))


def sheet(kind: str, count: str, spacing: float, place: str, joint: str = "", points: int = 3) -> str:
    """A flex of triangles that overlaps a geom of type sdf. The last of them has more than 50 triangles below the surface."""
    extension = f'<extension><plugin plugin="{kind}"><instance name="one"/></plugin></extension>' if kind else ""
    plugin, asset = ('<plugin instance="one"/>', FUNCTION) if kind else ("", BOX)
    geom = f'<geom name="sdf" type="sdf" mesh="function" pos=".02 .01 0" euler="5 4 3">{plugin}</geom>'
    grid = f'dim="2" count="{count}" spacing="{spacing} {spacing} .1" mass="1" radius=".02" {place}'
    return f"""<mujoco><option sdf_initpoints="{points}"/>{extension}<asset>{asset}</asset><worldbody><body>{joint}{geom}</body>
<flexcomp name="flex" type="grid" {grid}><edge damping="1"/><contact selfcollide="none"/></flexcomp></worldbody></mujoco>"""


def contacts(found: mujoco.MjModel, data: mujoco.MjData) -> dict[str, list]:
    """By the name of the other geom, the contacts with the geom "sdf": distance, point, normal from the geom of lower type."""
    out: dict[str, list] = {}
    for contact in data.contact:
        (other,) = {found.geom(g).name for g in contact.geom} - {"sdf"}
        out.setdefault(other, []).append([float(f"{x:.12g}") for x in (contact.dist, *contact.pos, *contact.frame[:3])])
    return out


def record(text: str) -> dict:
    found = mujoco.MjModel.from_xml_string(text)
    data, rng = mujoco.MjData(found), np.random.default_rng(1)
    if found.nsensor:
        mujoco.mj_forward(found, data)
        return {"model": text, "sensors": [float(f"{x:.12g}") for x in data.sensordata]}
    if found.nflex:
        mujoco.mj_forward(found, data)
        if mujoco.__version__.startswith("4"):
            rows = [[float(f"{x:.12g}") for x in (contact.dist, *contact.pos, *contact.frame[:3])] for contact in data.contact]
            return {"model": text, "flex_contacts": rows, "acceleration": [float(f"{x:.12g}") for x in data.qacc]}
        return {"model": text, "distances": sorted(float(f"{contact.dist:.9g}") for contact in data.contact)}
    out: dict = {"model": text, "mass": found.body_mass[1:].tolist(), "q": [], "contacts": []}
    if getattr(found, "noct", 0):
        cells = slice(found.mesh_octadr[0], found.mesh_octadr[0] + found.mesh_octnum[0])
        leaves = (found.oct_child[cells] == -1).all(1)
        distances = found.oct_coeff[cells][leaves]
        out["octree"] = {"leaves": np.bincount(found.oct_depth[cells][leaves]).tolist(), "sums": [distances.sum(), np.abs(distances).sum()]}
    while len(out["q"]) < STATES:
        poses = np.concatenate([rng.normal(size=(found.nbody - 1, 3)) * 0.25, rng.normal(size=(found.nbody - 1, 4))], 1)
        poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
        data.qpos[:] = poses.ravel()
        mujoco.mj_forward(found, data)
        touching = contacts(found, data)
        if len(touching) >= min(2, found.nbody - 2):
            out["q"].append(data.qpos.tolist())
            out["contacts"].append(touching)
    return out


def main() -> None:
    lines = [f'"{name}": {json.dumps(record(text))}' for name, text in models().items()]
    (FOLDER / f"sdf_meshes_{RELEASES[mujoco.__version__]}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
