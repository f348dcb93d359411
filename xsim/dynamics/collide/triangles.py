"""Boxes and capsules with triangles of flexes as in MuJoCo 4.0: contacts at the corners of both, none where an edge lies across a triangle.

Contacts of the triangle's corners, balls of the flex's radius, with the shape; then of the box's corners, or of the balls at the capsule's
ends, with the triangle. A triangle is a `Shape` as in `simplices`. Source: probes of MuJoCo 4.0.0.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp

from xsim.dynamics.collide.colliders import collider
from xsim.dynamics.collide.convex import weights_on_triangle
from xsim.dynamics.collide.cores import simplex_corners
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.dynamics.collide.spheres_capsules import ball_ball, ball_contact, direction, nearest_face
from xsim.spatial import ZERO3, Component, Vector, apply, apply_inverse, cross, dot, neg, normalize, scale, sub, vadd, vsub


@collider("capsule", "triangle", contacts=5)
def capsule_triangle(a: Shape, b: Shape) -> list[ContactPoint]:
    """The triangle's corners count between the ends of the capsule's axis."""
    axis, radius = a.axis(2), b.size[0]
    ends = [vadd(a.pos, scale(axis, x)) for x in (neg(a.size[1]), a.size[1])]
    contacts = []
    for corner in _corners(b):
        x = dot(axis, vsub(corner, a.pos))
        contact = ball_ball(vadd(a.pos, scale(axis, x)), a.size[0], corner, radius, a.axis(0))
        contacts.append(contact._replace(distance=jnp.where(jnp.abs(x) < a.size[1], contact.distance, FAR)))
    return [*contacts, *_balls_on_triangle(ends, a.size[0], b)]


@collider("box", "triangle", contacts=11)
def box_triangle(a: Shape, b: Shape) -> list[ContactPoint]:
    """The triangle's corners are pushed along the normal of the face that they are farthest outside of, or least inside."""
    sides = [(neg(s), s) for s in reversed(a.size)]
    corners = [vadd(a.pos, apply(a.R, (x, y, z))) for z, y, x in itertools.product(*sides)]
    contacts = []
    for corner in _corners(b):
        inward, outside = nearest_face(apply_inverse(a.R, vsub(corner, a.pos)), a.size)
        contact = ball_contact(corner, b.size[0], apply(a.R, inward), outside)
        contacts.append(contact._replace(normal=scale(contact.normal, -1.0)))
    return [*contacts, *_balls_on_triangle(corners, 0.0, b)]


def _corners(triangle: Shape) -> tuple[Vector, ...]:
    return tuple(vadd(triangle.pos, c) for c in simplex_corners(triangle)[:3])


def _balls_on_triangle(centers: list[Vector], radius: Component, triangle: Shape) -> list[ContactPoint]:
    """Contacts of balls of one radius with a triangle. A centre in the triangle is pushed along its normal."""
    corners = _corners(triangle)
    first, second = (vsub(corner, corners[0]) for corner in corners[1:])
    upright = normalize(cross(first, second))
    contacts = []
    for center in centers:
        weights, _ = weights_on_triangle(center, corners)
        nearest = ZERO3
        for weight, corner in zip(weights, corners, strict=True):
            nearest = vadd(nearest, scale(corner, weight))
        normal, gap = direction(vsub(nearest, center), upright)
        contacts.append(ball_contact(center, radius, normal, sub(gap, triangle.size[0])))
    return contacts
