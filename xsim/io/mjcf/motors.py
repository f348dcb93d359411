"""<dcmotor>: the attributes of a motor, and the parameters that they stand for (manual: actuator/dcmotor).

The parameters of gain, bias and dynamics, which <general> may give too, are those of `xsim.dynamics.actuation.dc_motors.Motor`, in order.
"""

from __future__ import annotations

import math

from xsim.io.reader import Element

__all__ = ["INPUTS", "check_motor", "motor_memory", "motor_of", "motor_parameters", "parameter_memory", "read_motor"]

INPUTS = ("pos", "vel", "ff", "voltage")
# How many numbers each attribute has. One with fewer numbers has zeros for the others, or those of the class.
WIDTHS = {
    "motorconst": 2, "resistance": 1, "nominal": 3, "saturation": 3, "inductance": 2, "cogging": 3, "controller": 6, "thermal": 6,
    "lugre": 5,
}  # fmt: skip
# Which of the missing numbers are those of the class.
FROM_CLASS = {"cogging": (0, 1, 2), "controller": tuple(range(6)), "lugre": tuple(range(5)), "thermal": tuple(range(6)), "saturation": (2,)}
SIGNED = {"cogging": (0, 2), "thermal": (3, 4, 5)}  # which numbers may be negative


def read_motor(e: Element, motor: dict[str, tuple], damping: float) -> dict[str, tuple]:
    """The numbers of a motor by attribute, and its ``input``, over those of its defaults. Raises ParseError.

    Each element, also one of a class, stands for the motor constant, resistance, time constant and greatest torque that follow from it:
    what inherits these does not see from which numbers they came. damping: of the actuator, as far as it is given here."""
    out = {name: (0.0,) * width for name, width in WIDTHS.items()} | {"input": ("voltage",)} | motor
    for name, width in WIDTHS.items():
        given = e.floats(name, tuple(range(1, width + 1)), out[name]).tolist()
        if any(x < 0 for i, x in enumerate(given) if i not in SIGNED.get(name, ())):
            raise e.error(f"found {e.raw(name)!r}; allowed: numbers >= 0", name)
        above = _without_time_constant(e, out[name]) if name == "thermal" and e.has(name) else out[name]
        out[name] = (*given, *(above[i] if i in FROM_CLASS.get(name, ()) else 0.0 for i in range(len(given), width)))
    if e.has("input"):
        words = tuple((e.raw("input") or "").split()) or ("voltage",)
        out["input"] = () if words == ("none",) else words
        if out["input"] != tuple(word for word in INPUTS if word in out["input"]):
            raise e.error(f"found {e.raw('input')!r}; allowed: none, or some of {', '.join(INPUTS)}, in this order", "input")
    return out | _derived(e, out, damping)


def motor_memory(motor: dict[str, tuple]) -> tuple[str, ...]:
    """The activations of a motor, in order."""
    _, ki, _, slew, _, _ = motor["controller"]
    has = {
        "slew": slew > 0,
        "integral": ki > 0,
        "temperature": any(motor["thermal"][:3]),
        "bristle": motor["lugre"][0] > 0,
        "current": any(motor["inductance"]),
    }
    return tuple(name for name, on in has.items() if on)


def motor_parameters(e: Element, motor: dict[str, tuple]) -> tuple[list, list, list]:
    """Parameters of gain, bias and dynamics. Raises ParseError for a motor that is not determined."""
    (constant, _), (resistance,) = motor["motorconst"], motor["resistance"]
    if not resistance > 0:
        raise e.error("the resistance is missing; allowed: resistance, or nominal", "resistance" if e.has("resistance") else None)
    if not constant > 0 and motor["input"]:
        raise e.error('the motor constant is missing; allowed: motorconst or nominal, or input="none"')
    kp, ki, kd, slew, most, voltage = motor["controller"]
    _check_controller(e, (kp, ki, kd, slew), motor["input"], "controller")
    heat_resistance, capacity, temperature, reference, ambient = _thermal(e, motor["thermal"])
    (_, time_constant), (_, _, rate) = motor["inductance"], motor["saturation"]
    if rate and not time_constant:
        raise e.error("found a rate of the current without inductance; allowed: with inductance", "saturation")
    amplitude, poles, phase = motor["cogging"]
    stiffness, bristle_damping, coulomb, static, stribeck = motor["lugre"]
    if stiffness and not coulomb > 0:
        raise e.error("found no Coulomb friction; allowed: a number > 0", "lugre")
    gain = [resistance, constant, temperature, reference, kp, ki, kd, voltage, 0.0, 0.0]
    dynamics = [time_constant, rate, heat_resistance, capacity, ambient, stiffness, bristle_damping, slew, most, 0.0]
    return gain, [amplitude, poles, phase, coulomb, static, stribeck, 0.0, 0.0, 0.0, 0.0], dynamics


