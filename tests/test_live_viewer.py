"""The live viewer: the clock, the pull of the mouse, numbers that change without compiling, and the page in a real browser."""

import base64
import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim import view
from xsim.poses import quat_exp
from xsim.viewer import live_panel, perturbation, simulation

pytest.importorskip("viser", reason="viser is not installed: pip install 'xsim[live]'")

MODEL = """
<mujoco model="live">
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" pos="0 0 -2"/>
    <body name="target" mocap="true" pos="0 0 2"><geom type="box" size="0.1 0.1 0.1" contype="0" conaffinity="0"/></body>
    <body name="ball" pos="1 0 0"><freejoint/><geom size="0.1" mass="2"/><site name="grip" pos="0 0 0.1"/></body>
    <body name="arm">
      <joint name="hinge" axis="0 1 0" damping="0.5"/>
      <geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05" mass="1"/>
      <site name="tip" pos="0 0 -1"/>
    </body>
  </worldbody>
  <tendon><spatial name="rope"><site site="tip"/><site site="grip"/></spatial></tendon>
  <actuator><motor name="bounded" joint="hinge" ctrlrange="-3 2"/><motor name="free" joint="hinge"/></actuator>
  <keyframe><key name="raised" qpos="1 0 1 1 0 0 0 0.5"/></keyframe>
</mujoco>"""


@pytest.fixture(scope="module")
def shared():
    viewer = xsim.viewer.LiveViewer(xsim.loads(MODEL, "mjcf"), port=0)
    viewer.compile()
    yield viewer, viewer.model
    viewer.close()


@pytest.fixture
def viewer(shared, monkeypatch):
    """The viewer at the start, on a machine that is fast enough for any speed."""
    viewer, model = shared
    monkeypatch.setattr(simulation, "MAX_COMPUTATION", 1e9)
    viewer.model, viewer.speed, viewer._cost = model, 1.0, 1.0
    viewer.ctrl[:] = 0.0
    viewer.pause(False)
    viewer.reset()
    return viewer


# ---- the clock ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_steps_are_those_of_the_library(viewer):
    viewer.set_control("bounded", 1.5)
    state = viewer.reset()
    for _ in range(3):
        state = xsim.step(viewer.model, state, jnp.array([1.5, 0.0]))
    after = viewer.step(3)
    np.testing.assert_allclose(after.q, state.q, atol=1e-6)  # programs of one step and of a loop round differently
    assert viewer.paused and viewer.time == pytest.approx(0.03)


@pytest.mark.slow
def test_time_goes_on_with_the_clock(viewer):
    viewer.speed = 2.0
    assert [viewer.frame(0.021), viewer.frame(0.021), viewer.frame(0.021)] == [4, 4, 4]  # 12.6 steps: what is over counts later
    viewer.pause()
    assert viewer.frame(1.0) == 0 and viewer.time == pytest.approx(0.12)
    viewer.pause(False)
    assert viewer.frame(0.0051) == 1  # the time of the pause is not made up for


@pytest.mark.slow
def test_a_slow_computation_leaves_time_out(viewer, monkeypatch):
    monkeypatch.setattr(simulation, "MAX_COMPUTATION", 0.05)
    viewer._cost = 0.01
    assert viewer.frame(1.0) == 5
    viewer._cost = 1.0
    assert viewer.frame(0.001) == 0


def test_reset_to_a_keyframe(viewer):
    viewer.step(2)
    assert viewer.reset("raised").q[-1] == pytest.approx(0.5)
    assert viewer.reset().q[-1] == 0.0 and viewer.time == 0.0
    with pytest.raises(KeyError, match="raised"):
        viewer.reset("sunk")


def test_divergence_is_shown(viewer):
    viewer.state = viewer.state.replace(v=viewer.state.v * jnp.nan)
    viewer.frame(0.02)
    assert viewer.paused and viewer.diverged and "diverged" in viewer.panel.status.content
    viewer.reset()
    viewer.draw()
    assert not viewer.diverged and "paused" in viewer.panel.status.content


def test_a_control_function():
    model = xsim.loads(MODEL, "mjcf")
    own = simulation.Simulation(model, control=lambda state: jnp.stack([state.time, state.time]) + 1.0)
    expected = xsim.step(model, own.state, jnp.ones(2))
    np.testing.assert_allclose(own.step().v, expected.v, atol=1e-6)
    assert own.controls == []


