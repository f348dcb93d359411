"""Numbers of MuJoCo 3.2.7 and 4.0.0: every MJCF model of the corpus, in float64.

Nothing is compiled: a model is evaluated a few times only. What a release computes against its manual is told by the model's own elements
(`bugs`), and the numbers that it spoils are compared with the other release, which mends it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close
from corpus import MUJOCO_VERSIONS, corpus, needs_corpus
from recorded import AT, Contacts, order_of, own_contacts, placed, read_contacts, turned, with_contacts
from traced import traced

import xsim
from xsim.dynamics.constraints.contact_plan import contact_plan
from xsim.dynamics.integration.integrators import RUNGE_KUTTA
from xsim.registry import COLLIDERS
from xsim.spec.geoms import MESH_SHAPES

pytestmark = [pytest.mark.conformance, needs_corpus]

CLOSE, ROUGH, CABLES = 1e-7, 1e-6, 1e-5
SMALL = 1e-3  # of numbers below, differences count as of this: forces cancel, and the facts have twelve digits
FRAMES = 1e-6  # frames in a body that differ less are one to the engine
LARGE = 60  # velocities: above, the facts hold no mass matrices
SPARSE = 60  # velocities: from here on, releases keep Jacobians as sparse matrices
HUGE = 400  # velocities: above, an evaluation takes a minute
LENGTHS = {4: 100, 20: 10}  # steps of the rollouts of models with so many velocities at most; of larger ones one step
UNCHECKED = 3  # models: see `test_what_is_not_checked`
ENERGY = 1 << 1
OUTSIDE = ("user", "plugin")  # sensors whose numbers come from programs of the user
CONSTANT = ("body.*", "geom.*", "joint.*", "site.*", "camera.*", "light.*")
"""Leaves whose numbers are known when a model is traced: zeros and ones make for shorter programs."""
PLACES = {"site": xsim.site_poses, "geom": xsim.geom_poses, "camera": xsim.camera_poses, "light": xsim.light_poses}
PLACED = {"site": ("site_xpos", "site_xmat"), "geom": ("geom_xpos", "geom_xmat"), "camera": ("cam_xpos", "cam_xmat"),
          "light": ("light_xpos", "light_xdir")}  # fmt: skip


# ---- the corpus -----------------------------------------------------------------------------------------------------------------


def folder(*parts: str) -> Path:
    root = corpus()
    assert root is not None
    return root.joinpath(*parts)


def models() -> list[Path]:
    if corpus() is None:
        return []
    root = folder("models", "mjcf")
    parts = json.loads((root / "parts.json").read_text())["parts"]
    found = sorted(p for p in root.rglob("*.xml") if str(p.relative_to(root)) not in parts and "refused" not in p.parts)
    return [p.relative_to(root) for p in found]


def facts(path: Path, rules: str) -> dict:
    return json.loads((folder("oracles", "mjcf", MUJOCO_VERSIONS[rules]) / path.with_suffix(".json")).read_text())


@lru_cache(8)  # a model's tests follow each other
def spec(path: Path, rules: str) -> xsim.ModelSpec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xsim.parse(folder("models", "mjcf") / path, rules=rules)


@cache
def document(path: Path) -> ElementTree.Element:
    return ElementTree.parse(folder("models", "mjcf") / path).getroot()


def has(root: ElementTree.Element, *places: str) -> bool:
    return any(root.find(place) is not None for place in places)


def states(known: dict) -> list[dict]:
    """The states of the facts with everything that says where they are."""
    size = known["size"]
    zero = {"qpos": known["qpos0"], "qvel": [0.0] * size["nv"], "ctrl": [0.0] * size["nu"], "act": [0.0] * size["na"]}
    return [known["states"]["random"], zero | known["states"]["qpos0"]]


def touching(state: dict) -> bool:
    """Whether contacts push."""
    return any("CONTACT" in kind for kind in state["efc_types"])


def checked(path: Path, rules: str) -> bool:
    """Whether the release's numbers say something: of 4.0 only of models whose numbers differ from those of 3.2, or that 3.2 gets wrong."""
    known = facts(path, rules)
    if "error" in known or known["size"]["nv"] > HUGE:
        return False
    return rules == "3.2" or _differ(facts(path, "3.2"), known)


