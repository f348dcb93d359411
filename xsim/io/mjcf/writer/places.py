"""<site>, <camera>, <light>: frames on bodies. Named frames and markers of other formats are sites, too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xsim.io.mjcf.sites import light_defaults
from xsim.io.mjcf.writer.context import Context
from xsim.io.writing.elements import XML, add, unless
from xsim.poses import IDENTITY_QUAT, normalized
from xsim.spec import CameraSpec, LightSpec, SiteSpec

__all__ = ["write_places"]


def write_places(context: Context, elements: list[XML]) -> None:
    """The sites, cameras and lights. elements: those of the world and of the bodies."""
    spec = context.spec
    for number, site in enumerate(spec.sites):
        if site.planes is not None and site.asset is None:
            context.losses.refuse(site.source, f"site {site.name or number!r}", "a volume without its mesh; MJCF has volumes of meshes")
        context.names.enter("site", number, _site(context, elements[site.body + 1], site), site.name)
    for number, (name, body, pos, quat) in enumerate(_frames(context)):
        site = SiteSpec(name, body, np.asarray(pos, float), np.asarray(quat, float))
        context.names.enter("site", ("frame", number), _site(context, elements[body + 1], site), name)
    for number, camera in enumerate(spec.cameras):
        context.names.enter("camera", number, _camera(context, elements[camera.body + 1], camera), camera.name)
    for number, light in enumerate(spec.lights):
        context.names.enter("light", number, _light(context, elements[light.body + 1], light), light.name)


def _frames(context: Context) -> Iterator[tuple]:
    """Frames that are no sites: name, body, pos, quat."""
    yield from context.spec.frames
    for i, body in enumerate(context.spec.bodies):
        for marker in body.markers:
            if marker.pos is not None:
                yield marker.name or f"{body.name} marker", i, marker.pos, IDENTITY_QUAT


def _site(context: Context, e: XML, site: SiteSpec) -> XML:
    mesh = None if site.asset is None else context.names.of("mesh", (site.asset, (1.0, 1.0, 1.0)))
    return add(
        e, "site",
        pos=unless(np.zeros(3), site.pos),
        quat=unless(IDENTITY_QUAT, normalized(site.quat)),
        type=unless("sphere", site.shape),
        size=site.size if mesh is None else None,
        mesh=mesh,
        rgba=site.rgba,
        group=unless(0, site.group),
        material=site.material or None,
        user=site.user or None,
    )  # fmt: skip


def _camera(context: Context, e: XML, camera: CameraSpec) -> XML:
    with_sensor = any(camera.sensor_size)
    fovy = camera.fovy if camera.orthographic else np.degrees(camera.fovy)
    lens = {"focal": camera.intrinsic[:2], "principal": camera.intrinsic[2:], "sensorsize": camera.sensor_size}
    old = context.rules == "3.2"
    return add(
        e, "camera",
        pos=camera.pos,
        quat=normalized(camera.quat),
        mode=unless("fixed", camera.mode),
        target=None if camera.target is None else context.names.of("body", camera.target),
        fovy=None if with_sensor else fovy,
        ipd=unless(0.068, camera.ipd),
        resolution=unless((1, 1), camera.resolution),
        **(lens if with_sensor else {}),
        orthographic=True if camera.orthographic and old else None,
        projection="orthographic" if camera.orthographic and not old else None,
        user=camera.user or None,
    )  # fmt: skip


def _light(context: Context, e: XML, light: LightSpec) -> XML:
    given = light_defaults() | light.drawing
    directional, kind = given.pop("directional"), given.pop("type")
    look = {name: unless(default, given[name]) for name, default in light_defaults().items() if name in given}
    look |= {"directional": unless(False, directional)} if kind == ("directional" if directional else "spot") else {"type": kind}
    return add(
        e, "light",
        pos=light.pos,
        dir=light.dir,
        mode=unless("fixed", light.mode),
        target=None if light.target is None else context.names.of("body", light.target),
        **look,
        texture=given.get("texture"),
    )  # fmt: skip
