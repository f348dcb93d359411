"""What the parts of the writer share: the model, the names of what has been written, and what could not be said."""

from __future__ import annotations

from dataclasses import dataclass, field

from xsim.io.errors import Losses
from xsim.io.mjcf.writer.body_joints import check_fits
from xsim.io.mjcf.writer.massless import merged
from xsim.io.writing.chains import Chain, Link, chain_of
from xsim.io.writing.elements import XML, add
from xsim.io.writing.names import Names
from xsim.spec import GeomSpec, ModelSpec, Source

__all__ = ["Context"]


@dataclass
class Context:
    """root: <mujoco>. rules: the release whose language is written. chains: the joints of each body. carried: by massless body, the body
    that has its joints (see `massless`)."""

    spec: ModelSpec
    root: XML
    rules: str
    losses: Losses
    names: Names = field(init=False)
    chains: list[Chain] = field(init=False)
    carried: dict[int, int] = field(init=False)

    def __post_init__(self):
        chains = [chain_of(body, self.losses) for body in self.spec.bodies]
        for body, chain in zip(self.spec.bodies, chains, strict=True):
            check_fits(body, chain.links, self.losses)
        self.chains, self.carried = merged(self.spec, chains)
        self.names = Names(self.spec, "body")

    def section(self, tag: str) -> XML:
        """The top-level element with this tag, made at its first use."""
        found = self.root.find(tag)
        return add(self.root, tag) if found is None else found

    def geoms(self) -> list[tuple[int, GeomSpec]]:
        """All geoms in the order of their numbers, each with its body (-1: the world)."""
        bodies = [(i, geom) for i, body in enumerate(self.spec.bodies) for geom in body.geoms]
        return [(-1, geom) for geom in self.spec.world_geoms] + bodies

    def links(self) -> list[tuple[int, Link]]:
        """All joints of MJCF, body by body, each with its body."""
        return [(i, link) for i, chain in enumerate(self.chains) for link in chain.links]

    def joint_name(self, where: tuple[int, int], source: Source, element: str) -> str:
        """The name of the joint (body, which of its joints). Raises WriteError where it is no single joint of MJCF."""
        body, place = where
        links = [link for link in self.chains[body].links if link.place == place]
        if len(links) != 1:
            text = f"a joint of body {self.spec.bodies[body].name!r} that becomes {len(links)} joints; MJCF has references to one joint"
            self.losses.refuse(source, element, text)
        return self.names.of("joint", (body, links[0].first))
