"""The centre line of a cable: its points, and the frames that its pieces have there."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from xsim.io.mjcf.macros import integers
from xsim.io.reader import MAX_DEPTH, Element

__all__ = ["read_points", "tangent_frames"]

STRAIGHT = 1e-6  # sine of the angle between two pieces that count as one line

_CURVES = {
    "s": lambda s, scale, radius, turns: scale * s,
    "cos(s)": lambda s, scale, radius, turns: radius * np.cos(np.pi * turns * s),
    "sin(s)": lambda s, scale, radius, turns: radius * np.sin(np.pi * turns * s),
    "0": lambda s, scale, radius, turns: 0 * s,
}


def read_points(e: Element) -> np.ndarray:
    """Points (n, 3) of a cable, n > 1, in the frame of its parent: ``vertex``, or ``curve`` at ``count`` steps from s = 0 to 1.

    ``size``: length of s, radius of cos(s) and sin(s), half turns of their argument. Raises ParseError.
    """
    counts = integers(e, "count", (1, 2, 3))
    size = np.array([1.0, 0.0, 0.0])
    given = e.floats("size", (1, 2, 3), ())
    size[: len(given)] = given
    if e.has("vertex"):
        for other in ("count", "curve"):
            if e.has(other):
                raise e.error(f"found vertex and {other}; allowed: one of them", other)
        flat = e.floats("vertex")
        if len(flat) % 3:
            raise e.error(f"found {len(flat)} numbers; allowed: three for each point", "vertex")
        points = flat.reshape(-1, 3)
    else:
        if counts is None or counts[0] < 2 or (counts[1:] != 1).any():
            raise e.error(f"found {e.raw('count')!r}; allowed: n or n 1 1, n the number of points, at least 2", "count")
        points = _curve(e, min(int(counts[0]), MAX_DEPTH + 1), size)
    if not 2 <= len(points) <= MAX_DEPTH:
        raise e.error(f"found {'more' if len(points) > MAX_DEPTH else len(points)} points; allowed: 2 to {MAX_DEPTH}")
    return points + e.floats("offset", 3, np.zeros(3))


def _curve(e: Element, count: int, size: np.ndarray) -> np.ndarray:
    words = e.string("curve").split()
    for word in words:
        if word not in _CURVES:
            raise e.error(f"unknown function {word!r}; allowed: {', '.join(_CURVES)}", "curve")
    if not 1 <= len(words) <= 3:
        raise e.error(f"found {len(words)} functions; allowed: one to three", "curve")
    if not size[0] > 0:
        raise e.error(f"found {size[0]:g}; allowed: a positive length", "size")
    s = np.linspace(0, 1, count)
    return np.stack([_CURVES[word](s, *size) for word in [*words, "0", "0"][:3]], axis=1)


def tangent_frames(points: np.ndarray) -> list[np.ndarray]:
    """Axes (3, 3) of each piece, as columns: x along it; z normal to the first two pieces, then carried along without twist.

    Where the first two pieces lie in one line, every frame follows from its own direction alone.
    """
    tangents = np.diff(points, axis=0)
    tangents /= np.linalg.norm(tangents, axis=1)[:, None]
    binormal = np.cross(tangents[0], tangents[1]) if len(tangents) > 1 else np.zeros(3)
    if np.linalg.norm(binormal) < STRAIGHT:
        return [_upright(t) for t in tangents]
    normal = np.cross(binormal / np.linalg.norm(binormal), tangents[0])
    frames = [_frame(tangents[0], normal)]
    for before, tangent in pairwise(tangents):
        axis = np.cross(before, tangent)
        normal = frames[-1][:, 1]
        if np.linalg.norm(axis) >= STRAIGHT:  # the smallest rotation from one direction to the next
            normal = normal + np.cross(axis, normal) + np.cross(axis, np.cross(axis, normal)) / (1 + before @ tangent)
        frames.append(_frame(tangent, normal))
    return frames


def _frame(tangent: np.ndarray, normal: np.ndarray) -> np.ndarray:
    normal = normal - tangent * (tangent @ normal)
    normal = normal / np.linalg.norm(normal)
    return np.stack([tangent, normal, np.cross(tangent, normal)], axis=1)


def _upright(tangent: np.ndarray) -> np.ndarray:
    """The frame that the smallest rotation from +x or, for directions that point back, from -x gives, after a half turn about z."""
    x, y, z = tangent
    side = 1.0 if x > 0 else -1.0
    return _frame(tangent, np.array([-y, side * (1 - y * y / (1 + abs(x))), -side * y * z / (1 + abs(x))]))
