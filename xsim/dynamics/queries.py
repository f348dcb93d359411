"""Public functions of a configuration or a state: kinematics, Jacobians, terms of the equation of motion, energy."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from xsim.dynamics.call import Call, query
from xsim.dynamics.forces.armature import armature_matrix, mass_with_armature, with_armature_bias
from xsim.dynamics.forces.energy import kinetic_energy, potential_energy
from xsim.dynamics.forces.passive import damping_matrix, passive_force
from xsim.dynamics.forward import smooth, soft_constraints, split_views, total_acceleration
from xsim.dynamics.layout import batch_shape, make_lanes
from xsim.dynamics.sensors.cameras import cameras, lights
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree import kinematics as kin
from xsim.dynamics.tree.frames import body_link, geom_end, site_end
from xsim.dynamics.tree.manifold import difference as _difference
from xsim.dynamics.tree.manifold import integrate as _integrate
from xsim.dynamics.tree.system import System
from xsim.model.model import Model


@query
def kinematics(model: Model, q):
    """World poses of all bodies: pos (*batch, nbody, 3) in m, quat (*batch, nbody, 4) as w x y z, body to world."""
    c = Call(model, q)
    poses = kin.body_poses(c.system, kin.frames(c.system, c.q))
    return c.rows([p.pos for p in poses], 3), c.rows([p.quat for p in poses], 4)


@functools.partial(query, static_argnames=("body",))
def jacobian(model: Model, q, body, point=(0.0, 0.0, 0.0)):
    """Jacobians of a point of a body: linear and angular, each (*batch, 3, nv), world axes.

    body: name or index. point: (3,) in the body frame, m. ``linear @ v`` is the velocity of the point, ``angular @ v`` the angular
    velocity of the body. Raises KeyError for an unknown name, IndexError for an unknown index, ValueError for a point of another
    shape.
    """
    index = model.body_index(body)
    if len(point) != 3:
        raise ValueError(f"point must have shape (3,), found ({len(point)},)")
    c = Call(model, q)
    frame, link = kin.frames(c.system, c.q), model.topology.bodies[index].link
    position = None
    if link >= 0:
        position = kin.body_point(frame, link, c.system.body.offset[index], tuple(jnp.asarray(x, c.dtype) for x in point))
    return _point_jacobians(c, frame, link, position)


@functools.partial(query, static_argnames=("site",))
def site_jacobian(model: Model, q, site):
    """Jacobians of the origin of a site: linear and angular, each (*batch, 3, nv), world axes, as of `jacobian`.

    site: name or index. Raises KeyError for an unknown name and IndexError for an unknown index.
    """
    index = model.site_index(site)
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    link = body_link(c.system, model.topology.sites[index].body)
    return _point_jacobians(c, frame, link, site_end(c.system, frame, index).x)


def _point_jacobians(c: Call, frame: kin.Frames, link: int, position):
    """See `jacobian`. position: of the point, relative to the reference point of the tree of the link. link: -1: of a fixed body."""
    lin, ang = ([[0.0] * c.model.nv for _ in range(3)] for _ in range(2))
    for d in _dofs_to(c.system, link):
        s = frame.subspace[d]
        velocity = kin.point_velocity(s, position)
        for k in range(3):
            lin[k][d], ang[k][d] = velocity[k], s.ang[k]
    return c.join(lin, 2), c.join(ang, 2)


def _dofs_to(system: System, link: int) -> list[int]:
    """The dofs between the world and a link."""
    out: list[int] = []
    while link >= 0:
        info = system.topology.links[link]
        out.extend(range(info.v, info.v + info.nv))
        link = info.parent
    return sorted(out)


@query
def mass_matrix(model: Model, q):
    """Mass matrix M(q) with the armature (*batch, nv, nv), kg, kg m or kg m^2."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    rows = mass_with_armature(c.system, frame, kin.link_inertias(c.system, frame))
    dense = [[0.0] * model.nv for _ in range(model.nv)]
    for i, row in enumerate(rows):
        for j, x in zip((*c.system.tables.ancestors[i], i), row, strict=True):
            dense[i][j] = dense[j][i] = x
    return c.join(dense, 2)


@query
def inverse_dynamics(model: Model, q, v, a):
    """Generalized force that produces acceleration a against inertia (armature included) and gravity: (*batch, nv), N or N m.

    q: (*batch, nq), v and a: (*batch, nv). Raises ValueError for a wrong width.
    """
    c = Call(model, q, v, extra=(a,))
    frame = kin.frames(c.system, c.q)
    force = kin.inverse_dynamics(c.system, frame, kin.link_inertias(c.system, frame), c.q, c.v, c.extra[0])
    force = with_armature_bias(c.system, frame, c.q, c.v, force)
    armature = armature_matrix(c.system, frame).times(c.extra[0])
    return c.join([f + x for f, x in zip(force, armature, strict=True)])


@query
def bias(model: Model, q, v):
    """Velocity-dependent and gravity force: what must be applied for zero acceleration, (*batch, nv), N or N m."""
    c = Call(model, q, v)
    frame = kin.frames(c.system, c.q)
    force = kin.inverse_dynamics(c.system, frame, kin.link_inertias(c.system, frame), c.q, c.v)
    return c.join(with_armature_bias(c.system, frame, c.q, c.v, force))


