"""<sensor>: sensors, each with what it measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xsim.io.mjcf.sensors import SENSORS, STAGES
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.histories import history_attributes
from xsim.io.mjcf.writer.plugins import plugin_config, write_plugin
from xsim.io.writing.elements import add, unless
from xsim.model.topology import CONTACT_FIELDS
from xsim.registry import SENSORS as REGISTRY
from xsim.spec import SensorSpec

__all__ = ["object_name", "write_sensors"]

ELEMENTS = {"xbody": "body", "subtree": "body"}
"""Kinds of objects that are another one's elements."""


def write_sensors(context: Context) -> None:
    """All sensors. What they measure must have been written. Raises WriteError for a kind that MJCF does not have."""
    for number, sensor in enumerate(context.spec.sensors):
        config = plugin_config(REGISTRY, sensor.kind)
        if config is None and sensor.kind not in SENSORS and sensor.kind not in _OTHERS:
            tactile = sensor.kind == "tactile"
            text = "points that are no mesh of the model" if tactile else f"kind {sensor.kind!r}, which MJCF does not have"
            context.losses.lose(sensor.source, f"sensor {sensor.name or number!r}", text, "it is left out")
            continue
        write = _OTHERS.get(sensor.kind, _object) if config is None else _frame
        common = {"cutoff": unless(0.0, sensor.cutoff), "noise": unless(0.0, sensor.noise), "user": sensor.user or None}
        common |= history_attributes(sensor.history)
        e = add(context.section("sensor"), sensor.kind if config is None else "plugin", **write(context, sensor), **common)
        if config is not None:
            write_plugin(context, e, sensor.kind, config, [x for values in sensor.config.values() for x in values])
        context.names.enter("sensor", number, e, sensor.name)


def object_name(context: Context, item: tuple[str, Any], sensor: SensorSpec) -> str:
    """The name of (kind, number)."""
    kind, number = item
    if kind == "joint":
        return context.joint_name(number, sensor.source, f"sensor {sensor.name!r}")
    return context.names.of(ELEMENTS.get(kind, kind), number)


def _object(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    """The attribute is the kind of the object."""
    if sensor.object is None:
        return {}
    return {sensor.object[0]: object_name(context, sensor.object, sensor)}


def _frame(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    out = {}
    for ending, item in (("obj", sensor.object), ("ref", sensor.reference)):
        if item is not None:
            out |= {f"{ending}type": item[0], f"{ending}name": object_name(context, item, sensor)}
    return out


def _inside(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    assert sensor.object is not None and sensor.reference is not None
    names = {"objname": object_name(context, sensor.object, sensor), "site": object_name(context, sensor.reference, sensor)}
    return {"objtype": sensor.object[0], **names, "enclosed": True if sensor.data else None}


def _camera(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    return {item[0]: object_name(context, item, sensor) for item in (sensor.object, sensor.reference) if item is not None}


def _two(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    ends = (sensor.object, sensor.reference)
    return {f"{item[0]}{i}": object_name(context, item, sensor) for i, item in enumerate(ends, 1) if item is not None}


def _contact(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    sides = _two(context, sensor)
    if "site1" in sides:
        sides["site"] = sides.pop("site1")
    number = sensor.dim // sum(CONTACT_FIELDS[name] for name in sensor.data)
    return sides | {"data": " ".join(sensor.data), "reduce": unless("none", sensor.reduce), "num": unless(1, number)}


def _rangefinder(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    return _object(context, sensor) | {"data": None if sensor.data in ((), ("dist",)) else " ".join(sensor.data)}


def _user(context: Context, sensor: SensorSpec) -> dict[str, Any]:
    stage = next(word for word, name in STAGES.items() if name == sensor.stage)
    return _frame(context, sensor) | {"dim": sensor.dim, "needstage": stage, "datatype": "real"}


_FRAMES = ("framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis", "framelinvel", "frameangvel", "framelinacc", "frameangacc")
_OTHERS: dict[str, Callable[[Context, SensorSpec], dict[str, Any]]] = {
    **dict.fromkeys(_FRAMES, _frame),
    **dict.fromkeys(("distance", "normal", "fromto"), _two),
    "insidesite": _inside,
    "camprojection": _camera,
    "contact": _contact,
    "rangefinder": _rangefinder,
    "user": _user,
}
"""Sensors with other attributes than the kind of their object."""
