"""What tests of images need."""

from __future__ import annotations

import pytest

from xsim.viewer.frames import check_opengl


def needs_opengl() -> None:
    """Skip a test where VTK is missing or cannot draw."""
    pytest.importorskip("vtkmodules", reason="VTK is not installed: pip install 'xsim[render]'")
    try:
        check_opengl()
    except RuntimeError as error:
        pytest.skip(str(error))
