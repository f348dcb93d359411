"""Contacts of flexes: those of MuJoCo 3.2.7 and 4.0.0, momentum, what may touch what, derivatives, batches."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close
from test_gradients import check_both_modes
from traced import by_numpy, traced

import xsim
from xsim.compile.choice import tracing_for

KNOWN = json.loads((Path(__file__).parent / "reference/flex_contacts.json").read_text())
"""By release and name, recorded by reference/make_flex_contacts.py."""
DAILY = {
    "a sheet by itself, overridden", "a solid, a ball, a box", "a line, a box, a ball, a capsule", "a sheet, boxes, capsules",
    "inside of a sheet", "numbers of surfaces", "priority",
}  # fmt: skip
"""Every dimension of a flex against geoms, a flex against itself, inner points, numbers of surfaces. Nightly: more shapes and flexes,
height fields, layers, and the scenes of both releases with the older one."""


def _is_nightly(rules: str, name: str) -> bool:
    return name not in DAILY or rules == "3.2" and name in KNOWN["4.0"]


CASES = [
    pytest.param(rules, name, marks=[pytest.mark.nightly] * _is_nightly(rules, name)) for rules, known in KNOWN.items() for name in known
]
SHEET = '<flexcomp name="f" type="grid" dim="2" count="3 3 1" spacing=".1 .1 .1" radius=".01" mass="1"><contact {}/>{}</flexcomp>'
BALL = '<body name="ball" pos=".03 .02 .045"><freejoint/><geom name="ball" size=".04" mass="1"/></body>'
CUBE = BALL.replace('size=".04"', 'type="box" size=".04 .04 .04"')
EDGES = '<edge damping="1"/>'


@pytest.fixture(autouse=True)
def _evaluated_as_it_is():
    """Most tests here evaluate a step of some 100,000 operations once, by numpy; LLVM would compile it first. Both compilers make programs
    of the same functions (`test_compiler.py`)."""
    with tracing_for("xla"):
        yield


def load(text: str, rules: str = "4.0") -> xsim.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("error", xsim.UnsupportedWarning)
        return xsim.loads(text, "mjcf", rules=rules)


def scene(world: str, more: str = "", option: str = "") -> str:
    return f"<mujoco><option {option}/><worldbody>{world}</worldbody>{more}</mujoco>"


# ---- the engine -----------------------------------------------------------------------------------------------------------------


def _side(model: xsim.Model, geom: int, part: int):
    """What is on one side of a contact here: a geom, or a flex and its points."""
    if geom >= 0:
        return geom
    info = model.topology.parts[part]
    return info.flex, tuple(sorted(info.points))


def _wanted_sides(flexes, sides) -> list:
    """The same of MuJoCo's numbers; of an element that meets one of its own points, the face across."""
    out = []
    for geom, flex, element, point in sides:
        if geom >= 0:
            out.append(geom)
            continue
        across = sides[0][3] if (geom, flex, element, point) == tuple(sides[1]) else sides[1][3]
        own = (point,) if point >= 0 else tuple(sorted({*flexes[flex].elements[element].tolist()}))
        out.append((flex, tuple(p for p in own if p != across or len(own) < 4)))
    return out


def _contacts(found: xsim.ContactData, k: int, model: xsim.Model) -> list:
    """(sides, distance, point, normal from the first to the second side) of the contacts of environment k."""
    out = []
    for i in np.flatnonzero(found.active[k]):
        sides = [_side(model, g, p) for g, p in zip(found.geoms[k, i].tolist(), found.parts[k, i].tolist(), strict=True)]
        out.append((*_ordered(sides, found.frame[k, i, 0]), float(found.distance[k, i]), np.asarray(found.point[k, i])))
    return sorted(out, key=lambda c: (str(c[0]), c[2]))


