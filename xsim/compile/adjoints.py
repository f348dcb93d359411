"""Derivatives of operations on numbers, in reverse mode: those that JAX defines, also where an operation has no derivative."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from xsim.compile.program import BOOL
from xsim.compile.simplify import Builder


class Operations:
    """Operations on values of one type. A number stands for a constant."""

    def __init__(self, builder: Builder, dtype: np.dtype):
        self.builder, self.dtype = builder, dtype

    def _value(self, x) -> int:
        return self.builder.constant(x, self.dtype) if isinstance(x, float) else x

    def __call__(self, name: str, *xs) -> int:
        """An operation whose result has this type."""
        return self.builder.operation(name, self.dtype, tuple(self._value(x) for x in xs))

    def compare(self, name: str, x, y) -> int:
        return self.builder.operation(name, BOOL, (self._value(x), self._value(y)))

    def where(self, condition: int, x, y) -> int:
        return self("select_n", condition, y, x)

    def exact_mul(self, x, y) -> int:
        """A product that is NaN where one factor is zero and the other is not finite."""
        return self.builder.exact("mul", self.dtype, (self._value(x), self._value(y)))


Rule = Callable[..., int]
"""rule(operations, cotangent of the result, result, *arguments) -> cotangent of an argument."""


def _product(position: int) -> Rule:
    def rule(o: Operations, g, out, *xs):
        other = xs[1 - position]
        number = o.builder.program.number(other)
        return o.exact_mul(g, other) if number is not None and number == 0 else o("mul", g, other)

    return rule


def _numerator(o: Operations, g, out, x, y):
    """g / y. The environments share the reciprocal of a number that they share; a product takes a fraction of the time of a division."""
    return o("div", g, y) if o.builder.program.varying[y] else o("mul", g, o("div", 1.0, y))


def _denominator(o: Operations, g, out, x, y):
    """-g x / y^2. Of a reciprocal it is a product."""
    number = o.builder.program.number(x)
    quotient = o("mul", g, out) if number is not None and number == 1 else _numerator(o, g, out, x, y)
    return o("neg", o("mul", quotient, out))


def _extreme(name: str, position: int) -> Rule:
    """Of max and min. Equal arguments share the cotangent."""

    def rule(o: Operations, g, out, *xs):
        x, other = xs[position], xs[1 - position]
        chosen = o.where(o.compare(name, x, other), g, 0.0)
        return o.where(o.compare("eq", x, other), o("mul", 0.5, g), chosen)

    return rule


def _power_base(o: Operations, g, out, x, y):
    return o("mul", g, o("mul", y, o("pow", x, o("sub", y, 1.0))))


def _power_exponent(o: Operations, g, out, x, y):
    return o("mul", g, o("mul", o("log", o.where(o.compare("eq", x, 0.0), 1.0, x)), out))


def _remainder_divisor(o: Operations, g, out, x, y):
    quotient = o("div", x, y)
    return o("neg", o("mul", g, o("mul", o("sign", quotient), o("floor", o("abs", quotient)))))


def _squared_radius(o: Operations, x, y):
    return o("add", o("mul", x, x), o("mul", y, y))


def _inverse_circle(o: Operations, x):
    return o("rsqrt", o("sub", 1.0, o("mul", x, x)))


def _half_over_root(o: Operations, g, out, x):
    return o("mul", g, o("div", 0.5, out))


ADJOINTS: dict[str, tuple[Rule | None, ...]] = {
    "add": (lambda o, g, *_: g, lambda o, g, *_: g),
    "sub": (lambda o, g, *_: g, lambda o, g, *_: o("neg", g)),
    "mul": (_product(0), _product(1)),
    "div": (_numerator, _denominator),
    "rem": (lambda o, g, *_: g, _remainder_divisor),
    "neg": (lambda o, g, *_: o("neg", g),),
    "max": (_extreme("gt", 0), _extreme("gt", 1)),
    "min": (_extreme("lt", 0), _extreme("lt", 1)),
    "abs": (lambda o, g, out, x: o.where(o.compare("ge", x, 0.0), g, o("neg", g)),),
    "select_n": (None, lambda o, g, out, which, *_: o.where(which, 0.0, g), lambda o, g, out, which, *_: o.where(which, g, 0.0)),
    "sqrt": (_half_over_root,),
    "rsqrt": (lambda o, g, out, x: o("mul", g, o("mul", -0.5, o("div", out, x))),),
    "sin": (lambda o, g, out, x: o("mul", g, o("cos", x)),),
    "cos": (lambda o, g, out, x: o("neg", o("mul", g, o("sin", x))),),
    "tan": (lambda o, g, out, x: o("mul", g, o("add", 1.0, o("mul", out, out))),),
    "asin": (lambda o, g, out, x: o("mul", g, _inverse_circle(o, x)),),
    "acos": (lambda o, g, out, x: o("neg", o("mul", g, _inverse_circle(o, x))),),
    "atan": (lambda o, g, out, x: o("div", g, o("add", 1.0, o("mul", x, x))),),
    "atan2": (
        lambda o, g, out, y, x: o("mul", g, o("div", x, _squared_radius(o, x, y))),
        lambda o, g, out, y, x: o("mul", g, o("div", o("neg", y), _squared_radius(o, x, y))),
    ),
    "sinh": (lambda o, g, out, x: o("mul", g, o("cosh", x)),),
    "cosh": (lambda o, g, out, x: o("mul", g, o("sinh", x)),),
    "tanh": (lambda o, g, out, x: o("mul", g, o("sub", 1.0, o("mul", out, out))),),
    "exp": (lambda o, g, out, x: o("mul", g, out),),
    "exp2": (lambda o, g, out, x: o("mul", g, o("mul", math.log(2.0), out)),),
    "expm1": (lambda o, g, out, x: o("mul", g, o("add", out, 1.0)),),
    "log": (lambda o, g, out, x: o("div", g, x),),
    "log1p": (lambda o, g, out, x: o("div", g, o("add", x, 1.0)),),
    "log2": (lambda o, g, out, x: o("div", g, o("mul", math.log(2.0), x)),),
    "asinh": (lambda o, g, out, x: o("mul", g, o("rsqrt", o("add", o("mul", x, x), 1.0))),),
    "acosh": (lambda o, g, out, x: o("mul", g, o("rsqrt", o("mul", o("sub", x, 1.0), o("add", x, 1.0)))),),
    "atanh": (lambda o, g, out, x: o("div", g, o("mul", o("sub", 1.0, x), o("add", 1.0, x))),),
    "cbrt": (lambda o, g, out, x: o("div", g, o("mul", 3.0, o("mul", out, out))),),
    "pow": (_power_base, _power_exponent),
    **{name: (None,) for name in ("sign", "floor", "ceil", "round_even", "round_away")},
}
"""By operation, the rule of each argument; None for one that is no float, or of which the result is a step function."""
