"""<site>, <camera>, <light>: frames on bodies, without mass or contact."""

from __future__ import annotations

import numpy as np

from xsim.io.hulls import convex_hull
from xsim.io.mjcf.assets import Assets
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.geoms import SIZES, sizes
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.orientation import SMALL, read_pose
from xsim.io.mjcf.values import flag, integer, numbers, read_rgba, read_user
from xsim.io.reader import Element
from xsim.poses import Pose, rotate, rotation_matrix
from xsim.spec import CameraSpec, LightSpec, MeshSpec, SiteSpec

__all__ = ["light_defaults", "read_camera", "read_light", "read_site"]

PROJECTIONS = ("perspective", "orthographic")
LIGHTS = ("spot", "directional", "point", "image")
OUTPUTS = ("rgb", "depth", "distance", "normal", "segmentation")
MODES = ("fixed", "track", "trackcom", "targetbody", "targetbodycom")


def read_site(document: Document, e: Element, frame: Pose, assets: Assets, index: Index, user: int) -> SiteSpec:
    """A <site>, with its defaults; its body's number is left at -1. frame: the <frame>s around it; user: how many users' numbers."""
    shape = e.choice("type", (*SIZES, "mesh") if document.release.schema == "4.0" else SIZES, "sphere")
    given, planes, asset = numbers(document, e, "size", (0.005, 0.005, 0.005)), None, None
    if shape == "mesh":
        asset = index.find("mesh", e, "mesh")
        size, planes, pose = *_hull(e, assets.meshes[asset]), read_pose(e)
    elif e.has("mesh"):
        raise e.error(f"found on a {shape}; allowed: on a site of the type mesh", "mesh")
    else:
        size, pose = sizes(e, shape, given)
    pose = frame @ pose
    material = e.string("material", "")
    if material:
        index.find("material", e, "material")
    return SiteSpec(
        name=e.string("name", ""),
        body=-1,
        pos=pose.pos,
        quat=pose.quat,
        shape=shape,
        size=size,
        planes=planes,
        asset=asset,
        rgba=read_rgba(e),
        group=integer(e, "group", 0),
        material=material,
        user=read_user(e, user),
        source=e.source,
    )


def _hull(e: Element, mesh: MeshSpec) -> tuple[np.ndarray, np.ndarray]:
    """Half the size of the box around a mesh, and the planes of its convex hull in the frame of its file (see `SiteSpec`)."""
    if e.has("fromto"):
        raise e.error("found on a mesh; allowed: none", "fromto")
    hull = mesh.hull if mesh.sdf is None else convex_hull(mesh.vertices)
    if hull is None:
        raise e.error("the vertices of the mesh lie in a plane and have no convex hull; allowed: points around a volume", "mesh")
    a, b, c = np.moveaxis((mesh.vertices @ rotation_matrix(mesh.quat).T + mesh.pos)[hull], 1, 0)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1)
    normals = normals[lengths > 0] / lengths[lengths > 0, None]
    planes = np.column_stack([normals, np.sum(normals * a[lengths > 0], axis=1)])
    return np.ptp(mesh.vertices, axis=0) / 2, planes


def read_camera(document: Document, e: Element, frame: Pose, body: int, index: Index, user: int) -> CameraSpec:
    """A <camera>, with its defaults. The body names must be in the index."""
    pose = frame @ read_pose(e)
    orthographic = flag(e, "orthographic", False) or e.choice("projection", PROJECTIONS, PROJECTIONS[0]) == PROJECTIONS[1]
    unknown = set(e.string("output", "rgb").split()) - set(OUTPUTS)
    if unknown:
        raise e.error(f"found {sorted(unknown)[0]!r}; allowed: {', '.join(OUTPUTS)}", "output")
    mode, target = _mode(e, index)
    width, height = (_pixels(e, "resolution", (1.0, 1.0))).astype(int).tolist()
    lens, sensor, fovy = _lens(e, orthographic)
    return CameraSpec(
        name=e.string("name", ""),
        body=body,
        pos=pose.pos,
        quat=pose.quat,
        mode=mode,
        target=target,
        fovy=fovy,
        ipd=e.number("ipd", 0.068),
        resolution=(width, height),
        intrinsic=lens,
        sensor_size=sensor,
        orthographic=orthographic,
        user=read_user(e, user),
        source=e.source,
    )


