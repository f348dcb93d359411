"""Record the motion of the robot arm of `identify_robot_arm.ipynb`: ``python notebooks/record_robot_arm.py`` writes robot_arm.npz.

Needs mujoco 4.0.0: MuJoCo's own C code simulates the arm, with the numbers of TRUTH. The file holds, for two recordings of three seconds
at 250 Hz, ctrls (steps, 2, 3), the currents in A that were commanded at each step, and counts (steps, 2, 3), what the joint encoders read
after it: 16384 counts a turn, of an angle with noise. The states that the recordings start from are not in it.
"""

from pathlib import Path

import mujoco
import numpy as np

HERE = Path(__file__).parent
STEPS, COUNTS, NOISE, SEED = 750, 16384, 3e-4, 0  # NOISE: rad, standard deviation of the angle before it is read
TRUTH = {
    "dof_damping": [0.8, 0.6, 0.22],
    "dof_armature": [0.12, 0.1, 0.03],
    "dof_frictionloss": [0.5, 0.6, 0.2],
    "actuator_gainprm": [4.0, 5.0, 2.0],
    "actuator_delay": [0.0, 0.0, 0.0182],
}
"""As fields of MjModel. Joints and actuators: base, shoulder, elbow."""
AMPLITUDES = np.array([0.6, 0.6, 0.4])  # A
FREQUENCIES = np.array([[0.5, 1.3, 2.9], [0.4, 1.1, 2.3], [0.7, 1.7, 3.1]])  # Hz, of each joint
STARTS = [([0.3, -0.4, 0.5], [0.5, 1.0, -1.0]), ([-0.5, 0.6, -0.9], [-1.0, 0.0, 2.0])]  # (qpos, qvel)


def true_model() -> mujoco.MjModel:
    model = mujoco.MjModel.from_xml_path(str(HERE / "robot_arm.xml"))
    for name, values in TRUTH.items():
        field = getattr(model, name)
        (field[:, 0] if field.ndim == 2 else field)[:] = values
    mujoco.mj_setConst(model, mujoco.MjData(model))  # what follows from them: the softness of dry friction depends on the inertia
    return model


def commands(rng, dt: float) -> np.ndarray:
    """Currents (steps, 3): three sines for each joint, with random phases."""
    phases = rng.uniform(0, 2 * np.pi, FREQUENCIES.shape)
    time = np.arange(STEPS)[:, None, None] * dt
    return (AMPLITUDES * np.sin(2 * np.pi * FREQUENCIES * time + phases).sum(-1)).astype(np.float32)


def motion(model: mujoco.MjModel, ctrls: np.ndarray, qpos, qvel) -> np.ndarray:
    """Joint angles (steps, 3) after each step."""
    data = mujoco.MjData(model)
    data.qpos, data.qvel = qpos, qvel
    angles = []
    for ctrl in ctrls:
        data.ctrl = ctrl
        mujoco.mj_step(model, data)
        angles.append(data.qpos.copy())
    return np.array(angles)


def main() -> None:
    assert mujoco.__version__ == "4.0.0", mujoco.__version__
    model, rng = true_model(), np.random.default_rng(SEED)
    ctrls = [commands(rng, model.opt.timestep) for _ in STARTS]
    angles = np.stack([motion(model, c, *start) for c, start in zip(ctrls, STARTS, strict=True)], 1)
    counts = np.rint((angles + NOISE * rng.normal(size=angles.shape)) * COUNTS / (2 * np.pi)).astype(np.int16)
    np.savez_compressed(HERE / "robot_arm.npz", ctrls=np.stack(ctrls, 1), counts=counts)


if __name__ == "__main__":
    main()
