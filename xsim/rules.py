"""Where releases of MuJoCo differ, and formats without MuJoCo's rules differ from it: one named switch per difference.

docs/mjcf.md says how the differences were found. `RULES` maps the names that `xsim.load` takes as ``rules`` to the
switches. What the MJCF reader does differently is in `xsim.io.mjcf.releases`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RULES", "Rules"]


@dataclass(frozen=True)
class Rules:
    """Switches of the dynamics. The defaults are those of formats without MuJoCo's rules.

    Contacts:
        smaller_friction: two surfaces have the smaller of their sliding frictions (ODE, Bullet, DART), else the larger (MuJoCo).
        gap_beyond_margin: contacts push from the margin on and are found at margin + gap; else they push from margin - gap on and are
            found at the margin.
        margins_add: margins and gaps of two surfaces are added; else the larger counts.
        box_faces_preferred: two boxes touch along an edge direction only where that is clearly better than a face's normal, and then in
            one contact.
        capsules_touch_at_overlap: two parallel capsules (to 1e-4 rad) touch where what is next to each other ends; else at the ends of the
            first one, then of the second one, even where nothing is next to them.
        sdf_as_4_0: a contact of a signed distance function lies half its depth on the other side of the point that the search found, and
            the distance in a box is that of MuJoCo 4.0, see `xsim.dynamics.collide.sdf`.
        flex_triangle_corners: boxes and capsules touch triangles of flexes at the corners of both, see `xsim.dynamics.collide.triangles`;
            else at the deepest point.
        flex_internal_contacts: elements of a flex collide with the points across from them.
    Constraints:
        constraints_before_damping: soft constraints are solved without what the integrator treats implicitly, which then acts on the
            acceleration that they give (MuJoCo).
        sliding_bodies_by_mass: the mobility of a body that only slides (see `BodyInfo`) is 1 / mass, without armature.
        constraint_drift: rows of connect and weld have (dJ/dt) v.
    Forces:
        lame_as_4_0: elasticity of flexes takes Lame's parameters as MuJoCo 4.0 does; 3.2 takes lambda twice, and of triangles a quarter.
        flex_damping_implicit: dampers along edges of flexes are implicit where joint damping is.
        clamped_gains: an actuator's force that is at its bound, or at that of its joint, has no velocity derivative.
        periodic_setpoints: position servos of rotations (ball joints; sites that turn relative to a reference) go to the nearest of the
            equivalent targets.
        servo_inertia_at_target: the inertia of a damping ratio is that at the transmission's target; else a sum over the dofs it moves.
        tendon_shortest_side: a tendon goes round a geom the shortest way past its side site; else the way that is nearer to the side site.
        free_bodies_fully_implicit: ``implicitfast`` takes all velocity derivatives of free bodies, those of Coriolis forces included.
    Sensors:
        rangefinder_miss_cut: the -1 of a ray that meets nothing is cut off as other values are.
        tendons_in_force_sensors: sensors of forces and torques measure what spatial tendons exert on bodies.
        touch_grid_by_number: a touch grid takes the force on the second geom, with the other sign where its body has not the larger
            number; else the force on its own body.
    """

    smaller_friction: bool = True
    gap_beyond_margin: bool = False
    margins_add: bool = False
    box_faces_preferred: bool = False
    capsules_touch_at_overlap: bool = True
    sdf_as_4_0: bool = False
    flex_triangle_corners: bool = False
    flex_internal_contacts: bool = False
    constraints_before_damping: bool = False
    sliding_bodies_by_mass: bool = False
    constraint_drift: bool = False
    lame_as_4_0: bool = False
    flex_damping_implicit: bool = True
    clamped_gains: bool = False
    periodic_setpoints: bool = False
    servo_inertia_at_target: bool = False
    tendon_shortest_side: bool = False
    free_bodies_fully_implicit: bool = False
    rangefinder_miss_cut: bool = False
    tendons_in_force_sensors: bool = True
    touch_grid_by_number: bool = False


RULES: dict[str, Rules] = {
    "": Rules(),
    "3.2": Rules(
        smaller_friction=False,
        capsules_touch_at_overlap=False,
        flex_internal_contacts=True,
        tendons_in_force_sensors=False,
        touch_grid_by_number=True,
        constraints_before_damping=True,
        sliding_bodies_by_mass=True,
    ),
    "4.0": Rules(
        smaller_friction=False,
        constraints_before_damping=True,
        gap_beyond_margin=True,
        margins_add=True,
        box_faces_preferred=True,
        sdf_as_4_0=True,
        flex_triangle_corners=True,
        sliding_bodies_by_mass=True,
        constraint_drift=True,
        lame_as_4_0=True,
        flex_damping_implicit=False,
        clamped_gains=True,
        periodic_setpoints=True,
        servo_inertia_at_target=True,
        tendon_shortest_side=True,
        free_bodies_fully_implicit=True,
        rangefinder_miss_cut=True,
    ),
}
