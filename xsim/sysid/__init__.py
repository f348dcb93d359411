"""System identification: fit numbers of a model (and initial states) to measured trajectories.

The model's leaves are the unknowns, chosen by selector: ``"dof.damping"``, ``"dof.stiffness[link2]"``, ``"geom.mass[2]"``. `fit` runs
`rollout`, compares what ``observe`` records with the measurement and minimizes half the sum of squared, weighted residuals. Each
unknown is a function of an unconstrained number, so positive numbers stay positive and bounds hold in every iterate::

    result = fit(Problem(model, state, measured, ["dof.damping", "geom.mass[link2]"], observe=lambda state, data: state.q, std=0.01))
    print(result.summary())

Long or chaotic trajectories are cut into segments (multiple shooting: Bock, *Recent advances in parameter identification techniques
for ODE*, 1983): the states at the cuts are unknowns too, tied together by continuity residuals (`Segments`).
"""

from xsim.sysid.parameters import Parameter
from xsim.sysid.plots import plot_correlations, plot_parameters, plot_trajectories
from xsim.sysid.problem import Problem, Segments
from xsim.sysid.solve import Solver, fit
from xsim.sysid.statistics import Combination, Fit

__all__ = [
    "Combination", "Fit", "Parameter", "Problem", "Segments", "Solver", "fit", "plot_correlations", "plot_parameters", "plot_trajectories",
]  # fmt: skip
