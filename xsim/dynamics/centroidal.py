"""Centre of mass and centroidal momentum."""

from __future__ import annotations

import functools

from xsim.dynamics.call import Call, query
from xsim.dynamics.tree import kinematics as kin
from xsim.dynamics.tree.subtree import subtree_coms, subtree_sums
from xsim.dynamics.tree.system import NO_INERTIA, System
from xsim.model.model import Model
from xsim.spatial import Force, Inertia, cross, inertia_move, matrix, momentum, stage, vadd, vsub


@functools.partial(query, static_argnames=("body",))
def center_of_mass(model: Model, q, body=None):
    """Centre of mass of a body and of all bodies below it in the tree: (*batch, 3), world frame, m.

    body: name or index; None: all bodies, also those that are fixed to the world. Where there is no mass, the origin of the body. Raises
    KeyError for an unknown name and IndexError for an unknown index.
    """
    c = Call(model, q)
    index = -1 if body is None else model.body_index(body)
    return c.join(list(subtree_coms(c.system, kin.frames(c.system, c.q))[index]))


@functools.partial(query, static_argnames=("body",))
def centroidal_momentum_matrix(model: Model, q, body=None):
    """Linear and angular part of the centroidal momentum matrix, each (*batch, 3, nv), world axes.

    Of a body and all bodies below it; None: all bodies. ``linear @ v`` is their linear momentum (kg m/s) and ``angular @ v`` their angular
    momentum about their centre of mass (kg m^2/s). ``linear`` divided by their mass is the Jacobian of the centre of mass. The armature has
    no momentum. Source: Orin, Goswami, Lee, Centroidal dynamics of a humanoid robot, 2013. Raises KeyError for an unknown name
    and IndexError for an unknown index.
    """
    c = Call(model, q)
    index = -1 if body is None else model.body_index(body)
    top, frame = model.topology, kin.frames(c.system, c.q)
    bodies = subtree_sums(c.system, [{i} for i in range(len(top.bodies))], set.union, set())[index]
    inertia = kin.composite_inertias(top, _inertias_of(c.system, frame, sorted(bodies)))
    center = subtree_coms(c.system, frame)[index]
    columns = []
    for i, link in enumerate(top.links):
        reference = frame.pose[c.system.tables.root[i]].pos
        columns += [_momentum_about(center, reference, inertia[i], frame.subspace[d]) for d in range(link.v, link.v + link.nv)]
    linear, angular = ([[getattr(x, part)[k] for x in columns] for k in range(3)] for part in ("lin", "ang"))
    return c.join(linear, 2), c.join(angular, 2)


def _inertias_of(system: System, frame: kin.Frames, bodies: list[int]) -> list[Inertia]:
    """Per link: the inertia of those of its bodies, about the reference point of its tree, world axes."""
    out = [NO_INERTIA] * len(system.topology.links)
    poses, origins = kin.body_poses(system, frame), kin.body_origins(system, frame)
    for i in bodies:
        link = system.topology.bodies[i].link
        if link >= 0:
            out[link] = kin.sum_of_inertias(out[link], _moved(poses[i].quat, origins[i], system.body.inertia[i]))
    return out


@stage
def _moved(quat, origin, inertia: Inertia) -> Inertia:
    return inertia_move(matrix(quat), origin, inertia)


@stage
def _momentum_about(center, reference, inertia: Inertia, motion) -> Force:
    """Momentum about a point. reference: the point that inertia and motion are about. Both points are in the world frame."""
    about_reference = momentum(inertia, motion)
    return Force(vadd(about_reference.ang, cross(vsub(reference, center), about_reference.lin)), about_reference.lin)