def _differ(a: dict, b: dict) -> bool:
    if "error" in a or a["size"] != b["size"]:
        return True
    keys = ("M", "bias", "passive", "actuator", "qacc_smooth", "actuator_length", "actuator_force", "qacc_converged", "sensordata")
    for one, other in zip(states(a), states(b), strict=True):
        if one["ncon"] != other["ncon"] or not all(_same(one.get(key, 0.0), other.get(key, 0.0)) for key in keys):
            return True
        quiet = not any(touching(s) or s["warnings"] or "error" in s["steps"] for s in (one, other))
        if quiet and not _same(one["steps"]["1"]["qvel"], other["steps"]["1"]["qvel"]):
            return True
    return False


def _same(x, y) -> bool:
    return bool(np.abs(np.subtract(x, y)).max(initial=0.0) <= CLOSE * np.abs(y).max(initial=1.0))


def energies(path: Path, rules: str) -> list | None:
    """Energies at the states. 3.2.7 gives them to models that ask for them only; those of 4.0.0 are the same where nothing else differs."""
    own, other = facts(path, rules), facts(path, "4.0")
    if own["option"]["enableflags"] & ENERGY or rules == "4.0":
        return [s["energy"] for s in states(own)]
    return None if "error" in other or checked(path, "4.0") else [s["energy"] for s in states(other)]


DEFAULT, SLOW = 5, 6  # velocities of the models of the default run and of the slow tests, and these by the rules 3.2
ALSO_SLOW = ("rl/half_cheetah.xml", "solver/Newton", "solver/PGS_elliptic.xml")


def _case(path: Path, rules: str):
    nv = facts(path, rules)["size"]["nv"]
    slow = nv <= SLOW or rules == "3.2" and str(path).startswith(ALSO_SLOW)
    return pytest.param(path, rules, marks=() if nv <= DEFAULT else pytest.mark.slow if slow else pytest.mark.nightly)


CHECKED = [(path, rules) for rules in MUJOCO_VERSIONS for path in models() if checked(path, rules)]


# ---- what the releases do against their manual ----------------------------------------------------------------------------------

FORCES = {"actuator_force", "actuator", "acceleration", "steps"}
MASSES = {"mass matrix", "bias", "passive", "acceleration", "energy", "geom", "steps"}


def bugs(root: ElementTree.Element, model: xsim.ModelSpec, nv: int) -> set[str]:
    """Quantities that the release gets wrong, or leaves to chance, for elements that the model has (notes of the format)."""
    found: set[str] = set()
    if any(flex.dim > 1 and flex.numbers["young"] for flex in model.flexes):
        found.add("energy")  # both leave out what elasticity stores
    if model.rules != "3.2":
        return found
    geoms = [g for b in model.bodies for g in b.geoms]
    in_medium = model.option.density > 0 or model.option.viscosity > 0
    if in_medium and any(_cubic(model, b.geoms[0]) for b in model.bodies if len(b.geoms) == 1):
        found |= {"passive", "acceleration", "steps"}  # drag of a box with equal sides depends on axes that rounding chooses
    if in_medium and any(g.fluid is not None for g in geoms) and model.option.integrator in ("implicit", "implicitfast"):
        found.add("steps")  # derivatives of the ellipsoids' drag are rough, and of simple free bodies only the diagonal is kept
    for actuator in model.actuators:
        if actuator.transmission == "site" and actuator.reference is not None and np.any(actuator.gear[3:]):
            found |= {"actuator_length", *FORCES}  # quaternions in the wrong order
    if has(root, ".//default//damper[@kv]"):
        found |= FORCES  # a kv that a damper has from its class is lost
    if any(g.shell and g.shape == "mesh" for g in geoms):
        found |= MASSES  # the triangles of a shell count alike, whatever their areas
    if has(root, ".//compiler[@fitaabb='true']"):
        found |= MASSES  # shapes fitted to a box are moved twice by its centre
    if any(e.kind == "weld" for e in model.equalities):
        found.add("torque")  # sensors of torque take a weld's multipliers of orientation for torques
    if sum(g.shape == "box" for g in geoms) > 1:
        found |= {"distance", "normal", "fromto"}  # of boxes that are apart: up to half of the true distance, which 4.0 has
    slides = {len(model.bodies[b].joints) for flex in model.flexes for b in flex.bodies if b >= 0}
    if len(slides) > 1 and len(model.flexes) > 1 and nv >= SPARSE:
        found |= {"passive", "acceleration", "steps"}  # rows of edges are mixed up between flexes, but not with jacobian="dense"
    if has(root, ".//replicate") and any(a.transmission == "tendon" for a in model.actuators):
        found.add("controls")  # the last copy of an actuator on a replicated tendon is lost
    return found


