"""MJCF models of Python packages: how long they take to load, and what says why a file is no model.

tests/test_robots.py installs the packages and compares numbers; before its first run these tests are skipped.
"""

from __future__ import annotations

import time
import warnings
from functools import cache
from pathlib import Path

import packages
import pytest
from corpus import corpus, needs_corpus
from lxml import etree

import xsim
from xsim.io import ParseError

PACKAGES = ("gymnasium-robotics", "dm_control")

# Files that are no models by themselves, with words of the error. MuJoCo refuses them too, but for the three whose bodies stand outside
# <worldbody>, which it takes for a model without any.
NO_MODELS = {
    "gymnasium_robotics/envs/assets/fetch/robot.xml": "<body name=.*unknown element in <mujoco>",
    "gymnasium_robotics/envs/assets/fetch/shared.xml": "base_link_collision.stl",
    "gymnasium_robotics/envs/assets/hand/robot.xml": "<body name=.*unknown element in <mujoco>",
    "gymnasium_robotics/envs/assets/hand/robot_touch_sensors_92.xml": "<body name=.*unknown element in <mujoco>",
    "gymnasium_robotics/envs/assets/hand/shared.xml": "unknown joint 'robot0:WRJ1'",
    "gymnasium_robotics/envs/assets/hand/shared_asset.xml": "<texture type=.*unknown element in <mujoco>",
    "gymnasium_robotics/envs/assets/hand/shared_touch_sensors_92.xml": "unknown site 'robot0:T_palm_b0'",
    "dm_control/locomotion/walkers/assets/build_fruitfly/assets/drosophila.xml": "head_body.msh",
    "dm_control/locomotion/walkers/assets/build_fruitfly/floor.xml": "head_body.msh",
    "dm_control/locomotion/walkers/assets/build_fruitfly/fruitfly.xml": "head_body.msh",
    "dm_control/locomotion/walkers/assets/dog_v2/scene.xml": "second texture of this name",
    "dm_control/mjcf/test_assets/included_with_invalid_filenames.xml": "invalid_mesh_name.stl",
    "dm_control/mjcf/test_assets/model_with_invalid_filenames.xml": "invalid_included_name.xml",
    "dm_control/mjcf/test_assets/test_model.xml": "a body with a joint has no mass",
    "dm_control/mujoco/testing/assets/model_with_assets.xml": "included.xml",
}


def _is_mjcf(path: Path) -> bool:
    return etree.fromstring(path.read_bytes(), etree.XMLParser(recover=True)).tag == "mujoco"


FOLDERS = [path for package in PACKAGES if (path := packages.already(package)) is not None]
FILES = {str(p.relative_to(folder)): p for folder in FOLDERS for p in sorted(folder.rglob("*.xml")) if _is_mjcf(p)}
MODELS = [name for name in FILES if name not in NO_MODELS]
NONE = [pytest.param("", marks=pytest.mark.skip(reason=f"no {' or '.join(PACKAGES)}: tests/test_robots.py (nightly) installs them"))]


@cache
def spec(name: str) -> xsim.ModelSpec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xsim.parse(FILES[name], format="mjcf")


@pytest.mark.parametrize("name", list(FILES) or NONE)
def test_robots_are_read(name):
    if name in MODELS:
        assert xsim.build(spec(name)).nv >= 0
    else:
        with pytest.raises(ParseError, match=NO_MODELS[name]):
            spec(name)


# ---- how long ------------------------------------------------------------------------------------------------------------------

SECONDS = {
    "gymnasium_robotics/envs/mujoco/assets/humanoid.xml": 1.0,
    "dm_control/suite/humanoid_CMU.xml": 1.0,
    "dm_control/suite/dog.xml": 5.0,
    "dm_control/locomotion/walkers/assets/fruitfly_v2/fruitfly.xml": 5.0,
    "gymnasium_robotics/envs/assets/hand/manipulate_block_touch_sensors.xml": 5.0,
    "gymnasium_robotics/envs/assets/kitchen_franka/kitchen_assets/kitchen_env_model.xml": 5.0,
}
"""Of the processor, to read a file and its meshes and build the model: three times and more what it takes."""


def seconds(path: Path) -> float:
    """The better of two times: the first one may import and compile."""
    times = []
    for _ in range(2):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            xsim.build(xsim.parse(path))
        times.append(time.process_time() - start)
    return min(times)


@needs_corpus
def test_a_humanoid_loads_quickly():
    root = corpus()
    assert root is not None
    assert seconds(root / "models" / "mjcf" / "rl" / "humanoid.xml") < 1


@pytest.mark.parametrize("name", [name for name in FILES if name in SECONDS] or NONE)
def test_robots_load_quickly(name):
    assert seconds(FILES[name]) < SECONDS[name]
