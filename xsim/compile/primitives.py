"""Primitives of JAX for functions that programs evaluate in another way than operation by operation."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from xsim.compile.rules import struct_of

__all__ = ["primitive_of"]


def primitive_of(name: str, function: Callable) -> Primitive:
    """A primitive that means a function(*arrays, **parameters) -> list of arrays.

    XLA compiles the function, and its derivatives and its `jax.vmap` are those of the function. Programs have a rule of their own for it
    (`xsim.compile.flatten.RULES`)."""
    primitive = Primitive(name)
    primitive.multiple_results = True

    def of(parameters) -> Callable:
        return functools.partial(function, **parameters)

    def shapes(*arrays, **parameters):
        return [jax.core.ShapedArray(x.shape, x.dtype) for x in jax.eval_shape(of(parameters), *map(struct_of, arrays))]

    def differentiated(primals, tangents, **parameters):
        return jax.jvp(of(parameters), tuple(primals), tuple(ad.instantiate_zeros(t) for t in tangents))

    def batched(arrays, axes, **parameters):
        out = jax.vmap(of(parameters), axes)(*arrays)
        return out, [0] * len(out)

    primitive.def_impl(lambda *arrays, **parameters: of(parameters)(*arrays))
    primitive.def_abstract_eval(shapes)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=True))
    ad.primitive_jvps[primitive] = differentiated
    batching.primitive_batchers[primitive] = batched
    return primitive
