"""Files with random faults: what a reader makes of each of many, from the seed of a generator of random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

FEW, MANY = 700, 10_000
SEEDS = [range(FEW), pytest.param(range(FEW, MANY), marks=pytest.mark.nightly)]
IDS = ["few", "many"]


def check_each(seeds: Iterable[int], check: Callable[[random.Random], None]) -> None:
    """Call check with a generator of each seed. Raises AssertionError that names the seeds for which check raises."""
    wrong = []
    for seed in seeds:
        try:
            check(random.Random(seed))
        except Exception as error:
            wrong.append(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)
