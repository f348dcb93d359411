"""Contacts that an engine recorded, beside xsim's own and in their place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
from traced import traced

import xsim
from xsim.compile.choice import tracing_for
from xsim.dynamics import forward
from xsim.dynamics.call import Call
from xsim.dynamics.collide.shapes import FAR
from xsim.dynamics.constraints import contact_rows, soft_set
from xsim.dynamics.constraints.contact_plan import contact_plan
from xsim.dynamics.constraints.narrowphase import Contacts as Found
from xsim.dynamics.constraints.narrowphase import Detection, detect_contacts
from xsim.dynamics.tree.kinematics import frames, lanes_of

AT = 1e-9  # m: contacts nearer to the margin may be there or not
USERS = (forward, contact_rows)  # modules that look for contacts; soft_set looks for candidates first


class Contacts(NamedTuple):
    """Contacts of one state, n of them. geoms (n, 2), distance (n,), point (n, 3), frame (n, 3, 3): rows normal and tangents. condim (n,),
    friction (n, 5), solref (n, 2), solimp (n, 5); margin, reach (n,): where they begin to push, where they are found."""

    geoms: np.ndarray
    distance: np.ndarray
    point: np.ndarray
    frame: np.ndarray
    condim: np.ndarray
    friction: np.ndarray
    solref: np.ndarray
    solimp: np.ndarray
    margin: np.ndarray
    reach: np.ndarray

    @property
    def count(self) -> int:
        """n."""
        return len(self.distance)

    def of(self, chosen) -> Contacts:
        return Contacts(*(x[chosen] for x in self))


def own_contacts(model: xsim.Model, q: np.ndarray) -> list[Contacts]:
    """Those that xsim finds at configurations (lanes, nq)."""
    condims = [one.condim for one in contact_plan(model.topology).condim_groups]
    found, out = traced(_find, model, q)(model, q), []
    for i in range(len(q)):
        parts = []
        for condim, own in zip(condims, found, strict=True):
            numbers = [x[..., i if x.shape[-1] > 1 else 0] for x in own]
            parts.append(Contacts(*numbers[:4], np.full(len(numbers[1]), condim), *numbers[4:]))
        both = Contacts(*(np.concatenate(x) for x in zip(*parts, strict=True)))
        out.append(both.of(both.distance < both.reach + AT))
    return out


def _find(model: xsim.Model, q) -> list[tuple]:
    """By class; the last axis is that of the lanes."""
    c = Call(model, q)
    found, out = detect_contacts(c.system, frames(c.system, c.q)).contacts, []
    for own, numbers in zip(found, contact_rows.parameters_of_contacts(c.system, found), strict=True):
        n, lanes = own.distance.shape
        frame = jnp.stack([jnp.stack(axis, 1) for axis in (own.normal, *own.tangents)], 1)
        geoms = jnp.swapaxes(contact_rows.contact_geoms(own), 0, 1)
        margins = [jnp.broadcast_to(x, (n, lanes)) for x in (numbers.margin, numbers.detection_distance)]
        out.append((geoms, own.distance, jnp.stack(own.point, 1), frame, numbers.friction, numbers.solref, numbers.solimp, *margins))
    return out


def read_contacts(state: dict) -> Contacts:
    """Those of a state of the facts, with geoms in the engine's order; reach is unknown."""
    own = state["contacts"]
    keys = (("geom", 2), ("dist",), ("pos", 3), ("frame", 9), ("dim",), ("friction", 5), ("solref", 2), ("solimp", 5), ("includemargin",))
    parts = [np.array([c[key] for c in own], int if key in ("geom", "dim") else float).reshape(len(own), *n) for key, *n in keys]
    parts[3] = parts[3].reshape(len(own), 3, 3)
    return Contacts(*parts, np.full(len(own), np.nan))


def turned(one: Contacts, order: dict) -> Contacts:
    """With the geoms of each in the order of xsim, {pair: pair in that order}, and the normal as that."""
    geoms, frame = one.geoms.copy(), one.frame.copy()
    for i, pair in enumerate(one.geoms.tolist()):
        wanted = order.get(frozenset(pair))
        if wanted is not None and wanted != tuple(pair):
            geoms[i], frame[i] = wanted, frame[i] * np.array([[-1.0], [1.0], [-1.0]])
    return one._replace(geoms=geoms, frame=frame)


def order_of(model: xsim.Model) -> dict:
    """Pairs of geoms that may touch, in the order that xsim has them."""
    classes = contact_plan(model.topology).condim_groups if model.topology.pairs else ()
    return {frozenset(pair): tuple(pair) for one in classes for pair in one.geoms.tolist()}


# ---- in the place of xsim's own ---------------------------------------------------------------------------------------------------


def placed(model: xsim.Model, both: list[Contacts]) -> list[tuple]:
    """By class pair, distance, point, normal, tangents of `Contacts`, for as many lanes as there are states; their geoms as `turned`."""
    out = []
    for of in contact_plan(model.topology).condim_groups:
        first = {tuple(pair): i for i, pair in reversed(list(enumerate(of.geoms.tolist())))}
        chosen = [one.of([i for i, pair in enumerate(one.geoms.tolist()) if tuple(pair) in first]) for one in both]
        n, lanes = max(1, *(one.count for one in chosen)), len(both)
        number, distance, point = np.zeros((n, lanes), int), np.full((n, lanes), FAR), np.zeros((n, 3, lanes))
        frame = np.broadcast_to(np.eye(3)[None, :, :, None], (n, 3, 3, lanes)).copy()
        for i, one in enumerate(chosen):
            k = one.count
            number[:k, i] = [first[tuple(pair)] for pair in one.geoms.tolist()]
            distance[:k, i], point[:k, :, i], frame[:k, :, :, i] = one.distance, one.point, one.frame
        out.append((number, distance, point, frame))
    return out


@contextmanager
def standing(model: xsim.Model, given: list[tuple]) -> Iterator[None]:
    """xsim has these contacts, of `placed`, in the place of its own."""

    def find(system, frame, v=None) -> Detection:
        out, lanes = [], np.arange(*lanes_of(system, frame))
        for of, own in zip(contact_plan(model.topology).condim_groups, given, strict=True):
            pair, distance, point, axes = (x[..., np.minimum(lanes, x.shape[-1] - 1)] for x in own)  # xsim fills up its lanes
            rows = [tuple(axes[:, k, j] for j in range(3)) for k in range(3)]
            point = tuple(point[:, j] for j in range(3))
            overflow = jnp.zeros(distance.shape[1:], bool)
            own_class = of._replace(blocks=((len(distance), tuple(range(model.nv))),), order=None)
            out.append(Found(own_class, jnp.asarray(pair), distance, point, rows[0], tuple(rows[1:]), overflow, None))
        return Detection([], out)

    with ExitStack() as patches:
        for module in USERS:
            patches.enter_context(patch.object(module, "detect_contacts", find))
        patches.enter_context(patch.object(soft_set, "find_candidates", lambda *_: []))
        patches.enter_context(patch.object(soft_set, "select_contacts", lambda system, frame, _: find(system, frame).contacts))
        yield


def with_contacts(fn: Callable) -> Callable:
    """``fn(model, given, ...)`` of a public function of xsim: with these contacts in the place of its own."""
    bare = inspect.unwrap(fn)

    def of_given(model, given, *args):
        with standing(model, given), tracing_for("xla"):  # the other compiler traces one environment, not the lanes of ``given``
            return bare(model, *args)

    return of_given
