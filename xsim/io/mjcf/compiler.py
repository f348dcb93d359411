"""The <compiler> element: units, folders and rules of a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from xsim.io.reader import Element

__all__ = ["Compiler", "read_compiler"]


@dataclass(frozen=True)
class Compiler:
    """Settings of <compiler>, under the manual's names, with its defaults.

    file: the main file, as messages call it. folder: its folder, absolute; files that it names are looked for there. within: the folder
    that they may not leave (see `files.locate`). mesh_dir, texture_dir: as written (asset_dir where they are not given). bound_mass,
    bound_inertia: none below 0. length_range: attributes of <lengthrange>. conflict: see `conflicts`.
    """

    file: str = ""
    folder: Path = Path("/")
    within: Path = Path("/")
    angle: str = "degree"
    eulerseq: str = "xyz"
    autolimits: bool = True
    bound_mass: float = 0.0
    bound_inertia: float = 0.0
    settotalmass: float = -1.0
    balance_inertia: bool = False
    strip_path: bool = False
    fit_aabb: bool = False
    inertia_from_geom: str = "auto"
    inertia_group_range: tuple[int, int] = (0, 5)
    discard_visual: bool = False
    fuse_static: bool = False
    align_free: bool = False
    mesh_dir: str = ""
    texture_dir: str = ""
    conflict: str = "warning"
    length_range: dict = field(default_factory=dict)

    def angles(self, x):
        """Numbers that the file gives as angles, in rad."""
        return x * (3.141592653589793 / 180) if self.angle == "degree" else x


def read_compiler(elements: list[Element], start: Compiler) -> Compiler:
    """The settings of all <compiler> elements of a file, later ones winning."""
    out = start
    for e in elements:
        out = _merged(out, e)
    return out


def _merged(c: Compiler, e: Element) -> Compiler:
    e.choice("coordinate", ("local",), "local")
    _flag(e, "usethread", True)
    _read_writer(e)
    groups = e.floats("inertiagrouprange", 2, c.inertia_group_range)
    if (groups % 1).any():
        raise e.error(f"found {e.raw('inertiagrouprange')!r}; allowed: two integers", "inertiagrouprange")
    asset = e.raw("assetdir")
    out = replace(
        c,
        angle=e.choice("angle", ("degree", "radian"), c.angle),
        eulerseq=e.string("eulerseq", c.eulerseq),
        autolimits=_flag(e, "autolimits", c.autolimits),
        bound_mass=e.number("boundmass", c.bound_mass),
        bound_inertia=e.number("boundinertia", c.bound_inertia),
        settotalmass=e.number("settotalmass", c.settotalmass),
        balance_inertia=_flag(e, "balanceinertia", c.balance_inertia),
        strip_path=_flag(e, "strippath", c.strip_path),
        fit_aabb=_flag(e, "fitaabb", c.fit_aabb),
        inertia_from_geom=e.choice("inertiafromgeom", ("false", "true", "auto"), c.inertia_from_geom),
        inertia_group_range=(int(groups[0]), int(groups[1])),
        discard_visual=_flag(e, "discardvisual", c.discard_visual),
        fuse_static=_flag(e, "fusestatic", c.fuse_static),
        align_free=_flag(e, "alignfree", c.align_free),
        mesh_dir=_folder(e, "meshdir", c.mesh_dir if asset is None else asset),
        conflict=e.choice("conflict", ("warning", "merge", "error"), c.conflict),
        texture_dir=_folder(e, "texturedir", c.texture_dir if asset is None else asset),
    )
    lengths = e.child("lengthrange")
    if lengths is not None:
        out = replace(out, length_range={**c.length_range, **_length_range(lengths)})
    if len(out.eulerseq) != 3 or set(out.eulerseq) - set("xyzXYZ"):
        raise e.error(f"found {out.eulerseq!r}; allowed: three letters of x y z X Y Z", "eulerseq")
    return out


def _flag(e: Element, name: str, default: bool) -> bool:
    return e.choice(name, ("false", "true"), "true" if default else "false") == "true"


def _read_writer(e: Element) -> None:
    """Settings of 4.0 for programs that edit and save a model."""
    for name in ("savecanonical", "savecompiled", "saveinertial"):
        _flag(e, name, True)
    e.choice("passthrough", ("none", "textures"), "none")


def _folder(e: Element, name: str, default: str) -> str:
    """A folder as written; an empty one is the folder of the model."""
    folder = e.raw(name)
    return default if folder is None else folder


def _length_range(e: Element) -> dict:
    out: dict = {}
    if e.has("mode"):
        out["mode"] = e.choice("mode", ("none", "muscle", "muscleuser", "all"))
    for name in ("useexisting", "uselimit"):
        if e.has(name):
            out[name] = _flag(e, name, False)
    for name in ("accel", "maxforce", "timeconst", "timestep", "inttotal", "interval", "tolrange"):
        if e.has(name):
            out[name] = e.number(name, positive=name not in ("maxforce", "interval"), nonnegative=True)
    return out
