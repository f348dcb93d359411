"""Deformables: numbers of MuJoCo 3.2.7 and 4.0.0, energy and momentum, derivatives, batches."""

from __future__ import annotations

import json
import math
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
from xsim.dynamics.call import Call
from xsim.dynamics.constraints.soft_set import constraints
from xsim.io.mjcf.cell_moments import boundary_triangles, cell_moments, is_closed, is_inside

KNOWN = json.loads((Path(__file__).parent / "reference/flexes.json").read_text())
KNOWN["4.0"] |= json.loads((Path(__file__).parent / "reference/flexes_4_0.json").read_text())
"""By release and name, recorded by reference/make_flexes.py and make_flexes_4_0.py."""
DAILY = (
    "edges of triangles keep their lengths", "springs, implicitfast", "triangles", "triangles that bend", "tetrahedra", "rod",
    "cloth that creases", "nodes, trilinear",
)  # fmt: skip
LEAVES = tuple(
    f"flex.{leaf}" for leaf in ("length", "edge_stiffness", "edge_damping", "young", "poisson", "damping", "thickness", "pos", "angle")
)
MASS = '<inertial pos="0 0 0" mass=".2" diaginertia=".001 .002 .003"/>'
SLIDES = "".join(f'<joint type="slide" axis="{axis}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1"))


def load(text: str, rules: str = "3.2") -> xsim.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xsim.UnsupportedWarning)
        return xsim.loads(text, "mjcf", rules=rules)


def scene(flexes: str, more: str = "", option: str = "", gravity: str = "0 0 -9.81") -> str:
    """Three bodies on slides, one on a hinge, one free."""
    return f"""<mujoco><option gravity="{gravity}" {option}><flag contact="disable"/></option><worldbody>
      <body name="a" pos="0 0 0">{SLIDES}{MASS}</body><body name="b" pos=".2 0 0">{SLIDES}{MASS}</body>
      <body name="c" pos="0 .3 .1">{SLIDES}{MASS}</body>
      <body name="d" pos=".1 .1 .3"><joint axis="1 .3 0" pos="0 .2 0"/>{MASS}</body><body name="e" pos=".3 .3 .2"><freejoint/>{MASS}</body>
      </worldbody><deformable>{flexes}</deformable>{more}</mujoco>"""


LINES = '<flex name="l" dim="1" body="a d e" element="0 1 1 2"><edge stiffness="30" damping="2"/></flex>'
SHEET = """<flex name="t" dim="2" body="a b c e" vertex="0 0 0 0 0 .02 .01 0 0 .02 .03 0" element="0 1 2 1 3 2">
  <elasticity young="900" poisson=".3" damping=".02" thickness=".02"/></flex>"""
BENT = """<flex name="t" dim="2" body="a b c e" vertex="0 0 0 0 0 .02 .01 0 0 .02 .03 0" element="0 1 2 1 3 2">
  <elasticity young="9000" poisson=".3" damping=".02" thickness=".04" elastic2d="both"/></flex>"""
SOLID = '<flex name="s" dim="3" body="a b c d e" element="0 1 2 3 1 2 3 4"><elasticity young="700" poisson=".2" damping=".01"/></flex>'
ROD = """<mujoco><option gravity="0 0 0" timestep=".001"><flag contact="disable"/></option><worldbody>
  <flexcomp name="f" type="grid" dim="1" count="4 1 1" spacing=".1 .1 .1" radius=".01" mass=".2" euler="{}"><elasticity {}/></flexcomp>
  </worldbody></mujoco>"""
KEPT = '<equality><flex flex="t" solref=".03 .9" solimp=".7 .9 .02 .4 3"/></equality>'


# ---- the engine -----------------------------------------------------------------------------------------------------------------


def _rows(model: xsim.Model, state: xsim.State):
    """Of soft constraints: J, 1 / R, -aref."""
    c = Call(model, state.q, state.v)
    kept = constraints(c.system, c.q, c.v)
    return None if kept is None else [x[..., 0] for x in (kept.rows.general, kept.rows.stiffness, kept.rows.offset)]


def _case(rules: str, name: str):
    return pytest.param(rules, name, marks=() if name in DAILY else pytest.mark.nightly)


