from pathlib import Path

import jax
import pytest


@pytest.fixture
def x64():
    """Double precision for one test, wherever accuracy is the point."""
    with jax.enable_x64(True):
        yield


MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def _programs():
    """Forget the compiled programs when there are many: each maps a few dozen pieces of memory, and Linux kills a process that holds
    65,530 of them (vm.max_map_count)."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > 15_000:
        jax.clear_caches()
