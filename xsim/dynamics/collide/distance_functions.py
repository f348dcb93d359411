"""Signed distance functions by name: `xsim.registry.DISTANCE_FUNCTIONS`. In MJCF they are the plugins of meshes and of geoms of type sdf.

Sources of the shapes, as far as MuJoCo's documentation names them: torus, cut hollow sphere (bowl), bolt, nut and gear of
https://iquilezles.org/articles/distfunctions and of https://www.shadertoy.com/view/XtffzX (bolt), /3lG3WR (gear), /7tVXRt (bowl).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.octrees import octree_distance
from xsim.model.topology import SdfInfo
from xsim.registry import DISTANCE_FUNCTIONS, ConfigKey
from xsim.spatial import Component, Vector, safe_norm

__all__ = ["DistanceFunction", "distance_function", "gradient"]


@dataclass(frozen=True, eq=False)
class DistanceFunction:
    """A signed distance function, an entry of `xsim.registry.DISTANCE_FUNCTIONS`.

    * distance(point, numbers): the distance (m) of points from the surface, negative inside. point: three arrays of one shape, m, in the
      frame of the surface. numbers: of <config> by key, numbers or arrays of that shape, a tuple where a key has several. The surface is
      where it is zero. Contacts are good where its gradient has about unit length near the surface; its derivatives must be finite.
    * half_extents(numbers) -> three numbers: half the sides of a box about the origin that contains the surface, m. In it lies the mesh
      that gives a geom its mass and its bounds.
    * config: the keys of <config>.
    """

    distance: Callable[[Vector, dict[str, Any]], Component]
    half_extents: Callable[[dict[str, Any]], tuple]
    config: dict[str, ConfigKey] = field(default_factory=dict)

    def named(self, numbers) -> dict[str, Any]:
        """Numbers in the order of the config, by key."""
        rest = iter(numbers)
        return {name: next(rest) if key.width == 1 else tuple(next(rest) for _ in range(key.width)) for name, key in self.config.items()}

    def box(self, numbers) -> np.ndarray:
        """The half extents (3,) of the box, m. numbers: in the order of the config."""
        return np.array([float(x) for x in self.half_extents(self.named(numbers))])

    def sample(self, points: np.ndarray, numbers) -> np.ndarray:
        """The distances (n,) of points (n, 3), in double precision whatever jax is set to."""
        with jax.enable_x64(True):
            rows = np.resize(np.asarray(points, float), (-(-len(points) // _CHUNK) * _CHUNK, 3))
            given = np.asarray(numbers, float)
            found = [np.asarray(_sampled(self, rows[i : i + _CHUNK].T, given)) for i in range(0, len(rows), _CHUNK)]
        return np.concatenate(found)[: len(points)]


_CHUNK = 1 << 16


def _sample(function: DistanceFunction, points, numbers):
    return jnp.broadcast_to(function.distance(tuple(points), function.named(numbers)), points.shape[1:])


_sampled = jax.jit(_sample, static_argnums=0)


def gradient(distance: Callable[[Vector], Component], point: Vector) -> tuple[Component, Vector]:
    """A distance at points, and its gradient. distance: a function of each point alone."""
    value, pull = jax.vjp(lambda *p: jnp.broadcast_to(distance(p), jnp.shape(p[0])), *point)
    return value, pull(jnp.ones_like(value))


def distance_function(info: SdfInfo, numbers: tuple) -> Callable[[Vector], Component]:
    """The distance of points in the frame of a signed distance function. numbers: of its config, those of the model's leaves."""
    if info.octree is not None:
        return functools.partial(octree_distance, info.octree)
    function = DISTANCE_FUNCTIONS[info.kind]
    named = function.named(numbers)
    return lambda point: function.distance(point, named)


# ---- shapes of MuJoCo ----------------------------------------------------------------------------------------------------------


def _torus(p: Vector, numbers) -> Component:
    return safe_norm((safe_norm(p[:2]) - numbers["radius1"], p[2])) - numbers["radius2"]


def _bowl(p: Vector, numbers) -> Component:
    """A sphere without the cap above a height."""
    height, radius = numbers["height"], numbers["radius"]
    width = jnp.sqrt(radius * radius - height * height)
    across = safe_norm(p[:2])
    rim = safe_norm((across - width, p[2] - height))
    return jnp.where(height * across < width * p[2], rim, jnp.abs(safe_norm(p) - radius)) - numbers["thickness"]


_TURNS = 12.0  # of a thread per metre
_SLOPE = math.sqrt(0.5)


def _angle(p: Vector) -> Component:
    """The angle of p about the z axis, rad; derivative zero on the axis."""
    on_axis = (p[0] == 0) & (p[1] == 0)
    return jnp.arctan2(p[1], jnp.where(on_axis, 1.0, p[0]))


def _thread(p: Vector, above: Component) -> Component:
    """A thread about the z axis. above: distance from the cylinder that it is cut into."""
    turns = p[2] * _TURNS - _angle(p) / (2 * math.pi)
    return (above - jnp.abs(turns - jnp.floor(turns) - 0.5) / _TURNS) * _SLOPE


def _hexagon(p: Vector, above: Component) -> Component:
    """A hexagonal head between z = -0.5 and z = 0, with a cone at its top."""
    turn = -jnp.floor(_angle(p) * (3.0 / math.pi) + 0.5) * (math.pi / 3.0)
    side = jnp.cos(turn) * p[0] - jnp.sin(turn) * p[1] - 0.5
    return jnp.maximum(jnp.maximum(side, jnp.abs(p[2] + 0.25) - 0.25), (p[2] + above - 0.22) * _SLOPE)


