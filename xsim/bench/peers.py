"""One adapter per engine. A peer's worker imports this file without the rest of xsim, in an interpreter that may not have its
dependencies; the imports of an engine are inside its adapter.

Peers get one model for all environments, as a constant of their compiled program, which is how their users write it. Their default
solver settings are kept where they do the same physics. Contact and constraints are off everywhere, friction, limits and couplings too,
unless ``--constraints``: then xsim has them, and what reads an MJCF file itself.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xsim.bench.measure import Program, compile_program

__all__ = ["ENGINES", "Engine", "Unsupported", "load_engine"]


class Unsupported(Exception):
    """The engine cannot do this job; the text says why."""


class Engine(NamedTuple):
    """An engine that holds its model and start states. ``compile(what)`` makes the program ``forward`` or ``gradient``; the result of
    ``forward`` goes through ``to_xsim`` to be final configurations (batch, nq) in xsim's coordinates.
    """

    about: dict
    compile: Callable[[str], Program]
    to_xsim: Callable[[Any], np.ndarray]


class Start(NamedTuple):
    """What xsim's worker wrote: the mechanism, q (batch, nq), and the push of every step: "tau" (batch, nv) or "ctrl" (batch, nu)."""

    mechanism: dict
    q: np.ndarray
    kind: str
    push: np.ndarray

    @property
    def tau(self) -> np.ndarray:
        """The generalized forces, for engines without actuators."""
        if self.kind != "tau":
            raise Unsupported("its actuators are not translated")
        return self.push


def read_start(job: dict) -> Start:
    folder = Path(job["folder"])
    with np.load(folder / "start.npz") as arrays:
        kind = "ctrl" if "ctrl" in arrays else "tau"
        return Start(json.loads((folder / "mechanism.json").read_text()), arrays["q"], kind, arrays[kind])


def _format(start: Start, name: str) -> dict:
    description = start.mechanism[name]
    if "refused" in description:
        raise Unsupported(description["refused"])
    return description


