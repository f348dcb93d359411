"""A scene in a server of viser: what a page draws, moved at every picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xsim.dynamics.contact_list import ContactData, contacts
from xsim.model.colors import color
from xsim.model.model import Model, State
from xsim.poses import quat_conj, rotate
from xsim.viewer.finishes import geom_finish, shown_color, surface_finish, textured_triangles
from xsim.viewer.paths import tendon_paths
from xsim.viewer.scene import Scene, axis_directions, axis_links, leaf_values, make_scene, moved
from xsim.viewer.shapes import SHAPES
from xsim.viewer.surfaces import geom_polygons, reach, shape_polygons, surface_vertices, triangulated
from xsim.viewer.textures import textured_glb

__all__ = ["LAYERS", "LiveScene"]

LAYERS = ("sites", "axes", "contacts")
"""What is drawn on demand: sites, axes of the joints, points and forces of contacts."""
NO_LINES = np.zeros((0, 2, 3))
AXIS, CONTACT, PULL = (240, 160, 40), (220, 40, 60), (60, 160, 80)


class LiveScene:
    """The nodes of a server: a frame for each body with its geoms and sites, and flexes, skins, tendons and lines in the world.

    shown: those of `LAYERS` that are drawn. missing: what cannot be drawn, and why. reach: half the size of the model, m. on_drag: function
    (phase, body, start, end, turns), called where a geom is dragged with Ctrl held down. phase: "start", "update" or "end". start, end:
    world points (3,) of the body that the mouse holds, and of the mouse, m. turns: whether by the right button.
    """

    def __init__(self, server, model: Model, q, on_drag: Callable):
        self.server, self.on_drag = server, on_drag
        self.shown: set[str] = set()
        self.nodes: dict[str, Any] = {}
        self.server.scene.set_up_direction("+z")
        self.draw(model, q)
        self._look()

    def draw(self, model: Model, q) -> None:
        """Draw everything anew, as after a change of the sizes or places of geoms. q: (nq,)."""
        self.scene: Scene = make_scene(model, q, None, 1, None, None)
        self.missing, self.reach = self.scene.missing, reach(self.scene)
        with self.server.atomic():
            for node in (self.nodes.pop("world", None), self.nodes.pop("lines", None)):
                if node is not None:
                    node.remove()
            self.nodes = {name: self._frame(f"/{name}") for name in ("world", "lines")}
            self.bodies = [self._frame(f"/world/body {i}") for i in range(len(model.topology.bodies))]
            for i in range(len(self.scene.geoms)):
                self._add_geom(i)
            self.sites = [self._add_site(i) for i in range(len(model.topology.sites))]
            self._add_lines()
            self._place()

    def update(self, model: Model, state: State, ctrl=None, pull=None) -> None:
        """Move everything to a state. What is not finite stays.

        ctrl (nu,): for the forces of contacts. pull: world points (2, 3) of the pull at a body; None: no pull."""
        self.scene = moved(self.scene, model, state.q)
        with self.server.atomic():
            self._place()
            self._set_line("pull", NO_LINES if pull is None else np.asarray(pull)[None])
            self._set_line("axes", self._axes() if "axes" in self.shown else NO_LINES)
            self._set_line("contacts", self._contacts(contacts(model, state, ctrl)) if "contacts" in self.shown else NO_LINES)
            for site in self.sites:
                if site is not None:
                    site.visible = "sites" in self.shown

    def pose(self, body: int) -> tuple[np.ndarray, np.ndarray]:
        """World position (3,), m, and quaternion (4,) of a body as drawn; -1: the world."""
        if body < 0:
            return np.zeros(3), np.array([1.0, 0, 0, 0])
        return self.scene.pos[0, 0, body], self.scene.quat[0, 0, body]

    def in_body(self, body: int, point) -> np.ndarray:
        """A world point (3,) in the frame of a body, m."""
        pos, quat = self.pose(body)
        return rotate(quat_conj(quat), np.asarray(point) - pos)

    def in_world(self, body: int, point) -> np.ndarray:
        """A point (3,) of a body in the world, m."""
        pos, quat = self.pose(body)
        return pos + rotate(quat, np.asarray(point))

    # ---- what there is -------------------------------------------------------------------------------------------------------

    def _frame(self, name: str):
        return self.server.scene.add_frame(name, show_axes=False)

    def _of_body(self, body: int, name: str) -> str:
        return f"/world/{name}" if body < 0 else f"/world/body {body}/{name}"

    def _mesh(self, name: str, polygons, rgba, **options):
        points, faces = np.asarray(polygons[0], np.float32), triangulated(polygons[1])
        looks = {"color": _rgb(rgba), "opacity": None if rgba[3] >= 1 else rgba[3]}
        return self.server.scene.add_mesh_simple(name, points, faces, **looks, **options)

    def _add_geom(self, i: int) -> None:
        scene, geom = self.scene, self.scene.geoms[i]
        name, finish = self._of_body(geom.body, f"geom {i}"), geom_finish(scene, i)
        pose = {"position": scene.geom_pos[0, i], "wxyz": scene.geom_quat[0, i]}
        size, rgba = scene.size[0, i], shown_color(finish)
        textured = textured_triangles(scene, i, finish, 20 * self.reach) if finish.rgba[3] > 0 else None
        if geom.shape == "axes":
            self.server.scene.add_frame(name, axes_length=float(size[0]), axes_radius=0.03 * float(size[0]), **pose)
        elif textured is not None:
            mesh = self.server.scene.add_glb(name, glb_data=textured_glb(*textured, finish.images[0], finish.rgba), **pose)
            if geom.body >= 0:
                self._make_draggable(mesh, geom.body)
        elif geom.shape == "plane":
            self._add_plane(name, size, rgba, pose)
        elif rgba[3] > 0 and (polygons := geom_polygons(scene, i, 0.0)) is not None:
            mesh = self._mesh(name, polygons, rgba, flat_shading=geom.shape not in ("sphere", "ellipsoid", "capsule"), **pose)
            if geom.body >= 0:
                self._make_draggable(mesh, geom.body)

    def _add_plane(self, name: str, size, rgba, pose) -> None:
        """A plane with a grid, by which motion over it is seen."""
        width, height = (2 * (s if s > 0 else 20 * self.reach) for s in size[:2])
        cell = 10.0 ** np.round(np.log10(self.reach))
        self.server.scene.add_grid(
            name, width, height, cell_size=cell / 2, section_size=cell, plane_color=_rgb(rgba), plane_opacity=float(rgba[3]), **pose
        )

    def _make_draggable(self, mesh, body: int) -> None:
        for button in ("left", "right"):

            @mesh.on_drag(button, modifier="cmd/ctrl")
            async def _(event, turns=button == "right") -> None:
                self.on_drag(event.phase, body, event.start_position, event.end_position, turns)

    def _add_site(self, i: int):
        """A site, hidden; None where its shape has no faces."""
        topology = self.scene.model.topology
        site, rgba = topology.sites[i], color(topology.drawing.sites[i], topology.sites[i].body)
        if site.shape not in SHAPES:
            return None
        pos, quat = (leaf_values(self.scene.model, f"site.{name}")[i] for name in ("pos", "quat"))
        size = np.array((*site.size, 0.0, 0.0, 0.0)[:3])
        pose = {"position": pos, "wxyz": quat / max(np.linalg.norm(quat), 1e-12), "visible": "sites" in self.shown}
        return self._mesh(self._of_body(site.body, f"site {i}"), shape_polygons(site.shape, size), rgba, **pose)

    def _add_lines(self) -> None:
        """Flexes, skins and tendons, and the lines that are drawn on demand."""
        for i, info in enumerate(self.scene.model.topology.drawing.surfaces):
            rgba, corners = shown_color(surface_finish(self.scene.model.topology, info)), info.elements.value.shape[1]
            if corners == 2:
                self._add_line(f"surface {i}", _rgb(rgba), 2 * info.radius or 0.006 * self.reach)
            else:
                polygons = (np.zeros((info.count, 3)), info.elements.value)
                self.nodes[f"surface {i}"] = self._mesh(f"/lines/surface {i}", polygons, rgba, side="double")
        self.pieces = tendon_paths(self.scene)[1]
        for k, (number, _, _) in enumerate(self.pieces):
            rgba, width = self.scene.model.topology.drawing.tendons[number]
            self._add_line(f"tendon {k}", _rgb(color(rgba, number)), 2 * width or 0.006 * self.reach)
        for name, rgb in (("pull", PULL), ("axes", AXIS), ("contacts", CONTACT)):
            self._add_line(name, rgb, 0.02 * self.reach)

    def _add_line(self, name: str, rgb, width: float) -> None:
        """Line segments. width: m."""
        looks = {"thickness": width, "thickness_units": "world"}
        points = np.zeros((1, 2, 3), np.float32)
        self.nodes[name] = self.server.scene.add_line_segments(f"/lines/{name}", points, rgb, visible=False, **looks)

    # ---- a picture -----------------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        """Move bodies, flexes, skins and tendons to their places in the scene."""
        pos, quat = self.scene.pos[0, 0], self.scene.quat[0, 0]
        for i, frame in enumerate(self.bodies):
            if np.isfinite(pos[i]).all() and np.isfinite(quat[i]).all():
                frame.position, frame.wxyz = pos[i], quat[i]
        for i, info in enumerate(self.scene.model.topology.drawing.surfaces):
            points, corners = surface_vertices(info, pos, quat), info.elements.value
            if corners.shape[1] == 2:
                self._set_line(f"surface {i}", points[corners])
            elif np.isfinite(points).all():
                self.nodes[f"surface {i}"].vertices = points.astype(np.float32)
        if self.pieces:
            paths = tendon_paths(self.scene)[0][0, 0]
            for k, (_, first, count) in enumerate(self.pieces):
                path = paths[first : first + count]
                self._set_line(f"tendon {k}", np.stack([path[:-1], path[1:]], 1))

    def _set_line(self, name: str, segments: np.ndarray) -> None:
        """Draw segments (n, 2, 3); none where there are none, or where they are not finite."""
        node = self.nodes[name]
        shown = len(segments) > 0 and bool(np.isfinite(segments).all())
        if shown:
            node.points = segments.astype(np.float32)
        node.visible = shown

    def _axes(self) -> np.ndarray:
        links = axis_links(self.scene.model)
        if not links:
            return NO_LINES
        middle, half = self.scene.pos[0, 0][[link.body for link in links]], 0.2 * self.reach * axis_directions(self.scene)[0, 0]
        return np.stack([middle - half, middle + half], 1)

    def _contacts(self, found: ContactData) -> np.ndarray:
        """From the point of each contact along its force; the largest is as long as a third of the model."""
        active = np.asarray(found.active)
        point, frame, force = (np.asarray(x)[active].astype(float) for x in (found.point, found.frame, found.force))
        world = np.einsum("nij,ni->nj", frame, force[:, :3])
        largest = max(float(np.linalg.norm(world, axis=-1).max(initial=0.0)), 1e-12)
        return np.stack([point, point + 0.66 * self.reach / largest * world], 1)

    def _look(self) -> None:
        """The camera of a new page: at the model, from the side and above, as `xsim.render` has it."""
        pos = self.scene.pos[0, 0]
        finite = pos[np.isfinite(pos).all(-1)]
        middle = (finite.min(0) + finite.max(0)) / 2 if len(finite) else np.zeros(3)
        azimuth, elevation = np.radians(-60.0), np.radians(18.0)
        away = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
        camera = self.server.initial_camera
        camera.look_at, camera.position = middle, middle + 1.05 * self.reach / np.sin(np.radians(19.0)) * away
        camera.fov = float(np.radians(38.0))


def _rgb(rgba) -> tuple[int, int, int]:
    """Red, green and blue of 0 to 255."""
    red, green, blue = (round(255 * c) for c in rgba[:3])
    return red, green, blue