def misled(model: xsim.ModelSpec, rules: str) -> list[int]:
    """Dofs on which elasticity acts amiss in 3.2: the slides of bodies that do nothing but slide take the components of
    the force along x, y, z of the world in this order, whatever their axes."""
    out, first = [], 0
    points = {b for flex in model.flexes if flex.dim > 1 and flex.numbers["young"] for b in flex.bodies} if rules == "3.2" else set()
    for i, body in enumerate(model.bodies):
        dofs = range(first, first + sum({"free": 6, "ball": 3}.get(j.type, 1) for j in body.joints))
        first = dofs.stop
        axes = [j.params["axes"][0] for j in body.joints if j.type == "slide"]
        if i in points and 0 < len(axes) == len(dofs) and all(np.isclose(np.abs(axis).max(), 1.0) for axis in axes):
            out += [dof for dof, axis, e in zip(dofs, axes, np.eye(3), strict=False) if not np.allclose(axis, e)]
    return out


def _cubic(model: xsim.ModelSpec, geom) -> bool:
    """Whether a geom has the pose of a mesh without principal axes, or nearly: two moments of inertia are the same within a tenth."""
    if geom.shape not in MESH_SHAPES:
        return False
    moments = np.sort(model.meshes[geom.asset].moments)
    return bool((np.diff(moments) < 0.1 * moments[2]).any())


def precision(root: ElementTree.Element, model: xsim.ModelSpec) -> float:
    """3.2.7 keeps meshes in single precision, and finds the axes of inertia along which it aligns bodies hardly better. The nodes of its
    quadrature for the masses that ellipsoids carry along have eight digits. Length ranges are found by simulation. The points of cables are
    in single precision, and their curvature is a difference of those."""
    if model.passive:
        return CABLES
    aligned = has(root, ".//freejoint[@align='true']", ".//compiler[@alignfree='true']")
    carrying = any(g.fluid is not None for b in model.bodies for g in b.geoms)
    searched = any("muscle" in (a.gain, a.bias) and a.length_range is None for a in model.actuators)
    return ROUGH if carrying or searched or model.rules == "3.2" and (model.meshes or aligned) else CLOSE


# ---- states ---------------------------------------------------------------------------------------------------------------------


def unread(path: Path) -> bool:
    """Whether a model cannot be read, for want of a plugin only."""
    try:
        spec(path, "3.2")
    except xsim.ParseError as error:
        assert "plugin" in str(error), f"{path}: {error}"
        return True
    return False


@pytest.mark.slow
def test_what_is_not_checked():
    """Models that need a plugin or a minute each: their number can only shrink."""
    plugins = [path for path in models() if unread(path)]
    assert len(plugins) <= 1, plugins
    others = [path for path in models() if path not in plugins and facts(path, "3.2")["size"]["nv"] > HUGE]
    assert len(plugins) + len(others) <= UNCHECKED, others
    assert len(models()) - UNCHECKED <= len({path for path, _ in CHECKED})


class Case(NamedTuple):
    """What a model is compared with. near(name, found, wanted): asserts that two arrays agree. noise(geom): what the release may have
    wrong in the position (m) and the axes of a geom."""

    source: xsim.ModelSpec
    model: xsim.Model
    both: list[dict]
    wrong: set[str]
    near: Callable
    exact: float
    contacts: list[Contacts | None]
    own: bool  # whether all contacts are those that xsim finds
    noise: Callable = lambda geom: (0.0, 0.0)

    def whole(self, state: dict) -> bool:
        """Whether xsim has all that acts at a state."""
        if not state["nefc"]:
            return True
        known = self.contacts[self.both.index(state)] is not None
        return "soft" in self.model.topology.constraint_kinds and (known or not touching(state))

    def rolls(self, state: dict) -> bool:
        """Whether the rollout from a state says something: the engine neither gave up nor started again."""
        return self.whole(state) and "error" not in state["steps"] and not state["warnings"]


