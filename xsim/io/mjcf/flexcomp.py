"""<flexcomp>: a deformable made of points, as the bodies, the <flex> and the equality that it stands for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.io.errors import allowed
from xsim.io.mjcf.assets import asset_triangles
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.gmsh import read_gmsh
from xsim.io.mjcf.grids import ORDERS, material_of, node_shares, read_cell_counts, sheet_shares
from xsim.io.mjcf.lattices import LATTICES, SHELLS, Lattice, open_shell
from xsim.io.mjcf.macros import NO_DEFAULTS, Maker, integers, plugin_of_bodies, read_asset
from xsim.io.mjcf.mesh_files import read_triangles
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.orientation import read_pose
from xsim.io.mjcf.references import join_names
from xsim.io.mjcf.rods import is_chain, make_twist_bodies, read_section
from xsim.io.mjcf.values import flag, integer
from xsim.io.reader import Element
from xsim.poses import Pose, rotation_matrix

__all__ = ["flexcomp"]

MIN_VALUE = 1e-15  # MuJoCo's mjMINVAL: smaller numbers are not positive
ELEMENTS_PER_POINT = 9  # at most: body, inertial, three slides, plugin; body, inertial and hinge of a line
TYPES = (*LATTICES, "mesh", "gmsh", "direct")


def flexcomp(document: Document, e: Element) -> tuple[list[Node], dict[str, list[Node]]]:
    """What a <flexcomp> stands for, a `Macro`: bodies, a <flex> and, where asked for, an equality. Raises ParseError.

    Each point is a body on slides: three, two along x and y (``dof="2d"``), or one away from the parent's origin (``dof="radial"``, and
    in shells by `Release.flexcomp_shells`). With ``dof`` trilinear or quadratic the nodes of a grid are on slides, and move the points.
    Pinned points, and all points of a rigid flex, are fixed to the parent. The made elements take the defaults that reach the place where
    the flexcomp stands; the equality takes none.
    """
    make, name, kind = Maker(e), e.string("name"), e.choice("type", TYPES, "mesh" if e.has("mesh") else "grid")
    mass, box = e.number("mass", 1.0), e.number("inertiabox", 0.005)
    if mass < MIN_VALUE or box < MIN_VALUE:
        raise e.error(f"found mass {mass:g} and inertiabox {box:g}; allowed: positive numbers")
    shape = _read_shape(document, e, kind)
    points = _placed(e, shape)
    dofs = _dofs(document, e, kind)
    if dofs in ORDERS and not flag(e, "rigid", False):
        bodies, flex, cells = _with_grid(document, e, make, shape, points, ORDERS[dofs], name=name, mass=mass, box=box)
        return bodies, {"deformable": [flex], "equality": _strains(e, make, name, cells)}
    pinned = _pinned(e, shape.counts[: shape.dim], len(points), shape.kind == "grid" and shape.dim > 1)
    if dofs == "radial":
        pinned[0] = True  # the centre of a solid shape
    if flag(e, "rigid", False):
        pinned[:] = True
    parent, frame = _parent(e, bool(pinned.any()))

    used = np.unique(shape.elements)
    inertia = 2 / 3 * mass / len(points) * box**2
    plugin, extension = plugin_of_bodies(document, e, f"flexcomp{name}", make)
    bodies, vertex_bodies, vertices = [], [], np.zeros((len(used), 3))
    for k, i in enumerate(used):
        if pinned[i]:
            vertex_bodies.append(parent)
            vertices[k] = frame.pos + rotation_matrix(frame.quat) @ points[i]
            continue
        axes = [_outward(e, points[i])] if dofs == "radial" else np.eye(3)[: 2 if dofs == "2d" else 3]
        inertial = make("inertial", pos="0 0 0", mass=mass / len(points), diaginertia=(inertia, inertia, inertia))
        slides = [make("joint", type="slide", pos="0 0 0", axis=axis) for axis in axes]
        inside = [] if plugin is None else [make("plugin", **plugin)]
        bodies.append(make("body", [inertial, *slides, *inside], name=f"{name}_{i}", pos=points[i]))
        vertex_bodies.append(f"{name}_{i}")
    fixed = pinned[used]
    names = join_names([parent] if fixed.all() else vertex_bodies)
    flex = _flex(e, make, shape, used, name=name, body=names, vertex=vertices if fixed.any() else None)
    twists = _twist_bodies(document, e, make, name, shape, pinned)
    return bodies, {"deformable": [flex], "equality": _equality(e, make, name), "extension": extension, "worldbody": twists}


def _dofs(document: Document, e: Element, kind: str) -> str:
    """How points move: "full", "radial", "2d", "trilinear" or "quadratic". Raises ParseError."""
    if document.release.flexcomp_shells:
        return "radial" if kind in SHELLS else "full"
    return e.choice("dof", ("full", "radial", *ORDERS, "2d"), "full")


def _with_grid(
    document: Document, e: Element, make: Maker, shape: Shape, points: np.ndarray, order: int, *, name: str, mass: float, box: float,
) -> tuple[list[Node], Node, np.ndarray]:  # fmt: skip
    """The bodies of the nodes that move the points, see `xsim.io.mjcf.grids`, the <flex>, and the cells with material.

    The mass of nodes that are pinned, or of no cell with material, goes to the others. Raises ParseError."""
    if e.all("plugin"):
        raise e.error(f"found plugin with dof {e.string('dof')!r}, which is not simulated; allowed: without", "dof")
    parent, frame = _parent(e, False)
    points = frame.pos + points @ rotation_matrix(frame.quat).T  # the grid has the axes of the body, whatever those of the frame
    counts, used = read_cell_counts(e, order), np.unique(shape.elements)
    low, high = points[used].min(0), points[used].max(0)
    if not (high - low > MIN_VALUE).all():
        raise e.error("the points are in a plane or on a line; allowed with this dof: points that fill a box", "dof")
    sides = (high - low) / counts
    grid = [order * n + 1 for n in counts]
    _spend(document, e, int(np.prod(grid)))
    elastic, filled = e.child("elasticity"), np.zeros(np.prod(counts), bool)
    if shape.dim == 2 and elastic is not None and elastic.string("elastic2d", "none") != "none":  # a sheet around the grid
        share = sheet_shares(order, counts)
    else:
        material = material_of((points - low) / sides, shape.elements, counts, order)
        filled, share = material.filled, node_shares(order, counts, material)
    held = _pinned(e, np.array(grid), len(share), shape.dim == 3) | (share == 0)
    share = np.where(held, 0.0, share) / max(share[~held].sum(), MIN_VALUE)
    bodies, names, coordinates = [], [], np.zeros((len(share), 3))
    for i, index in enumerate(np.ndindex(*grid)):
        at = low + np.array(index) * sides / order
        if held[i]:
            names.append(parent)
            coordinates[i] = at
            continue
        names.append("_".join(map(str, (name, *index))))
        inertial = make("inertial", pos="0 0 0", mass=mass * share[i], diaginertia=(2 / 3 * mass * share[i] * box**2,) * 3)
        slides = [make("joint", type="slide", pos="0 0 0", axis=axis) for axis in np.eye(3)]
        in_frame = frame.inverse() @ Pose(pos=at)
        bodies.append(make("body", [inertial, *slides], name=names[-1], pos=in_frame.pos, quat=in_frame.quat))
    node = dict(node=join_names(names), nodecoord=coordinates if held.any() else None, cellcount=counts, dof=e.raw("dof"))
    flex = _flex(e, make, shape, used, name=name, body=parent, vertex=points[used], **node)
    return bodies, flex, np.argwhere(filled.reshape(counts))


def _twist_bodies(document: Document, e: Element, make: Maker, name: str, shape: Shape, pinned: np.ndarray) -> list[Node]:
    """The bodies for the twist of elastic lines, see `xsim.io.mjcf.rods`."""
    elastic = e.child("elasticity")
    if elastic is None or document.release.schema == "3.2" or shape.dim != 1 or not elastic.number("young", 0.0):
        return []
    if _dofs(document, e, shape.kind) != "full":
        return []
    if len(shape.elements) < 2 or pinned.all() or not is_chain(shape.elements):
        return []
    chain = [*shape.elements[:, 0], shape.elements[-1, 1]]
    section = read_section(e)
    gyration = (section[0] ** 2 + section[1] ** 2) / 3 if section else 0.5 * e.number("radius", 0.005) ** 2
    return make_twist_bodies(make, name, pinned[chain], e.number("mass", 1.0), gyration)


class Shape(NamedTuple):
    """Points and elements of a flexcomp, before they are placed. kind: its type. dim: of the flex. counts: numbers of points along the
    axes, of a lattice. texcoord (n, 2): of the points, empty where the kind has none."""

    kind: str
    dim: int
    counts: np.ndarray
    points: np.ndarray
    elements: np.ndarray
    texcoord: np.ndarray


def _outward(e: Element, point: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(point)
    if length < MIN_VALUE:
        raise e.error("a point of the shell is at the origin of the body around; allowed: an origin inside the shell", "pos")
    return point / length


def _read_shape(document: Document, e: Element, kind: str) -> Shape:
    """The points of a flexcomp and the elements between them. Raises ParseError."""
    dim = integer(e, "dim", 2)
    if not 1 <= dim <= 3:
        raise e.error(f"found {dim}; allowed: 1, 2, 3", "dim")
    counts, spacing = integers(e, "count", 3, (10, 10, 10)), e.floats("spacing", 3, (0.02, 0.02, 0.02))
    if kind != "direct":
        for name in ("point", "element"):
            if e.has(name):
                raise e.error('allowed: only in a flexcomp of type "direct"', name)
    if e.has("mesh") and kind != "mesh":
        raise e.error('allowed: only in a flexcomp of type "mesh"', "mesh")
    if e.has("mesh") and e.has("file"):
        raise e.error("found file and mesh; allowed: one of them", "mesh")
    if kind in LATTICES:
        lattice, dim = _lattice(document, e, kind, dim, counts, spacing)
    elif kind == "direct":
        lattice = _direct(document, e, dim)
    else:
        lattice, dim = _from_file(document, e, kind, dim)
    _check_elements(e, lattice)
    return Shape(kind, dim, counts, *lattice)


def _check_elements(e: Element, lattice: Lattice) -> None:
    """Refuse elements with unknown points or with one point twice. Raises ParseError."""
    if not len(lattice.elements):
        raise e.error("has no elements; allowed: at least one")
    first, last = lattice.elements.min(), lattice.elements.max()
    if first < 0 or last >= len(lattice.points):
        raise e.error(f"elements name points {first} to {last}; allowed: 0 to {len(lattice.points) - 1}", "element")
    ordered = np.sort(lattice.elements, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise e.error("an element names a point twice; allowed: different points", "element")


def _spend(document: Document, e: Element, points: int) -> None:
    """Count the elements of points against the budget, before anything is made. Raises ParseError."""
    document.budget.spend(e, nodes=ELEMENTS_PER_POINT * points, characters=2 * len(e.string("name")) * points)


def _lattice(document: Document, e: Element, kind: str, dim: int, counts: np.ndarray, spacing: np.ndarray) -> tuple[Lattice, int]:
    implied, least, maker = LATTICES[kind]
    if kind == "circle" and dim != 1:
        raise e.error(f"found {dim}; allowed with a circle: 1", "dim")
    surface = kind in SHELLS and dim == 2 and e.has("dim") and not document.release.flexcomp_shells
    dim = dim if surface else implied or dim
    least = least[: implied or dim]
    if (counts < 1).any() or (counts[: len(least)] < least).any():
        raise e.error(f"found {e.raw('count')!r}; allowed: at least {' '.join(map(str, least))} for {kind}", "count")
    if dim == 2 and counts[2] != 1 and not surface:
        raise e.error(f"found {counts[2]} points along z; allowed in two dimensions: 1", "count")
    radius = e.number("radius", 0.005)
    if not (spacing > 0).all() or (spacing < 2 * radius).any():
        raise e.error(f"found {spacing.tolist()}; allowed: positive numbers, at least twice the radius, {2 * radius:g}", "spacing")
    size = int(counts[: implied or dim].astype(object).prod())
    _spend(document, e, size)
    if surface:
        return Lattice(*open_shell(counts, spacing, SHELLS[kind]), np.zeros((0, 2))), dim
    return maker(counts, spacing, dim), dim


def _direct(document: Document, e: Element, dim: int) -> Lattice:
    points, elements = e.floats("point"), integers(e, "element")
    if points is None or elements is None:
        raise e.error('point or element is missing; needed: both, in a flexcomp of type "direct"')
    for name, values, width in (("point", points, 3), ("element", elements, dim + 1)):
        if len(values) % width:
            raise e.error(f"found {len(values)} numbers; allowed: a multiple of {width}", name)
    _spend(document, e, len(points) // 3)
    return Lattice(points.reshape(-1, 3), elements.reshape(-1, dim + 1), np.zeros((0, 2)))


def _from_file(document: Document, e: Element, kind: str, dim: int) -> tuple[Lattice, int]:
    if e.has("mesh"):
        mesh = asset_triangles(document, e, e.string("mesh"))
        if not len(mesh.faces):
            raise e.error(f"the mesh {e.string('mesh')!r} has no faces; allowed: a mesh with faces", "mesh")
        return _of_triangles(document, e, mesh.vertices, mesh.faces, dim)
    data, path = read_asset(document, e)
    if kind == "gmsh":
        points, elements = read_gmsh(data, e)
        _spend(document, e, len(points))
        return Lattice(points, elements, np.zeros((0, 2))), elements.shape[1] - 1
    ending = path.suffix.lower()
    if ending not in (".stl", ".obj", ".msh"):
        raise e.error(f"unknown ending {ending!r}; {allowed(ending, ('.stl', '.obj', '.msh'))}", "file")
    mesh = read_triangles(data, ending[1:], e, document.notes, document.release.quads_by_shorter_diagonal)
    points, faces = mesh.vertices, mesh.faces
    if ending == ".stl" and len(faces):  # which does not number its vertices: they count as they come
        order = np.unique(faces, return_index=True)[1].argsort()
        points, faces = points[order], order.argsort()[faces]
    return _of_triangles(document, e, points, faces, dim)


def _of_triangles(document: Document, e: Element, points: np.ndarray, faces: np.ndarray, dim: int) -> tuple[Lattice, int]:
    """Triangles, or the tetrahedra between them and the origin."""
    if dim == 1:
        raise e.error("found 1; allowed with a mesh: 2, 3", "dim")
    _spend(document, e, len(points))
    if dim == 2:
        return Lattice(points, faces, np.zeros((0, 2))), dim
    if not e.has("origin"):
        raise e.error("attribute 'origin' is missing; needed for a mesh with dim 3")
    elements = np.hstack([np.zeros((len(faces), 1), int), faces + 1])
    return Lattice(np.vstack([e.floats("origin", 3), points]), elements, np.zeros((0, 2))), dim


def _placed(e: Element, shape: Shape) -> np.ndarray:
    """The points in the frame around the flexcomp. Points of lattices are not scaled."""
    scale = e.floats("scale", 3, (1.0, 1.0, 1.0))
    if (scale < MIN_VALUE).any():
        raise e.error(f"found {scale.tolist()}; allowed: positive numbers", "scale")
    pose = read_pose(e)
    # MuJoCo turns the points by the numbers of quat as written, so one that is not a unit stretches them.
    w, *axis = e.floats("quat", 4, pose.quat)
    cross = np.cross(axis, np.eye(3)).T
    turn = np.eye(3) + 2 * (w * cross + cross @ cross)
    return pose.pos + (shape.points if shape.kind in LATTICES else shape.points * scale) @ turn.T


def _pinned(e: Element, counts: np.ndarray, size: int, is_grid: bool) -> np.ndarray:
    """Which points, or nodes, are pinned. counts: along the axes, of a grid."""
    dim = len(counts)
    pinned = np.zeros(size, bool)

    def checked(p: Element, name: str, numbers: np.ndarray, below) -> np.ndarray:
        if (numbers < 0).any() or (numbers >= below).any():
            limits = " ".join(str(n - 1) for n in np.ravel(below))
            raise p.error(f"found {(p.raw(name) or '').strip()[:200]!r}; allowed: 0 to {limits}", name)
        return numbers

    def groups(p: Element, name: str, width: int) -> np.ndarray:
        values = integers(p, name, default=())
        if len(values) % width:
            raise p.error(f"found {len(values)} numbers; allowed: a multiple of {width}", name)
        return values.reshape(-1, width)

    for p in e.all("pin"):
        pinned[checked(p, "id", groups(p, "id", 1), size)] = True
        for first, last in checked(p, "range", groups(p, "range", 2), size):
            pinned[first : last + 1] = True
        for name in ("grid", "gridrange"):
            if not p.has(name):
                continue
            if not is_grid:
                raise p.error('allowed: only in a flexcomp of type "grid" with dim 2 or 3, or of nodes with dim 3', name)
            corners = groups(p, name, dim * (2 if name == "gridrange" else 1)).reshape(-1, 2 if name == "gridrange" else 1, dim)
            grid = pinned.reshape(counts)
            for ends in checked(p, name, corners, counts):
                grid[tuple(slice(first, last + 1) for first, last in zip(ends[0], ends[-1], strict=True))] = True
    return pinned


def _parent(e: Element, fixed: bool) -> tuple[str, Pose]:
    """Name of the body around, and the pose of the frames in between. fixed: whether points are fixed to it."""
    frame = Pose()
    for node in e._node.iterancestors():
        if node.tag == "worldbody":
            return "world", frame
        if node.tag == "body":
            name = node.attrib.get("name", "")
            if not name:
                raise e.error("the body around it has no name; allowed: a body with a name")
            return name, frame
        if node.tag == "replicate":
            raise e.error("stands in a replicate; allowed: in a body with a name, which may be replicated")
        frame = read_pose(Element(node, node.file)) @ frame
    raise e.error("stands outside the bodies; allowed: in a body")


def _flex(e: Element, make: Maker, shape: Shape, used: np.ndarray, **attributes) -> Node:
    """The <flex>. used: the points that elements name. attributes: name, and bodies and positions of the vertices."""
    texcoord = e.floats("texcoord")
    if texcoord is None and shape.kind in SHELLS and len(shape.texcoord) and e.has("material"):
        texcoord = shape.texcoord
    if texcoord is not None and texcoord.size == 2 * len(shape.points):
        texcoord = texcoord.reshape(-1, 2)[used]
    inside = [make(part.tag, **{a: part.raw(a) for a in part.attributes}) for part in e.all("elasticity", "contact")]
    edge = e.child("edge")
    if edge is not None:
        inside.append(make("edge", stiffness=edge.raw("stiffness"), damping=edge.raw("damping")))
    flat = shape.kind in ("box", "cylinder") or shape.kind == "grid" and shape.dim == 3
    attributes |= {a: e.raw(a) for a in ("radius", "rgba", "group", "material")}
    return make(
        "flex", inside, dim=shape.dim, texcoord=texcoord, flatskin=flag(e, "flatskin", False) or flat,
        element=np.searchsorted(used, shape.elements), **attributes,
    )  # fmt: skip


def _equality(e: Element, make: Maker, name: str) -> list[Node]:
    edge = e.child("edge")
    if edge is None or not flag(edge, "equality", False):
        return []
    return [make("flex", flex=name, solref=edge.raw("solref"), solimp=edge.raw("solimp"), **NO_DEFAULTS)]


def _strains(e: Element, make: Maker, name: str, cells: np.ndarray) -> list[Node]:
    """The equalities of cells without strain. Edges of points that nodes move keep no lengths in MuJoCo either."""
    edge = e.child("edge")
    if edge is None or edge.choice("equality", ("false", "true", "strain"), "false") != "strain":
        return []
    soft = {"solref": edge.raw("solref"), "solimp": edge.raw("solimp")}
    return [make("flexstrain", flex=name, cell=cell, **soft, **NO_DEFAULTS) for cell in cells]
