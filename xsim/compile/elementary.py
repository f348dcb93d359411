"""Elementary functions on vectors, in LLVM IR.

LLVM has no vector forms of sine, exponential, ... and calls the C library for each lane. Here single precision is evaluated by polynomials
in double precision and rounded once, but sine and cosine in single precision. Double precision on a processor uses the C library.

Sources: Muller, Elementary Functions (2016), chapters 3 and 11 (argument reduction of Cody and Waite, polynomial evaluation). The
polynomials are Taylor series, or interpolate the function at Chebyshev nodes. Where the result is rounded to single precision they leave a
relative error below 2e-10, which is 0.003 units in the last place, and below 1e-12 where more is computed from the result.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable

import numpy as np

RARE = '!1 = !{!"branch_weights", i32 1, i32 2000}'
"""Metadata of branches whose first way is taken rarely."""
BINARY = ("atan2", "pow")
NO_INTRINSIC = ("acosh", "asinh", "atanh", "cbrt", "expm1", "log1p")
"""Functions of the C library that are no intrinsics of LLVM."""


class Body:
    """Writes the body of a function of vectors. is_precise: whether the result is a double, else it is rounded to single precision. scalar:
    the type of the numbers. lines: to which it is appended."""

    def __init__(self, lanes: int, is_precise: bool, scalar: str = "double", lines: list[str] | None = None):
        self.lanes, self.is_precise, self.lines = lanes, is_precise, [] if lines is None else lines
        bits = {"double": 64, "float": 32}[scalar]
        self.scalar, self.word = scalar, f"i{bits}"
        self.kind, self.words, self.bool = (f"<{lanes} x {t}>" if lanes > 1 else t for t in (scalar, self.word, "i1"))
        self.suffix = f"v{lanes}f{bits}" if lanes > 1 else f"f{bits}"

    def add(self, text: str) -> str:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def constant(self, x: float) -> str:
        if self.scalar == "float":
            x = float(np.float32(x))
        text = f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"
        return f"splat ({self.scalar} {text})" if self.lanes > 1 else text

    def integer(self, x: int) -> str:
        return f"splat ({self.word} {x})" if self.lanes > 1 else str(x)

    def _number(self, x) -> str:
        return x if isinstance(x, str) else self.constant(x)

    def arithmetic(self, operation: str, a, b) -> str:
        return self.add(f"{operation} {self.kind} {self._number(a)}, {self._number(b)}")

    def plus(self, a, b) -> str:
        return self.arithmetic("fadd", a, b)

    def minus(self, a, b) -> str:
        return self.arithmetic("fsub", a, b)

    def times(self, a, b) -> str:
        return self.arithmetic("fmul", a, b)

    def over(self, a, b) -> str:
        return self.arithmetic("fdiv", a, b)

    def negative(self, a) -> str:
        return self.add(f"fneg {self.kind} {a}")

    def fma(self, a, b, c) -> str:
        numbers = ", ".join(f"{self.kind} {self._number(x)}" for x in (a, b, c))
        return self.add(f"call {self.kind} @llvm.fma.{self.suffix}({numbers})")

    def function(self, name: str, a) -> str:
        return self.add(f"call {self.kind} @llvm.{name}.{self.suffix}({self.kind} {a})")

    def compare(self, order: str, a, b) -> str:
        return self.add(f"fcmp {order} {self.kind} {self._number(a)}, {self._number(b)}")

    def select(self, condition: str, a, b) -> str:
        return self.add(f"select {self.bool} {condition}, {self.kind} {self._number(a)}, {self.kind} {self._number(b)}")

    def both(self, a: str, b: str) -> str:
        return self.add(f"and {self.bool} {a}, {b}")

    def bits(self, a: str) -> str:
        return self.add(f"bitcast {self.kind} {a} to {self.words}")

    def from_bits(self, a: str) -> str:
        return self.add(f"bitcast {self.words} {a} to {self.kind}")

    def on_integers(self, operation: str, a: str, b: int | str) -> str:
        return self.add(f"{operation} {self.words} {a}, {b if isinstance(b, str) else self.integer(b)}")

    def terms(self, single: int, double: int) -> int:
        """The number of terms of a polynomial."""
        return double if self.is_precise else single

    def polynomial(self, coefficients, x: str) -> str:
        """sum of coefficients[k] x^k, by Horner's rule."""
        out = self.constant(coefficients[-1])
        for c in coefficients[-2::-1]:
            out = self.fma(out, x, c)
        return out


