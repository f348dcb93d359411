"""Writer of MJCF: every model that MuJoCo's format can say, whatever format it was read from.

Nothing in the text depends on defaults of classes, on files, or on inertia computed by a compiler. `chains` makes MJCF's joints of those
of every type. What MJCF cannot say is an error that names it, or with ``unsupported="warn"`` a line of one warning.
"""

from __future__ import annotations

from lxml import etree

from xsim.io.errors import Losses, ParseError
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.releases import RELEASES
from xsim.io.mjcf.schema import check_schema
from xsim.io.mjcf.writer.actuators import write_actuators, write_commands
from xsim.io.mjcf.writer.assets import write_assets, write_skins
from xsim.io.mjcf.writer.bodies import write_bodies
from xsim.io.mjcf.writer.contacts import write_contacts
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.deformable import write_flexes
from xsim.io.mjcf.writer.equalities import write_equalities
from xsim.io.mjcf.writer.keyframes import write_custom, write_keys
from xsim.io.mjcf.writer.mechanisms import write_constraints, write_forces
from xsim.io.mjcf.writer.options import check_friction, write_compiler, write_drawing, write_option
from xsim.io.mjcf.writer.sensors import write_sensors
from xsim.io.mjcf.writer.tendons import write_tendons
from xsim.io.reader import Element
from xsim.io.writing.begin import begin
from xsim.io.writing.elements import put_names_first
from xsim.spec import ModelSpec

__all__ = ["to_mjcf", "written"]

COMMENT = " In the language of MuJoCo {0}{1}. "
READ_BACK = ', read it with rules="4.0"'


def to_mjcf(spec: ModelSpec, *, unsupported: str = "error") -> str:
    """The text of an MJCF file with this model, whatever format it was read from.

    Bodies are in depth-first order; joints of other formats are chains of hinges, slides and balls. Every body has an ``inertial``, every
    mesh and height field its numbers in the text. The language is that of the release in ``spec.rules``, of 3.2 where that is empty; a
    comment at the top says it. Vertices of meshes have single precision, as in MuJoCo.

    unsupported: ``"error"``: what MJCF cannot say raises WriteError, which names the element. ``"warn"``: it is left out, or what is
    nearest to it is written, and one `WriteWarning` has a line about each. What would leave no model is an error in both cases.

    Pictures that MJCF cannot show, and rules of integration that are not MuJoCo's, are lines of the warning in both cases. What is no part
    of the model itself is not written: ranges from which `randomize` samples, the file and line of elements.
    """
    text, losses = written(spec, unsupported)
    losses.emit(stacklevel=3)
    return text


def written(spec: ModelSpec, unsupported: str) -> tuple[str, Losses]:
    """The text, and what it lacks. Arguments and errors as in `to_mjcf`, TypeError for what is no spec."""
    losses, rules = begin(spec, unsupported, "MJCF"), spec.rules or "3.2"
    context = Context(spec, etree.Element("mujoco"), rules, losses)
    _write(context)
    _check(context)
    put_names_first(context.root)
    etree.indent(context.root, "  ")
    comment = COMMENT.format(rules, READ_BACK if rules == "4.0" else "")
    return f"<!--{comment}-->\n{etree.tostring(context.root, encoding='unicode')}\n", losses


def _write(context: Context) -> None:
    """All sections. An element refers to those that have been written."""
    if context.spec.name:
        context.root.set("model", context.spec.name)
    write_compiler(context)
    write_option(context)
    check_friction(context)
    write_drawing(context)
    write_assets(context)
    write_bodies(context)
    write_skins(context)
    write_flexes(context)
    write_contacts(context)
    write_tendons(context)
    write_forces(context)
    write_equalities(context)
    write_constraints(context)
    write_actuators(context)
    write_commands(context)
    write_sensors(context)
    write_custom(context)
    write_keys(context)


def _check(context: Context) -> None:
    """Raises WriteError for what the language of the release does not have."""
    try:
        check_schema(Node.of(Element(context.root, "")), RELEASES[context.rules])
    except ParseError as error:
        context.losses.refuse(context.spec.source, "model", error.text)