# ---- the pull ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_pull_at_a_free_body_is_a_damped_spring(viewer):
    """The effective mass at the centre of a free sphere is its mass."""
    velocity = jnp.array([0.3, -0.2, 0.1])
    state = viewer.state.replace(v=viewer.state.v.at[:3].set(velocity))
    ball = viewer.model.body_index("ball")
    tau = perturbation.generalized_force(viewer.model, state, perturbation.Perturbation(ball, np.zeros(3), np.array([1.0, 0.5, 0.2])))
    expected = 2.0 * (100.0 * jnp.array([0.0, 0.5, 0.2]) - 10.0 * velocity)
    np.testing.assert_allclose(tau, [*expected, *[0.0] * 4], atol=2e-4)


@pytest.mark.slow
def test_the_pull_at_a_hinge(viewer):
    """One direction of three can move: m = 3 I / r^2, and the moment is r f."""
    arm, point, target = viewer.model.body_index("arm"), np.array([0.0, 0.0, -1.0]), np.array([0.4, 0.7, -1.5])
    tau = perturbation.generalized_force(viewer.model, viewer.state, perturbation.Perturbation(arm, point, target))
    inertia = float(xsim.mass_matrix(viewer.model, viewer.state.q)[-1, -1])
    linear, _ = xsim.jacobian(viewer.model, viewer.state.q, "arm", tuple(point))
    np.testing.assert_allclose(tau, linear.T @ (3.0 * inertia * 100.0 * (target - point)), rtol=1e-5, atol=1e-4)
    assert abs(tau[-1]) > 1.0


def test_a_dragged_body_comes_to_the_mouse(viewer):
    viewer.drag("ball", (0.0, 0.0, 0.0), (1.0, 0.5, 0.0))
    for _ in range(100):
        viewer.frame(0.02)
    np.testing.assert_allclose(viewer.state.q[:3], [1.0, 0.5, 0.0], atol=1e-3)  # exp(-5 t) after 2 s
    assert viewer.scene.nodes["pull"].visible
    viewer.release()
    viewer.frame(0.02)
    assert not viewer.scene.nodes["pull"].visible


def test_the_mouse_holds_the_point_where_it_began(viewer):
    viewer.reset("raised")
    viewer.draw()
    ball = viewer.model.body_index("ball")
    viewer._drag("start", ball, (1.0, 0.0, 1.1), (1.0, 0.0, 1.1))
    viewer._drag("update", ball, (9.0, 9.0, 9.0), (2.0, 0.0, 1.0))
    np.testing.assert_allclose(viewer.pull.point, [0.0, 0.0, 0.1], atol=1e-6)
    np.testing.assert_allclose(viewer.pull.target, [2.0, 0.0, 1.0])
    viewer._drag("end", ball, (0, 0, 0), (0, 0, 0))
    assert viewer.pull.body == -1


@pytest.mark.slow
def test_the_turn_of_a_free_body_is_a_damped_torsion_spring(viewer):
    """The effective moment of inertia of a sphere is its moment of inertia; a hinge turns with what acts along its axis."""
    inertia = 0.4 * 2.0 * 0.1**2
    velocity, angle = jnp.array([0.3, -0.2, 0.1]), np.array([0.2, 0.1, -0.3])
    state = viewer.state.replace(v=viewer.state.v.at[3:6].set(velocity))
    turn = perturbation.Perturbation(viewer.model.body_index("ball"), turns=True, orientation=quat_exp(angle))
    tau = perturbation.generalized_force(viewer.model, state, turn)
    expected = inertia * (500.0 * angle - 500.0**0.5 * velocity)
    np.testing.assert_allclose(tau, [*[0.0] * 3, *expected, 0.0], rtol=1e-4, atol=1e-5)
    turn = perturbation.Perturbation(viewer.model.body_index("arm"), turns=True, orientation=quat_exp([0.5, 0.2, 0.0]))
    tau = perturbation.generalized_force(viewer.model, viewer.state, turn)
    of_hinge = float(xsim.mass_matrix(viewer.model, viewer.state.q)[-1, -1])
    np.testing.assert_allclose(tau[-1], 3.0 * of_hinge * 500.0 * 0.2, rtol=1e-4)


