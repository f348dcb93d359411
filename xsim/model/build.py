"""assemble(spec) -> Model: checks the spec, numbers the tree, reads every part of the spec, makes the leaves."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from xsim.model.appearance import read_drawing
from xsim.model.contact_pairs import read_pairs
from xsim.model.devices import read_devices, with_reflected_rows
from xsim.model.flexes import read_flexes
from xsim.model.geoms import read_assets, read_geoms, read_sdfs
from xsim.model.holonomic import read_holonomic
from xsim.model.leaf_rows import LeafRows, leaf_array
from xsim.model.model import GROUPS, Model, Option
from xsim.model.soft_constraints import read_soft_constraints
from xsim.model.topology import Topology
from xsim.model.tree import fail, number_tree
from xsim.registry import INTEGRATORS
from xsim.spec import CONSTRAINT_KINDS, ModelSpec


def assemble(spec: ModelSpec, *, seed: int = 0) -> Model:
    """The Model of a ModelSpec, see `xsim.build`. Unknown length ranges of muscles are NaN. Raises ValueError for an invalid spec."""
    _check_option(spec)
    spec = with_reflected_rows(spec)
    rows = LeafRows()
    tree = number_tree(spec, jax.random.key(seed), rows)
    geoms = read_geoms(spec, tree)
    devices = read_devices(spec, tree)
    flexes = read_flexes(spec, tree)
    pairs = read_pairs(spec, flexes.index, rows)
    topology = Topology(
        name=spec.name,
        rules=spec.rules,
        **_read_option(spec),
        **tree.structure(spec),
        **read_holonomic(spec, tree),
        **devices.infos,
        **read_assets(spec, pairs.infos),
        sdfs=read_sdfs(spec, rows),
        **pairs.structure(),
        geoms=geoms,
        flexes=tuple(flexes.infos),
        drawing=read_drawing(spec, geoms),
        soft=read_soft_constraints(spec, tree, devices.infos["tendons"], flexes),
        sizes=tuple({**rows.sizes(), **devices.sizes, "nmocap": len(tree.mocaps), "nplastic": tree.nplastic}.items()),
    )
    groups = {name: rows.arrays(name) for name in GROUPS if name not in ("option", "joint")}
    params = {name: leaf_array(values, f"joint.{name}") for name, values in tree.joint_parameters().items()}
    return Model(option=_option(spec), joint=rows.arrays("joint", params=params), topology=topology, **groups)


def _check_option(spec: ModelSpec) -> None:
    option = spec.option
    if option.integrator not in INTEGRATORS:
        fail(spec.source, INTEGRATORS.unknown(option.integrator))
    unknown = [kind for kind in option.constraint_kinds if kind not in CONSTRAINT_KINDS]
    if unknown:
        fail(spec.source, f"unknown kind of constraint {unknown[0]!r}; known: {', '.join(CONSTRAINT_KINDS)}")
    if not np.all(np.isfinite(option.gravity)) or np.shape(option.gravity) != (3,):
        fail(spec.source, "gravity must be three finite numbers")
    if not option.dt > 0:
        fail(spec.source, f"dt must be positive, found {option.dt}")


def _read_option(spec: ModelSpec) -> dict[str, Any]:
    """Fields of the Topology: options."""
    option = spec.option
    return {
        "integrator": option.integrator,
        "constraint_kinds": tuple(kind for kind in CONSTRAINT_KINDS if kind in option.constraint_kinds),
        "disabled": tuple(option.disabled),
        "noslip": bool(option.solver.get("noslip_iterations")),
        "exact_mobility": bool(option.solver.get("diagexact")),
        "speculative": bool(option.solver.get("speculative") and option.solver.get("nativeccd")),
        "multiccd": bool(option.solver.get("multiccd")),
        "sdf_search": (int(option.solver.get("sdf_initpoints", 40)), int(option.solver.get("sdf_iterations", 10))),
    }


def _option(spec: ModelSpec) -> Option:
    option = spec.option
    return Option(*(leaf_array(getattr(option, name), f"option.{name}") for name in ("gravity", "dt", "regularization")))
