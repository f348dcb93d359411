"""Spatial algebra on components; the only file that depends on how a vector is stored.

A component is one number for every environment: an array (B,), a scalar array if all environments share it, or a Python float for a
constant of the structure (the zero rotation of a slide, a frozen leaf). The constants 0 and 1 are folded when the program is traced.
Vectors, quaternions, motions, forces and inertias are tuples of components. An algorithm reads as mathematics and compiles to one loop over
the environments per operation.

Motions, forces and inertias are in world axes about one reference point per tree (Featherstone 2008, chapter 2, with the reference point as
origin). A motion is (angular, linear), a force (moment, force).
"""

from __future__ import annotations

import functools
import math
import operator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

Component = Any
Vector = tuple  # three components
Quaternion = tuple  # four components w x y z

ZERO3: Vector = (0.0, 0.0, 0.0)
IDENTITY: Quaternion = (1.0, 0.0, 0.0, 0.0)


class Pose(NamedTuple):
    """Child frame in parent frame: x_parent = pos + rotate(quat, x_child)."""

    quat: Quaternion
    pos: Vector


class Motion(NamedTuple):
    """A spatial motion vector: angular velocity, and linear velocity of the point of the body at the reference point."""

    ang: Vector
    lin: Vector


class Force(NamedTuple):
    """A spatial force vector (wrench): moment about the reference point (``ang``), and force (``lin``)."""

    ang: Vector
    lin: Vector


class Inertia(NamedTuple):
    """A spatial inertia about the reference point: mass, first moment (mass times centre of mass), rotational inertia xx yy zz xy xz yz."""

    mass: Component
    first: Vector
    second: tuple


# ---- components ----------------------------------------------------------------------------------------------------------------


def _is(x, value) -> bool:
    return isinstance(x, float) and x == value


def is_zero(x) -> bool:
    """Whether x is the constant 0.0."""
    return _is(x, 0.0)


def _operate(direct, general, a, b):
    """An operation on two components. direct: of jax.lax, for equal dtypes; it traces in half the time of general, of jax.numpy."""
    if type(b) is float and isinstance(a, jax.Array) and a.dtype.kind == "f":
        return direct(a, a.dtype.type(b))
    if type(a) is float and isinstance(b, jax.Array) and b.dtype.kind == "f":
        return direct(b.dtype.type(a), b)
    same_dtype = isinstance(a, jax.Array) and isinstance(b, jax.Array) and a.dtype == b.dtype
    return direct(a, b) if same_dtype and (a.shape == b.shape or () in (a.shape, b.shape)) else general(a, b)


def _plus(a, b):
    return _operate(jax.lax.add, operator.add, a, b)


def add(a, b):
    return b if _is(a, 0.0) else a if _is(b, 0.0) else _plus(a, b)


def sub(a, b):
    return a if _is(b, 0.0) else neg(b) if _is(a, 0.0) else _operate(jax.lax.sub, operator.sub, a, b)


def neg(a):
    return 0.0 if _is(a, 0.0) else jax.lax.neg(a) if isinstance(a, jax.Array) else -a


def mul(a, b):
    if _is(a, 0.0) or _is(b, 0.0):
        return 0.0
    return b if _is(a, 1.0) else a if _is(b, 1.0) else _operate(jax.lax.mul, operator.mul, a, b)


def total(terms):
    """Sum of components in pairs, for accuracy and a shallow program."""
    terms = [t for t in terms if not _is(t, 0.0)]
    if not terms:
        return 0.0
    while len(terms) > 1:
        terms = [_plus(terms[i], terms[i + 1]) if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]


def dot(a, b):
    return total([mul(x, y) for x, y in zip(a, b, strict=True)])


# ---- vectors -------------------------------------------------------------------------------------------------------------------


def vadd(a, b):
    return tuple(add(x, y) for x, y in zip(a, b, strict=True))


def vsub(a, b):
    return tuple(sub(x, y) for x, y in zip(a, b, strict=True))


