"""Adapters of MuJoCo and of the engines that are built on its models: MJX, Brax, MuJoCo Warp. See `xsim.bench.peers`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xsim.bench.engines import Engine, Start, Unsupported, about_jax, divided, format_of, jax_engine, processor, read_start, versions
from xsim.bench.measure import Program

_WIDTHS = {0: (7, 6), 1: (4, 3), 2: (1, 1), 3: (1, 1)}  # q and v of MuJoCo's free, ball, slide, hinge


class _Mujoco(NamedTuple):
    model: Any
    q: np.ndarray  # start configurations in MuJoCo's coordinates
    field: str  # of MuJoCo's data, that pushes
    push: np.ndarray
    to_xsim: Callable


def _mujoco_model(begin: Start, constraints: bool, scenery: str = "") -> _Mujoco:
    """constraints: constraints and contacts of a file act. scenery: put into the world of a text that xsim wrote."""
    mechanism = format_of(begin, "mjcf")
    if "file" in mechanism:
        return _mujoco_file(begin, mechanism, constraints)
    import mujoco

    model = mujoco.MjModel.from_xml_string(mechanism["xml"].replace("<worldbody>", f"<worldbody>{scenery}"))
    order_q, order_v = np.zeros(model.nq, int), np.zeros(model.nv, int)
    for name, q, v in mechanism["joints"]:
        j = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
        nq, nv = _WIDTHS[int(model.jnt_type[j])]
        order_q[model.jnt_qposadr[j] : model.jnt_qposadr[j] + nq] = q + np.arange(nq)
        order_v[model.jnt_dofadr[j] : model.jnt_dofadr[j] + nv] = v + np.arange(nv)
    model.dof_damping[:] = np.asarray(mechanism["damping"])[order_v]
    model.dof_armature[:] = np.asarray(mechanism["armature"])[order_v]
    offset = np.asarray(mechanism["offset"])

    def to_xsim(q):
        out = np.empty(np.shape(q))
        out[:, order_q] = np.asarray(q)
        return out - offset

    return _Mujoco(model, (begin.q + offset)[:, order_q], "qfrc_applied", begin.tau[:, order_v], to_xsim)


def _mujoco_file(begin: Start, mechanism: dict, constraints: bool) -> _Mujoco:
    """An MJCF file, whose coordinates are xsim's, with everything that xsim leaves out in this run switched off."""
    import mujoco

    model = mujoco.MjModel.from_xml_path(mechanism["file"])
    integrator, eulerdamp = mechanism["integrator"]
    bits, option = mujoco.mjtDisableBit, model.opt
    option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    option.disableflags &= ~int(bits.mjDSBL_EULERDAMP)
    option.disableflags |= 0 if eulerdamp == "enable" else bits.mjDSBL_EULERDAMP
    option.solver = mujoco.mjtSolver.mjSOL_NEWTON  # MJX refuses PGS
    if not constraints:
        # The flags alone are not enough: MJX prepares contacts all the same, and brax reads no flags.
        option.disableflags |= bits.mjDSBL_CONSTRAINT | bits.mjDSBL_CONTACT
        model.geom_contype[:] = model.geom_conaffinity[:] = 0
        model.jnt_limited[:], model.dof_frictionloss[:] = 0, 0
    return _Mujoco(model, begin.q, {"ctrl": "ctrl", "tau": "qfrc_applied"}[begin.kind], begin.push, np.asarray)


def mjx_engine(job: dict, iterations: tuple[int, int] | None = None) -> Engine:
    """iterations: of the solver and of its line search, None for the model's."""
    begin = read_start(job)
    import jax
    import jax.numpy as jnp
    from mujoco import mjx

    peer = _mujoco_model(begin, job["constraints"])
    if iterations is not None:
        peer.model.opt.iterations, peer.model.opt.ls_iterations = iterations
    system = mjx.put_model(peer.model)
    blank = mjx.make_data(system)

    def one(q, pushes):
        data = blank.replace(qpos=q)
        return jax.lax.scan(lambda d, push: (mjx.step(system, d.replace(**{peer.field: push})), None), data, pushes)[0].qpos

    option = peer.model.opt
    note = f"at most {option.iterations} iterations, {option.ls_iterations} of the line search in each"
    about = about_jax("mujoco", "mujoco-mjx", note=note)
    q, push = (jnp.asarray(x, blank.qpos.dtype) for x in (peer.q, peer.push))
    return jax_engine(job, about, divided(job, jax.vmap(one, in_axes=(0, 1))), (q,), push, peer.to_xsim)


def brax_engine(job: dict) -> Engine:
    begin = read_start(job)
    # brax cannot read a model without geoms: this one is fixed to the world and touches nothing.
    peer = _mujoco_model(begin, job["constraints"], '<geom size="0.01" contype="0" conaffinity="0"/>')
    import brax.actuator
    import jax
    import jax.numpy as jnp
    from brax.generalized import pipeline
    from brax.io import mjcf

    _check_brax(begin, peer.model)
    try:
        mjcf.validate_model(peer.model)
    except NotImplementedError as error:
        raise Unsupported(f"brax: {error}") from error
    # Its default, an approximate inverse of the mass matrix from few iterations, is off by percents after a step.
    system = mjcf.load_model(peer.model).replace(matrix_inv_iterations=0)
    if peer.field == "qfrc_applied":
        # The pipeline takes actuator inputs: make an input the generalized force itself, as every other engine gets it.
        brax.actuator.to_tau = lambda sys, act, q, qd: act
    still = jnp.zeros(peer.model.nv)
    q, push = (jnp.asarray(x, still.dtype) for x in (peer.q, peer.push))

    def one(q, pushes):
        state = pipeline.init(system, q, still)
        return jax.lax.scan(lambda s, push: (pipeline.step(system, s, push), None), state, pushes)[0].q

    about = about_jax("mujoco", "brax", note="generalized pipeline, mass matrix inverted exactly")
    return jax_engine(job, about, divided(job, jax.vmap(one, in_axes=(0, 1))), (q,), push, peer.to_xsim)


