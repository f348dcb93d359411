"""<flex>: deformables."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.mjcf.grids import ORDERS
from xsim.io.mjcf.references import split_names
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.geoms import contact_parameters
from xsim.io.writing.elements import XML, add, unless
from xsim.spec import FlexSpec

__all__ = ["write_flexes"]

ELASTICITY = {"young": ("young", 0.0), "poisson": ("poisson", 0.0), "damping": ("elastic_damping", 0.0), "thickness": ("thickness", -1.0)}
ELASTICITY_4_0 = ELASTICITY | {"elastic2d": ("elastic2d", "none")}
EDGE = {"stiffness": ("edge_stiffness", 0.0), "damping": ("edge_damping", 0.0)}


def write_flexes(context: Context) -> None:
    """All flexes. Bodies must have their names. Raises WriteError for names that a list of names cannot hold."""
    for number, flex in enumerate(context.spec.flexes):
        look, one_body = flex.numbers, len(set(flex.bodies)) == 1
        body = " ".join(_body_names(context, flex, flex.bodies[:1] if one_body and flex.grid is None else flex.bodies))
        pos = flex.pos if one_body or np.any(flex.pos) else None
        if flex.grid is None:
            points = {"body": body, "vertex": pos}
        else:
            dof = next(name for name, order in ORDERS.items() if order == flex.grid.order)
            points = {"node": body, "nodecoord": pos, "cellcount": flex.grid.counts, "dof": dof}
            points |= {"body": context.names.of("body", -1), "vertex": flex.grid.vertices}
        e = add(
            context.section("deformable"), "flex",
            dim=flex.dim,
            **points,
            element=flex.elements,
            radius=flex.radius,
            texcoord=look.get("texcoord"),
            flatskin=unless(False, look.get("flat_skin", False)),
            material=look.get("material") or None,
            rgba=look.get("rgba"),
            group=unless(0, look.get("group", 0)),
        )  # fmt: skip
        context.names.enter("flex", number, e, flex.name)
        _write_contact(context, e, look)
        for tag, table in (("elasticity", ELASTICITY if context.rules == "3.2" else ELASTICITY_4_0), ("edge", EDGE)):
            attributes = {name: unless(default, look.get(key, default)) for name, (key, default) in table.items()}
            strains = look.get("yield_strain", 0.0), look.get("bend_yield_strain", 0.0)
            if tag == "elasticity" and any(strains):
                attributes["yield"] = strains if flex.dim == 2 else strains[0]
            if tag == "elasticity" and flex.rod is not None:
                box = flex.rod.section or None
                attributes |= {"shear": unless(0.0, flex.rod.shear), "section": box and "box", "sectionsize": box}
            if any(value is not None for value in attributes.values()):
                add(e, tag, **attributes)


def _body_names(context: Context, flex: FlexSpec, bodies: tuple[int, ...]) -> list[str]:
    names = [context.names.of("body", body) for body in bodies]
    for name in names:
        if split_names(name) != [name]:
            context.losses.refuse(flex.source, f"flex {flex.name!r}", f"a body called {name!r}; MJCF has names without blanks here")
    return names


def _write_contact(context: Context, e: XML, look: dict[str, Any]) -> None:
    surface = look["contact"]
    add(
        e, "contact",
        contype=surface.contype,
        conaffinity=surface.conaffinity,
        **contact_parameters(surface),
        internal=look["internal"] if context.rules == "3.2" else None,
        selfcollide=look["selfcollide"],
        activelayers=look["active_layers"],
        passive=unless(False, look.get("passive", False)),
    )  # fmt: skip