def _versions(*packages: str) -> dict[str, str]:
    out = {}
    for name in packages:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def processor() -> str:
    """Name of the processor and the cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = "CPU"
    return f"{name}, {cores} cores"


def _about(*packages: str, **more) -> dict:
    import jax

    device = jax.devices()[0]
    name = processor() if device.platform == "cpu" else f"{device.device_kind}"
    return {"device": name, "platform": device.platform, "versions": _versions("jax", "jaxlib", *packages), "model": "shared", **more}


def _divided(job: dict, final):
    """final(q, pushes) with its environments divided among the cores of a CPU, where JAX has a device for each."""
    import jax

    cores = jax.local_devices()
    if jax.default_backend() != "cpu" or job["batch"] % len(cores):
        return final
    spec, mesh = jax.sharding.PartitionSpec, jax.sharding.Mesh(cores, "core")
    return jax.shard_map(final, mesh=mesh, in_specs=(spec("core"), spec(None, "core")), out_specs=spec("core"), check_vma=False)


def _jax_engine(job: dict, about: dict, final, fixed: tuple, push, to_xsim) -> Engine:
    """final(*fixed, pushes) -> q (batch, nq), pushes (steps, batch, n): forces or controls; push (batch, n) is that of every step."""
    import jax
    import jax.numpy as jnp

    about["cores"] = len(jax.local_devices())
    pushes = jnp.broadcast_to(jnp.asarray(push), (job["steps"], *push.shape)) + 0.0

    def loss(pushes, *fixed):
        return jnp.sum(final(*fixed, pushes) ** 2)

    programs = {"forward": (final, (*fixed, pushes)), "gradient": (jax.value_and_grad(loss), (pushes, *fixed))}

    def build(what: str) -> Program:
        fn, args = programs[what]
        return compile_program(fn, args, batch=job["batch"], steps=job["steps"])

    return Engine(about, build, to_xsim)


# ---- xsim --------------------------------------------------------------------------------------------------------------------


def _xsim(job: dict) -> Engine:
    import jax
    import jax.numpy as jnp

    from xsim import __version__, init, models, replicate, rollout, use_devices
    from xsim.bench.mechanism import describe, load_model, push, start
    from xsim.dynamics.constraints.soft_set import has_soft
    from xsim.randomize import randomize

    if job["devices"] is not None:
        use_devices([jax.devices()[i] for i in job["devices"]])
    source = job["model"]
    if source in models.names():
        source = str(models.path(source))
    model = load_model(source, job["rules"], job["integrator"], job["constraints"])
    label = "shared"
    if job["constraints"] and model.topology.constraint_kinds:
        label += f"; constraints: {', '.join(model.topology.constraint_kinds)}"
    if job["randomize"] is not None:
        model = randomize(model, jax.random.key(job["seed"]), job["batch"], job["randomize"] or None)
        varying = [p for p in model.paths() if model.get(p).ndim > len(model.shape(p))]
        if not varying:
            raise Unsupported("--randomize: the model has no random axes or position ranges: name a file of ranges")
        label = label.replace("shared", f"per environment: {', '.join(varying)}")
    if job["freeze"]:
        model = model.freeze(*job["freeze"])
        label += f"; frozen: {', '.join(job['freeze'])}"
    model = replicate(model, job["batch"])
    q, pushed = start(model, job["batch"], job["seed"]), push(model, job["batch"], job["seed"])
    if job.get("describe"):
        folder = Path(job["folder"])
        np.savez(folder / "start.npz", **{"q": np.asarray(q), pushed.kind: np.asarray(pushed.values)})
        (folder / "mechanism.json").write_text(json.dumps(describe(model, source)))

    def final(model, q, pushes):
        return rollout(model, init(model, q), **{f"{pushed.kind}s": pushes})[0].q

    about = _about(model=label, integrator=model.topology.integrator, nq=model.nq, nv=model.nv, name=model.topology.name)
    about["versions"]["xsim"] = __version__
    if job["constraints"] and has_soft(model.topology):
        about["note"] = _solved(model, q, {f"{pushed.kind}s": jnp.broadcast_to(pushed.values, (job["steps"], *pushed.values.shape))})
    return _jax_engine(job, about, final, (model, q), pushed.values, np.asarray)


def _solved(model, q, pushes: dict) -> str:
    """How well the constraints are solved after the rollout that is timed, and how many contacts there are."""
    import jax

    from xsim import contacts, forward, init, rollout

    @jax.jit
    def after(model, q, pushes):
        state = rollout(model, init(model, q), **pushes)[0]
        count = contacts(model, state).active.sum(-1) if model.topology.pairs else jax.numpy.zeros(len(q))
        return forward(model, state).residual, count, state.flags

    residual, count, flags = map(np.asarray, after(model, q, pushes))
    return (f"at the end residual {np.median(residual):.1e} (median), {residual.max():.1e} (most); {count.mean():.1f} contacts (mean), "
            f"{count.max():.0f} (most); {(flags != 0).sum()} flagged")  # fmt: skip


# ---- RING --------------------------------------------------------------------------------------------------------------------

# xsim's coordinates of a joint in RING's order, for q and v, and the q entries whose sign RING turns (its quaternions are conjugated).
RING_ORDER = {
    "ball": ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3]),
    "free": ([3, 4, 5, 6, 0, 1, 2], [3, 4, 5, 0, 1, 2], [1, 2, 3]),
    "planar": ([2, 0, 1], [2, 0, 1], []),
}
# Parameters of RING's joints with random axes, of the axes (n, 3) in xsim's order.
RING_PARAMETERS = {
    "rr": lambda axes: {"joint_axes": axes[0]},
    "rr_imp": lambda axes: {"joint_axes": axes[0], "residual": axes[1]},
    "rsaddle": lambda axes: {"joint_axes": axes},
}


def _ring(job: dict) -> Engine:
    begin = read_start(job)
    mechanism = _format(begin, "xxy")
    if begin.mechanism["integrator"] != "implicit_damping":
        raise Unsupported(f"RING has no integrator {begin.mechanism['integrator']}")
    import jax
    import jax.numpy as jnp
    import ring

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.xml"
        file.write_text(mechanism["xml"])
        system = ring.System.create(str(file))
    params = dict(system.links.joint_params)
    for name, joint_type, *_ in mechanism["layout"]:
        if name in mechanism["axes"]:
            row = list(system.link_names).index(name)
            values = RING_PARAMETERS[joint_type](jnp.asarray(mechanism["axes"][name], float))
            params[joint_type] = {k: params[joint_type][k].at[row].set(x) for k, x in values.items()}
    system = system.replace(links=system.links.replace(joint_params=params))
    order_q, order_v, signs = _ring_order(list(system.link_names), mechanism["layout"])
    q, tau = jnp.asarray(begin.q[:, order_q] * signs), jnp.asarray(begin.tau[:, order_v])

    def one(q, taus):
        state = ring.State.create(system, q=q)
        return jax.lax.scan(lambda s, tau: (ring.step(system, s, tau), None), state, taus)[0].q

    def to_xsim(q):
        out = np.empty_like(begin.q)
        out[:, order_q] = np.asarray(q) * signs
        return out

    return _jax_engine(job, _about("imt-ring"), _divided(job, jax.vmap(one, in_axes=(0, 1))), (q,), tau, to_xsim)


def _ring_order(names: list[str], layout):
    """xsim's addresses in RING's order: of q, of v, and the signs of RING's q."""
    order_q: list[int] = []
    order_v: list[int] = []
    signs: list[float] = []
    rows = {row[0]: row for row in layout}
    for name in names:
        _, joint_type, q, v, nq, nv = rows[name]
        own_q, own_v, turned = RING_ORDER.get(joint_type, (list(range(nq)), list(range(nv)), []))
        order_q += [q + k for k in own_q]
        order_v += [v + k for k in own_v]
        signs += [-1.0 if k in turned else 1.0 for k in range(nq)]
    return order_q, order_v, np.array(signs)


