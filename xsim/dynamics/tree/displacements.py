"""Derivatives of the kinematics by displacements of the links.

A change of the coordinates or of a joint frame moves a link, and all that is fixed to it, as a rigid body. This small motion is the
displacement of the link, a spatial motion d. The derivative of a quantity of the link is its rate at this motion: d x s of a motion vector
s, d x* I - I d x of an inertia I (Featherstone 2008, sections 2.9 and 2.13; Carpentier and Mansard 2018, Analytical derivatives of rigid
body dynamics algorithms). In reverse mode a link thus passes one wrench to its parent. The operations that compute quaternions, rotation
matrices and inertias would pass the cotangents of all these numbers, which takes twice as many operations.

A displacement has the value zero. What matters are its tangents and cotangents. It is about the reference point of the tree, in world axes.
The reference point is the origin of a link and moves with it: a *relative* displacement is one less the translation of that link.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.compile.manual_axes import varying_alike
from xsim.joints.elementary import child_twist, has_velocity_coordinates
from xsim.spatial import (
    Inertia,
    Motion,
    Pose,
    add,
    apply,
    compose,
    cross,
    cross_motion,
    inertia_add,
    inertia_move,
    is_zero,
    madd,
    mscale,
    mul,
    neg,
    quat_conj,
    quat_mul,
    scale,
    stage,
    sub,
    total,
    trace_mode,
    traced_in,
    vadd,
    vsub,
)


def with_derivative(value, rule, variables, *context):
    """value, whose derivative is rule(tangents of the variables, value, variables, *context).

    value, variables, context: trees of components. The components of value that are arrays have one shape. A tangent that is zero is the
    constant 0.0. What value was computed from has no part in its derivative, but in derivatives of the rule."""
    leaves, treedef = _flattened((value, variables, context))
    positions = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array)]
    values, structure = _flattened(value)
    results = [i for i in positions if i < len(values)]
    if not results:
        return value
    mode = trace_mode()  # of this trace; that in which the rule runs may be another one

    @jax.custom_jvp
    def identity(*arrays):
        return list(arrays[: len(results)])

    def derivative(primals, tangents):
        zero = jax.custom_derivatives.SymbolicZero
        here, along = list(leaves), [0.0] * len(leaves)
        for i, x, t in zip(positions, primals, tangents, strict=True):
            here[i], along[i] = x, 0.0 if isinstance(t, zero) else t
        of_value, of_variables, of_context = treedef.unflatten(here)
        with traced_in(mode):
            changes = jax.tree.leaves(rule(treedef.unflatten(along)[1], of_value, of_variables, *of_context))
        out = primals[: len(results)]
        return list(out), [varying_alike(_full(changes[i], x), x) for i, x in zip(results, out, strict=True)]

    identity.defjvp(derivative, symbolic_zeros=True)
    arrays = varying_alike([leaves[i] for i in positions])  # a value that does not vary has the tangents of variables that do
    for i, x in zip(results, identity(*arrays), strict=True):
        values[i] = x
    return structure.unflatten(values)


def _flattened(tree) -> tuple:
    return jax.tree.flatten(tree, is_leaf=lambda x: x is None)


def _full(x, like):
    return jnp.broadcast_to(jnp.asarray(x, like.dtype), like.shape)


def with_lanes(tree, lanes: tuple[int, ...]):
    """The components that are arrays with the shape lanes."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, lanes) if isinstance(x, jax.Array) and x.shape != lanes else x, tree)


def _directional(fn, arguments: tuple, tangents: tuple):
    """The derivative of fn(*arguments) along the tangents, the constant 0.0 where it is zero; None if all is."""
    along = _flattened(tangents)[0]
    active = [i for i, t in enumerate(along) if isinstance(t, jax.Array)]
    if not active:
        return None
    function = _OfActive(fn, arguments, active)
    changes = iter(jax.jvp(function, [function.leaves[i] for i in active], [along[i] for i in active])[1])
    return function.structure.unflatten([next(changes) if is_array else 0.0 for is_array in function.are_arrays])


