"""Identification: the numbers come back within their standard errors, and what the data cannot say is named."""

import builtins

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import chi2

import xsim
from xsim import models
from xsim.spec import BodySpec, GeomSpec, JointSpec, ModelSpec, OptionSpec
from xsim.sysid import Parameter, Problem, Segments, Solver, fit

optimistix = pytest.importorskip("optimistix")


def angles(state, data):
    return state.q


def simulate(model, state, steps, record=angles, **options):
    return jax.jit(lambda s: xsim.rollout(model, s, steps=steps, record=record, **options)[1])(state)


@pytest.fixture
def chain(x64):
    return xsim.load(models.path("spring_chain"))


def starts(model, count, seed):
    return xsim.init(model, np.random.default_rng(seed).uniform(-1, 1, (count, model.nq)))


def perturbed(model):
    mass = model.geom.mass * jnp.array([1.0, 1.5, 1.0])
    return model.replace({"dof.damping": model.dof.damping * 1.6, "dof.stiffness": model.dof.stiffness * 0.6, "geom.mass": mass})


CHOSEN = ["dof.damping", "dof.stiffness", "geom.mass[link2]"]


def truth_of(model):
    numbers = {f"dof.{k}[link{i + 1}]": float(model.get(f"dof.{k}")[i]) for k in ("damping", "stiffness") for i in range(3)}
    return {**numbers, "geom.mass[link2]": float(model.geom.mass[1])}


@pytest.mark.slow
def test_recovers_the_spring_chain_within_its_standard_errors(chain):
    """Chi-square: the normalized error of all seven numbers together, below the 99.9 % quantile of 7 degrees of freedom, 24.3."""
    state, noise = starts(chain, 4, 0), 0.01
    clean = np.asarray(simulate(chain, state, 100))
    measured = clean + noise * np.random.default_rng(1).normal(size=clean.shape)
    measured[10:15, 0] = np.nan  # lost samples
    f = fit(Problem(perturbed(chain), state, measured, CHOSEN, observe=angles, std=noise))
    truth = truth_of(chain)
    assert f.converged and f.names == tuple(truth) and f.undetermined == () and f.at_bound == ()
    error = np.array([f.values[n] - truth[n] for n in f.names])
    assert error @ np.linalg.solve(f.covariance, error) < 24.3
    assert all(0 < f.std_errors[n] < 0.1 * truth[n] for n in f.names)
    assert f.noise == pytest.approx(1.0, abs=4 / np.sqrt(2 * f.samples)) and f.samples == measured.size - 15
    np.testing.assert_allclose(f.predicted, clean, atol=0.01)
    np.testing.assert_allclose(f.residuals, measured - f.predicted)
    np.testing.assert_allclose(f.model.dof.damping, [f.values[f"dof.damping[link{i}]"] for i in (1, 2, 3)])
    assert (np.diff(f.history) <= 0).all() and f.history[-1] == pytest.approx(f.cost)
    assert "converged (LevenbergMarquardt" in f.summary() and "geom.mass[link2]" in f.summary()


@pytest.mark.slow
def test_standard_errors_are_the_scatter_of_repeated_experiments(x64):
    """The scatter of the estimates from forty noise draws is the standard error that each fit states, and intervals of 80 percent hold the
    truth in about 80 percent of them."""
    model = pendulum()
    state, repeats, noise = xsim.init(model, [1.0]), 40, 0.02
    clean = np.asarray(simulate(model, state, 60))
    rng = np.random.default_rng(0)
    estimates, errors, covered = [], [], 0
    for _ in range(repeats):
        measured = clean + noise * rng.normal(size=clean.shape)
        f = fit(Problem(model, state, measured, "dof.damping", observe=angles, std=noise), "gauss_newton")
        estimates.append(f.values["dof.damping[arm]"])
        errors.append(f.std_errors["dof.damping[arm]"])
        low, high = f.intervals(0.8)["dof.damping[arm]"]
        covered += low < 0.1 < high
    assert 24 <= covered <= 39  # 32 on average, 3 sigma
    assert np.std(estimates, ddof=1) == pytest.approx(np.mean(errors), rel=0.35)  # 3 sigma of a scatter of 40


