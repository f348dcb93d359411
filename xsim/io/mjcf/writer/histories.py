"""nsample, delay, interp and interval: past controls of actuators and past readings of sensors."""

from __future__ import annotations

from typing import Any

from xsim.io.writing.elements import unless
from xsim.spec import History

__all__ = ["history_attributes"]


def history_attributes(history: History | None) -> dict[str, Any]:
    """The attributes of a history, none for None."""
    if history is None:
        return {}
    return {
        "nsample": history.samples,
        "delay": unless(0.0, history.delay),
        "interp": unless("zoh", history.interpolation),
        "interval": (history.period, history.phase) if history.period else None,
    }