def _ordered(sides: list, normal):
    swapped = str(sides[0]) > str(sides[1])
    return tuple(sides[::-1] if swapped else sides), -normal if swapped else normal


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "name"), CASES)
def test_contacts_and_accelerations_of_the_engine(rules, name, x64):
    """What touches what, distances, points, normals; under the rules 4.0 what they do and what sensors feel.

    MuJoCo's search ends a little off, normals by more than distances, accelerations by what that makes. 3.2.7 shares what pushes an
    element among its corners so that the shares do not sum to one; that is not followed, so its accelerations are compared where only
    points of flexes are touched. Force sensors leave out in both what flexes do to a body."""
    known = KNOWN[rules][name]
    model = load(known["model"], rules)
    spec = xsim.parse_text(known["model"], "mjcf", rules=rules)
    q, v, a = (np.array([s[k] for s in known["states"]]) for k in "qva")
    state = xsim.init(model, q, v)
    program = lambda m, s: (xsim.contacts(m, s), xsim.forward(m, s))  # noqa: E731
    found, data = jax.tree.map(np.asarray, traced(program, model, state)(model, state))
    assert any(s["contacts"] for s in known["states"])
    for k, recorded in enumerate(known["states"]):
        both = zip(recorded["contacts"], recorded["sides"], strict=True)
        sided = [(*_ordered(_wanted_sides(spec.flexes, s), np.array(c[4:7])), c[0], np.array(c[1:4])) for c, s in both]
        wanted = sorted(sided, key=lambda c: (str(c[0]), c[2]))
        own = _contacts(found, k, model)
        assert [c[0] for c in own] == [c[0] for c in wanted]
        for what, i, tolerance in (("normals", 1, 2e-5), ("distances", 2, 1e-7), ("points", 3, 2e-5)):
            close(f"{what} {k}", np.array([c[i] for c in own]), np.array([c[i] for c in wanted]), tolerance, 1.0)
        if rules == "4.0" or all(max(s[0][2], s[1][2]) < 0 for s in recorded["sides"]):
            close(f"acceleration {k}", data.a[k], a[k], 1e-5)
            close(f"sensors {k}", data.sensor[k], recorded["sensors"], 1e-5)


# ---- what is touched ------------------------------------------------------------------------------------------------------------


def kinds(model: xsim.Model) -> dict:
    """How many pairs of each two shapes may touch."""
    out: dict = {}
    for info in model.topology.pairs:
        out[info.shapes] = out.get(info.shapes, 0) + len(info.geoms.value)
    return out


@pytest.mark.parametrize(
    ("world", "rules", "wanted"),
    [
        (BALL + SHEET.format("", EDGES), "4.0", {("sphere", "simplex"): 8, ("simplex", "simplex"): 7}),
        (BALL + SHEET.format('selfcollide="none"', EDGES), "4.0", {("sphere", "simplex"): 8}),
        (BALL + SHEET.format('contype="2" conaffinity="2"', EDGES), "4.0", {("simplex", "simplex"): 7}),
        (BALL + SHEET.format('contype="2"', EDGES), "4.0", {("sphere", "simplex"): 8}),
        (BALL + SHEET.format('contype="0" conaffinity="0"', EDGES), "4.0", {}),
        # of a sheet with three points in the world: its elements there do not meet the world's geoms, and planes do not meet these points
        (
            '<geom size=".1"/><geom type="plane" size="1 1 1"/>' + SHEET.format('selfcollide="none"', EDGES + '<pin id="0 1 2"/>'), "4.0",
            {("plane", "sphere"): 6, ("sphere", "simplex"): 4},
        ),
        (SHEET.format("", EDGES).replace("<flexcomp", '<flexcomp rigid="true"') + BALL, "4.0", {("sphere", "simplex"): 8}),
        (CUBE + SHEET.format('selfcollide="none"', EDGES), "4.0", {("box", "triangle"): 8}),
        (CUBE + SHEET.format('selfcollide="none" internal="false"', EDGES), "3.2", {("box", "simplex"): 8}),
        (SHEET.format('selfcollide="none"', EDGES), "3.2", {("sphere", "simplex"): 16}),
        (SHEET.format('selfcollide="none" internal="false"', EDGES), "3.2", {}),
    ],
)  # fmt: skip
def test_what_may_touch(world, rules, wanted):
    assert kinds(load(scene(world), rules)) == wanted


@pytest.mark.parametrize(("layers", "elements"), [(0, 0), (1, 168), (2, 276)])
def test_layers_that_may_touch(layers, elements):
    """Of a block with more layers of tetrahedra than one; as many as in MuJoCo (flex_elemlayer)."""
    block = SHEET.replace('dim="2" count="3 3 1"', 'dim="3" count="5 5 5"').format(f'selfcollide="none" activelayers="{layers}"', "")
    assert kinds(load(scene(BALL + block))).get(("sphere", "simplex"), 0) == elements


def test_what_stands_does_not_touch_what_stands(x64):
    """Rigid flexes and pinned ones on bodies without joints; the model still runs."""
    ground, sheet = '<geom type="plane" size="1 1 1"/>', SHEET.format('selfcollide="none"', EDGES)
    rigid = sheet.replace("<flexcomp", '<flexcomp rigid="true"')
    hinge = '<body pos="0 0 1"><joint/><geom size=".1" contype="0" conaffinity="0"/></body>'
    for still in (f'{ground}<body name="table" pos="0 0 .01">{rigid}</body>', f'<body pos="0 0 .03"><geom size=".04"/></body>{rigid}'):
        model = load(scene(still + hinge))
        assert not model.topology.pairs
        assert np.isfinite(by_numpy(xsim.step)(model, xsim.init(model)).v).all()


