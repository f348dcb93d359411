"""How soft the rows of constraints are: impedance, stiffness and damping of the reference acceleration, and regularization.

Source: MuJoCo's documentation, Computation, Constraint model.
"""

from __future__ import annotations

import jax.numpy as jnp

MIN_IMPEDANCE, MAX_IMPEDANCE = 1e-4, 0.9999  # MuJoCo's mjMINIMP, mjMAXIMP
MIN_VALUE = 1e-15  # smallest divisor, MuJoCo's mjMINVAL
DEFAULT = (0.02, 1.0)  # time constant and damping ratio


def _power(x, p):
    """x^p of x >= 0, with finite derivatives at 0."""
    positive = x > 0
    return jnp.where(positive, jnp.where(positive, x, 1.0) ** p, 0.0)


def impedance(distance, solimp):
    """The impedance d, between 0 and 1, at a violation. solimp: five numbers (dmin, dmax, width, midpoint, power). d grows from dmin at
    zero to dmax at the width. The curve has two pieces x^power, which join at the midpoint."""
    dmin, dmax, width, midpoint, power = solimp
    dmin, dmax, midpoint = (jnp.clip(x, MIN_IMPEDANCE, MAX_IMPEDANCE) for x in (dmin, dmax, midpoint))
    power, has_width = jnp.maximum(power, 1.0), width > MIN_VALUE
    x = jnp.clip(jnp.abs(distance) / jnp.where(has_width, width, 1.0), 0.0, 1.0)
    # x^power / midpoint^(power - 1) up to the midpoint, the same from the other end after it.
    is_first = x <= midpoint
    end = jnp.where(is_first, midpoint, 1.0 - midpoint)
    piece = end * _power(jnp.where(is_first, x, 1.0 - x) / end, power)
    return jnp.where(has_width, dmin + jnp.where(is_first, piece, 1.0 - piece) * (dmax - dmin), 0.5 * (dmin + dmax))


def is_mixed(solref):
    """Whether one of the two numbers is positive only, which makes neither (time constant, damping ratio) nor (-stiffness, -damping)."""
    time, ratio = solref
    return (time > 0) != (ratio > 0)


def stiffness_damping(solref, solimp, dt, safe: bool):
    """Stiffness k and damping b of the reference acceleration. solref: (time constant, damping ratio), or (-stiffness, -damping). safe:
    whether time constants are at least two time steps (MuJoCo's refsafe)."""
    time, ratio = solref
    dmax = jnp.clip(solimp[1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    is_standard = (time > 0) & (ratio > 0)
    if safe:  # not jnp.maximum: it halves the derivative if both are equal, as they often are
        time = jnp.where(is_standard & (time < 2.0 * dt), 2.0 * dt, time)
    safe_time, safe_ratio = jnp.where(is_standard, time, 1.0), jnp.where(is_standard, ratio, 1.0)
    k = jnp.where(is_standard, 1.0 / jnp.maximum(MIN_VALUE, (dmax * safe_time * safe_ratio) ** 2), -time / dmax**2)
    b = jnp.where(is_standard, 2.0 / jnp.maximum(MIN_VALUE, dmax * safe_time), -ratio / dmax)
    return k, b


def reference_law(solref, solimp, d, dt, safe: bool, by_step: bool, is_limit=True, has_spring=1.0) -> tuple:
    """(K, b, S) of the reference acceleration -b J v - K r and of R, which is divided by S. S is None if it is 1. A mixed solref counts as
    `DEFAULT`, as in MuJoCo.

    by_step: whether spring and damper act at the end of a step of h (MuJoCo's integrator ``discrete``): r becomes r + h J v + h^2 J a, and
    J v becomes J v + h J a. With k d and b of the continuous reference, S = 1 + b h + k d h^2, K = k d / S, and b becomes
    (b + h k d) / S. ``safe`` then makes the spring of a limit or contact, given as (time constant, damping ratio), at most as stiff as a
    step resolves, k d = 1 / h^2. has_spring: 0.0 for dry friction, which has none in S.
    Source: MuJoCo 4.0's documentation; probes."""
    mixed = is_mixed(solref)
    solref = [jnp.where(mixed, default, x) for default, x in zip(DEFAULT, solref, strict=True)]
    k, b = stiffness_damping(solref, solimp, dt, safe and not by_step)
    k = k * d
    if not by_step:
        return k, b, None
    k = k * has_spring
    if safe:
        time, ratio = solref
        rebounds = is_limit & (time > 0) & (ratio > 0) & (k * dt * dt > 1.0)
        k, b = jnp.where(rebounds, 1.0 / (dt * dt), k), jnp.where(rebounds, 2.0 * ratio / (dt * jnp.sqrt(d)), b)
    scale = 1.0 + b * dt + k * dt * dt
    return k / scale, (b + dt * k) / scale, scale


def regularization(d, mobility, scale):
    """R of rows. scale: S of `reference_law`; the effective impedance stays below `MAX_IMPEDANCE`."""
    R = (1.0 - d) / d * mobility
    return jnp.maximum(MIN_VALUE, R if scale is None else jnp.maximum(R / scale, (1.0 - MAX_IMPEDANCE) / MAX_IMPEDANCE * mobility))
