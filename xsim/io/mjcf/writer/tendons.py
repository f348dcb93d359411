"""<tendon>: spatial and fixed tendons."""

from __future__ import annotations

from typing import Any

from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.values import polynomial, ranges, soft
from xsim.io.writing.elements import add, unless
from xsim.spec import TendonSpec, WrapSpec

__all__ = ["write_tendons"]


def write_tendons(context: Context) -> None:
    """All tendons. Joints, sites and geoms must have been written."""
    for number, tendon in enumerate(context.spec.tendons):
        write_tendon(context, number, tendon)


def write_tendon(context: Context, number: int, tendon: TendonSpec) -> None:
    """One tendon under its number."""
    limits, friction = soft(tendon.limit_soft, "limit"), soft(tendon.friction_soft, "friction")
    e = add(
        context.section("tendon"), tendon.kind,
        stiffness=polynomial(tendon.stiffness, tendon.stiffness_poly),
        damping=polynomial(tendon.damping, tendon.damping_poly),
        frictionloss=unless(0.0, tendon.friction),
        armature=tendon.armature,
        springlength=tendon.spring_length,
        springyield=tendon.spring_yield,
        margin=unless(0.0, tendon.margin),
        **ranges("", tendon.range),
        **limits,
        **friction,
        **ranges("actuatorfrc", tendon.force_range),
        group=unless(0, tendon.group),
        user=tendon.user or None,
        **(_look(tendon) if tendon.kind == "spatial" else {}),
    )  # fmt: skip
    context.names.enter("tendon", number, e, tendon.name)
    for wrap in tendon.path:
        add(e, wrap.kind, **_WRAPS[wrap.kind](context, wrap))


def _look(tendon: TendonSpec) -> dict[str, Any]:
    return {"width": unless(0.003, tendon.width), "rgba": tendon.rgba, "material": tendon.material or None}


def _joint(context: Context, wrap: WrapSpec) -> dict[str, Any]:
    return {"joint": context.names.of("joint", wrap.item), "coef": wrap.value}


def _geom(context: Context, wrap: WrapSpec) -> dict[str, Any]:
    side = None if wrap.side is None else context.names.of("site", wrap.side)
    return {"geom": context.names.of("geom", wrap.item), "sidesite": side}


_WRAPS = {
    "joint": _joint,
    "site": lambda context, wrap: {"site": context.names.of("site", wrap.item)},
    "geom": _geom,
    "pulley": lambda context, wrap: {"divisor": wrap.value},
}