def test_a_turned_body_follows_the_mouse(viewer):
    """The right button turns the body about its origin, by the angle between where the mouse was and where it is."""
    viewer.draw()
    ball = viewer.model.body_index("ball")
    viewer._drag("start", ball, (1.0, 0.0, 0.1), (1.0, 0.0, 0.1), True)
    viewer._drag("update", ball, (1.0, 0.0, 0.1), (1.0, -0.4, 0.4), True)
    np.testing.assert_allclose(viewer.pull.orientation, quat_exp([np.pi / 4, 0.0, 0.0]), atol=1e-6)
    for _ in range(100):
        viewer.frame(0.02)
    np.testing.assert_allclose(viewer.state.q[3:7], quat_exp([np.pi / 4, 0.0, 0.0]), atol=1e-3)
    np.testing.assert_allclose(viewer.state.q[:3], [1.0, 0.0, 0.0], atol=1e-4)
    assert not viewer.scene.nodes["pull"].visible
    viewer._drag("end", ball, (0, 0, 0), (0, 0, 0), True)
    assert viewer.pull.body == -1
    np.testing.assert_array_equal(perturbation.swing((0, 0, 0), (1, 0, 0), (-1, 0, 0)), [1, 0, 0, 0])


def test_a_mocap_body_turns_with_the_mouse(viewer):
    viewer.pause()
    viewer.turn("target", (0.0, 0.0, 0.0, 2.0))
    viewer.frame(0.02)
    np.testing.assert_allclose(viewer.state.mocap[0], [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0], atol=1e-6)


def test_a_mocap_body_goes_with_the_mouse(viewer):
    viewer.pause()
    viewer.drag("target", (0.1, 0.0, 0.0), (0.5, 0.0, 3.0))
    viewer.frame(0.02)
    np.testing.assert_allclose(viewer.state.mocap[0, :3], [0.4, 0.0, 3.0], atol=1e-6)


# ---- numbers -----------------------------------------------------------------------------------------------------------------


def test_changes_compile_nothing(viewer):
    viewer.step()
    programs = viewer._program._cache_size()
    viewer.replace({"dof.damping[arm]": 2.0, "option.gravity[2]": -5.0})
    viewer.replace_entry("geom.mass", 0, 3.0)
    viewer.set_control(0, -1.0)
    viewer.drag("arm", (0, 0, -1), (1, 0, 0))
    viewer.step(2)
    viewer.reset("raised")
    viewer.step()
    assert viewer._program._cache_size() == programs == 1


def test_controls_have_the_ranges_of_the_file(viewer):
    assert [c[:3] for c in viewer.controls] == [("bounded", -3.0, 2.0), ("free", -1.0, 1.0)]


def test_a_number_of_the_model_from_the_panel(viewer):
    panel = viewer.panel
    panel.leaf.value = "dof.damping"
    panel._choose_leaf()
    assert panel.entry.options[-1] == "dof.damping[arm]"
    panel.entry.value = "dof.damping[arm]"
    panel._choose_entry()
    slider, number = panel.inputs
    assert (slider.min, slider.max, number.value) == (0.0, 1.0, 0.5)


@pytest.mark.parametrize(
    "value, sign, expected", [(2.0, "", (-4, 4)), (-2.0, "", (-4, 4)), (0.0, ">= 0", (0, 1)), (0.01, "> 0", (1e-4, 0.02))]
)
def test_ranges_of_sliders(value, sign, expected):
    assert live_panel.slider_range(value, sign) == pytest.approx(expected)


# ---- what is drawn -----------------------------------------------------------------------------------------------------------


def test_bodies_are_where_kinematics_has_them(viewer):
    viewer.reset("raised")
    viewer.draw()
    pos, quat = xsim.kinematics(viewer.model, viewer.state.q)
    for frame, p, r in zip(viewer.scene.bodies, pos, quat, strict=True):
        np.testing.assert_allclose(frame.position, p, atol=1e-6)
        np.testing.assert_allclose(frame.wxyz, r, atol=1e-6)
    np.testing.assert_allclose(viewer.scene.nodes["tendon 0"].points[0, 1], [1.0, 0.0, 1.1], atol=1e-5)


def test_layers_are_drawn_on_demand(viewer):
    viewer.state = viewer.state.replace(q=viewer.state.q.at[2].set(-1.95))  # the ball is in the floor
    for shown in (set(), set(live_panel.LAYERS)):
        viewer.scene.shown = shown
        viewer.draw()
        nodes = viewer.scene.nodes
        assert [*(s.visible for s in viewer.scene.sites), nodes["axes"].visible, nodes["contacts"].visible] == [bool(shown)] * 4
    viewer.scene.shown = set()


def test_a_new_size_is_drawn(viewer):
    viewer.replace({"geom.size[ball]": [0.3, 0.0, 0.0]})
    viewer.draw()
    scene = viewer.scene.scene
    ball = next(i for i, geom in enumerate(scene.geoms) if geom.body == viewer.model.body_index("ball"))
    assert scene.size[0, ball, 0] == pytest.approx(0.3)


