"""<mimic>: coordinates that follow another one."""

from __future__ import annotations

from xsim.io.urdf.writer.document import Document, ScalarJoint
from xsim.io.writing.elements import add, unless
from xsim.spec import EqualitySpec

__all__ = ["write_mimics"]


def write_mimics(document: Document) -> None:
    """Raises WriteError for other constraints, for soft ones, and where a coordinate follows two."""
    for number, constraint in enumerate(document.spec.constraints):
        ends = _ends(document, constraint.coordinates) if constraint.kind == "mimic" else None
        if ends is None:
            text = f"kind {constraint.kind!r}; URDF has hinges and slides that each follow one other"
            document.losses.lose(constraint.source, f"constraint {constraint.name or number!r}", text, "it is left out")
        else:
            _follow(*ends, constraint.multiplier, constraint.offset - constraint.multiplier * constraint.reference)
    for number, equality in enumerate(document.spec.equalities):
        ends = _ends(document, equality.items) if _is_line(equality) else None
        text = f"a soft {equality.kind} equality; URDF has hinges and slides that each follow one other"
        instead = "it is left out" if ends is None else "the joint follows the other one exactly"
        document.losses.lose(equality.source, f"equality {equality.name or number!r}", text, instead)
        if ends is not None:  # its numbers count from the reference pose
            offset, slope = map(float, equality.polycoef[:2])
            _follow(*ends, slope, offset + ends[0].reference - slope * ends[1].reference)


def _is_line(equality: EqualitySpec) -> bool:
    """Whether one joint follows another one along a straight line."""
    return equality.kind == "joint" and len(equality.items) == 2 and equality.active and not any(equality.polycoef[2:])


def _ends(document: Document, coordinates: tuple) -> tuple[ScalarJoint, ScalarJoint] | None:
    """The follower and the leader, None where they are no hinges and slides, or the follower follows another one."""
    ends = [document.joints[item] for item in coordinates if item in document.joints]
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0].element.find("mimic") is None else None


def _follow(follower: ScalarJoint, leader: ScalarJoint, multiplier: float, offset: float) -> None:
    name = str(leader.element.get("name"))
    add(follower.element, "mimic", joint=name, multiplier=unless(1.0, multiplier), offset=unless(0.0, offset))
