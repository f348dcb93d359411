"""`xsim.poses`: axioms of quaternions and poses, and batches of them."""

from __future__ import annotations

import numpy as np
import pytest

from xsim.poses import (
    Pose,
    normalized,
    quat_conj,
    quat_exp,
    quat_from_matrix,
    quat_from_z,
    quat_log,
    quat_mul,
    rotate,
    rotation_matrix,
)  # fmt: skip

RNG = np.random.default_rng(0)
QUATS = normalized(RNG.normal(size=(20, 4)))
POINTS = RNG.normal(size=(20, 3))


def test_products_are_products_of_matrices():
    a, b = QUATS[:10], QUATS[10:]
    np.testing.assert_allclose(rotation_matrix(quat_mul(a, b)), rotation_matrix(a) @ rotation_matrix(b), atol=1e-14)
    np.testing.assert_allclose(quat_mul(a, quat_conj(a)), np.tile([1.0, 0, 0, 0], (10, 1)), atol=1e-15)
    np.testing.assert_allclose(rotate(3.0 * a, POINTS[:10]), rotate(a, POINTS[:10]), atol=1e-14)  # of any length


def test_batches_are_single_results_side_by_side():
    for function in (rotate, lambda q, x: quat_mul(q, np.insert(x, 0, 0.5, axis=-1))):
        np.testing.assert_allclose(function(QUATS, POINTS), [function(q, x) for q, x in zip(QUATS, POINTS, strict=True)], atol=1e-15)
    np.testing.assert_allclose(rotate(QUATS[0], POINTS), POINTS @ rotation_matrix(QUATS[0]).T, atol=1e-14)
    np.testing.assert_allclose(rotate(QUATS[:, None], POINTS)[3, 5], rotate(QUATS[3], POINTS[5]), atol=1e-14)


def test_poses_compose_and_invert():
    a, b = Pose(QUATS[0], POINTS[0]), Pose(QUATS[1], POINTS[1])
    x = POINTS[2]
    once, twice = rotate(b.quat, x) + b.pos, a @ b
    np.testing.assert_allclose(rotate(twice.quat, x) + twice.pos, rotate(a.quat, once) + a.pos, atol=1e-14)
    np.testing.assert_allclose((a @ a.inverse()).pos, 0.0, atol=1e-14)
    assert Pose().is_identity() and not a.is_identity()


def test_logarithm_and_matrix_are_inverted():
    for q in QUATS:
        sign = 1.0 if q[0] >= 0 else -1.0
        np.testing.assert_allclose(quat_exp(quat_log(q)), sign * q, atol=1e-14)
        again = quat_from_matrix(rotation_matrix(q))
        np.testing.assert_allclose(again * np.sign(again @ q), q, atol=1e-14)


@pytest.mark.parametrize("direction", [*POINTS[:5], (0, 0, 2.0), (0, 0, -2.0), (1e-9, 0, -1.0), (0, 1e-20, 1.0)], ids=str)
def test_the_smallest_rotation_of_z(direction):
    q, unit = quat_from_z(direction), normalized(direction)
    np.testing.assert_allclose(rotate(q, (0, 0, 1)), unit, atol=1e-15)
    assert q[3] == 0.0  # about an axis in the x-y plane
    assert 2 * np.arccos(q[0]) == pytest.approx(np.arccos(unit[2]), abs=1e-7)


def test_zeros_stay_zeros():
    np.testing.assert_array_equal(normalized(np.zeros((2, 3))), np.zeros((2, 3)))