# ---- errors and the command --------------------------------------------------------------------------------------------------


def test_a_batch_is_refused():
    model = xsim.loads(MODEL, "mjcf")
    with pytest.raises(ValueError, match="one environment"):
        simulation.Simulation(model, xsim.init(model, q=np.zeros((3, model.nq))))


def test_without_viser(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "viser", None)
    assert view.main(["pendulum", "--live", "--no-open"]) == 1
    assert "pip install 'xsim[live]'" in capsys.readouterr().err


def test_the_command(monkeypatch, capsys):
    served = []
    monkeypatch.setattr(xsim.viewer.LiveViewer, "run", lambda self: served.append(self.frame(0.0)))
    assert view.main(["pendulum", "--live", "--no-open", "--port", "0", "--velocity", "0.1"]) == 0
    assert served == [0] and "http://127.0.0.1:" in capsys.readouterr().out


# ---- a real browser ----------------------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _until(condition, seconds: float = 60.0):
    """The first true value of a condition. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError


class _Page:
    """A page in a browser without a window, by the DevTools protocol."""

    def __init__(self, folder, url: str):
        options = ["--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage",
                   "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--window-size=800,500"]  # fmt: skip
        self.process = subprocess.Popen([str(BROWSER), *options, url], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        port = _until(lambda: (folder / "DevToolsActivePort").read_text().split()[0])
        pages = _until(lambda: [x for x in self._json(f"http://127.0.0.1:{port}/json") if x["type"] == "page"])
        from websockets.sync.client import connect

        self.socket, self.count = connect(pages[0]["webSocketDebuggerUrl"], max_size=None), 0

    def _json(self, url: str):
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)

    def call(self, method: str, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv(timeout=60))).get("id") != self.count:
            pass
        return answer["result"]

    def picture(self) -> np.ndarray:
        """The page as an image (height, width, 3)."""
        import io

        from PIL import Image

        data = base64.b64decode(self.call("Page.captureScreenshot")["data"])
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)

    def mouse(self, kind: str, x: float, y: float, **options) -> None:
        """An event of the mouse, with Ctrl held down."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, modifiers=2, **options)

    def close(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()


def _middle_of_blue(picture: np.ndarray) -> tuple[float, float]:
    """The middle of the blue cart, left of the panel."""
    part = picture[:, :450]
    rows, columns = np.nonzero((part[..., 2] > part[..., 0] + 60) & (part[..., 2] > part[..., 1] + 30))
    assert len(rows) > 200
    return float(np.median(columns)), float(np.median(rows))


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed, and only a browser can run the page")
def test_page_in_a_browser(tmp_path):
    """A browser shows the model, and a drag with Ctrl pulls at the body under the mouse."""
    viewer = xsim.viewer.LiveViewer(xsim.load("pendulum"), port=0)
    viewer.pause()
    thread = threading.Thread(target=viewer.run)
    thread.start()
    page = _Page(tmp_path, viewer.url)
    try:
        assert _until(viewer.server.get_clients)
        x, y = _until(lambda: _drawn(page))
        page.call("Input.dispatchKeyEvent", type="keyDown", modifiers=2, key="Control", code="ControlLeft")
        page.mouse("mouseMoved", x, y)
        page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for k in range(10):
            page.mouse("mouseMoved", x + 5 * k, y, button="left", buttons=1)
            time.sleep(0.1)
        assert _until(lambda: viewer.pull.body == viewer.model.body_index(viewer.model.body_names[0]))
        page.mouse("mouseReleased", x + 50, y, button="left", clickCount=1)
        assert _until(lambda: viewer.pull.body == -1)
        page.mouse("mousePressed", x, y, button="right", buttons=2, clickCount=1)
        for k in range(10):
            page.mouse("mouseMoved", x + 5 * k, y, button="right", buttons=2)
            time.sleep(0.1)
        assert _until(lambda: viewer.pull.body == viewer.model.body_index(viewer.model.body_names[0]) and viewer.pull.turns)
        page.mouse("mouseReleased", x + 50, y, button="right", clickCount=1)
        assert _until(lambda: viewer.pull.body == -1)
    finally:
        page.close()
        viewer.close()
        thread.join()


def _drawn(page: _Page):
    """Where the cart is, once the page has drawn it."""
    try:
        return _middle_of_blue(page.picture())
    except AssertionError:
        return None
