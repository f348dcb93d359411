"""Direct-current motors: back-EMF, winding current, heating, cogging and LuGre friction, with a controller of position and velocity.

Source: MuJoCo 4.0's documentation, actuator dcmotor; Canudas de Wit et al. (1995), A new model for control of systems with friction. K is
the motor constant, R the resistance, i the current, V the voltage: the torque is K i, and V = R i + K velocity without inductance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.controllers import Controller, ControllerState, antiwindup, within_reach
from xsim.registry import ACTUATOR_CONTROLLERS
from xsim.spatial import add, mul, stage, sub

INPUTS = ("pos", "vel", "ff", "voltage")
MEMORY = ("slew", "integral", "temperature", "bristle", "current")


class Motor(NamedTuple):
    """The parameters of a motor.

    * resistance (ohm), constant (N m/A or V s/rad): R and K. temperature_coefficient (1/K), reference, ambient (degrees Celsius): R grows
      with the temperature.
    * kp, ki, kd: gains of the controller, torque per error. max_voltage: of the controller, V. max_integral. max_slew: rate of its first
      input. 0: no limit.
    * time_constant: of the winding, s. max_current_rate: A/s, 0: no limit.
    * thermal_resistance (K/W), heat_capacity (J/K).
    * cogging (N m), poles, phase (rad).
    * bristle_stiffness (N m/rad), bristle_damping (N m s/rad), coulomb, static (N m), stribeck (rad/s).
    """

    resistance: Any
    constant: Any
    temperature_coefficient: Any
    reference: Any
    kp: Any
    ki: Any
    kd: Any
    max_voltage: Any
    time_constant: Any
    max_current_rate: Any
    thermal_resistance: Any
    heat_capacity: Any
    ambient: Any
    bristle_stiffness: Any
    bristle_damping: Any
    max_slew: Any
    max_integral: Any
    cogging: Any
    poles: Any
    phase: Any
    coulomb: Any
    static: Any
    stribeck: Any


def _motor(c: ControllerState) -> Motor:
    return Motor(*c.gain[:8], *c.dynamics[:9], *c.bias[:6])


@stage
def _limited(x, limit):
    """x within -limit and limit; 0 is no limit."""
    return jnp.where(limit > 0, jnp.clip(x, -limit, limit), x)


def _inputs(c: ControllerState) -> dict:
    """The inputs of the controller after the limit of the first one's rate."""
    out = {name: x for name, x in c.inputs.items() if name != "voltage"}
    if "slew" in c.memory:
        first = next(iter(out))
        out[first] = within_reach(out[first], c.memory["slew"], mul(_motor(c).max_slew, c.dt))
    return out


def _voltage(c: ControllerState):
    """The terminal voltage, V."""
    m, inputs, applied = _motor(c), _inputs(c), c.inputs.get("voltage", 0.0)
    if not inputs:
        return applied
    integral = mul(m.ki, c.memory["integral"]) if "integral" in c.memory else 0.0
    torque = _torque(m, c.length, c.velocity, inputs.get("pos", 0.0), inputs.get("vel", 0.0), add(inputs.get("ff", 0.0), integral))
    return add(_drive(m, torque, c.velocity), applied)


@stage
def _torque(m: Motor, length, velocity, pos, vel, rest):
    return m.kp * (pos - length) + m.kd * (vel - velocity) + rest


@stage
def _drive(m: Motor, torque, velocity):
    """The voltage for a torque: that of the current, and against the back-EMF."""
    return _limited(m.resistance / m.constant * torque + m.constant * velocity, m.max_voltage)


def _resistance(c: ControllerState):
    """The resistance at the winding's temperature, ohm."""
    m = _motor(c)
    return _warm_resistance(m, c.memory["temperature"]) if "temperature" in c.memory else m.resistance


@stage
def _warm_resistance(m: Motor, rise):
    return m.resistance * (1.0 + m.temperature_coefficient * (rise + m.ambient - m.reference))


@stage
def _static_current(m: Motor, voltage, velocity, resistance):
    return (voltage - m.constant * velocity) / resistance


@stage
def _current_rate(m: Motor, static_current, current):
    return _limited((static_current - current) / m.time_constant, m.max_current_rate)


