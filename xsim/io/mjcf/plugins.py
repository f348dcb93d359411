"""<extension> and <plugin>: entries of registries by name, with the numbers of their <config>.

A plugin of an actuator is a key of `xsim.registry.ACTUATOR_CONTROLLERS`, one of a sensor a key of ``SENSORS``, one of a
body a key of ``PASSIVE_FORCES``, one of a mesh or a geom a key of ``DISTANCE_FUNCTIONS``. The entry has the keys of its config. An entry
without config is no plugin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from xsim.io.errors import allowed
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.reader import Element
from xsim.registry import ACTUATOR_CONTROLLERS, DISTANCE_FUNCTIONS, PASSIVE_FORCES, SENSORS, ConfigKey, Registry
from xsim.spec import SdfSpec

__all__ = ["MESH_DISTANCE", "Plugin", "read_extensions", "read_plugin", "read_sdf"]

REGISTRIES: dict[str, tuple[str, Registry]] = {
    "actuator": ("ACTUATOR_CONTROLLERS", ACTUATOR_CONTROLLERS),
    "sensor": ("SENSORS", SENSORS),
    "body": ("PASSIVE_FORCES", PASSIVE_FORCES),
    "mesh": ("DISTANCE_FUNCTIONS", DISTANCE_FUNCTIONS),
    "geom": ("DISTANCE_FUNCTIONS", DISTANCE_FUNCTIONS),
}
"""The registry of each kind of element that a plugin may be of, and its name in `xsim.registry`."""
MESH_DISTANCE = "mujoco.sdf.sdflib"
"""The plugin of 3.2 by which a geom of type sdf has the distance from its mesh. 4.0 needs none for this."""
MESH_DISTANCE_CONFIG = {"aabb": ConfigKey((0.0,))}
"""Without effect on the distance."""
REMOVED_IN_4_0 = {
    "mujoco.elasticity.cable": 'a flex of lines with <elasticity young="..."/>, or the rules of 3.2',
    "mujoco.elasticity.shell": 'a flex of triangles with <elasticity young="..." elastic2d="both"/>, or the rules of 3.2',
    "mujoco.sdf.sdflib": "a mesh in a geom of type sdf, or the rules of 3.2",
}


class Plugin(NamedTuple):
    """A plugin of an element. name: key of the registry. config: numbers by key, in the order of the entry's config."""

    name: str
    entry: Any
    config: dict[str, tuple[float, ...]]

    @property
    def numbers(self) -> list[float]:
        """All numbers of the config in order."""
        return [x for values in self.config.values() for x in values]

    @property
    def values(self) -> dict[str, Any]:
        """The config with a number in the place of a tuple of one number."""
        return {name: x[0] if len(x) == 1 else x for name, x in self.config.items()}


def read_extensions(document: Document, index: Index) -> None:
    """Check the plugins that are declared; index entries "plugin": their instances. Raises ParseError for an unknown one."""
    for e in document.elements("extension", "plugin"):
        name = _known(document, e)
        entry = next((registry[name] for _, registry in REGISTRIES.values() if name in registry), None)
        for instance in e.all("instance"):
            instance.string("name")
            index.add("plugin", instance, len(document.plugins))
            document.plugins.append((name, instance))
            if entry is None:
                instance.skip()
            else:
                _config(instance, entry.config)
        document.declared.add(name)


