"""System identification: fit numbers of a model (and initial states) to measured trajectories."""

from xsim.sysid.sysid import Combination, Fit, Parameter, fit

__all__ = ["Combination", "Fit", "Parameter", "fit"]
