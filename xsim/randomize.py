"""Models that differ between environments: joint axes, body positions, and any leaf whose range is given.

An entry of ``ranges`` names leaves and says how their numbers are drawn::

    dof.damping:      {uniform: [0.5, 2.0], relative: scale}
    body.pos[imu*]:   {normal: [0.0, 0.01], relative: offset}
    geom.mass[foot]:  {log_uniform: [0.1, 1.0], per: body}
    body.quat[imu*]:  {normal: [0.0, 0.05], relative: rotate}
    option.gravity:   {uniform: [[0, 0, -9.9], [0, 0, -9.7]], shared: true}

Left: a leaf path or a pattern of paths, then optionally a pattern of names in brackets: of bodies (``world`` for scenery), or of the
constraints, forces and functions that the leaf belongs to.
Right: one distribution and how it is used.

========================  =========================================================================================================
``uniform: [low, high]``  in [low, high); the numbers are scalars or arrays that fit one row of the leaf
``log_uniform: [l, h]``   the logarithm is uniform
``normal: [mean, std]``   ``limit: [low, high]`` truncates it
``relative``              ``value`` (default): the draw itself; ``scale``, ``offset``: times or plus what the model has;
                          ``rotate`` (orientations only): turned by the drawn rotation vector (rad, body axes)
``per``                   ``number`` (default), ``row``, ``body`` or ``leaf``: how much gets one common draw
``shared``                true: one draw for all environments; the leaf then takes no memory per environment
========================  =========================================================================================================

Where two entries cover the same rows, the later one counts. ``axes`` and ``positions`` (true or false) may stand beside them.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import zlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.joints.elementary import draw_parameters, name_key
from xsim.joints.types import JOINT_TYPES
from xsim.model.model import ROW_LEAVES, Frozen, Model
from xsim.model.topology import ForceInfo
from xsim.spatial import quat_exp, quat_mul

__all__ = ["Draws", "plan", "randomize", "read_ranges"]

SIMD = 16


def randomize(model: Model, key, num: int, ranges=None, *, axes: bool | None = None, positions: bool | None = None) -> Model:
    """A model whose drawn leaves differ between ``num`` environments: shape (num, *shape); the other leaves stay shared.

    ranges: None, a dict of entries (module docstring), a YAML file, or the name of one in ``configs/randomize``.
    axes: draw the parameters of joint types that declare how (rr, rr_imp, rsaddle, types of users). positions: draw ``body.pos``
    in the box of bodies that have one. Both default to what ``ranges`` says, else True.

    Environment i depends on ``key``, i and names alone: not on ``num``, nor on other bodies or entries. Works under jit (num static).
    Raises KeyError for an unknown leaf or body, ValueError for a frozen leaf or a range that allows impossible numbers (a negative
    mass), FileNotFoundError for an unknown name.
    """
    draws = plan(model, ranges, axes=axes, positions=positions)
    # Padded so that environment i runs through the same vector instructions whatever num is.
    padded = -(-num // SIMD) * SIMD
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(padded))
    model = model.replace(draws.shared(key))
    base, lanes = {}, {}
    for path in draws.varying:
        leaf = model.get(path)
        batched = leaf.ndim > len(model.shape(path))
        if batched and leaf.shape != (num, *model.shape(path)):
            raise ValueError(f"{path} has shape {leaf.shape}: it differs between environments already, and not between {num}")
        base[path] = jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (padded - num, *leaf.shape[1:]))]) if batched else leaf
        lanes[path] = 0 if batched else None
    if not base:
        return model
    drawn = jax.vmap(draws.one, in_axes=(0, lanes))(keys, base)
    return model.replace({path: x[:num] for path, x in drawn.items()})


# ---- the plan ----------------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One checked entry of the ranges."""

    selector: str
    distribution: str
    numbers: tuple
    limit: tuple | None
    relative: str
    per: str
    shared: bool


class Part(NamedTuple):
    """The rows of one leaf that one entry draws. body_hash, place: what each row's key is made of."""

    entry: Entry
    path: str
    rows: np.ndarray
    body_hash: np.ndarray
    place: np.ndarray


