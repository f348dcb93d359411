"""Registries: what a model may be made of, by name, and what implements it.

A registry is filled where its kinds are implemented, and from outside the package with `Registry.register`; CONTRIBUTING.md has an example
for each. Names that are not registered are refused when a model is built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from xsim.suggestions import did_you_mean

__all__ = [
    "ACTIVATION_DYNAMICS", "ACTUATOR_BIASES", "ACTUATOR_CONTROLLERS", "ACTUATOR_GAINS", "COLLIDERS", "ConfigKey", "DISTANCE_FUNCTIONS",
    "INTEGRATORS", "LOOP_CONSTRAINTS", "LOOP_ROWS", "PASSIVE_FORCES", "Registry", "SENSORS", "SOFT_CONSTRAINTS", "TIME_FUNCTIONS",
    "TRANSMISSIONS",
]  # fmt: skip

Key = TypeVar("Key")


class Registry(Mapping[Key, Any], Generic[Key]):
    """A mapping from names to implementations, which grows by `register` and never changes otherwise."""

    def __init__(self, what: str):
        self.what = what
        self.built_in = 0  # the number of entries of the package, which are the first ones
        self._entries: dict[Key, Any] = {}
        _REGISTRIES.append(self)

    def __getitem__(self, name: Key) -> Any:
        if name not in self._entries:
            raise KeyError(self.unknown(name))
        return self._entries[name]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def register(self, name: Key, entry: Any) -> Any:
        """Add an entry and return it. Raises ValueError for a name that is taken."""
        if name in self._entries:
            raise ValueError(f"{self.what} {name!r} is registered already")
        self._entries[name] = entry
        return entry

    def register_all(self, entries: Mapping[Key, Any]) -> None:
        """Add several entries."""
        for name, entry in entries.items():
            self.register(name, entry)

    def unknown(self, name: Key) -> str:
        """The text of an error about a name that is not registered."""
        known = [" ".join(key) if isinstance(key, tuple) else str(key) for key in self._entries]
        return f"unknown {self.what} {name!r}{did_you_mean(str(name), known)}; known: {', '.join(known)}"


_REGISTRIES: list[Registry] = []


def end_of_import() -> None:
    """What is registered from now on comes from outside the package."""
    for registry in _REGISTRIES:
        registry.built_in = len(registry)


def extensions() -> list[tuple[str, Any, Any]]:
    """What was registered from outside the package: (registry, name, entry)."""
    return [(r.what, name, entry) for r in _REGISTRIES for name, entry in list(r.items())[r.built_in :]]


class ConfigKey(NamedTuple):
    """A key of the ``<config>`` of a plugin in MJCF, and what its value may be.

    * default: the numbers without a value. None: a value must be given. Its length is the number of numbers, with None that of low.
    * low, high: bounds of each number. above: whether the numbers must be larger than low. integers: whether they are integers.
    * words: the value is one of these words instead; its number in the list is what counts.
    """

    default: tuple[float, ...] | None = (0.0,)
    low: tuple[float, ...] = (-math.inf,)
    high: tuple[float, ...] = (math.inf,)
    above: bool = False
    integers: bool = False
    words: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers the key has."""
        return len(self.low if self.default is None else self.default)


INTEGRATORS: Registry[str] = Registry("integrator")
"""`xsim.dynamics.integration.integrators.Integrator` by name."""
SENSORS: Registry[str] = Registry("kind of sensor")
"""`xsim.dynamics.sensors.sensing.SensorKind` by `SensorSpec.kind`."""
ACTIVATION_DYNAMICS: Registry[str] = Registry("activation dynamics")
"""`xsim.dynamics.actuation.laws.ActivationDynamics` by `ActuatorSpec.dynamics`."""
ACTUATOR_GAINS: Registry[str] = Registry("actuator gain")
"""`xsim.dynamics.actuation.laws.ActuatorLaw` by `ActuatorSpec.gain`."""
ACTUATOR_BIASES: Registry[str] = Registry("actuator bias")
"""`xsim.dynamics.actuation.laws.ActuatorLaw` by `ActuatorSpec.bias`."""
ACTUATOR_CONTROLLERS: Registry[str] = Registry("actuator controller")
"""`xsim.dynamics.actuation.controllers.Controller` by `ActuatorSpec.controller`."""
PASSIVE_FORCES: Registry[str] = Registry("passive force")
"""`xsim.dynamics.forces.passive_plugins.PassiveForce` by `PassiveSpec.kind`."""
TRANSMISSIONS: Registry[str] = Registry("transmission")
"""fn(configuration, info: `ActuatorInfo`, gear) -> `LengthAndJacobian` by `ActuatorSpec.transmission`."""
TIME_FUNCTIONS: Registry[str] = Registry("kind of function")
"""`xsim.dynamics.forces.time_functions.TimeFunction` by `FunctionSpec.kind`."""
LOOP_CONSTRAINTS: Registry[str] = Registry("kind of constraint")
"""Rows of a constraint between frames of two bodies by `ConstraintSpec.kind`: fn(spec, loop: `xsim.model.holonomic.Loop`) -> rows."""
LOOP_ROWS: Registry[str] = Registry("kind of loop row")
"""`xsim.dynamics.constraints.loop_rows.LoopRow` by the first item of a row of `ConstraintInfo.rows`."""
SOFT_CONSTRAINTS: Registry[str] = Registry("kind of soft constraint")
"""`xsim.dynamics.constraints.soft_rows.SoftConstraint` by `SoftInfo.kind`, which for equalities is `EqualitySpec.kind`."""
COLLIDERS: Registry[tuple[str, str]] = Registry("pair of shapes")
"""`xsim.dynamics.collide.colliders.Collider` by the pair of shapes, in the order of `xsim.model.topology.COLLISION_SHAPES`."""
DISTANCE_FUNCTIONS: Registry[str] = Registry("signed distance function")
"""`xsim.dynamics.collide.distance_functions.DistanceFunction` by `SdfSpec.kind`."""