def read_plugin(document: Document, e: Element, index: Index, kind: str) -> Plugin:
    """What the attributes ``plugin`` and ``instance`` of an element say, and the <config> in it or in the instance.

    kind: a key of REGISTRIES, what the element needs. Bodies with the same instance belong together. Raises ParseError."""
    holder = e
    if e.has("instance"):
        name, holder = document.plugins[index.find("plugin", e, "instance")]
        if e.has("plugin") and e.string("plugin") != name:
            raise e.error(f"found {e.string('plugin')!r} for an instance of {name!r}; allowed: {name}, or no attribute plugin", "plugin")
        for config in e.all("config"):
            raise config.error("found in an element that names an instance; allowed: in the instance")
    elif e.has("plugin"):
        name = _known(document, e)
        if name not in document.declared:
            raise e.error(f'{name!r} is not declared; allowed: with <extension><plugin plugin="{name}"/></extension>', "plugin")
    else:
        raise e.error("plugin and instance are missing; allowed: one of them")
    attribute = "instance" if holder is not e else "plugin"
    name_of_registry, registry = REGISTRIES[kind]
    if kind == "geom" and name == MESH_DISTANCE:
        return Plugin(name, None, _config(holder, MESH_DISTANCE_CONFIG))
    if name not in registry or registry[name].config is None:
        known = allowed(name, _names(registry))
        how = f"{known}, or one that xsim.registry.{name_of_registry}.register({name!r}, ...) adds"
        raise e.error(f"the {kind} needs the plugin {name!r}, which xsim has for no {kind}; {how}", attribute)
    return Plugin(name, registry[name], _config(holder, registry[name].config))


def read_sdf(document: Document, e: Element, index: Index) -> SdfSpec | None:
    """The signed distance function of a mesh or geom; of the kind `MESH_DISTANCE`: the distance from the mesh of the geom; None without a
    plugin. Raises ParseError."""
    plugin = e.child("plugin")
    if plugin is None:
        return None
    found = read_plugin(document, plugin, index, e.tag)
    return SdfSpec(found.name, found.config)


def _names(registry: Registry) -> list[str]:
    return [name for name, entry in registry.items() if getattr(entry, "config", None) is not None]


def _known(document: Document, e: Element) -> str:
    """The attribute plugin, if there is such a plugin in the release or in a registry. Raises ParseError."""
    name = e.string("plugin")
    if document.release.schema != "3.2" and name in REMOVED_IN_4_0:
        raise e.error(f"{name!r} is not in MuJoCo 4.0; allowed: {REMOVED_IN_4_0[name]}", "plugin")
    known = [*dict.fromkeys(x for _, registry in REGISTRIES.values() for x in _names(registry)), MESH_DISTANCE]
    if name not in known:
        registries = " or ".join(dict.fromkeys(f"xsim.registry.{registry}" for registry, _ in REGISTRIES.values()))
        raise e.error(f"unknown plugin {name!r}; {allowed(name, known)}, or one that .register of {registries} adds", "plugin")
    return name


def _config(e: Element, keys: dict[str, ConfigKey]) -> dict[str, tuple[float, ...]]:
    """The numbers of the <config> elements inside an element. Raises ParseError for unknown keys and wrong values."""
    found: dict[str, tuple[float, ...]] = {}
    for config in e.all("config"):
        name = config.string("key")
        if name not in keys:
            raise config.error(f"unknown key {name!r}; {allowed(name, keys) if keys else 'allowed: none'}", "key")
        if name in found:
            raise config.error(f"second value of {name!r}; allowed: one", "key")
        if (config.raw("value") or "").strip():
            found[name] = _value(config, name, keys[name])
    for name, key in keys.items():
        if name not in found and key.default is None:
            raise e.error(f'the config {name!r} is missing; allowed: with <config key="{name}" value="..."/>')
    return {name: found.get(name) or key.default or () for name, key in keys.items()}


def _value(config: Element, name: str, key: ConfigKey) -> tuple[float, ...]:
    if key.words:
        return (float(key.words.index(config.choice("value", key.words))),)
    values = config.floats("value", key.width)
    low, high = (np.broadcast_to(bound, key.width) for bound in (key.low, key.high))
    outside = (values <= low if key.above else values < low) | (values > high)
    if outside.any() or key.integers and (values % 1).any():
        kind = "integers" if key.integers else "numbers"
        bounds = " and ".join(f"{'>' if key.above else '>='} {a:g}, <= {b:g}" for a, b in zip(low, high, strict=True))
        raise config.error(f"found {config.raw('value')!r} for {name!r}; allowed: {kind} {bounds}", "value")
    return tuple(values.tolist())