def scale(a, s):
    return tuple(mul(x, s) for x in a)


def cross(a, b) -> Vector:
    return (
        sub(mul(a[1], b[2]), mul(a[2], b[1])),
        sub(mul(a[2], b[0]), mul(a[0], b[2])),
        sub(mul(a[0], b[1]), mul(a[1], b[0])),
    )


def safe_norm(a):
    """|a|, with derivative 0 (not NaN) at a = 0."""
    s = dot(a, a)
    if isinstance(s, float):
        return s**0.5
    positive = s > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, s, 1.0)), 0.0)


def normalize(a):
    """a / |a|; zero for the zero vector, with finite derivatives."""
    s = dot(a, a)
    if isinstance(s, float):
        return scale(a, 1.0 / s**0.5) if s else a
    if _constant(a):
        return a
    return scale(a, jax.lax.rsqrt(jnp.where(s > 0, s, 1.0)))


def _constant(a) -> bool:
    return all(isinstance(x, float) for x in a)


# ---- rotations ---------------------------------------------------------------------------------------------------------------

MIN_QUATERNION = 1e-15
"""A shorter quaternion is taken for the identity (MuJoCo's mjMINVAL)."""


def unit_quaternion(q) -> Quaternion:
    """q / |q|, with finite derivatives; the identity for a quaternion without length, see `MIN_QUATERNION`."""
    s = dot(q, q)
    if isinstance(s, float):
        return scale(q, 1.0 / s**0.5) if s > MIN_QUATERNION**2 else (1.0, 0.0, 0.0, 0.0)
    has_length = s > MIN_QUATERNION**2
    w, x, y, z = scale(q, jax.lax.rsqrt(jnp.where(has_length, s, 1.0)))
    return jnp.where(has_length, w, 1.0), x, y, z


def quat_mul(a, b) -> Quaternion:
    a0, a1, a2, a3 = a
    b0, b1, b2, b3 = b
    return (
        sub(sub(mul(a0, b0), mul(a1, b1)), add(mul(a2, b2), mul(a3, b3))),
        add(add(mul(a0, b1), mul(a1, b0)), sub(mul(a2, b3), mul(a3, b2))),
        add(sub(mul(a0, b2), mul(a1, b3)), add(mul(a2, b0), mul(a3, b1))),
        add(add(mul(a0, b3), mul(a1, b2)), sub(mul(a3, b0), mul(a2, b1))),
    )


def quat_conj(a) -> Quaternion:
    return (a[0], neg(a[1]), neg(a[2]), neg(a[3]))


def matrix(q) -> tuple[Vector, Vector, Vector]:
    """Rotation matrix (rows) of a unit quaternion."""
    w, x, y, z = q
    if _constant(q[1:]) and not any(q[1:]):
        return ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    x2, y2, z2 = add(x, x), add(y, y), add(z, z)
    xx, yy, zz = mul(x, x2), mul(y, y2), mul(z, z2)
    xy, xz, yz = mul(x, y2), mul(x, z2), mul(y, z2)
    wx, wy, wz = mul(w, x2), mul(w, y2), mul(w, z2)
    return (
        (sub(1.0, add(yy, zz)), sub(xy, wz), add(xz, wy)),
        (add(xy, wz), sub(1.0, add(xx, zz)), sub(yz, wx)),
        (sub(xz, wy), add(yz, wx), sub(1.0, add(xx, yy))),
    )


def apply(R, a) -> Vector:
    return tuple(dot(row, a) for row in R)


def mat_mul(A, B) -> tuple[Vector, ...]:
    """A B, rows of components."""
    return tuple(tuple(dot(row, [B[k][j] for k in range(3)]) for j in range(3)) for row in A)


def apply_inverse(R, a) -> Vector:
    return apply(tuple(zip(*R, strict=True)), a)


