"""One adapter per engine. A peer's worker imports this file without the rest of xsim, in an interpreter that may not have its
dependencies; the imports of an engine are inside its adapter.

Peers get one model for all environments, as a constant of their compiled program, which is how their users write it. Their default
solver settings are kept where they do the same physics. Contact and constraints are off everywhere, friction, limits and couplings too,
unless ``--constraints``: then xsim has them, and what reads an MJCF file itself.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from xsim.bench.engines import Engine, Start, Unsupported, about_jax, divided, format_of, jax_engine, processor, read_start, versions
from xsim.bench.measure import Program
from xsim.bench.mujoco_engines import brax_engine, mjx_engine, mujoco_engine, mujoco_warp_engine

__all__ = ["ENGINES", "Engine", "Unsupported", "load_engine"]


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

    about = about_jax(model=label, integrator=model.topology.integrator, nq=model.nq, nv=model.nv, name=model.topology.name)
    about["versions"]["xsim"] = __version__
    engine = jax_engine(job, about, final, (model, q), pushed.values, np.asarray)
    if not job["constraints"] or not has_soft(model.topology):
        return engine
    pushes = {f"{pushed.kind}s": jnp.broadcast_to(pushed.values, (job["steps"], *pushed.values.shape))}
    return engine._replace(note=lambda: _solved(model, q, pushes))


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
    mechanism = format_of(begin, "xxy")
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

    return jax_engine(job, about_jax("imt-ring"), divided(job, jax.vmap(one, in_axes=(0, 1))), (q,), tau, to_xsim)


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
    about = {"device": processor(), "platform": "cpu", "versions": versions("pin"), "model": "shared", "note": note}
    return Engine(about, build, peer.to_xsim)


def _pinocchio_mechanism(begin: Start) -> dict:
    """The mechanism in MJCF. Raises Unsupported for what Pinocchio does not simulate."""
    mechanism = format_of(begin, "mjcf")
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
    "xsim": _xsim, "ring": _ring, "mjx": mjx_engine, "mjx-1": functools.partial(mjx_engine, iterations=(1, 4)), "brax": brax_engine,
    "mujoco": mujoco_engine, "mujoco_warp": mujoco_warp_engine, "pinocchio": _pinocchio,
}  # fmt: skip


def load_engine(job: dict) -> Engine:
    """The engine that the job names, with its model and start states."""
    return ENGINES[job["engine"]](job)