@pytest.mark.parametrize(("rules", "name"), [_case(r, n) for r, known in KNOWN.items() for n, k in known.items() if "error" not in k])
def test_numbers_of_the_engine(rules, name, x64):
    """Lengths at the start, passive forces, rows, accelerations and five steps."""
    known = {k: x if k == "model" else np.array(x) for k, x in KNOWN[rules][name].items()}
    model = load(known["model"], rules)
    state = xsim.init(model, known["q"], known["v"])
    if state.plastic.size:
        state = state.replace(plastic=jnp.asarray(known["plastic"]))
        if name == "rod with fixed ends":
            first = by_numpy(xsim.passive)(model, known["first_q"], known["first_v"])
            close("passive forces without a step before", first, known["first_passive"], 1e-11)
    data, rows = traced(lambda m, s: (xsim.forward(m, s), _rows(m, s)), model, state)(model, state)
    # MuJoCo finds the rotations of cells by iterations, which end at about 1e-9.
    has_grid = any(flex.grid for flex in model.topology.flexes)
    loose = 1000 if has_grid else 1
    if len(model.flex.length):
        np.testing.assert_allclose(model.flex.length, known["lengths"], rtol=1e-12)
    elif not has_grid:
        assert not np.any(known["passive"])
    close("passive forces", data.passive, known["passive"], loose * 1e-11)
    close("acceleration", data.a, known["a"], max(1, loose / 100) * 1e-9)
    if rows is not None and any(equality.kind == "flexstrain" for equality in model.topology.soft):
        # Eigenvectors have any sign and order.
        (J, D, offset), wanted = rows, known["J"]
        close("J^T J", J.T @ (D[:, None] * J), wanted.T @ (wanted / known["R"][:, None]), 1e-8)
        close("J^T aref", J.T @ (D * offset), -wanted.T @ (known["aref"] / known["R"]), 1e-8)
    elif rows is not None:
        for what, found, wanted in zip(("J", "1 / R", "aref"), rows, (known["J"], 1 / known["R"], -known["aref"]), strict=True):
            close(what, found, wanted, 1e-10)
    step = by_numpy(xsim.step)
    for _ in range(5):
        state = step(model, state)
    close("positions after five steps", state.q, known["later_q"], 1e-10)
    close("velocities after five steps", state.v, known["later_v"], max(1, loose / 100) * 1e-9)
    if state.plastic.size:
        close("what yielded after five steps", state.plastic, known["later_plastic"], 1e-10)


# ---- meaning --------------------------------------------------------------------------------------------------------------------


def test_a_block_that_is_strained_alike_stores_what_its_material_says(x64):
    """St. Venant and Kirchhoff's: volume times (mu tr E^2 + lambda / 2 (tr E)^2), E = (F^T F - 1) / 2."""
    comp = '<flexcomp name="f" type="grid" dim="3" count="3 3 3" spacing=".1 .2 .15" radius=".01"><elasticity young="5000" poisson=".3"/>'
    model = load(f'<mujoco><option gravity="0 0 0"/><worldbody>{comp}</flexcomp></worldbody></mujoco>', "4.0")
    F = np.array([[1.1, 0.2, 0.0], [-0.1, 0.95, 0.1], [0.05, 0.0, 1.2]])
    at = np.asarray(model.body.pos)
    q = (at @ (F - np.eye(3)).T).reshape(-1)
    E, mu, lam = 0.5 * (F.T @ F - np.eye(3)), 5000 / 2.6, 5000 * 0.3 / (1.3 * 0.4)
    energy = by_numpy(lambda m, q: xsim.energy(m, q, 0 * q)[1])
    assert abs(energy(model, np.zeros_like(q))) < 1e-12
    np.testing.assert_allclose(energy(model, q), 0.2 * 0.4 * 0.3 * (mu * (E * E).sum() + lam / 2 * np.trace(E) ** 2), rtol=1e-12)
    turned, _ = np.linalg.qr(F)
    assert abs(energy(model, (at @ (turned * np.sign(np.linalg.det(turned)) - np.eye(3)).T).reshape(-1))) < 1e-10


@pytest.mark.slow
def test_forces_do_the_work_that_is_stored_and_dampers_take_some(x64):
    """Passive forces are minus the gradient of the energy at rest; moving, dampers take power away; forces on all points add up to none."""
    model = load(scene(LINES + SHEET + SOLID, gravity="0 0 0"))
    rng = np.random.default_rng(3)
    q, v = np.asarray(model.topology.initial[0]) + 0.1 * rng.normal(size=model.nq), rng.normal(size=model.nv)
    q[10:17] = *q[10:13], *(q[13:] / np.linalg.norm(q[13:]))

    def numbers(m, q, v, dv):
        moved = xsim.integrate(m, q, dv)
        return xsim.energy(m, moved, 0 * dv)[1]

    slope = by_numpy(jax.grad(numbers, 3))(model, q, v, 0 * v)
    passive = by_numpy(xsim.passive)
    still = passive(model, q, 0 * v)
    close("force", still, -slope, 1e-11)
    assert (passive(model, q, v) - still) @ v < 0
    kept = passive(load(scene(LINES + SHEET + SOLID, option='integrator="Euler"').replace('contact="disable"', 'passive="disable"')), q, v)
    assert not np.any(kept)


