"""What the Chrono reader understood, against the reference engine: accelerations of all bodies in all its states, from the spec alone.

A small second engine in numpy: every body moves freely (Newton, Euler), joints and constraints are equations between frames as
`xsim.spec` words them, differentiated along the motion by finite differences, forces are the formulas there. Slow, dense and independent
of the dynamics of xsim: where both agree with the reference the reader, the vocabulary and the engine say the same.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pytest
from corpus import models, needs_corpus, oracle
from scipy.spatial.transform import Rotation

from xsim.io import parse
from xsim.io.solids import tensor

pytestmark = [pytest.mark.conformance, needs_corpus]

H = 1e-3  # s: step of the fourth-order differences, whose error is H**4 / 90 times a sixth derivative
BUMP = np.array([  # deflection beyond a stop (m) and force (N)
    (0, 0), (0.002, 200), (0.004, 400), (0.006, 600), (0.008, 800), (0.010, 1000), (0.020, 2500), (0.030, 4500), (0.040, 7500),
    (0.050, 12500), (0.060, 125000),
])  # fmt: skip
X, Y, Z = np.eye(3)


class Frame(NamedTuple):
    """Orientation, origin, velocity of the origin, angular velocity, all in world axes."""

    R: np.ndarray
    p: np.ndarray
    v: np.ndarray = np.zeros(3)
    w: np.ndarray = np.zeros(3)

    def at(self, pos, quat) -> Frame:
        """A frame in this one."""
        arm = self.R @ pos
        return Frame(self.R @ matrix(quat), self.p + arm, self.v + np.cross(self.w, arm), self.w)


WORLD = Frame(np.eye(3), np.zeros(3))


def matrix(quat) -> np.ndarray:
    return Rotation.from_quat(np.asarray(quat)[[1, 2, 3, 0]]).as_matrix()


def skew_part(Q) -> np.ndarray:
    return np.array([Q[2, 1] - Q[1, 2], Q[0, 2] - Q[2, 0], Q[1, 0] - Q[0, 1]]) / 2


def turned_about(Q, axis) -> float:
    """Angle of a rotation's twist about an axis, in (-pi, pi]."""
    x, y, z, w = Rotation.from_matrix(Q).as_quat()
    angle = 2 * np.arctan2(np.array([x, y, z]) @ axis, w)
    return (angle + np.pi) % (2 * np.pi) - np.pi


# ---- functions ---------------------------------------------------------------------------------------------------------------


def derivatives(function, t: float) -> tuple[float, float, float]:
    """Value, and first and second derivative from the right."""
    x = t
    if function.repeat:
        start, width, shift = function.repeat
        x = start + np.fmod(t + shift, width)
    n = function.numbers
    if function.kind == "polynomial":
        p = np.polynomial.Polynomial(n)
        return p(x), p.deriv()(x), p.deriv(2)(x)
    if function.kind == "sine":
        w = 2 * np.pi * n[1]
        s, c = n[0] * np.sin(w * x + n[2]), n[0] * np.cos(w * x + n[2])
        return s + n[3], w * c, -w * w * s
    if function.kind == "table":
        i = np.searchsorted(n[:, 0], x, side="right")
        slope = 0.0 if i in (0, len(n)) else (n[i, 1] - n[i - 1, 1]) / (n[i, 0] - n[i - 1, 0])
        return np.interp(x, *n.T), slope, 0.0
    if function.kind == "ramp":
        return n[0] + n[1] * x, n[1], 0.0
    assert function.kind in ("constant", "external")
    return float(n.sum()), 0.0, 0.0  # a control: nobody drives it


# ---- equations ---------------------------------------------------------------------------------------------------------------


def joint_equations(type: str, axes, a: Frame, b: Frame) -> list:
    d, Q = a.R.T @ (b.p - a.p), a.R.T @ b.R
    if type == "universal":
        return [*d, axes[0] @ Q @ axes[1]]
    across = np.linalg.svd(axes[:1])[2][1:] if len(axes) else []
    return {
        "fixed": lambda: [*d, *skew_part(Q)],
        "ball": lambda: [*d],
        "hinge": lambda: [*d, *(across @ Q @ axes[0])],
        "slide": lambda: [*(across @ d), *skew_part(Q)],
        "free": lambda: [],
    }[type]()


def moved(driven: str, axis, a: Frame, b: Frame, since: float) -> float:
    """Coordinate of the second frame along or about an axis of the first; angles near ``since``."""
    if driven == "slide":
        return axis @ a.R.T @ (b.p - a.p)
    angle = turned_about(a.R.T @ b.R, axis)
    return angle + 2 * np.pi * np.round((since - angle) / (2 * np.pi))


def target(constraint, t: float, h: float) -> float:
    """What a motor prescribes h after t, but for a constant."""
    f, rate, second = derivatives(constraint.function, t)
    return rate * h + second * h * h / 2 if constraint.mode == "position" else f * h + rate * h * h / 2


