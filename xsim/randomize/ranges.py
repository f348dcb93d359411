"""Reading of ``ranges``: a dict, a YAML file or a bundled name to checked entries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xsim.randomize.distributions import DISTRIBUTIONS, RELATIVE
from xsim.suggestions import did_you_mean

__all__ = ["Entry", "read_entry", "read_ranges"]

PER = ("number", "row", "body", "leaf")
OPTIONS = ("limit", "relative", "per", "shared")


class Entry(NamedTuple):
    """One checked entry of the ranges. numbers: the two of the distribution; limit: (low, high) of a truncated normal."""

    selector: str
    distribution: str
    numbers: tuple[np.ndarray, np.ndarray]
    limit: tuple[np.ndarray, np.ndarray] | None
    relative: str
    per: str
    shared: bool

    @property
    def all_numbers(self) -> tuple[np.ndarray, ...]:
        return (*self.numbers, *(self.limit or ()))


def read_ranges(ranges) -> Mapping[str, Any]:
    """Entries of a dict, of a YAML file, or of the YAML file of that name in ``configs/randomize``. None: no entry."""
    if ranges is None:
        return {}
    if isinstance(ranges, Mapping):
        return ranges
    if not isinstance(ranges, (str, Path)):
        raise TypeError(f"ranges must be a dict, a file or a name, found {type(ranges).__name__}")
    return _read_yaml(Path(ranges) if Path(ranges).is_file() else _bundled(str(ranges)))


def _bundled(name: str) -> Path:
    bundled = {p.stem: p for p in sorted(Path(str(files("xsim"))).glob("configs/randomize/*.yaml"))}
    if name not in bundled:
        hint = did_you_mean(name, bundled)
        raise FileNotFoundError(f"no file and no bundled ranges {name!r}{hint}; bundled: {', '.join(bundled)}")
    return bundled[name]


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    content = yaml.safe_load(path.read_text()) or {}
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected a mapping of leaves to distributions")
    return content


def read_entry(selector: str, value: Any) -> Entry:
    """Check one entry. Raises ValueError or KeyError that names it."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{selector}: expected a mapping such as {{uniform: [0.5, 2.0], relative: scale}}, found {value!r}")
    known = (*DISTRIBUTIONS, *OPTIONS)
    for name in value:
        if name not in known:
            raise KeyError(f"{selector}: unknown key {name!r}{did_you_mean(str(name), known)}; known: {', '.join(known)}")
    named = [name for name in DISTRIBUTIONS if name in value]
    if len(named) != 1:
        raise ValueError(f"{selector}: give exactly one of {', '.join(DISTRIBUTIONS)}, found {', '.join(named) or 'none'}")
    distribution = named[0]
    numbers, limit = _pair(selector, distribution, value[distribution]), value.get("limit")
    if limit is not None and distribution != "normal":
        raise ValueError(f"{selector}: limit belongs to normal")
    limit = None if limit is None else _pair(selector, "limit", limit)
    relative = _one_of(selector, "relative", value.get("relative", "value"), tuple(RELATIVE))
    per = _one_of(selector, "per", value.get("per", "number"), PER)
    shared = value.get("shared", False)
    if not isinstance(shared, bool):
        raise ValueError(f"{selector}: shared must be true or false, found {shared!r}")
    DISTRIBUTIONS[distribution].check(selector, *numbers, limit)
    return Entry(selector, distribution, numbers, limit, relative, per, shared)


def _pair(selector: str, name: str, value) -> tuple[np.ndarray, np.ndarray]:
    try:
        first, second = (np.asarray(x, np.float64) for x in value)
    except (TypeError, ValueError) as e:
        raise ValueError(f"{selector}: {name} must be two numbers or two lists of numbers, found {value!r}") from e
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError(f"{selector}: {name} must be finite, found {value!r}")
    return first, second


def _one_of(selector: str, name: str, value, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{selector}: {name} must be one of {', '.join(known)}, found {value!r}{did_you_mean(str(value), known)}")
    return value