def test_a_sheet_that_is_rolled_stores_what_a_plate_does(x64):
    """Half the rigidity E t^3 / (12 (1 - nu^2)) times the square of the curvature, per area; and turned or moved, nothing."""
    young, poisson, thickness, radius, count = 1e6, 0.3, 0.01, 0.8, (13, 3)
    sheet = f"""<flexcomp name="f" type="grid" dim="2" count="{count[0]} {count[1]} 1" spacing=".02 .02 .02" radius=".001">
      <elasticity young="{young}" poisson="{poisson}" thickness="{thickness}" elastic2d="bend"/></flexcomp>"""
    model = load(f'<mujoco><option gravity="0 0 0"/><worldbody>{sheet}</worldbody></mujoco>', "4.0")
    at = np.asarray(model.body.pos)
    energy = by_numpy(lambda m, q: xsim.energy(m, q, 0 * q)[1])
    rolled = np.stack([radius * np.sin(at[:, 0] / radius), at[:, 1], radius * np.cos(at[:, 0] / radius)], 1)
    inner = 0.24 * 0.04 * 11 / 12  # no triangle bends at the two ends
    wanted = 0.5 * young * thickness**3 / (12 * (1 - poisson**2)) / radius**2 * inner
    np.testing.assert_allclose(energy(model, (rolled - at).reshape(-1)), wanted, rtol=0.05)
    turned, _ = np.linalg.qr(np.array([[1.0, 2, 0], [0, 1, 3], [2, 0, 1]]))
    assert abs(energy(model, (at @ turned.T + 1.0 - at).reshape(-1))) < 1e-12 * wanted


def test_flexes_in_one_model_are_those_of_models_of_their_own(x64):
    rng = np.random.default_rng(4)
    parts = [load(scene(one)) for one in (LINES, SHEET, SOLID)]
    model = load(scene(LINES + SHEET + SOLID))
    q, v = np.asarray(model.topology.initial[0]) + 0.05 * rng.normal(size=model.nq), rng.normal(size=model.nv)
    wanted = sum(np.asarray(traced(xsim.passive, one, q, v)(one, q, v)) for one in parts)
    close("passive forces", traced(xsim.passive, model, q, v)(model, q, v), wanted, 1e-13)


def test_flexes_that_do_nothing_are_no_part_of_the_model():
    """Rigid ones, those with contacts only, triangles under the rules of 4.0 as they are by default, equalities that are off."""
    rigid = '<flex name="r" dim="2" body="world" vertex="0 0 0 1 0 0 0 1 0" element="0 1 2"><elasticity young="3"/></flex>'
    bare = '<flex name="t" dim="2" body="a b c" element="0 1 2"/>'
    off = KEPT.replace('flex="t"', 'flex="t" active="false"')
    for text, rules in ((scene(rigid), "3.2"), (scene(bare), "3.2"), (scene(SHEET), "4.0"), (scene(bare, off), "3.2")):
        model = load(text, rules)
        assert not model.topology.flexes and all(model.get(path).size == 0 for path in LEAVES)
    model = load(scene(bare, KEPT))
    assert [x.kind for x in model.topology.soft] == ["flex"] and model.flex.young.size == 0


def test_lines_that_are_no_straight_chain_are_said_under_the_rules_of_4_0():
    line = '<flex dim="1" body="a b c" element="0 1 1 2"><elasticity young="3"/></flex>'
    with pytest.warns(xsim.UnsupportedWarning, match="bending and twist of lines"):
        xsim.parse_text(scene(line), "mjcf", rules="4.0")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        xsim.parse_text(scene(line), "mjcf")
    assert not any("bending" in str(one.message) for one in said)


def test_lines_are_turned_by_nothing_but_their_ends(x64):
    """A chain turned as a whole has no energy; one whose last line is turned by an angle stores G J / length times half its square."""
    model = load(ROD.format("0 0 0", 'young="1e6" shear="3e5"'), "4.0")
    at, turn = np.asarray(model.body.pos)[:4], xsim.poses.rotation_matrix(np.array([0.8, 0.36, 0.48, 0.0]))
    energy = by_numpy(lambda m, q: xsim.energy(m, q, jnp.zeros(m.nv))[1])
    q = np.concatenate([(at @ turn.T - at).reshape(-1), 0.7 * np.ones(3)])
    assert abs(energy(model, q)) < 1e-12
    q[-2:] += 0.5, 1.0
    length, moment = 0.2, 0.5 * np.pi * 0.01**4
    np.testing.assert_allclose(energy(model, q), 0.5 * 3e5 * moment / length * 1.0, rtol=1e-10)


@pytest.mark.parametrize(("text", "message"), [
    ('<elasticity young="1" section="box"/>', "sectionsize: found"), ('<elasticity shear="-1"/>', "shear: "),
    ('<elasticity elastic2d="bend"/>', "elastic2d: found 'bend' with dim 1; allowed: only with dim 2"),
    ('<elasticity section="star"/>', "section: unknown value 'star'"),
])  # fmt: skip
def test_elasticity_of_lines_that_cannot_be(text, message):
    flexcomp = f'<flexcomp name="f" dim="1" count="3 1 1" type="grid">{text}</flexcomp>'
    with pytest.raises(xsim.ParseError, match=message):
        xsim.parse_text(f"<mujoco><worldbody>{flexcomp}</worldbody></mujoco>", "mjcf", rules="4.0")


BLOCK = 'type="grid" dim="3" count="3 3 3" dof="trilinear"'
BALL = 'type="ellipsoid" dim="3" count="4 4 4" dof="trilinear"'