@pytest.mark.parametrize(("path", "rules"), [_case(*c) for c in CHECKED], ids=lambda x: str(x).removesuffix(".xml"))
def test_model(path, rules, x64):
    """Both states of the facts, and where they go as far as nothing can touch."""
    if unread(path):
        return  # counted above
    source = spec(path, rules)
    model, both = xsim.build(source), states(facts(path, rules))
    wrong, exact = bugs(document(path), source, model.nv), precision(document(path), source)

    def near(name, found, wanted, allowed=exact):
        close(name, found, wanted, allowed, max(SMALL, np.abs(wanted).max(initial=0.0)))

    if "controls" in wrong:
        assert model.nu == len(both[0]["ctrl"]) + 1
        return
    q, v, ctrl, act = (np.array([s[k] for s in both], float) for k in ("qpos", "qvel", "ctrl", "act"))
    state, ctrl = xsim.init(model, q, v).replace(act=jnp.asarray(act)), ctrl if model.nu else None
    model = model.freeze(*CONSTANT)
    contacts, own = check_contacts(source, model, both, q, wrong)
    if model.nv > LARGE:
        model = xsim.with_constraints(model, ())  # their soft constraints would take a minute
    case = Case(source, model, both, wrong, near, exact, contacts, own)
    energy = check_states(case, state, ctrl)
    if "energy" not in wrong:
        _check_energies(case, energy, energies(path, rules))
    if model.nv and "steps" not in wrong and any(case.rolls(s) for s in both):
        _check_steps(case, state, ctrl)


def _evaluate(model: xsim.Model, kinds: list[str], given, state: xsim.State, ctrl):
    """Everything compared: `forward`, the places of the kinds of things, mass matrix, energies. given: the contacts; None: there are
    none."""
    data = _apart(xsim.forward, model, state, ctrl) if given is None else with_contacts(xsim.forward)(model, given, state, ctrl)
    bare = xsim.with_constraints(model, ())
    places = {kind: PLACES[kind](bare, state.q) for kind in kinds}
    mass = xsim.mass_matrix(bare, state.q) if 0 < model.nv <= LARGE else None
    return data, places, mass, xsim.energy(bare, state.q, state.v)


def check_states(case: Case, state: xsim.State, ctrl):
    """Everything but rollouts and energies at both states; gives the energies."""
    model, near, wrong = case.model, case.near, case.wrong
    kinds = [kind for kind, (key, _) in PLACED.items() if key in case.both[0]]
    given, right = _given(case), np.delete(np.arange(model.nv), misled(case.source, case.source.rules))
    data, places, mass, energy = traced(partial(_evaluate, model, kinds), given, state, ctrl)(given, state, ctrl)
    for i, s in enumerate(case.both):
        if mass is not None and "mass matrix" not in wrong:
            near("mass matrix", mass[i], s["M"])
        for name in ("bias", "passive", "actuator", "actuator_length", "actuator_force"):
            if name not in wrong:
                of = right if name == "passive" else slice(None)
                near(name, getattr(data, name)[i][of], np.array(s[name])[of])
        if "acceleration" not in wrong and case.whole(s):
            wanted = np.array(s.get("qacc_converged", s["qacc"]))
            left = np.abs(wanted - s["qacc"]).max(initial=0.0) / np.abs(wanted).max(initial=1.0)  # by the engine's solver
            near("acceleration", data.a[i][right], wanted[right], max(case.exact, max(ROUGH, 2 * left) if touching(s) else 0.0))
        elif "acceleration" not in wrong and not ("soft" in model.topology.constraint_kinds and model.topology.soft):
            near("acceleration", data.a[i][right], np.array(s["qacc_smooth"])[right])
        if "act_dot" in s:
            near("activation rates", data.act_rate[i], s["act_dot"])
        if "xpos" in s and model.topology.bodies:
            near("position", data.pos[i], s["xpos"][1:])
            near("orientation", _matrices(data.quat[i]), _matrices(s["xquat"][1:]))
            near("velocity", np.concatenate([data.ang[i], data.lin[i]], -1), s["body_velocity_ang_lin"][1:])
        for kind in kinds:
            _check_places(case, kind, [x[i] for x in places[kind]], [np.array(s[key]) for key in PLACED[kind]])
        if s.get("sensordata"):
            _check_sensors(case, s, data.sensor[i])
    return energy