@query
def passive(model: Model, q, v):
    """Passive generalized force (*batch, nv), N or N m: springs and dampers of joints, tendons and flexes, gravity compensation, fluid.
    `Data.passive` has the adhesion of contacts, too."""
    c = Call(model, q, v)
    frame = kin.frames(c.system, c.q)
    damping = damping_matrix(c.system, frame, c.v)
    return c.join(passive_force(c.system, frame, c.q, c.v, damping, tendons(c.system, frame, c.q)))


@query
def smooth_acceleration(model: Model, q, v, tau=None, ctrl=None, time=None, act=None):
    """Acceleration (*batch, nv) under tau, commands, springs, dampers, gravity, velocity terms and holonomic constraints, m/s^2 or rad/s^2.

    Soft constraints and impulses do not act. tau (*batch, nv), ctrl (*batch, nu; see `Model.ctrl_names`), act (*batch, na), time (s):
    None for zero.
    """
    c = Call(model, q, v, tau, ctrl=ctrl, time=time, act=act)
    return c.join(smooth(c).a)


@query
def forward_dynamics(model: Model, q, v, tau=None, ctrl=None, time=None, act=None):
    """Acceleration under everything that acts on the model: (*batch, nv), m/s^2 or rad/s^2. Arguments as in `smooth_acceleration`.

    If dry friction, limits or servos act as impulses, it is the mean acceleration over one step of the model's integrator.
    """
    c = Call(model, q, v, tau, ctrl=ctrl, time=time, act=act)
    return c.join(total_acceleration(c, soft_constraints(c)).a)


@query
def energy(model: Model, q, v):
    """Kinetic energy (with the armature) and potential energy (gravity; springs of joints, tendons, flexes; bushings), J, (*batch,) each.

    The potential of gravity is zero at the origin of the world. Bodies that are fixed to the world count, too. A spring k (ref - q) has the
    potential k/2 (ref - q)^2. A ball spring or a bushing with three different stiffnesses has no exact potential; its energy is k/2 times
    the squared rotation vector. Motors, loads and maps, which depend on time or on rates, have no potential.
    """
    c = Call(model, q, v)
    frame = kin.frames(c.system, c.q)
    inertia = kin.link_inertias(c.system, frame)
    potential = potential_energy(c.system, frame, inertia, c.q, tendons(c.system, frame, c.q))
    return c.join(kinetic_energy(c.system, frame, inertia, c.v), 0), c.join(potential, 0)


@query
def body_inertia(model: Model):
    """Mass (kg), centre of mass (m) and inertia about it (kg m^2; xx yy zz xy xz yz) of all bodies, in body axes.

    Shapes (*batch, nbody), (*batch, nbody, 3), (*batch, nbody, 6)."""
    from xsim.dynamics.tree.system import body_inertias

    lanes = make_lanes(batch_shape(model))
    dtype = model.option.dt.dtype
    inertias = body_inertias(model, lanes)
    mass = lanes.join([i.mass for i in inertias], 1).astype(dtype)
    first = lanes.join([i.first for i in inertias], 2).astype(dtype)
    second = lanes.join([i.second for i in inertias], 2).astype(dtype)
    com = first / jnp.where(mass > 0, mass, 1.0)[..., None]
    x, y, z = (com[..., k] for k in range(3))
    shift = jnp.stack([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -x * z, -y * z], -1)
    return mass, com, second - mass[..., None] * shift


@query
def integrate(model: Model, q, dv):
    """The configuration (*batch, nq) after moving from q with velocity dv (*batch, nv) for unit time, on the configuration manifold."""
    c = Call(model, q, dv)
    return c.join(_integrate(c.system, c.q, c.v, 1.0))


@query
def difference(model: Model, q0, q1):
    """The velocity (*batch, nv) that moves q0 to q1 in unit time: the inverse of `integrate`."""
    q0, q1 = jnp.asarray(q0), jnp.asarray(q1)
    batch = jnp.broadcast_shapes(q0.shape[:-1], q1.shape[:-1])
    c = Call(model, jnp.broadcast_to(q0, (*batch, model.nq)))
    return c.join(_difference(c.system, c.q, list(c.lanes.split(jnp.broadcast_to(q1, (*c.lanes.batch, model.nq)), 1))))


@query
def site_poses(model: Model, q):
    """World poses of all sites: pos (*batch, nsite, 3) in m, quat (*batch, nsite, 4) as w x y z."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    ends = [site_end(c.system, frame, i) for i in range(len(model.topology.sites))]
    return c.rows([e.world for e in ends], 3), c.rows([e.quat for e in ends], 4)


@query
def geom_poses(model: Model, q):
    """World poses of all geoms, those of the world first: pos (*batch, ngeom, 3) in m, quat (*batch, ngeom, 4) as w x y z."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    ends = [geom_end(c.system, frame, i) for i in range(len(model.topology.geoms))]
    return c.rows([e.world for e in ends], 3), c.rows([e.quat for e in ends], 4)


@query
def camera_poses(model: Model, q):
    """World poses of all cameras: pos (*batch, ncamera, 3) in m, axes (*batch, ncamera, 3, 3): columns x, y (up), z (backwards)."""
    c = Call(model, q)
    views = cameras(c.system, kin.frames(c.system, c.q), split_views(model, c.lanes)[0])
    return c.rows([v.pos for v in views], 3), c.rows([v.R for v in views], 3, 3)


@query
def light_poses(model: Model, q):
    """World positions (*batch, nlight, 3), m, and directions (*batch, nlight, 3) of all lights."""
    c = Call(model, q)
    views = lights(c.system, kin.frames(c.system, c.q), split_views(model, c.lanes)[1])
    return c.rows([v.pos for v in views], 3), c.rows([v.R for v in views], 3)