@functools.cache
def _fitted(function: Callable, degree: int, low: float, high: float) -> tuple[float, ...]:
    """Coefficients of the polynomial that interpolates a function at Chebyshev nodes."""
    series = np.polynomial.Chebyshev.interpolate(np.vectorize(function), degree, domain=[low, high])
    return tuple(series.convert(kind=np.polynomial.Polynomial).coef.tolist())


# ---- functions of doubles: body, arguments -> result -------------------------------------------------------------------------------

HALF_PI_HIGH, HALF_PI_LOW = math.pi / 2, 6.123233995736766e-17
MAX_ANGLE = 2.0**45
"""Largest angle (rad) of sine and cosine; those of larger angles are NaN. Half a turn is below the spacing of single precision there."""


def _reduced(b: Body, x: str) -> tuple[str, str, str]:
    """An angle x = r + k pi / 2: r, of at most pi / 4 or NaN, the integer k, and whether x is at most `MAX_ANGLE`."""
    k = b.function("rint", b.times(x, 2.0 / math.pi))
    r = b.fma(b.negative(k), HALF_PI_LOW, b.fma(b.negative(k), HALF_PI_HIGH, x))
    valid = b.compare("olt", b.function("fabs", x), MAX_ANGLE)
    return r, b.add(f"fptosi {b.kind} {b.select(valid, k, 0.0)} to {b.words}"), valid


def _in_quadrant(b: Body, turns: str, sine: str, cosine: str) -> str:
    """sin(r + turns pi / 2) of the sine and the cosine of r. turns: integers."""
    odd = b.add(f"icmp ne {b.words} {b.on_integers('and', turns, 1)}, {b.integer(0)}")
    negative = b.add(f"icmp ne {b.words} {b.on_integers('and', turns, 2)}, {b.integer(0)}")
    out = b.select(odd, cosine, sine)
    return b.select(negative, b.negative(out), out)


def _sine(b: Body, x: str, quarter_turns: int) -> str:
    """sin(x + quarter_turns pi / 2)."""
    r, turns, valid = _reduced(b, x)
    z, terms = b.times(r, r), range(1, 1 + b.terms(5, 8))
    sine = b.fma(b.times(z, r), b.polynomial([(-1) ** n / math.factorial(2 * n + 1) for n in terms], z), r)
    cosine = b.fma(z, b.polynomial([(-1) ** n / math.factorial(2 * n) for n in terms], z), 1.0)
    return b.select(valid, _in_quadrant(b, b.on_integers("add", turns, quarter_turns), sine, cosine), math.nan)


def _sine_tail(z: float) -> float:
    """(sin(r) / r - 1) / z, with z = r^2."""
    return sum((-1) ** n * z ** (n - 1) / math.factorial(2 * n + 1) for n in range(1, 9))


def _cosine_tail(z: float) -> float:
    """(cos(r) - 1 + z / 2) / z^2, with z = r^2."""
    return sum((-1) ** n * z ** (n - 2) / math.factorial(2 * n) for n in range(2, 9))


MAX_SINGLE_ANGLE = 2.0**15
"""Angles (rad) up to which an angle in single precision is reduced by numbers of single precision."""


