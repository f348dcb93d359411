"""Terrains for legged robots: height fields of square tiles, of one kind along y and harder from level to level along x.

The kinds, and how robots move on to harder tiles, follow Rudin et al., Learning to Walk in Minutes Using Massively Parallel Deep
Reinforcement Learning, 2022.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.sensors.rays import ground_height
from xsim.spec import GeomSpec, HfieldSpec, ModelSpec
from xsim.suggestions import did_you_mean

__all__ = ["KINDS", "Terrain", "make_terrain"]

PLATFORM = 2.0
"""Width of the flat square in the middle of a tile, where robots start, m."""
BASE = 1.0
"""Thickness of the ground below its lowest point, m."""


class Tile(NamedTuple):
    """Coordinates of the points of a tile from its middle, (n, n), m, and half its width, m; rng: numpy's generator of random numbers."""

    x: np.ndarray
    y: np.ndarray
    half: float
    rng: np.random.Generator

    @property
    def inwards(self) -> np.ndarray:
        """Distance from the border of the tile, and at most to its platform, m."""
        return np.minimum(self.half - np.maximum(abs(self.x), abs(self.y)), self.half - 0.5 * PLATFORM)


# ---- kinds: (tile, difficulty between 0 and 1) -> heights (n, n), m -----------------------------------------------------------


def _flat(tile: Tile, difficulty: float) -> np.ndarray:
    return np.zeros_like(tile.x)


def _slope(tile: Tile, difficulty: float) -> np.ndarray:
    """A pyramid of a grade up to 0.5."""
    return 0.5 * difficulty * tile.inwards


def _stairs(tile: Tile, difficulty: float) -> np.ndarray:
    """A pyramid of steps 0.4 m wide and 0.03 to 0.2 m high."""
    return (0.03 + 0.17 * difficulty) * np.floor(tile.inwards / 0.4 + 1e-9)