@pytest.mark.slow
def test_the_search_does_not_depend_on_the_unit_of_the_noise(x64):
    model = pendulum()
    state = xsim.init(model, [1.0])
    measured = np.asarray(simulate(model, state, 60))
    chosen = ["dof.damping", Parameter("geom.mass", start=0.4)]
    fits = [fit(Problem(model, state, measured + 0.01, chosen, observe=angles, std=std)) for std in (1.0, 1e-6)]
    np.testing.assert_allclose(fits[1].history * 1e-12, fits[0].history, rtol=1e-6)
    assert fits[0].converged and len(fits[0].history) < 20


@pytest.mark.slow
def test_methods_agree(chain):
    state = starts(chain, 2, 3)
    measured = np.asarray(simulate(chain, state, 60)) + 0.01 * np.random.default_rng(2).normal(size=(60, 2, 3))
    start = chain.replace({"dof.damping": chain.dof.damping * 1.3, "dof.stiffness": chain.dof.stiffness * 0.8})
    softplus, bounded = Parameter("dof.damping[link?]", transform="softplus"), Parameter("dof.stiffness[2]", bounds=(0.5, 4.0))
    chosen = [softplus, "dof.stiffness[link1]", bounded]
    reference = fit(Problem(start, state, measured, chosen, observe=angles, std=0.01))
    assert reference.names[-1] == "dof.stiffness[link3]"
    for method in ("gauss_newton", optax.adam(optax.exponential_decay(0.05, 300, 0.1)), optimistix.Dogleg(rtol=0.0, atol=0.0)):
        f = fit(Problem(start, state, measured, chosen, observe=angles, std=0.01), method)
        assert f.converged, f.summary()
        for n in f.names:
            assert f.values[n] == pytest.approx(reference.values[n], abs=0.05 * reference.std_errors[n]), (method, n)


@pytest.mark.slow
def test_float32_reaches_the_same_minimum():
    model = pendulum()
    state = xsim.init(model, [[1.0], [-0.5]])
    measured = np.asarray(simulate(model, state, 80)) + 0.01 * np.random.default_rng(0).normal(size=(80, 2, 1))
    chosen = ["dof.damping", Parameter("geom.mass", start=0.7)]
    single = fit(Problem(model, state, measured, chosen, observe=angles, std=0.01))
    with jax.enable_x64(True):
        model = pendulum()
        double = fit(Problem(model, xsim.init(model, [[1.0], [-0.5]]), measured, chosen, observe=angles, std=0.01))
    assert single.converged and double.converged
    for n in double.names:
        assert single.values[n] == pytest.approx(double.values[n], abs=0.05 * double.std_errors[n])
        assert single.std_errors[n] == pytest.approx(double.std_errors[n], rel=0.01)


def hinge(axis, **numbers):
    return JointSpec("hinge", params={"axes": np.array([axis], float)}, **numbers)


def box(mass, x, name=""):
    return GeomSpec("box", np.array([0.1, 0.02, 0.02]), mass, pos=np.array([x, 0.0, 0.0]), name=name)


def pendulum(masses=(1.0,), damping=0.1, dt=0.02):
    arm = BodySpec("arm", -1, hinge((0, 1, 0), damping=np.array([damping])), geoms=tuple(box(m, 0.3) for m in masses))
    return xsim.build(ModelSpec(bodies=(arm,), option=OptionSpec(dt=dt)))


def double_pendulum():
    arms = tuple(
        BodySpec(
            name, parent, hinge((0, 1, 0), damping=np.array([0.01])), pos=np.array([0.4 * (parent + 1), 0.0, 0.0]),
            geoms=(box(mass, 0.3),),
        )
        for name, parent, mass in (("upper", -1, 1.0), ("lower", 0, 0.7))
    )  # fmt: skip
    return xsim.build(ModelSpec(bodies=arms, option=OptionSpec(dt=0.01)))