def _single_sine(lanes: int, x: str, quarter_turns: int) -> tuple[list[str], str]:
    """sin(x + quarter_turns pi / 2) in single precision: lines and result.

    The reduced angle is a sum of two numbers, and the result is one rounded sum of a number and a small tail: the error is below 0.8 units
    in the last place. Large angles are reduced in double precision, in a branch that is taken where a lane has one."""
    b = Body(lanes, False, "float")
    large = b.compare("uge", b.function("fabs", x), MAX_SINGLE_ANGLE)
    k = b.function("rint", b.times(x, 2.0 / math.pi))
    first = float(np.float32(HALF_PI_HIGH))
    second = float(np.float32(HALF_PI_HIGH - first))
    near = b.fma(k, -first, x)  # exact
    product = b.times(k, second)
    high = b.minus(near, product)
    low = b.minus(b.minus(b.minus(near, high), product), b.fma(k, second, b.negative(product)))  # exact but for its last sum
    low = b.fma(k, first + second - HALF_PI_HIGH - HALF_PI_LOW, low)
    turns = b.add(f"fptosi {b.kind} {k} to {b.words}")
    test = large if lanes == 1 else b.add(f"icmp ne i{lanes} {b.add(f'bitcast {b.bool} {large} to i{lanes}')}, 0")
    b.lines += [f"  br i1 {test}, label %large, label %polynomials, !prof !1", "large:"]
    reduced = _reduced_in_double(b, x)
    chosen = [
        b.select(large, reduced[0], high), b.select(large, reduced[1], low),
        b.add(f"select {b.bool} {large}, {b.words} {reduced[2]}, {b.words} {turns}"),
    ]  # fmt: skip
    b.lines += ["  br label %polynomials", "polynomials:"]
    high, low, turns = (
        b.add(f"phi {kind} [ {old}, %entry ], [ {new}, %large ]")
        for kind, old, new in zip((b.kind, b.kind, b.words), (high, low, turns), chosen, strict=True)
    )
    sine, cosine = _of_two_numbers(b, high, low)
    return b.lines, _in_quadrant(b, b.on_integers("add", turns, quarter_turns), sine, cosine)


def _reduced_in_double(b: Body, x: str) -> tuple[str, str, str]:
    """The reduced angle as a sum of two numbers, and quarter turns, of a single-precision angle of any size."""
    wide = Body(b.lanes, True, "double", b.lines)
    r, turns, valid = _reduced(wide, b.add(f"fpext {b.kind} {x} to {wide.kind}"))
    r = wide.select(valid, r, math.nan)
    high = b.add(f"fptrunc {wide.kind} {r} to {b.kind}")
    rest = wide.minus(r, b.add(f"fpext {b.kind} {high} to {wide.kind}"))
    return high, b.add(f"fptrunc {wide.kind} {rest} to {b.kind}"), b.add(f"trunc {wide.words} {turns} to {b.words}")


def _of_two_numbers(b: Body, high: str, low: str) -> tuple[str, str]:
    """Sine and cosine of an angle high + low, of at most pi / 4."""
    z = b.times(high, high)
    near_one = b.fma(z, -0.5, 1.0)
    limit = (math.pi / 4) ** 2 * 1.01
    series = b.polynomial(_fitted(_sine_tail, 3, 0.0, limit), z)
    sine = b.plus(high, b.fma(b.times(z, high), series, b.times(low, near_one)))
    lost = b.fma(z, -0.5, b.minus(1.0, near_one))  # by rounding
    lost = b.fma(b.fma(high, high, b.negative(z)), -0.5, lost)
    tail = b.fma(b.times(z, z), b.polynomial(_fitted(_cosine_tail, 2, 0.0, limit), z), lost)
    return sine, b.plus(near_one, b.fma(b.negative(high), low, tail))


def _exp(b: Body, x: str) -> str:
    limited = b.select(b.compare("olt", x, -760.0), -760.0, b.select(b.compare("ogt", x, 720.0), 720.0, x))  # NaN stays
    k = b.function("rint", b.times(limited, 1.0 / math.log(2.0)))
    r = b.fma(b.negative(k), 2.3190468138462996e-17, b.fma(b.negative(k), math.log(2.0), limited))
    power = b.polynomial([1.0 / math.factorial(n) for n in range(b.terms(11, 14))], r)
    number = b.select(b.compare("ord", k, k), k, 0.0)
    exponent = b.add(f"fptosi {b.kind} {number} to {b.words}")
    half = b.on_integers("ashr", exponent, 1)  # in two factors, as 2^k alone may overflow
    for part in (half, b.on_integers("sub", exponent, half)):
        power = b.times(power, b.from_bits(b.on_integers("shl", b.on_integers("add", part, 1023), 52)))
    return power


