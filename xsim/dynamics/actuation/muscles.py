"""MuJoCo's muscles: force and activation as functions of length, velocity and activation (manual: Muscle actuators).

Lengths L are in units of the length of greatest force, velocities V of the greatest shortening velocity. ``params`` of a muscle are
MuJoCo's: least and greatest L, peak force (N; negative: found from scale), scale, lmin, lmax, vmax, fpmax, fvmax.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.spatial import stage

SMALLEST = 1e-15
"""Denominators are at least this large."""


def _at_least(x):
    # A selection, unlike a maximum, also drops derivatives that have grown beyond all numbers.
    return jnp.where(jnp.greater(x, SMALLEST), x, SMALLEST)


def _between(x, low, high):
    return jnp.minimum(jnp.maximum(x, low), high)


def _rise(x, low, high):
    """0 at low, 1 at high: two half parabolas that meet in the middle, constant beyond."""
    t = _between((x - low) / _at_least(high - low), 0.0, 1.0)
    return jnp.where(t < 0.5, 2.0 * t * t, 1.0 - 2.0 * (1.0 - t) * (1.0 - t))


def length_curve(length, lmin, lmax):
    """Active force over its peak at length L: 0 outside lmin..lmax, 1 at 1."""
    return _rise(length, lmin, 1.0) * _rise(-length, -lmax, -1.0)


def velocity_curve(velocity, fvmax):
    """Active force over the force at rest at velocity V: 0 below -1 (shortening), fvmax when lengthened fast."""
    shortening = 1.0 + _between(velocity, -1.0, 0.0)
    extra = fvmax - 1.0
    rest = extra - _between(velocity, 0.0, jnp.maximum(extra, 0.0))
    parabola = extra - rest * rest / jnp.where(extra > 0, extra, 1.0)
    return shortening * shortening + jnp.where(extra > 0, parabola, jnp.where(velocity > 0, extra, 0.0))


def passive_curve(length, lmax, fpmax):
    """Passive force over the peak active force at length L: a half parabola from 1 to half way to lmax, then straight."""
    x = (length - 1.0) / _at_least(0.5 * (lmax - 1.0))
    bent = _between(x, 0.0, 1.0)
    return fpmax * (0.5 * bent * bent + jnp.maximum(x - 1.0, 0.0))


def _peak(acc0, params):
    force, scale = params[2:4]
    return jnp.where(jnp.less(force, 0), scale / _at_least(acc0), force)


def _scaled(length, length_range, params):
    """Length L, and the length (m) that is 1."""
    unit = (length_range[1] - length_range[0]) / _at_least(params[1] - params[0])
    return params[0] + (length - length_range[0]) / _at_least(unit), unit


@stage
def gain(length, velocity, length_range, acc0, params):
    """Force per activation, N: at most 0, muscles pull. length, velocity: of the actuator (m, m/s), length_range: its least and
    greatest length, acc0: norm of the joint accelerations that unit force gives at the start."""
    lmin, lmax, vmax, _, fvmax = params[4:9]
    L, unit = _scaled(length, length_range, params)
    V = velocity / _at_least(unit * vmax)
    return -_peak(acc0, params) * length_curve(L, lmin, lmax) * velocity_curve(V, fvmax)


@stage
def bias(length, length_range, acc0, params):
    """Force at no activation, N: at most 0. Arguments as in `gain`."""
    L, _ = _scaled(length, length_range, params)
    return -_peak(acc0, params) * passive_curve(L, params[5], params[7])


@stage
def activation_rate(control, activation, params):
    """Rate of the activation, 1/s (Millard et al. 2013). params: time constants of activation and deactivation (s), and the width of
    the blend between them in control minus activation; 0: none."""
    rise, fall, width = params
    excess = _between(control, 0.0, 1.0) - activation
    level = 0.5 + 1.5 * _between(activation, 0.0, 1.0)
    rising, falling = rise * level, fall / level
    smooth = jnp.greater_equal(width, SMALLEST)
    x = _between(excess / jnp.where(smooth, width, 1.0) + 0.5, 0.0, 1.0)
    blend = jnp.where(smooth, x * x * x * (x * (6.0 * x - 15.0) + 10.0), jnp.where(excess > 0, 1.0, 0.0))
    return excess / _at_least(falling + (rising - falling) * blend)