@pytest.mark.parametrize(("attributes", "inside", "message"), [
    (f'{BLOCK} cellcount="0 1 1"', "", "cellcount: found '0 1 1'; allowed: three numbers from 1, at most 100000 nodes"),
    ('type="grid" dim="2" count="3 3 1" dof="trilinear"', "", "the points are in a plane or on a line"),
    (BLOCK, '<pin id="8"/>', "id: found '8'; allowed: 0 to 7"), (BLOCK, '<pin grid="0 0 2"/>', "grid: found '0 0 2'; allowed: 0 to 1 1 1"),
    ('type="box" dim="2" count="3 3 3" dof="trilinear"', '<elasticity elastic2d="both" young="1" thickness="1"/>',
     "found dim 2, elastic2d both, yield 0.0 with dof 'trilinear', which is not simulated"),
    (BLOCK, '<elasticity young="1" yield=".1"/>', "found dim 3, elastic2d none, yield 0.1 with dof"),
    (BLOCK, '<edge equality="strain"/><elasticity young="1"/>', "flex: the flex 'f' has young 1; allowed with a constraint of strain: 0"),
])  # fmt: skip
def test_grids_of_nodes_that_are_not_simulated(attributes, inside, message):
    with pytest.raises(xsim.ParseError, match=message):
        xsim.parse_text(f'<mujoco><worldbody><flexcomp name="f" {attributes}>{inside}</flexcomp></worldbody></mujoco>', "mjcf", rules="4.0")


@pytest.mark.parametrize(("change", "message"), [
    (('node="a b c d e f g h"', 'node="a b c"'), "node: found 3 nodes; allowed with this cellcount and dof: 8"),
    (('pos="0 1 1"', 'pos="0 1.5 1"'), "node: the nodes are not evenly spaced"),
    (('vertex="0 0 0', 'vertex="-1 0 0'), "vertex: vertices are outside the box of the nodes"),
    (('element="0', 'cellcount="2 1 1" element="0'), "node: found 8 nodes; allowed with this cellcount and dof: 12"),
    (('dof="trilinear"', 'dof="cubic"'), "dof: unknown value 'cubic'"),
])  # fmt: skip
def test_flexes_with_nodes_that_cannot_be(change, message):
    names, corners = "abcdefgh", [f"{i} {j} {k}" for i in (0, 1) for j in (0, 1) for k in (0, 1)]
    bodies = "".join(f'<body name="{n}" pos="{at}"><freejoint/><geom size=".1"/></body>' for n, at in zip(names, corners, strict=True))
    tetrahedra = " ".join(f"0 {i} {j} 7" for i, j in ((4, 6), (6, 2), (2, 3), (3, 1), (1, 5), (5, 4)))
    mesh = f'body="world" vertex="{" ".join(corners)}" element="{tetrahedra}"'
    flex = f'<flex name="f" dim="3" dof="trilinear" node="{" ".join(names)}" {mesh}/>'
    text = f"<mujoco><worldbody>{bodies}</worldbody><deformable>{flex}</deformable></mujoco>"
    assert xsim.parse_text(text, "mjcf", rules="4.0").flexes[0].grid.cells.tolist() == [list(range(8))]
    with pytest.raises(xsim.ParseError, match=message):
        xsim.parse_text(text.replace(*change), "mjcf", rules="4.0")


@pytest.mark.parametrize(("dof", "cell", "message"), [
    ('dof="trilinear"', "1 0 0", "cell: found 1 0 0; allowed: 0 to 0 0 0"), ("", "0 0 0", "flex: the flex 'f' has no grid of nodes"),
    ('dof="trilinear"', "0 0", "cell: "),
])  # fmt: skip
def test_constraints_of_strain_that_cannot_be(dof, cell, message):
    flexcomp = f'<flexcomp name="f" type="grid" dim="3" count="3 3 3" {dof}/>'
    text = f'<mujoco><worldbody>{flexcomp}</worldbody><equality><flexstrain flex="f" cell="{cell}"/></equality></mujoco>'
    with pytest.raises(xsim.ParseError, match=message):
        xsim.parse_text(text, "mjcf", rules="4.0")


def test_a_grid_of_nodes_reads_back():
    """One whose cells have no strain, and a node is pinned."""
    spec = xsim.parse_text(KNOWN["4.0"]["cells without strain"]["model"], "mjcf", rules="4.0")
    back = xsim.parse_text(xsim.to_mjcf(spec), "mjcf", rules="4.0")
    for name in ("order", "counts", "sides", "cells", "vertices", "places", "vertex_nodes", "vertex_weights"):
        np.testing.assert_allclose(getattr(spec.flexes[0].grid, name), getattr(back.flexes[0].grid, name), atol=1e-12)
    assert spec.flexes[0].bodies == back.flexes[0].bodies
    assert [e.items for e in spec.equalities] == [e.items for e in back.equalities] == [(0, 0, 0, 0), (0, 1, 0, 0)]


