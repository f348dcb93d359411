"""The Jacobian by blocks does what the full matrix does."""

import numpy as np
import pytest
from traced import by_numpy

from xsim.dynamics.linalg.jacobian import MAX_BLOCKS, MAX_DOF_SETS, Jacobian, partition
from xsim.spatial import one_environment

CHAINS = [(0, 1, 2), (0, 1, 2, 3, 4), (0, 1, 2, 5, 6), (0, 1, 2, 4), (7,)]


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("copies", [5, 40])
def test_as_the_full_matrix(x64, d, copies):
    """With blocks that are chains and, where contacts are few, blocks that hold several."""
    nv, lanes, rng = 8, 3, np.random.default_rng(d)
    moved = np.array([[dof in chain for dof in range(nv)] for chain in CHAINS] * copies)
    order, blocks = partition(moved, d)
    assert sorted(order) == list(range(len(moved))) and len(blocks) > 1
    full = rng.normal(size=(len(moved), d, nv, lanes)) * moved[order][:, None, :, None]
    ends = np.cumsum([count for count, _ in blocks])
    parts = tuple(full[end - count : end][:, :, list(dofs)] for end, (count, dofs) in zip(ends, blocks, strict=True))
    J = Jacobian(parts, blocks, nv)
    a, f, half = rng.normal(size=(nv, lanes)), rng.normal(size=(len(moved), d, lanes)), rng.normal(size=(len(moved), d, d, lanes))
    second = half + half.swapaxes(1, 2)
    f[-2:] = second[-2:] = 0

    def found(J, a, f, second):
        counts = J.counts(np.arange(len(moved)) < len(moved) - 2)
        with one_environment():
            of_active = J.jt_times(f, counts), J.jt_magnitudes(f, counts)
        return J.dense(), J.j_times(a), J.jt_times(f), J.jt_magnitudes(f), *of_active, J.curvature(second), J.curvature(second, counts)

    force, curvature = np.einsum("ndkl,ndl->kl", full, f), np.einsum("ndil,ndel,nejl->ijl", full, second, full)
    magnitude = np.einsum("ndkl,ndl->kl", abs(full), abs(f))
    wanted = full, np.einsum("ndkl,kl->ndl", full, a), force, magnitude, force, magnitude, curvature, curvature
    for ours, theirs in zip(by_numpy(found)(J, a, f, second), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_many_bodies_make_few_blocks():
    """However many dofs move one contact each."""
    for count in (MAX_BLOCKS, MAX_DOF_SETS, MAX_DOF_SETS + 1):
        order, blocks = partition(np.repeat(np.eye(count, dtype=bool), 40, axis=1), 6)
        assert sorted(order) == list(range(count)) and len(blocks) == (1 if count > MAX_DOF_SETS else MAX_BLOCKS)
