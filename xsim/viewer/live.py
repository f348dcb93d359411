"""A live viewer: a simulation that runs in a server, shown and changed in a browser. Needs ``pip install 'xsim[live]'``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from xsim.model.model import Model, State
from xsim.poses import quat_mul
from xsim.viewer.live_panel import Panel
from xsim.viewer.live_scene import LiveScene
from xsim.viewer.perturbation import swing
from xsim.viewer.simulation import Simulation

__all__ = ["LiveViewer", "live"]

FPS = 60.0
"""Largest number of pictures per second."""
REPORT_PERIOD = 0.5
"""Time between two reports of the speed, s."""


def live(model: Model, state: State | None = None, *, control: Callable | None = None, port: int = 8080, host: str = "127.0.0.1") -> None:
    """Simulate a model in real time and show it in a browser, until the process is interrupted.

    state: at the start, without a batch; None: `xsim.init`. control: function of a state that gives the controls (nu,), traced by JAX;
    None: the sliders of the page. port: of the server; the next free one where it is in use. host: address that the server listens at;
    ``"0.0.0.0"`` lets other machines in.

    In the browser the simulation is paused, stepped, reset and slowed down; bodies are dragged and turned (see
    `xsim.viewer.perturbation.generalized_force`); controls and any number of the model are changed. `LiveViewer` does the same from a
    program. Raises ImportError where viser is missing, and ValueError for a model or a state with a batch.
    """
    LiveViewer(model, state, control=control, port=port, host=host).serve()


class LiveViewer(Simulation):
    """A simulation with a server that shows it.

    ::

        viewer = xsim.viewer.LiveViewer(model)
        viewer.run(seconds=10.0)     # or viewer.frame(0.02), as often as wanted
        viewer.close()

    server: of viser; its scene and its panel may be added to. url: where a browser finds the page. scene, panel: what is drawn, and the
    panel of the page.
    """

    def __init__(
        self, model: Model, state: State | None = None, *, control: Callable | None = None, port: int = 8080, host: str = "127.0.0.1",
    ):  # fmt: skip
        """Start the server. Arguments and errors: those of `live`."""
        viser = _viser()
        super().__init__(model, state, control=control)
        self.server = viser.ViserServer(host=host, port=port, label=model.topology.name or "xsim", verbose=False)
        self.scene = LiveScene(self.server, model, self.state.q, self._drag)
        self.panel = Panel(self.server, self, self.scene, self._changed)
        self.closed = False
        self._held: tuple[Any, Any] | None = None  # where a turn began: orientation of the body, point of the mouse
        self._outdated = False  # whether sizes or places of what is drawn have changed
        self._since, self._simulated, self._text = time.perf_counter(), self.time, ""

    url = property(lambda self: f"http://{self.server.get_host()}:{self.server.get_port()}", doc="Address of the page.")

    def serve(self) -> None:
        """Run until the process is interrupted, then `close`."""
        print(f"{self.url} shows {self.model.topology.name or 'the model'}; Ctrl+C ends it", flush=True)
        try:
            self.run()
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def run(self, seconds: float | None = None) -> None:
        """Simulate in real time until `close`. seconds: of real time after which it returns; None: without end."""
        self.panel.update("compiling ...")
        self.compile()
        began = last = time.perf_counter()
        while not self.closed and (seconds is None or last - began < seconds):
            now = time.perf_counter()
            self.frame(now - last)
            last = now
            time.sleep(max(0.0, 1.0 / FPS - (time.perf_counter() - now)))

    def frame(self, elapsed: float) -> int:
        """Simulate what a clock that went on by ``elapsed`` (s) asks for, and draw the state. Returns the number of steps made."""
        steps = self.advance(elapsed)
        with self.lock:
            self.draw()
        return steps

    def draw(self) -> None:
        """Show the present state and numbers."""
        if self._outdated:
            self._outdated = False
            self.scene.draw(self.model, self.state.q)
        pull = self.pull
        ends = None if pull.body < 0 or pull.turns else (self.scene.in_world(pull.body, pull.point), pull.target)
        ctrl = self.present_ctrl() if "contacts" in self.scene.shown else None
        self.scene.update(self.model, self.state, ctrl, ends)
        self.panel.update(self._report())

    def replace(self, changes: dict[str, Any]) -> None:
        """Change numbers of the model; what is drawn follows. changes: {selector: value}, and errors: as of `Model.replace`."""
        super().replace(changes)
        for path in changes:
            self._changed(path)

    def close(self) -> None:
        """Stop the server."""
        self.closed = True
        self.server.stop()

    def _changed(self, path: str) -> None:
        self._outdated = self._outdated or path.startswith(("geom.", "site."))

    def _drag(self, phase: str, body: int, start, end, turns: bool = False) -> None:
        """Follow a mouse. start: the world point of the body that it holds, m; end: where it is. turns: the body turns about its origin."""
        if phase == "end":
            self.release()
            return
        if turns:
            self._turn(phase, body, end)
            return
        point = self.scene.in_body(body, start) if phase == "start" or self.pull.body != body else self.pull.point
        self.drag(body, point, np.asarray(end))

    def _turn(self, phase: str, body: int, end) -> None:
        """Turn a body by the rotation about its origin from where the mouse began to where it is."""
        if phase == "start" or self.pull.body != body or self._held is None:
            self._held = self.scene.pose(body)[1], np.asarray(end)
        quat, start = self._held
        self.turn(body, quat_mul(swing(self.scene.pose(body)[0], start, end), quat))

    def _report(self) -> str:
        """What the panel says about the time, renewed every `REPORT_PERIOD`."""
        if self.diverged:
            return f"**diverged** at {self.time:.3f} s: a number of the state is not finite. **Reset** starts again."
        now = time.perf_counter()
        if now - self._since > REPORT_PERIOD or self.paused:
            rate = (self.time - self._simulated) / max(now - self._since, 1e-6)
            speed = "paused" if self.paused else f"{rate:.2f} of real time"
            self._text = f"time {self.time:.3f} s, {speed}"
            self._since, self._simulated = now, self.time
        return self._text


def _viser() -> Any:
    try:
        import viser  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("the live viewer needs viser: pip install 'xsim[live]'") from error
    return viser
