"""The diagram of a step: ``python docs/figures/step.py``. Needs matplotlib."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FILE = Path(__file__).parents[1] / "images" / "step.svg"
STAGES = (
    ("Kinematics", "poses, motion subspaces and velocities of all bodies", "q, v"),
    ("Inertia and bias", "mass matrix M(q), velocity and gravity terms c(q, v)", ""),
    ("Forces", "springs, dampers, actuators, elements, your tau", "ctrl, act, tau"),
    ("Collision", "which geoms are near, contact points and normals", ""),
    ("Constraint rows", "Jacobian J, reference acceleration, regularization", ""),
    ("Solve", "acceleration a, the minimum of a convex function", ""),
    ("Impulses", "dry friction, position and velocity limits, servos", ""),
    ("Integration", "new v, then q on the configuration manifold", ""),
    ("Projection", "back onto the holonomic constraints", ""),
)
SOME = {"Collision", "Constraint rows", "Impulses", "Projection"}  # only in models that need them
HEIGHT, GAP = 0.62, 0.26
DARK, LIGHT, PALE = "#2f4b66", "#e4edf5", "#f7f7f4"


def main() -> None:
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "xsim"
    total = len(STAGES) * (HEIGHT + GAP) + 1.45
    figure = Figure((9.4, total * 0.7))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0.5, 13.7), ylim=(-total, 0.1))
    axes.set_axis_off()
    box(axes, 3.2, -0.55, 3.6, 0.5, "state: q, v, act, time", "white")
    y = -0.55
    for name, text, given in STAGES:
        top = y - GAP
        arrow(axes, (5.0, y), (5.0, top))
        y = top - HEIGHT
        box(axes, 3.2, y, 3.6, HEIGHT, name, PALE if name in SOME else LIGHT, dashed=name in SOME)
        axes.text(7.1, y + HEIGHT / 2, text, va="center", fontsize=9.5, color="#444444")
        if given:
            axes.text(2.2, y + HEIGHT / 2, given, va="center", ha="right", fontsize=10, style="italic", color=DARK)
            arrow(axes, (2.3, y + HEIGHT / 2), (3.2, y + HEIGHT / 2))
    arrow(axes, (5.0, y), (5.0, y - GAP))
    box(axes, 3.2, y - GAP - 0.5, 3.6, 0.5, "state one step later", "white")
    axes.text(7.1, -0.3, "dashed: only in models that need it", va="center", fontsize=9.5, color="#444444")
    FILE.parent.mkdir(exist_ok=True)
    figure.savefig(FILE, metadata={"Date": None})


def box(axes, x, y, width, height, text, color, dashed=False) -> None:
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y), width, height, style, fc=color, ec=DARK, lw=1.2, ls="--" if dashed else "-"))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=11.5, color=DARK)


def arrow(axes, start, end) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=DARK, lw=1.2, shrinkA=0, shrinkB=0))


if __name__ == "__main__":
    main()
