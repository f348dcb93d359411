"""Height fields: of a PNG image, of MuJoCo's binary format, or of the file itself."""

from __future__ import annotations

import io
import warnings

import numpy as np

from xsim.io.reader import Element

__all__ = ["HFIELD_TYPES", "normalized", "read_heights"]

HFIELD_TYPES = {"image/png": "png", "image/vnd.mujoco.hfield": "binary"}


def read_heights(data: bytes, kind: str, e: Element) -> np.ndarray:
    """Heights (rows, columns) of a file ("png", "binary"), the first row at the least y. Raises ParseError."""
    return _png(data, e) if kind == "png" else _binary(data, e)


def normalized(heights: np.ndarray) -> np.ndarray:
    """Heights from 0 to 1; all 0 where they are all the same."""
    low, high = heights.min(), heights.max()
    return (heights - low) / (high - low) if high > low else np.zeros_like(heights)


def _binary(data: bytes, e: Element) -> np.ndarray:
    """Two int32, rows and columns, then the heights as float32."""
    rows, columns = np.frombuffer(data, "<i4", 2).tolist() if len(data) >= 8 else (0, 0)
    if rows < 1 or columns < 1 or len(data) != 4 * (2 + rows * columns):
        raise e.error(f"{len(data)} bytes that begin with {rows} rows, {columns} columns; allowed: 4 (2 + nrow ncol) bytes", "file")
    heights = np.frombuffer(data, "<f4", rows * columns, 8).reshape(rows, columns).astype(float)
    if not np.isfinite(heights).all():
        raise e.error("a height in the file is not finite", "file")
    return heights


def _png(data: bytes, e: Element) -> np.ndarray:
    """How bright the pixels are, 0 to 255; the top row of an image is at the largest y.

    As in MuJoCo only red counts, and of 16 bits the upper 8.
    """
    try:
        from PIL import Image
    except ImportError:
        raise e.error('a PNG height field needs Pillow: pip install "xsim[mesh]"', "file") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=["PNG"])
            pixels = np.asarray(image) >> 8 if image.mode.startswith("I") else np.asarray(image.convert("RGB"))[..., 0]
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise e.error(f"cannot be read as PNG: {error}", "file") from None
    return pixels[::-1].astype(float)
