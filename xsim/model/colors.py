"""The colours that things are drawn with."""

from __future__ import annotations

WORLD_COLOR = (0.58, 0.60, 0.63, 1.0)
PALETTE = (
    (0.27, 0.51, 0.75, 1.0), (0.93, 0.55, 0.28, 1.0), (0.40, 0.68, 0.42, 1.0), (0.80, 0.38, 0.40, 1.0),
    (0.56, 0.47, 0.74, 1.0), (0.32, 0.66, 0.68, 1.0), (0.85, 0.72, 0.32, 1.0), (0.62, 0.49, 0.42, 1.0),
)  # fmt: skip


def color(rgba, body: int) -> tuple[float, ...]:
    """Red, green, blue and opacity, 0 to 1: those of the file, else (None) one for each body; -1 is the world."""
    if rgba is not None:
        return tuple(min(max(float(c), 0.0), 1.0) for c in rgba)
    return WORLD_COLOR if body < 0 else PALETTE[body % len(PALETTE)]