def rotate(q, a) -> Vector:
    """The vector a rotated by the unit quaternion q (child to parent): its components in parent axes from those in child axes."""
    u = q[1:]
    t = cross(u, a)
    t = vadd(t, t)
    return vadd(vadd(a, scale(t, q[0])), cross(u, t))


def compose(a: Pose, b: Pose) -> Pose:
    return Pose(quat_mul(a.quat, b.quat), vadd(a.pos, rotate(a.quat, b.pos)))


def quat_exp(w) -> Quaternion:
    """Unit quaternion of the rotation vector w (rad), smooth at zero."""
    s = dot(w, w)
    small = s < 1e-6
    norm = jnp.sqrt(jnp.where(small, 1.0, s))
    # Taylor series to s^2: the relative size of the next term is below 1e-20 in this branch.
    sinc = jnp.where(small, 0.5 - s / 48.0 + s * s / 3840.0, jnp.sin(0.5 * norm) / norm)
    cosine = jnp.where(small, 1.0 - s / 8.0 + s * s / 384.0 - s * s * s / 46080.0, jnp.cos(0.5 * norm))
    return (cosine, *scale(w, sinc))


def quat_log(q) -> Vector:
    """Rotation vector (rad, angle in [0, pi]) of a unit quaternion, smooth at the identity."""
    sign = jnp.where(q[0] < 0, -1.0, 1.0)
    w, u = mul(q[0], sign), scale(q[1:], sign)
    s = dot(u, u)
    small = s < 1e-6
    norm = jnp.sqrt(jnp.where(small, 1.0, s))
    # Taylor series of 2 asin(x) / x: the relative size of the next term is below 1e-18 in this branch.
    factor = jnp.where(small, 2.0 + s / 3.0 + 3.0 * s * s / 20.0, 2.0 * jnp.arctan2(norm, jnp.where(small, 1.0, w)) / norm)
    return scale(u, factor)


# ---- motions, forces, inertias -----------------------------------------------------------------------------------------------


def madd(a, b):
    """Sum of two motions or of two forces."""
    return type(a)(vadd(a.ang, b.ang), vadd(a.lin, b.lin))


def mscale(a, s):
    return type(a)(scale(a.ang, s), scale(a.lin, s))


def cross_motion(v: Motion, m: Motion) -> Motion:
    """Spatial cross product v x m: rate of a motion vector m that moves with velocity v (Featherstone 2008, eq. 2.33)."""
    return Motion(cross(v.ang, m.ang), vadd(cross(v.ang, m.lin), cross(v.lin, m.ang)))


def cross_force(v: Motion, f: Force) -> Force:
    """Spatial cross product v x* f: rate of a force vector f that moves with velocity v (Featherstone 2008, eq. 2.34)."""
    return Force(vadd(cross(v.ang, f.ang), cross(v.lin, f.lin)), cross(v.ang, f.lin))


def power(f: Force, m: Motion):
    """Scalar product of a force and a motion: power, W."""
    return total([mul(x, y) for x, y in zip((*f.ang, *f.lin), (*m.ang, *m.lin), strict=True)])


def sym_apply(s, a) -> Vector:
    """Symmetric matrix (xx yy zz xy xz yz) times vector."""
    return (dot((s[0], s[3], s[4]), a), dot((s[3], s[1], s[5]), a), dot((s[4], s[5], s[2]), a))


def sym_rotate(R, s) -> tuple:
    """R s R^T of a symmetric matrix (xx yy zz xy xz yz)."""
    T = [sym_apply(s, row) for row in R]
    return (dot(R[0], T[0]), dot(R[1], T[1]), dot(R[2], T[2]), dot(R[0], T[1]), dot(R[0], T[2]), dot(R[1], T[2]))


def momentum(inertia: Inertia, m: Motion) -> Force:
    """Spatial momentum: inertia times motion."""
    return Force(
        vadd(sym_apply(inertia.second, m.ang), cross(inertia.first, m.lin)),
        vsub(scale(m.lin, inertia.mass), cross(inertia.first, m.ang)),
    )


