"""<plugin>: the plugin of an element with its <config>, and its declaration in <extension>."""

from __future__ import annotations

from collections.abc import Sequence

from xsim.io.mjcf.plugins import MESH_DISTANCE
from xsim.io.mjcf.writer.context import Context
from xsim.io.writing.elements import XML, add
from xsim.registry import DISTANCE_FUNCTIONS, ConfigKey, Registry
from xsim.spec import SdfSpec

__all__ = ["plugin_config", "write_instance", "write_plugin", "write_sdf"]


def plugin_config(registry: Registry, name: str) -> dict[str, ConfigKey] | None:
    """The keys of the config of a plugin, None if the name stands for none."""
    return registry[name].config if name in registry else None


def write_plugin(context: Context, e: XML, name: str, keys: dict[str, ConfigKey], numbers: Sequence[float]) -> None:
    """Say in an element that it is of a plugin. numbers: all those of its config in order; defaults are left out."""
    _declared(context, name)
    e.set("plugin", name)
    _config(e, keys, numbers)


def write_instance(context: Context, name: str, instance: str, keys: dict[str, ConfigKey], numbers: Sequence[float]) -> None:
    """An instance of a plugin, which several elements may name."""
    _config(add(_declared(context, name), "instance", name=instance), keys, numbers)


def write_sdf(context: Context, parent: XML, sdf: SdfSpec | None) -> None:
    """Say in a mesh or geom that it is of a signed distance function; None: of the distance from the geom's mesh. Raises WriteError for a
    function that is not registered."""
    if sdf is None:
        if context.spec.rules == "3.2":
            write_plugin(context, add(parent, "plugin"), MESH_DISTANCE, {}, ())
        return
    keys = plugin_config(DISTANCE_FUNCTIONS, sdf.kind)
    if keys is None:
        context.losses.refuse(context.spec.source, parent.tag, DISTANCE_FUNCTIONS.unknown(sdf.kind))
    else:
        write_plugin(context, add(parent, "plugin"), sdf.kind, keys, sdf.numbers)


def _declared(context: Context, name: str) -> XML:
    """The declaration of a plugin, made at its first use."""
    extension = context.section("extension")
    found = [e for e in extension if e.get("plugin") == name]
    return found[0] if found else add(extension, "plugin", plugin=name)


def _config(e: XML, keys: dict[str, ConfigKey], numbers: Sequence[float]) -> None:
    at = 0
    for key, rule in keys.items():
        values = tuple(float(x) for x in numbers[at : at + rule.width])
        at += rule.width
        if values != rule.default:
            add(e, "config", key=key, value=rule.words[int(values[0])] if rule.words else values)
