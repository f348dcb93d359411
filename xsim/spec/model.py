"""Options, keyframes, and the model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from xsim.spec.bodies import BodySpec
from xsim.spec.constraints import ConstraintSpec, EqualitySpec
from xsim.spec.contact import PairSpec, SurfaceSpec
from xsim.spec.elements import ActuatorSpec, PassiveSpec, SensorSpec, TendonSpec
from xsim.spec.fields import zeros
from xsim.spec.forces import ForceSpec
from xsim.spec.geoms import FlexSpec, GeomSpec, HfieldSpec, MeshSpec, SiteSpec
from xsim.spec.source import Source
from xsim.spec.visuals import CameraSpec, LightSpec

__all__ = ["CONSTRAINT_KINDS", "KeySpec", "ModelSpec", "OptionSpec"]

CONSTRAINT_KINDS = ("holonomic", "friction", "limit", "velocity", "servo", "soft", "contact")
"""The kinds of constraints."""
ALL_BITS = 2**31 - 1
"""A mask with every bit."""


@dataclass(frozen=True)
class OptionSpec:
    """Simulation settings.

    * ``gravity``: acceleration of free fall, m/s^2, world axes. ``dt``: time step, s.
    * ``regularization``: added to the diagonal of the mass matrix by the solve, kg or kg m^2.
    * ``constraint_kinds``: the kinds of constraints that act, a subset of CONSTRAINT_KINDS: holonomic constraints, dry friction, position
      limits, velocity limits, servos (these four by impulses), soft constraints (MuJoCo's equalities, limits and dry friction), contacts.
    * ``density`` (kg/m^3), ``viscosity`` (Pa s), ``wind`` (m/s): of the fluid around. ``magnetic``: magnetic field, world axes.
    * ``disabled``: what is switched off, MuJoCo's names of flags (``"actuation"``, ``"passive"``, ...). ``actuator_groups_off``: groups of
      actuators that are switched off.
    * ``solver``: parameters of MuJoCo's solver and contacts by the file's names (``cone``, ``iterations``, ``impratio``, ...).
    """

    gravity: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))
    dt: float = 0.001
    integrator: str = "implicit_damping"
    regularization: float = 0.0
    constraint_kinds: tuple[str, ...] = ("holonomic", "friction", "limit", "servo")
    density: float = 0.0
    viscosity: float = 0.0
    wind: np.ndarray = zeros(3)
    magnetic: np.ndarray = field(default_factory=lambda: np.array([0.0, -0.5, 0.0]))
    disabled: tuple[str, ...] = ()
    actuator_groups_off: tuple[int, ...] = ()
    solver: dict = field(default_factory=dict)


@dataclass(frozen=True)
class KeySpec:
    """A keyframe: a named state. ``time``: s. q, v, act, ctrl, mocap poses and ``plastic`` (rest positions of springs that yield) are as in
    the initial state where they are None; so are rest positions that are NaN."""

    name: str = ""
    time: float = 0.0
    q: np.ndarray | None = None
    v: np.ndarray | None = None
    act: np.ndarray | None = None
    ctrl: np.ndarray | None = None
    mocap_pos: np.ndarray | None = None
    mocap_quat: np.ndarray | None = None
    plastic: np.ndarray | None = None
    source: Source = Source()


@dataclass(frozen=True)
class ModelSpec:
    """A model: bodies (parents first), geoms fixed to the world, constraints, forces, options.

    * ``frames``: other named frames of the file: (name, body index or -1, pos, quat in that body's frame).
    * ``sites``, ``cameras``, ``lights``: body by body, those of the world first.
    * ``passive``: passive forces on bodies, by the names of a registry.
    * ``exclude``: pairs of bodies that never collide.
    * ``rules``: the release of MuJoCo whose compile and contact rules apply, ``"3.2"`` or ``"4.0"``.
    * ``drawing``: what only visualization needs, by the file's sections (materials, textures, skins, visual, statistic).
    * ``custom``: users' numbers, texts and tuples by name.
    """

    name: str = ""
    format: str = ""
    bodies: tuple[BodySpec, ...] = ()
    world_geoms: tuple[GeomSpec, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()
    forces: tuple[ForceSpec, ...] = ()
    frames: tuple[tuple[str, int, np.ndarray, np.ndarray], ...] = ()
    option: OptionSpec = OptionSpec()
    sites: tuple[SiteSpec, ...] = ()
    cameras: tuple[CameraSpec, ...] = ()
    lights: tuple[LightSpec, ...] = ()
    meshes: tuple[MeshSpec, ...] = ()
    hfields: tuple[HfieldSpec, ...] = ()
    tendons: tuple[TendonSpec, ...] = ()
    actuators: tuple[ActuatorSpec, ...] = ()
    sensors: tuple[SensorSpec, ...] = ()
    equalities: tuple[EqualitySpec, ...] = ()
    pairs: tuple[PairSpec, ...] = ()
    exclude: tuple[tuple[int, int], ...] = ()
    keys: tuple[KeySpec, ...] = ()
    flexes: tuple[FlexSpec, ...] = ()
    passive: tuple[PassiveSpec, ...] = ()
    rules: str = ""
    drawing: dict = field(default_factory=dict)
    custom: dict = field(default_factory=dict)
    source: Source = Source()

    def replace(self, **changes) -> ModelSpec:
        """A copy with other values of these fields."""
        return replace(self, **changes)

    def with_ground(self, friction: float = 1.0, height: float = 0.0) -> ModelSpec:
        """The model with an infinite ground plane at z = height (m), for formats that describe only a robot.

        Every collision shape of a moving body can collide with it, whatever its masks are (unless they are zero). friction: coefficient of
        the plane; how soft the contact is, is left to the other shape. Raises ValueError where no shape can collide, and for models that
        refer to geoms by number (MJCF): their file must have the ground. Warns of collision shapes without a surface (meshes not found).
        """
        numbered = self.pairs or any(piece.kind == "geom" for tendon in self.tendons for piece in tendon.path)
        if numbered or any(end is not None and end[0] == "geom" for s in self.sensors for end in (s.object, s.reference)):
            raise ValueError("the model refers to geoms by number: write the ground into its file")
        shapes = [(body, geom) for body in self.bodies for geom in body.geoms if geom.collision]
        bare = [f"{geom.shape} of {body.name!r}" for body, geom in shapes if geom.contact is None]
        if len(bare) == len(shapes):
            raise ValueError("no shape of the model can touch a ground" + (f": {', '.join(bare[:5])} have no surface" if bare else ""))
        if bare:
            warnings.warn(f"shapes without a surface fall through the ground: {', '.join(bare[:5])} ({len(bare)} in all)", stacklevel=2)
        surface = SurfaceSpec(contype=ALL_BITS, conaffinity=ALL_BITS, friction=(friction, 0.0, 0.0), solmix=0.0)
        floor = GeomSpec("plane", np.zeros(2), pos=np.array([0.0, 0.0, height]), name="ground", massless=True, contact=surface)
        kinds = tuple(kind for kind in CONSTRAINT_KINDS if kind in (*self.option.constraint_kinds, "contact"))
        return replace(self, world_geoms=(*self.world_geoms, floor), option=replace(self.option, constraint_kinds=kinds))