def _log(b: Body, x: str) -> str:
    """For numbers that are zero, normal, infinite or NaN; float32 subnormals are normal doubles."""
    bits = b.bits(x)
    # With the mantissa in [sqrt(1/2), sqrt(2)).
    shifted = b.on_integers("sub", bits, 0x3FE6A09E667F3BCD)
    exponent = b.on_integers("ashr", shifted, 52)
    mantissa = b.from_bits(b.on_integers("sub", bits, b.on_integers("shl", exponent, 52)))
    s = b.over(b.minus(mantissa, 1.0), b.plus(mantissa, 1.0))
    z = b.times(s, s)
    tail = b.times(b.times(z, s), b.polynomial([2.0 / (2 * n + 3) for n in range(b.terms(7, 11))], z))
    k = b.add(f"sitofp {b.words} {exponent} to {b.kind}")
    out = b.plus(b.fma(k, math.log(2.0), b.fma(k, 2.3190468138462996e-17, tail)), b.times(s, 2.0))
    out = b.select(b.compare("olt", x, math.inf), out, x)  # infinity and NaN
    out = b.select(b.compare("olt", x, 0.0), math.nan, out)
    return b.select(b.compare("oeq", x, 0.0), -math.inf, out)


def _atan_of_ratio(z: float) -> float:
    root = math.sqrt(z)
    return math.atan(root) / root if z else 1.0


def _atan2(b: Body, y: str, x: str) -> str:
    size_y, size_x = b.function("fabs", y), b.function("fabs", x)
    steep = b.compare("ogt", size_y, size_x)
    small, large = b.select(steep, size_x, size_y), b.select(steep, size_y, size_x)
    both_infinite = b.both(b.compare("oeq", small, math.inf), b.compare("oeq", large, math.inf))
    ratio = b.over(b.select(both_infinite, 1.0, small), b.select(both_infinite, 1.0, b.select(b.compare("oeq", large, 0.0), 1.0, large)))
    # atan(t) = pi/6 + atan((sqrt(3) t - 1) / (sqrt(3) + t)) for t above tan(pi/12).
    root = math.sqrt(3.0)
    reduced = b.compare("ogt", ratio, math.tan(math.pi / 12))
    t = b.select(reduced, b.over(b.fma(ratio, root, -1.0), b.plus(ratio, root)), ratio)
    angle = b.times(t, b.polynomial(_fitted(_atan_of_ratio, b.terms(8, 14) - 1, 0.0, math.tan(math.pi / 12) ** 2 * 1.001), b.times(t, t)))
    angle = b.select(reduced, b.plus(angle, math.pi / 6), angle)
    angle = b.select(steep, b.minus(math.pi / 2, angle), angle)
    left = b.add(f"icmp slt {b.words} {b.bits(x)}, {b.integer(0)}")  # -0.0 too
    angle = b.select(left, b.minus(math.pi, angle), angle)
    return b.select(b.compare("uno", x, y), math.nan, _with_sign(b, angle, y))


def _near_zero(b: Body, x: str, series: tuple[float, ...], out: str, limit: float = 1e-2) -> str:
    """x * polynomial(x) where |x| is below the limit, else out."""
    return b.select(b.compare("olt", b.function("fabs", x), limit), b.times(x, b.polynomial(series, x)), out)


def _expm1(b: Body, x: str) -> str:
    series = tuple(1.0 / math.factorial(n + 1) for n in range(8))
    return _near_zero(b, x, series, b.minus(_exp(b, x), 1.0))


def _log1p(b: Body, x: str) -> str:
    return _near_zero(b, x, tuple((-1) ** n / (n + 1) for n in range(8)), _log(b, b.plus(x, 1.0)))


def _tanh(b: Body, x: str) -> str:
    double = _expm1(b, b.select(b.compare("olt", x, 30.0), b.select(b.compare("ogt", x, -30.0), b.plus(x, x), -60.0), _top(b, x, 60.0)))
    return b.over(double, b.plus(double, 2.0))


def _top(b: Body, x: str, limit: float) -> str:
    """limit, or NaN where x is NaN."""
    return b.select(b.compare("uno", x, x), math.nan, limit)


def _sinh(b: Body, x: str) -> str:
    out = b.times(b.minus(_exp(b, x), _exp(b, b.negative(x))), 0.5)
    series = b.polynomial([1.0 / math.factorial(2 * n + 1) for n in range(8)], b.times(x, x))
    return b.select(b.compare("olt", b.function("fabs", x), 0.5), b.times(x, series), out)


def _cosh(b: Body, x: str) -> str:
    return b.times(b.plus(_exp(b, x), _exp(b, b.negative(x))), 0.5)


