"""The numbers of MuJoCo in ``tests/reference`` are those that its releases compute today.

The daily tests compare xsim with the recorded numbers. Here each script that wrote them runs again, with its release of MuJoCo in an
environment of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import packages
import pytest
from corpus import MUJOCO_VERSIONS
from test_mjcf_writer import differences

pytestmark = pytest.mark.nightly

REFERENCE = Path(__file__).parent / "reference"
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
BOTH = tuple(MUJOCO_VERSIONS)
SCRIPTS = {  # the releases that a script runs with, and the file that it writes
    "make_collide.py": (BOTH, "collide.npz"),
    "make_contact_sensors.py": (("4.0",), "contact_sensors.json"),
    "make_discrete.py": (("4.0",), "discrete.json"),
    "make_flex_contacts.py": (BOTH, "flex_contacts.json"),
    "make_flexes.py": (BOTH, "flexes.json"),
    "make_flexes_4_0.py": (("4.0",), "flexes_4_0.json"),
    "make_mjcf_4_0.py": (("4.0",), "mjcf_4_0.json"),
    "make_mjcf_4_0_trajectories.py": (("4.0",), "mjcf_4_0_trajectories.json"),
    "make_noslip.py": (("3.2",), "noslip.json"),
    "make_patches.py": (("4.0",), "patches.json"),
    "make_plugins.py": (BOTH, "plugins_{}.json"),
    "make_sleep.py": (("4.0",), "sleep.json"),
    "make_sdf.py": (BOTH, "sdf_{}.json"),
    "make_textures.py": (("4.0",), "textures.json"),
    "make_sdf_meshes.py": (BOTH, "sdf_meshes_{}.json"),
    "make_speculative.py": (("4.0",), "speculative.json"),
    "make_tactile.py": (("4.0",), "tactile.json"),
    "make_sdf_rays.py": (BOTH, "sdf_rays_{}.json"),
}
TOLERANCE = 1e-7  # of the largest number of a row: the solver of MuJoCo ends at rounding, which differs between processors


def test_every_script_is_here():
    """Two more write numbers of other packages' environments, see tests/test_locomotion.py and tests/test_suite.py; one is Pinocchio's."""
    others = {"make_gymnasium.py", "make_dm_control.py", "make_panda.py"}
    assert {path.name for path in REFERENCE.glob("make_*.py")} == {*SCRIPTS, *others}


@pytest.mark.parametrize("script, rules", [(script, rules) for script, (releases, _) in SCRIPTS.items() for rules in releases])
def test_recorded(script, rules, tmp_path):
    python = packages.engine("mujoco", MUJOCO_VERSIONS[rules])
    name = SCRIPTS[script][1].format(rules.replace(".", "_"))
    folder = tmp_path / "reference"
    shutil.copytree(REFERENCE, folder, ignore=shutil.ignore_patterns("*.json", "*.npz", "__pycache__"))
    command = [str(python), str(folder / script), str(folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    computed, recorded = _read(folder / name), _read(REFERENCE / name)
    assert computed
    assert not list(differences(computed, {key: recorded[key] for key in computed}, name, TOLERANCE))


def test_recorded_robot_arm(tmp_path):
    """The recording of ``notebooks/identify_robot_arm.ipynb``, to one count of its encoders."""
    for name in ("record_robot_arm.py", "robot_arm.xml"):
        shutil.copy(NOTEBOOKS / name, tmp_path)
    command = [str(packages.engine("mujoco", MUJOCO_VERSIONS["4.0"])), str(tmp_path / "record_robot_arm.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    computed, recorded = _read(tmp_path / "robot_arm.npz"), _read(NOTEBOOKS / "robot_arm.npz")
    np.testing.assert_allclose(computed["ctrls"], recorded["ctrls"], atol=1e-6)
    np.testing.assert_allclose(computed["counts"], recorded["counts"], rtol=0, atol=1)


def test_recorded_panda(tmp_path):
    """The arm of the manipulation tasks, by Pinocchio from its maker's description."""
    (urdf,) = packages.robots("example-robot-data").rglob("panda_description/urdf/panda.urdf")
    command = [str(packages.engine("pin")), str(REFERENCE / "make_panda.py"), str(urdf), str(tmp_path / "panda.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(differences(_read(tmp_path / "panda.json"), _read(REFERENCE / "panda.json"), "panda.json", TOLERANCE))


def _read(path: Path) -> dict:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    with np.load(path) as arrays:
        return {key: arrays[key].tolist() for key in arrays.files}
