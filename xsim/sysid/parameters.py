"""Parameters of a fit: numbers of a model's leaves, each a function of an unconstrained number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.model.model import Frozen, Model
from xsim.model.selectors import element_name, select
from xsim.suggestions import did_you_mean

__all__ = ["Block", "Parameter", "Range", "physical_values", "resolve", "split", "typical_sizes", "with_values"]


# ---- transforms --------------------------------------------------------------------------------------------------------------


class Transform(NamedTuple):
    """From an unconstrained number z, 0 at the start, to a physical number.

    forward(z, start, low, high) -> value, elementwise, with forward(0) = start. scale(start, low, high): a typical size of the value.
    has_low, has_high: the bounds that the values respect. relative: whether the value itself is its typical size.
    """

    forward: Callable
    scale: Callable
    has_low: bool
    has_high: bool
    relative: bool = False


def _free_scale(start, low, high):
    return np.where(start == 0, 1.0, np.abs(start))


def _free(z, start, low, high):
    return start + z * jnp.where(start == 0, 1.0, jnp.abs(start))


def _log(z, start, low, high):
    return low + (start - low) * jnp.exp(z)


def _below(z, start, low, high):
    return high - (high - start) * jnp.exp(z)


def _softplus(z, start, low, high):
    one = jnp.ones_like(z)
    softplus_inverse = one + jnp.log(-jnp.expm1(-one))
    return low + (start - low) * jax.nn.softplus(z + softplus_inverse)


def _sigmoid(z, start, low, high):
    x = (start - low) / (high - low)
    # The clip keeps a saturated sigmoid from rounding onto or past the bound.
    return jnp.clip(low + (high - low) * jax.nn.sigmoid(z + jnp.log(x) - jnp.log1p(-x)), low, high)


TRANSFORMS: dict[str, Transform] = {
    "free": Transform(_free, _free_scale, has_low=False, has_high=False),
    "log": Transform(_log, lambda start, low, high: start - low, has_low=True, has_high=False, relative=True),
    "softplus": Transform(_softplus, lambda start, low, high: start - low, has_low=True, has_high=False, relative=True),
    "below": Transform(_below, lambda start, low, high: high - start, has_low=False, has_high=True),
    "sigmoid": Transform(_sigmoid, lambda start, low, high: high - low, has_low=True, has_high=True),
}
DEFAULT_TRANSFORMS = {(False, False): "free", (True, False): "log", (False, True): "below", (True, True): "sigmoid"}
"""The transform of a parameter that names none, by whether it has a lower and an upper bound."""


# ---- parameters --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """Numbers of the model to fit.

    path: a selector (`xsim.model.selectors`): ``leaf``, ``leaf[row]`` or ``leaf[row, column]``. leaf is a path of `Model.paths`, or a
    pattern; row is the name of a body (or of the constraint, force or function that the row belongs to), a pattern of names, or an index;
    column an index in the row (``"geom.pos[link2, 0]"``).
    bounds: (low, high) in the leaf's unit, None for an open side. transform: ``"log"`` or ``"softplus"`` (above ``low``, default 0),
    ``"free"``, ``"sigmoid"`` (between bounds), ``"below"`` (under ``high``); None chooses by the bounds, and without bounds ``"log"``
    for what cannot be negative (damping, stiffness, armature, mass, size, time step), ``"free"`` for the rest.
    start: where the fit starts, scalar or one number per element; None: the model's values. tied: one number for all elements.
    """

    path: str
    bounds: tuple[float | None, float | None] | None = None
    transform: str | None = None
    start: float | Sequence[float] | np.ndarray | None = None
    tied: bool = False


class Range(NamedTuple):
    """Numbers of a block, each (unknowns,): where the fit starts, and the bounds (infinite where there is none)."""

    start: Any
    low: Any
    high: Any


class Block(NamedTuple):
    """A parameter resolved on one leaf: flat element indices, one unknown per element (or one in all, where tied). Hashable."""

    path: str
    elements: tuple[int, ...]
    names: tuple[str, ...]
    unit: str
    transform: str

    @property
    def size(self) -> int:
        return len(self.names)


def resolve(model: Model, parameters) -> tuple[tuple[Block, ...], tuple[Range, ...]]:
    """The blocks of the parameters (paths or `Parameter`, one or several), and their ranges. Errors as in `fit`."""
    if isinstance(parameters, (str, Parameter)):
        parameters = (parameters,)
    blocks: list[tuple[Block, Range]] = []
    chosen: dict[str, set[int]] = {}
    for p in parameters:
        p = Parameter(p) if isinstance(p, str) else p
        if not isinstance(p, Parameter):
            raise TypeError(f"parameters must be paths or Parameter, found {type(p).__name__}")
        for path, elements in select(model, p.path).items():
            _check_can_be_fitted(model, path, p)
            before = chosen.setdefault(path, set())
            twice = before & set(elements.tolist())
            if twice:
                raise ValueError(f"{p.path}: {element_name(model, path, min(twice))} is chosen twice")
            before |= set(elements.tolist())
            blocks.append(_block(model, p, path, elements))
    return tuple(block for block, _ in blocks), tuple(range_ for _, range_ in blocks)


def _check_can_be_fitted(model: Model, path: str, p: Parameter) -> None:
    leaf, shape = model.get(path), model.shape(path)
    if isinstance(leaf, Frozen):
        raise ValueError(f"{p.path}: {path} is frozen, a constant of the compiled program; load the model without freezing it")
    if leaf.shape != shape:
        raise ValueError(f"{p.path}: {path} differs between environments (shape {leaf.shape}) and cannot be fitted as one number")


def _block(model: Model, p: Parameter, path: str, elements: np.ndarray) -> tuple[Block, Range]:
    names = (p.path,) if p.tied else tuple(element_name(model, path, e) for e in elements)
    never_negative = bool(model.declaration(path).sign)
    name, low, high = _transform_and_bounds(p, path, never_negative)
    start = _start(model, p, path, elements)
    outside = [f"{n} = {x:g}" for n, x in zip(names, start, strict=True) if not low < x < high or not np.isfinite(x)]
    if outside:
        raise ValueError(f"{p.path}: the start must lie strictly between {low:g} and {high:g}; {', '.join(outside)}: give another start")
    block = Block(path, tuple(elements.tolist()), names, model.declaration(path).unit, name)
    return block, Range(start, np.full(len(start), low), np.full(len(start), high))


def _start(model: Model, p: Parameter, path: str, elements: np.ndarray) -> np.ndarray:
    values = np.asarray(model.get(path), np.float64).reshape(-1)[elements] if p.start is None else p.start
    try:
        start = np.broadcast_to(np.asarray(values, np.float64), elements.shape)
    except ValueError as e:
        raise ValueError(f"{p.path}: start is {p.start}, expected one number or {len(elements)}") from e
    return start.mean(keepdims=True) if p.tied else start


def _transform_and_bounds(p: Parameter, path: str, never_negative: bool) -> tuple[str, float, float]:
    """(name of the transform, low, high) with what the parameter leaves to be chosen."""
    low, high = p.bounds if p.bounds is not None else (None, None)
    name = p.transform or DEFAULT_TRANSFORMS[low is not None or never_negative, high is not None]
    if name not in TRANSFORMS:
        raise ValueError(f"{p.path}: unknown transform {name!r}{did_you_mean(name, TRANSFORMS)}; known: {', '.join(TRANSFORMS)}")
    transform = TRANSFORMS[name]
    for side, value, respected in (("low", low, transform.has_low), ("high", high, transform.has_high)):
        if value is not None and not respected:
            raise ValueError(f"{p.path}: transform {name!r} does not keep the {side} bound {value}")
    if high is None and transform.has_high:
        raise ValueError(f"{p.path}: transform {name!r} needs an upper bound")
    low = (0.0 if transform.has_low else -np.inf) if low is None else float(low)
    high = np.inf if high is None else float(high)
    if never_negative and low < 0 and name != "free":
        raise ValueError(f"{p.path}: the lower bound {low} allows a negative {path}")
    if not low < high:
        raise ValueError(f"{p.path}: bounds must ascend, found {low}, {high}")
    return name, low, high


# ---- values ------------------------------------------------------------------------------------------------------------------


def split(blocks: Sequence[Block], x) -> list:
    """x: (n,) cut into the unknowns of each block."""
    ends = np.cumsum([b.size for b in blocks])
    return [x[end - b.size : end] for b, end in zip(blocks, ends, strict=True)]


def physical_values(blocks: Sequence[Block], ranges: Sequence[Range], z):
    """Physical numbers (n,) of the unconstrained numbers z (n,)."""
    parts = [TRANSFORMS[b.transform].forward(x, *r) for b, r, x in zip(blocks, ranges, split(blocks, z), strict=True)]
    return jnp.concatenate(parts) if parts else z


def typical_sizes(blocks: Sequence[Block], ranges: Sequence[Range], x: np.ndarray) -> np.ndarray:
    """A typical size of each of the physical numbers x (n,), in which its changes are measured."""
    sizes = []
    for block, range_, part in zip(blocks, ranges, split(blocks, x), strict=True):
        transform = TRANSFORMS[block.transform]
        sizes.append(np.abs(part) if transform.relative else transform.scale(*range_))
    return np.maximum(np.concatenate(sizes), np.finfo(np.float64).tiny) if sizes else np.zeros(0)


def with_values(model: Model, blocks: Sequence[Block], x) -> Model:
    """The model whose chosen elements are x: (n,)."""
    changes: dict[str, Any] = {}
    for block, part in zip(blocks, split(blocks, x), strict=True):
        leaf = changes.get(block.path, model.get(block.path))
        changes[block.path] = leaf.reshape(-1).at[np.array(block.elements)].set(part.astype(leaf.dtype)).reshape(leaf.shape)
    return model.replace(changes)
