"""Values of attributes that several elements share: ranges, softness, polynomials, colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.writing.elements import unless
from xsim.spec import Soft

__all__ = ["polynomial", "ranges", "soft"]

FAR = 1e10
"""Stands for infinity, which MJCF does not have: the largest number that MuJoCo takes for a state (``mjMAXVAL``)."""


def ranges(name: str, value) -> dict[str, Any]:
    """``NAMElimited`` and ``NAMErange`` of a range, none for None."""
    if value is None:
        return {}
    return {f"{name}limited": True, f"{name}range": np.clip(np.asarray(value, float), -FAR, FAR)}


def soft(value: Soft, ending: str = "") -> dict[str, Any]:
    """``solref`` and ``solimp`` where they are not MuJoCo's."""
    default = Soft()
    return {f"solref{ending}": unless(default.solref, value.solref), f"solimp{ending}": unless(default.solimp, value.solimp)}


def polynomial(linear: float, higher: tuple[float, float] | None) -> Any:
    """Coefficients of a stiffness or damping, None where they are zero."""
    return unless(0.0, linear) if higher is None else (linear, *higher)
