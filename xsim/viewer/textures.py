"""Pictures on surfaces: those that MJCF makes of a few numbers, and those of files, as arrays and as texts that pages hold."""

from __future__ import annotations

import base64
import functools
import io
import json
import struct
import warnings
import zlib
from typing import Any

import numpy as np

from xsim.io.errors import ParseError
from xsim.io.reader import read_bytes
from xsim.model.drawing import TextureInfo

__all__ = ["MAX_PIXELS", "NEEDS_PILLOW", "data_url", "mean_color", "scaled", "texture_images", "textured_glb"]

MAX_PIXELS = 1024
"""Pictures have at most as many pixels along a side; larger ones are scaled down."""
MAX_OPENED = 100_000_000
"""Pictures of files have at most as many pixels."""
NEEDS_PILLOW = "needs Pillow: pip install 'xsim[render]'"
_FACES = "RLUDFB"
"""x, -x, y, -y, z, -z as `gridlayout` names them: right, left, up, down, front, back."""


@functools.lru_cache(maxsize=64)
def texture_images(info: TextureInfo) -> tuple[np.ndarray, ...] | str:
    """The pictures (height, width, 3 or 4) uint8 of a texture, rows from the top: one of a plane texture, else the sides x, -x, y, -y, z,
    -z of a cube, each seen from its inside, as OpenGL has them. A text says why there are none.

    Colours are those that MuJoCo computes; its random dots are others in each process, and ours are the same in all.
    """
    try:
        if info.builtin != "none":
            sides = _builtin(info)
        elif info.type == "2d":
            sides = [_read(info, info.file)]
        else:
            sides = _cube_of_files(info)
    except ImportError:
        return NEEDS_PILLOW
    except (ParseError, ValueError, OSError, SyntaxError) as error:  # Pillow raises all of these
        return f"cannot be read: {str(error)[:100]}"
    return tuple(sides)


def mean_color(images: tuple[np.ndarray, ...]) -> np.ndarray:
    """The mean (3,) of pictures, 0 to 1."""
    return np.mean([image[..., :3].mean((0, 1)) / 255 for image in images], 0)


def data_url(image: np.ndarray) -> str:
    """A picture as a text that browsers draw: PNG, or JPEG where it is shorter (of photographs) and Pillow is installed."""
    picture = scaled(image)
    png = "data:image/png;base64," + base64.b64encode(_png(picture)).decode("ascii")
    if picture.shape[2] == 4 or len(png) < 20_000:
        return png
    try:
        from PIL import Image  # pyright: ignore[reportMissingImports]
    except ImportError:
        return png
    held = io.BytesIO()
    Image.fromarray(picture).save(held, "JPEG", quality=90)
    jpeg = "data:image/jpeg;base64," + base64.b64encode(held.getvalue()).decode("ascii")
    return min(png, jpeg, key=len)