def _bolt(p: Vector, numbers) -> Component:
    above = safe_norm(p[:2]) - numbers["radius"]
    shaft = jnp.maximum(_thread(p, above), jnp.abs(p[2] + 0.5) - 0.5)
    shaft = jnp.maximum(shaft, -(p[2] - above) * _SLOPE - _SLOPE)
    return jnp.minimum(shaft, _hexagon(p, above))


def _nut(p: Vector, numbers) -> Component:
    above = safe_norm(p[:2]) - numbers["radius"]
    cone = (p[2] - above) * _SLOPE
    hole = jnp.minimum(jnp.maximum(_thread(p, above), -cone - 0.5 * _SLOPE), -cone - 0.05 * _SLOPE)
    return jnp.maximum(_hexagon(p, above), -hole)


def _smooth_union(a, b, width):
    weight = jnp.clip(0.5 + 0.5 * (b - a) / width, 0.0, 1.0)
    return b * (1.0 - weight) + a * weight - width * weight * (1.0 - weight)


def _smooth_intersection(a, b, width):
    return jnp.maximum(jnp.maximum(a, b), -_smooth_union(jnp.maximum(a, -b), jnp.maximum(b, -a), width))


def _remainder(x, y):
    return x - y * jnp.floor(x / y)


class _Gear(NamedTuple):
    """Dimensions of an involute gear: radii (m) of tips, feet, base circle and bore, angles (rad) of a tooth with its gap and of a gap."""

    tip: Any
    foot: Any
    base: Any
    bore: Any
    pitch: Any
    gap: Any


def _gear_dimensions(numbers) -> _Gear:
    diameter, teeth, inner = numbers["diameter"], numbers["teeth"], numbers["innerdiameter"]
    pressure = (3.096e-5 * teeth - 6.557e-3) * teeth + 0.551  # pressure angle, rad
    radius, module = 0.5 * diameter, diameter / teeth
    tip, foot = radius + module, radius - 1.2 * module
    bore = jnp.where(inner >= 0, 0.5 * inner, foot - 0.14 * diameter)
    pitch = 2 * math.pi / teeth
    return _Gear(tip, foot, radius * jnp.cos(pressure), bore, pitch, 0.5 * pitch - 2.0 * (jnp.tan(pressure) - pressure))


def _gear_outline(p: Vector, numbers) -> Component:
    """The distance of the projections of points from the outline of a gear."""
    gear, across, turn = _gear_dimensions(numbers), safe_norm(p[:2]), _angle(p) + numbers["alpha"]
    sides = [_remainder(x + 0.5 * gear.gap, gear.pitch) - 0.5 * gear.gap for x in (turn, -turn - gear.gap)]
    outside = across > gear.base
    safe = jnp.where(outside, across, 2.0 * gear.base)
    tangent = jnp.sqrt(safe * safe - gear.base * gear.base)
    roll = jnp.arctan2(tangent, gear.base)
    involutes = [jnp.where(outside, tangent - gear.base * (side + roll), -1e6) for side in sides]
    walls = [side - (gear.pitch - gear.gap) for side in sides]
    cogs = jnp.maximum(jnp.maximum(*walls), jnp.maximum(*involutes))
    cogs = _smooth_intersection(across - gear.tip, cogs, 0.0035 * numbers["diameter"])
    cogs = _smooth_union(across - gear.foot, cogs, gear.base - gear.foot)
    cogs = jnp.maximum(cogs, gear.bore - across)
    cogs = jnp.where(across > gear.tip + 0.2, across - gear.tip, cogs)
    return jnp.where(across < gear.bore, gear.bore - across, cogs)


def _gear(p: Vector, numbers) -> Component:
    outline, side = _gear_outline(p, numbers), jnp.abs(p[2]) - 0.5 * numbers["thickness"]
    beyond = safe_norm((jnp.maximum(outline, 0.0), jnp.maximum(side, 0.0)))
    return jnp.minimum(jnp.maximum(outline, side), 0.0) + beyond


def _round_box(numbers) -> tuple:
    across = numbers["radius1"] + numbers["radius2"]
    return across, across, numbers["radius2"]


def _gear_box(numbers) -> tuple:
    across = 0.625 * numbers["diameter"]
    return across, across, 0.55 * numbers["thickness"]


_SCREW = {"radius": ConfigKey((0.26,))}
DISTANCE_FUNCTIONS.register_all({
    "mujoco.sdf.torus": DistanceFunction(_torus, _round_box, {"radius1": ConfigKey((0.35,)), "radius2": ConfigKey((0.15,))}),
    "mujoco.sdf.bowl": DistanceFunction(
        _bowl, lambda numbers: (numbers["radius"] + numbers["thickness"],) * 3,
        {"height": ConfigKey((0.4,)), "radius": ConfigKey((1.0,)), "thickness": ConfigKey((0.02,))},
    ),
    "mujoco.sdf.bolt": DistanceFunction(_bolt, lambda numbers: (0.6, 0.6, 1.0), _SCREW),
    "mujoco.sdf.nut": DistanceFunction(_nut, lambda numbers: (0.6, 0.6, 1.0), _SCREW),
    "mujoco.sdf.gear": DistanceFunction(
        _gear, _gear_box,
        {
            "alpha": ConfigKey(), "diameter": ConfigKey((2.8,)), "teeth": ConfigKey((25.0,)), "thickness": ConfigKey((0.2,)),
            "innerdiameter": ConfigKey((-1.0,)),
        },
    ),
})  # fmt: skip
