"""Names of the elements of a model, and where their numbers stand in the arrays of a state."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from xsim.model.topology import ActuatorInfo, FunctionInfo, Topology
from xsim.suggestions import did_you_mean

__all__ = ["Named", "external_functions"]


def external_functions(topology: Topology) -> tuple[FunctionInfo, ...]:
    """The functions of time whose values are controls."""
    return tuple(f for f in topology.functions if f.kind == "external")


class Named:
    """Names and addresses, from the topology alone.

    A slice selects the numbers of an element: ``state.q[..., model.q_slice("knee")]``, ``data.sensor[..., model.sensor_slice("imu")]``. An
    index selects its row: ``data.pos[..., model.body_index("torso"), :]``. Each raises KeyError for an unknown name. Where an index is
    the result, it may be given in place of the name; one that does not exist raises IndexError."""

    topology: Topology

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the bodies, in order."""
        return _names(self.topology.bodies)

    joint_names = property(lambda self: _names(self.topology.joints), doc="Names of the joints, body by body; without one, the body's.")
    site_names = property(lambda self: _names(self.topology.sites), doc="Names of the sites, in order.")
    tendon_names = property(lambda self: _names(self.topology.tendons), doc="Names of the tendons, in order.")
    actuator_names = property(lambda self: _names(self.topology.actuators), doc="Names of the actuators, in order.")
    sensor_names = property(lambda self: _names(self.topology.sensors), doc="Names of the sensors, in order.")
    key_names = property(lambda self: _names(self.topology.keys), doc="Names of the keyframes, in order.")

    @property
    def ctrl_names(self) -> tuple[str, ...]:
        """Names of the controls: joints with commands (``name[i]`` for dof i of a joint with several), external functions, actuators
        (``name.input`` for each input of one with a controller)."""
        top = self.topology
        actuators = (name for i, a in enumerate(top.actuators) for name in _input_names(a, i))
        return (*(self._dof_name(dof) for dof in top.commands), *(f.name for f in external_functions(top)), *actuators)

    def _dof_name(self, dof: int) -> str:
        joint = next(j for j in self.topology.joints if j.v[0] <= dof < sum(j.v))
        return joint.name if joint.v[1] == 1 else f"{joint.name}[{dof - joint.v[0]}]"

    def q_slice(self, joint: str) -> slice:
        """The coordinates of a joint in q."""
        return _range(self._joint(joint).q)

    def v_slice(self, joint: str) -> slice:
        """The velocities of a joint in v, and in accelerations and generalized forces."""
        return _range(self._joint(joint).v)

    def _joint(self, joint: str):
        return self.topology.joints[_index("joint", joint, self.joint_names)]

    def ctrl_index(self, name: str) -> int:
        """The place of a control in ctrl. name: of `ctrl_names`."""
        return _index("control", name, self.ctrl_names)

    def act_slice(self, actuator: str) -> slice:
        """The activations of an actuator in act."""
        places = self.topology.actuators[_index("actuator", actuator, self.actuator_names)].activations
        return slice(places[0], places[-1] + 1) if places else slice(0, 0)

    def sensor_slice(self, sensor: str) -> slice:
        """The readings of a sensor in the sensor data."""
        info = self.topology.sensors[_index("sensor", sensor, self.sensor_names)]
        return _range((info.address, info.dim))

    def body_index(self, body: str | int) -> int:
        """The row of a body in the arrays of all bodies."""
        return _index("body", body, self.body_names)

    def site_index(self, site: str | int) -> int:
        """The row of a site in the arrays of all sites."""
        return _index("site", site, self.site_names)

    def actuator_index(self, actuator: str) -> int:
        """The place of an actuator in forces and lengths of all actuators; of an orientation servo the first of its three."""
        return self.topology.actuators[_index("actuator", actuator, self.actuator_names)].outputs[0]


def _names(infos: Sequence) -> tuple[str, ...]:
    return tuple(info.name for info in infos)


def _range(place: tuple[int, int]) -> slice:
    """(first, width) as a slice."""
    return slice(place[0], sum(place))


def _index(kind: str, name: str | int, names: tuple[str, ...]) -> int:
    """The index of a name, or an index itself. Raises KeyError with the known names, and IndexError."""
    if not isinstance(name, str):
        if not 0 <= (index := operator.index(name)) < len(names):
            raise IndexError(f"no {kind} {index}: the model has {len(names)}")
        return index
    if name not in names:
        raise KeyError(f"no {kind} {name!r}{did_you_mean(name, names)}; {kind}s: {', '.join(filter(None, names)) or 'none'}")
    return names.index(name)


def _input_names(actuator: ActuatorInfo, number: int) -> tuple[str, ...]:
    """The names of an actuator's controls: its own, or ``name.input`` for each input of a controller."""
    name = actuator.name or f"actuator#{number}"
    return (name,) if actuator.controller is None else tuple(f"{name}.{part}" for part in actuator.inputs)
