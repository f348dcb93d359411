"""The writer of MJCF: what is written reads back as the same model, in xsim and in MuJoCo, and what MJCF cannot say is refused by name."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator

import numpy as np

import xsim
from xsim.io.mjcf.inertia import body_inertial
from xsim.spec import ModelSpec, Soft, Source

CLOSE = 1e-9
IGNORED = {"source", "file", "volume", "area", "moments", "shell_com", "shell_inertia", "massless", "scale"}
"""Fields of specs that are not compared: where an element was read; what the mass of bodies is computed from, as they have it as numbers;
the sign of a mesh's scale, which is in its vertices."""


def canonical(spec: ModelSpec) -> ModelSpec:
    """The spec with all mass properties as numbers, all joints soft in the same way, and the vertices of hulls in place of their faces."""
    bodies = []
    for body in spec.bodies:
        joints = tuple(
            dataclasses.replace(joint, limit_soft=joint.limit_soft or Soft(), friction_soft=joint.friction_soft or Soft())
            for joint in body.joints
        )
        bodies.append(dataclasses.replace(body, joints=joints, inertial=body_inertial(body, spec.meshes), aligned=False))
    meshes = tuple(dataclasses.replace(m, hull=None if m.hull is None else np.unique(m.hull)) for m in spec.meshes)
    tendons = tuple(dataclasses.replace(t, width=0.003, rgba=None) if t.kind == "fixed" else t for t in spec.tendons)
    return spec.replace(bodies=tuple(bodies), meshes=meshes, tendons=tendons)


def differences(found, wanted, place: str = "spec") -> Iterator[str]:
    """Where two specs differ by more than `CLOSE`. A name may stand where there was none."""
    if isinstance(wanted, Source) or place.endswith(".name") and wanted == "":
        return
    if dataclasses.is_dataclass(wanted):
        for field in dataclasses.fields(wanted):
            if field.name not in IGNORED:
                yield from differences(getattr(found, field.name), getattr(wanted, field.name), f"{place}.{field.name}")
    elif isinstance(wanted, dict):
        if set(found) != set(wanted):
            yield f"{place}: {sorted(map(str, set(found) ^ set(wanted)))}"
        for key in set(found) & set(wanted):
            yield from differences(found[key], wanted[key], f"{place}[{key!r}]")
    elif isinstance(wanted, (tuple, list)) and not all(isinstance(x, (int, float)) for x in wanted):
        if len(found) != len(wanted):
            yield f"{place}: {len(found)} instead of {len(wanted)}"
        for i, (one, other) in enumerate(zip(found, wanted, strict=False)):
            yield from differences(one, other, f"{place}[{i}]")
    elif isinstance(wanted, (int, float, tuple, list, np.ndarray)) and not isinstance(found, (str, type(None))):
        one, other = np.asarray(found, float), np.asarray(wanted, float)
        scale = max(1.0, np.abs(other).max(initial=0.0))
        if one.shape != other.shape or not np.allclose(one, other, rtol=0, atol=CLOSE * scale, equal_nan=True):
            yield f"{place}: {str(found)[:60]} instead of {str(wanted)[:60]}"
    elif found != wanted:
        yield f"{place}: {str(found)[:60]} instead of {str(wanted)[:60]}"
