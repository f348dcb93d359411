import jax
import pytest


@pytest.fixture
def x64():
    """Double precision for one test, wherever accuracy is the point."""
    with jax.enable_x64(True):
        yield
