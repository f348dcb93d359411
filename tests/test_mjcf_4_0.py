"""The language of MuJoCo 4.0: small models of what it has and 3.2 has not, against the numbers of MuJoCo 4.0.0, in float64.

`reference/make_mjcf_4_0.py` records the numbers: forces, accelerations and sensors at random states, and where 20 steps lead from there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close

import xsim
from xsim.poses import Pose, rotate

FOLDER = Path(__file__).parent / "reference"
RECORDED = json.loads((FOLDER / "mjcf_4_0.json").read_text())
INTEGRATORS = {"Euler": "implicit_damping", "implicitfast": "implicitfast"}
FORCES, ACCELERATIONS, STATES = 1e-8, 1e-7, 1e-6  # relative to the largest entry
STEPS = 20


@pytest.fixture(scope="module", params=RECORDED)
def case(request):
    """(model, state, recorded numbers), a batch of states."""
    with jax.enable_x64(True):
        model = xsim.load(FOLDER / "mjcf_4_0" / f"{request.param}.xml", rules="4.0")
        recorded = {key: np.array([state[key] for state in RECORDED[request.param]]) for key in RECORDED[request.param][0]}
        start = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(recorded["q"]), *x.shape)), xsim.init(model))
        yield model, dataclasses.replace(start, **{name: jnp.asarray(recorded[name]) for name in ("q", "v", "act")}), recorded


def test_forces_accelerations_and_sensors(case, x64):
    model, state, recorded = case
    data = xsim.forward(model, state, recorded["ctrl"] if model.nu else None)
    close("mass", xsim.mass_matrix(model, state.q), recorded["mass"], FORCES)
    for name in ("bias", "passive", "actuator", "actuator_force", "act_rate"):
        close(name, getattr(data, name), recorded[name], FORCES)
    close("acceleration", data.a, recorded["a"], ACCELERATIONS)
    close("sensors", data.sensor, recorded["sensor"], ACCELERATIONS)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_steps(case, x64, integrator):
    model, state, recorded = case
    model = xsim.with_integrator(model, INTEGRATORS[integrator])
    for step in range(1, STEPS + 1):
        state = xsim.step(model, state, recorded["ctrl"] if model.nu else None)
        if step in (1, STEPS):
            found = np.concatenate([state.q, state.v, state.act], -1)
            close(f"step {step}", found, recorded[f"{integrator} {step}"], STATES)


def test_the_surface_of_a_mesh_moves_as_its_file_says():
    """The velocity is given in the frame of the file, and kept in that of the mesh's principal axes."""
    linear, angular = np.array([0.3, 0.4, 0.1]), np.array([0.2, -0.1, 0.5])
    text = """<mujoco><asset><mesh name="wedge" vertex="0 0 0 0.5 0 0 0 0.3 0 0 0 0.2 0.5 0.3 0.01"/></asset><worldbody>
      <geom type="mesh" mesh="wedge" pos="1 2 3" euler="20 -40 60" surfacevel="0.3 0.4 0.1 0.2 -0.1 0.5"/></worldbody></mujoco>"""
    spec = xsim.parse_text(text, "mjcf", rules="4.0")
    (geom,), (mesh,) = spec.world_geoms, spec.meshes
    in_world = Pose(geom.quat, geom.pos)
    file = in_world @ Pose(mesh.quat, mesh.pos).inverse()
    point = np.array([1.2, 2.1, 2.7])
    by_file = rotate(file.quat, linear) + np.cross(rotate(file.quat, angular), point - file.pos)
    found = np.array(geom.surface_velocity)
    by_principal = rotate(geom.quat, found[:3]) + np.cross(rotate(geom.quat, found[3:]), point - geom.pos)
    np.testing.assert_allclose(by_principal, by_file, atol=1e-12)
    np.testing.assert_allclose(file.pos, [1, 2, 3], atol=1e-12)