def _rough(tile: Tile, difficulty: float) -> np.ndarray:
    """Random heights, up to 0.02 to 0.15 m, on a grid of 0.2 m; flat on the platform and at the border."""
    spacing = abs(tile.x[0, 1] - tile.x[0, 0])
    block = max(1, round(0.2 / spacing))
    n = len(tile.x)
    coarse = tile.rng.uniform(0, 0.02 + 0.13 * difficulty, (-(-n // block),) * 2)
    heights = np.kron(coarse, np.ones((block, block)))[:n, :n]
    return np.where((tile.inwards < tile.half - 0.5 * PLATFORM) & (tile.inwards > 0), heights, 0.0)


def _waves(tile: Tile, difficulty: float) -> np.ndarray:
    """Waves along x, 2 m long and up to 0.3 m from valley to crest."""
    swell = 0.15 * difficulty * (1 - np.cos(np.pi * (tile.x + tile.half)))
    return np.where(tile.inwards < tile.half - 0.5 * PLATFORM, swell, 0.0) * np.clip(tile.inwards / 0.5, 0, 1)


def _stepping_stones(tile: Tile, difficulty: float) -> np.ndarray:
    """Square stones, 1.2 to 0.4 m wide, with gaps of 0.1 to 0.4 m between them that are 0.5 m deep."""
    stone, gap = 1.2 - 0.8 * difficulty, 0.1 + 0.3 * difficulty
    along = [np.mod(c + 0.5 * stone, stone + gap) < stone for c in (tile.x, tile.y)]
    solid = along[0] & along[1] | (tile.inwards >= tile.half - 0.5 * PLATFORM) | (tile.inwards <= 0)
    return np.where(solid, 0.0, -0.5)


KINDS: dict[str, Callable[[Tile, float], np.ndarray]] = {
    "flat": _flat,
    "slope": _slope,
    "slope_down": lambda tile, difficulty: -_slope(tile, difficulty),
    "stairs": _stairs,
    "stairs_down": lambda tile, difficulty: -_stairs(tile, difficulty),
    "rough": _rough,
    "waves": _waves,
    "stepping_stones": _stepping_stones,
}
"""Functions of a `Tile` and a difficulty between 0 and 1 that give its heights, m. The border of a tile is at height zero."""


# ---- the terrain -------------------------------------------------------------------------------------------------------------


class Terrain(NamedTuple):
    """A ground made of tiles, with its middle at the origin of the world.

    * heights (rows, columns): m; rows along y, columns along x. spacing: between them, m.
    * origins (levels, kinds, 3): the middle of each tile, on the ground, world axes, m. tile: width of a tile, m.
    """

    heights: np.ndarray
    spacing: float
    origins: np.ndarray
    tile: float

    @property
    def half(self) -> tuple[float, float]:
        """Half the length along x and along y, m."""
        rows, columns = self.heights.shape
        return 0.5 * (columns - 1) * self.spacing, 0.5 * (rows - 1) * self.spacing

    def under(self, spec: ModelSpec, ground: str | None = None) -> ModelSpec:
        """A model that stands on this terrain instead of on its ground plane; the surface of the contact stays as it is.

        ground: name of the plane; None: every plane of the world that collides. Raises ValueError if there is none.
        """
        low, span = float(self.heights.min()), float(np.ptp(self.heights))
        size = np.array([*self.half, max(span, 1e-3), BASE])
        field = HfieldSpec("terrain", (self.heights - low) / size[2], size)

        def replaced(geom: GeomSpec) -> GeomSpec:
            if geom.shape != "plane" or not geom.collision or ground not in (None, geom.name):
                return geom
            pos = np.array([0.0, 0.0, low])
            return dataclasses.replace(geom, shape="hfield", size=size[:3].copy(), pos=pos, asset=len(spec.hfields), massless=True)

        geoms = tuple(map(replaced, spec.world_geoms))
        if all(new is old for new, old in zip(geoms, spec.world_geoms, strict=True)):
            raise ValueError("the model has no ground plane" + (f" named {ground!r}" if ground else "") + " that collides")
        return spec.replace(world_geoms=geoms, hfields=(*spec.hfields, field))

    def height(self, x, y):
        """Height of the ground, m, at points of the world, m; arrays of one shape. Beyond the border as at the border."""
        rows, columns = self.heights.shape
        u, v = (jnp.clip((c + h) / self.spacing, 0, n - 1) for c, h, n in zip((x, y), self.half, (columns, rows), strict=True))
        return ground_height(jnp.asarray(self.heights.reshape(-1), u.dtype), columns, rows, u, v)


def make_terrain(
    kinds: Sequence[str] = ("slope", "slope_down", "stairs", "rough", "stepping_stones"), levels: int = 6, *, tile: float = 8.0,
    border: float = 4.0, spacing: float = 0.1, seed: int = 0,
) -> Terrain:  # fmt: skip
    """A terrain with a row of tiles of each kind, from flat at the first level to the hardest at the last.

    kinds: names in `KINDS`. levels: number of tiles of each kind. tile: their width, m. border: width of the flat ground around, m.
    spacing: between the points of the height field, m. seed: of random heights. Raises KeyError for an unknown kind, ValueError for
    impossible numbers.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise KeyError(f"no terrain {kind!r}{did_you_mean(kind, KINDS)}; terrains: {', '.join(KINDS)}")
    if not kinds or levels < 1 or not 0 < spacing <= 0.5 or tile < 2 * PLATFORM or border < 0:
        raise ValueError(f"a terrain needs kinds, levels, a spacing of at most 0.5 m, and tiles of at least {2 * PLATFORM:g} m")
    n, margin = round(tile / spacing), round(border / spacing)
    heights = np.zeros((len(kinds) * n + 2 * margin + 1, levels * n + 2 * margin + 1))
    rng, along = np.random.default_rng(seed), (np.arange(n + 1) - 0.5 * n) * spacing
    shape = Tile(*np.meshgrid(along, along), 0.5 * n * spacing, rng)
    origins = np.zeros((levels, len(kinds), 3))
    for k, kind in enumerate(kinds):
        for level in range(levels):
            row, column = margin + k * n, margin + level * n
            heights[row : row + n + 1, column : column + n + 1] = KINDS[kind](shape, level / max(levels - 1, 1))
            middle = heights[row + n // 2, column + n // 2]
            corner = 0.5 * (np.array(heights.shape)[::-1] - 1)
            origins[level, k] = *((np.array([column, row]) + n / 2 - corner) * spacing), middle
    return Terrain(heights, spacing, origins, n * spacing)