@pytest.mark.slow
def test_names_two_masses_that_act_through_their_sum(x64):
    model = pendulum((0.6, 0.4))
    state = xsim.init(model, [[1.0], [2.0]])
    measured = np.asarray(simulate(model, state, 80)) + 0.01 * np.random.default_rng(0).normal(size=(80, 2, 1))
    f = fit(Problem(model, state, measured, ["geom.mass", "dof.damping"], observe=angles, std=0.01))
    # A pendulum with gravity and damping: only damping / mass can be seen. Two directions of the three are open.
    total = f.values["geom.mass[0]"] + f.values["geom.mass[1]"]
    assert len(f.undetermined) == 2 and all(np.isinf(c.std) for c in f.undetermined)
    assert all(np.isinf(e) for e in f.std_errors.values())
    assert f.values["dof.damping[arm]"] / total == pytest.approx(0.1, rel=0.05)
    # Known damping fixes the sum, and the difference stays open.
    f = fit(Problem(model, state, measured, ["geom.mass"], observe=angles, std=0.01))
    (c,) = f.undetermined
    change = {n: w * f.values[n] for n, w in c.weights.items()}
    assert change["geom.mass[0]"] == pytest.approx(-change["geom.mass[1]"], rel=1e-4)
    assert f.correlation[0, 1] == pytest.approx(-1.0, abs=1e-6) and "not determined" in f.summary()
    # One number for both is determined.
    f = fit(Problem(model, state, measured, [Parameter("geom.mass", tied=True)], observe=angles, std=0.01))
    assert f.names == ("geom.mass",) and not f.undetermined
    assert f.values["geom.mass"] == pytest.approx(0.5, abs=4 * f.std_errors["geom.mass"])


@pytest.mark.slow
def test_names_the_stiffness_of_a_joint_that_never_moves(x64):
    still = BodySpec("still", -1, hinge((0, 0, 1), stiffness=np.array([3.0])), geoms=(box(1.0, 0.2),))
    swing = BodySpec("swing", -1, hinge((0, 1, 0), stiffness=np.array([3.0])), geoms=(box(1.0, 0.2),))
    model = xsim.build(ModelSpec(bodies=(still, swing), option=OptionSpec(dt=0.02)))
    state = xsim.init(model, [0.0, 0.8])
    measured = np.asarray(simulate(model, state, 60)) + 0.01 * np.random.default_rng(0).normal(size=(60, 2))
    f = fit(Problem(model, state, measured, "dof.stiffness", observe=angles, std=0.01))
    (c,) = f.undetermined
    assert c.weights == pytest.approx({"dof.stiffness[still]": 1.0}) and np.isinf(f.std_errors["dof.stiffness[still]"])
    assert f.values["dof.stiffness[still]"] == 3.0
    assert f.values["dof.stiffness[swing]"] == pytest.approx(3.0, abs=4 * f.std_errors["dof.stiffness[swing]"])


@pytest.mark.nightly
def test_multiple_shooting_on_a_long_chaotic_trajectory(x64):
    """Twelve seconds of a double pendulum that turns over: one shot ends in a wrong minimum, segments find the truth."""
    model = double_pendulum()
    state, steps, noise = xsim.init(model, [-2.6, 0.4]), 1200, 0.01
    q, v = simulate(model, state, steps, lambda s, d: (s.q, s.v))
    rng = np.random.default_rng(0)
    measured = np.asarray(q) + noise * rng.normal(size=q.shape)
    rough = np.asarray(v) + 0.2 * rng.normal(size=v.shape)  # velocities as a filter would give them
    start = model.replace({"geom.mass": model.geom.mass * jnp.array([1.0, 1.4]), "dof.damping": model.dof.damping * 2})
    chosen = ["geom.mass[lower]", "dof.damping"]
    truth = {"geom.mass[lower]": 0.7, "dof.damping[upper]": 0.01, "dof.damping[lower]": 0.01}
    single = fit(Problem(start, state, measured, chosen, observe=angles, std=noise), Solver(max_steps=40))
    assert single.noise > 10
    segments = Segments(100, states=(measured, rough), continuity=(1e-1, 1e-3))
    cut = fit(Problem(start, state, measured, chosen, observe=angles, std=noise, segments=segments))
    assert cut.converged and cut.noise == pytest.approx(1.0, abs=0.1)
    for n, value in truth.items():
        assert cut.values[n] == pytest.approx(value, abs=4 * cut.std_errors[n]) and cut.std_errors[n] < 0.2 * value
    assert cut.predicted.shape == measured.shape and cut.segment_starts[0].shape == (12, 2)
    np.testing.assert_allclose(cut.segment_starts[0], np.concatenate([state.q[None], q[99:-1:100]]), atol=5 * noise)


