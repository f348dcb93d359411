"""Default values of the fields of specs."""

from __future__ import annotations

from dataclasses import field

import numpy as np

__all__ = ["identity", "zeros"]


def zeros(n: int):
    """A field whose default is an array of n zeros."""
    return field(default_factory=lambda: np.zeros(n))


def identity():
    """A field whose default is the identity quaternion."""
    return field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
