"""Sampling of a model's leaves: checked once for a model, then run once per environment."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.sharding import divided, replicate
from xsim.joints.elementary import draw_parameters, name_key
from xsim.joints.types import JOINT_TYPES
from xsim.model.model import Frozen, Model, is_below
from xsim.model.selectors import has_rows, row_names, select
from xsim.randomize.distributions import DISTRIBUTIONS, RELATIVE, uniform
from xsim.randomize.ranges import Entry, read_entry, read_ranges

__all__ = ["Sampler", "make_sampler", "randomize"]

CHUNK = 256
"""Environments that are sampled at a time."""


def randomize(model: Model, key, num: int, ranges=None, *, axes: bool | None = None, positions: bool | None = None) -> Model:
    """A model whose sampled leaves differ between ``num`` environments: shape (num, *shape); the other leaves stay shared.

    ranges: None, a dict of entries (described in the module `xsim.randomize`), a YAML file, or the name of one in ``configs/randomize``.
    axes: sample the parameters of joint types that declare how (rr, rr_imp, rsaddle, types of users). positions: sample ``body.pos``
    in the box of bodies that have one. Both default to what ``ranges`` says, else True. The sampled leaves are divided among the devices in
    use (`xsim.use_devices`, `xsim.use_cores`), as `init` divides a state; the others are on each of them (`xsim.replicate`).

    Environment i depends on ``key``, i and names alone: not on ``num``, nor on other bodies or entries. Works under jit (num static).
    Raises KeyError for an unknown leaf or body, ValueError for a frozen leaf or a range that allows impossible numbers (a negative
    mass), FileNotFoundError for an unknown name.
    """
    sampler = make_sampler(model, ranges, axes=axes, positions=positions)
    for path in sampler.varying:
        leaf = model.get(path)
        if leaf.ndim > len(model.shape(path)) and leaf.shape != (num, *model.shape(path)):
            raise ValueError(f"{path} has shape {leaf.shape}: it differs between environments already, and not between {num}")
    shared, sampled = _sampled(model, key, _Choice(sampler), num)
    return replicate(model.replace(shared).replace(divided(sampled, (num,))), num)


class _Choice:
    """What a sampler samples, of any model. Equal ones are compiled once."""

    def __init__(self, sampler: Sampler):
        self.fields = sampler[1:]
        self.key = _hashable(self.fields)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other) -> bool:
        return isinstance(other, _Choice) and self.key == other.key


def _hashable(x):
    """Nested tuples with what tells their arrays apart."""
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype.str, x.tobytes()
    return tuple(_hashable(y) for y in x) if isinstance(x, tuple) else x


@functools.partial(jax.jit, static_argnames=("choice", "num"))
def _sampled(model: Model, key, choice: _Choice, num: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The leaves sampled once for all environments, {path: (*shape)}, and those of each environment, {path: (num, *shape)}.

    As one program: the operations compiled one by one would take twice the time. The environments are sampled `CHUNK` at a time, so that
    environment i is the result of the same instructions whatever num is."""
    sampler = Sampler(model, *choice.fields)
    shared = sampler.sample_shared(key)
    sampler = sampler._replace(model=model.replace(shared))
    leaves = {path: sampler.model.get(path) for path in sampler.varying}
    own = {path: x for path, x in leaves.items() if x.ndim > len(model.shape(path))}  # those that differ between environments already
    index = jnp.minimum(jnp.arange(-(-num // CHUNK) * CHUNK), num - 1).reshape(-1, CHUNK)

    def sample(i):
        return sampler.sample(jax.random.fold_in(key, i), {**leaves, **{path: x[i] for path, x in own.items()}})

    sampled = jax.lax.map(jax.vmap(sample), index)
    return shared, {path: x.reshape(-1, *x.shape[2:])[:num] for path, x in sampled.items()}


# ---- the sampler -------------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """The rows of one leaf that one entry samples. name_hash, repeat: of each row's name, and how many rows before have that name."""

    entry: Entry
    path: str
    rows: np.ndarray
    name_hash: np.ndarray
    repeat: np.ndarray


class Sampler(NamedTuple):
    """Samples the leaves of a model for one environment. Made by `make_sampler`.

    joints: indices of the bodies whose joint parameters are sampled. positions: of those whose position is. parts: from the ranges.
    """

    model: Model
    joints: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def varying(self) -> tuple[str, ...]:
        """Paths of the leaves that `sample` returns."""
        bodies = self.model.topology.bodies
        paths = [path for b in self.joints for path, _ in _parameter_rows(bodies[b])]
        paths += ["body.pos"] if self.positions else []
        return tuple(dict.fromkeys([*paths, *(p.path for p in self.parts if not p.entry.shared)]))

    def sample(self, key, nominal: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The sampled leaves of one environment, {path: (*shape)}. nominal: the leaves they start from, by default the model's."""
        values = {path: self.model.get(path) for path in self.varying} if nominal is None else dict(nominal)
        for body in self.joints:
            self._sample_joint(key, body, values)
        if self.positions:
            self._sample_positions(key, values)
        return _apply([p for p in self.parts if not p.entry.shared], key, values)

    def sample_shared(self, key) -> dict[str, Any]:
        """The leaves sampled once for all environments, {path: (*shape)}."""
        parts = [p for p in self.parts if p.entry.shared]
        return _apply(parts, name_key(key, "shared"), {p.path: self.model.get(p.path) for p in parts})

    def _sample_joint(self, key, index: int, values: dict[str, Any]) -> None:
        body = self.model.topology.bodies[index]
        parameters = draw_parameters(JOINT_TYPES[body.joint.type], key, body.name, self.model.option.dt.dtype)
        for (path, rows), value in zip(_parameter_rows(body), parameters.values(), strict=True):
            values[path] = values[path].at[rows].set(value)

    def _sample_positions(self, key, values: dict[str, Any]) -> None:
        dtype = self.model.option.dt.dtype
        bodies = [self.model.topology.bodies[b] for b in self.positions]
        keys = _keys(key, [(_hash("position"), _hash(b.name), 0) for b in bodies])
        low, high = (jnp.asarray(np.array([getattr(b, name) for b in bodies]), dtype) for name in ("pos_min", "pos_max"))
        pos = jax.vmap(lambda k, a, b: uniform(k, (3,), dtype, a, b))(keys, low, high)
        values["body.pos"] = values["body.pos"].at[np.array(self.positions)].set(pos)


def make_sampler(model: Model, ranges=None, *, axes: bool | None = None, positions: bool | None = None) -> Sampler:
    """Check ``ranges`` against a model, once and before any sample. Arguments and errors as in `randomize`."""
    entries = dict(read_ranges(ranges))
    axes = _switch("axes", entries, axes)
    positions = _switch("positions", entries, positions)
    bodies = model.topology.bodies
    with_axes = tuple(i for i, b in enumerate(bodies) if axes and _has_random_parameters(b))
    with_box = tuple(i for i, b in enumerate(bodies) if positions and b.pos_min is not None and b.pos_max is not None)
    for path in {path for i in with_axes for path, _ in _parameter_rows(bodies[i])}:
        _check_not_frozen(model, path, ", or pass axes=False")
    if with_box:
        _check_not_frozen(model, "body.pos", ", or pass positions=False")
    return Sampler(model, with_axes, with_box, _parts(model, [read_entry(k, v) for k, v in entries.items()]))


def _switch(name: str, entries: dict, keyword: bool | None) -> bool:
    """A keyword of `randomize` or, where it is None, the entry of this name, which is taken out of the entries."""
    value = entries.pop(name, True)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, found {value!r}")
    return value if keyword is None else keyword


def _check_not_frozen(model: Model, path: str, remedy: str = "") -> None:
    if isinstance(model.get(path), Frozen):
        raise ValueError(f"{path} is frozen and cannot be sampled; load the model again without freezing it{remedy}")


def _parts(model: Model, entries: list[Entry]) -> tuple[Part, ...]:
    """The rows that each entry samples; of entries that cover the same row, the last."""
    last_entry: dict[str, np.ndarray] = {}
    for index, entry in enumerate(entries):
        for path, elements in select(model, entry.selector).items():
            rows = _rows(model, entry, path, elements)
            _check_not_frozen(model, path)
            _check_allowed(model, path, rows, entry)
            last_entry.setdefault(path, np.full(len(row_names(model, path)), -1))[rows] = index
    parts = []
    for path, indices in last_entry.items():
        names = row_names(model, path)
        hashes = np.array([_hash(n) for n in names], np.uint32)
        repeat = np.array([names[:i].count(n) for i, n in enumerate(names)], np.uint32)
        for index in dict.fromkeys(indices[indices >= 0].tolist()):
            rows = np.flatnonzero(indices == index)
            parts.append(Part(entries[index], path, rows, hashes[rows], repeat[rows]))
    return tuple(parts)


def _rows(model: Model, entry: Entry, path: str, elements: np.ndarray) -> np.ndarray:
    """The rows that the elements (n,) fill."""
    width = math.prod(_row_shape(model, path))
    rows = np.unique(elements // width)
    if len(elements) != len(rows) * width:
        raise ValueError(f"{entry.selector}: ranges apply to rows of shape {_row_shape(model, path)}; give low and high as arrays of it")
    return rows


def _row_shape(model: Model, path: str) -> tuple[int, ...]:
    shape = model.shape(path)
    return shape[1:] if has_rows(model, path) else shape


def _has_random_parameters(body) -> bool:
    return any(p.sample is not None for j in body.joints for p in JOINT_TYPES[j.type].parameters.values())


def _parameter_rows(body) -> list[tuple[str, Any]]:
    """Leaf and rows of each random parameter of a body's joint, in the order of `draw_parameters`."""
    joint = body.joint
    names = [name for name, p in JOINT_TYPES[joint.type].parameters.items() if p.sample is not None]
    if joint.general is not None:
        return [(f"joint.params.{joint.type}.{name}", joint.general) for name in names]
    known = {"axes": ("joint.axes", np.array(joint.axes, int))}
    if not set(names) <= set(known):
        raise ValueError(f"body {body.name!r}: of joint {joint.type} only axes can be sampled, not {', '.join(set(names) - set(known))}")
    return [known[name] for name in names]


# ---- what a leaf allows ------------------------------------------------------------------------------------------------------


def _check_allowed(model: Model, path: str, rows: np.ndarray, entry: Entry) -> None:
    """Refuse a distribution that can produce numbers the leaf must not have."""
    label = entry.selector if entry.selector == path else f"{entry.selector} ({path})"
    is_quat = path.rsplit(".", 1)[1].startswith("quat")
    if is_quat != (entry.relative == "rotate"):
        raise ValueError(f"{label}: orientations, and only they, are sampled with relative: rotate")
    row = (3,) if is_quat else _row_shape(model, path)
    for x in entry.all_numbers:
        if not _fits(x.shape, row):
            raise ValueError(f"{label}: numbers of shape {x.shape} do not fit a row of shape {row}")
    if path == "body.inertia" and (entry.relative != "scale" or entry.per == "number" or any(x.ndim for x in entry.numbers)):
        raise ValueError(f"{label}: an inertia stays physical only under relative: scale with one number per row, body or leaf")
    sign = model.declaration(path).sign
    if sign or path == "body.inertia":
        low = _lowest(model, path, rows, entry, label)
        if is_below(low, sign).any():
            kind, lowest = "positive" if sign == "> 0" else "not negative", float(np.min(low))
            raise ValueError(f"{label}: must be {kind}, but {entry.distribution} allows {lowest:g}; use scale, log_uniform or a limit")


def _lowest(model: Model, path: str, rows: np.ndarray, entry: Entry, label: str) -> np.ndarray:
    """The infimum of what the entry gives (of the factor, where it scales)."""
    low = DISTRIBUTIONS[entry.distribution].low(*entry.numbers, entry.limit)
    if entry.relative != "offset" or not (low < 0).any():
        return low
    nominal = model.get(path)
    if isinstance(nominal, jax.core.Tracer):
        raise ValueError(f"{label}: whether a negative offset keeps a traced leaf positive is unknown here; use relative: scale")
    nominal = np.asarray(nominal)
    if has_rows(model, path):
        nominal = nominal[..., rows, *(slice(None),) * len(_row_shape(model, path))]
    return nominal + low


def _fits(shape: tuple[int, ...], row: tuple[int, ...]) -> bool:
    """Whether an array of ``shape`` broadcasts to a row without making it larger."""
    try:
        return np.broadcast_shapes(shape, row) == row
    except ValueError:
        return False


# ---- sampling of one environment ---------------------------------------------------------------------------------------------


def _apply(parts: list[Part], key, values: dict[str, Any]) -> dict[str, Any]:
    """Sample the parts for one environment. All entries of a leaf act on what it was before the first."""
    out, first = dict(values), 0
    if not parts:
        return out
    keys = _keys(key, [numbers for part in parts for numbers in _key_numbers(part)])
    for part in parts:
        nominal, part_keys = values[part.path], keys[first : first + len(part.rows)]
        first += len(part.rows)
        change = RELATIVE[part.entry.relative]
        if part.path.startswith("option."):
            out[part.path] = change(nominal, _samples(part.entry, part_keys, nominal.shape, nominal.dtype)[0])
        else:
            nominal = nominal[part.rows]
            row = (3,) if part.entry.relative == "rotate" else nominal.shape[1:]
            new = change(nominal, _samples(part.entry, part_keys, row, nominal.dtype))
            out[part.path] = out[part.path].at[part.rows].set(new)
    return out


def _keys(key, numbers: list[tuple[int, int, int]]):
    """A key for every tuple of numbers, all at once: folding them one by one would be most of the compile time."""
    fold = jax.vmap(jax.random.fold_in)
    columns = jnp.asarray(np.array(numbers, np.uint32).T)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, columns[0])
    return fold(fold(keys, columns[1]), columns[2])


def _key_numbers(part: Part) -> list[tuple[int, int, int]]:
    """What each row's key is made of: its leaf, its name and its place among the rows of that name, as far as ``per`` tells them apart."""
    by_body, by_row = part.entry.per != "leaf", part.entry.per in ("number", "row")
    return [(_hash(part.path), int(h) * by_body, int(p) * by_row) for h, p in zip(part.name_hash, part.repeat, strict=True)]


def _hash(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF  # as joints.name_key


def _samples(entry: Entry, keys, row: tuple[int, ...], dtype):
    """Numbers for the rows with the given keys, (rows, *row)."""
    one_number = entry.per != "number" and entry.relative != "rotate" and all(x.ndim == 0 for x in entry.all_numbers)
    shape = (1,) * len(row) if one_number else row
    sample = DISTRIBUTIONS[entry.distribution].sample
    x = jax.vmap(lambda k: sample(k, shape, dtype, *entry.numbers, limit=entry.limit))(keys)
    return jnp.broadcast_to(x, (keys.shape[0], *row))