class _OfActive:
    """fn(*arguments) as a function of the arrays at the active places among the leaves, that returns a list of arrays.

    structure, are_arrays: of the results of fn, and which of them are arrays; known after a call."""

    def __init__(self, fn, arguments: tuple, active: list[int]):
        self.fn, self.active = fn, active
        self.leaves, self.treedef = _flattened(arguments)
        self.structure: Any = None
        self.are_arrays: list[bool] = []

    def __call__(self, *xs) -> list:
        leaves = list(self.leaves)
        for i, x in zip(self.active, xs, strict=True):
            leaves[i] = x
        results, self.structure = jax.tree.flatten(self.fn(*self.treedef.unflatten(leaves)))
        self.are_arrays = [isinstance(x, jax.Array) for x in results]
        return [x for x in results if isinstance(x, jax.Array)]


# ---- displacements -------------------------------------------------------------------------------------------------------------


class JointArguments(NamedTuple):
    """What the pose of a link in its parent depends on: the pose of the joint frame, the numbers of the joint, its coordinates q."""

    frame: Pose
    numbers: object
    q: tuple


def zero_displacement(parent: Motion, joint, arguments: JointArguments, subspace: list[Motion], zero) -> Motion:
    """The value of a displacement: the component zero, but the constant 0.0 where the link and its parent cannot move. parent: the
    displacement of its parent."""
    fixed = not any(isinstance(x, jax.Array) for x in jax.tree.leaves((arguments.frame, arguments.numbers)))
    if fixed and has_velocity_coordinates(joint):
        moving = [any(not is_zero(x) for x in entries) for entries in zip(*map(jax.tree.leaves, (parent, *subspace)), strict=True)]
    else:
        moving = [True] * 6
    zeros = [zero if x else 0.0 for x in moving]
    return Motion(tuple(zeros[:3]), tuple(zeros[3:]))


def displacement_of_link(
    value: Motion, joint, parent: Motion, arguments: JointArguments, subspace: list[Motion], R_parent, origin
) -> Motion:  # fmt: skip
    """The displacement of a link. value: see `zero_displacement`. parent: displacement of its parent. subspace: motion subspace of the
    link, world axes. R_parent: rotation matrix of the parent. origin: of the link, relative to the reference point."""

    def rule(tangents, _value, variables, subspace, R_parent, origin):
        return _displacement(joint, tangents, variables[1], subspace, R_parent, origin)

    return with_derivative(value, rule, (parent, arguments), subspace, R_parent, origin)


@stage
def _displacement(joint, tangents, arguments: JointArguments, subspace: list[Motion], R_parent, origin) -> Motion:
    out, along = tangents
    if has_velocity_coordinates(joint):
        for s, dq in zip(subspace, along.q, strict=True):
            out = madd(out, mscale(s, dq))
        along = along._replace(q=(0.0,) * len(along.q))
    change = _directional(lambda frame, numbers, q: compose(frame, joint.pose(numbers, q)), arguments, along)
    if change is None:
        return out
    quat = compose(arguments.frame, joint.pose(arguments.numbers, arguments.q)).quat
    turn, shift = apply(R_parent, scale(quat_mul(change.quat, quat_conj(quat))[1:], 2.0)), apply(R_parent, change.pos)
    return madd(out, Motion(turn, vsub(shift, cross(turn, origin))))


# ---- quantities of displaced links ---------------------------------------------------------------------------------------------


class LinkFrame(NamedTuple):
    """World pose of a link, its rotation matrix, and its origin relative to the reference point."""

    pose: Pose
    R: tuple
    origin: tuple


def displaced_frame(frame: LinkFrame, displacement: Motion, relative: Motion) -> LinkFrame:
    """The frame of a link, differentiated by its displacement and its relative displacement."""
    return with_derivative(frame, _change_of_frame, (displacement, relative))


def _change_of_frame(tangents, frame: LinkFrame, _variables) -> LinkFrame:
    return _moved_frame(frame, *tangents)