def read_light(e: Element, frame: Pose, body: int, index: Index) -> LightSpec:
    """A <light>, with its defaults. The body names must be in the index."""
    direction = e.floats("dir", 3, (0.0, 0.0, -1.0))
    length = np.linalg.norm(direction)
    if length < SMALL:
        raise e.error(f"found a direction of no length ({e.raw('dir')!r})", "dir")
    mode, target = _mode(e, index)
    drawing: dict = {name: flag(e, name, default) for name, default in _LIGHT_FLAGS.items()}
    drawing |= {name: e.number(name, default) for name, default in _LIGHT_NUMBERS.items()}
    drawing["type"] = e.choice("type", LIGHTS, "directional" if drawing["directional"] else "spot")
    if e.has("texture"):
        index.find("texture", e, "texture")
        drawing["texture"] = e.string("texture")
    drawing |= {name: tuple(e.floats(name, 3, default).tolist()) for name, default in _LIGHT_VECTORS.items()}
    return LightSpec(
        name=e.string("name", ""),
        body=body,
        pos=frame.pos + rotate(frame.quat, e.floats("pos", 3, (0.0, 0.0, 0.0))),
        dir=rotate(frame.quat, direction / length),
        mode=mode,
        target=target,
        drawing=drawing,
        source=e.source,
    )


def _mode(e: Element, index: Index) -> tuple[str, int | None]:
    """How it is aimed, and at what body; without a body to look at it is fixed."""
    mode = e.choice("mode", MODES, "fixed")
    target = index.find("body", e, "target") if e.has("target") else None
    if not mode.startswith("target"):
        return mode, None
    return ("fixed", None) if target is None else (mode, target)


def _pixels(e: Element, name: str, default) -> np.ndarray:
    value = e.floats(name, 2, default)
    if (value < 0).any() or (value % 1).any() or (value > 1e6).any():
        raise e.error(f"found {e.raw(name)!r}; allowed: two integers from 0 to 1000000", name)
    return value


def _lens(e: Element, orthographic: bool):
    """Focal lengths and principal point (m), size of the sensor (m), vertical field of view (rad; m where orthographic)."""
    fovy = e.number("fovy", 45.0, nonnegative=True)
    if not orthographic and fovy >= 180:
        raise e.error(f"found {fovy:g}; allowed: degrees below 180", "fovy")
    sensor = e.floats("sensorsize", 2)
    given = {name: e.floats(name, 2) for name in ("focal", "focalpixel", "principal", "principalpixel")}
    if sensor is None:
        for name, value in given.items():
            if value is not None:
                raise e.error("found without sensorsize; allowed: together with sensorsize and resolution", name)
        return (0.0, 0.0, 0.0, 0.0), (0.0, 0.0), fovy if orthographic else np.radians(fovy)
    if e.is_explicit("fovy") and e.is_explicit("sensorsize"):
        raise e.error("found fovy and sensorsize; allowed: one of them", "sensorsize")
    if not e.has("resolution") or given["focal"] is None and given["focalpixel"] is None:
        raise e.error("found without resolution or without focal; allowed: with both", "sensorsize")
    pixel = sensor / np.maximum(_pixels(e, "resolution", None), 1.0)
    focal, principal = (_in_metres(given[name], given[f"{name}pixel"], pixel) for name in ("focal", "principal"))
    if not ((sensor > 0).all() and (focal > 0).all()):
        raise e.error("found a sensor or a focal length that is not positive; allowed: numbers > 0", "sensorsize")
    view = 2 * np.arctan(sensor[1] / (2 * focal[1]))
    lens = float(focal[0]), float(focal[1]), float(principal[0]), float(principal[1])
    return lens, (float(sensor[0]), float(sensor[1])), fovy if orthographic else float(view)


def _in_metres(metres, pixels, pixel) -> np.ndarray:
    """A length along both axes of the sensor; what is given in pixels wins."""
    return pixels * pixel if pixels is not None else metres if metres is not None else np.zeros(2)


_LIGHT_FLAGS = {"directional": False, "castshadow": True, "active": True}
_LIGHT_NUMBERS = {"bulbradius": 0.02, "cutoff": 45.0, "exponent": 10.0, "intensity": 0.0, "range": 10.0, "softness": 0.2}
_LIGHT_VECTORS = {
    "attenuation": (1.0, 0.0, 0.0), "ambient": (0.0, 0.0, 0.0), "diffuse": (0.7, 0.7, 0.7), "specular": (0.3, 0.3, 0.3),
}  # fmt: skip


def light_defaults() -> dict:
    """Attributes of a light that only pictures need, with their defaults."""
    return {**_LIGHT_FLAGS, **_LIGHT_NUMBERS, **_LIGHT_VECTORS, "type": "spot"}
