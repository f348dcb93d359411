"""What MuJoCo computes for model files: one line of JSON for each path on stdin, in the words of the corpus.

Run by tests/test_robots.py with a Python that has mujoco. Nothing of the model is altered. Three states: the reset state (no key), a random
one, and where that is after 100 steps (things lie on each other then). ``qacc_converged`` is the acceleration with the solver run to the
end.
"""

import json
import sys

import mujoco as mj
import numpy as np

SIZES = ("nq", "nv", "nu", "na", "nbody", "ngeom", "npair", "nexclude", "nhfield", "nsensordata")
ELEMENTS = {"joint": "njnt", "geom": "ngeom", "site": "nsite", "camera": "ncam", "light": "nlight", "mesh": "nmesh", "equality": "neq",
            "tendon": "ntendon", "actuator": "nu", "sensor": "nsensor", "key": "nkey", "body": "nbody"}  # fmt: skip
FORCES = {"bias": "qfrc_bias", "passive": "qfrc_passive", "actuator": "qfrc_actuator"}
PLAIN = ("qacc_smooth", "qacc", "actuator_length", "actuator_force", "act_dot", "sensordata", "xpos", "xquat")
PLACES = ("site_xpos", "site_xmat", "geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
STEPS = 100
CONVERGED = {"tolerance": 1e-14, "iterations": 500, "ls_iterations": 100}


def facts(path: str) -> dict:
    model = mj.MjModel.from_xml_path(path)
    random = _random(model)
    given = {"qpos0": {}, "random": random, "settled": _settled(model, random)}
    masses = {"mass": model.body_mass, "com": model.body_ipos, "inertia": _tensors(model)}
    return {
        "size": {name: int(getattr(model, name)) for name in SIZES},
        "names": {kind: _names(model, kind, getattr(model, count)) for kind, count in ELEMENTS.items()},
        "bodies": _plain(masses),
        "qpos0": model.qpos0.tolist(),
        "states": {name: _state(model, numbers) for name, numbers in given.items() if numbers is not None},
    }


def _names(model, kind: str, count: int) -> list:
    return [mj.mj_id2name(model, getattr(mj.mjtObj, f"mjOBJ_{kind.upper()}"), i) or "" for i in range(count)]


def _tensors(model) -> np.ndarray:
    """Inertia of each body about its centre of mass, along the body's axes: (nbody, 3, 3)."""
    out = np.empty((model.nbody, 3, 3))
    for i in range(model.nbody):
        turn = np.empty(9)
        mj.mju_quat2Mat(turn, model.body_iquat[i])
        out[i] = turn.reshape(3, 3) @ np.diag(model.body_inertia[i]) @ turn.reshape(3, 3).T
    return out


def _random(model) -> dict:
    """0.2 (1 sigma) of a step from the reset state in every dof, velocities of 0.5, controls and activations in their ranges."""
    rng, q = np.random.default_rng(0), np.array(model.qpos0)
    if model.nv:
        mj.mj_integratePos(model, q, 0.2 * rng.standard_normal(model.nv), 1.0)
    v, ctrl = 0.5 * rng.standard_normal(model.nv), 0.5 * rng.standard_normal(model.nu)
    low, high = model.actuator_ctrlrange.T
    limited = model.actuator_ctrllimited.astype(bool)
    ctrl[limited] = (low + rng.random(model.nu) * (high - low))[limited]
    return {"qpos": q, "qvel": v, "ctrl": ctrl, "act": rng.random(model.na)}


def _settled(model, start: dict) -> dict | None:
    """None where the engine started again on the way."""
    data = _data(model, start)
    mj.mj_step(model, data, STEPS)
    if any(w.number for w in data.warning):
        return None
    return {name: np.array(getattr(data, name)) for name in start}


def _data(model, given: dict):
    data = mj.MjData(model)
    for name, numbers in given.items():
        getattr(data, name)[:] = numbers
    return data


def _state(model, given: dict) -> dict:
    data = _data(model, given)
    mj.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    if model.nv:
        mj.mj_fullM(model, mass, data.qM)
    kinds = [mj.mjtConstraint(int(kind)).name.removeprefix("mjCNSTR_") for kind in data.efc_type[: data.nefc]]
    out = _plain(given) | {"M": mass.tolist(), "ncon": int(data.ncon), "nefc": int(data.nefc)}
    out["efc_types"] = {kind: kinds.count(kind) for kind in kinds}
    out |= _plain({name: getattr(data, of) for name, of in FORCES.items()} | {name: getattr(data, name) for name in PLAIN})
    out |= _plain({name: getattr(data, name) for name in PLACES if len(getattr(data, name))})
    out["body_velocity_ang_lin"] = [_velocity(model, data, i) for i in range(model.nbody)]
    out["contacts"] = [_contact(data.contact[i]) for i in range(data.ncon)]
    out["warnings"] = sum(int(w.number) for w in data.warning)
    if data.nefc:
        kept = {name: getattr(model.opt, name) for name in CONVERGED}
        for name, value in CONVERGED.items():
            setattr(model.opt, name, value)
        mj.mj_forward(model, data)
        for name, value in kept.items():
            setattr(model.opt, name, value)
        out["qacc_converged"] = data.qacc.tolist()
    return out


def _velocity(model, data, body: int) -> list:
    """Angular and linear velocity of the body's frame, axes of the world."""
    out = np.empty(6)
    mj.mj_objectVelocity(model, data, mj.mjtObj.mjOBJ_XBODY, body, out, 0)
    return out.tolist()


def _contact(one) -> dict:
    own = {"geom": one.geom, "pos": one.pos, "frame": one.frame, "friction": one.friction, "solref": one.solref, "solimp": one.solimp}
    return _plain(own) | {"dist": float(one.dist), "dim": int(one.dim), "includemargin": float(one.includemargin)}


def _plain(arrays: dict) -> dict:
    return {name: np.asarray(numbers).tolist() for name, numbers in arrays.items()}


mj.set_mju_user_warning(lambda text: None)  # data.warning counts them; the engine would write to stdout and to a file
for line in sys.stdin:
    try:
        answer = facts(line.rstrip("\n"))
    except (ValueError, mj.FatalError) as error:
        answer = {"error": str(error).strip()}
    print(json.dumps(answer), flush=True)
