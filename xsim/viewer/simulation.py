"""One environment that advances with a clock, and whose numbers may change between steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.initial_state import init
from xsim.dynamics.step import step
from xsim.model.model import Flags, Model, State
from xsim.poses import normalized, rotate
from xsim.viewer.perturbation import Perturbation, generalized_force
from xsim.viewer.scene import leaf_values, quick_jit

__all__ = ["Control", "Simulation", "controls"]

MAX_COMPUTATION = 0.05
"""Longest time that the steps between two pictures may take, s. What cannot be simulated in that time is left out."""
PULL_PERIOD = 0.01
"""Longest simulated time over which the force of a pull is constant, s. The spring has a period of 0.6 s."""


class Control(NamedTuple):
    """A control: its name, its range and its value at the start."""

    name: str
    low: float
    high: float
    start: float


def controls(model: Model) -> list[Control]:
    """The controls of a model. One without a range in the file has the range from -1 to 1, as in MuJoCo's ``simulate``."""
    rows = [row for actuator in model.topology.actuators for row in actuator.ctrl_ranges]
    rows = [None] * (model.nu - len(rows)) + rows
    ranges = leaf_values(model, "actuator.ctrl_range")
    out = []
    for name, row in zip(model.ctrl_names, rows, strict=True):
        low, high = (-1.0, 1.0) if row is None else map(float, ranges[row])
        low, high = (low, high) if low < high else (-1.0, 1.0)
        out.append(Control(name, low, high, min(max(0.0, low), high)))
    return out


def _advance(model: Model, state: State, ctrl, tau, count, control: Callable | None = None) -> State:
    """The state ``count`` steps later. All arguments but ``control`` are traced: other numbers need no other program."""

    def one(_, state):
        return step(model, state, ctrl if control is None else control(state), tau)

    return jax.lax.fori_loop(0, count, one, state)


_ADVANCE = jax.jit(_advance)