def inertia_add(a: Inertia, b: Inertia) -> Inertia:
    return Inertia(add(a.mass, b.mass), vadd(a.first, b.first), vadd(a.second, b.second))


def inertia_move(R, pos, inertia: Inertia) -> Inertia:
    """The inertia in the parent frame. R: rotation matrix of the child frame, pos: its origin in the parent frame."""
    first = apply(R, inertia.first)
    second = sym_rotate(R, inertia.second)
    # Parallel axis theorem: the rotational inertia changes by tr(A) 1 - A, with A = m pos pos^T + pos first^T + first pos^T.
    half = tuple(add(mul(mul(inertia.mass, p), 0.5), f) for p, f in zip(pos, first, strict=True))
    xx, yy, zz = (mul(2.0, mul(pos[i], half[i])) for i in range(3))
    xy, xz, yz = (add(mul(pos[i], half[j]), mul(pos[j], half[i])) for i, j in ((0, 1), (0, 2), (1, 2)))
    shift = (add(yy, zz), add(xx, zz), add(xx, yy), neg(xy), neg(xz), neg(yz))
    return Inertia(inertia.mass, vadd(first, scale(pos, inertia.mass)), vadd(second, shift))


# ---- program structure -------------------------------------------------------------------------------------------------------


class TraceMode(NamedTuple):
    """How functions are traced, see `one_region` and `one_environment`."""

    one_region: bool = False
    one_environment: bool = False


_ARRAYS = TraceMode()
_TRACE_MODE: ContextVar[TraceMode] = ContextVar("trace_mode", default=_ARRAYS)


@contextmanager
def traced_in(mode: TraceMode):
    """Context in which functions are traced in this mode."""
    token = _TRACE_MODE.set(mode)
    try:
        yield
    finally:
        _TRACE_MODE.reset(token)


def trace_mode() -> TraceMode:
    """The mode of the current trace."""
    return _TRACE_MODE.get()


def one_region(on: bool):
    """Context in which functions are traced without fusion boundaries; faster if a step has only a few dozen components."""
    return traced_in(trace_mode()._replace(one_region=on))


def in_one_region() -> bool:
    """Whether the current trace has no fusion boundaries, see `one_region`."""
    return trace_mode().one_region


def _has_fusion_boundaries() -> bool:
    """Whether `stage` and `block_loop_hoisting` divide the program."""
    mode = trace_mode()
    return not (mode.one_region or mode.one_environment) and jax.default_backend() == "cpu"


def one_environment():
    """Context in which functions are traced for one environment, to be compiled as a program of operations on numbers: what is repeated
    is then a loop, see `each_row`. Fusion boundaries mean nothing there."""
    return traced_in(TraceMode(one_environment=True))


def in_one_environment() -> bool:
    """Whether the current trace is one of `one_environment`."""
    return trace_mode().one_environment


def each_row(fn, *trees):
    """fn(*trees), where fn maps arrays (n, ...) to arrays (n, ...), row by row, for any n. In the program of one environment it is a loop
    over the rows, which is much shorter if fn is long."""
    if not in_one_environment():
        return fn(*trees)

    def row(parts):
        return jax.tree.map(lambda x: jax.lax.squeeze(x, (0,)), fn(*jax.tree.map(lambda x: jax.lax.expand_dims(x, (0,)), parts)))

    return jax.lax.map(row, trees)


class _Static(NamedTuple):
    """An argument of a staged function that is no array. Equal for equal values of the same type; 0.0 and -0.0 differ."""

    type: type
    value: Any
    sign: float


def _static(x) -> _Static:
    return _Static(type(x), x, math.copysign(1.0, x) if isinstance(x, float) else 0.0)