@pytest.mark.slow
def test_segments_reset_to_measured_states_and_uneven_length(chain):
    state = starts(chain, 2, 5)
    taus = 0.3 * np.random.default_rng(4).normal(size=(50, 2, 3))
    q, v = jax.jit(lambda s: xsim.rollout(chain, s, taus=taus, record=lambda s, d: (s.q, s.v))[1])(state)
    problem = Problem(
        perturbed(chain), state, {"angle": q, "gyro": v}, CHOSEN, observe=lambda s, d: {"angle": s.q, "gyro": s.v}, taus=taus,
        std={"angle": 0.01, "gyro": 0.1}, segments=Segments(15, starts="measured", states=(q, v)),
    )  # fmt: skip
    f = fit(problem)
    assert f.values == pytest.approx(truth_of(chain), rel=1e-6) and f.residuals["gyro"].shape == v.shape
    np.testing.assert_allclose(f.residuals["angle"], 0, atol=1e-6)


@pytest.mark.slow
def test_recovers_dry_friction_beside_damping_from_commanded_motion(x64):
    """The friction sticks at times: nothing but the sliding parts tell its size."""
    joint = JointSpec("hinge", damping=np.array([0.1]), friction=np.array([0.3]), actuator="force")
    model = xsim.build(ModelSpec(bodies=(BodySpec("arm", -1, joint, geoms=(box(1.0, 0.3),)),), option=OptionSpec(dt=0.01)))
    state, noise = xsim.init(model), 1e-4
    ctrls = 0.6 * np.sin(np.arange(150) * 0.12)[:, None]
    clean, v = jax.jit(lambda s: xsim.rollout(model, s, ctrls, record=lambda s, d: (s.q, s.v))[1])(state)
    assert 5 < (np.abs(v) < 1e-12).sum() < 100
    measured = clean + noise * np.random.default_rng(0).normal(size=clean.shape)
    start = model.replace({"dof.damping": [0.3], "dof.friction": [0.1]})
    f = fit(Problem(start, state, measured, ["dof.damping", "dof.friction"], observe=angles, ctrls=ctrls, std=noise))
    assert f.converged and f.undetermined == ()
    for name, truth in {"dof.damping[arm]": 0.1, "dof.friction[arm]": 0.3}.items():
        assert f.values[name] == pytest.approx(truth, abs=4 * f.std_errors[name]) and f.std_errors[name] < 0.02 * truth


STRUT = """
chrono-version: 9.0
model:
  name: strut
  bodies:
    - {name: ground, fixed: true, location: [0, 0, 0]}
    - {name: sledge, location: [0, 0, 0], mass: 2.0, inertia: {moments: [0.02, 0.05, 0.05]}}
  joints:
    - {name: rail, type: prismatic, body1: ground, body2: sledge, location: [0, 0, 0], axis: [1, 0, 0]}
  tsdas:
    - {name: linear, body1: ground, body2: sledge, point1: [-0.5, 0, 0], point2: [0, 0, 0], free_length: 0.5, spring_coefficient: 20,
       damping_coefficient: 1.5}
    - {name: curved, body1: ground, body2: sledge, point1: [0.5, 0, 0], point2: [0, 0, 0], free_length: 0.5,
       spring_curve_data: [[-0.2, -30], [0, 0], [0.2, 10]]}
"""


@pytest.mark.slow
def test_recovers_a_damper_and_the_points_of_a_table(x64):
    truth = xsim.loads(STRUT, "chrono", dt=0.01)
    state = xsim.init(truth, [[0.25], [-0.25]])
    measured = np.asarray(simulate(truth, state, 150)) + 1e-3 * np.random.default_rng(0).normal(size=(150, 2, 1))
    guess = truth.replace({"force.damping": [4.0], "function.numbers": [-0.2, -10.0, 0.0, 0.0, 0.2, 30.0]})
    true = {"force.damping[linear]": 1.5, "function.numbers[1]": -30.0, "function.numbers[5]": 10.0}
    f = fit(Problem(guess, state, measured, list(true), observe=angles, std=1e-3))
    assert f.converged and f.undetermined == () and f.names == tuple(true)
    for name, value in true.items():
        assert abs(f.values[name] - value) < 4 * f.std_errors[name] < 0.04 * abs(value)