@pytest.mark.parametrize(("dim", "text", "message"), [
    (2, 'yield="-1"', "yield: found '-1'; allowed: numbers >= 0"), (3, 'yield=".1 .1"', "yield: found '.1 .1'; allowed: a number >= 0"),
    (1, 'yield=".1"', "lines do not yield"), (2, 'yield=".1 -1"', "yield: found '.1 -1'; allowed: numbers >= 0"),
])  # fmt: skip
def test_yields_that_cannot_be(dim, text, message):
    flexcomp = f'<flexcomp name="f" dim="{dim}" count="3 3 {3 if dim == 3 else 1}" type="grid"><elasticity young="1" {text}/></flexcomp>'
    with pytest.raises(xsim.ParseError, match=message):
        xsim.parse_text(f"<mujoco><worldbody>{flexcomp}</worldbody></mujoco>", "mjcf", rules="4.0")


def test_what_yields_reads_back():
    flexcomp = '<flexcomp name="f" dim="2" count="3 3 1" type="grid"><elasticity young="1" thickness="1" {}/></flexcomp>'
    cases = (".2 0", "both", 0.2, 0.0, 24), (".2 .1", "both", 0.2, 0.1, 40), (".2", "bend", 0.0, 0.2, 16)
    for strains, kind, stretch, bend, size in cases:
        text = flexcomp.format(f'yield="{strains}" elastic2d="{kind}"')
        key = f'<keyframe><key name="start" plastic="{"0.5 " * size}"/></keyframe>'
        spec = xsim.parse_text(f"<mujoco><worldbody>{text}</worldbody>{key}</mujoco>", "mjcf", rules="4.0")
        back = xsim.parse_text(xsim.to_mjcf(spec), "mjcf", rules="4.0")
        for one in (spec, back):
            assert (one.flexes[0].numbers["yield_strain"], one.flexes[0].numbers["bend_yield_strain"]) == (stretch, bend)
            assert xsim.build(one).topology.size("nplastic") == one.flexes[0].nplastic == size
            np.testing.assert_array_equal(one.keys[0].plastic, np.full(size, 0.5))


def test_a_sheet_that_resists_bending_needs_a_thickness():
    sheet = '<flexcomp name="f" dim="2" count="3 3 1" type="grid"><elasticity young="1" elastic2d="bend"/></flexcomp>'
    with pytest.raises(xsim.ParseError, match="thickness: found -1; allowed with elastic2d: a positive number"):
        xsim.parse_text(f"<mujoco><worldbody>{sheet}</worldbody></mujoco>", "mjcf", rules="4.0")


def test_a_chain_needs_all_joints_of_its_twist():
    spec = xsim.parse_text(ROD.format("0 0 0", 'young="1e6"'), "mjcf", rules="4.0")
    text = xsim.to_mjcf(spec)
    back = xsim.parse_text(text, "mjcf", rules="4.0")
    assert [body.name for body in back.bodies[-3:]] == ["f_twist_0", "f_twist_1", "f_twist"]
    assert back.flexes[0].rod.twists == spec.flexes[0].rod.twists == ((4, 0), (5, 0), (6, 0))
    with pytest.raises(xsim.ParseError, match="the joint 'f_twist_1' is missing; allowed: one for the twist of each line, or none"):
        xsim.parse_text(text.replace('name="f_twist_1"', 'name="other"'), "mjcf", rules="4.0")


def test_keyframes_and_other_bodies_of_a_chain():
    """Bodies of the twist come after the outermost body around a flexcomp; a keyframe has frames of lines after springs that yield."""
    rod = ROD.format("0 0 0", 'young="1e6"').replace("<worldbody>", '<worldbody><body name="p">').replace(
        "</worldbody>", '<body name="q"/></body><body name="r"><joint name="j" springyield="1"/><geom size=".1"/></body></worldbody>'
    )  # fmt: skip
    key = f'<keyframe><key name="start" plastic="0.5 {"1 0 0 0 1 0 " * 3} 0.1 0.2"/></keyframe></mujoco>'
    spec = xsim.parse_text(rod.replace("</mujoco>", key), "mjcf", rules="4.0")
    assert [body.name for body in spec.bodies] == ["p", "f_0", "f_1", "f_2", "f_3", "q", "f_twist_0", "f_twist_1", "f_twist", "r"]
    model = xsim.build(spec)
    state = xsim.init(model, key="start")
    np.testing.assert_allclose(np.asarray(state.plastic)[[0, 1, -1]], [0.5, 1, 0.2])
    assert xsim.init(model).plastic.shape == (21,)


def test_contacts_of_lines_that_twist_are_said():
    rod = ROD.format("0 0 0", 'young="1e6" {}').replace('<flag contact="disable"/>', "")
    with pytest.warns(xsim.UnsupportedWarning, match="the turning of lines of flexes by friction"):
        xsim.parse_text(rod.format(""), "mjcf", rules="4.0")
    with pytest.warns(xsim.UnsupportedWarning, match="contacts of lines of flexes that are boxes"):
        xsim.parse_text(rod.format('section="box" sectionsize=".02 .01"'), "mjcf", rules="4.0")


