"""Default values of the fields of specs."""

from __future__ import annotations

from dataclasses import field

import numpy as np

__all__ = ["identity", "zeros"]


def zeros(n: int):
    return field(default_factory=lambda: np.zeros(n))


def identity():
    return field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