def _matrices(quat) -> np.ndarray:
    w, x, y, z = np.moveaxis(np.asarray(quat), -1, 0)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x * x + z * z),
            2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]  # fmt: skip
    return np.stack(rows, -1)


def _check_places(case: Case, kind: str, found: list, wanted: list) -> None:
    """Positions and axes; of geoms without principal axes the position."""
    if kind in case.wrong:
        return
    allowed = max(case.exact, FRAMES)
    if kind in ("site", "geom"):
        found[1] = _matrices(found[1])
    differences = [found[0] - wanted[0], found[1].reshape(wanted[1].shape) - wanted[1]]
    if kind == "geom":
        geoms = [g for _, g in _geoms(case.source)]
        noise = np.array([case.noise(g) for g in geoms]).reshape(-1, 2)
        noise[[_cubic(case.source, g) for g in geoms], 1] = np.inf
        differences = [allowed / np.maximum(allowed, own)[:, None] * x for own, x in zip(noise.T, differences, strict=True)]
    for name, difference, of in zip(("position", "axes"), differences, wanted, strict=True):
        case.near(f"{kind} {name}", of + difference, of, allowed)


def _geoms(source: xsim.ModelSpec) -> list:
    """(body, geom) of all geoms, those of the world (-1) first."""
    return [(-1, g) for g in source.world_geoms] + [(i, g) for i, b in enumerate(source.bodies) for g in b.geoms]


def _check_sensors(case: Case, s: dict, found) -> None:
    """Sensors of accelerations only where all that acts is there."""
    wanted = np.array(s["sensordata"])
    moved = not case.whole(s) or "acceleration" in case.wrong
    for info in case.model.topology.sensors:
        spoiled = info.kind in case.wrong or info.kind.startswith("actuator") and "actuator" in case.wrong
        if info.kind in OUTSIDE or spoiled or info.stage == "acceleration" and moved:
            continue
        own = slice(info.address, info.address + info.dim)
        pair = [found[own], wanted[own]]
        if info.kind == "fromto" and s is case.both[1]:  # at the start faces are parallel: many points are nearest, the way is one
            pair = [x[3:] - x[:3] for x in pair]
        case.near(f"sensor {info.kind} {info.name}", *pair, max(case.exact, ROUGH if touching(s) else 0.0))


def _check_energies(case: Case, energy, wanted: list | None) -> None:
    if wanted is not None:
        kinetic, potential = (np.array([x[k] for x in wanted]) for k in (1, 0))
        case.near("kinetic energy", energy[0], kinetic)
        case.near("potential energy", energy[1], potential)


# ---- contacts -------------------------------------------------------------------------------------------------------------------

INDEFINITE = {"3.2": {("plane", "mesh")}, "4.0": set()}
"""Pairs with closed forms that a release treats otherwise: 3.2 keeps three points of a mesh on a plane, which depend on the order of its
vertices, xsim four as 4.0."""
WRONG = {("4.0", "hfield", "box"), ("4.0", "hfield", "mesh")}
"""Pairs whose distances are not those of the shapes: 0.036 for a depth of 0.056 in authored/hfield_contacts. Sampling agrees with xsim
(tests/test_heightfield.py), and so does 3.2.7."""
PLACE = 1e-6  # contacts in closed form
SHALLOW = 1e-3  # m: searches for the depth of convex shapes stop before (4.0: by 8e-4 where a centre is on an edge) or far behind it


def definite(shapes: tuple[str, str], rules: str) -> bool:
    """Whether the contacts of two shapes follow from their poses, whatever searches for them."""
    return shapes in COLLIDERS and shapes not in INDEFINITE[rules]