def _check_brax(begin: Start, model) -> None:
    """Refuse what brax leaves out or names badly."""
    sprung = model.jnt_stiffness > 0
    if begin.mechanism["integrator"] != "implicit_damping":
        raise Unsupported(f"brax has no integrator {begin.mechanism['integrator']}")
    if (model.jnt_type == 1).any():
        raise Unsupported("brax has no ball joints")
    if model.qpos_spring[model.jnt_qposadr[sprung]].any():
        raise Unsupported("brax ignores the reference of joint springs")
    lacks = {
        "forces of tendons": (model.tendon_stiffness, model.tendon_damping), "activations": (model.na,),
        "fluids": (model.opt.density, model.opt.viscosity), "gravity compensation": (model.body_gravcomp,),
    }  # fmt: skip
    for name, numbers in lacks.items():
        if any(np.any(x) for x in numbers):
            raise Unsupported(f"brax has no {name}")


def mujoco_engine(job: dict) -> Engine:
    begin = read_start(job)
    import mujoco
    from mujoco import rollout

    peer = _mujoco_model(begin, job["constraints"])
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    datas = [mujoco.MjData(peer.model) for _ in range(threads)]
    whole = mujoco.mjtState.mjSTATE_FULLPHYSICS
    spec = {"ctrl": mujoco.mjtState.mjSTATE_CTRL, "qfrc_applied": mujoco.mjtState.mjSTATE_QFRC_APPLIED}[peer.field]
    begins = np.zeros((job["batch"], mujoco.mj_stateSize(peer.model, whole)))
    for i, q in enumerate(peer.q):
        datas[0].qpos[:] = q
        mujoco.mj_getState(peer.model, datas[0], begins[i], whole)
    push = np.repeat(peer.push[:, None].astype(float), job["steps"], 1)

    def run():
        states, _ = rollout.rollout(peer.model, datas, begins, push, control_spec=int(spec), persistent_pool=True)
        return states[:, -1, 1 : 1 + peer.model.nq]  # after the time

    def build(what: str) -> Program:
        if what != "forward":
            raise Unsupported("MuJoCo C has no gradient of a rollout")
        begin = time.perf_counter()
        mujoco.mj_step(peer.model, datas[0])
        return Program(run, {"trace_s": None, "compile_s": time.perf_counter() - begin, "bytes_per_env": None, "kernels": None})

    note = f"C, float64, {threads} threads: its rollout of all environments, which keeps every state"
    about = {"device": processor(), "platform": "cpu", "versions": versions("mujoco"), "model": "shared", "note": note}
    return Engine(about, build, peer.to_xsim)


WARP_CONTACTS, WARP_ROWS = 16, 64
"""Of an environment in MuJoCo Warp, at first. They are doubled until they are enough."""


def mujoco_warp_engine(job: dict) -> Engine:
    begin = read_start(job)
    import mujoco_warp
    import warp

    peer = _mujoco_model(begin, job["constraints"])
    option = peer.model.opt
    note = f"at most {option.iterations} iterations, {option.ls_iterations} of the line search in each"
    device = warp.get_device()
    about = {"device": device.name, "platform": "cuda" if device.is_cuda else "cpu", "versions": versions("mujoco-warp", "warp-lang")}
    about |= {"model": "shared", "note": note}

    def simulation(contacts: int, rows: int) -> _WarpRollout:
        model = mujoco_warp.put_model(peer.model)
        data = mujoco_warp.make_data(peer.model, nworld=job["batch"], nconmax=contacts, njmax=rows)
        return _WarpRollout(model, data, peer, job["steps"])

    def build(what: str) -> Program:
        if what != "forward":
            raise Unsupported("MuJoCo Warp has no gradient of a rollout")
        begin = time.perf_counter()
        contacts, rows = WARP_CONTACTS, WARP_ROWS
        rollout = simulation(contacts, rows)
        while rollout.overflowed():
            contacts, rows = 2 * contacts, 2 * rows
            rollout = simulation(contacts, rows)
        rollout.run()
        return Program(rollout.run, {"trace_s": None, "compile_s": time.perf_counter() - begin, "bytes_per_env": None, "kernels": None})

    return Engine(about, build, peer.to_xsim)


class _WarpRollout:
    """A rollout by MuJoCo Warp from the start states. On a GPU one step is a CUDA graph."""

    def __init__(self, model, data, peer: _Mujoco, steps: int):
        import warp

        self.model, self.data, self.steps, self.field = model, data, steps, peer.field
        self.q, self.push = (warp.array(np.asarray(x, np.float32), dtype=float) for x in (peer.q, peer.push))
        self.graph = None
        self.run()
        if warp.get_device().is_cuda:
            with warp.ScopedCapture() as capture:
                self._step()
            self.graph = capture.graph

    def _step(self) -> None:
        import mujoco_warp

        mujoco_warp.step(self.model, self.data)

    def run(self) -> np.ndarray:
        """The last configurations."""
        import mujoco_warp
        import warp

        mujoco_warp.reset_data(self.model, self.data)
        warp.copy(self.data.qpos, self.q)
        warp.copy(getattr(self.data, self.field), self.push)
        for _ in range(self.steps):
            if self.graph is None:
                self._step()
            else:
                warp.capture_launch(self.graph)
        warp.synchronize()
        return self.data.qpos.numpy()

    def overflowed(self) -> bool:
        """Whether there were more contacts or rows than there is memory for."""
        return bool(self.data.overflow.numpy().any())