@stage
def _moved_frame(frame: LinkFrame, d: Motion, relative: Motion) -> LinkFrame:
    turned = cross(d.ang, frame.origin)
    columns = [cross(d.ang, column) for column in zip(*frame.R, strict=True)]
    quat = scale(quat_mul((0.0, *d.ang), frame.pose.quat), 0.5)
    return LinkFrame(Pose(quat, vadd(d.lin, turned)), tuple(zip(*columns, strict=True)), vadd(relative.lin, turned))


def displaced_subspace(subspace: list[Motion], relative: Motion, joint, arguments: JointArguments, R, origin) -> list[Motion]:
    """The motion subspace of a link in world axes, differentiated by its relative displacement. R, origin: see `LinkFrame`."""

    def rule(tangents, subspace, variables, R, origin):
        d, of_numbers, of_q = tangents
        if joint.subspace_rate is None:  # it does not depend on the coordinates
            of_q = (0.0,) * len(of_q)
        return _moved_subspace(joint, subspace, d, of_numbers, of_q, *variables[1:], R, origin)

    return with_derivative(subspace, rule, (relative, arguments.numbers, arguments.q), R, origin)


@stage
def _moved_subspace(joint, subspace: list[Motion], d: Motion, of_numbers, of_q, numbers, q, R, origin) -> list[Motion]:
    out = [cross_motion(d, s) for s in subspace]
    change = _directional(joint.subspace, (numbers, q), (of_numbers, of_q))
    return out if change is None else [madd(a, b) for a, b in zip(out, child_twist(change, R, origin), strict=True)]


def displaced_inertia(world: Inertia, relative: Motion, inertia: Inertia, R, origin) -> Inertia:
    """The inertia of a link about the reference point, world axes, differentiated by its relative displacement and by the inertia in the
    link's axes."""
    arrays = [x for x in jax.tree.leaves((world, relative)) if isinstance(x, jax.Array)]
    world = with_lanes(world, jnp.broadcast_shapes(*(x.shape for x in arrays)))
    return with_derivative(world, _change_of_inertia, (relative, inertia), R, origin)


def _change_of_inertia(tangents, world: Inertia, _variables, R, origin) -> Inertia:
    return _moved_inertia(world, *tangents, R, origin)


@stage
def _moved_inertia(world: Inertia, d: Motion, change: Inertia, R, origin) -> Inertia:
    moved = rate_of_inertia(world, d)
    return moved if all(map(is_zero, jax.tree.leaves(change))) else inertia_add(moved, inertia_move(R, origin, change))


def rate_of_inertia(inertia: Inertia, v: Motion) -> Inertia:
    """The rate v x* I - I v x of an inertia I that moves with the velocity v (Featherstone 2008, eq. 2.66)."""
    (xx, yy, zz, xy, xz, yz), (wx, wy, wz) = inertia.second, v.ang
    a, b, c = mul(wx, yz), mul(wy, xz), mul(wz, xy)
    turned = (
        _twice(sub(b, c)),
        _twice(sub(c, a)),
        _twice(sub(a, b)),
        total([mul(wy, yz), neg(mul(wx, xz)), mul(wz, sub(xx, yy))]),
        total([mul(wx, xy), neg(mul(wz, yz)), mul(wy, sub(zz, xx))]),
        total([mul(wz, xz), neg(mul(wy, xy)), mul(wx, sub(yy, zz))]),
    )
    h, u = inertia.first, v.lin
    squares = [_twice(mul(h[i], u[i])) for i in range(3)]
    products = [neg(add(mul(h[i], u[j]), mul(h[j], u[i]))) for i, j in ((0, 1), (0, 2), (1, 2))]
    x, y, z = squares
    shifted = (add(y, z), add(x, z), add(x, y), *products)
    first = vadd(cross(v.ang, h), scale(u, inertia.mass))
    return Inertia(0.0, first, vadd(turned, shifted))


def _twice(x):
    return add(x, x)