@pytest.mark.slow
def test_margins_of_a_batch_without_geoms(x64):
    two = SHEET.format('selfcollide="none"', EDGES) + SHEET.replace('"f"', '"g" pos=".02 .01 .015"').format('selfcollide="none"', EDGES)
    model = load(scene(two))
    margin = np.array([[0.0, 0.0], [0.001, 0.002]])
    found = by_numpy(xsim.contacts)(model.replace({"surface.margin": margin}), xsim.init(model))
    assert found.active.sum(-1).shape == (2,) and found.active.any(-1).all()


@pytest.mark.slow
def test_adhesion_leaves_flexes_out(x64):
    """As MuJoCo."""
    text = scene(BALL + SHEET.format('selfcollide="none"', EDGES), '<actuator><adhesion body="ball" ctrlrange="0 1" gain="10"/></actuator>')
    model = load(text)
    state = xsim.init(model)
    on, off = (by_numpy(lambda m, s, c=c: xsim.forward(m, s, ctrl=np.array([c])).a)(model, state) for c in (1.0, 0.0))
    np.testing.assert_array_equal(on, off)


@pytest.mark.parametrize("geom", ['type="cylinder" size=".06 .04"', 'type="mesh" mesh="block"'])
def test_lines_have_one_contact_with_flat_faces(geom, x64):
    """The flag `multiccd` gives only geoms several contacts with a face. MuJoCo 4.0.0: one at -0.005 m."""
    corners = " ".join(f"{x} {y} {z}" for x in (-0.06, 0.06) for y in (-0.05, 0.05) for z in (-0.04, 0.04))
    line = '<flexcomp name="f" type="grid" dim="1" count="2 1 1" spacing=".1 .1 .1" radius=".01" mass=".2"/>'
    world = f'<body pos="0 0 .045"><freejoint/><geom {geom}/></body>{line}'
    model = load(scene(world, f'<asset><mesh name="block" vertex="{corners}"/></asset>'))
    found = xsim.contacts(model, xsim.init(model))
    np.testing.assert_allclose(found.distance[found.active], [-0.005], atol=1e-9)


def test_flags_and_rows_switch_them_off():
    world = BALL + SHEET.format("", EDGES)
    assert load(scene(world, '<option><flag contact="disable"/></option>')).topology.parts == ()
    assert "contact" not in xsim.with_constraints(load(scene(world)), ["holonomic"]).topology.constraint_kinds


def _meeting(rules: str) -> tuple[xsim.Model, xsim.State]:
    """A ball, a box and a line that push a sheet; nothing else acts."""
    box = '<body name="box" pos="-.06 -.03 .036" euler="20 10 0"><freejoint/><geom type="box" size=".03 .02 .02" mass="2"/></body>'
    line = '<flexcomp name="g" type="grid" dim="1" count="3 1 1" spacing=".08 .1 .1" radius=".01" pos="-.02 .07 .015" mass=".4">'
    contact = '<contact selfcollide="none" condim="6" friction=".8 .01 .01"/>'
    world = BALL + box + SHEET.format('selfcollide="none"', EDGES) + line + contact + EDGES + "</flexcomp>"
    model = load(scene(world, option='gravity="0 0 0"'), rules)
    return model, xsim.init(model, v=0.3 * np.random.default_rng(3).normal(size=model.nv))


@pytest.mark.slow
@pytest.mark.parametrize("rules", [pytest.param("3.2", marks=pytest.mark.nightly), "4.0"])
def test_what_pushes_is_pushed_back(rules, x64):
    """Momenta stay as they are, linear and angular."""
    model, state = _meeting(rules)
    data, found = traced(lambda m, s: (xsim.forward(m, s), xsim.contacts(m, s)), model, state)(model, state)
    assert (np.abs(found.force[:, 0]) > 1e-3).sum() >= 4
    force, moment = data.external_force, data.external_moment + np.cross(data.pos, data.external_force)
    size = np.abs(force).max()
    np.testing.assert_allclose(force.sum(0), 0, atol=1e-12 * size)
    np.testing.assert_allclose(moment.sum(0), 0, atol=1e-12 * size)
    for body, info in enumerate(model.topology.bodies):
        if info.name.startswith(("f_", "g_")):  # a point, on three slides along the axes of the world
            first = info.joints[0].v[0]
            np.testing.assert_allclose(data.constraint[first : first + 3], force[body], atol=1e-12 * size)


