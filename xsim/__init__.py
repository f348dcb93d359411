"""xsim: batched, differentiable rigid-body simulation in JAX. Importing it changes no setting of jax, numpy or logging."""

from xsim import control, models, registry, sysid
from xsim.compile.choice import use_compiler
from xsim.compile.persistent_cache import use_compilation_cache
from xsim.dynamics.centroidal import center_of_mass, centroidal_momentum_matrix
from xsim.dynamics.contact_list import ContactData, contacts
from xsim.dynamics.forward import forward, sensors
from xsim.dynamics.images import CameraImage, RayHits, camera_image, cast_rays, height_scan
from xsim.dynamics.initial_state import constraint_error, init, project_constraints, state_from_poses
from xsim.dynamics.queries import (
    bias,
    body_inertia,
    camera_poses,
    difference,
    energy,
    forward_dynamics,
    geom_poses,
    integrate,
    inverse_dynamics,
    jacobian,
    kinematics,
    light_poses,
    mass_matrix,
    passive,
    site_jacobian,
    site_poses,
    smooth_acceleration,
)
from xsim.dynamics.reactions import Reactions, reactions
from xsim.dynamics.sharding import replicate, use_cores, use_devices
from xsim.dynamics.step import rollout, step
from xsim.envs import make_env
from xsim.io import ConvexDecomposition, Format, parse, parse_text, register_format, to_mjcf, to_urdf, to_x_xy, write
from xsim.io.errors import ParseError, UnsupportedWarning, WriteError, WriteWarning
from xsim.joints.types import ElementaryJoint, GeneralJoint, JointType, Parameter, register_joint
from xsim.limits import Limits
from xsim.load import build, load, loads
from xsim.model.data import Data
from xsim.model.model import Flags, Model, State
from xsim.model.readback import with_numbers
from xsim.options import with_constraints, with_contact_limit, with_integrator
from xsim.randomize import randomize
from xsim.spec import ModelSpec
from xsim.viewer.frames import render

__version__ = "0.1.0"
registry.end_of_import()

__all__ = [
    "CameraImage", "ContactData", "ConvexDecomposition", "Data", "ElementaryJoint", "Flags", "Format", "GeneralJoint", "JointType",
    "Limits", "Model", "ModelSpec", "Parameter", "ParseError", "RayHits", "Reactions", "State", "UnsupportedWarning", "WriteError",
    "WriteWarning", "bias", "body_inertia", "build", "camera_image", "camera_poses", "cast_rays", "center_of_mass",
    "centroidal_momentum_matrix", "constraint_error", "contacts", "control", "difference", "energy", "forward", "forward_dynamics",
    "geom_poses", "height_scan", "init", "integrate", "inverse_dynamics", "jacobian", "kinematics", "light_poses", "load", "loads",
    "make_env", "mass_matrix", "models", "parse", "parse_text", "passive", "project_constraints", "randomize", "reactions",
    "register_format", "register_joint", "registry", "render", "replicate", "rollout", "sensors", "site_jacobian", "site_poses",
    "smooth_acceleration", "state_from_poses", "step", "sysid", "to_mjcf", "to_urdf", "to_x_xy", "use_compilation_cache", "use_compiler",
    "use_cores", "use_devices", "with_constraints", "with_contact_limit", "with_integrator", "with_numbers", "write",
]  # fmt: skip
