"""What random numbers are distributed by, and how they change what a model has. Both are registries by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.spatial import quat_exp, quat_mul

__all__ = ["DISTRIBUTIONS", "RELATIVE", "Distribution", "uniform"]


class Distribution(NamedTuple):
    """sample(key, shape, dtype, *numbers, limit=None), low(*numbers, limit): infimum, check(selector, *numbers, limit)."""

    sample: Callable
    low: Callable
    check: Callable


def uniform(key, shape, dtype, low, high, limit=None):
    """Numbers of ``shape`` in [low, high)."""
    low, high = jnp.asarray(low, dtype), jnp.asarray(high, dtype)
    x = low + (high - low) * jax.random.uniform(key, shape, dtype)
    return jnp.minimum(x, jnp.where(high > low, jnp.nextafter(high, low), high))


def _log_uniform(key, shape, dtype, low, high, limit=None):
    x = jnp.exp(uniform(key, shape, dtype, np.log(low), np.log(high)))
    return jnp.clip(x, jnp.asarray(low, dtype), jnp.asarray(high, dtype))


def _normal(key, shape, dtype, mean, std, limit=None):
    mean, std = jnp.asarray(mean, dtype), jnp.asarray(std, dtype)
    if limit is None:
        return mean + std * jax.random.normal(key, shape, dtype)
    low, high = (jnp.asarray(x, dtype) for x in limit)
    x = mean + std * jax.random.truncated_normal(key, (low - mean) / std, (high - mean) / std, shape, dtype)
    return jnp.clip(x, low, high)


def _check_order(selector, low, high, limit=None, name="low, high"):
    if not (low <= high).all():
        raise ValueError(f"{selector}: {name} must be ascending, found {low}, {high}")


def _check_log_uniform(selector, low, high, limit):
    _check_order(selector, low, high, limit)
    if not (low > 0).all():
        raise ValueError(f"{selector}: log_uniform needs positive numbers, found {low}")


def _check_normal(selector, mean, std, limit):
    if not (std > 0 if limit is not None else std >= 0).all():
        raise ValueError(f"{selector}: the standard deviation must be positive, found {std}")
    if limit is not None:
        _check_order(selector, *limit, None, "limit")


DISTRIBUTIONS: dict[str, Distribution] = {
    "uniform": Distribution(uniform, lambda low, high, limit: low, _check_order),
    "log_uniform": Distribution(_log_uniform, lambda low, high, limit: low, _check_log_uniform),
    "normal": Distribution(_normal, lambda mean, std, limit: np.asarray(-math.inf) if limit is None else limit[0], _check_normal),
}


def _rotate(quat, rotation_vector):
    turn = quat_exp(tuple(rotation_vector[..., k] for k in range(3)))
    return jnp.stack(jnp.broadcast_arrays(*quat_mul(tuple(quat[..., k] for k in range(4)), turn)), -1)


RELATIVE: dict[str, Callable] = {
    "value": lambda nominal, x: jnp.broadcast_to(x, nominal.shape),
    "scale": lambda nominal, x: nominal * x,
    "offset": lambda nominal, x: nominal + x,
    "rotate": _rotate,
}