# ---- derivatives and batches ------------------------------------------------------------------------------------------------------


LEAVES = (
    "flex.radius", "flex.pos", "geom.size", "geom.pos", "surface.friction", "surface.solref", "surface.solimp", "surface.margin",
    "body.mass",
)  # fmt: skip
CLOTH = BALL + SHEET.format('selfcollide="none" friction=".6 .01 .01" condim="{}" solimp=".5 .9 .02 .5 2"', "")
THIN = CLOTH.replace("</flexcomp>", '<elasticity young="500" poisson=".2" thickness=".01"/></flexcomp>')
DIFFERENT = {
    "a ball on a sheet": (THIN.format(3), 'cone="elliptic"'),
    "a box on a line, pyramids": (
        '<body pos=".03 .02 .035" euler="3 5 20"><freejoint/><geom type="box" size=".03 .05 .03" mass="1"/></body>'
        + SHEET.replace('dim="2" count="3 3 1"', 'dim="1" count="4 1 1"').format('selfcollide="none"', EDGES), "",
    ),
    "a box and a capsule on a sheet": (
        '<body pos=".04 .03 .035" euler="3 5 20"><freejoint/><geom type="box" size=".03 .05 .03" mass="1"/></body>'
        '<body pos="-.05 -.03 .025" euler="85 5 20"><freejoint/><geom type="capsule" size=".02 .04" mass="1"/></body>'
        + SHEET.format('selfcollide="none"', EDGES), 'cone="elliptic"',
    ),
    "a cylinder on a solid": (
        '<body pos=".03 .02 .16" euler="30 5 20"><freejoint/><geom type="cylinder" size=".04 .02" mass="1"/></body>'
        + SHEET.replace('dim="2" count="3 3 1"', 'dim="3" count="2 2 2"').format('selfcollide="none"', '<elasticity young="900"/>')
        .replace("<flexcomp", '<flexcomp pos="0 0 .06"'), 'cone="elliptic"',
    ),
    "a plane, a sheet on itself": (
        '<geom type="plane" size="1 1 1" pos="0 0 -.006"/>' + SHEET.replace('".01"', '".045"').format("", EDGES), "",
    ),
}  # fmt: skip


