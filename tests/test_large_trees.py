"""Mass matrices of many kinematic trees, and of long chains."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_matrices import NUM, SIZES, of_one, positive

import xsim
from xsim.compile.choice import tracing_for
from xsim.dynamics.constraints.invweight import inverse_mass_diagonal
from xsim.dynamics.linalg.dense import Cholesky
from xsim.dynamics.linalg.sparse import factorize, solve

LENGTH = SIZES[0]
"""Dofs of a tree whose matrix is factored in memory."""


class Trees:
    """Random mass matrices and Jacobian rows. Two trees are alike, one is large. One row is of several trees, one has no entries."""

    def __init__(self):
        sizes = 2, LENGTH, 2, 3
        rng, nv = np.random.default_rng(0), sum(sizes)
        self.trees = [np.arange(end - size, end) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
        self.mass, self.rows = np.zeros((NUM, nv, nv)), np.zeros((NUM, nv + 2, nv))
        for dofs in self.trees:
            self.mass[:, dofs[:, None], dofs] = positive(len(dofs), np.float64)[0]
        self.rows[:, np.arange(nv), np.arange(nv)] = 1.0
        self.rows[:, nv, [0, 1, 5, nv - 1]] = rng.normal(size=(NUM, 4))

    def diagonal(self, mass, rows):
        return inverse_mass_diagonal(mass, rows, (self.rows != 0).any(0), self.trees)


@pytest.mark.parametrize("compiler", ["llvm", "xla"])
def test_mobilities_by_tree(compiler, x64):
    """The diagonal of J M^-1 J^T."""
    given = Trees()
    wanted = (given.rows * np.linalg.solve(given.mass, given.rows.swapaxes(1, 2)).swapaxes(1, 2)).sum(-1)
    if compiler == "llvm":
        function = of_one(lambda *xs: [given.diagonal(*xs)], given.mass, given.rows)
        (found,) = function((jnp.asarray(given.mass), jnp.asarray(given.rows)), (True, True))
    else:
        found = jax.jit(given.diagonal)(*(np.moveaxis(x, 0, -1) for x in (given.mass, given.rows))).T
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=0)


def test_equations_of_a_chain(x64):
    """The solution of M x = b, of a chain that branches at the end."""
    ancestors = [tuple(range(i)) for i in range(LENGTH)]
    ancestors[-1] = ancestors[-2]
    descendants = [tuple(k for k in range(LENGTH) if i in ancestors[k]) for i in range(LENGTH)]
    system = SimpleNamespace(tables=SimpleNamespace(ancestors=ancestors, descendants=descendants))
    matrix, b = positive(LENGTH, np.float64)
    matrix = matrix.at[:, [-1, -2], [-2, -1]].set(0.0)

    def solution(matrix, b):
        factor = factorize(system, [[matrix[i, j] for j in (*ancestors[i], i)] for i in range(LENGTH)])
        assert isinstance(factor, Cholesky)
        return [jnp.stack(solve(system, factor, list(b)))]

    (found,) = of_one(solution, matrix, b)((matrix, b), (True, True))
    np.testing.assert_allclose(found, np.linalg.solve(matrix, np.asarray(b)[..., None])[..., 0], rtol=1e-11, atol=1e-13)


CHAIN = f"""<mujoco><option timestep=".002"/><worldbody>{
    "".join(
        f'<body pos=".05 0 0"><joint axis="{i % 2} {(i + 1) % 2} 0" armature=".01" damping=".05"/>'
        '<geom type="capsule" size=".01" fromto="0 0 0 .05 0 0" contype="0" conaffinity="0"/>'
        for i in range(LENGTH)
    )
}{"</body>" * LENGTH}</worldbody></mujoco>"""


@pytest.mark.nightly
def test_long_chain(x64):
    """A step of a chain, whose factors are dense, and its derivatives in the model and the state: by LLVM and by XLA."""
    model = xsim.loads(CHAIN, "mjcf")
    rng = np.random.default_rng(0)
    q, v, weight = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(3))

    def output(damping, v):
        return (xsim.step(model.replace({"dof.damping": damping}), xsim.init(model, q, v)).v * weight).sum()

    found = []
    for compiler in ("llvm", "xla"):
        with tracing_for(compiler):
            found.append(jax.jit(jax.value_and_grad(output, (0, 1)))(model.get("dof.damping"), v))
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())
