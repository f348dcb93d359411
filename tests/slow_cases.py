"""Cases of parametrized tests that take more than four seconds (`slow`) or twenty (`nightly`), where other cases of the test take less.

A test that is slow as a whole has the mark itself.
"""

SLOW_CASES: dict[str, tuple[str, ...]] = {
    "test_chrono_meaning.py::test_accelerations_of_the_reference_engine": ("functions", "model_motors"),
    "test_chrono_reader.py::test_no_value_is_dropped": ("model_motors",),
    "test_collide.py::test_recorded": ("box-box-3.2-3.2", "box-box-4.0-4.0", "capsule-box-3.2", "capsule-box-4.0"),
    "test_compiler.py::test_operations": ("long reverse scan", "long scan"),
    "test_compiler.py::test_steps_are_those_of_xla": ("four_bar", "servo_arm"),
    "test_conformance.py::test_x_xy_states": ("x_xy-own_deep_branches", "x_xy-own_geom_inertia", "x_xy-ring_standard_sys"),
    "test_conformance_chrono.py::test_states": ("four_bar", "pointline", "pointplane"),
    "test_conformance_mjcf.py::test_model": (
        "authored/muscles-3.2",
        "authored/muscles-4.0",
        "authored/tendon_all-3.2",
        "feature/collisions-3.2",
        "feature/frame_accumulate-3.2",
        "feature/frame_accumulate-4.0",
        "mujoco/arm26-3.2",
    ),
    "test_conformance_trees.py::test_skel_steps": (
        "skel-force_torque_test",
        "skel-hopper_capsule",
        "skel-joint_dynamics_elements_test",
        "skel-joint_friction_test",
    ),
    "test_discrete.py::test_accelerations_and_forces": ("tendons", "fluid", "other contacts"),
    "test_discrete.py::test_steps": (
        "fluid",
        "free bodies",
        "other contacts",
        "pyramids",
        "pyramids, exact",
        "rows",
        "rows as given",
        "tendons",
    ),
    "test_flexes.py::test_numbers_of_the_engine": (
        "3.2-edges of triangles keep their lengths",
        "4.0-edges of triangles keep their lengths",
        "4.0-rod",
    ),
    "test_hostile.py::test_gmsh_files": ("no points",),
    "test_hostile.py::test_obj_files": ("data0-more than 10000000 corners together",),
    "test_loops.py::test_a_free_body_held_by_a_joint_moves_as_one_on_that_joint": ("fixed", "hinge", "planar", "slide", "slide2"),
    "test_mjcf_4_0.py::test_forces_accelerations_and_sensors": ("adhesion", "surfaces"),
    "test_mjcf_4_0.py::test_steps": ("attach-implicitfast", "surfaces-Euler", "surfaces-implicitfast"),
    "test_mjcf_fuzz.py::test_models_that_ask_for_too_much_are_refused": ("copies of long names",),
    "test_mjcf_perturbation.py::test_every_value_is_read": ("actuator", "include", "mujoco", "sensor"),
    "test_mjcf_robots.py::test_robots_load_quickly": (
        "dm_control/locomotion/walkers/assets/fruitfly_v2/fruitfly.xml",
        "dm_control/suite/dog.xml",
    ),
    "test_mjcf_writer.py::test_joints_of_other_formats_move_the_same_bodies": ("sdf/ball_prismatic_joint.sdf", "x_xy/own_saddle.xml"),
    "test_noslip.py::test_accelerations_of_many_iterations": ("0", "7"),
    "test_patches.py::test_as_recorded": ("big-small",),
    "test_perturbation.py::test_every_attribute_is_read": ("x_xy-ring_standard_sys",),
    "test_perturbation.py::test_every_physical_value_moves_something": (
        "x_xy-chain",
        "x_xy-own_cor",
        "x_xy-own_euler_quat",
        "x_xy-own_joints_1d",
        "x_xy-own_rr_imp",
    ),
    "test_perturbation_formats.py::test_every_value_is_read": ("skel-fullbody1",),
    "test_plugins.py::test_forces_and_readings": ("3.2-cable", "3.2-shell", "3.2-touch_grid", "4.0-touch_grid"),
    "test_reverse.py::test_steps_are_differentiated_by_their_programs": ("four_bar-None", "hopper-rk4", "muscle_arm-None"),
}

NIGHTLY_CASES: dict[str, tuple[str, ...]] = {
    "test_compile.py::test_loops_are_not_one_function": ("contacts",),
    "test_flex_contacts.py::test_derivatives": ("a ball on a sheet",),
    "test_flexes.py::test_derivatives": ("3.2-Euler",),
    "test_mjcf_gradients.py::test_every_number_of_a_step": ("exact_of_4_0", "pid_of_4_0", "pixels_of_4_0"),
    "test_mjcf_perturbation.py::test_every_value_is_read": ("worldbody",),
    "test_mjcf_robots.py::test_robots_are_read": ("dm_control/locomotion/walkers/assets/build_fruitfly/assets/drosophila_fused.xml",),
    "test_noslip.py::test_derivatives": ("elliptic",),
}