@pytest.mark.slow
def test_fits_initial_states_on_the_configuration_manifold(x64):
    body = BodySpec("top", -1, JointSpec("ball", damping=np.full(3, 0.05)), geoms=(box(1.0, 0.3),))
    model = xsim.build(ModelSpec(bodies=(body,), option=OptionSpec(dt=0.02)))
    true = xsim.init(model, [[0.8, 0.0, 0.6, 0.0], [0.6, 0.0, 0.0, 0.8]], [[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    record = lambda s, d: d.quat  # noqa: E731
    measured = np.asarray(simulate(model, true, 60, record))
    q, v = xsim.integrate(model, true.q, jnp.full((2, 3), 0.1)), true.v + 0.3
    f = fit(Problem(model, xsim.init(model, q, v), measured, ["dof.damping"], observe=record, initial="fitted"))
    np.testing.assert_allclose(f.state.q, true.q, atol=1e-6)
    np.testing.assert_allclose(f.state.v, true.v, atol=1e-5)


def agrees(f, truth, percent):
    """The fit found the true numbers: chi-square of all errors below its 99.9 % quantile, and standard errors below so many percent."""
    errors = np.array([f.values[n] - truth[n] for n in f.names])
    stds = [f.std_errors[n] / abs(truth[n]) for n in f.names]
    return f.converged and errors @ np.linalg.solve(f.covariance, errors) < chi2.ppf(0.999, len(errors)) and max(stds) < percent / 100


def mjcf(world, **option):
    options = " ".join(f'{k}="{v}"' for k, v in option.items())
    return xsim.loads(f"<mujoco><option {options}/><worldbody>{world}</worldbody></mujoco>", "mjcf", rules="4.0")


@pytest.mark.slow
def test_recovers_the_friction_of_a_box_that_slides_to_rest(x64):
    """Two throws. The box comes to rest within the recording."""
    truth = mjcf(
        """<geom type="plane" size="5 5 .1" friction="0.1"/>
        <body name="box" pos="0 0 .05"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
        <geom type="box" size=".05 .05 .05" friction="0.4"/></body>""", timestep=0.005, cone="elliptic")  # fmt: skip
    state, noise = xsim.init(truth, np.zeros((2, 2)), [[1.0, 0.0], [1.5, 0.0]]), 1e-3
    clean, v = simulate(truth, state, 90, lambda s, d: (s.q[..., 0], s.v[..., 0]))
    assert (np.abs(v[-1]) < 1e-2).all() and (np.asarray(v[20]) > 0.3).all()
    measured = clean + noise * np.random.default_rng(0).normal(size=clean.shape)
    guess = truth.replace({"surface.friction[box, 0]": 0.8})
    f = fit(Problem(guess, state, measured, "surface.friction[box, 0]", observe=lambda s, d: s.q[..., 0], std=noise))
    assert agrees(f, {"surface.friction[box, 0]": 0.4}, 1), f.summary()


@pytest.mark.slow
def test_recovers_the_softness_of_a_contact_from_bounces(x64):
    """The height of bounces and the time they take tell damping ratio and time constant. A contact lasts fifteen steps here. With six the
    cost is rough, and the fit ends in another minimum."""
    truth = mjcf(
        """<geom type="plane" size="5 5 .1"/><body name="ball" pos="0 0 .05"><joint type="slide" axis="0 0 1"/>
        <geom size=".05" solref="0.05 0.2" priority="1"/></body>""", timestep=0.002)  # fmt: skip
    state, noise = xsim.init(truth, [[0.1], [0.2]]), 1e-3
    clean = np.asarray(simulate(truth, state, 250))
    assert (clean[150:].max(0) > 0.005).all() and (clean.min(0) < 0).all()
    measured = clean + noise * np.random.default_rng(0).normal(size=clean.shape)
    guess = truth.replace({"surface.solref[ball, 0]": 0.07, "surface.solref[ball, 1]": 0.3})
    chosen = {"surface.solref[ball, 0]": 0.05, "surface.solref[ball, 1]": 0.2}
    f = fit(Problem(guess, state, measured, list(chosen), observe=angles, std=noise))
    assert agrees(f, chosen, 2), f.summary()


@pytest.mark.slow
def test_recovers_the_inertia_of_a_body_that_tumbles(x64):
    """The orientation of a thrown body tells the ratios of its moments of inertia; with a known torque also their sizes."""
    truth = mjcf("""<body name="rock"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="0.02 0.03 0.045"/></body>""", timestep=0.01)
    names, moments = [f"body.inertia[rock, {i}]" for i in range(3)], [0.02, 0.03, 0.045]
    state, noise = xsim.init(truth, np.tile([0, 0, 0, 1.0, 0, 0, 0], (2, 1)), [[0, 0, 3, 0.5, 4, 0.5], [0, 0, 3, 3, 0.3, 3]]), 5e-3
    observe = lambda s, d: s.q[..., 3:]  # noqa: E731
    guess = truth.replace({"body.inertia": [[0.03, 0.03, 0.03, 0, 0, 0]]})
    rng = np.random.default_rng(0)

    def found(taus):
        clean = np.asarray(simulate(truth, state, 100, observe, taus=taus))
        measured = clean + noise * rng.normal(size=clean.shape)
        return fit(Problem(guess, state, measured, names, observe=observe, taus=taus, std=noise))

    f = found(np.zeros((100, 1, 6)))
    (c,) = f.undetermined
    weights = np.array([c.weights[n] for n in names])
    np.testing.assert_allclose(weights / weights[2], np.array(moments) / moments[2], rtol=0.02)  # all grow by the same factor
    assert all(np.isinf(f.std_errors[n]) for n in names)
    ratios = np.array([f.values[n] for n in names]) / f.values[names[2]]
    np.testing.assert_allclose(ratios, np.array(moments) / moments[2], rtol=0.02)
    taus = np.zeros((100, 1, 6))
    taus[:, 0, 3] = 0.05
    f = found(taus)
    assert agrees(f, dict(zip(names, moments, strict=True)), 5) and not f.undetermined, f.summary()


def test_an_uncertain_start_is_held_by_its_prior(x64):
    """One sample of a pendulum that starts at rest: the estimate is the mean of prior and measurement, weighted by their variances."""
    model = pendulum(dt=1e-6)
    f = fit(Problem(model, xsim.init(model, [0.2]), np.array([[0.5]]), [], observe=angles, std=0.1, initial="fitted", initial_std=0.05))
    assert float(f.state.q[0]) == pytest.approx((0.2 / 0.05**2 + 0.5 / 0.1**2) / (1 / 0.05**2 + 1 / 0.1**2), abs=1e-4)


@pytest.mark.slow
def test_bounds_hold_in_the_result_and_are_reported(x64):
    model = pendulum(damping=0.1)
    state = xsim.init(model, [1.0])
    measured = simulate(model, state, 60)
    f = fit(Problem(model, state, measured, Parameter("dof.damping", bounds=(0.15, 0.4), start=0.3), observe=angles, std=0.01))
    assert 0.15 <= f.values["dof.damping[arm]"] < 0.151 and f.at_bound == ("dof.damping[arm]",) and "at its bound" in f.summary()
    f = fit(Problem(model, state, measured, Parameter("geom.pos[arm, 0]", bounds=(None, 0.29), start=0.2), observe=angles, std=0.01))
    assert f.names == ("geom.pos[arm, 0]",) and 0.28 < f.values["geom.pos[arm, 0]"] <= 0.29


@pytest.mark.parametrize(
    "parameters, error, text",
    [
        ("dof.dampling", KeyError, "did you mean 'dof.damping'"),
        ("dof.damping[elbow]", KeyError, "no row is named 'elbow'"),
        ("dof.damping[7]", KeyError, "dof.damping has 1 rows"),
        ("dof.damping[arm", ValueError, "expected leaf"),
        ("geom.pos[arm, 3]", ValueError, "no column '3'"),
        ("dof.armature", ValueError, r"dof.armature\[arm\] = 0: give another start"),
        ("geom.size", ValueError, "frozen"),
        (["dof.damping", "dof.damping[arm]"], ValueError, "chosen twice"),
        (Parameter("dof.damping", bounds=(0.2, 0.3)), ValueError, "strictly between 0.2 and 0.3"),
        (Parameter("dof.damping", bounds=(-1.0, 0.3)), ValueError, "allows a negative"),
        (Parameter("dof.damping", bounds=(0.0, 0.3), transform="log"), ValueError, "does not keep the high bound"),
        (Parameter("dof.damping", transform="cube"), ValueError, "unknown transform"),
        (Parameter("dof.damping", start=[1.0, 2.0]), ValueError, "expected one number or 1"),
        ([], ValueError, "nothing to fit"),
        ([3], TypeError, "paths or Parameter"),
    ],
)
def test_refused_parameters(parameters, error, text):
    model = pendulum().freeze("geom.size")
    with pytest.raises(error, match=text):
        fit(Problem(model, xsim.init(model), np.zeros((5, 1)), parameters, observe=angles))


@pytest.mark.parametrize(
    "options, text",
    [
        ({"measured": np.zeros((5, 2))}, r"shape \(5, 2\), but observe gives \(5, 1\)"),
        ({"measured": {"q": np.zeros((5, 1))}}, "structure that observe returns"),
        ({"measured": np.full((5, 1), np.inf)}, "infinite"),
        ({"std": 0.0}, "std must be finite and positive"),
        ({"std": np.ones(3)}, "std must be a number or a tree"),
        ({"ctrls": np.zeros((4, 1))}, "ctrls has 4 steps but measured has 5"),
        ({"taus": np.zeros((4, 1))}, "taus has 4 steps but measured has 5"),
        ({"segments": 9}, "between 1 and the number of steps"),
        ({"segments": Segments(2, "measured")}, "needs states"),
        ({"segments": Segments(2, "guessed")}, "starts must be one of fitted, measured"),
        ({"segments": Segments(2, states=(np.zeros((5, 1)), np.zeros((5, 2))))}, r"v has shape \(5, 2\), expected \(5, 1\)"),
        ({"segments": Segments(2, continuity=0.0)}, "continuity must be positive"),
        ({"initial": "guess"}, "one of known, fitted"),
        ({"solver": "bfgs"}, "unknown method"),
        ({"solver": Solver("gauss_newtn")}, "did you mean 'gauss_newton'"),
        ({"q": [np.nan]}, "not finite"),
    ],
)
def test_refused_data(options, text):
    model, options = pendulum(), dict(options)
    state, measured = xsim.init(model, options.pop("q", None)), options.pop("measured", np.zeros((5, 1)))
    solver = options.pop("solver", "lm")
    with pytest.raises(ValueError, match=text):
        fit(Problem(model, state, measured, "dof.damping", observe=angles, **options), solver)


@pytest.mark.parametrize("actuator, what", [('nsample="4" delay="0.003"', "delays"), ('dyntype="filter" dynprm="0.1"', "activations")])
def test_segments_need_all_of_the_state(actuator, what):
    text = f"""<mujoco><worldbody><body name="arm"><joint name="j"/><geom size=".1"/></body></worldbody>
        <actuator><general joint="j" {actuator}/></actuator></mujoco>"""
    model = xsim.loads(text, "mjcf", rules="4.0")
    problem = Problem(
        model, xsim.init(model), np.zeros((6, 1)), Parameter("dof.damping", start=0.1), observe=angles, ctrls=np.zeros((6, 1)),
        segments=Segments(2, states=(np.zeros((6, 1)), np.zeros((6, 1)))),
    )  # fmt: skip
    with pytest.raises(ValueError, match=f"the state of this model has more .{what}.: fit without segments"):
        fit(problem)


def test_a_missing_library_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("optimistix"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    model = pendulum()
    with pytest.raises(ImportError, match=r"xsim\[fit\]"):
        fit(Problem(model, xsim.init(model), np.zeros((5, 1)), "dof.damping", observe=angles))