def constraint_equations(c, a: Frame, b: Frame) -> list:
    d, Q, line = a.R.T @ (b.p - a.p), a.R.T @ b.R, b.p - a.p
    if c.kind == "joint":
        return joint_equations(c.joint.type, c.joint.params.get("axes", np.zeros((0, 3))), a, b)
    if c.kind == "motor":
        rows = {"x": d[0], "y": d[1], "z": d[2], "rx": Q[1, 2], "ry": Q[0, 2], "rz": Q[0, 1]}
        return [rows[k] for k in c.constrained]
    return {
        "point_on_line": lambda: [d[0], d[1]],
        "point_on_plane": lambda: [d[2]],
        "distance": lambda: [np.linalg.norm(line)],
        "revolute_spherical": lambda: [np.linalg.norm(line), a.R[:, 2] @ line],
        "revolute_translational": lambda: [a.R[:, 2] @ b.R[:, 0], a.R[:, 2] @ b.R[:, 1], a.R[:, 2] @ line, b.R[:, 1] @ line],
    }[c.kind]()


def equations(spec, frames: list[Frame], t: float, h: float, since: list[float]) -> np.ndarray:
    """All equations, zero second derivative along the motion. frames: of the bodies h after t."""

    def on(body: int) -> Frame:
        return frames[body] if body >= 0 else WORLD

    def ends(body):
        return on(body.parent).at(body.pos, body.quat), on(spec.bodies.index(body)).at(body.joint.pos, body.joint.quat)

    rows: list = []
    for body in spec.bodies:
        if not is_welded(body):
            rows += joint_equations(body.joint.type, body.joint.params.get("axes", np.zeros((0, 3))), *ends(body))
    for c, start in zip(spec.constraints, since, strict=True):
        if c.kind == "motion":
            ((body, _),) = c.coordinates
            (axis,) = spec.bodies[body].joint.params["axes"]
            rows.append(moved(c.driven, axis, *ends(spec.bodies[body]), start) - target(c, t, h))
        else:
            a, b = (on(i).at(*frame) for i, frame in zip(c.bodies, c.frames, strict=True))
            rows += constraint_equations(c, a, b)
            if c.kind == "motor" and c.mode:
                rows.append(moved(c.driven, Z, a, b, start) - target(c, t, h))
    return np.array(rows)


def is_welded(body) -> bool:
    return body.parent < 0 and body.joint.type == "fixed"


# ---- forces ------------------------------------------------------------------------------------------------------------------


def law(f, x: float, rate: float, length: float) -> float:
    if f.map is not None:
        return f.preload - bilinear(*f.map, rate, length)
    total = f.preload - (f.stiffness or 0.0) * x - (f.damping or 0.0) * rate
    total -= 0.0 if f.spring is None else np.interp(x, *f.spring.numbers.T)
    total -= 0.0 if f.damper is None else np.interp(rate, *f.damper.numbers.T)
    if f.stops:
        total += np.interp(f.stops[0] - length, *BUMP.T) - np.interp(length - f.stops[1], *BUMP.T)
    return total


def bilinear(rates, lengths, table, rate, length) -> float:
    i, j = (int(np.clip(np.searchsorted(grid, x) - 1, 0, len(grid) - 2)) for grid, x in ((rates, rate), (lengths, length)))
    u, s = (rate - rates[i]) / (rates[i + 1] - rates[i]), (length - lengths[j]) / (lengths[j + 1] - lengths[j])
    return np.array([1 - u, u]) @ table[i : i + 2, j : j + 2] @ np.array([1 - s, s])


def loads(f, on, t: float) -> list:
    """(body, force, at, moment) in world axes."""
    a = on(f.bodies[0]).at(*f.frames[0])
    if f.kind == "load":
        x = f.vector * (1.0 if f.function is None else derivatives(f.function, t)[0])
        x = on(f.bodies[0]).R @ x if f.local else x
        at = f.frames[0][0] if f.at_world else a.p
        return [(f.bodies[0], x, at, 0 * X) if f.driven == "slide" else (f.bodies[0], 0 * X, at, x)]
    b, (one, two) = on(f.bodies[1]).at(*f.frames[1]), f.bodies
    if f.kind == "spring":
        length = np.linalg.norm(a.p - b.p)
        u = (a.p - b.p) / length
        force = law(f, length - f.rest, u @ (a.v - b.v), length) * u
        return [(one, force, a.p, 0 * X), (two, -force, b.p, 0 * X)]
    z = a.R[:, 2]
    if f.kind == "torsion":
        torque = law(f, turned_about(a.R.T @ b.R, Z) - f.rest, z @ (b.w - a.w), 0.0) * z
        return [(one, 0 * X, a.p, -torque), (two, 0 * X, b.p, torque)]
    if f.kind == "motor":
        x = derivatives(f.function, t)[0] * z
        force, moment = (x, 0 * X) if f.driven == "slide" else (0 * X, x)
        return [(one, -force, b.p, -moment), (two, force, b.p, moment)]
    r, turn = a.R.T @ (b.p - a.p), Rotation.from_matrix(a.R.T @ b.R).as_rotvec()
    rates = np.concatenate([a.R.T @ (b.v - a.v - np.cross(a.w, b.p - a.p)), a.R.T @ (b.w - a.w)])
    x = f.stiffness * np.concatenate([r, turn]) + f.damping * rates
    force, moment = a.R @ x[:3], a.R @ x[3:]
    return [(one, force, a.p, moment), (two, -force, b.p, -moment)]


