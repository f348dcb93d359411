"""Loading of models. `load` parses and builds; `build` makes the Model and computes unknown length ranges of muscles."""

from __future__ import annotations

import os

from xsim import models
from xsim.dynamics.length_range import Search, with_length_ranges
from xsim.io import ConvexDecomposition, parse, parse_text
from xsim.io.errors import ParseError
from xsim.limits import Limits, limited
from xsim.model.build import assemble
from xsim.model.model import Model
from xsim.spec import ModelSpec
from xsim.suggestions import did_you_mean


def build(spec: ModelSpec, *, seed: int = 0, limits: Limits | None = None) -> Model:
    """Make a Model of a ModelSpec. Its numbers have jax's default float type.

    seed: for the joint parameters that are random (the axes of rr, rr_imp, rsaddle) and not given by the spec. The key of a draw comes
    from the body's name, so editing one body changes no other draw. limits: of its size, None: the defaults of `Limits`.

    The length ranges of muscles that give none are searched by simulation.

    Raises ValueError where the spec is inconsistent, with the line of the file that it came from.
    """
    options = spec.option.solver.get("length_range", {})
    search = Search(**{name: x for name, x in options.items() if name in Search._fields})
    with limited(limits):
        return with_length_ranges(assemble(spec, seed=seed), search)


def load(
    path, *, format: str | None = None, strict: bool = False, seed: int = 0,
    convex_decomposition: bool | ConvexDecomposition | None = None, limits: Limits | None = None, **options,
) -> Model:  # fmt: skip
    """Read a model file and build it: `parse`, then `build`.

    path: of the file, or the name of a bundled model (`xsim.models.names`) where there is no such file. format: ``"x_xy"``, ``"mjcf"``,
    ``"sdf"``, ``"urdf"``, ``"skel"`` or ``"chrono"``; None: from the file itself. strict: whatever the file has that is not read is an
    error, instead of one line of an `UnsupportedWarning`. seed: for joint parameters that the format leaves to chance.
    convex_decomposition: whether meshes collide by convex parts instead of their hull: True, or which and how (`ConvexDecomposition`);
    None: where the file asks for it. limits: of its size, None: the defaults of `Limits`. options: of the format. See `parse` for both.

    Raises `ParseError` for a file that cannot be read or means nothing, TypeError for an option that the format does not have.
    """
    if isinstance(path, str) and path.isidentifier() and not os.path.exists(path):
        if path in models.names():
            path = models.path(path)
        elif hint := did_you_mean(path, models.names()):
            raise ParseError(path, None, f"no file and no bundled model{hint}; see xsim.models.names()")
    spec = parse(path, format=format, strict=strict, convex_decomposition=convex_decomposition, limits=limits, **options)
    return build(spec, seed=seed, limits=limits)


def loads(
    text: str, format: str, *, strict: bool = False, seed: int = 0, convex_decomposition: bool | ConvexDecomposition | None = None,
    limits: Limits | None = None, **options,
) -> Model:  # fmt: skip
    """Build a model from the text of a file of the given format. Arguments and errors as in `load`."""
    spec = parse_text(text, format, strict=strict, convex_decomposition=convex_decomposition, limits=limits, **options)
    return build(spec, seed=seed, limits=limits)
