"""Images and films of a motion, drawn by VTK without a display. Needs ``pip install 'xsim[render]'``."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from xsim.model.colors import color
from xsim.model.model import Model
from xsim.poses import rotate, rotation_matrix
from xsim.viewer.finishes import geom_finish, shown_color, surface_finish, textured_triangles
from xsim.viewer.pages import save
from xsim.viewer.paths import tendon_paths
from xsim.viewer.scene import Scene, make_scene
from xsim.viewer.surfaces import geom_polygons, reach, surface_vertices
from xsim.viewer.textures import scaled

__all__ = ["Renderer", "check_opengl", "render", "save_motion"]

FILMS = (".gif", ".mp4")
_NEEDS = "render needs {}: pip install 'xsim[render]'"
_TRIAL = """
from vtkmodules import vtkRenderingCore, vtkRenderingOpenGL2
window = vtkRenderingCore.vtkRenderWindow()
window.SetOffScreenRendering(1)
window.AddRenderer(vtkRenderingCore.vtkRenderer())
window.Render()
"""


def render(
    model: Model, q, path=None, *, dt: float | None = None, env: int = 0, fps: float = 30.0, width: int = 640, height: int = 480,
    azimuth: float = -60.0, elevation: float = 18.0, zoom: float = 1.0, follow: bool = False,
) -> Any:  # fmt: skip
    """Images of a motion: (frames, height, width, 3) uint8; with a path, the file's path.

    q: (steps, nq), (steps, *batch, nq), or one configuration (nq,). path: where to write a film, by its ending .gif, .mp4 or .html (the
    page of `xsim.viewer.page`); None: the images are returned. dt: time between rows of q, s (default: the model's time step). env: the
    environment drawn. fps: largest number of rows per second that are drawn, and of the film. width, height: pixels. azimuth, elevation:
    direction of the eye, degrees about the z axis from x, and above the ground. zoom: larger numbers come closer. follow: whether the
    camera moves with the mean of the bodies.

    Raises ImportError where a library is missing, RuntimeError where the machine has no OpenGL, ValueError for another ending and as
    `xsim.viewer.page` does.
    """
    kind = None if path is None else Path(path).suffix.lower()
    if kind not in (None, *FILMS, ".html"):
        raise ValueError(f"{path}: files end in .gif, .mp4 or .html, found {kind!r}")
    if kind == ".html":
        return save(model, q, path, dt=dt, env=env, fps=fps)
    scene = make_scene(model, q, dt, (env,), None, fps)
    drawing = _Drawing(scene, width, height)
    drawing.look(azimuth, elevation, zoom, follow)
    images = np.stack([drawing.image(frame, follow) for frame in range(len(scene.times))])
    if path is None:
        return images
    span = scene.times[-1] if len(scene.times) > 1 else 1.0
    return _write(images, Path(path), max(1.0, (len(images) - 1) / span))


class Renderer:
    """Images of configurations one after another, each (height, width, 3) uint8; the camera moves with the mean of the bodies.

    Sizes of geoms are those of the first image. width, height: pixels. Raises as `render`, at the first image.
    """

    def __init__(self, width: int = 480, height: int = 480):
        self.size = width, height
        self._drawing: _Drawing | None = None

    def image(self, model: Model, q, env: int = 0) -> np.ndarray:
        """The image of an environment. q: (nq,) or (*batch, nq). Raises as `render`."""
        scene = make_scene(model, np.asarray(q)[None], None, (env,), None, None)
        if self._drawing is None:
            self._drawing = _Drawing(scene, *self.size)
            self._drawing.look(-60.0, 18.0, 1.0, follow=True)
        self._drawing.set_scene(scene)
        return self._drawing.image(0, True)


def save_motion(model: Model, q, path, *, envs: int = 1, title: str | None = None, dt: float | None = None) -> Path:
    """Write a motion by the ending of the file: .gif and .mp4 as films (`render`) of the first environment, others as pages (`save`)."""
    if Path(path).suffix.lower() in FILMS:
        return render(model, q, path, dt=dt)
    return save(model, q, path, dt=dt, envs=envs, title=title)


def _write(images: np.ndarray, path: Path, fps: float) -> Path:
    try:
        import imageio.v3 as imageio  # pyright: ignore[reportMissingImports]

        if path.suffix.lower() == ".mp4":
            import imageio_ffmpeg  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(_NEEDS.format(error.name)) from error
    if path.suffix.lower() == ".gif":
        imageio.imwrite(path, images, duration=1000.0 / fps, loop=0)
    else:
        imageio.imwrite(path, images, fps=fps, macro_block_size=2)
    return path


@functools.cache
def check_opengl() -> None:
    """Raise RuntimeError where VTK cannot draw. It ends the process there, so another process tries."""
    trial = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, text=True)
    if trial.returncode:
        hint = "on Debian and Ubuntu: apt-get install libegl1 libgl1-mesa-dri"
        raise RuntimeError(f"VTK finds no OpenGL to draw with, by a display or by EGL ({hint})")


def _vtk() -> Any:
    """The modules of VTK in use."""
    try:
        import vtkmodules.vtkRenderingOpenGL2  # noqa: F401  # pyright: ignore[reportMissingImports]
        from vtkmodules import (  # pyright: ignore[reportMissingImports]
            vtkCommonCore,
            vtkCommonDataModel,
            vtkCommonMath,
            vtkFiltersCore,
            vtkRenderingCore,
        )
        from vtkmodules.util import numpy_support  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(_NEEDS.format("vtk")) from error
    check_opengl()
    names: dict[str, Any] = {}
    for module in (vtkCommonCore, vtkCommonDataModel, vtkCommonMath, vtkFiltersCore, vtkRenderingCore, numpy_support):
        names |= {name: value for name, value in vars(module).items() if name.startswith(("vtk", "numpy_"))}
    return SimpleNamespace(**names)


class _Drawing:
    """A window outside of any display, with an actor for each geom, flex, skin and tendon of the first environment of a scene."""

    def __init__(self, scene: Scene, width: int, height: int):
        self.scene, self.vtk = scene, _vtk()
        self.size = width, height
        self.renderer, self.window = self._open(width, height)
        self.moving: list[tuple[Any, int]] = []  # actors, and their bodies
        self.soft: list[tuple[Any, Any]] = []  # triangles of flexes and skins, and what they are
        self.ropes: list[tuple[Any, int, int]] = []  # lines of tendons, and their points
        self.paths, pieces = tendon_paths(scene)
        self.start = scene.pos[0, 0].astype(float)
        self.reach = reach(scene)
        for i in range(len(scene.geoms)):
            self._add_geom(i)
        for info in scene.model.topology.drawing.surfaces:
            self._add_surface(info)
        for piece in pieces:
            self._add_tendon(*piece)

    def set_scene(self, scene: Scene) -> None:
        """Draw another motion of the same model."""
        self.scene = scene
        if self.ropes:
            self.paths = tendon_paths(scene)[0]

    def _open(self, width: int, height: int) -> tuple[Any, Any]:
        v = self.vtk
        shown = v.vtkObject.GetGlobalWarningDisplay()
        v.vtkObject.GlobalWarningDisplayOff()  # where there is no display, VTK warns before it uses another way
        window, renderer = v.vtkRenderWindow(), v.vtkRenderer()
        window.SetOffScreenRendering(1)
        window.SetMultiSamples(4)
        window.SetSize(width, height)
        window.AddRenderer(renderer)
        renderer.SetBackground(0.84, 0.87, 0.90)
        renderer.SetBackground2(0.97, 0.98, 0.99)
        renderer.GradientBackgroundOn()
        for kind, intensity in (("SceneLight", 0.75), ("Headlight", 0.35)):
            light = v.vtkLight()
            getattr(light, f"SetLightTypeTo{kind}")()
            light.SetIntensity(intensity)
            if kind == "SceneLight":
                light.SetPosition(0.35, -0.3, 0.89)
            renderer.AddLight(light)
        v.vtkObject.SetGlobalWarningDisplay(shown)
        return renderer, window

    # ---- what there is -------------------------------------------------------------------------------------------------------

    def _triangles(self, points: np.ndarray, faces) -> Any:
        """Polygons: points (n, 3), and point numbers of each face."""
        v, data = self.vtk, self.vtk.vtkPolyData()
        self._set_points(data, points)
        sizes = np.array([len(face) for face in faces])
        cells = v.vtkCellArray()
        offsets, numbers = np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([np.ravel(face) for face in faces])
        cells.SetData(*(v.numpy_to_vtkIdTypeArray(np.asarray(x, np.int64), deep=1) for x in (offsets, numbers)))
        data.SetPolys(cells) if sizes[0] > 2 else data.SetLines(cells)
        return data

    def _set_points(self, data, points: np.ndarray) -> None:
        held = self.vtk.vtkPoints()
        held.SetData(self.vtk.numpy_to_vtk(np.ascontiguousarray(points, np.float32), deep=1))
        data.SetPoints(held)

    def _actor(self, data, rgba, tube: float | None = None) -> Any:
        """An actor of polygons with smooth round surfaces, or of lines with a radius."""
        v = self.vtk
        if tube is None:
            stage = v.vtkPolyDataNormals()
            stage.SetFeatureAngle(40.0)
            stage.ConsistencyOff()
        else:
            stage = v.vtkTubeFilter()
            stage.SetRadius(tube)
            stage.SetNumberOfSides(12)
            stage.CappingOn()
        stage.SetInputData(data)
        mapper, actor = v.vtkPolyDataMapper(), v.vtkActor()
        mapper.SetInputConnection(stage.GetOutputPort())
        mapper.ScalarVisibilityOff()
        actor.SetMapper(mapper)
        looks = actor.GetProperty()
        looks.SetColor(*rgba[:3])
        looks.SetOpacity(rgba[3])
        looks.SetAmbient(0.35)
        looks.SetDiffuse(0.75)
        looks.SetSpecular(0.1)
        self.renderer.AddActor(actor)
        return actor

    def _add_geom(self, i: int) -> None:
        scene, geom = self.scene, self.scene.geoms[i]
        finish, polygons = geom_finish(scene, i), geom_polygons(scene, i, 20 * self.reach)
        if finish.rgba[3] == 0 or polygons is None:
            return
        textured = textured_triangles(scene, i, finish, 20 * self.reach)
        if textured is not None:
            corners, places = textured
            polygons = corners.reshape(-1, 3), np.arange(3 * len(corners)).reshape(-1, 3)
        points, faces = polygons
        data = self._triangles(rotate(scene.geom_quat[0, i], points) + scene.geom_pos[0, i], faces)
        actor = self._actor(data, finish.rgba if textured is not None else shown_color(finish))
        if textured is not None:
            self._add_picture(data, actor, places, finish.images[0])
        if geom.body >= 0:
            self.moving.append((actor, geom.body))

    def _add_picture(self, data, actor, places: np.ndarray, image: np.ndarray) -> None:
        """Put a picture on an actor. places (m, 3, 2): of the corners of its triangles."""
        v = self.vtk
        data.GetPointData().SetTCoords(v.numpy_to_vtk(np.float32(places.reshape(-1, 2) * [1, -1] + [0, 1]), deep=1))
        pixels, texture = scaled(image)[::-1], v.vtkTexture()  # VTK has the first row below
        held = v.vtkImageData()
        held.SetDimensions(pixels.shape[1], pixels.shape[0], 1)
        held.GetPointData().SetScalars(v.numpy_to_vtk(np.ascontiguousarray(pixels).reshape(-1, pixels.shape[2]), deep=1))
        texture.SetInputData(held)
        texture.RepeatOn()
        texture.InterpolateOn()
        texture.MipmapOn()
        actor.SetTexture(texture)

    def _add_surface(self, info) -> None:
        data = self._triangles(np.zeros((info.count, 3)), info.elements.value)
        tube = (info.radius or 0.004 * self.reach) if info.elements.value.shape[1] == 2 else None
        self._actor(data, shown_color(surface_finish(self.scene.model.topology, info)), tube)
        self.soft.append((data, info))

    def _add_tendon(self, number: int, first: int, count: int) -> None:
        rgba, width = self.scene.model.topology.drawing.tendons[number]
        data = self._triangles(np.zeros((count, 3)), np.stack([np.arange(count - 1), np.arange(1, count)], -1))
        self._actor(data, color(rgba, number), width or 0.003 * self.reach)
        self.ropes.append((data, first, count))

    # ---- an image ------------------------------------------------------------------------------------------------------------

    def look(self, azimuth: float, elevation: float, zoom: float, follow: bool) -> None:
        """Place the camera, degrees, so that the motion is in the image, or, where it follows, the bodies at the start."""
        scene = self.scene._replace(pos=self.scene.pos[:1]) if follow else self.scene
        points = scene.pos[:, 0].reshape(-1, 3)
        finite = points[np.isfinite(points).all(-1)]
        middle = (finite.min(0) + finite.max(0)) / 2 if len(finite) else np.zeros(3)
        a, e = np.radians(azimuth), np.radians(min(89.0, max(-89.0, elevation)))
        camera = self.renderer.GetActiveCamera()
        camera.SetViewUp(0, 0, 1)
        camera.SetViewAngle(38.0)
        distance = 1.05 * reach(scene) / np.sin(np.radians(19.0)) / zoom
        self.middle, self.eye = middle, distance * np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])

    def image(self, frame: int, follow: bool) -> np.ndarray:
        """The image (height, width, 3) uint8 of a frame."""
        v, scene = self.vtk, self.scene
        pos, quat = scene.pos[frame, 0].astype(float), scene.quat[frame, 0].astype(float)
        for actor, body in self.moving:
            actor.SetVisibility(bool(np.isfinite(pos[body]).all() and np.isfinite(quat[body]).all()))
            matrix = np.eye(4)
            matrix[:3, :3], matrix[:3, 3] = rotation_matrix(quat[body]), pos[body]
            held = v.vtkMatrix4x4()
            held.DeepCopy(matrix.ravel().tolist())
            actor.SetUserMatrix(held)
        for data, info in self.soft:
            self._set_points(data, surface_vertices(info, pos, quat))
        for data, first, count in self.ropes:
            self._set_points(data, self.paths[frame, 0, first : first + count])
        shift = np.nan_to_num((pos - self.start).mean(0)) if follow and len(pos) else np.zeros(3)
        camera = self.renderer.GetActiveCamera()
        camera.SetFocalPoint(*(self.middle + shift))
        camera.SetPosition(*(self.middle + shift + self.eye))
        self.renderer.ResetCameraClippingRange()
        self.window.Render()
        return self._pixels()

    def _pixels(self) -> np.ndarray:
        width, height = self.size
        held = self.vtk.vtkUnsignedCharArray()
        self.window.GetPixelData(0, 0, width - 1, height - 1, 0, held, 0)
        return self.vtk.vtk_to_numpy(held).reshape(height, width, 3)[::-1].copy()
