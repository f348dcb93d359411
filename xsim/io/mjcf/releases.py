"""Where releases of MuJoCo read a file differently: one named switch per difference.

docs/mjcf.md says how the differences were found. `RELEASES` maps the names that `xsim.load` takes as ``rules`` to the switches. What the
releases compute differently is in `xsim.rules`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RELEASES", "Release"]


@dataclass(frozen=True)
class Release:
    """Switches of the reader. The defaults are those of 3.2.

    Schema and macros (manual: XML reference, meta elements, composite, flexcomp, replicate):
        schema: the release whose elements and attributes exist, see `xsim.io.mjcf.schema_tables`.
        has_composite: the element ``composite`` exists.
        replicate_lags: a copy of ``replicate`` is displaced along the axes of the second copy before it; else along those of the copy
            before it.
        flexcomp_shells: a point of a box, cylinder or ellipsoid slides along one axis only, and the centre is pinned.
    Bodies and compiler (body, inertial, compiler):
        frame_moves_inertial: a ``frame`` around ``inertial`` moves it.
        align_before_fuse: ``alignfree`` acts before ``fusestatic``; else after it.
        fuse_whole_model_only: ``fusestatic`` does nothing in a model that has elements able to refer to bodies.
        count_massless: a geom beside others without mass does not give its body the inertial frame: the principal axes are sorted.
        tiny_mass_is_zero: geoms whose total mass is at most 1e-15 kg give their body no mass.
    Meshes and geoms (asset/mesh, geom):
        shell_by_mesh: a mesh geom cannot have ``shellinertia``, and a mesh without volume must have ``inertia="shell"``.
        quads_by_shorter_diagonal: a face with four corners in an OBJ file is cut along its shorter diagonal; else from its first corner.
        hull_farthest_of_all: with ``maxhullvert`` the hull grows by the point that is farthest from any face; else from the next face.
        fit_to_sides: with ``fitaabb`` a sphere, capsule or cylinder is as large as the sides of the box; else it encloses the mesh.
        sdf_in_file_frame: the mesh of a signed distance function stays in the frame of the function, and its mass is at the origin with the
            largest moment about x and the least about z; else the geom's frame is the principal frame of the mesh.
    Options (option, option/flag):
        more_contact_defaults: ``multiccd``, ``island`` and ``nativeccd`` are on by default and ``ccd_iterations`` is 35; else they are off
            and it is 50.
        rk4_on_manifold: ``RK4`` turns quaternions by the mean angular velocity of the stages; else it integrates them as four numbers.
    Tendons, actuators and flexes (tendon/fixed, actuator, flex/elasticity):
        polynomial_forces: ``stiffness`` and ``damping`` of joints and tendons have coefficients of second and third order.
        fixed_tendon_scalar: a fixed tendon takes each joint once, and hinges and slides only; else the first coordinate of any joint.
        one_actuator_default: all actuator elements of the default classes write into one record; else a shortcut inherits from its own
            kind and from ``general``.
        written_zeros_count: ``kv="0"`` and ``dampratio="0"`` count as given; else as absent.
        own_range_beats_default: of an actuator's range and ``inheritrange``, the one that the element has overrides a default of the other;
            else both together are an error wherever they are written.
        intvelocity_clamps_act: ``intvelocity`` sets ``actlimited``.
        muscle_fills_again: every ``muscle`` element replaces numbers that equal those of ``general`` by a muscle's; else only the first of
            a chain of defaults does.
        adhesion_keeps_dynamics: ``adhesion`` keeps ``dyntype`` of its defaults; else it has none.
        elastic_lines: flexes made of lines resist bending and twist.
    Keyframes (keyframe/key):
        short_keys: a vector may have fewer numbers than the model; the rest is as at the start.
    """

    schema: str = "3.2"
    has_composite: bool = True
    replicate_lags: bool = True
    flexcomp_shells: bool = True
    frame_moves_inertial: bool = False
    align_before_fuse: bool = True
    fuse_whole_model_only: bool = True
    count_massless: bool = True
    tiny_mass_is_zero: bool = False
    shell_by_mesh: bool = False
    quads_by_shorter_diagonal: bool = False
    hull_farthest_of_all: bool = False
    fit_to_sides: bool = False
    sdf_in_file_frame: bool = False
    more_contact_defaults: bool = False
    rk4_on_manifold: bool = True
    polynomial_forces: bool = False
    fixed_tendon_scalar: bool = False
    one_actuator_default: bool = True
    written_zeros_count: bool = False
    own_range_beats_default: bool = False
    intvelocity_clamps_act: bool = True
    muscle_fills_again: bool = True
    adhesion_keeps_dynamics: bool = True
    elastic_lines: bool = False
    short_keys: bool = False


RELEASES: dict[str, Release] = {
    "3.2": Release(),
    "4.0": Release(
        schema="4.0",
        has_composite=False,
        replicate_lags=False,
        flexcomp_shells=False,
        frame_moves_inertial=True,
        align_before_fuse=False,
        fuse_whole_model_only=False,
        count_massless=False,
        tiny_mass_is_zero=True,
        shell_by_mesh=True,
        quads_by_shorter_diagonal=True,
        hull_farthest_of_all=True,
        fit_to_sides=True,
        sdf_in_file_frame=True,
        more_contact_defaults=True,
        rk4_on_manifold=False,
        polynomial_forces=True,
        fixed_tendon_scalar=True,
        one_actuator_default=False,
        written_zeros_count=True,
        own_range_beats_default=True,
        intvelocity_clamps_act=False,
        muscle_fills_again=False,
        adhesion_keeps_dynamics=False,
        elastic_lines=True,
        short_keys=True,
    ),
}
