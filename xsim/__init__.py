"""xsim: batched, differentiable rigid-body simulation in JAX. Importing it changes no setting of jax, numpy or logging."""

from . import models, sysid
from .build import with_contact_limit, with_integrator, with_rows
from .dynamics.batches import use_cores
from .dynamics.contact_data import ContactData, contacts
from .dynamics.reactions import Reactions, reactions
from .dynamics.start import constraint_error, init, project_constraints, state_from_poses
from .dynamics.step import (
    bias,
    body_inertia,
    camera_poses,
    difference,
    energy,
    forward,
    forward_dynamics,
    geom_poses,
    integrate,
    inverse_dynamics,
    jacobian,
    kinematics,
    light_poses,
    mass_matrix,
    passive,
    rollout,
    sensors,
    site_poses,
    smooth_acceleration,
    step,
)
from .envs import make_env
from .io import parse, parse_text
from .io.errors import ParseError, UnsupportedWarning
from .jointtypes import ElementaryJoint, GeneralJoint, JointType, Parameter, register_joint
from .load import build, load, loads
from .model import Data, Flags, Model, State
from .randomize import randomize
from .spec import ModelSpec

__version__ = "0.1.0"

__all__ = [
    "ContactData", "Data", "ElementaryJoint", "Flags", "GeneralJoint", "JointType", "Model", "ModelSpec", "Parameter", "ParseError",
    "Reactions", "State", "UnsupportedWarning", "bias", "body_inertia", "build", "camera_poses", "constraint_error", "contacts",
    "difference", "energy", "forward", "forward_dynamics", "geom_poses", "init", "integrate", "inverse_dynamics", "jacobian",
    "kinematics", "light_poses", "load", "loads", "make_env", "mass_matrix", "models", "parse", "parse_text", "passive",
    "project_constraints", "randomize", "reactions", "register_joint", "rollout", "sensors", "site_poses", "smooth_acceleration",
    "state_from_poses", "step", "sysid", "use_cores", "with_contact_limit", "with_integrator", "with_rows",
]  # fmt: skip