# ---- MuJoCo and what is built on its models ------------------------------------------------------------------------------------

_WIDTHS = {0: (7, 6), 1: (4, 3), 2: (1, 1), 3: (1, 1)}  # q and v of MuJoCo's free, ball, slide, hinge


class _Mujoco(NamedTuple):
    model: Any
    q: np.ndarray  # start configurations in MuJoCo's coordinates
    field: str  # of MuJoCo's data, that pushes
    push: np.ndarray
    to_xsim: Callable


def _mujoco_model(begin: Start, constraints: bool, scenery: str = "") -> _Mujoco:
    """constraints: constraints and contacts of a file act. scenery: put into the world of a text that xsim wrote."""
    mechanism = _format(begin, "mjcf")
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


def _mjx(job: dict, iterations: tuple[int, int] | None = None) -> Engine:
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
    about = _about("mujoco", "mujoco-mjx", note=note)
    q, push = (jnp.asarray(x, blank.qpos.dtype) for x in (peer.q, peer.push))
    return _jax_engine(job, about, _divided(job, jax.vmap(one, in_axes=(0, 1))), (q,), push, peer.to_xsim)


def _brax(job: dict) -> Engine:
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

    about = _about("mujoco", "brax", note="generalized pipeline, mass matrix inverted exactly")
    return _jax_engine(job, about, _divided(job, jax.vmap(one, in_axes=(0, 1))), (q,), push, peer.to_xsim)


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


def _mujoco(job: dict) -> Engine:
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
    about = {"device": processor(), "platform": "cpu", "versions": _versions("mujoco"), "model": "shared", "note": note}
    return Engine(about, build, peer.to_xsim)


