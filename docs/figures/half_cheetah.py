"""The moving picture of the README: a trained policy runs half cheetahs that differ in masses and damping.

    python -m xsim.train half_cheetah --out runs/half_cheetah
    python docs/figures/half_cheetah.py runs/half_cheetah

Needs matplotlib and pillow.
"""

import io
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image

import xsim
from xsim.train.checkpoints import checkpoints, restore
from xsim.train.config import configure
from xsim.train.ppo import Algorithm

FILE = Path(__file__).parents[1] / "images" / "half_cheetah.gif"
COUNT, SKIPPED, FRAMES = 3, 30, 60
PERIOD = 0.05  # s between actions, and between frames
RANGES = {path: {"uniform": [0.93, 1.07], "relative": "scale"} for path in ("geom.density", "dof.damping", "dof.stiffness")}
COLORS = ("#4a7fb5", "#e08a4a", "#62a866", "#b0607a")
DEPTH = np.array([0.5, 0.4])  # of one lane, m on the paper
WIDTH = 5.4  # of the picture, m
INCHES, DPI = (6.4, 2.6), 100


def run(folder: Path) -> tuple[xsim.Model, np.ndarray]:
    """The model and q: (frames, cheetahs, nq) under the deterministic policy."""
    config = configure("half_cheetah")
    training = Algorithm(config, xsim.make_env("half_cheetah", num_envs=config.num_envs))
    learner = restore(checkpoints(folder)[-1], training.shapes())
    env = xsim.make_env("half_cheetah", num_envs=COUNT, randomize=RANGES)

    def one(state, _):
        state = env.step(state, training.act(learner, state.obs))
        return state, state.state.q

    _, q = jax.jit(lambda key: jax.lax.scan(one, env.reset(key), length=SKIPPED + FRAMES))(jax.random.key(0))
    return env.model, np.asarray(q[SKIPPED:])


def capsules(model: xsim.Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends (*batch, capsules, 2, 2) in the x-z plane and radii (capsules,), m."""
    pos, quat = xsim.geom_poses(model, jnp.asarray(q))
    chosen = np.array([i for i, g in enumerate(model.topology.geoms) if g.shape == "capsule"])
    w, x, y, z = np.moveaxis(np.asarray(quat)[..., chosen, :], -1, 0)
    axis = np.stack([2 * (x * z + w * y), 1 - 2 * (x * x + y * y)], -1)  # of the capsule, in the x-z plane
    center = np.asarray(pos)[..., chosen, :][..., ::2]
    size = np.array([model.topology.geoms[i].size for i in chosen])
    half = size[:, 1, None] * axis
    return np.stack([center - half, center + half], -2), size[:, 0]


def frame(ends: np.ndarray, radii: np.ndarray, eye: float) -> Image.Image:
    """One picture. ends: (cheetahs, capsules, 2, 2); eye: x of the middle, m."""
    figure = Figure(INCHES, DPI, facecolor="white")
    left, height = eye - WIDTH / 2, WIDTH * INCHES[1] / INCHES[0]
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, left + WIDTH), ylim=(-0.1, height - 0.1))
    axes.set_axis_off()
    back = (COUNT - 0.4) * DEPTH
    axes.fill([left, left + WIDTH, left + WIDTH, left], [-0.1, -0.1, back[1], back[1]], color="#eef1f4", zorder=0)
    for mark in np.arange(np.floor(left) - 2, left + WIDTH + 1):
        axes.plot([mark - 0.125, mark + back[0]], [-0.1, back[1]], color="#c9d0d6", lw=1.5, zorder=1)
    points = 72 * INCHES[0] / WIDTH  # of one metre
    for lane in reversed(range(COUNT)):
        lines = LineCollection(ends[lane] + lane * DEPTH, colors=COLORS[lane], capstyle="round",
                               linewidths=2 * radii * points, zorder=2 + COUNT - lane)  # fmt: skip
        axes.add_collection(lines)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI)
    return Image.open(out).convert("RGB").quantize(16, dither=Image.Dither.NONE)


def main(folder: Path) -> None:
    model, q = run(folder)
    q = q.copy()
    ends, radii = capsules(model, q)
    lead = q[..., 0] - q[:1, :, 0]  # each is shown from where it is when the picture begins
    ends = ends - q[:1, :, 0, None, None, None] * np.array([1.0, 0.0])
    eye = np.linspace(lead[0].mean(), lead[-1].mean(), FRAMES)
    images = [frame(e, radii, x) for e, x in zip(ends, eye, strict=True)]
    FILE.parent.mkdir(exist_ok=True)
    images[0].save(FILE, save_all=True, append_images=images[1:], duration=int(1000 * PERIOD), loop=0, optimize=True)
    print(f"{FILE}: {FILE.stat().st_size // 1000} kB; speeds {(q[-1, :, 0] - q[0, :, 0]) / (PERIOD * (FRAMES - 1))} m/s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