class _Staged:
    """A function of components, traced for arguments of one structure, as a function of its arrays.

    arguments: a static one, or the type of an array. mode: that of the trace. structure: that of the results, and those which are no
    arrays; known after the first call."""

    def __init__(self, fn, treedef, arguments: tuple, mode: TraceMode):
        self.fn, self.treedef, self.arguments, self.mode = fn, treedef, arguments, mode
        self.structure: tuple = ()
        self.program = jax.jit(self._of_arrays)

    def _of_arrays(self, *arrays):
        rest = iter(arrays)
        out = self.fn(*self.treedef.unflatten([x.value if isinstance(x, _Static) else next(rest) for x in self.arguments]))
        results, tree = jax.tree.flatten(out, is_leaf=_is_none)
        self.structure = tree, [None if isinstance(x, jax.Array) else (x,) for x in results]
        return [x for x in results if isinstance(x, jax.Array)]

    def __call__(self, arrays):
        with nullcontext() if self.mode.one_environment else set_xla_metadata(inlineable="false"):
            rest = iter(self.program(*arrays))
        tree, constants = self.structure
        return tree.unflatten([next(rest) if x is None else x[0] for x in constants])


def _is_none(x) -> bool:
    return x is None


MAX_STAGED = 64
"""Types and static arguments for which a staged function keeps its trace; the step of a robot has up to 20."""


def stage(fn):
    """Mark a function of components as one region of the compiled program.

    XLA's CPU backend fuses a complete step into loops that compute shared values again in every consumer. This multiplies compile and run
    time. A call that the compiler must not inline ends a fusion region, at no cost at run time. It works under `jit`, `grad`, `vmap` and
    `scan`. Other backends use the plain function, but for the trace of `one_environment`, where calls take less time than operations.

    Arguments that are no arrays are static. Calls with equal static arguments and equal shapes are traced, differentiated and lowered once:
    the rotation of one body of a robot is that of each. The function must not read what changes between calls, and a function among its
    arguments must capture no arrays.
    """
    staged = functools.lru_cache(MAX_STAGED)(functools.partial(_Staged, fn))

    @functools.wraps(fn)
    def wrapped(*args):
        leaves, treedef = jax.tree.flatten(args, is_leaf=_is_none)
        arrays = [x for x in leaves if isinstance(x, jax.Array)]
        mode = trace_mode()
        if not arrays or not (mode.one_environment or _has_fusion_boundaries()):
            return fn(*args)
        arguments = tuple(jax.typeof(x) if isinstance(x, jax.Array) else _static(x) for x in leaves)
        try:
            function = staged(treedef, arguments, mode)
        except TypeError:  # a static argument that cannot be hashed
            function = _Staged(fn, treedef, arguments, mode)
        return function(arrays)

    return wrapped


def block_loop_hoisting(x):
    """Return x unchanged. A loop with x in its carry is compiled as separate kernels, and so are the loops of its derivatives.

    In jaxlib 0.12 (not 0.10) XLA's CPU backend compiles a loop of elementwise operations of any size as one LLVM function (pass
    ``small-while-loop-hoisting``). For a body with hundreds of kernels LLVM then takes minutes, because the time to unroll their loops
    grows with the square of the size of the function. The pass skips loops that contain a sort. Therefore two integers are sorted and the
    resulting 0 is subtracted from x, and in reverse mode from its cotangent. Other backends, and models that are one region, use x itself.

    x: an array of floats. Under `jax.vmap` every environment sorts two integers.
    """
    if not x.size or not _has_fusion_boundaries():
        return x
    return jax.lax.custom_linear_solve(lambda y: y, x, _minus_sorted_zero, _minus_sorted_zero)


def separate_kernels(components: list) -> list:
    """The components of the carry of a loop, with `block_loop_hoisting` applied to the first."""
    return [block_loop_hoisting(components[0]), *components[1:]] if components else components


def _minus_sorted_zero(_, x):
    """x - 0, which preserves the sign of a zero. The 0 depends on x, so that no compiler pass moves the sort out of a loop."""
    sign = (x.ravel()[0] > 0).astype(jnp.int32)
    zero = jax.lax.sort(jnp.stack([sign, sign + 1]))[0] - sign
    return x - zero.astype(x.dtype)