def _mujoco_warp(job: dict) -> Engine:
    begin = read_start(job)
    import mujoco_warp
    import warp

    peer = _mujoco_model(begin, job["constraints"])
    option = peer.model.opt
    note = f"at most {option.iterations} iterations, {option.ls_iterations} of the line search in each"
    device = warp.get_device()
    about = {"device": device.name, "platform": "cuda" if device.is_cuda else "cpu", "versions": _versions("mujoco-warp", "warp-lang")}
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
        about["note"] = f"{note}; {contacts} contacts and {rows} rows an environment"
        rollout.run()
        return Program(rollout.run, {"trace_s": None, "compile_s": time.perf_counter() - begin, "bytes_per_env": None, "kernels": None})

    return Engine(about, build, peer.to_xsim)


WARP_CONTACTS, WARP_ROWS = 16, 64
"""Of an environment in MuJoCo Warp, at first. They are doubled until they are enough."""


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


# ---- Pinocchio ---------------------------------------------------------------------------------------------------------------


def _pinocchio(job: dict) -> Engine:
    """The articulated-body algorithm of the C++ library over all environments, the integration in numpy arrays (batch, dofs)."""
    begin = read_start(job)
    peer = _Pinocchio(begin, _pinocchio_mechanism(begin), job["steps"])

    def build(what: str) -> Program:
        if what != "forward":
            raise Unsupported("Pinocchio has no gradient of a rollout")
        return Program(peer.run, {"trace_s": None, "compile_s": None, "bytes_per_env": None, "kernels": None})

    note = "C++, float64, one thread: abaInParallel over the batch, integrated by numpy"
    about = {"device": processor(), "platform": "cpu", "versions": _versions("pin"), "model": "shared", "note": note}
    return Engine(about, build, peer.to_xsim)


def _pinocchio_mechanism(begin: Start) -> dict:
    """The mechanism in MJCF. Raises Unsupported for what Pinocchio does not simulate."""
    mechanism = _format(begin, "mjcf")
    if begin.mechanism["integrator"] != "implicit_damping":
        raise Unsupported(f"Pinocchio is stepped with implicit damping here, not by {begin.mechanism['integrator']}")
    if "file" in mechanism:
        raise Unsupported("Pinocchio gets no MJCF file as it is: it leaves out what it does not know")
    if "stiffness" in mechanism["xml"].replace('stiffness="0.0"', ""):
        raise Unsupported("Pinocchio has no joint springs")
    return mechanism