def motor_of(gain, bias, dynamics, inputs: tuple[str, ...]) -> dict[str, tuple]:
    """The attributes of a motor that has these parameters."""
    resistance, constant, temperature, reference, kp, ki, kd, voltage, *_ = gain
    time_constant, rate, heat_resistance, capacity, ambient, stiffness, bristle_damping, slew, most, _ = dynamics
    return {
        "motorconst": (constant, 0.0),
        "resistance": (resistance,),
        "saturation": (0.0, 0.0, rate),
        "inductance": (0.0, time_constant),
        "cogging": tuple(bias[:3]),
        "controller": (kp, ki, kd, slew, most, voltage),
        "thermal": (heat_resistance, capacity, 0.0, temperature, reference, ambient),
        "lugre": (stiffness, bristle_damping, *bias[3:6]),
        "input": inputs,
    }


def parameter_memory(gain, dynamics) -> tuple[str, ...]:
    """The activations of a motor that has these parameters, in order."""
    on = {"slew": dynamics[7], "integral": gain[5], "temperature": dynamics[2], "bristle": dynamics[5], "current": dynamics[0]}
    return tuple(name for name, x in on.items() if x > 0)


def check_motor(e: Element, gain, bias, dynamics, inputs: tuple[str, ...]) -> None:
    """Raises ParseError for parameters that make no motor."""
    _check_controller(e, (*gain[4:7], dynamics[7]), inputs, "gainprm")
    if not gain[0] > 0:
        raise e.error(f"found the resistance {gain[0]:g}; allowed: a number > 0", "gainprm")
    if dynamics[5] > 0 and not bias[3] > 0:
        raise e.error("found no Coulomb friction; allowed: a number > 0", "biasprm")


def _check_controller(e: Element, numbers: tuple, inputs: tuple[str, ...], attribute: str) -> None:
    """numbers: kp, ki, kd and the limit of slew."""
    if any(x > 0 for x in numbers) and not set(inputs) - {"voltage"}:
        raise e.error("found gains without an input of the controller; allowed: with input pos, vel or ff", attribute)
    if numbers[1] > 0 and "pos" not in inputs:
        raise e.error("found ki without the input pos; allowed: with it", attribute)


def _derived(e: Element, motor: dict[str, tuple], damping: float) -> dict[str, tuple]:
    """What follows from the attributes of an element: the motor constant and the resistance, also from the nominal operating point, which
    is then zero, and the time constant and the greatest torque, as far as these are known. Raises ParseError."""
    (torque_constant, emf_constant), (resistance,) = motor["motorconst"], motor["resistance"]
    voltage, stall, speed = motor["nominal"]
    has_nominal = voltage > 0 and stall > 0 and speed > 0
    if any(motor["nominal"]) and not has_nominal:
        raise e.error("found a number that is not positive; allowed: three numbers > 0", "nominal")
    if has_nominal and not emf_constant:
        emf_constant = _emf_constant(voltage, stall, speed, resistance, damping)
    both = torque_constant > 0 and emf_constant > 0
    constant = math.sqrt(torque_constant * emf_constant) if both else torque_constant or emf_constant
    if has_nominal and not resistance:
        resistance = constant * voltage / stall
    (inductance, time_constant), (torque, current, rate) = motor["inductance"], motor["saturation"]
    if inductance > 0 and resistance > 0:
        inductance, time_constant = 0.0, inductance / resistance
    if constant > 0:
        torque, current = torque or constant * current, 0.0
    return {
        "motorconst": (constant, 0.0),
        "resistance": (resistance,),
        "nominal": (0.0, 0.0, 0.0),
        "inductance": (inductance, time_constant),
        "saturation": (torque, current, rate),
    }


def _emf_constant(voltage: float, stall: float, speed: float, resistance: float, damping: float) -> float:
    """The back-EMF constant with which the motor, loaded by its damping alone, has its no-load speed."""
    if not damping > 0:
        return voltage / speed
    if not resistance:
        return voltage / speed - voltage * damping / stall
    square = voltage**2 - 4 * resistance * damping * speed**2
    return (voltage + math.sqrt(square)) / (2 * speed) if square >= 0 else voltage / speed


def _thermal(e: Element, numbers: tuple) -> tuple[float, ...]:
    """Thermal resistance, heat capacity, temperature coefficient, reference and ambient temperature."""
    resistance, capacity, time_constant, coefficient, reference, ambient = numbers
    given = [x for x in (resistance, capacity, time_constant) if x]
    if len(given) == 1:
        raise e.error("found one of resistance, capacity and time constant; allowed: two of them, or none", "thermal")
    if given and not resistance:
        resistance = time_constant / capacity
    if given and time_constant:
        capacity = time_constant / resistance
    return resistance, capacity, coefficient, reference, ambient


def _without_time_constant(e: Element, numbers: tuple) -> tuple[float, ...]:
    """The numbers of ``thermal`` with resistance and capacity in the place of the time constant."""
    resistance, capacity, *others = _thermal(e, numbers)
    return resistance, capacity, 0.0, *others
