"""<contact>: pairs of geoms with contact parameters of their own, pairs of bodies that never collide."""

from __future__ import annotations

from xsim.io.mjcf.contacts import FRICTION
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.masks import excluded_bodies
from xsim.io.writing.elements import add, unless
from xsim.spec import PairSpec

__all__ = ["write_contacts"]

DEFAULTS = {
    "condim": 3, "friction": FRICTION, "solref": (0.02, 1.0), "solimp": (0.9, 0.95, 0.001, 0.5, 2.0), "margin": 0.0, "gap": 0.0,
    "adhesion": 0.0,
}  # fmt: skip


def write_contacts(context: Context) -> None:
    """All pairs and excludes. Geoms and bodies must have been written. Raises WriteError for a parameter that is mixed."""
    for number, pair in enumerate(context.spec.pairs):
        _write_pair(context, number, pair)
    for first, second in (*context.spec.exclude, *excluded_bodies(context)):
        names = context.names.of("body", first), context.names.of("body", second)
        add(context.section("contact"), "exclude", body1=names[0], body2=names[1])


def _write_pair(context: Context, number: int, pair: PairSpec) -> None:
    missing = [name for name in DEFAULTS if getattr(pair, name) is None]
    if missing:
        text = f"{missing[0]} as its two geoms have it; MJCF has pairs with numbers of their own"
        context.losses.refuse(pair.source, f"pair {pair.name or number!r}", text)
    e = add(
        context.section("contact"), "pair",
        geom1=context.names.of("geom", pair.geoms[0]),
        geom2=context.names.of("geom", pair.geoms[1]),
        **{name: unless(default, getattr(pair, name)) for name, default in DEFAULTS.items()},
        solreffriction=unless((0.0, 0.0), pair.friction_solref),
    )  # fmt: skip
    context.names.enter("pair", number, e, pair.name)
