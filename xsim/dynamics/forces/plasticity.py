"""Springs of joints and tendons that yield: ideal elasto-plasticity. Source: MuJoCo 4.0's documentation, attribute springyield.

A spring that yields has its rest position in the state (`State.plastic`). At the end of a step the rest position follows the joint or
tendon, so that the spring's displacement is at most its yield. After them the state has the numbers of flexes, see
`xsim.dynamics.flex.rods` and `xsim.dynamics.flex.plasticity`.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from xsim.dynamics.flex.plasticity import has_yielding_elements, next_folds, next_stretches
from xsim.dynamics.flex.rods import first_frames, has_rods, next_frames
from xsim.dynamics.tendons.tendons import rate, tendons
from xsim.dynamics.tree.kinematics import NO_FRAMES, frames
from xsim.dynamics.tree.manifold import difference
from xsim.dynamics.tree.system import System
from xsim.spatial import add, quat_conj, quat_exp, quat_log, quat_mul, safe_norm, scale, stage, sub


def with_plastic_springs(system: System, plastic) -> System:
    """The system whose springs that yield have the rest positions of a state. plastic: components of `State.plastic`."""
    if not len(plastic):
        return system
    spring_ref = list(system.joint.spring_ref)
    for joint in system.topology.joints:
        if joint.plastic is not None:
            first, width = joint.q
            spring_ref[first : first + width] = plastic[joint.plastic : joint.plastic + width]
    lengths, rest = list(system.tendon.spring_length), list(system.derived.tendon_rest)
    for i, tendon in enumerate(system.topology.tendons):
        if tendon.plastic is not None:
            both = tuple(plastic[tendon.plastic : tendon.plastic + 2])
            if tendon.spring is None:
                rest[i] = both
            else:
                lengths[tendon.spring] = both
    return system._replace(
        joint=system.joint._replace(spring_ref=tuple(spring_ref)),
        tendon=dataclasses.replace(system.tendon, spring_length=tuple(lengths)),
    ).with_derived(tendon_rest=tuple(rest), plastic=tuple(plastic))


def rest_positions(system: System, q) -> list:
    """`State.plastic` of a state at q that nothing precedes: rest positions and lengths of springs, frames of lines of flexes."""
    out: list = []
    for joint in system.topology.joints:
        if joint.plastic is not None:
            out += system.joint.spring_ref[joint.q[0] : sum(joint.q)]
    for i, tendon in enumerate(system.topology.tendons):
        if tendon.plastic is not None:
            out += system.derived.tendon_rest[i] if tendon.spring is None else system.tendon.spring_length[tendon.spring]
    out += [0.0] * (system.topology.size("nplastic") - len(out))
    return _with_numbers(out, first_frames(system, frames(system, q))) if has_rods(system.topology) else out


def _with_numbers(plastic: list, others: dict[int, list]) -> list:
    """`State.plastic` with other numbers, by their first address."""
    for first, numbers in others.items():
        plastic[first : first + len(numbers)] = numbers
    return plastic


@stage
def _yielded(rest, q, limit):
    """The rest position of a hinge or slide at the position q."""
    return jnp.clip(rest, sub(q, limit), add(q, limit))


@stage
def _yielded_rotation(rest, quat, limit) -> tuple:
    """The rest orientation of a ball at an orientation: on the shortest rotation between them, at most ``limit`` (rad) away."""
    rotation = quat_log(quat_mul(quat_conj(rest), quat))
    angle = safe_norm(rotation)
    beyond = angle > limit
    excess = jnp.where(beyond, 1.0 - limit / jnp.where(beyond, angle, 1.0), 0.0)
    return quat_mul(rest, quat_exp(scale(rotation, excess)))


@stage
def _yielded_range(rest, length, limit) -> tuple:
    """The rest lengths of a tendon at a length. Of a range that begins at 0 an extension moves the upper end alone."""
    low, high = rest
    extended = jnp.maximum(sub(length, add(high, limit)), 0.0)
    compressed = jnp.minimum(sub(length, sub(low, limit)), 0.0)
    one_sided = jnp.equal(low, 0.0) & jnp.greater(high, 0.0)
    return add(add(low, jnp.where(one_sided, 0.0, extended)), compressed), add(add(high, extended), compressed)


def next_plastic(system: System, start: list, q: list, plastic) -> list:
    """`State.plastic` at the end of a step from the configuration ``start`` to q."""
    if not len(plastic):
        return []
    out, limits = list(plastic), system.joint.spring_yield
    for joint in system.topology.joints:
        if joint.plastic is None:
            continue
        (first, width), limit = joint.q, limits[joint.spring_yield]
        if width == 1:
            out[joint.plastic] = _yielded(out[joint.plastic], q[first], limit)
        else:
            place = slice(joint.plastic, joint.plastic + width)
            out[place] = _yielded_rotation(tuple(out[place]), tuple(q[first : first + width]), limit)
    out = _with_yielded_tendons(system, start, q, out)
    if has_yielding_elements(system.topology) and "spring" not in system.topology.disabled:
        frame = frames(system, q)
        out = _with_numbers(out, next_stretches(system, frame) | next_folds(system, frame))
    return _with_numbers(out, next_frames(system, frames(system, start))) if has_rods(system.topology) else out


def _with_yielded_tendons(system: System, start: list, q: list, plastic: list) -> list:
    """`State.plastic` with new rest lengths of the tendons. The length at the end of the step is that at its start plus the Jacobian times
    the displacement, as in MuJoCo."""
    top, out = system.topology, list(plastic)
    yielding = [i for i, tendon in enumerate(top.tendons) if tendon.plastic is not None]
    if not yielding:
        return out
    frame = frames(system, start) if any(t.kind == "spatial" for t in top.tendons) else NO_FRAMES
    found, displacement = tendons(system, frame, start), difference(system, start, q)
    for i in yielding:
        tendon = top.tendons[i]
        place = slice(tendon.plastic, tendon.plastic + 2)
        length = add(found[i].length, rate(found[i].row, displacement))
        out[place] = _yielded_range(tuple(out[place]), length, system.tendon.spring_yield[tendon.spring_yield])
    return out