def _pow(b: Body, x: str, y: str) -> str:
    """|x|^y with the sign of x where y is an odd integer; NaN for a negative x and a y that is no integer."""
    size = b.function("fabs", x)
    out = _exp(b, b.times(y, _log(b, size)))
    half = b.times(y, 0.5)
    whole = b.compare("oeq", b.function("rint", y), y)  # infinities are even integers
    odd = b.both(whole, b.compare("une", b.function("rint", half), half))
    negative = b.both(b.add(f"icmp slt {b.words} {b.bits(x)}, {b.integer(0)}"), b.compare("ord", x, x))
    out = b.select(b.both(negative, odd), b.negative(out), out)
    undefined = b.both(b.compare("olt", x, 0.0), b.compare("ogt", x, -math.inf))
    undefined = b.both(undefined, b.compare("une", b.function("rint", y), y))
    out = b.select(undefined, math.nan, out)
    unit = b.select(undefined, math.nan, b.select(b.both(negative, odd), -1.0, 1.0))  # of 1 and -1, also to infinite powers
    return b.select(b.compare("oeq", y, 0.0), 1.0, b.select(b.compare("oeq", size, 1.0), unit, out))


def _asin(b: Body, x: str) -> str:
    return _atan2(b, x, b.function("sqrt", b.times(b.minus(1.0, x), b.plus(x, 1.0))))


def _acos(b: Body, x: str) -> str:
    return _atan2(b, b.function("sqrt", b.times(b.minus(1.0, x), b.plus(x, 1.0))), x)


def _with_sign(b: Body, size: str, x: str) -> str:
    """size with the sign of x."""
    return b.add(f"call {b.kind} @llvm.copysign.{b.suffix}({b.kind} {size}, {b.kind} {x})")


def _asinh(b: Body, x: str) -> str:
    """log1p(|x| + x^2 / (1 + sqrt(1 + x^2))), with the sign of x. For large |x|: log |x| + log 2, as the square would overflow."""
    size = b.function("fabs", x)
    large = b.compare("ogt", size, 1e100)
    square = b.times(*[b.select(large, 1.0, size)] * 2)
    small = _log1p(b, b.plus(size, b.over(square, b.plus(b.function("sqrt", b.plus(square, 1.0)), 1.0))))
    return _with_sign(b, b.select(large, b.plus(_log(b, size), math.log(2.0)), small), x)


def _acosh(b: Body, x: str) -> str:
    """log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1."""
    t = b.minus(x, 1.0)
    return _log1p(b, b.plus(t, b.times(b.function("sqrt", t), b.function("sqrt", b.plus(t, 2.0)))))


def _atanh(b: Body, x: str) -> str:
    """log1p(2 |x| / (1 - |x|)) / 2, with the sign of x."""
    size = b.function("fabs", x)
    return _with_sign(b, b.times(_log1p(b, b.over(b.plus(size, size), b.minus(1.0, size))), 0.5), x)


def _cbrt(b: Body, x: str) -> str:
    return _with_sign(b, _exp(b, b.times(_log(b, b.function("fabs", x)), 1.0 / 3.0)), x)


BODIES: dict[str, Callable] = {
    "sin": lambda b, x: _sine(b, x, 0),
    "cos": lambda b, x: _sine(b, x, 1),
    "tan": lambda b, x: b.over(_sine(b, x, 0), _sine(b, x, 1)),
    "asin": _asin,
    "acos": _acos,
    "atan": lambda b, x: _atan2(b, x, b.constant(1.0)),
    "atan2": _atan2,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "exp": _exp,
    "exp2": lambda b, x: _exp(b, b.times(x, math.log(2.0))),
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "log2": lambda b, x: b.times(_log(b, x), 1.0 / math.log(2.0)),
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "cbrt": _cbrt,
    "pow": _pow,
}
"""The functions, for arguments in double precision."""
ELEMENTARY = tuple(BODIES)
SINGLE: dict[str, Callable] = {"sin": lambda lanes, x: _single_sine(lanes, x, 0), "cos": lambda lanes, x: _single_sine(lanes, x, 1)}
"""The functions that single precision evaluates in single precision."""


