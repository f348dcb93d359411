"""Writer of URDF: links, joints, masses, shapes and limits of a model, whatever format it was read from.

What URDF cannot say is an error that names it, or with ``unsupported="warn"`` a line of one warning.
"""

from __future__ import annotations

from typing import NamedTuple

from lxml import etree

from xsim.io.errors import Losses
from xsim.io.urdf.writer.document import Document
from xsim.io.urdf.writer.joints import write_bodies
from xsim.io.urdf.writer.mimics import write_mimics
from xsim.io.urdf.writer.unsupported import report_unsupported
from xsim.io.writing.begin import begin
from xsim.spec import ModelSpec

__all__ = ["Written", "to_urdf", "written"]

MESHES = "meshes"


class Written(NamedTuple):
    """A URDF, the mesh files beside it by their names in it, and what it lacks."""

    text: str
    files: dict[str, bytes]
    losses: Losses


def to_urdf(spec: ModelSpec, *, unsupported: str = "error") -> str:
    """The text of a URDF file with this model, whatever format it was read from.

    Coordinates are those of the model: a joint at q in the one is at q in the other. A joint of several hinges and slides is a chain of
    URDF's joints with links without mass between them. A model with one free body below the world and no shapes on the world has that
    body as its root; every other model has a root link called ``world``. Names are made unique; bodies without names get one. Meshes that
    are no files of their own are named as files in a folder ``meshes``: `xsim.write` writes them.

    What URDF leaves to the simulator is not written: the time step, the state at the start, how limits, dry friction and contacts are
    enforced, and which links may touch. Gravity is an error where it is not that of its readers. Coefficients of contact friction are in
    Bullet's element ``<contact>``. A motor of a joint becomes the largest effort of the joint, without its gear.

    unsupported: ``"error"``: what URDF cannot say raises WriteError, which names the element. ``"warn"``: it is left out, or what is
    nearest to it is written, and one `WriteWarning` has a line about each. What would leave no model is an error in both cases (balls,
    random axes). Sensors, sites, cameras and other things that move nothing are lines of the warning in both cases.
    """
    text, _, losses = written(spec, unsupported, MESHES)
    losses.emit(stacklevel=3)
    return text


def written(spec: ModelSpec, unsupported: str, folder: str) -> Written:
    """The document. folder: of the mesh files, relative to that of the document. Errors: as in `to_urdf`, TypeError for what is no spec."""
    document = Document(spec, begin(spec, unsupported, "URDF"), folder)
    report_unsupported(document)
    write_bodies(document)
    write_mimics(document)
    etree.indent(document.root, "  ")
    text = etree.tostring(document.root, encoding="unicode")
    return Written(f'<?xml version="1.0"?>\n{text}\n', document.files, document.losses)
