"""ModelSpec: the contents of a model file, in one vocabulary for all formats.

Plain data: numpy float64 numbers, SI units, radians, no jax. A parser fills it (`xsim.io`), `xsim.build` reads it.

Conventions
-----------
* Quaternions are ``(w, x, y, z)`` and map child coordinates to parent coordinates.
* A body's ``pos``, ``quat`` are the pose of its joint frame in the parent body; the joint's ``pos``, ``quat`` are the pose of the same
  frame, after the joint's motion, in the body. So X_parent_body = X(body) X_joint(q) X(joint)^-1.
* The reference pose is the configuration of the model in its file: every joint at zero (a hinge or slide of MuJoCo at its ``ref``), free
  bodies at the pose that the file gives.
* Geom sizes are half extents: box ``(hx, hy, hz)``, sphere ``(r,)``, capsule and cylinder ``(r, half length)`` along the
  local z axis (the capsule's half length without its caps), ellipsoid ``(rx, ry, rz)`` semi-axes, plane ``(hx, hy)``
  along z, axes ``(length,)`` (a marker without mass), cone ``(r, half length)`` along z with its apex at +z, mesh and heightmap
  ``(sx, sy, sz)`` (scale of a mesh, half extents of a height field; ``file`` names the data), polyline ``(height,)``
  (``points``: the outline, extruded from z = 0).
"""

from __future__ import annotations

from xsim.spec.bodies import BodySpec, InertialSpec
from xsim.spec.constraints import ConstraintSpec, EqualitySpec
from xsim.spec.contact import PairSpec, Soft, SurfaceSpec
from xsim.spec.elements import ActuatorSpec, History, PassiveSpec, SensorSpec, TendonSpec, WrapSpec
from xsim.spec.forces import ForceSpec, FunctionSpec
from xsim.spec.geoms import MESH_SHAPES, FlexSpec, GeomSpec, GridSpec, HfieldSpec, MarkerSpec, MeshSpec, RodSpec, SdfSpec, SiteSpec
from xsim.spec.joints import ACTUATORS, JointSpec
from xsim.spec.model import CONSTRAINT_KINDS, KeySpec, ModelSpec, OptionSpec
from xsim.spec.source import Source
from xsim.spec.visuals import CameraSpec, LightSpec

__all__ = [
    "ACTUATORS", "ActuatorSpec", "BodySpec", "CONSTRAINT_KINDS", "CameraSpec", "ConstraintSpec", "EqualitySpec", "FlexSpec", "ForceSpec",
    "FunctionSpec", "GeomSpec", "GridSpec", "HfieldSpec", "History", "InertialSpec", "JointSpec", "KeySpec", "LightSpec", "MESH_SHAPES",
    "MarkerSpec", "MeshSpec", "ModelSpec", "OptionSpec", "PairSpec", "PassiveSpec", "RodSpec", "SdfSpec", "SensorSpec", "SiteSpec", "Soft",
    "Source", "SurfaceSpec", "TendonSpec", "WrapSpec",
]  # fmt: skip
