"""Activation dynamics, gains and biases of actuators, by kind. Source: MuJoCo's documentation, Computation, Actuation model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation import muscles
from xsim.registry import ACTIVATION_DYNAMICS, ACTUATOR_BIASES, ACTUATOR_GAINS
from xsim.spatial import add, mul, sub, total

MIN_TIME_CONSTANT = 1e-15
"""Least time constant of a filter, s."""


class ActivationDynamics(NamedTuple):
    """rate(ctrl, act, parameters) -> d act / dt. advance(act, rate, parameters, dt) -> the activation after dt; None: act + rate dt.

    parameters: the ten numbers of ``actuator.dynamics``."""

    rate: Callable
    advance: Callable | None = None


class ActuatorState(NamedTuple):
    """The arguments of gains and biases.

    * length, velocity: of the transmission (m, m/s or rad, rad/s).
    * length_range: least and greatest length; used by muscles.
    * acc0: norm of the joint acceleration under unit force at the initial configuration; used by muscles.
    """

    length: object
    velocity: object
    length_range: tuple
    acc0: object


class ActuatorLaw(NamedTuple):
    """A kind of gain or bias.

    * compute(parameters, state: ActuatorState) -> gain or bias. parameters: the ten numbers of ``actuator.gain`` or ``actuator.bias``.
    * velocity, length: whether it depends on the velocity, and on the length.
    * muscle: whether it needs ``length_range`` and ``acc0``, which are computed when a model is loaded.
    """

    compute: Callable
    velocity: bool = True
    muscle: bool = False
    length: bool = True


def needs_length_range(gain: str, bias: str) -> bool:
    """Whether the gain or the bias of an actuator needs its ``length_range`` and ``acc0``."""
    return ACTUATOR_GAINS[gain].muscle or ACTUATOR_BIASES[bias].muscle


def depends_on(motion: str, gain: str, bias: str) -> bool:
    """Whether an actuator's force depends on the "length" or the "velocity" of its transmission."""
    return getattr(ACTUATOR_GAINS[gain], motion) or getattr(ACTUATOR_BIASES[bias], motion)


def _filter_rate(ctrl, act, parameters):
    return sub(ctrl, act) / jnp.maximum(parameters[0], MIN_TIME_CONSTANT)


def _filter_exactly(act, rate, parameters, dt):
    """The exact solution of the filter after dt, for a constant control."""
    tau = jnp.maximum(parameters[0], MIN_TIME_CONSTANT)
    return add(act, mul(rate, -tau * jnp.expm1(-dt / tau)))


def _affine(parameters, state: ActuatorState):
    return total([parameters[0], mul(parameters[1], state.length), mul(parameters[2], state.velocity)])


ACTIVATION_DYNAMICS.register("none", ActivationDynamics(lambda ctrl, act, parameters: 0.0))
ACTIVATION_DYNAMICS.register("integrator", ActivationDynamics(lambda ctrl, act, parameters: ctrl))
ACTIVATION_DYNAMICS.register("filter", ActivationDynamics(_filter_rate))
ACTIVATION_DYNAMICS.register("filterexact", ActivationDynamics(_filter_rate, _filter_exactly))
ACTIVATION_DYNAMICS.register("muscle", ActivationDynamics(lambda ctrl, act, n: muscles.activation_rate(ctrl, act, n[:3])))

ACTUATOR_GAINS.register("fixed", ActuatorLaw(lambda parameters, state: parameters[0], velocity=False, length=False))
ACTUATOR_GAINS.register("affine", ActuatorLaw(_affine))
for kind in ("pid", "plugin"):  # the signals of their controllers are forces
    ACTUATOR_GAINS.register(kind, ActuatorLaw(lambda parameters, state: 1.0, velocity=False, length=False))
for kind in ("dcmotor", "so3"):  # their forces are those of their controllers
    ACTUATOR_GAINS.register(kind, ActuatorLaw(lambda parameters, state: 0.0))
    ACTUATOR_BIASES.register(kind, ActuatorLaw(lambda parameters, state: 0.0, velocity=False))
ACTUATOR_GAINS.register(
    "muscle", ActuatorLaw(lambda n, s: muscles.gain(s.length, s.velocity, s.length_range, s.acc0, n), muscle=True)
)
ACTUATOR_BIASES.register("none", ActuatorLaw(lambda parameters, state: 0.0, velocity=False, length=False))
ACTUATOR_BIASES.register("affine", ActuatorLaw(_affine))
ACTUATOR_BIASES.register("muscle", ActuatorLaw(lambda n, s: muscles.bias(s.length, s.length_range, s.acc0, n), velocity=False, muscle=True))
