"""Cameras and lights."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsim.spec.fields import identity, zeros
from xsim.spec.source import Source

__all__ = ["CameraSpec", "LightSpec"]


@dataclass(frozen=True)
class CameraSpec:
    """A camera on a body. It looks along -z, +y is up.

    * ``mode``: ``"fixed"``; ``"track"`` (keeps its world orientation and world offset from the body as in the reference pose),
      ``"trackcom"`` (the same from the centre of mass of the body's subtree); ``"targetbody"``, ``"targetbodycom"`` (looks at the body
      ``target``, or at the centre of mass of its subtree).
    * ``fovy``: vertical field of view, rad; m where ``orthographic``. ``resolution``: pixels. ``intrinsic``: focal length x, y and
      principal point x, y, m; ``sensor_size``: m; zeros where the file gives only fovy.
    """

    name: str
    body: int
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    mode: str = "fixed"
    target: int | None = None
    fovy: float = np.pi / 4
    ipd: float = 0.068
    resolution: tuple[int, int] = (1, 1)
    intrinsic: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    sensor_size: tuple[float, float] = (0.0, 0.0)
    orthographic: bool = False
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class LightSpec:
    """A light on a body.

    ``pos``, ``dir``: in the body frame. ``mode``, ``target``: as of a camera. ``drawing``: other attributes by the file's names
    (directional, castshadow, diffuse, ...).
    """

    name: str
    body: int
    pos: np.ndarray = zeros(3)
    dir: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -1.0]))
    mode: str = "fixed"
    target: int | None = None
    drawing: dict = field(default_factory=dict)
    source: Source = Source()