def _points(model: xsim.Model, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    q = np.broadcast_to(np.asarray(model.topology.initial[0]), (count, model.nq)) + 0.004 * rng.normal(size=(count, model.nq))
    point = {path: np.asarray(model.get(path)) for path in LEAVES if model.get(path).size}
    point = {path: x * rng.uniform(0.97, 1.03, (count, *x.shape)) + (1e-3 if path == "surface.margin" else 0) for path, x in point.items()}
    return point | {"q": q, "v": 0.1 * rng.normal(size=(count, model.nv))}


REPEATED = {"a box on a line, pyramids", "a cylinder on a solid", "a plane, a sheet on itself"}
"""Scenes of `DIFFERENT` whose derivatives are compared nightly: rows of the same kinds as in the others."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.nightly] * (x in REPEATED)) for x in DIFFERENT])
def test_derivatives(name, x64):
    """Of a step through contacts of flexes, with respect to the state and the numbers of what touches."""
    text, option = DIFFERENT[name]
    model = load(scene(text, option=option))
    weights = np.random.default_rng(5).normal(size=model.nv)
    point = _points(model, 2)

    def loss(point):
        m = model.replace({path: x for path, x in point.items() if path not in ("q", "v")})
        return xsim.step(m, xsim.init(m, point["q"], point["v"])).v @ weights

    reach = {"default": 1e-6, "surface.solref": 1e-5, "surface.solimp": 1e-5, "surface.friction": 1e-5, "body.mass": 1e-4, "v": 1e-5}
    reverse = check_both_modes(loss, point, 2, reach, 1e-5)
    for path in ("flex.radius", "flex.pos"):
        assert np.any(reverse[path])


DEGENERATE = {
    "a ball in the plane of a sheet": {"ball": (0.01, 0.03, 0.0)},
    "a ball at a point": {"ball": (0.0, 0.0, 0.0)},
    "a ball on an edge": {"ball": (0.05, 0.0, 0.0)},
    "points at one place": {"ball": (0.03, 0.02, 0.04), "points": 0.0},
    "points on a line": {"ball": (0.03, 0.02, 0.04), "points": (1.0, 0.0, 0.0)},
}


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, pytest.param(2, marks=pytest.mark.nightly), pytest.param(3, marks=pytest.mark.nightly)])
def test_degenerate_places_are_finite(dim, x64):
    """Values and derivatives."""
    kind = {1: 'dim="1" count="4 1 1"', 2: 'dim="2" count="3 3 1"', 3: 'dim="3" count="2 2 2"'}[dim]
    model = load(scene(BALL + SHEET.replace('dim="2" count="3 3 1"', kind).format("", "" if dim == 3 else EDGES)), "3.2")
    q, rest = [], np.array([model.topology.bodies[b].name.startswith("f") for b in range(len(model.topology.bodies))])
    drawn = by_numpy(xsim.kinematics)(model, xsim.init(model).q)[0][rest]
    for case in DEGENERATE.values():
        own = np.array(model.topology.initial[0])
        own[:3] = case["ball"]
        own[7:] = ((np.array(case.get("points", 1.0)) - 1.0) * drawn).reshape(-1)
        q.append(own)
    state = xsim.init(model, np.array(q))

    def loss(radius, q):
        m = model.replace({"flex.radius": radius})
        return (xsim.step(m, state.replace(q=q)).v ** 2).sum()

    values = by_numpy(jax.value_and_grad(loss, (0, 1)))(np.asarray(model.flex.radius), np.array(q))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(values))


@pytest.mark.slow
def test_environments_with_numbers_of_their_own(x64):
    """A batch gives what its environments give alone, also where the buffer holds fewer contacts."""
    model = load(scene(THIN.format(4)))
    for own in (model, xsim.with_contact_limit(model, 5, 6)):
        point = _points(own, 3)
        q, v = point.pop("q"), point.pop("v")
        program = by_numpy(lambda m, q, v: xsim.step(m, xsim.init(m, q, v)))
        together = program(own.replace(point), q, v)
        for i in range(3):
            alone = program(own.replace({k: x[i] for k, x in point.items()}), q[i], v[i])
            close("alone", alone.v, together.v[i], 1e-10)
            assert alone.flags == together.flags[i]


@pytest.mark.slow
@pytest.mark.slow
def test_pairs_that_reach_the_narrow_phase(x64):
    """Where only the nearest pairs of a box and triangles do, these are the ones that touch."""
    cube = CUBE.replace(".04 .04 .04", ".02 .02 .02").replace(".03 .02 .045", ".05 .05 .027")
    model = load(scene(cube + SHEET.format('selfcollide="none"', EDGES)))
    q = np.array(model.topology.initial[0]) + 0.001 * np.random.default_rng(3).normal(size=(4, model.nq))
    program = by_numpy(lambda m, q: (xsim.forward(m, xsim.init(m, q)).a, xsim.contacts(m, xsim.init(m, q)).active.sum(-1)))
    wanted, count = program(model, q)
    found, same = program(xsim.with_contact_limit(model, None, 4), q)
    assert (count > 0).all() and (count == same).all(), (count, same)
    close("acceleration", found, wanted, 1e-9)


def test_too_many_contacts_are_said(x64):
    model, state = _meeting("4.0")
    few = xsim.with_contact_limit(model, 3)
    overflow = by_numpy(lambda m, s: xsim.step(m, s).flags)
    assert overflow(model, state) & xsim.Flags.CONTACT_OVERFLOW == 0
    assert overflow(few, state) & xsim.Flags.CONTACT_OVERFLOW


@pytest.mark.slow
@pytest.mark.nightly
def test_a_sheet_falls_on_a_ball_and_lies_on_the_ground():
    """In single precision: nothing falls through, and it comes to rest."""
    ground = '<geom type="plane" size="1 1 1"/><geom type="sphere" size=".06" pos="0 0 .03"/>'
    sheet = '<flexcomp name="f" type="grid" dim="2" count="3 3 1" spacing=".12 .12 .1" radius=".01" mass=".2" pos="0 0 .13">'
    inside = '<contact selfcollide="none" solref=".01 1"/><edge equality="true" damping=".1"/></flexcomp>'
    model = load(scene(ground + sheet + inside, option='timestep=".004"'))
    with tracing_for("llvm"):  # XLA takes 1.6 GB for this step, LLVM half
        final = jax.jit(lambda s: xsim.rollout(model, s, steps=400)[0])(xsim.init(model))
    assert final.v.dtype == jnp.float32 and int(final.flags) == 0
    points = by_numpy(xsim.kinematics)(model, final.q)[0]
    assert 0.008 < points[:, 2].min() < 0.012
    assert 0.09 < points[:, 2].max() < 0.12
    assert np.abs(final.v).max() < 0.2