def definition(name: str, double: bool, lanes: int, gpu: bool) -> str:
    """The function ``@xsim.NAME.SUFFIX`` of vectors. double: whether its numbers are doubles, else single precision."""
    scalar, short = ("double", "f64") if double else ("float", "f32")
    kind, suffix = (f"<{lanes} x {scalar}>", f"v{lanes}{short}") if lanes > 1 else (scalar, short)
    arguments = [f"%x{i}" for i in range(2 if name in BINARY else 1)]
    parameters = ", ".join(f"{kind} {a}" for a in arguments)
    if double and not gpu:
        lines, out = _by_library(name, kind, suffix, lanes, arguments)
    elif not double and name in SINGLE:
        lines, out = SINGLE[name](lanes, *arguments)
    else:
        body = Body(lanes, double)
        wide = arguments if double else [body.add(f"fpext {kind} {a} to {body.kind}") for a in arguments]
        out = BODIES[name](body, *wide)
        if not double:
            out = body.add(f"fptrunc {body.kind} {out} to {kind}")
        lines = body.lines
    if name == "pow":
        general = _function(f"{kind} @xsim.pow.general.{suffix}({parameters}) noinline cold", lines, f"{kind} {out}")
        lines, out = _small_powers(kind, scalar, lanes, f"call {kind} @xsim.pow.general.{suffix}({parameters})")
        return "\n".join([general, _function(f"{kind} @xsim.pow.{suffix}({parameters}) alwaysinline", lines, f"{kind} {out}")])
    return _function(f"{kind} @xsim.{name}.{suffix}({parameters}) alwaysinline", lines, f"{kind} {out}")


def _function(head: str, lines: list[str], returned: str) -> str:
    """A function of the module. head: its type, name, parameters and attributes. returned: type and name."""
    return "\n".join([f"define internal {head} {{", "entry:", *lines, f"  ret {returned}", "}"])


def _small_powers(kind: str, scalar: str, lanes: int, general: str) -> tuple[list[str], str]:
    """A power: lines and result. Where %x1 is 1 or 2, as in most curves of impedance and their derivatives, the result is %x0 or its
    square; a branch leaves out the rest if %x1 is so in all lanes. general: the call of the function of any power."""
    one, two = (f"splat ({scalar} {x})" if lanes > 1 else x for x in ("1.0", "2.0"))
    mask = f"<{lanes} x i1>" if lanes > 1 else "i1"
    begin = [
        f"  %ones = fcmp oeq {kind} %x1, {one}", f"  %twos = fcmp oeq {kind} %x1, {two}", f"  %small = or {mask} %ones, %twos",
        f"  %squared = fmul {kind} %x0, %x0", f"  %either = select {mask} %twos, {kind} %squared, {kind} %x0",
    ]  # fmt: skip
    if lanes > 1:
        begin += [f"  %bits = bitcast {mask} %small to i{lanes}", f"  %some = icmp ne i{lanes} %bits, -1"]
    else:
        begin += ["  %some = xor i1 %small, true"]
    lines = [
        *begin, "  br i1 %some, label %power, label %done, !prof !1", "power:", f"  %general = {general}",
        f"  %any = select {mask} %small, {kind} %either, {kind} %general", "  br label %done", "done:",
        f"  %found = phi {kind} [ %either, %entry ], [ %any, %power ]",
    ]  # fmt: skip
    return lines, "%found"


def _by_library(name: str, kind: str, suffix: str, lanes: int, arguments: list[str]) -> tuple[list[str], str]:
    """A call of the C library for each lane."""
    if name not in NO_INTRINSIC:
        return [f"  %r = call {kind} @llvm.{name}.{suffix}({', '.join(f'{kind} {a}' for a in arguments)})"], "%r"
    if lanes == 1:
        return [f"  %r = call double @{name}(double %x0)"], "%r"
    lines, out = [], "poison"
    for i in range(lanes):
        lines.append(f"  %e{i} = extractelement {kind} %x0, i32 {i}")
        lines.append(f"  %f{i} = call double @{name}(double %e{i})")
        lines.append(f"  %r{i} = insertelement {kind} {out}, double %f{i}, i32 {i}")
        out = f"%r{i}"
    return lines, out


def definitions(used, gpu: bool) -> str:
    """The text of functions. used: (name, whether double, lanes)."""
    declared = [f"declare double @{name}(double)" for name in NO_INTRINSIC if any(n == name and double for n, double, _ in used)]
    return "\n".join([*([] if gpu else declared), *(definition(*key, gpu) for key in sorted(used))])