# ---- derivatives and batches ------------------------------------------------------------------------------------------------------


def _points(model: xsim.Model, count: int) -> dict[str, np.ndarray]:
    """Random states and numbers; in the last environment points are at one place, at rest."""
    rng = np.random.default_rng(6)
    q = np.asarray(model.topology.initial[0]) + 0.05 * rng.normal(size=(count, model.nq))
    v = rng.normal(size=(count, model.nv))
    point = {path: np.asarray(model.get(path)) * rng.uniform(0.9, 1.1, (count, *model.shape(path))) for path in LEAVES}
    for path in ("soft.solref", "soft.solimp", "body.mass"):
        point[path] = np.broadcast_to(np.asarray(model.get(path)), (count, *model.shape(path))).copy()
    q[-1, :3] += np.array([0.2, 0.0, 0.02]) - q[-1, :3]
    q[-1, 3:6], v[-1] = 0.0, 0.0
    return point | {"q": q, "v": v}


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "integrator"), [("3.2", "Euler"), pytest.param("3.2", "implicitfast", marks=pytest.mark.nightly),
                                                   pytest.param("4.0", "Euler", marks=pytest.mark.nightly)])  # fmt: skip
def test_derivatives(rules, integrator, x64):
    """Of a step with respect to the state and every number of flexes."""
    model = load(scene(LINES + (BENT if rules == "4.0" else SHEET) + SOLID, KEPT, f'integrator="{integrator}"'), rules)
    weights = np.random.default_rng(5).normal(size=model.nv)

    def loss(point):
        m = model.replace({path: x for path, x in point.items() if path not in ("q", "v")})
        return xsim.step(m, xsim.init(m, point["q"], point["v"])).v @ weights

    reach = {"default": 1e-4, "flex.young": 1e-1, "flex.edge_stiffness": 1e-3, "flex.edge_damping": 1e-3, "body.mass": 5e-5,
             "flex.length": 2e-5, "flex.thickness": 1e-4, "soft.solimp": 5e-5}  # fmt: skip
    reverse = check_both_modes(loss, _points(model, 3), 2, reach, 1e-6)
    for path in LEAVES:
        assert model.get(path).size == 0 or np.any(reverse[path])


@pytest.mark.nightly
@pytest.mark.parametrize("section", ["", 'section="box" sectionsize=".01 .02"'])
def test_derivatives_of_lines(section, x64):
    """Of a step with respect to the state, with the frames of lines, and every number; in the last environment the chain is straight."""
    model = load(ROD.format("0 .2 .3", f'young="2e5" shear="3e5" damping=".01" {section}'), "4.0")
    rng, count = np.random.default_rng(6), 3
    weights = rng.normal(size=model.nv + 20)
    q = 0.03 * rng.normal(size=(count, model.nq))
    q[-1] = 0.0
    names = ("length", "young", "poisson", "shear", "damping", "radius", "section", "curvature", "pos")
    leaves = tuple(f"flex.{name}" for name in names)
    point = {path: np.asarray(model.get(path)) * rng.uniform(0.9, 1.1, (count, *model.shape(path))) for path in leaves}
    states = [xsim.init(model, x, rng.normal(size=model.nv)) for x in q]
    states[:2] = [by_numpy(xsim.step)(model, state) for state in states[:2]]
    point |= {"q": np.stack([s.q for s in states]), "v": np.stack([s.v for s in states]), "plastic": np.stack([s.plastic for s in states])}

    def loss(point):
        m = model.replace({path: point[path] for path in leaves})
        state = xsim.step(m, xsim.init(m, point["q"], point["v"]).replace(plastic=point["plastic"]))
        return jnp.concatenate([state.v, state.plastic], -1) @ weights

    reach = {"default": 1e-5, "flex.young": 10.0, "flex.shear": 10.0, "flex.radius": 1e-6, "flex.section": 1e-6}
    reverse = check_both_modes(loss, point, 2, reach, 1e-6)
    unused = ("flex.pos", "flex.poisson", "flex.radius" if section else "flex.section")
    assert all(np.any(reverse[path]) for path in leaves if path not in unused)


def _of_two_steps(model: xsim.Model, leaves: tuple[str, ...], rng):
    """A function of these leaves, q and v: a random combination of the velocities and of what yielded after two steps."""
    weights = rng.normal(size=model.nv + model.topology.size("nplastic"))

    def loss(point):
        m = model.replace({path: point[path] for path in leaves})
        state = xsim.step(m, xsim.step(m, xsim.init(m, point["q"], point["v"])))
        return jnp.concatenate([state.v, 100.0 * state.plastic], -1) @ weights

    return loss


