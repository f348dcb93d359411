"""MuJoCo's muscles: force and activation as functions of length, velocity and activation (manual: Muscle actuators).

The normalized length L is in units of the length at which the force is greatest, the normalized velocity V in units of the greatest
shortening velocity. ``params`` are MuJoCo's: least and greatest L, peak force (N; negative: computed from scale), scale, lmin, lmax, vmax,
fpmax, fvmax.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.spatial import stage

MIN_DENOMINATOR = 1e-15


def _denominator(x):
    # Unlike a maximum, a selection also drops infinite derivatives of x.
    return jnp.where(jnp.greater(x, MIN_DENOMINATOR), x, MIN_DENOMINATOR)


def _clip(x, low, high):
    return jnp.minimum(jnp.maximum(x, low), high)


def _smooth_step(x, low, high):
    """0 below low, 1 above high; between them two half parabolas that join in the middle."""
    t = _clip((x - low) / _denominator(high - low), 0.0, 1.0)
    return jnp.where(t < 0.5, 2.0 * t * t, 1.0 - 2.0 * (1.0 - t) * (1.0 - t))


def length_curve(length, lmin, lmax):
    """Active force at length L, relative to the peak force: 0 outside lmin..lmax, 1 at L = 1."""
    return _smooth_step(length, lmin, 1.0) * _smooth_step(-length, -lmax, -1.0)


def velocity_curve(velocity, fvmax):
    """Active force at velocity V, relative to the force at V = 0: 0 for V below -1 (shortening), fvmax for fast lengthening."""
    shortening = 1.0 + _clip(velocity, -1.0, 0.0)
    extra = fvmax - 1.0
    rest = extra - _clip(velocity, 0.0, jnp.maximum(extra, 0.0))
    parabola = extra - rest * rest / jnp.where(extra > 0, extra, 1.0)
    return shortening * shortening + jnp.where(extra > 0, parabola, jnp.where(velocity > 0, extra, 0.0))


def passive_curve(length, lmax, fpmax):
    """Passive force at length L, relative to the peak active force: a half parabola from L = 1 to halfway to lmax, then linear."""
    x = (length - 1.0) / _denominator(0.5 * (lmax - 1.0))
    quadratic_part = _clip(x, 0.0, 1.0)
    return fpmax * (0.5 * quadratic_part * quadratic_part + jnp.maximum(x - 1.0, 0.0))


def _peak_force(acc0, params):
    force, scale = params[2:4]
    return jnp.where(jnp.less(force, 0), scale / _denominator(acc0), force)


def _normalized_length(length, length_range, params):
    """The length L, and the length (m) at which L changes by 1."""
    unit = (length_range[1] - length_range[0]) / _denominator(params[1] - params[0])
    return params[0] + (length - length_range[0]) / _denominator(unit), unit


@stage
def gain(length, velocity, length_range, acc0, params):
    """Force per activation, N; at most 0, because muscles only pull.

    length, velocity: of the transmission (m, m/s). length_range: its least and greatest length (m). acc0: norm of the joint acceleration
    under unit force at the initial configuration."""
    lmin, lmax, vmax, _, fvmax = params[4:9]
    L, unit = _normalized_length(length, length_range, params)
    V = velocity / _denominator(unit * vmax)
    return -_peak_force(acc0, params) * length_curve(L, lmin, lmax) * velocity_curve(V, fvmax)


@stage
def bias(length, length_range, acc0, params):
    """Passive force, N; at most 0. Arguments as in `gain`."""
    L, _ = _normalized_length(length, length_range, params)
    return -_peak_force(acc0, params) * passive_curve(L, params[5], params[7])


@stage
def activation_rate(control, activation, params):
    """Rate of the activation, 1/s (Millard et al. 2013).

    params: time constants of activation and deactivation (s), and the range of control minus activation over which the one is blended into
    the other; 0: no blending."""
    activation_time, deactivation_time, width = params
    excess = _clip(control, 0.0, 1.0) - activation
    level = 0.5 + 1.5 * _clip(activation, 0.0, 1.0)
    rising, falling = activation_time * level, deactivation_time / level
    smooth = jnp.greater_equal(width, MIN_DENOMINATOR)
    x = _clip(excess / jnp.where(smooth, width, 1.0) + 0.5, 0.0, 1.0)
    blend = jnp.where(smooth, x * x * x * (x * (6.0 * x - 15.0) + 10.0), jnp.where(excess > 0, 1.0, 0.0))
    return excess / _denominator(falling + (rising - falling) * blend)
