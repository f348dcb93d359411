"""The MJCF models of Python packages, which were written for MuJoCo by many hands: all are read, and give MuJoCo's numbers.

    pip install --no-deps --target DIR gymnasium-robotics==1.4.2 dm_control==1.0.50
    XSIM_ROBOTS=DIR python -m pytest tests/test_mjcf_robots.py

Without XSIM_ROBOTS, packages that are installed are looked through (none is imported). Numbers are compared where mujoco 3.2.7 is
installed.
"""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close
from corpus import corpus, needs_corpus
from lxml import etree

import xsim
from xsim.io import ParseError
from xsim.io.mjcf.inertia import body_inertial
from xsim.io.solids import tensor

pytestmark = pytest.mark.slow

PACKAGES = ("gymnasium_robotics", "dm_control")
RELEASE = "3.2.7"
# Without meshes the numbers are those of the same formulas in double precision. 3.2.7 adds up the integrals of meshes in single precision.
CLOSE, CLOSE_MESHES = 2e-8, 3e-6
# 3.2.7 ends its search for a body's principal axes where a turn by this angle is left, or moments of this size, kg m^2 (4.0.0 goes on, to
# xsim's numbers).
ANGLE, MOMENT = 2e-6, 1.5e-12
LARGE = 40  # velocities: putting the n^2 numbers of a larger mass matrix together takes minutes without compiling

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


def folder(package: str) -> Path | None:
    """Where a package is, without importing it."""
    if "XSIM_ROBOTS" in os.environ:
        path = Path(os.environ["XSIM_ROBOTS"]) / package
        return path if path.is_dir() else None
    found = importlib.util.find_spec(package)
    return Path(found.submodule_search_locations[0]) if found is not None and found.submodule_search_locations else None


def _is_mjcf(path: Path) -> bool:
    return etree.fromstring(path.read_bytes(), etree.XMLParser(recover=True)).tag == "mujoco"


FOLDERS = {package: path for package in PACKAGES if (path := folder(package)) is not None}
FILES = {f"{package}/{p.relative_to(path)}": p for package, path in FOLDERS.items() for p in sorted(path.rglob("*.xml")) if _is_mjcf(p)}
MODELS = [name for name in FILES if name not in NO_MODELS]
NONE = [pytest.param("", marks=pytest.mark.skip(reason=f"no {' or '.join(PACKAGES)}: see XSIM_ROBOTS above"))]


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


# ---- against MuJoCo ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mujoco():
    mujoco = pytest.importorskip("mujoco")
    if mujoco.__version__ != RELEASE:
        pytest.skip(f"mujoco is {mujoco.__version__}, the numbers are those of {RELEASE}")
    return mujoco


@pytest.mark.parametrize("name", [name for name in FILES if name in NO_MODELS] or NONE)
def test_what_is_refused_is_no_model_of_mujoco(name, mujoco):
    try:
        model = mujoco.MjModel.from_xml_path(str(FILES[name]))
    except ValueError:
        return
    assert model.nbody == 1 and model.ngeom == 0


def _names(mujoco, model, kind: str, count: int) -> list[str]:
    return [mujoco.mj_id2name(model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i) or "" for i in range(count)]


@pytest.mark.parametrize("name", MODELS or NONE)
def test_robots_have_mujocos_numbers(name, mujoco, x64):
    source, theirs = spec(name), mujoco.MjModel.from_xml_path(str(FILES[name]))
    model = xsim.build(source)
    assert (model.nq, model.nv, model.nu, model.na) == (theirs.nq, theirs.nv, theirs.nu, theirs.na)
    joints = [j for b in source.bodies for j in b.joints]
    geoms = [*source.world_geoms, *(g for b in source.bodies for g in b.geoms)]
    elements = {
        "joint": (joints, theirs.njnt), "geom": (geoms, theirs.ngeom), "site": (source.sites, theirs.nsite),
        "camera": (source.cameras, theirs.ncam), "light": (source.lights, theirs.nlight), "tendon": (source.tendons, theirs.ntendon),
        "actuator": (source.actuators, theirs.nu), "sensor": (source.sensors, theirs.nsensor), "equality": (source.equalities, theirs.neq),
        "mesh": (source.meshes, theirs.nmesh), "key": (source.keys, theirs.nkey),
    }  # fmt: skip
    for kind, (found, count) in elements.items():
        assert [x.name or "" for x in found] == _names(mujoco, theirs, kind, count), kind
    bodies = _names(mujoco, theirs, "body", theirs.nbody)[1:]
    assert [b.name if wanted else "" for b, wanted in zip(source.bodies, bodies, strict=True)] == bodies
    assert (len(source.pairs), len(source.exclude), len(source.hfields)) == (theirs.npair, theirs.nexclude, theirs.nhfield)
    assert sum(s.dim for s in source.sensors) == theirs.nsensordata
    tolerance = CLOSE_MESHES if source.meshes else CLOSE
    if source.bodies:
        _check_masses(mujoco, source, theirs, tolerance)
    if model.nv:
        _check_state(mujoco, model, theirs, tolerance)


def _check_masses(mujoco, source: xsim.ModelSpec, theirs, tolerance: float) -> None:
    found = [body_inertial(body, source.meshes) for body in source.bodies]
    for i, (mine, wanted) in enumerate(zip(found, theirs.body_mass[1:], strict=True), 1):
        close(f"mass of body {i}", mine.mass, wanted, tolerance, scale=wanted or 1.0)
        turn = np.empty(9)
        mujoco.mju_quat2Mat(turn, theirs.body_iquat[i])
        turn = turn.reshape(3, 3)
        inertia = turn @ np.diag(theirs.body_inertia[i]) @ turn.T
        rough = max(tolerance, ANGLE)
        close(f"inertia of body {i}", tensor(mine.inertia), inertia, rough, scale=np.abs(inertia).max() + MOMENT / rough)
        if wanted:  # else it is nowhere
            close(f"centre of mass of body {i}", mine.com, theirs.body_ipos[i], tolerance)


def _check_state(mujoco, model: xsim.Model, theirs, tolerance: float) -> None:
    """Mass matrix (of large models products with it), in units of its diagonal, and bias at a random state."""
    rng, data = np.random.default_rng(0), mujoco.MjData(theirs)
    mujoco.mj_integratePos(theirs, data.qpos, 0.2 * rng.standard_normal(theirs.nv), 1.0)
    data.qvel[:] = 0.5 * rng.standard_normal(theirs.nv)
    mujoco.mj_forward(theirs, data)
    wanted = np.zeros((theirs.nv, theirs.nv))
    mujoco.mj_fullM(theirs, wanted, data.qM)
    unit = np.sqrt(np.diag(wanted))
    tolerance = max(tolerance, MOMENT / unit.min() ** 2)
    q, v = jnp.array(data.qpos), jnp.array(data.qvel)
    model = model.freeze("*")  # a model is evaluated once, operation by operation: with numbers instead of arrays there are far fewer
    with jax.disable_jit():
        bias = np.asarray(xsim.bias(model, q, v))
        if model.nv <= LARGE:
            found = np.asarray(xsim.mass_matrix(model, q)) / np.outer(unit, unit)
            close("mass matrix", found, wanted / np.outer(unit, unit), tolerance)
        else:
            for a in rng.standard_normal((2, model.nv)) / unit:
                product = np.asarray(xsim.inverse_dynamics(model, q, v, jnp.array(a))) - bias
                close("product with the mass matrix", product / unit, wanted @ a / unit, tolerance)
    close("bias", bias / unit, data.qfrc_bias / unit, tolerance)