@pytest.mark.nightly
@pytest.mark.parametrize("shape", ['dim="2" count="2 2 1"', 'dim="3" count="2 2 2"'])
def test_derivatives_of_elements_that_yield(shape, x64):
    """Of two steps; of the three environments the last does not yield."""
    elasticity = '<elasticity young="2e3" poisson=".2" thickness=".02" damping=".001" yield=".02 0" {}/>'
    elasticity = elasticity.format('elastic2d="stretch"' if "2 2 1" in shape else "")
    flexcomp = f'<flexcomp name="f" type="grid" {shape} spacing=".1 .1 .1" radius=".01" mass=".2">{elasticity}</flexcomp>'
    model = load(f'<mujoco><option gravity="0 0 0"/><worldbody>{flexcomp}</worldbody></mujoco>', "4.0")
    rng, count = np.random.default_rng(7), 3
    leaves = ("flex.length", "flex.young", "flex.poisson", "flex.yield_strain")
    point = {path: np.broadcast_to(np.asarray(model.get(path), float), (count, *model.shape(path))).copy() for path in leaves}
    q, v = rng.normal(size=(count, model.nq)), rng.normal(size=(count, model.nv))
    point |= {"q": q * np.array([[0.01], [0.02], [0.0001]]), "v": 0.01 * v}
    loss = _of_two_steps(model, leaves, rng)
    reverse = check_both_modes(loss, point, 3, {"default": 1e-6, "flex.young": 1.0}, 1e-6)
    assert np.any(reverse["flex.yield_strain"][:2]) and not np.any(reverse["flex.yield_strain"][2])


@pytest.mark.nightly
def test_derivatives_of_folds_that_yield(x64):
    """Of two steps; of the three environments the last does not yield."""
    elasticity = '<elasticity young="2e4" poisson=".2" thickness=".02" damping=".001" yield="0 .02" elastic2d="bend"/>'
    flexcomp = f'<flexcomp name="f" dim="2" count="2 2 1" spacing=".1 .1 .1" radius=".01" mass=".2">{elasticity}</flexcomp>'
    model = load(f'<mujoco><option gravity="0 0 0"/><worldbody>{flexcomp}</worldbody></mujoco>', "4.0")
    rng, count = np.random.default_rng(7), 3
    leaves = tuple(f"flex.{name}" for name in ("length", "angle", "young", "poisson", "thickness", "bend_yield_strain"))
    point = {path: np.broadcast_to(np.asarray(model.get(path), float), (count, *model.shape(path))).copy() for path in leaves}
    point["flex.angle"] += np.array([[0.1], [-0.3], [0.0]])
    q, v = rng.normal(size=(count, model.nq)), rng.normal(size=(count, model.nv))
    point |= {"q": q * np.array([[0.02], [0.04], [0.0001]]), "v": 0.01 * v}
    loss = _of_two_steps(model, leaves, rng)
    reverse = check_both_modes(loss, point, 3, {"default": 1e-6, "flex.young": 1.0}, 1e-6)
    assert np.any(reverse["flex.bend_yield_strain"][:2]) and not np.any(reverse["flex.bend_yield_strain"][2])


def test_cells_do_not_push_themselves(x64):
    """Nodes that slide on a body that moves: their forces sum to zero on its joint, as does what pinned nodes do. MuJoCo 4.0 leaves out
    what the others do there."""
    slide = '<joint type="slide" axis="1 2 3"/><geom size=".1" mass="1"/>'
    inside = '<pin id="0 3"/><elasticity young="2e3" damping=".01"/><contact contype="0" conaffinity="0"/>'
    flexcomp = f'<flexcomp name="f" {BLOCK} mass=".2">{inside}</flexcomp>'
    model = load(f'<mujoco><worldbody><body name="b" euler="20 30 0">{slide}{flexcomp}</body></worldbody></mujoco>', "4.0")
    rng = np.random.default_rng(3)
    force = by_numpy(xsim.passive)(model, 0.01 * rng.normal(size=model.nq), rng.normal(size=model.nv))
    assert np.abs(force).max() > 0.1 and abs(force[0]) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("shape", [BLOCK, 'type="box" dim="2" count="3 3 3" dof="trilinear"', BALL])
def test_derivatives_of_cells(shape, x64):
    """Of passive forces and of the energy: of a cell, full or in part, or a sheet around one, at rest, deformed, and turned inside out."""
    sheet = 'elastic2d="stretch" thickness=".01"' if 'dim="2"' in shape else ""
    inside = f'<elasticity young="2e3" {sheet}/><contact contype="0" conaffinity="0"/>'
    model = load(f'<mujoco><worldbody><flexcomp name="f" {shape} mass=".2">{inside}</flexcomp></worldbody></mujoco>', "4.0")
    leaves = ("flex.young", "flex.poisson", "flex.damping", "flex.side", *(["flex.thickness"] if sheet else []))
    rng, count = np.random.default_rng(7), 3
    point = {path: np.broadcast_to(np.asarray(model.get(path), float), (count, *model.shape(path))).copy() for path in leaves}
    point["flex.poisson"] += 0.3
    point["flex.damping"] += 0.01
    rest = np.asarray(model.body.pos, float)
    q = rng.normal(size=(count, model.nq)) * np.array([[0.0], [0.01], [0.001]])
    q[2] += (rest * (-1.5, 0, 0)).reshape(-1)
    point |= {"q": q, "v": 0.1 * rng.normal(size=(count, model.nv))}
    weights = rng.normal(size=model.nv)

    def loss(point):
        m = model.replace({path: point[path] for path in leaves})
        return xsim.passive(m, point["q"], point["v"]) @ weights + xsim.energy(m, point["q"], point["v"])[1]

    reverse = check_both_modes(loss, point, 3, {"default": 1e-6, "flex.young": 1.0}, 1e-6)
    assert all(np.any(reverse[path]) for path in leaves)