class Draws(NamedTuple):
    """What is drawn for a model: made by `plan`, run once per environment."""

    model: Model
    joints: tuple[int, ...]  # bodies whose joint parameters are drawn
    boxes: tuple[int, ...]  # bodies whose position is drawn
    parts: tuple[Part, ...]

    @property
    def varying(self) -> tuple[str, ...]:
        """Paths of the leaves that `one` returns."""
        bodies = self.model.topology.bodies
        paths = [path for b in self.joints for path, _ in _parameter_rows(bodies[b])]
        paths += ["body.pos"] if self.boxes else []
        return tuple(dict.fromkeys([*paths, *(p.path for p in self.parts if not p.entry.shared)]))

    def one(self, key, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The drawn leaves of one environment, {path: (*shape)}. base: the leaves they start from, by default the model's."""
        values = {p: self.model.get(p) for p in self.varying} if base is None else dict(base)
        dtype = self.model.option.dt.dtype
        for b in self.joints:
            body = self.model.topology.bodies[b]
            drawn = draw_parameters(JOINT_TYPES[body.joint.type], key, body.name, dtype)
            for (path, rows), value in zip(_parameter_rows(body), drawn.values(), strict=True):
                values[path] = values[path].at[rows].set(value)
        if self.boxes:
            boxes = [self.model.topology.bodies[b] for b in self.boxes]
            keys = _keys(key, [(_hash("position"), _hash(b.name), 0) for b in boxes])
            low, high = (np.array([getattr(b, name) for b in boxes]) for name in ("pos_min", "pos_max"))
            drawn = jax.vmap(lambda k, a, b: _uniform(k, (3,), dtype, a, b))(keys, jnp.asarray(low, dtype), jnp.asarray(high, dtype))
            values["body.pos"] = values["body.pos"].at[np.array(self.boxes)].set(drawn)
        return _apply([p for p in self.parts if not p.entry.shared], key, values)

    def shared(self, key) -> dict[str, Any]:
        """The leaves drawn once for all environments, {path: (*shape)}."""
        parts = [p for p in self.parts if p.entry.shared]
        return _apply(parts, name_key(key, "shared"), {p.path: self.model.get(p.path) for p in parts})


def plan(model: Model, ranges=None, *, axes: bool | None = None, positions: bool | None = None) -> Draws:
    """Check ``ranges`` against a model, once and before any draw. Arguments and errors as in `randomize`."""
    entries = dict(read_ranges(ranges))
    axes = _switch("axes", entries, axes)
    positions = _switch("positions", entries, positions)
    bodies = model.topology.bodies
    joints = tuple(i for i, b in enumerate(bodies) if axes and _drawn(b))
    boxes = tuple(i for i, b in enumerate(bodies) if positions and b.pos_min is not None and b.pos_max is not None)
    for path in {path for i in joints for path, _ in _parameter_rows(bodies[i])}:
        _thawed(model, path, "or pass axes=False")
    if boxes:
        _thawed(model, "body.pos", "or pass positions=False")
    return Draws(model, joints, boxes, _parts(model, [_entry(k, v) for k, v in entries.items()]))


def read_ranges(ranges) -> Mapping[str, Any]:
    """Entries of a dict, of a YAML file, or of the YAML file of that name in ``configs/randomize``. None: no entry."""
    if ranges is None:
        return {}
    if isinstance(ranges, Mapping):
        return ranges
    if not isinstance(ranges, (str, Path)):
        raise TypeError(f"ranges must be a dict, a file or a name, found {type(ranges).__name__}")
    path = Path(ranges)
    if not path.is_file():
        bundled = {p.stem: p for p in sorted(Path(str(files("xsim"))).glob("configs/randomize/*.yaml"))}
        if str(ranges) not in bundled:
            close = _nearest(str(ranges), bundled)
            raise FileNotFoundError(f"no file and no bundled ranges {str(ranges)!r}{close}; bundled: {', '.join(bundled)}")
        path = bundled[str(ranges)]
    import yaml

    content = yaml.safe_load(path.read_text()) or {}
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected a mapping of leaves to distributions")
    return content


def _switch(name: str, entries: dict, given: bool | None) -> bool:
    value = entries.pop(name, True)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, found {value!r}")
    return value if given is None else given


def _thawed(model: Model, path: str, remedy: str) -> None:
    if isinstance(model.get(path), Frozen):
        raise ValueError(f"{path} is frozen and cannot be drawn; load the model again without freezing it{', ' + remedy if remedy else ''}")


def _nearest(name: str, known) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


# ---- entries -----------------------------------------------------------------------------------------------------------------

_PER = ("number", "row", "body", "leaf")
_OPTIONS = ("limit", "relative", "per", "shared")


def _entry(selector: str, value: Any) -> Entry:
    """Check one entry. Raises ValueError or KeyError that names it."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{selector}: expected a mapping such as {{uniform: [0.5, 2.0], relative: scale}}, found {value!r}")
    known = (*DISTRIBUTIONS, *_OPTIONS)
    for name in value:
        if name not in known:
            raise KeyError(f"{selector}: unknown key {name!r}{_nearest(str(name), known)}; known: {', '.join(known)}")
    given = [name for name in DISTRIBUTIONS if name in value]
    if len(given) != 1:
        raise ValueError(f"{selector}: give exactly one of {', '.join(DISTRIBUTIONS)}, found {', '.join(given) or 'none'}")
    numbers, limit = _pair(selector, given[0], value[given[0]]), value.get("limit")
    if limit is not None and given[0] != "normal":
        raise ValueError(f"{selector}: limit belongs to normal")
    limit = None if limit is None else _pair(selector, "limit", limit)
    relative = _one_of(selector, "relative", value.get("relative", "value"), tuple(RELATIVE))
    per = _one_of(selector, "per", value.get("per", "number"), _PER)
    shared = value.get("shared", False)
    if not isinstance(shared, bool):
        raise ValueError(f"{selector}: shared must be true or false, found {shared!r}")
    DISTRIBUTIONS[given[0]].check(selector, *numbers, limit)
    return Entry(selector, given[0], numbers, limit, relative, per, shared)


def _pair(selector: str, name: str, value) -> tuple[np.ndarray, np.ndarray]:
    try:
        first, second = (np.asarray(x, np.float64) for x in value)
    except (TypeError, ValueError) as e:
        raise ValueError(f"{selector}: {name} must be two numbers or two lists of numbers, found {value!r}") from e
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError(f"{selector}: {name} must be finite, found {value!r}")
    return first, second


def _one_of(selector: str, name: str, value, known) -> str:
    if value not in known:
        raise ValueError(f"{selector}: {name} must be one of {', '.join(known)}, found {value!r}{_nearest(str(value), known)}")
    return value


def _parts(model: Model, entries: list[Entry]) -> tuple[Part, ...]:
    owner: dict[str, np.ndarray] = {}
    for index, entry in enumerate(entries):
        for path, rows in _select(model, entry.selector).items():
            if not len(rows):
                continue
            _thawed(model, path, "")
            _physical(model, path, rows, entry)
            owner.setdefault(path, np.full(len(owners(model, path)), -1))[rows] = index
    parts = []
    for path, indices in owner.items():
        names = owners(model, path)
        hashes = np.array([_hash(n) for n in names], np.uint32)
        place = np.array([names[:i].count(n) for i, n in enumerate(names)], np.uint32)
        for index in dict.fromkeys(indices[indices >= 0].tolist()):
            rows = np.flatnonzero(indices == index)
            parts.append(Part(entries[index], path, rows, hashes[rows], place[rows]))
    return tuple(parts)


def _hash(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF  # as joints.name_key


def _select(model: Model, selector: str) -> dict[str, np.ndarray]:
    """Rows of every leaf that ``path[body]`` names."""
    pattern, bracket, rest = selector.partition("[")
    if bracket and not rest.endswith("]"):
        raise ValueError(f"{selector}: expected path[body]")
    paths = fnmatch.filter(model.paths(), pattern)
    if not paths:
        raise KeyError(f"{selector}: no leaf {pattern!r}{_nearest(pattern, model.paths())}; leaves: {', '.join(model.paths())}")
    out = {}
    for path in paths:
        names = owners(model, path)
        if bracket and has_rows(model, path):
            out[path] = np.array([i for i, n in enumerate(names) if fnmatch.fnmatchcase(n, rest[:-1])], int)
        elif not bracket:
            out[path] = np.arange(len(names))
    if not any(len(rows) for rows in out.values()):
        if not bracket:
            hint = "geom.mass where bodies have geoms, body.mass where they have an inertial"
            raise ValueError(f"{selector}: this model has no such numbers ({hint})")
        known = sorted({n for path in paths for n in owners(model, path) if n})
        raise KeyError(f"{selector}: no body {rest[:-1]!r} there{_nearest(rest[:-1], known)}; bodies: {', '.join(known) or 'none'}")
    return out


# ---- rows of leaves and the bodies they belong to ------------------------------------------------------------------------------


def has_rows(model: Model, path: str) -> bool:
    return not path.startswith("option.")


def _row_shape(model: Model, path: str) -> tuple[int, ...]:
    shape = model.shape(path)
    return shape[1:] if has_rows(model, path) else shape


def owners(model: Model, path: str) -> list[str]:
    """Name of the body, constraint, force or function of every row of a leaf; a leaf of the whole model is one row of nobody."""
    bodies = model.topology.bodies
    if not has_rows(model, path):
        return [""]
    dimension = model.declaration(path).shape[0]
    if path.startswith("joint.params."):
        joint_type = path[len("joint.params.") :].rsplit(".", 1)[0]
        return [b.name for b in bodies for j in b.joints if j.type == joint_type]
    if path in ROW_LEAVES:
        return _of_dofs(model, model.topology.dofs(path))
    return _OWNERS[dimension](model)


def _of_dofs(model: Model, dofs) -> list[str]:
    names = [b.name for b in model.topology.bodies for _ in range(b.v[1])]
    return [names[d] for d in dofs]


def _of_forces(count: Callable[[ForceInfo], int]) -> Callable[[Model], list[str]]:
    """The names of the elements, each as often as count says."""
    return lambda m: [f.name for f in m.topology.forces for _ in range(count(f))]


def _coefficients(name: str) -> Callable[[ForceInfo], int]:
    return lambda f: 0 if getattr(f, name) is None else 6 if f.kind == "bushing" else 1


def _map_numbers(f: ForceInfo) -> int:
    if f.map is None:
        return 0
    _, rates, lengths = f.map
    return rates + lengths + rates * lengths


def _of_geoms(model: Model, row: str) -> list[str]:
    """The bodies of the geoms that have such a row."""
    bodies = model.topology.bodies
    return [bodies[g.body].name if g.body >= 0 else "world" for g in model.topology.geoms if getattr(g, row) is not None]


def _of_rows(model: Model, mixed: bool) -> list[str]:
    """By row of the surfaces (mixed) or of the pairs, the body of its geom (or its flex), or of the pair's first geom that moves."""
    names: dict[int, str] = {}
    for info in model.topology.pairs:
        if info.mixed != mixed:
            continue
        for geoms, rows in zip(info.geoms.value.tolist(), info.leaf_rows.value.tolist(), strict=True):
            owners = [_owner(model, g) for g in geoms]
            for row, owner in zip(rows, owners, strict=True) if mixed else [(rows, next((x for x in owners if x != "world"), "world"))]:
                names[row] = owner
    return [names[i] for i in range(len(names))]


def _owner(model: Model, geom: int) -> str:
    """The body of a geom, the flex of a part."""
    top = model.topology
    if geom >= len(top.geoms):
        return top.flexes[top.parts[geom - len(top.geoms)].flex].name
    body = top.geoms[geom].body
    return model.body_names[body] if body >= 0 else "world"


def _of_infos(group: str, row: str | None = None) -> Callable[[Model], list[str]]:
    """The names of the elements of a group; row: of those that have it."""
    return lambda m: [x.name for x in getattr(m.topology, group) if row is None or getattr(x, row) is not None]


def _of_soft(leaf: str, *kinds: str) -> Callable[[Model], list[str]]:
    """The names of the soft constraints of these kinds (none: of all) that have a row of a leaf, by row."""

    def names(model: Model) -> list[str]:
        own = [x for x in model.topology.soft if not kinds or x.kind in kinds]
        rows = {getattr(x, leaf): x.name for x in own if getattr(x, leaf) is not None}
        return [rows[i] for i in range(len(rows))]

    return names


_OWNERS: dict[str, Callable[[Model], list[str]]] = {
    "nbody": lambda m: [b.name for b in m.topology.bodies],
    "nexplicit": lambda m: [b.name for b in m.topology.bodies if b.explicit is not None],
    "nframe": lambda m: [b.name for b in m.topology.bodies for j in b.joints if j.frame is not None],
    "nref": lambda m: [m.topology.bodies[link.body].name for link in m.topology.links if link.ref is not None],
    "ngravity": lambda m: [b.name for b in m.topology.bodies if b.gravity is not None],
    "ncoupling": lambda m: _of_dofs(m, [follower for follower, _ in m.topology.couplings]),
    "nconstraint": lambda m: [c.name for c in m.topology.constraints],
    "nvalue": lambda m: [c.name for c in m.topology.constraints for row in c.rows if row[3] is not None],
    "naxis": lambda m: [b.name for b in m.topology.bodies for j in b.joints for _ in j.axes],
    "nfunction": lambda m: [f.name for f in m.topology.functions for _ in range(f.width)],
    "nforce": _of_forces(lambda f: 1),
    "nspring": _of_forces(lambda f: f.kind in ("spring", "torsion")),
    "nstiffness": _of_forces(_coefficients("stiffness")),
    "ndamping": _of_forces(_coefficients("damping")),
    "nstop": _of_forces(lambda f: f.stop is not None),
    "nmap": _of_forces(_map_numbers),
    "nload": _of_forces(lambda f: f.kind == "load"),
    **{
        size: _of_infos(group) for size, group in (
            ("nsite", "sites"), ("ncamera", "cameras"), ("nlight", "lights"), ("ntendon", "tendons"), ("nactuator", "actuators"),
        )
    },
    **{
        size: _of_infos("actuators", row) for size, row in (
            ("ndampratio", "damp_ratio"), ("ncrank", "crank"), ("nctrlrange", "ctrl_range"), ("nforcerange", "force_range"),
            ("nactrange", "act_range"), ("nlengthrange", "length_range"),
        )
    },
    "nspringlength": _of_infos("tendons", "spring"),
    "ntendonrange": _of_infos("tendons", "range"),
    "ntendonfriction": _of_infos("tendons", "friction"),
    "nsoft": _of_soft("soft"),
    "nanchor": _of_soft("row", "connect", "weld"),
    "npolynomial": _of_soft("row", "joint", "tendon"),
    "nrelpose": _of_soft("pose"),
    "ntorquescale": _of_soft("scale"),
    "nsurface": lambda m: _of_rows(m, True),
    "npair": lambda m: _of_rows(m, False),
    "nflexpoint": lambda m: [f.name for f in m.topology.flexes for _ in f.bodies],
    "nflexedge": lambda m: [f.name for f in m.topology.flexes for _ in f.edges.value],
    "nflexspring": _of_infos("flexes", "spring"),
    "nflexelastic": _of_infos("flexes", "elastic"),
    "nflexsheet": _of_infos("flexes", "sheet"),
    "nflexround": _of_infos("flexes", "round"),
    "ncone": lambda m: ["contact"] * m.topology.size("ncone"),
    "ncoefficient": lambda m: [t.name for t in m.topology.tendons for p in t.path if p.kind == "joint"],
    "ndivisor": lambda m: [t.name for t in m.topology.tendons for p in t.path if p.kind == "pulley"],
    "nmass": lambda m: _of_geoms(m, "mass"),
    "ndensity": lambda m: _of_geoms(m, "density"),
    "nfluid": lambda m: _of_geoms(m, "fluid"),
    "ngravcomp": lambda m: [b.name for b in m.topology.bodies if b.gravcomp is not None],
    "nspringdamper": lambda m: [b.name for b in m.topology.bodies for j in b.joints if j.spring_damper is not None],
    "nmedium": lambda m: ["medium"] * m.topology.size("nmedium"),
    "nmagnetic": lambda m: ["medium"] * m.topology.size("nmagnetic"),
    "npitch": lambda m: [m.topology.bodies[link.body].name for link in m.topology.links if link.pitch is not None],
    "nq": lambda m: [b.name for b in m.topology.bodies for _ in range(b.q[1])],
    "nv": lambda m: _of_dofs(m, range(m.nv)),
    "ngeom": lambda m: _of_geoms(m, "row"),
}


def _drawn(body) -> bool:
    return any(p.draw is not None for j in body.joints for p in JOINT_TYPES[j.type].parameters.values())


def _parameter_rows(body) -> list[tuple[str, Any]]:
    """Leaf and rows of each drawn parameter of a body's joint, in the order of `draw_parameters`."""
    joint = body.joint
    names = [name for name, p in JOINT_TYPES[joint.type].parameters.items() if p.draw is not None]
    if joint.general is not None:
        return [(f"joint.params.{joint.type}.{name}", joint.general) for name in names]
    known = {"axes": ("joint.axes", np.array(joint.axes, int))}
    if not set(names) <= set(known):
        raise ValueError(f"body {body.name!r}: of joint {joint.type} only axes can be drawn, not {', '.join(set(names) - set(known))}")
    return [known[name] for name in names]


# ---- what a leaf allows --------------------------------------------------------------------------------------------------------

def _physical(model: Model, path: str, rows: np.ndarray, entry: Entry) -> None:
    """Refuse a distribution that can produce numbers the leaf must not have."""
    who = entry.selector if entry.selector == path else f"{entry.selector} ({path})"
    is_quat = path.rsplit(".", 1)[1].startswith("quat")
    if is_quat != (entry.relative == "rotate"):
        raise ValueError(f"{who}: orientations, and only they, are drawn with relative: rotate")
    row = (3,) if is_quat else _row_shape(model, path)
    for x in (*entry.numbers, *(entry.limit or ())):
        if not _fits(x.shape, row):
            raise ValueError(f"{who}: numbers of shape {x.shape} do not fit a row of shape {row}")
    if path == "body.inertia" and (entry.relative != "scale" or entry.per == "number" or any(x.ndim for x in entry.numbers)):
        raise ValueError(f"{who}: an inertia stays physical only under relative: scale with one number per row, body or leaf")
    sign = model.declaration(path).sign
    if sign or path == "body.inertia":
        low = DISTRIBUTIONS[entry.distribution].low(*entry.numbers, entry.limit)
        if entry.relative == "offset" and (low < 0).any():
            nominal = model.get(path)
            if isinstance(nominal, jax.core.Tracer):
                raise ValueError(f"{who}: whether a negative offset keeps a traced leaf positive is unknown here; use relative: scale")
            nominal = np.asarray(nominal)[..., rows, *(slice(None),) * len(row)] if has_rows(model, path) else np.asarray(nominal)
            low = nominal + low
        if (low < 0).any() or (sign == "> 0" and (low <= 0).any()):
            kind, lowest = "positive" if sign == "> 0" else "not negative", float(np.min(low))
            raise ValueError(f"{who}: must be {kind}, but {entry.distribution} allows {lowest:g}; use scale, log_uniform or a limit")


def _fits(shape: tuple[int, ...], row: tuple[int, ...]) -> bool:
    """Whether an array of ``shape`` broadcasts to a row without making it larger."""
    try:
        return np.broadcast_shapes(shape, row) == row
    except ValueError:
        return False


# ---- drawing -------------------------------------------------------------------------------------------------------------------


class Distribution(NamedTuple):
    """sample(key, shape, dtype, *numbers, limit=None), low(*numbers, limit): infimum, check(selector, *numbers, limit)."""

    sample: Callable
    low: Callable
    check: Callable


def _uniform(key, shape, dtype, low, high, limit=None):
    low, high = jnp.asarray(low, dtype), jnp.asarray(high, dtype)
    x = low + (high - low) * jax.random.uniform(key, shape, dtype)
    return jnp.minimum(x, jnp.where(high > low, jnp.nextafter(high, low), high))


def _log_uniform(key, shape, dtype, low, high, limit=None):
    x = jnp.exp(_uniform(key, shape, dtype, np.log(low), np.log(high)))
    return jnp.clip(x, jnp.asarray(low, dtype), jnp.asarray(high, dtype))


def _normal(key, shape, dtype, mean, std, limit=None):
    mean, std = jnp.asarray(mean, dtype), jnp.asarray(std, dtype)
    if limit is None:
        return mean + std * jax.random.normal(key, shape, dtype)
    low, high = (jnp.asarray(x, dtype) for x in limit)
    x = mean + std * jax.random.truncated_normal(key, (low - mean) / std, (high - mean) / std, shape, dtype)
    return jnp.clip(x, low, high)


def _ordered(selector, low, high, limit=None, what="low, high"):
    if not (low <= high).all():
        raise ValueError(f"{selector}: {what} must be ascending, found {low}, {high}")


def _check_log(selector, low, high, limit):
    _ordered(selector, low, high, limit)
    if not (low > 0).all():
        raise ValueError(f"{selector}: log_uniform needs positive numbers, found {low}")


def _check_normal(selector, mean, std, limit):
    if not (std > 0 if limit is not None else std >= 0).all():
        raise ValueError(f"{selector}: the standard deviation must be positive, found {std}")
    if limit is not None:
        _ordered(selector, *limit, None, "limit")


DISTRIBUTIONS: dict[str, Distribution] = {
    "uniform": Distribution(_uniform, lambda low, high, limit: low, _ordered),
    "log_uniform": Distribution(_log_uniform, lambda low, high, limit: low, _check_log),
    "normal": Distribution(_normal, lambda mean, std, limit: np.asarray(-math.inf) if limit is None else limit[0], _check_normal),
}


def _rotate(old, x):
    turn = quat_exp(tuple(x[..., k] for k in range(3)))
    return jnp.stack(jnp.broadcast_arrays(*quat_mul(tuple(old[..., k] for k in range(4)), turn)), -1)


RELATIVE: dict[str, Callable] = {
    "value": lambda old, x: jnp.broadcast_to(x, old.shape),
    "scale": lambda old, x: old * x,
    "offset": lambda old, x: old + x,
    "rotate": _rotate,
}


def _apply(parts, key, values: dict[str, Any]) -> dict[str, Any]:
    """Draw the parts for one environment. All entries of a leaf act on what it was before the first."""
    out, offset = dict(values), 0
    if not parts:
        return out
    keys = _keys(key, [row for part in parts for row in _places(part)])
    for part in parts:
        old, own = values[part.path], keys[offset : offset + len(part.rows)]
        offset += len(part.rows)
        if part.path.startswith("option."):
            out[part.path] = RELATIVE[part.entry.relative](old, _draw(part.entry, own, old.shape, old.dtype)[0])
        else:
            old = old[part.rows]
            row = (3,) if part.entry.relative == "rotate" else old.shape[1:]
            new = RELATIVE[part.entry.relative](old, _draw(part.entry, own, row, old.dtype))
            out[part.path] = out[part.path].at[part.rows].set(new)
    return out


def _keys(key, numbers: list[tuple[int, int, int]]):
    """A key for every tuple of numbers, all at once: folding them one by one would be most of the compile time."""
    fold = jax.vmap(jax.random.fold_in)
    columns = jnp.asarray(np.array(numbers, np.uint32).T)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, columns[0])
    return fold(fold(keys, columns[1]), columns[2])


def _places(part: Part) -> list[tuple[int, int, int]]:
    """What the key of each row is made of: its leaf, its body and its place among the body's rows, as far as ``per`` tells them apart."""
    by_body, by_row = part.entry.per != "leaf", part.entry.per in ("number", "row")
    return [(_hash(part.path), int(h) * by_body, int(p) * by_row) for h, p in zip(part.body_hash, part.place, strict=True)]


def _draw(entry: Entry, keys, row: tuple[int, ...], dtype):
    """Numbers for the rows with the given keys, (rows, *row)."""
    single = entry.per != "number" and entry.relative != "rotate" and all(x.ndim == 0 for x in (*entry.numbers, *(entry.limit or ())))
    shape = (1,) * len(row) if single else row
    sample = DISTRIBUTIONS[entry.distribution].sample
    x = jax.vmap(lambda k: sample(k, shape, dtype, *entry.numbers, limit=entry.limit))(keys)
    return jnp.broadcast_to(x, (keys.shape[0], *row))