def check_contacts(
    source: xsim.ModelSpec, model: xsim.Model, both: list[dict], q, wrong: set[str], place: float = PLACE
) -> tuple[list[Contacts | None], bool]:
    """Own contacts against the recorded ones. Of each state those that act: own ones where they are the same, else the recorded ones;
    None where those are unknown, or not all that acts on contacts is simulated. Whether all that act are own ones. place: what may be wrong
    in contacts in closed form."""
    order = order_of(model)
    own = own_contacts(model, q) if order else [None] * len(both)
    out: list[Contacts | None] = []
    found = True
    for s, mine in zip(both, own, strict=True):
        if source.flexes and (s["ncon"] and "contacts" not in s or any(-1 in c["geom"] for c in s["contacts"])):
            if mine is not None:  # which parts of flexes touch is not recorded: tests/test_flex_contacts.py
                capacity = sum(group.capacity for group in contact_plan(model.topology).condim_groups)
                assert (mine.distance < mine.reach).sum() == min(s["ncon"], capacity)
            out.append(None)
            found = False
            continue
        if "contacts" not in s:
            assert mine is not None and mine.count > 0
            out.append(None)
            found = False
            continue
        theirs = turned(read_contacts(s), order)
        unknown = [pair for pair in theirs.geoms.tolist() if frozenset(pair) not in order]
        assert not unknown, f"contacts of geoms that never touch: {unknown}"
        same = mine is not None and not unknown and _matched(source, mine, theirs, wrong, place)
        # The wheel's noslip iterations stop short of their fixed point, which tests/test_noslip.py compares.
        other = source.option.solver.get("noslip_iterations") or not unknown and _on_slides(source, theirs.geoms.ravel())
        act = not unknown and not (touching(s) and other)
        out.append(_pushing(source, s, mine if same else theirs) if act else None)
        found &= act and out[-1] is mine
    return out, found


def _on_slides(source: xsim.ModelSpec, geoms) -> bool:
    """Whether one of these geoms is of a body of the world that only slides, along its own axes: both releases take 1 / mass for its
    mobility, without armature, in place of the mean of the three directions that the manual and xsim have."""
    parents, every = {b.parent for b in source.bodies}, _geoms(source)

    def slides(body: int) -> bool:
        own = source.bodies[body]
        alone = body >= 0 and own.parent < 0 and body not in parents and bool(own.joints)
        return alone and all(j.type == "slide" and np.isclose(np.abs(j.params["axes"]).max(), 1.0) for j in own.joints)

    return any(slides(every[g][0]) for g in geoms)


def _matched(source: xsim.ModelSpec, mine: Contacts, theirs: Contacts, wrong: set[str], place: float) -> bool:
    """Whether all contacts of a state are the recorded ones, to 1e-8."""
    geoms, same = _geoms(source), True
    for pair in sorted({*map(tuple, mine.geoms.tolist()), *map(tuple, theirs.geoms.tolist())}):
        ours, wanted = (x.of((x.geoms == pair).all(1)) for x in (mine, theirs))
        shapes = (geoms[pair[0]][1].shape, geoms[pair[1]][1].shape)
        _check_numbers(f"{shapes} {pair}", ours, wanted)
        if "geom" in wrong or (source.rules, *shapes) in WRONG:
            same = False
        elif definite(shapes, source.rules):
            same &= _check_definite(f"{shapes} {pair}", ours, wanted, place)
        else:
            same &= _check_convex(f"{shapes} {pair}", ours, wanted)
    return same


def _check_numbers(name: str, ours: Contacts, wanted: Contacts) -> None:
    """Dimension, friction, softness and margin of a pair's contacts. Those that touch at the margin do not act and may be missing."""
    if not ours.count:
        assert (wanted.distance >= wanted.margin - AT).all(), f"contact of {name} not found"
        return
    for i in range(wanted.count):
        for key in ("condim", "friction", "solref", "solimp", "margin"):
            close(f"{key} of {name}", getattr(ours, key)[0], getattr(wanted, key)[i], 1e-9)


