"""<skin>: meshes that bodies carry along, for pictures only."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.macros import Maker, integers, read_asset
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.values import integer, read_rgba
from xsim.io.reader import Element
from xsim.limits import limits

__all__ = ["grid_skin", "read_skins"]


def read_skins(document: Document, index: Index) -> dict[str, dict[str, Any]]:
    """All skins by name (without one: by number), for drawing.

    Of each: ``vertices`` (n, 3) in the bind pose, world axes; ``faces`` (m, 3); ``texcoord`` (n, 2) or None; ``inflate`` (m), ``rgba``,
    ``group``, ``material``; ``bones``: body number, ``pos`` and ``quat`` of its bind pose, ``vertices`` (k,) numbers, ``weights`` (k,).
    The bodies must be in the index; index entries "skin". Raises ParseError.
    """
    out: dict[str, dict[str, Any]] = {}
    for e in [*document.elements("asset", "skin"), *document.elements("deformable", "skin")]:
        name = index.add("skin", e, len(out)) or str(len(out))
        skin = _from_file(e, document, index) if e.has("file") else _inline(e, index)
        if e.has("material"):
            index.find("material", e, "material")
        look = {"rgba": read_rgba(e), "group": integer(e, "group", 0), "material": e.string("material", "")}
        out[name] = _checked(e, skin | look | {"inflate": e.number("inflate", 0.0)})
    return out


def _inline(e: Element, index: Index) -> dict[str, Any]:
    bones = []
    for bone in e.all("bone"):
        quat = bone.floats("bindquat", 4)
        if quat is None or not quat.any():
            raise bone.error("no bind orientation; allowed: a quaternion", "bindquat")
        pos, vertices, weights = bone.floats("bindpos", 3), integers(bone, "vertid"), bone.floats("vertweight")
        if pos is None or vertices is None or weights is None:
            raise bone.error("attributes are missing; needed: body bindpos bindquat vertid vertweight")
        bones.append(_bone(index.find("body", bone, "body"), pos, quat, vertices, weights))
    texcoord = e.floats("texcoord")
    return {
        "vertices": _rows(e, "vertex", e.floats("vertex", default=()), 3),
        "faces": _rows(e, "face", integers(e, "face", default=()), 3),
        "texcoord": None if texcoord is None else _rows(e, "texcoord", texcoord, 2),
        "bones": bones,
    }


def _bone(body: int, pos, quat, vertices, weights) -> dict[str, Any]:
    quat = quat / np.abs(quat).max()  # so that no square overflows
    return {"body": body, "pos": pos, "quat": quat / np.linalg.norm(quat), "vertices": vertices, "weights": weights}


def _rows(e: Element, name: str, flat: np.ndarray, width: int) -> np.ndarray:
    if len(flat) % width:
        raise e.error(f"found {len(flat)} numbers; allowed: a multiple of {width}", name)
    return flat.reshape(-1, width)


def _checked(e: Element, skin: dict[str, Any]) -> dict[str, Any]:
    """The skin, with the weights of each vertex made to sum to 1. Raises ParseError for what does not fit together."""
    count, faces = len(skin["vertices"]), skin["faces"]
    if not count or not len(faces) or not skin["bones"]:
        raise e.error("allowed: a file, or at least vertices, faces and bones")
    if skin["texcoord"] is not None and len(skin["texcoord"]) != count:
        raise e.error(f"found {len(skin['texcoord'])} pairs for {count} vertices; allowed: one for each", "texcoord")
    if faces.min() < 0 or faces.max() >= count:
        raise e.error(f"found vertex numbers from {faces.min()} to {faces.max()}; allowed: 0 to {count - 1}", "face")
    total = np.zeros(count)
    for bone in skin["bones"]:
        vertices = bone["vertices"]
        if len(vertices) != len(bone["weights"]) or not len(vertices):
            raise e.error(f"a bone has {len(vertices)} vertices and {len(bone['weights'])} weights; allowed: as many, at least one")
        if vertices.min() < 0 or vertices.max() >= count:
            raise e.error(f"a bone has vertex numbers from {vertices.min()} to {vertices.max()}; allowed: 0 to {count - 1}")
        with np.errstate(over="ignore"):
            np.add.at(total, vertices, bone["weights"])
    good = (total > 0) & np.isfinite(total)
    if not good.all():
        raise e.error(f"vertex {int(np.argmin(good))} has weights of no positive sum; allowed: vertices with bones that hold them")
    bones = [bone | {"weights": bone["weights"] / total[bone["vertices"]]} for bone in skin["bones"]]
    return skin | {"bones": bones}


def _from_file(e: Element, document: Document, index: Index) -> dict[str, Any]:
    """A skin from an SKN file: four int32 (vertices, texture coordinates, faces, bones), their data, then the bones."""
    for name in ("vertex", "texcoord", "face"):
        if e.has(name):
            raise e.error(f"found file and {name}; allowed: one of them", name)
    (data, path), at = read_asset(document, e), 0

    def take(dtype: str, count: int) -> np.ndarray:
        nonlocal at
        size = np.dtype(dtype).itemsize * count
        if count < 0 or at + size > len(data):
            raise e.error(f"{path} ends after {len(data)} bytes; {at + size} or more are announced", "file")
        at += size
        return np.frombuffer(data, dtype, count, at - size)

    vertices, texcoords, faces, bones = take("<i4", 4).tolist()
    skin: dict[str, Any] = {
        "vertices": take("<f4", 3 * vertices).astype(float).reshape(-1, 3),
        "texcoord": take("<f4", 2 * texcoords).astype(float).reshape(-1, 2) if texcoords else None,
        "faces": take("<i4", 3 * faces).astype(int).reshape(-1, 3),
        "bones": [],
    }
    for _ in range(min(bones, limits().elements)):
        name = bytes(take("u1", 40)).split(b"\0")[0].decode("utf-8", "replace")
        pos, quat = take("<f4", 3).astype(float), take("<f4", 4).astype(float)
        if not (quat.any() and np.isfinite([*pos, *quat]).all()):
            raise e.error(f"{path}: bone {name!r} has no orientation or a number that is not finite", "file")
        count = take("<i4", 1).item()
        body = index.named("body", e, "file", name)
        skin["bones"].append(_bone(body, pos, quat, take("<i4", count).astype(int), take("<f4", count).astype(float)))
    if at != len(data):
        raise e.error(f"{path} has {len(data)} bytes; allowed: the {at} that its header announces", "file")
    if not all(np.isfinite(x).all() for x in (skin["vertices"], *(b["weights"] for b in skin["bones"]))):
        raise e.error(f"{path} holds numbers that are not finite", "file")
    return skin


def grid_skin(e: Element, make: Maker, prefix: str, counts, spacing: float) -> Node:
    """The <skin> of a two-dimensional composite grid, both its sides; e: its <skin>, counts: bodies along x and y.

    ``subgrid`` lines between two bodies follow a Catmull-Rom surface through them, continued linearly at the rim.
    """
    between = integer(e, "subgrid", 0)
    if between < 0:
        raise e.error(f"found {between}; allowed: integers >= 0", "subgrid")
    nx, ny = (int(n + (n - 1) * between) for n in counts)
    if nx * ny * int(counts[0]) * int(counts[1]) > 10 * limits().elements:
        raise e.error(f"found {between}: {nx} x {ny} points; allowed: fewer", "subgrid")
    along = [_weights(int(n), between) for n in counts]
    weights = np.einsum("ai,bj->ijab", *along).reshape(counts[0], counts[1], nx * ny)
    sides = np.array([0, nx * ny])
    bones = []
    for i, j in product(range(counts[0]), range(counts[1])):
        near = np.flatnonzero(weights[i, j])
        numbers, shares = (near[:, None] + sides).ravel(), np.repeat(weights[i, j, near], 2)
        at = (spacing * i, spacing * j, 0.0)
        bones.append(make("bone", body=f"{prefix}B{i}_{j}", bindpos=at, bindquat="1 0 0 0", vertid=numbers, vertweight=shares))
    x, y = np.meshgrid(np.arange(nx), np.arange(ny), indexing="ij")
    step = spacing / (between + 1)
    points = np.tile(np.stack([x * step, y * step, 0.0 * x], axis=-1).reshape(-1, 3), (2, 1))
    number = x * ny + y
    top = (number[:-1, :-1].reshape(-1, 1) + [0, ny, ny + 1, 0, ny + 1, 1]).reshape(-1, 3)
    rim = np.concatenate([number[:-1, 0], number[-1, :-1], number[:0:-1, -1], number[0, ::-1]])  # closed, counter-clockwise from above
    a, b = rim[:-1, None], rim[1:, None]
    under = nx * ny
    side = np.concatenate([np.hstack([a, a + under, b + under]), np.hstack([a, b + under, b])])
    faces = np.concatenate([top, top[:, ::-1] + under, side])
    texcoord = np.tile(np.stack([x / (nx - 1), y / (ny - 1)], axis=-1).reshape(-1, 2), (2, 1)) if e.raw("texcoord") == "true" else None
    e.choice("texcoord", ("false", "true"), "false")
    look = {"rgba": "1 1 1 1"} | {name: e.raw(name) for name in ("material", "rgba", "group", "inflate") if e.has(name)}
    return make("skin", bones, name=f"{prefix}Skin", vertex=points, face=faces, texcoord=texcoord, **look)


def _weights(count: int, between: int) -> np.ndarray:
    """Shares (points, count) of the bodies of a row in the points on and between them."""
    knots = np.eye(count)
    knots = np.concatenate([[2 * knots[0] - knots[1]], knots, [2 * knots[-1] - knots[-2]]])
    t = np.arange(between + 1)[:, None] / (between + 1)
    basis = np.stack([-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, t**3 - t**2], axis=-1) / 2
    rows = [(basis @ knots[k : k + 4])[:, 0] for k in range(count - 1)]
    return np.concatenate([*rows, knots[count : count + 1]])
