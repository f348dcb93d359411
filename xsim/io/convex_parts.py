"""Division of a mesh into convex parts by CoACD, whose results are kept on disk.

Source: Wei, Liu, Ling, Su, Approximate Convex Decomposition for 3D Meshes with Collision-Aware Concavity and Tree Search (2022).
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from xsim.cache import read_cached, write_cached

__all__ = ["INSTALL", "ConvexDecomposition", "coacd_version", "convex_parts"]

INSTALL = 'the convex decomposition of meshes needs coacd: pip install "xsim[mesh]"'
MAX_SECONDS = 1800
"""Time that the division of one mesh may take."""
_MODES = ("auto", "on", "off")
_LEAST = {
    "max_convex_hull": 1, "max_ch_vertex": 4, "preprocess_resolution": 1, "resolution": 1, "mcts_nodes": 1, "mcts_iterations": 1,
    "mcts_max_depth": 1, "seed": 0,
}  # fmt: skip
_FORMAT = 1
"""Of the files on disk."""


@dataclass(frozen=True)
class ConvexDecomposition:
    """Which colliding meshes are divided into convex parts, and how: the main parameters of CoACD under their names there.

    * ``names``: names of geoms and of meshes (where a format gives them none, that of the file: ``cup.stl``), or patterns of names
      (``finger*``); None: every mesh that collides.
    * ``threshold``: concavity, from 0 to 1, that a part may have; about the depth of a dent in a mesh of size 2. Smaller: more parts.
    * ``max_convex_hull``: the most parts of a mesh, whatever their concavity; None: as many as the threshold asks for, or those that
      the file allows. ``max_ch_vertex``: the most vertices of a part; None: any number.
    * ``preprocess_mode``: ``"on"``, ``"off"`` or ``"auto"``: whether a mesh is replaced by a closed surface around it first, which
      CoACD needs; ``"auto"``: where the mesh is not closed. ``preprocess_resolution``: of that surface.
    * ``resolution``: number of points that measure the concavity. ``mcts_nodes``, ``mcts_iterations``, ``mcts_max_depth``: effort of
      the search of cutting planes. ``seed``: of its random numbers; the same seed gives the same parts.

    Raises ValueError for a number out of range.
    """

    names: tuple[str, ...] | None = None
    threshold: float = 0.05
    max_convex_hull: int | None = None
    max_ch_vertex: int | None = None
    preprocess_mode: str = "auto"
    preprocess_resolution: int = 50
    resolution: int = 2000
    mcts_nodes: int = 20
    mcts_iterations: int = 150
    mcts_max_depth: int = 3
    seed: int = 0

    def __post_init__(self):
        if isinstance(self.names, str):
            object.__setattr__(self, "names", (self.names,))
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold: found {self.threshold!r}; allowed: numbers above 0, up to 1")
        if self.preprocess_mode not in _MODES:
            raise ValueError(f"preprocess_mode: found {self.preprocess_mode!r}; allowed: {', '.join(_MODES)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value < 2**31:
                raise ValueError(f"{name}: found {value!r}; allowed: numbers of {least} and more")

    def parameters(self) -> dict:
        """Keyword arguments of ``coacd.run_coacd``."""
        given = {name: value for name, value in asdict(self).items() if name != "names" and value is not None}
        return {**given, "decimate": self.max_ch_vertex is not None}


def coacd_version() -> str | None:
    """The release of CoACD that is installed, None without it."""
    try:
        return metadata.version("coacd")
    except metadata.PackageNotFoundError:
        return None


def convex_parts(vertices: np.ndarray, faces: np.ndarray, options: ConvexDecomposition) -> list[np.ndarray]:
    """The vertices (n, 3) of each convex part of a mesh; one part for a mesh that is convex within the threshold.

    vertices (n, 3), m; faces (m, 3). CoACD must be installed. Raises RuntimeError where it fails.
    """
    vertices, number = np.unique(np.asarray(vertices, float), axis=0, return_inverse=True)
    faces = number.reshape(-1)[faces].astype(np.int32)
    faces = faces[(faces != np.roll(faces, 1, axis=1)).all(1)]  # without those that have lost a corner
    if not len(faces):
        raise RuntimeError("the mesh has no faces")
    parameters = json.dumps(options.parameters(), sort_keys=True)
    described = json.dumps([_FORMAT, coacd_version(), parameters, vertices.shape, faces.shape]).encode()
    file = f"{hashlib.sha256(described + vertices.tobytes() + faces.tobytes()).hexdigest()}.npz"
    archive = read_cached(file)
    if archive is not None:
        return _arrays(archive)
    archive = _run(vertices, faces, parameters)
    parts = _arrays(archive)
    write_cached(file, archive)
    return parts


def _run(vertices: np.ndarray, faces: np.ndarray, parameters: str) -> bytes:
    """The output of `coacd_process` for a mesh. Raises RuntimeError where it fails."""
    given = io.BytesIO()
    np.savez(given, vertices=vertices, faces=faces)
    command = [sys.executable, "-P", str(Path(__file__).with_name("coacd_process.py")), parameters]
    try:
        done = subprocess.run(command, input=given.getvalue(), capture_output=True, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"CoACD takes more than {MAX_SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").split("\n")
        raise RuntimeError(f"CoACD fails: {next((line.strip() for line in reversed(lines) if line.strip()), 'without a word')[:200]}")
    return done.stdout


def _arrays(archive: bytes) -> list[np.ndarray]:
    """The arrays of an npz archive. Raises RuntimeError for one without finite points."""
    with np.load(io.BytesIO(archive)) as arrays:
        parts = [arrays[name] for name in arrays.files]
    if not parts or not all(np.isfinite(part).all() and len(part) for part in parts):
        raise RuntimeError("CoACD finds no parts")
    return parts
