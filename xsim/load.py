"""Loading of models. `load` parses and builds; `build` makes the Model and computes unknown length ranges of muscles."""

from __future__ import annotations

from xsim.dynamics.length_range import Search, with_length_ranges
from xsim.io import parse, parse_text
from xsim.model.build import assemble
from xsim.model.model import Model
from xsim.spec import ModelSpec


def build(spec: ModelSpec, *, seed: int = 0) -> Model:
    """The Model of a ModelSpec.

    seed: for random joint parameters (the axes of rr, rr_imp, rsaddle) that the spec does not give. The random key of a body depends on its
    name, so a change of one body does not change the parameters of others. The leaves have jax's default float type. Length ranges of
    muscles that the spec does not give are computed by simulation. Raises ValueError for an inconsistent spec.
    """
    options = spec.option.solver.get("length_range", {})
    search = Search(**{name: x for name, x in options.items() if name in Search._fields})
    return with_length_ranges(assemble(spec, seed=seed), search)


def load(path, *, format: str | None = None, strict: bool = False, seed: int = 0, **options) -> Model:
    """Read a model file and build it.

    format: ``"x_xy"``, ...; None: determined from the file. strict: whether unread content of the file is an error. seed: see `build`.
    options: of the format, see `parse`. Raises `ParseError` for a file that cannot be read.
    """
    return build(parse(path, format=format, strict=strict, **options), seed=seed)


def loads(text: str, format: str, *, strict: bool = False, seed: int = 0, **options) -> Model:
    """Build a model from the text of a file of the given format. See `load`."""
    return build(parse_text(text, format, strict=strict, **options), seed=seed)