@pytest.mark.nightly
def test_derivatives_of_cells_without_strain(x64):
    """Of accelerations."""
    inside = '<edge equality="strain" solref=".03 .9" solimp=".8 .95 .01 .4 3"/><contact contype="0" conaffinity="0"/>'
    flexcomp = f'<flexcomp name="f" {BLOCK} spacing=".1 .15 .2" mass=".2">{inside}</flexcomp>'
    model = load(f"<mujoco><worldbody>{flexcomp}</worldbody></mujoco>", "4.0")
    leaves = ("flex.side", "soft.solref")
    rng, count = np.random.default_rng(7), 2
    point = {path: np.broadcast_to(np.asarray(model.get(path), float), (count, *model.shape(path))).copy() for path in leaves}
    point |= {"q": 0.01 * rng.normal(size=(count, model.nq)), "v": 0.1 * rng.normal(size=(count, model.nv))}
    weights = rng.normal(size=model.nv)

    def loss(point):
        m = model.replace({path: point[path] for path in leaves})
        return xsim.forward_dynamics(m, point["q"], point["v"]) @ weights

    reverse = check_both_modes(loss, point, count, {"default": 1e-6}, 1e-6)
    assert all(np.any(reverse[path]) for path in leaves)


@pytest.mark.slow
def test_environments_with_numbers_of_their_own(x64):
    """A batch gives what its environments give alone; a leaf that is shared counts for all."""
    model = load(scene(LINES + SHEET + SOLID, KEPT))
    point = _points(model, 3)
    q, v = point.pop("q"), point.pop("v")
    point = {path: point[path] for path in ("flex.young", "flex.length", "flex.edge_damping", "soft.solref")}
    acceleration = by_numpy(lambda m, q, v: xsim.forward_dynamics(m, q, v))
    together = acceleration(model.replace(point), q, v)
    young = point["flex.young"]
    shared = acceleration(model.replace({"flex.young": young}), q[0], v[0])
    assert shared.shape == (3, model.nv)
    close("one state for all", shared[1], acceleration(model.replace({"flex.young": young[1]}), q[0], v[0]), 1e-12)
    for i in range(3):
        close("alone", acceleration(model.replace({k: x[i] for k, x in point.items()}), q[i], v[i]), together[i], 1e-12)


@pytest.mark.slow
def test_a_compiled_step_in_single_precision_is_near():
    model = load(scene(LINES + SHEET + SOLID, KEPT))
    point = _points(model, 2)
    state = xsim.init(model, point["q"], point["v"])
    found = jax.jit(xsim.step)(model, state)
    wanted = by_numpy(xsim.step)(model, state)
    assert found.v.dtype == jnp.float32
    close("velocities", found.v[0], wanted.v[0], 1e-4)


# ---- material in cells -----------------------------------------------------------------------------------------------------------

CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])


def test_moments_of_a_tetrahedron():
    """Of one cell the known integrals; of several cells volumes and centres that sum to those of the whole."""
    faces = boundary_triangles(CORNERS, np.array([[0, 1, 2, 3]]))
    assert is_closed(faces) and not is_closed(faces[1:])
    moments = cell_moments(CORNERS[faces], [np.array([0.0, 1.0])] * 3, 4)[0]
    for i, j, k in np.ndindex(moments.shape):
        exact = math.factorial(i) * math.factorial(j) * math.factorial(k) / math.factorial(i + j + k + 3)
        np.testing.assert_allclose(moments[i, j, k], exact, rtol=1e-12)
    counts = np.array([2, 3, 4])
    of_cells = cell_moments(CORNERS[faces] * counts, [np.arange(n + 1.0) for n in counts], 1)
    assert of_cells.min() > -1e-15 and (of_cells[:, 0, 0, 0] == 0).any()
    np.testing.assert_allclose(of_cells[:, 0, 0, 0].sum(), counts.prod() / 6, rtol=1e-12)
    first = np.array(list(np.ndindex(*counts)))[:, 0]
    np.testing.assert_allclose((of_cells[:, 1, 0, 0] + first * of_cells[:, 0, 0, 0]).sum(), counts[0] * counts.prod() / 24, rtol=1e-12)


def test_points_inside_an_open_surface():
    points = np.random.default_rng(0).uniform(size=(200, 3))
    inside = points.sum(1) < 1
    np.testing.assert_array_equal(is_inside(points, CORNERS[FACES]), inside)
    np.testing.assert_array_equal(is_inside(points, CORNERS[FACES[:3]]), inside)  # without the face that is not on an axis
