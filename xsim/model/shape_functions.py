"""The shape functions of cells whose nodes move a flex, and the stiffness of such cells. See `xsim.spec.GridSpec`."""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["gauss_points", "quadrature", "shape_functions", "strain_modes"]

STRAIN_YOUNG, STRAIN_POISSON = 10.0, 0.3  # of the stiffness that MuJoCo 4.0's constraints of strain take, in units of their rows
RIGID = 1e-8  # least eigenvalue that strains a cell, in units of the greatest


def gauss_points(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The points (count,) of Gauss quadrature between 0 and 1, and their weights."""
    x, weight = np.polynomial.legendre.leggauss(count)
    return 0.5 + 0.5 * x, 0.5 * weight


@functools.lru_cache(maxsize=4)
def shape_functions(order: int, dim: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Of a cell with unit sides (dim 3), or a face of one (2): the nodes' places (n, dim) from its centre, and the derivatives (dim, n) of
    the shape functions there."""
    places = np.stack(np.meshgrid(*[np.arange(order + 1) / order] * dim, indexing="ij"), -1).reshape(-1, dim) - 0.5
    return places, _derivatives(order, [0.5] * dim)


@functools.lru_cache(maxsize=8)
def quadrature(order: int, dim: int = 3, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Gauss quadrature of a cell with unit sides or a face of one: the derivatives (points, dim, n) of the shape functions at its points,
    and the weights (points,) of these for a full cell.

    count: of points along each axis. By default order + 1, which are exact for a full cell. 2 order + 1 are enough to be exact for cells
    that are filled in part, each with weights of its own."""
    x, weight = gauss_points(count or order + 1)
    at_points = np.array([_derivatives(order, x[list(index)]) for index in np.ndindex(*[len(x)] * dim)])
    return at_points, functools.reduce(np.multiply.outer, [weight] * dim).ravel()


def _derivatives(order: int, at) -> np.ndarray:
    """The derivatives (dim, n) of the shape functions at a place."""
    line, dim = np.arange(order + 1) / order, len(at)
    polynomials = [np.polynomial.Polynomial.fromroots(np.delete(line, k)) for k in range(order + 1)]
    polynomials = [p / p(line[k]) for k, p in enumerate(polynomials)]
    values = np.array([[p(x) for p in polynomials] for x in at])
    slopes = np.array([[p.deriv()(x) for p in polynomials] for x in at])
    along = [[slopes[j] if i == j else values[j] for j in range(dim)] for i in range(dim)]
    return np.array([functools.reduce(np.multiply.outer, x).ravel() for x in along])


def strain_modes(order: int, sides: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The eigenvectors of a cell's stiffness times the square roots of their eigenvalues, (modes, nodes, 3), without rigid motions.
    weights (points,): of a cell that is filled in part, see `xsim.spec.GridSpec`.

    Source: probes of MuJoCo 4.0, whose constraints of strain these are (equality/flexstrain)."""
    at_points, full = quadrature(order, 3, None if weights is None else 2 * order + 1)
    shear = STRAIN_YOUNG / (2 * (1 + STRAIN_POISSON))
    bulk = 2 * shear * STRAIN_POISSON / (1 - 2 * STRAIN_POISSON)
    slopes, volumes = at_points / sides[:, None], (full if weights is None else weights) * np.prod(sides)
    pairs = np.einsum("p,pia,pjb->aibj", volumes, slopes, slopes)
    size = slopes.shape[2] * 3
    isotropic = np.einsum("akbk,ij->aibj", pairs, np.eye(3))
    stiffness = bulk * pairs + shear * (isotropic + np.swapaxes(pairs, 1, 3))
    values, vectors = np.linalg.eigh(stiffness.reshape(size, size))
    strains = values > RIGID * values[-1]
    return (vectors[:, strains] * np.sqrt(values[strains])).T.reshape(-1, size // 3, 3)