def scaled(image: np.ndarray) -> np.ndarray:
    """The picture with at most `MAX_PIXELS` along each side."""
    height, width = image.shape[:2]
    if max(height, width) <= MAX_PIXELS:
        return image
    rows, columns = (np.linspace(0, n, min(n, MAX_PIXELS) + 1)[:-1].astype(int) for n in (height, width))
    total = np.add.reduceat(np.add.reduceat(image.astype(np.int64), rows, 0), columns, 1)
    count = np.diff([*rows, height])[:, None, None] * np.diff([*columns, width])[:, None]
    return (total // count).astype(np.uint8)


def textured_glb(corners: np.ndarray, places: np.ndarray, image: np.ndarray, rgba) -> bytes:
    """Triangles with a picture as a binary glTF 2.0 file, shaded flat. corners (m, 3, 3), m. places (m, 3, 2): (0, 0) at the first row and
    column. rgba: what the picture is multiplied by, 0 to 1."""
    picture = _png(scaled(image))
    parts = [np.ascontiguousarray(x, "<f4").tobytes() for x in (corners.reshape(-1, 3), places.reshape(-1, 2))] + [picture]
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    views = [{"buffer": 0, "byteOffset": start, "byteLength": len(part)} for start, part in zip(starts, parts, strict=False)]
    numbers, flat = {"componentType": 5126, "count": 3 * len(corners)}, corners.reshape(-1, 3)
    linear = [((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in rgba[:3]]  # factors are no sRGB
    surface = {"baseColorTexture": {"index": 0}, "baseColorFactor": [*linear, rgba[3]], "metallicFactor": 0.0, "roughnessFactor": 0.6}
    text = {
        "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0, "TEXCOORD_0": 1}, "material": 0}]}],
        "materials": [{"pbrMetallicRoughness": surface, "doubleSided": True, "alphaMode": "OPAQUE" if rgba[3] >= 1 else "BLEND"}],
        "textures": [{"source": 0, "sampler": 0}], "samplers": [{}], "images": [{"bufferView": 2, "mimeType": "image/png"}],
        "accessors": [
            numbers | {"bufferView": 0, "type": "VEC3", "min": flat.min(0).tolist(), "max": flat.max(0).tolist()},
            numbers | {"bufferView": 1, "type": "VEC2"},
        ],
        "bufferViews": views, "buffers": [{"byteLength": starts[-1]}],
    }  # fmt: skip
    chunks = []
    for kind, data, fill in ((b"JSON", json.dumps(text).encode(), b" "), (b"BIN\0", b"".join(parts), b"\0")):
        data += fill * (-len(data) % 4)
        chunks.append(struct.pack("<I", len(data)) + kind + data)
    return struct.pack("<4sII", b"glTF", 2, 12 + sum(map(len, chunks))) + b"".join(chunks)


def _png(image: np.ndarray) -> bytes:
    height, width, channels = image.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], 1)  # each begins with the kind of its filter

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")


# ---- of a few numbers --------------------------------------------------------------------------------------------------------


def _builtin(info: TextureInfo) -> list[np.ndarray]:
    width = info.width
    height = info.height if info.type == "2d" else width
    if not (0 < width and 0 < height and width * height <= MAX_OPENED):
        raise ValueError(f"it has {width} x {height} pixels")
    first, second, marked = (np.trunc(255 * np.array(color)).astype(np.uint8) for color in (info.rgb1, info.rgb2, info.markrgb))
    if info.builtin == "gradient":
        sides = _gradient(info, width, height)
    elif info.builtin == "checker":
        upper = np.arange(height)[:, None] < height // 2
        same = (upper == (np.arange(width) < width // 2))[..., None]
        board = np.where(same, first, second)
        sides = [board] if info.type == "2d" else [*[board] * 4, *[np.where(same, second, first)] * 2]
    else:
        flat = np.broadcast_to(first, (height, width, 3))
        sides = [flat] if info.type == "2d" else [flat, flat, flat, np.broadcast_to(second, flat.shape), flat, flat]
    sides = [side.copy() for side in sides]
    numbers = np.random.default_rng(0)
    for side in sides:
        if info.mark == "edge":
            side[[0, -1]] = side[:, [0, -1]] = marked
        elif info.mark == "cross":
            side[height // 2] = side[:, width // 2] = marked
        elif info.mark == "random":
            side[numbers.random((height, width)) < info.random] = marked
    return sides


def _gradient(info: TextureInfo, width: int, height: int) -> list[np.ndarray]:
    """From the middle outwards, of a cube from above downwards."""
    with np.errstate(invalid="ignore"):  # of a picture with one column
        x, y = 2 * np.arange(width) / np.float64(width - 1) - 1, 1 - 2 * np.arange(height)[:, None] / np.float64(height - 1)
    x, y = np.broadcast_arrays(np.nan_to_num(x), np.nan_to_num(y))
    if info.type == "2d":
        return [_blend(info.rgb2, info.rgb1, 2 * np.hypot(x, y) - 1)]
    far = np.sqrt(1 + x * x + y * y)
    side = _blend(info.rgb1, info.rgb2, np.arcsin(y / far) / (0.5 * np.pi))
    above = 1 - np.arccos(1 / far) / (0.5 * np.pi)
    return [side, side, _blend(info.rgb1, info.rgb2, above), _blend(info.rgb1, info.rgb2, -above), side, side]


def _blend(high, low, place: np.ndarray) -> np.ndarray:
    """Between two colours along a sigmoid of a place from -1 (low) to 1 (high)."""
    share = np.clip(0.5 * (1 + place / np.sqrt(1 + place**2) * np.sqrt(2)), 0, 1)[..., None]
    return np.trunc(255 * (share * np.array(high) + (1 - share) * np.array(low))).astype(np.uint8)


# ---- of files ----------------------------------------------------------------------------------------------------------------


def _read(info: TextureInfo, file: str) -> np.ndarray:
    """The picture of a file. Raises ValueError where there is none, and what Pillow raises."""
    if not file:
        raise ValueError("its file is not found")
    data = read_bytes(file)
    image = _mujoco_picture(data)
    image = _pillow_picture(data, "RGBA" if info.nchannel == 4 else "RGB") if image is None else image
    image = image[:, ::-1] if info.hflip else image
    return image[::-1] if info.vflip else image


def _mujoco_picture(data: bytes) -> np.ndarray | None:
    """MuJoCo's format: int32 width and height, then the colours; None of another."""
    width, height = np.frombuffer(data, "<i4", 2).tolist() if len(data) > 8 else (0, 0)
    if not (width > 0 and height > 0 and len(data) == 8 + 3 * width * height):
        return None
    return np.frombuffer(data, np.uint8, offset=8).reshape(height, width, 3)


def _pillow_picture(data: bytes, mode: str) -> np.ndarray:
    from PIL import Image  # pyright: ignore[reportMissingImports]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about large pictures, which are refused here
        image: Any = Image.open(io.BytesIO(data))
        if image.width * image.height > MAX_OPENED:
            raise ValueError(f"it has {image.width} x {image.height} pixels; allowed: {MAX_OPENED} together")
        return np.asarray(image.convert(mode))


def _cube_of_files(info: TextureInfo) -> list[np.ndarray]:
    """The sides of one file, repeated or in a grid, or of up to six; those that are missing have the first colour."""
    found: dict[int, np.ndarray] = {}
    if info.file:
        image, (rows, columns) = _read(info, info.file), info.gridsize
        if (rows, columns) == (1, 1):
            found = dict.fromkeys(range(6), image)
        elif rows < 1 or columns < 1 or image.shape[0] // rows != image.shape[1] // columns:
            raise ValueError(f"its squares are none: {image.shape[1]} x {image.shape[0]} pixels in {columns} x {rows}")
        else:
            side = image.shape[0] // rows
            for k, letter in enumerate(info.gridlayout[: rows * columns]):
                if letter in _FACES:
                    top, left = side * (k // columns), side * (k % columns)
                    found[_FACES.index(letter)] = image[top : top + side, left : left + side]
    else:
        found = {i: _read(info, file) for i, file in enumerate(info.sides) if file}
    if not found or len({image.shape for image in found.values()}) > 1 or any(x.shape[0] != x.shape[1] for x in found.values()):
        raise ValueError("its sides are not found" if not found else "its sides are no squares of one size")
    shape = next(iter(found.values())).shape
    empty = np.broadcast_to(np.trunc(255 * np.array([*info.rgb1, 1.0][: shape[2]])).astype(np.uint8), shape)
    return [found.get(i, empty) for i in range(6)]
