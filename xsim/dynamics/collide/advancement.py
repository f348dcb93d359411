"""Where two moving convex shapes will meet within a step: directed conservative advancement (MuJoCo's flag ``speculative``).

Each shape moves with constant velocity and turns with constant angular velocity about its centre. At a fraction t of the step the nearest
points of both are apart by d(t), along n. No two points approach along n faster than

    s = n . (dx_1 - dx_2) + |dw_1| r_1 + |dw_2| r_2

per step, with the displacements dx, the rotations dw and the radii r of bounding spheres. So t += (d - target) / s is safe. The search ends
at d <= margin + 0.03 (d(0) - margin), with target = margin + 0.02 (d(0) - margin); without a contact if s <= 0 or t >= 1. Source: MuJoCo
4.0's documentation, Computation, Speculative contacts; the end of the search by probes of MuJoCo 4.0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.dispatch import collide, collide_convex, hull
from xsim.dynamics.collide.patches import half_patch, patch, patch_contact_count
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape, broadcast_contact
from xsim.rules import Rules
from xsim.spatial import Vector, add, apply_inverse, dot, mat_mul, matrix, mul, quat_exp, safe_norm, scale, vadd, vsub

SUPPORTED = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
_TARGET, _END = 0.02, 0.03
_MOST = 16  # iterations


class StepMotion(NamedTuple):
    """The motion of shapes over a step.

    shift: displacement of the centre, m. turn: rotation vector, rad. World axes.
    radius: of the bounding sphere about the centre, m. extent: least half extent of the bounding box, m; infinite for planes.
    """

    shift: Vector
    turn: Vector
    radius: Any
    extent: Any

    def sweep(self):
        """The largest displacement of a point, m."""
        return add(safe_norm(self.shift), mul(safe_norm(self.turn), self.radius))


def bounds(kind: str, size: Vector, mesh) -> tuple:
    """The radius of the bounding sphere about the centre of a shape, and the least half extent of its bounding box. size: components."""
    x, y, z = size
    if kind == "plane":
        return 0.0 * x, jnp.full_like(x, jnp.inf)
    if kind == "sphere":
        return x, x
    if kind == "capsule":
        return x + y, x
    if kind == "ellipsoid":
        return jnp.maximum(jnp.maximum(x, y), z), jnp.minimum(jnp.minimum(x, y), z)
    if kind == "cylinder":
        return safe_norm((x, y)), jnp.minimum(x, y)
    if kind == "box":
        return safe_norm(size), jnp.minimum(jnp.minimum(x, y), z)
    vertices = mesh.vertices.value
    farthest, half = np.abs(vertices).max(0), 0.5 * np.ptp(vertices, 0)
    radius = safe_norm(tuple(float(f) * s for f, s in zip(farthest, size, strict=True)))
    a, b, c = (float(h) * jnp.abs(s) for h, s in zip(half, size, strict=True))
    return radius, jnp.minimum(jnp.minimum(a, b), c)


class Impacts(NamedTuple):
    """Contacts that will be, of pairs.

    found (pairs, lanes): whether the pair has them. time: fraction of the step, > 0. approach: by how much the shapes come closer until
        then, m.
    contacts: points in the present poses, and the normal at the time of contact. The distance is 0, `FAR` for no contact.
    """

    found: Any
    time: Any
    approach: Any
    contacts: list[ContactPoint]


def impacts(
    kinds: Sequence[tuple[str, str]], a: Shape, b: Shape, motions: tuple[StepMotion, StepMotion], margin, wanted, rules: Rules,
    several: bool,
) -> Impacts:  # fmt: skip
    """The contacts of pairs of two moving shapes, if they are apart now.

    kinds: of each pair; with a plane all are the same. ``data`` of the shapes: a list with the mesh of each pair. wanted (pairs, lanes):
    pairs that are searched. several: whether flat faces have several contacts."""
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in (*jax.tree.leaves((a[:3], b[:3], motions)), margin, wanted)))

    def nearest(t, running) -> ContactPoint:
        sides = (_moved(x, motion, t) for x, motion in zip((a, b), motions, strict=True))
        return broadcast_contact(_nearest(kinds, *sides, running, rules), shape)

    zero = jnp.zeros(shape, jnp.result_type(*jax.tree.leaves((a[:3], b[:3]))))
    running = jnp.broadcast_to(wanted, shape)
    turning = [mul(safe_norm(motion.turn), motion.radius) for motion in motions]

    def advance(state, first):
        t, start, end, running, found = state
        contact = nearest(t, running)
        d = jnp.where(running, contact.distance, 1.0)
        start = jnp.where(first, d, start)
        ends = running & (d <= margin + _END * (start - margin))
        speed = dot(contact.normal, vsub(motions[0].shift, motions[1].shift)) + turning[0] + turning[1]
        closes = running & ~ends & (speed > 0)
        after = t + (d - (margin + _TARGET * (start - margin))) / jnp.where(closes, speed, 1.0)
        goes = closes & (after < 1.0)
        return (jnp.where(goes, after, t), start, jnp.where(ends, d, end), goes, found | ends), None

    start = zero, zero, zero, running, jnp.zeros(shape, bool)
    (t, first, last, _, found), _ = jax.lax.scan(advance, start, np.arange(_MOST) == 0)
    found = found & (t > 0)
    moved = [_moved(x, motion, t) for x, motion in zip((a, b), motions, strict=True)]
    contact = nearest(t, found)
    if kinds[0][0] == "plane":
        mesh = b.data[0]
        contacts = half_patch(kinds[0][1], moved[0], moved[1]._replace(data=[None if mesh is None else hull(mesh)]), contact)
    elif several and patch_contact_count(kinds[0]) > 1:
        hulls = [x._replace(data=[None if y is None else hull(y) for y in x.data]) for x in moved]
        contacts = [broadcast_contact(x, shape) for x in patch(kinds, *hulls, contact, jnp.full(shape, 0.5 * FAR))]
    else:
        contacts = [contact]
    weights = _weights(motions)
    back = [_put_back(x, (a, b), motions, t, weights) for x in contacts]
    distances = [jnp.where(found & (x.distance < 0.5 * FAR), 0.0, FAR) for x in contacts]
    out = [x._replace(distance=d, point=point) for d, point, x in zip(distances, back, contacts, strict=True)]
    return Impacts(found, jnp.where(found, t, 1.0), jnp.where(found, first - last, 1.0), out)


def _moved(s: Shape, motion: StepMotion, t) -> Shape:
    """A shape at a fraction t of the step."""
    turn = matrix(quat_exp(scale(motion.turn, t)))
    return s._replace(pos=vadd(s.pos, scale(motion.shift, t)), R=mat_mul(turn, s.R))


def _nearest(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape, near, rules: Rules) -> ContactPoint:
    """Where pairs of shapes that are apart are nearest."""
    if kinds[0][0] != "plane":
        return collide_convex(kinds, a, b, None, near)
    sides = (x._replace(data=x.data[0]) for x in (a, b))
    found = collide(kinds[0], *sides, jnp.asarray(FAR), rules)
    best = found[0]
    for contact in found[1:]:
        best = jax.tree.map(lambda x, y, c=contact, f=best: jnp.where(c.distance < f.distance, y, x), best, contact)
    return best


def _weights(motions: tuple[StepMotion, StepMotion]) -> tuple:
    """The shares of both shapes in the sum of their sweeps."""
    first, second = (motion.sweep() for motion in motions)
    both = first + second
    share = first / jnp.where(both > 0, both, 1.0)
    return share, 1.0 - share


def _put_back(contact: ContactPoint, shapes: tuple[Shape, Shape], motions, t, weights) -> Vector:
    """The point of a contact at a fraction t of the step, in the present: of its two points, as they are on their shapes now, the mean."""
    out = (0.0, 0.0, 0.0)
    for s, motion, weight, side in zip(shapes, motions, weights, (-0.5, 0.5), strict=True):
        point = vadd(contact.point, scale(contact.normal, side * jnp.where(contact.distance < 0.5 * FAR, contact.distance, 0.0)))
        turn = matrix(quat_exp(scale(motion.turn, t)))
        arm = apply_inverse(turn, vsub(point, vadd(s.pos, scale(motion.shift, t))))
        out = vadd(out, scale(vadd(s.pos, arm), weight))
    return out
