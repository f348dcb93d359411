"""Operations on values, with constants folded and neutral elements removed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from xsim.compile.program import BOOL, Program


def _divided(a, b):
    """Division as XLA does it: integers are rounded towards zero."""
    if a.dtype.kind != "f":
        return (np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1))).astype(a.dtype)
    return np.divide(a, b)


def _shifted_right(a, b):
    """The bits of the sign move, too."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return np.right_shift(a.astype(unsigned), b.astype(unsigned)).astype(a.dtype)


def _trailing_zeros(x):
    """The place of the lowest bit that is set, the number of bits if none is."""
    return np.where(x == 0, 8 * x.itemsize, np.bitwise_count((x & -x) - 1)).astype(x.dtype)


def _selected(which, *cases):
    return np.choose(which.astype(int), cases) if which.ndim else np.asarray(cases[int(which)])


FOLDED: dict[str, Callable] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divided, "rem": np.fmod, "max": np.maximum,
    "min": np.minimum, "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "sqrt": np.sqrt,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "cbrt": np.cbrt, "pow": np.power, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "is_finite": np.isfinite, "select_n": _selected, "round_even": np.rint,
    "round_away": lambda x: (np.sign(x) * np.floor(np.abs(x) + 0.5)).astype(x.dtype),
    "shift_right_logical": _shifted_right, "shift_right_arithmetic": np.right_shift, "shift_left": np.left_shift,
    "trailing_zeros": _trailing_zeros,
}  # fmt: skip
"""The numpy function of each operation on scalars, for constants."""
CONVERSIONS: dict[str, Callable] = {"convert": lambda x, dtype: x.astype(dtype), "bitcast": lambda x, dtype: x.view(dtype)}
"""The same of operations that have a type as a parameter."""
COMMUTATIVE = {"mul": "mul", "add": "add", "add_any": "add"}
"""Operations whose arguments are ordered, so that equal ones are found, and their names in programs."""


class Builder:
    """Adds operations on scalars to a program."""

    def __init__(self, program: Program):
        self.program = program
        conjunction, disjunction = (partial(self._logic, neutral=neutral) for neutral in (True, False))
        self.rules = {
            "neg": self._neg, "select_n": self._select, "and": conjunction, "or": disjunction, "mul": self._product_of_negative,
            "add": self._sum_of_negative, "sub": self._minus_negative,
        }  # fmt: skip
        self.rules_of_constants = {**self.rules, "mul": self._mul, "add": self._add, "sub": self._sub, "div": self._div, "ne": self._ne}

    def constant(self, number, dtype) -> int:
        """A constant of a dtype."""
        return self.program.constant(np.asarray(number, dtype)[()])

    def operation(self, name: str, dtype: np.dtype, arguments: tuple[int, ...]) -> int:
        """The value of an operation, simplified where possible.

        A product with a constant zero is zero. Constant zeros are entries of arrays, such as those of a sparse Jacobian, not measured
        numbers; a product with a zero that is written in the code, as in ``x * 0.0``, is kept (see `exact`)."""
        p = self.program
        if name in COMMUTATIVE:
            name = COMMUTATIVE[name]
            if arguments[0] > arguments[1]:
                arguments = arguments[::-1]
        constants = sum([p.names[x] == "constant" for x in arguments])
        if constants == len(arguments):
            return self._fold(name, dtype, arguments)
        rule = (self.rules_of_constants if constants else self.rules).get(name)
        found = rule(arguments, dtype) if rule is not None else None
        return p.operation(name, dtype, arguments) if found is None else found

    def exact(self, name: str, dtype: np.dtype, arguments: tuple[int, ...]) -> int:
        """The operation itself, not simplified."""
        return self.program.operation(name, dtype, arguments)

    def _fold(self, name: str, dtype: np.dtype, arguments: tuple[int, ...]) -> int:
        numbers = [np.asarray(self.program.data[x]) for x in arguments]
        with np.errstate(all="ignore"):
            out = CONVERSIONS[name](numbers[0], dtype) if name in CONVERSIONS else FOLDED[name](*numbers)
        return self.constant(out, dtype)

    def _is(self, x: int, number) -> bool:
        p = self.program
        return p.names[x] == "constant" and p.data[x] == number

    def _with_constant(self, xs) -> tuple[np.generic, int]:
        """The number of the constant among two arguments, and the other argument."""
        constant, other = xs if self.program.names[xs[0]] == "constant" else xs[::-1]
        return self.program.data[constant], other

    def _mul(self, xs, dtype):
        number, other = self._with_constant(xs)
        if number == 0:
            return self.constant(0, dtype)
        if number == -1 and dtype.kind == "f":
            return self.operation("neg", dtype, (other,))
        return other if number == 1 else None

    def _add(self, xs, dtype):
        number, other = self._with_constant(xs)
        return other if number == 0 else None

    def _sub(self, xs, dtype):
        if self._is(xs[1], 0):
            return xs[0]
        return self.operation("neg", dtype, xs[1:]) if self._is(xs[0], 0) and dtype.kind == "f" else None

    def _div(self, xs, dtype):
        if self._is(xs[0], 0):
            return self.constant(0, dtype)
        return xs[0] if self._is(xs[1], 1) else None

    def _ne(self, xs, dtype):
        """Whether a number that is a boolean differs from zero."""
        number, other = self._with_constant(xs)
        of = self.program.arguments[other][0] if self.program.names[other] == "convert" else None
        return of if of is not None and number == 0 and self.program.types[of] == BOOL else None

    # Signs are moved out of products into sums, which take them without an operation. The results are the same to the last bit.

    def _positive(self, x: int) -> int | None:
        """y where x is -y, else None."""
        p = self.program
        return p.arguments[x][0] if p.names[x] == "neg" and p.types[x].kind == "f" else None

    def _product_of_negative(self, xs, dtype):
        signs = [self._positive(x) for x in xs]
        if signs == [None, None]:
            return None
        out = self.operation("mul", dtype, tuple(x if y is None else y for x, y in zip(xs, signs, strict=True)))
        return self.operation("neg", dtype, (out,)) if None in signs else out

    def _sum_of_negative(self, xs, dtype):
        for a, b in (xs, xs[::-1]):
            positive = self._positive(b)
            if positive is not None:
                return self.operation("sub", dtype, (a, positive))
        return None

    def _minus_negative(self, xs, dtype):
        positive = self._positive(xs[1])
        return None if positive is None else self.operation("add", dtype, (xs[0], positive))

    def _neg(self, xs, dtype):
        p = self.program
        return p.arguments[xs[0]][0] if p.names[xs[0]] == "neg" else None

    def _select(self, xs, dtype):
        which, *cases = xs
        number = self.program.number(which)
        if number is not None:
            return cases[int(number)]
        if all(x == cases[0] for x in cases):
            return cases[0]
        if len(cases) == 2 and self.program.types[which] == BOOL:
            return None
        out = cases[-1]  # an integer selects among several cases
        for i in range(len(cases) - 2, -1, -1):
            is_i = self.operation("eq", BOOL, (which, self.constant(i, self.program.types[which])))
            out = self.operation("select_n", dtype, (is_i, out, cases[i]))
        return out

    def _logic(self, xs, dtype, neutral: bool):
        """And (whose neutral element is true) and or."""
        if xs[0] == xs[1]:
            return xs[0]
        for a, b in (xs, xs[::-1]) if dtype == BOOL else ():
            number = self.program.number(a)
            if number is not None:
                return b if bool(number) == neutral else a
        return None