class Simulation:
    """A model that is simulated with a clock: `advance` makes the steps that the elapsed time asks for.

    model, state: the present ones. ctrl (nu,): controls that act from now on. speed: simulated seconds per second. paused: whether time
    stands still. pull: the pull or turn of a body. Methods may be called from several threads. Changing ``ctrl``, leaves of the model or
    the pull compiles nothing.
    """

    def __init__(self, model: Model, state: State | None = None, *, control: Callable | None = None):
        """state: where `reset` goes; None: `xsim.init`. control: function of a state that gives the controls (nu,), traced by JAX.

        Raises ValueError for a model or a state with a batch."""
        start = init(model) if state is None else state
        if start.q.ndim != 1:
            raise ValueError(f"the live viewer shows one environment, found q of shape {start.q.shape}")
        self.model, self.state, self.speed, self.paused = model, start, 1.0, False
        self.controls = controls(model) if control is None else []
        self.ctrl = np.array([c.start for c in controls(model)], np.float64)
        self.pull = Perturbation()
        self.lock = threading.RLock()
        self._given, self._control = state, control
        self._program = _ADVANCE if control is None else jax.jit(lambda *arguments: _advance(*arguments, control=control))
        self._owed = 0.0  # simulated time that the clock is ahead, s
        self._cost: float | None = None  # of a step, s

    time = property(lambda self: float(self.state.time), doc="Simulated time, s.")
    diverged = property(lambda self: bool(int(self.state.flags) & Flags.DIVERGED), doc="Whether a number of the state is not finite.")

    def pause(self, paused: bool = True) -> None:
        """Stop the time, or let it go on."""
        with self.lock:
            self.paused, self._owed = paused, 0.0

    def step(self, count: int = 1) -> State:
        """Pause, and make some steps. Returns the state after them."""
        with self.lock:
            self.pause()
            self._run(count)
            return self.state

    def reset(self, key: str | int | None = None) -> State:
        """Go back to the start, or to a keyframe. key: its name or index. Raises KeyError for an unknown keyframe."""
        with self.lock:
            self.state = self._given if self._given is not None and key is None else init(self.model, key=key)
            self.pull, self._owed = Perturbation(), 0.0
            return self.state

    def set_control(self, control: str | int, value: float) -> None:
        """Set a control from now on. control: its name or index. Raises KeyError for an unknown name."""
        index = self.model.ctrl_index(control) if isinstance(control, str) else control
        with self.lock:
            self.ctrl[index] = value

    def replace(self, changes: dict) -> None:
        """Change numbers of the model. changes: {selector: value}, and errors: as of `Model.replace`."""
        with self.lock:
            self.model = self.model.replace(changes)

    def entry(self, path: str, index: int) -> float:
        """An entry of a leaf. index: flat."""
        return float(leaf_values(self.model, path).reshape(-1)[index])

    def replace_entry(self, path: str, index: int, value: float) -> None:
        """Change one entry of a leaf. index: flat. Raises as `Model.replace`."""
        with self.lock:
            new = leaf_values(self.model, path).copy()
            new.reshape(-1)[index] = value
            self.replace({path: new})

    def drag(self, body: str | int, point, target) -> None:
        """Pull a body at a point (3,) in its frame, m, towards a target (3,) in the world, m, until `release`.

        The force is that of `xsim.viewer.perturbation.generalized_force`. A mocap body is moved there. Raises KeyError for an unknown name.
        """
        point, target = (np.asarray(x, np.float64) for x in (point, target))
        self.pull = Perturbation(self.model.body_index(body), point, target)

    def turn(self, body: str | int, orientation) -> None:
        """Turn a body towards an orientation (4,) in the world, until `release`.

        The moment is that of `xsim.viewer.perturbation.generalized_force`. A mocap body is turned there. Raises KeyError for an unknown
        name.
        """
        self.pull = Perturbation(self.model.body_index(body), turns=True, orientation=normalized(orientation))

    def release(self) -> None:
        """End the pull or turn."""
        self.pull = Perturbation()

    def advance(self, seconds: float) -> int:
        """Simulate what a clock that went on by ``seconds`` asks for. Returns the number of steps made.

        Where the computation is slower than the clock, time is left out. A simulation that diverges is paused.
        """
        with self.lock:
            self._move_mocap()
            if self.paused:
                return 0
            dt = float(leaf_values(self.model, "option.dt"))
            self._owed += seconds * self.speed
            wanted = int(self._owed / dt)
            self._owed -= wanted * dt
            count = min(wanted, self._affordable())
            self._run(count)
            self.paused = self.paused or self.diverged
            return count

    def _affordable(self) -> int:
        return 1 if self._cost is None else max(1, int(MAX_COMPUTATION / self._cost))

    def compile(self) -> None:
        """Compile all that the simulation needs, without making a step."""
        with self.lock:
            self._force(Perturbation(0))
            self._call(np.zeros(self.model.nv), 0)

    def _run(self, count: int) -> None:
        """Make steps, and measure how long one takes."""
        compiled, began = self._program._cache_size(), time.perf_counter()
        period = max(1, int(PULL_PERIOD / float(leaf_values(self.model, "option.dt"))))
        left = count
        while left > 0:
            pull = self.pull  # another thread may end it
            part, tau = (left, np.zeros(self.model.nv)) if pull.body < 0 else (min(left, period), self._force(pull))
            self._call(tau, part)
            left -= part
        if count and compiled == self._program._cache_size():
            cost = (time.perf_counter() - began) / count
            self._cost = cost if self._cost is None else 0.8 * self._cost + 0.2 * cost

    def _force(self, pull: Perturbation):
        """Generalized force (nv,) of a pull or turn."""
        if not self.model.nv:
            return np.zeros(0)
        vectors = {name: np.asarray(getattr(pull, name), np.float32) for name in ("point", "target", "orientation")}
        numbers = Perturbation(np.int32(pull.body), turns=np.bool_(pull.turns), **vectors)
        return quick_jit(generalized_force)(self.model, self.state, numbers)

    def present_ctrl(self):
        """The controls (nu,) at the present state; None for a model without."""
        return self._sliders() if self._control is None else self._control(self.state)

    def _sliders(self):
        return jnp.asarray(self.ctrl, self.state.q.dtype) if len(self.ctrl) else None

    def _call(self, tau, count: int) -> None:
        dtype = self.state.q.dtype
        state = self._program(self.model, self.state, self._sliders(), jnp.asarray(tau, dtype), np.int32(count))
        self.state = jax.block_until_ready(state)

    def _move_mocap(self) -> None:
        """The mocap body that is dragged goes where it is dragged to, and keeps its orientation; one that is turned keeps its place."""
        pull = self.pull
        info = self.model.topology.bodies[pull.body] if pull.body >= 0 else None
        if info is not None and info.mocap is not None:
            pose = np.array(self.state.mocap)
            if pull.turns:
                pose[info.mocap, 3:] = pull.orientation
            else:
                pose[info.mocap, :3] = pull.target - rotate(pose[info.mocap, 3:], pull.point)
            self.state = self.state.replace(mocap=jnp.asarray(pose))