# ---- accelerations -----------------------------------------------------------------------------------------------------------


def accelerations(spec, frames: list[Frame], t: float) -> np.ndarray:
    """(bodies, 6): acceleration of each frame's origin and angular acceleration, world axes."""
    moving = [i for i, b in enumerate(spec.bodies) if not is_welded(b)]
    arms = [f.R @ b.inertial.com for f, b in zip(frames, spec.bodies, strict=True)]
    centres = [f.at(b.inertial.com, [1, 0, 0, 0]) for f, b in zip(frames, spec.bodies, strict=True)]
    force = np.zeros((len(frames), 6))
    inverse = np.zeros((len(frames), 6, 6))

    def on(i: int) -> Frame:
        return frames[i] if i >= 0 else WORLD

    for f in spec.forces:
        for body, x, at, moment in loads(f, on, t):
            force[body] += [*x, *(moment + np.cross(at - centres[body].p, x))]
    for i in moving:
        f, inertial = frames[i], spec.bodies[i].inertial
        I = f.R @ tensor(inertial.inertia) @ f.R.T  # noqa: E741
        force[i] += [*(inertial.mass * spec.option.gravity), *-np.cross(f.w, I @ f.w)]
        inverse[i, :3, :3], inverse[i, 3:, 3:] = np.eye(3) / inertial.mass, np.linalg.inv(I)

    def after(h: float, i: int, a: np.ndarray) -> Frame:
        """A body's frame h later, with acceleration a of its centre."""
        R = Rotation.from_rotvec(frames[i].w * h + a[3:] * h * h / 2).as_matrix() @ frames[i].R
        return Frame(R, centres[i].p + centres[i].v * h + a[:3] * h * h / 2 - R @ spec.bodies[i].inertial.com)

    def second(changes: dict[int, np.ndarray]) -> np.ndarray:
        """Second derivative of the equations with these accelerations of the centres."""
        at = {}
        for k in (-2, -1, 0, 1, 2):
            there = [after(k * H, i, changes.get(i, np.zeros(6))) if i in moving else frames[i] for i in range(len(frames))]
            at[k] = equations(spec, there, t, k * H, since)
        return (-at[-2] + 16 * at[-1] - 30 * at[0] + 16 * at[1] - at[2]) / (12 * H * H)

    since = [0.0] * len(spec.constraints)
    for n, c in enumerate(spec.constraints):
        if c.kind == "motion":
            ((body, _),) = c.coordinates
            b = spec.bodies[body]
            (axis,) = b.joint.params["axes"]
            since[n] = moved(c.driven, axis, on(b.parent).at(b.pos, b.quat), frames[body].at(b.joint.pos, b.joint.quat), 0.0)
        elif c.kind == "motor":
            since[n] = moved(c.driven, Z, on(c.bodies[0]).at(*c.frames[0]), on(c.bodies[1]).at(*c.frames[1]), 0.0)
    free = np.array([m @ f for m, f in zip(inverse, force, strict=True)])
    drift = second({})
    if len(drift):
        J = np.array([second({i: e}) - drift for i in moving for e in np.eye(6)]).T
        W = np.zeros((6 * len(moving),) * 2)
        for k, i in enumerate(moving):
            W[6 * k : 6 * k + 6, 6 * k : 6 * k + 6] = inverse[i]
        multipliers = np.linalg.lstsq(J @ W @ J.T, -(J @ free[moving].ravel() + drift), rcond=1e-10)[0]
        free[moving] += (W @ J.T @ multipliers).reshape(-1, 6)
    found = np.zeros((len(frames), 6))
    for i in moving:
        a, alpha, w = free[i, :3], free[i, 3:], frames[i].w
        found[i] = [*(a - np.cross(alpha, arms[i]) - np.cross(w, np.cross(w, arms[i]))), *alpha]
    return found


@pytest.mark.parametrize("path", models("chrono"), ids=lambda p: p.stem)
def test_accelerations_of_the_reference_engine(path):
    """1e-6 of the largest: the states keep the constraints to about that; 1e-5 with bushings, whose rotation vector is noisy there."""
    numbers = oracle(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = parse(path, gravity=numbers["gravity"])
    checked = 0
    for state in numbers["states"]:
        if "body_acceleration" not in state:
            continue
        poses, velocities = ([state[key][b.name] for b in spec.bodies] for key in ("body_pose", "body_velocity"))
        frames = [Frame(matrix(x[3:]), np.array(x[:3]), np.array(v[:3]), np.array(v[3:])) for x, v in zip(poses, velocities, strict=True)]
        found = accelerations(spec, frames, state["time"])
        wanted = np.array([state["body_acceleration"][b.name] for b in spec.bodies])
        error = np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max())
        assert error < (1e-5 if any(f.kind == "bushing" for f in spec.forces) else 1e-6), f"t = {state['time']:.3g}: {error:.2e}"
        checked += 1
    assert checked >= 4
