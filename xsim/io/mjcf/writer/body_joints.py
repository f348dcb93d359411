"""The joints that one body of MJCF can have."""

from __future__ import annotations

from collections.abc import Sequence

from xsim.io.errors import Losses
from xsim.io.writing.chains import Link
from xsim.joints.types import JOINT_TYPES
from xsim.spec import BodySpec

__all__ = ["check_fits", "fits"]

MAX_DOFS = 6  # of the joints of one body


def fits(links: Sequence[Link]) -> bool:
    """Whether one body of MJCF can have these joints."""
    kinds = [link.kind for link in links]
    turns = kinds[kinds.index("ball") + 1 :] if "ball" in kinds else []
    free = "free" in kinds and len(kinds) > 1
    return not free and "hinge" not in turns and "ball" not in turns and sum(JOINT_TYPES[kind].nv for kind in kinds) <= MAX_DOFS


def check_fits(body: BodySpec, links: Sequence[Link], losses: Losses) -> None:
    """Raises WriteError for joints that one body of MJCF cannot have."""
    if not fits(links):
        kinds = ", ".join(link.kind for link in links)
        text = f"the joints {kinds} of one body; MJCF has up to {MAX_DOFS} degrees of freedom, and slides alone after a ball"
        losses.refuse(body.source, f"body {body.name!r}", text)