def _check_definite(name: str, ours: Contacts, wanted: Contacts, place: float) -> bool:
    """Each contact has its like, but those that touch at the margin may be missing."""
    errors = np.array([[_difference(ours.of(i), wanted.of(k)) for k in range(wanted.count)] for i in range(ours.count)])
    errors = errors.reshape(ours.count, wanted.count)
    reach = ours.reach[0] if ours.count else 0.0
    for axis, one in ((1, ours), (0, wanted)):
        sure = one.distance < reach - AT
        worst = errors.min(axis, initial=np.inf)[sure].max(initial=0.0)
        assert worst <= place, f"contact of {name}: difference {worst:.2e} at {one.distance}"
    sure = [x.of(x.distance < reach - AT).count for x in (ours, wanted)]
    assert sure[0] == sure[1], f"{name}: {sure[0]} contacts, {sure[1]} recorded"
    exact = max(errors.min(axis, initial=np.inf).max(initial=0.0) for axis in (0, 1))
    return ours.count == wanted.count and exact <= 1e-8


def _difference(one: Contacts, other: Contacts) -> float:
    """Of distance, point or frame."""
    return max(np.abs(getattr(one, key) - getattr(other, key)).max() for key in ("distance", "point", "frame"))


def _check_convex(name: str, ours: Contacts, wanted: Contacts) -> bool:
    """xsim has the least depth along any direction: never more than the engine, whose direction need not be the best one."""
    deepest = wanted.distance.min(initial=np.inf)
    if ours.count and ours.distance.min() < ours.reach[0] - SHALLOW:
        assert wanted.count, f"contact of {name} at {ours.distance} not recorded"
        assert ours.distance.min() >= deepest - SHALLOW, f"{name}: distance {ours.distance}, recorded {deepest}"
    same = ours.count == wanted.count > 0
    return same and all(min(_difference(ours.of(i), wanted.of(k)) for k in range(wanted.count)) <= 1e-8 for i in range(ours.count))


def _pushing(source: xsim.ModelSpec, s: dict, one: Contacts) -> Contacts:
    """Those that have rows: at the margin, to rounding, the number of rows tells."""
    elliptic = source.option.solver.get("cone") == "elliptic"
    rows = np.where(one.condim == 1, 1, one.condim if elliptic else 2 * (one.condim - 1))
    sure, near = one.distance < one.margin - AT, one.distance < one.margin + AT
    recorded = sum(n for kind, n in s["efc_types"].items() if "CONTACT" in kind)
    if not (sure ^ near).any() and rows[sure].sum() == recorded:
        return one
    if rows[near].sum() == recorded:
        return one._replace(distance=np.where(near, np.minimum(one.distance, one.margin - 1e-15), one.distance))
    return one.of(sure | ~near) if rows[sure].sum() == recorded else one


def _given(case: Case):
    """The contacts of both states for `with_contacts`, None where there are none at all."""
    model = case.model
    if "contact" not in model.topology.constraint_kinds or not model.topology.pairs:
        return None
    none = read_contacts({"contacts": []})
    both = [none if one is None else one for one in case.contacts]
    return placed(model, both) if any(one.count for one in both) else None


def _apart(fn: Callable, model: xsim.Model, *args):
    """fn of a model whose contacts do not act: the same where there are none, and a shorter program."""
    return fn(xsim.with_constraints(model, [kind for kind in model.topology.constraint_kinds if kind != "contact"]), *args)


# ---- rollouts -------------------------------------------------------------------------------------------------------------------

RADII = {"sphere": lambda s: s[0], "capsule": lambda s: s[0] + s[1], "cylinder": lambda s: np.hypot(*s[:2]), "ellipsoid": np.max,
         "box": np.linalg.norm}  # fmt: skip
STEPS = {1: 1, 10: 10, 100: 100}
"""What may be wrong after so many steps, in the precision of a state."""
UNFINISHED = 2e-4  # what the solver of 4.0 leaves of the forces of constraints in a step, with the tolerance of the models


