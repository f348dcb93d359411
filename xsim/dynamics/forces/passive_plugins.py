"""Passive forces by name: `xsim.registry.PASSIVE_FORCES`. In MJCF they are the plugins of bodies.

A passive force acts on the bodies of its element. It depends on the configuration and the velocities, and on its numbers, which are rows of
the leaf ``passive.numbers``. All integrators take it as it is at the start of the step, and no energy counts it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from xsim.dynamics.tree.kinematics import Frames, body_origins, body_poses, body_velocities, frames, generalized_force, velocities
from xsim.dynamics.tree.system import System
from xsim.model.topology import PassiveInfo
from xsim.registry import PASSIVE_FORCES, ConfigKey
from xsim.spatial import Force, Pose, cross, madd, stage, vadd


class PassiveForce(NamedTuple):
    """A kind of passive force, an entry of `xsim.registry.PASSIVE_FORCES`.

    * wrenches(context: PassiveContext, info: PassiveInfo) -> {body: (force, moment)}: on bodies of ``info.bodies``, in N and N m, world
      axes, the moment about the origin of the body.
    * config: the keys of <config>. The context has their numbers.
    * prepare(context, info) -> anything that does not depend on the state, evaluated at the initial configuration.
    * check(spec: ModelSpec, bodies) -> what is wrong with the bodies, None if nothing. It is asked when a model is built.
    """

    wrenches: Callable
    config: dict[str, ConfigKey] = {}  # noqa: RUF012  (never changed)
    prepare: Callable | None = None
    check: Callable[[Any, Sequence[int]], str | None] | None = None


@dataclass
class PassiveContext:
    """What a passive force reads. v: None where it must not depend on it. config: numbers by key, a tuple where a key has several.
    prepared: what `PassiveForce.prepare` gave."""

    system: System
    frame: Frames
    v: list | None
    config: dict
    prepared: Any = None

    @functools.cached_property
    def poses(self) -> list[Pose]:
        """World poses of all bodies."""
        return body_poses(self.system, self.frame)

    @functools.cached_property
    def velocities(self) -> tuple[list, list]:
        """Of all bodies, the velocities of their origins, m/s, and the angular velocities, rad/s, world axes."""
        _, of_links = velocities(self.system, self.frame, self.v)
        return body_velocities(self.system, self.frame, of_links)


def _context(system: System, frame: Frames, v, info: PassiveInfo, prepared=None) -> PassiveContext:
    values = [system.passive.numbers[row] for row in info.numbers]
    config, at = {}, 0
    for name, key in PASSIVE_FORCES[info.kind].config.items():
        config[name] = tuple(values[at : at + key.width]) if key.width > 1 else values[at]
        at += key.width
    return PassiveContext(system, frame, v, config, prepared)


def prepared_forces(system: System) -> tuple:
    """For each passive force, what its `PassiveForce.prepare` gives, None without."""
    out, frame = [], frames(system, [float(x) for x in system.topology.initial[0]])
    for info in system.topology.passive:
        prepare = PASSIVE_FORCES[info.kind].prepare
        out.append(None if prepare is None else prepare(_context(system, frame, None, info), info))
    return tuple(out)


@stage
def _about_reference(origin, force, moment) -> Force:
    return Force(vadd(moment, cross(origin, force)), force)


def plugin_force(system: System, frame: Frames, v) -> list:
    """Generalized force (nv) of all passive forces."""
    top = system.topology
    on_links: list[Force | None] = [None] * len(top.links)
    origins = body_origins(system, frame)
    for info, prepared in zip(top.passive, system.derived.passive, strict=True):
        found = PASSIVE_FORCES[info.kind].wrenches(_context(system, frame, v, info, prepared), info)
        for body, (force, moment) in found.items():
            link = top.bodies[body].link
            if link >= 0:
                wrench, others = _about_reference(origins[body], force, moment), on_links[link]
                on_links[link] = wrench if others is None else madd(others, wrench)
    return generalized_force(system, frame, on_links)
