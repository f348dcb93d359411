"""nsample, delay, interp and interval: past controls of actuators and past readings of sensors."""

from __future__ import annotations

from dataclasses import replace

from xsim.io.mjcf.values import integer
from xsim.io.reader import Element
from xsim.spec import History

__all__ = ["NO_HISTORY", "checked_history", "read_history"]

INTERPOLATIONS = ("zoh", "linear", "cubic")
MAX_SAMPLES = 2**24
NO_HISTORY = History(samples=0)


def read_history(e: Element, default: History = NO_HISTORY) -> History:
    """The history that an element asks for; without samples there is none. default: of its default class. Raises ParseError."""
    period, phase = (e.floats("interval", (1, 2), (0.0,)).tolist() + [0.0])[:2]
    out = History(
        samples=integer(e, "nsample", default.samples),
        delay=e.number("delay", default.delay),
        interpolation=e.choice("interp", INTERPOLATIONS, default.interpolation),
        period=period,
        phase=phase,
    )
    if period < 0:
        raise e.error(f"found a period of {period:g}; allowed: numbers >= 0", "interval")
    if not -period < phase <= 0 and (period, phase) != (0.0, 0.0):
        raise e.error(f"found a phase of {phase:g}; allowed: more than minus the period and at most 0", "interval")
    return out


def checked_history(e: Element, history: History) -> History | None:
    """A history that can be kept, None without samples. A delay that is not positive is none, as in MuJoCo. Raises ParseError."""
    if history.samples > MAX_SAMPLES:
        raise e.error(f"found {history.samples}; allowed: at most {MAX_SAMPLES}", "nsample")
    if history.delay > 0 and history.samples <= 0:
        raise e.error(f"found {history.delay:g} without samples; allowed: with nsample > 0", "delay")
    if history.samples <= 0:
        return None
    return replace(history, delay=max(history.delay, 0.0))
