"""Comparison with the numbers of reference engines."""

from __future__ import annotations

import jax
import numpy as np


def close(name: str, found, wanted, tolerance: float, scale=None) -> None:
    """Assert that the largest difference is within ``tolerance`` of the largest wanted number (at least 1)."""
    found, wanted = np.asarray(found), np.asarray(wanted, float)
    scale = max(1.0, np.abs(wanted).max(initial=0.0)) if scale is None else scale
    error = np.abs(found - wanted).max(initial=0.0) / scale
    assert error <= tolerance, f"{name}: relative difference {error:.2e}, tolerance {tolerance:.0e}"


def quat_difference(a, b):
    """Largest difference of components of unit quaternions, sign free: (...,)."""
    return np.minimum(np.abs(a - b).max(-1), np.abs(a + b).max(-1))


def of_names(data: dict, names) -> np.ndarray:
    """Rows of a dictionary in the order of the names."""
    return np.array([data[n] for n in names])


QUICK = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
"""Compiler options for what runs once or twice: what it costs is compiling."""
AS_USERS = {"xla_backend_optimization_level": 3} if jax.default_backend() == "cpu" else None
"""Compiler options where the rounding of optimized code counts: those of XLA, and not those of `conftest.py`."""
