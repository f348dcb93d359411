"""Springs and dampers of joints, and the quadratic terms (damping, armature) along joint or body axes."""

from __future__ import annotations

from ..spatial import apply, dot, mul, neg, stage, sub, total
from .kinematics import Frames
from .system import System, split_q


class Quadratic:
    """A symmetric matrix over the dofs: a diagonal and blocks of translations whose axes turn with the body."""

    def __init__(self, diagonal: list, blocks: dict):
        self.diagonal, self.blocks = diagonal, blocks

    def times(self, x) -> list:
        out = [mul(d, a) for d, a in zip(self.diagonal, x, strict=True)]
        for i in {i for i, _ in self.blocks}:
            out[i] = total([out[i], *(mul(b, x[k]) for (r, k), b in self.blocks.items() if r == i)])
        return out


@stage
def _turned(R, axes, directions, values):
    """Matrix sum_k values[k] g_k g_k^T, g_k the body axis k (axes[k] turned by R) along the directions of the translations."""
    g = [[dot(apply(R, a), d) for d in directions] for a in axes]
    n = range(len(directions))
    return [[total([mul(mul(x, row[i]), row[j]) for x, row in zip(values, g, strict=True)]) for j in n] for i in n]


def quadratic(system: System, frame: Frames, values, which: str) -> Quadratic:
    """Damping (``which`` "damper") or armature as a matrix: along joint axes, or along body axes where the joint's law says so."""
    diagonal, blocks = list(values), {}
    for slides, rotating, damper, armature in system.tables.blocks:
        if not (damper if which == "damper" else armature):
            continue
        dofs = [system.topology.links[s].v for s in slides]
        axes = [system.numbers[s].axis for s in slides]
        block = _turned(frame.R[rotating[-1]], axes, [frame.subspace[d].lin for d in dofs], [values[d] for d in dofs])
        for i, row in zip(dofs, block, strict=True):
            diagonal[i] = 0.0
            blocks.update({(i, j): b for j, b in zip(dofs, row, strict=True)})
    return Quadratic(diagonal, blocks)


@stage
def _spring(joint, numbers, q, ref, stiffness):
    return [mul(k, x) for k, x in zip(stiffness, joint.difference(numbers, q, ref), strict=True)]


@stage
def _minus(a, b):
    return [neg(y) if x is None else sub(x, y) for x, y in zip(a, b, strict=True)]


def passive_force(system: System, q, v, damping: Quadratic) -> list:
    """Springs and dampers: stiffness times the displacement towards the reference, minus damping times velocity.

    A ball's spring acts on the rotation vector from q to its reference, child axes (angle at most pi).
    """
    springs: list = [0.0] * len(v)
    qs, refs = split_q(system, q), split_q(system, system.spring_ref)
    for i, link in enumerate(system.topology.links):
        dofs = slice(link.v, link.v + link.nv)
        springs[dofs] = _spring(system.joints[i], system.numbers[i], qs[i], refs[i], system.stiffness[dofs])
    return _minus(springs, damping.times(v))
