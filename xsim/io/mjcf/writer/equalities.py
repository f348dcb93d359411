"""<equality>: soft equality constraints."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.mjcf.equalities import POLYNOMIAL
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.values import soft
from xsim.io.writing.elements import add, unless
from xsim.spec import EqualitySpec

__all__ = ["write_equalities"]


def write_equalities(context: Context) -> None:
    """All equalities. What they refer to must have been written. Raises WriteError for a kind that MJCF does not have."""
    for number, equality in enumerate(context.spec.equalities):
        if equality.kind not in _KINDS:
            text = f"kind {equality.kind!r}; MJCF has {', '.join(_KINDS)}"
            context.losses.lose(equality.source, f"equality {equality.name or number!r}", text, "it is left out")
            continue
        e = add(
            context.section("equality"), equality.kind,
            **_KINDS[equality.kind](context, equality),
            active=unless(True, equality.active),
            **soft(equality.soft),
        )  # fmt: skip
        context.names.enter("equality", number, e, equality.name)


def _ends(context: Context, equality: EqualitySpec) -> dict[str, Any]:
    kind = "site" if equality.sites else "body"
    return {f"{kind}{i}": context.names.of(kind, item) for i, item in enumerate(equality.items, 1)}


def _connect(context: Context, equality: EqualitySpec) -> dict[str, Any]:
    return _ends(context, equality) | ({} if equality.sites else {"anchor": equality.anchor})


def _weld(context: Context, equality: EqualitySpec) -> dict[str, Any]:
    pose = {} if equality.sites else {"anchor": unless(np.zeros(3), equality.anchor), "relpose": equality.relpose}
    return _ends(context, equality) | pose | {"torquescale": unless(1.0, equality.torque_scale)}


def _numbered(kind: str):
    def write(context: Context, equality: EqualitySpec) -> dict[str, Any]:
        names = {f"{kind}{i}": context.names.of(kind, item) for i, item in enumerate(equality.items, 1)}
        return names | {"polycoef": unless(POLYNOMIAL, equality.polycoef)}

    return write


def _flex(context: Context, equality: EqualitySpec) -> dict[str, Any]:
    return {"flex": context.names.of("flex", equality.items[0])}


def _flexstrain(context: Context, equality: EqualitySpec) -> dict[str, Any]:
    return _flex(context, equality) | {"cell": equality.items[1:]}


_KINDS = {
    "connect": _connect, "weld": _weld, "joint": _numbered("joint"), "tendon": _numbered("tendon"), "flex": _flex,
    "flexstrain": _flexstrain,
}  # fmt: skip