def _check_steps(case: Case, state: xsim.State, ctrl) -> None:
    """One step, of states that touch nothing also 10 and 100 steps, as long as nothing comes near."""
    last = next((steps for size, steps in LENGTHS.items() if case.model.nv <= size), 1)
    bumping = any(case.rolls(s) and s["ncon"] for s in case.both)
    given = _given(case) if bumping and not case.own else None
    step = traced(partial(_apart, xsim.step, case.model), state, ctrl)
    first = step
    if bumping and case.own:
        first = traced(partial(xsim.step, case.model), state, ctrl)
    elif given is not None:
        first = partial(traced(partial(with_contacts(xsim.step), case.model), given, state, ctrl), given)
    path = [state, first(state, ctrl)]
    while len(path) <= last:
        path.append(step(path[-1], ctrl))
    found = {name: np.stack([getattr(s, name) for s in path], 1) for name in ("q", "v", "act")}
    for i, s in enumerate(case.both):
        if case.rolls(s):
            free = 1 if s["ncon"] else steps_without_contacts(case.source, case.model, found["q"][i])
            if not (given is not None and s["ncon"] and case.model.topology.integrator in RUNGE_KUTTA):
                _check_path(case, s, {name: x[i] for name, x in found.items()}, min(free, last))


def _check_path(case: Case, s: dict, found: dict, last: int) -> None:
    """States after up to so many steps."""
    for steps, times in STEPS.items():
        if steps <= last and str(steps) in s["steps"]:
            for name, key in zip(found, ("qpos", "qvel", "act"), strict=True):
                finished = case.source.rules != "4.0" and case.source.option.solver.get("solver", "Newton") == "Newton"
                allowed = times * case.exact if finished or not s["nefc"] else UNFINISHED
                case.near(f"{steps} steps, {name}", found[name][steps], s["steps"][str(steps)][key], allowed)


def steps_without_contacts(source: xsim.ModelSpec, model: xsim.Model, q) -> int:
    """The first step at which two geoms that may touch have spheres around them that overlap; q: (steps, nq)."""
    if {"constraint", "contact"}.intersection(source.option.disabled):
        return len(q)
    geoms = _geoms(source)
    bare = xsim.with_constraints(model, ())
    pos, quat = traced(partial(xsim.geom_poses, bare), q)(q)
    near = np.zeros(len(q), bool)
    pairs = {tuple(sorted(p.geoms)) for p in source.pairs}
    for i, (a, one) in enumerate(geoms):
        for k, (b, two) in enumerate(geoms[:i]):
            if (k, i) not in pairs and (not _may_touch(one, two) or _fixed_together(source, a, b)):
                continue
            margin = max(one.contact.margin, two.contact.margin) + 1e-6
            if "plane" in (one.shape, two.shape):
                plane, other = (i, k) if one.shape == "plane" else (k, i)
                normal = _matrices(quat[:, plane]).reshape(-1, 3, 3)[:, :, 2]
                apart = ((pos[:, other] - pos[:, plane]) * normal).sum(-1) - _radius(source, geoms[other][1])
            else:
                apart = np.linalg.norm(pos[:, i] - pos[:, k], axis=-1) - _radius(source, one) - _radius(source, two)
            near |= apart < margin
    return int(np.argmax(near)) if near.any() else len(q)


def _radius(source: xsim.ModelSpec, geom) -> float:
    if geom.shape == "mesh":
        return float(np.linalg.norm(source.meshes[geom.asset].vertices, axis=1).max())
    return float(RADII[geom.shape](np.asarray(geom.size))) if geom.shape in RADII else np.inf


def _may_touch(a, b) -> bool:
    a, b = a.contact, b.contact
    return bool(a.contype & b.conaffinity or b.contype & a.conaffinity)


def _fixed_together(source: xsim.ModelSpec, a: int, b: int) -> bool:
    """Whether the geoms of two bodies are never tested: one weld group, or parent and child but for the world."""

    def group(body: int) -> int:
        while body >= 0 and not source.bodies[body].joints:
            body = source.bodies[body].parent
        return body

    a, b = group(a), group(b)
    if a == b or tuple(sorted((a, b))) in {tuple(sorted(pair)) for pair in source.exclude}:
        return True
    up = [-1 if x < 0 else group(source.bodies[x].parent) for x in (a, b)]
    return "filterparent" not in source.option.disabled and (a >= 0 and up[0] == b >= 0 or b >= 0 and up[1] == a >= 0)