@stage
def _after_decay(current, rate, time_constant, dt):
    """The current after dt, of which rate is the derivative now."""
    return current - rate * time_constant * jnp.expm1(-dt / time_constant)


def _force(c: ControllerState):
    """The electrical torque. With inductance it is that of the current at the end of the step."""
    m = _motor(c)
    current = _static_current(m, _voltage(c), c.velocity, _resistance(c))
    if "current" in c.memory:
        current = _after_decay(c.memory["current"], _current_rate(m, current, c.memory["current"]), m.time_constant, c.dt)
    return mul(m.constant, current)


@stage
def _bristle_decay(m: Motor, velocity):
    """The rate at which the bristle's deflection decays, 1/s."""
    apart = m.stribeck > 0
    x = velocity / jnp.where(apart, m.stribeck, 1.0)
    level = m.coulomb + jnp.where(apart, (m.static - m.coulomb) * jnp.exp(-x * x), 0.0)
    return m.bristle_stiffness * jnp.abs(velocity) / level


@stage
def _cogging(m: Motor, length):
    return m.cogging * jnp.sin(m.poles * length + m.phase)


def _friction(c: ControllerState):
    """Cogging, and the friction of the bristle's deflection z: -(s0 z + s1 dz/dt)."""
    m = _motor(c)
    torque = _cogging(m, c.length)
    if "bristle" in c.memory:
        deflection = c.memory["bristle"]
        torque = sub(torque, add(mul(m.bristle_stiffness, deflection), mul(m.bristle_damping, _bristle_rate(c))))
    return torque


def _bristle_rate(c: ControllerState):
    return sub(c.velocity, mul(_bristle_decay(_motor(c), c.velocity), c.memory["bristle"]))


def _friction_damping(c: ControllerState):
    """As in MuJoCo only the damping of the bristle."""
    return _motor(c).bristle_damping if "bristle" in c.memory else 0.0


@stage
def _cogging_stiffness(m: Motor, length):
    return -m.cogging * m.poles * jnp.cos(m.poles * length + m.phase)


def _friction_stiffness(c: ControllerState):
    """As in MuJoCo only that of cogging."""
    return _cogging_stiffness(_motor(c), c.length)


def _rates(c: ControllerState) -> dict:
    m, inputs, out = _motor(c), _inputs(c), {}
    current = _static_current(m, _voltage(c), c.velocity, _resistance(c))
    if "slew" in c.memory:
        out["slew"] = sub(next(iter(inputs.values())), c.memory["slew"]) / c.dt
    if "integral" in c.memory:
        out["integral"] = antiwindup(sub(inputs["pos"], c.length), c.memory["integral"], m.max_integral)
    if "temperature" in c.memory:
        out["temperature"] = _heating(m, _resistance(c), c.memory.get("current", current), c.memory["temperature"])
    if "bristle" in c.memory:
        out["bristle"] = _bristle_rate(c)
    if "current" in c.memory:
        out["current"] = _current_rate(m, current, c.memory["current"])
    return out


@stage
def _heating(m: Motor, resistance, current, rise):
    return (resistance * current * current - rise / m.thermal_resistance) / m.heat_capacity


@stage
def _bristle_after(deflection, rate, decay, dt):
    """The exact deflection after dt at this velocity."""
    exponent = decay * dt
    small = exponent < 1e-8
    return deflection + rate * jnp.where(small, dt, -jnp.expm1(-exponent) / jnp.where(small, 1.0, decay))


def _advance(c: ControllerState, rates: dict) -> dict:
    m = _motor(c)
    out = {name: add(x, mul(rates[name], c.dt)) for name, x in c.memory.items()}
    if "integral" in out:
        out["integral"] = _limited(out["integral"], m.max_integral)
    if "bristle" in out:
        out["bristle"] = _bristle_after(c.memory["bristle"], rates["bristle"], _bristle_decay(m, c.velocity), c.dt)
    if "current" in out:
        out["current"] = _after_decay(c.memory["current"], rates["current"], m.time_constant, c.dt)
    return out


ACTUATOR_CONTROLLERS.register(
    "dcmotor",
    Controller(
        INPUTS, MEMORY, _rates, force=_force, friction=_friction, friction_damping=_friction_damping,
        friction_stiffness=_friction_stiffness, advance=_advance,
    ),  # fmt: skip
)
