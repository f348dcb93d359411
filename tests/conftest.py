import jax
import pytest


@pytest.fixture
def x64():
    """Double precision for one test, wherever accuracy is the point."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module", autouse=True)
def _programs():
    """Forget a module's compiled programs at its end.

    Each maps a few dozen pieces of memory, and Linux kills a process that holds 65,530 of them (vm.max_map_count).
    """
    yield
    jax.clear_caches()
