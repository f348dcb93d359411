"""Meshes of geoms."""

from __future__ import annotations

import numpy as np

from xsim.spec import GeomSpec

__all__ = ["mesh_scale"]


def mesh_scale(geom: GeomSpec) -> tuple[float, ...]:
    """By what the vertices of its mesh are multiplied."""
    x, y, z = np.reshape(geom.size, -1).tolist() if np.size(geom.size) == 3 else (1.0, 1.0, 1.0)
    return x, y, z