class _Pinocchio:
    """Pinocchio's model with start states and forces in its order of coordinates."""

    def __init__(self, begin: Start, mechanism: dict, steps: int):
        import pinocchio as pin

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.xml"
            file.write_text(mechanism["xml"])
            self.model = model = pin.buildModelFromMJCF(str(file))
        order_v = _pinocchio_order(model, mechanism["joints"])
        self.steps, self.dt = steps, begin.mechanism["dt"]
        self.floating = model.joints[1].shortname() == "JointModelFreeFlyer"
        self.damping, armature = (np.asarray(mechanism[k])[order_v] for k in ("damping", "armature"))
        if self.floating and (self.damping[:6].any() or armature[:6].any()):
            raise Unsupported("a free root with damping or armature: an armature acts on another acceleration in Pinocchio")
        model.gravity.linear = np.array(begin.mechanism["gravity"])
        model.armature = armature + self.dt * self.damping  # (M + armature + dt D) a = tau - D v - bias: implicit damping
        self.pool = pin.ModelPool(model, 1)
        self.tau = begin.tau[:, order_v]
        self.order_q = np.concatenate([[0, 1, 2, 4, 5, 6, 3], order_v[6:] + 1]) if self.floating else order_v
        self.start = begin.q[:, self.order_q].astype(float)
        self.q_dtype = begin.q.dtype

    def run(self) -> np.ndarray:
        """q (batch, nq) after the steps."""
        step = self._floating_step if self.floating else self._fixed_step
        q, v = self.start, np.zeros_like(self.tau, float)
        for _ in range(self.steps):
            q, v = step(q, v)
        return q

    def _fixed_step(self, q, v):
        v = v + self.dt * self._acceleration(q, v, self.tau - self.damping * v)
        return q + self.dt * v, v

    def _floating_step(self, q, v):
        """v of the free root: of its origin along world axes, then angular along the body's, as in the other engines."""
        dt, turn, ang = self.dt, _matrices(q[:, 3:7]), v[:, 3:6]

        def in_body_axes(x):
            return np.concatenate([np.einsum("bij,bi->bj", turn, x[:, :3]), x[:, 3:]], 1)

        body_v = in_body_axes(v)
        a = self._acceleration(q, body_v, in_body_axes(self.tau - self.damping * v)).copy()
        a[:, :3] = np.einsum("bij,bj->bi", turn, a[:, :3] + np.cross(ang, body_v[:, :3]))
        v = v + dt * a
        q = np.concatenate([q[:, :3] + dt * v[:, :3], _turned(q[:, 3:7], dt * v[:, 3:6]), q[:, 7:] + dt * v[:, 6:]], 1)
        return q, v

    def _acceleration(self, q, v, force):
        import pinocchio as pin

        out = np.empty((self.model.nv, len(q)), order="F")
        pin.abaInParallel(1, self.pool, *(np.asfortranarray(x.T) for x in (q, v, force)), out)
        return out.T

    def to_xsim(self, q) -> np.ndarray:
        out = np.empty(q.shape, self.q_dtype)
        out[:, self.order_q] = q
        return out


def _pinocchio_order(model, joints) -> np.ndarray:
    """xsim's velocity addresses in Pinocchio's order."""
    dofs: dict[str, list[int]] = {}
    for name, _, v in joints:
        dofs.setdefault(name.rsplit(".", 1)[0], []).append(v)
    order: list[int] = []
    for k in range(1, model.njoints):
        joint, kind = model.joints[k], model.joints[k].shortname()
        body = model.names[k].removeprefix("Composite_").rsplit(".", 1)[0]
        if kind == "JointModelFreeFlyer":
            if k > 1:
                raise Unsupported("only one free root")
            order += range(dofs[body][0], dofs[body][0] + 6)
        elif joint.nq == joint.nv == len(dofs[body]):
            order += dofs[body]
        else:
            raise Unsupported(f"body {body!r}: joint {kind}")
    return np.array(order)


def _matrices(q: np.ndarray) -> np.ndarray:
    """Rotation matrices (n, 3, 3) of unit quaternions x y z w (n, 4)."""
    x, y, z, w = q.T
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return np.moveaxis(np.array(rows), -1, 0)


def _turned(q: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Quaternions x y z w (n, 4) after rotation vectors (n, 3) along their own axes."""
    half = 0.5 * np.linalg.norm(turn, axis=1, keepdims=True)
    u, w = 0.5 * np.sinc(half / np.pi) * turn, np.cos(half)
    out = np.concatenate([q[:, 3:] * u + w * q[:, :3] + np.cross(q[:, :3], u), q[:, 3:] * w - (q[:, :3] * u).sum(1, keepdims=True)], 1)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


ENGINES: dict[str, Callable[[dict], Engine]] = {
    "xsim": _xsim, "ring": _ring, "mjx": _mjx, "mjx-1": functools.partial(_mjx, iterations=(1, 4)), "brax": _brax, "mujoco": _mujoco,
    "mujoco_warp": _mujoco_warp, "pinocchio": _pinocchio,
}  # fmt: skip


def load_engine(job: dict) -> Engine:
    """The engine that the job names, with its model and start states."""
    return ENGINES[job["engine"]](job)
