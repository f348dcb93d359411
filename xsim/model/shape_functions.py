"""The shape functions of cells whose nodes move a flex, and the stiffness of such cells. See `xsim.spec.GridSpec`."""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["shape_functions", "strain_modes"]

STRAIN_YOUNG, STRAIN_POISSON = 10.0, 0.3  # of the stiffness that MuJoCo 4.0's constraints of strain take, in units of their rows
RIGID = 1e-8  # least eigenvalue that strains a cell, in units of the greatest


@functools.lru_cache(maxsize=4)
def shape_functions(order: int, dim: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of a cell with unit sides (dim 3), or a face of one (2): the nodes' places (n, dim) from its centre, the derivatives (dim, n) of the
    shape functions there, those at the points of the quadrature (points, dim, n), and the weights (points,) of these points."""
    line, count = np.arange(order + 1) / order, order + 1
    places = np.stack(np.meshgrid(*[line] * dim, indexing="ij"), -1).reshape(-1, dim) - 0.5
    polynomials = [np.polynomial.Polynomial.fromroots(np.delete(line, k)) for k in range(count)]
    polynomials = [p / p(line[k]) for k, p in enumerate(polynomials)]

    def derivatives(at) -> np.ndarray:
        values = np.array([[p(x) for p in polynomials] for x in at])
        slopes = np.array([[p.deriv()(x) for p in polynomials] for x in at])
        along = [[slopes[j] if i == j else values[j] for j in range(dim)] for i in range(dim)]
        return np.array([functools.reduce(np.multiply.outer, x).ravel() for x in along])

    x, weight = np.polynomial.legendre.leggauss(count)
    x, weight = 0.5 + 0.5 * x, 0.5 * weight
    at_points = np.array([derivatives(x[list(index)]) for index in np.ndindex(*[count] * dim)])
    return places, derivatives([0.5] * dim), at_points, functools.reduce(np.multiply.outer, [weight] * dim).ravel()


def strain_modes(order: int, sides: np.ndarray) -> np.ndarray:
    """The eigenvectors of a cell's stiffness times the square roots of their eigenvalues, (modes, nodes, 3), without rigid motions.

    Source: probes of MuJoCo 4.0, whose constraints of strain these are (equality/flexstrain)."""
    _, _, at_points, weights = shape_functions(order)
    shear = STRAIN_YOUNG / (2 * (1 + STRAIN_POISSON))
    bulk = 2 * shear * STRAIN_POISSON / (1 - 2 * STRAIN_POISSON)
    slopes, volumes = at_points / sides[:, None], weights * np.prod(sides)
    pairs = np.einsum("p,pia,pjb->aibj", volumes, slopes, slopes)
    size = slopes.shape[2] * 3
    isotropic = np.einsum("akbk,ij->aibj", pairs, np.eye(3))
    stiffness = bulk * pairs + shear * (isotropic + np.swapaxes(pairs, 1, 3))
    values, vectors = np.linalg.eigh(stiffness.reshape(size, size))
    strains = values > RIGID * values[-1]
    return (vectors[:, strains] * np.sqrt(values[strains])).T.reshape(-1, size // 3, 3)
