"""Identification by xsim and by MuJoCo's own `mujoco.sysid`.

The robot arm of ``notebooks/identify_robot_arm.ipynb``: the same data, guesses, unknowns and known initial states. Prints both results,
their difference in standard errors, and the seconds of both, in turns, medians.

``python benchmarks/identification.py [--runs 3]``; needs ``pip install ".[fit]" "mujoco[sysid]==4.0.0"``.
"""

import argparse
import contextlib
import io
import statistics
import sys
import time
from pathlib import Path

import jax
import mujoco
import numpy as np
from mujoco import sysid

import xsim

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
from record_robot_arm import COUNTS, NOISE, STARTS  # noqa: E402

ARM = NOTEBOOKS / "robot_arm.xml"
RESOLUTION = 2 * np.pi / COUNTS
STD = float(np.hypot(NOISE, RESOLUTION / np.sqrt(12)))
JOINTS = ("base", "shoulder", "elbow")
CHOSEN = ["dof.damping", "dof.armature", "dof.friction", "actuator.gain[*, 0]", "actuator.delay"]


def observe(state, data):
    return state.q


def of_xsim(ctrls, measured):
    """A function that fits, and returns the `Fit`."""
    guess = xsim.load(ARM, rules="4.0")
    q, v = (np.array(x) for x in zip(*STARTS, strict=True))
    problem = xsim.sysid.Problem(guess, xsim.init(guess, q, v), measured, CHOSEN, observe=observe, ctrls=ctrls, std=STD)
    return lambda: xsim.sysid.fit(problem)


# ---- mujoco.sysid ------------------------------------------------------------------------------------------------------------


def _setters():
    """(get, set) of each unknown in a MjSpec, in the order of xsim's."""

    def polynomial(joint):
        return lambda s: s.joint(joint).damping[0], lambda s, x: s.joint(joint).damping.__setitem__(0, x)

    def number(joint, field):
        return lambda s: getattr(s.joint(joint), field), lambda s, x: setattr(s.joint(joint), field, x)

    def gain(name):
        return lambda s: s.actuator(name).gainprm[0], lambda s, x: s.actuator(name).gainprm.__setitem__(0, x)

    yield from (polynomial(joint) for joint in JOINTS)
    yield from (number(joint, field) for field in ("armature", "frictionloss") for joint in JOINTS)
    yield from (gain(name) for name in JOINTS)
    yield lambda s: s.actuator("elbow").delay, lambda s, x: setattr(s.actuator("elbow"), "delay", x)


def _residual(params, predicted, measured, model, return_pred_all, state):
    """Angles after each step, in units of their noise: MuJoCo's sensors read before it."""
    series = sysid.TimeSeries(measured.times, state[:, 1 : 1 + model.nq], measured.signal_mapping)
    return (series.data - measured.data) / STD, series, measured


def of_mujoco(ctrls, measured):
    """A function that fits, and returns (values (13,), cost)."""
    spec = mujoco.MjSpec.from_file(str(ARM))
    for joint in JOINTS:
        spec.add_sensor(type=mujoco.mjtSensor.mjSENS_JOINTPOS, objtype=mujoco.mjtObj.mjOBJ_JOINT, objname=joint, name=joint)
    model = spec.compile()
    times = model.opt.timestep * np.arange(len(measured) + 1)
    starts = [sysid.create_initial_state(model, np.array(q), np.array(v)) for q, v in STARTS]
    # It leaves the last control out.
    controls = [sysid.TimeSeries(times, np.concatenate([c, c[-1:]])) for c in np.moveaxis(ctrls.astype(float), 1, 0)]
    readings = [sysid.TimeSeries.from_names(times[1:], x, model) for x in np.moveaxis(measured, 1, 0)]
    sequences = sysid.ModelSequences("arm", spec, [str(i) for i in range(len(starts))], starts, controls, readings)
    residual = sysid.build_residual_fn(models_sequences=[sequences], modify_residual=_residual, resample_true=False)
    unknowns = sysid.ParameterDict()
    for i, (get, put) in enumerate(_setters()):
        start = float(get(spec))
        unknowns.add(sysid.Parameter(str(i), start, 0.1 * start, 10 * start, modifier=lambda s, p, put=put: put(s, p.value[0])))

    def fit():
        with contextlib.redirect_stdout(io.StringIO()):  # it prints each iteration
            found, result = sysid.optimize(unknowns.copy(), residual, "mujoco", verbose=False, x_scale="jac")
        left = np.concatenate([np.ravel(x) for x in residual(result.x, found)[0]])
        return found.as_vector(), 0.5 * float(left @ left)

    return fit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    jax.config.update("jax_enable_x64", True)
    recording = np.load(NOTEBOOKS / "robot_arm.npz")
    ctrls, measured = recording["ctrls"], RESOLUTION * recording["counts"]
    fits = {"xsim": of_xsim(ctrls, measured), "mujoco": of_mujoco(ctrls, measured)}
    seconds = {name: [] for name in fits}
    results = {}
    for _ in range(runs + 1):  # the first with compilation
        for name, fit in fits.items():
            begin = time.perf_counter()
            results[name] = fit()
            seconds[name].append(time.perf_counter() - begin)
    ours, (values, cost) = results["xsim"], results["mujoco"]
    print(f"{'':<26}{'start':>8}{'xsim':>13}{'mujoco.sysid':>14}{'std error':>11}{'difference / std error':>24}")
    for name, value in zip(ours.names, values, strict=True):
        x, std = ours.values[name], ours.std_errors[name]
        print(f"{name:<26}{ours.starts[name]:>8g}{x:>13.7g}{value:>14.7g}{std:>11.2g}{(value - x) / std:>24.1e}")
    print(f"cost: xsim {ours.cost:.9g}, mujoco.sysid {cost:.9g}")
    for name, times in seconds.items():
        print(f"{name}: {statistics.median(times[1:]):.2f} s, the first time {times[0]:.2f} s")


if __name__ == "__main__":
    main()
