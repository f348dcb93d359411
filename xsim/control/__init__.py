"""Optimal control by the exact derivatives of the step: trajectories (`ilqr`) and model predictive control (`Controller`).

``tangent``: states as vectors, and the expansion of a problem about a trajectory. ``box_qp``: quadratic programs with bounds. ``ilqr``: the
trajectory optimizer. ``mpc``: replanning at every control.
"""

from xsim.control.ilqr import Plan, feedback, ilqr
from xsim.control.mpc import Controller, Memory, simulate
from xsim.control.tangent import deviation, displaced

__all__ = ["Controller", "Memory", "Plan", "deviation", "displaced", "feedback", "ilqr", "simulate"]
