"""Contact and soft limits of SDFormat, URDF and SKEL: what the words of the formats mean, which shapes touch, rest and slide.

Accelerations are looked at where the laws of physics are equations: a spring and damper at the end of a step, Coulomb's friction on what
slides. A column of balls far apart is one model, so that one evaluation shows them all.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.io import ParseError, UnsupportedWarning, parse, parse_text
from xsim.io.contact_parameters import spring_damper
from xsim.spec import Soft

BALL = "<geometry><sphere><radius>0.1</radius></sphere></geometry>"
PLANE = "<geometry><plane/></geometry>"
BOX = "<geometry><box><size>0.2 0.2 0.2</size></box></geometry>"
G, DT = 9.8, 1e-3


# ---- documents -----------------------------------------------------------------------------------------------------------------


def link(name="l", surface="", shape=BALL, more="", mass=2.0, pose="0 0 0"):
    """A link of SDFormat with one collision."""
    inertial = f"<inertial><mass>{mass}</mass><inertia><ixx>0.02</ixx><iyy>0.02</iyy><izz>0.02</izz></inertia></inertial>"
    collision = f'<collision name="c">{shape}<surface>{surface}</surface></collision>'
    return f'<link name="{name}"><pose>{pose} 0 0 0</pose>{inertial}{collision}{more}</link>'


def model(name, inside, pose="0 0 0"):
    return f'<model name="{name}"><pose>{pose} 0 0 0</pose>{inside}</model>'


FLOOR = model("floor", "<static>true</static>" + link("f", "<friction><ode><mu>2</mu><mu2>2</mu2></ode></friction>", PLANE))


def sdf(*models, version="1.9"):
    return f'<sdf version="{version}"><world name="w"><gravity>0 0 {-G}</gravity>{"".join(models)}</world></sdf>'


def collision(surface, shape=BALL, **options):
    """The collision of the only link of a model."""
    text = f'<sdf version="1.9"><model name="m">{link(surface=surface, shape=shape, **options)}</model></sdf>'
    return parse_text(text, "sdf").bodies[0].geoms[0]


def urdf(*links, joints="", name="r"):
    return f'<robot name="{name}">{"".join(links)}{joints}</robot>'


def limb(name, inside="", shape='<sphere radius="0.1"/>', contact=""):
    """A link of URDF with one collision."""
    inertial = '<inertial><mass value="2"/><inertia ixx="0.02" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial>'
    return f'<link name="{name}">{inertial}<collision><geometry>{shape}</geometry>{inside}</collision>{contact}</link>'


def hinge(parent, child, kind="continuous", more='<limit effort="1" velocity="1"/>'):
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{parent}_{child}" type="{kind}">{ends}<axis xyz="0 0 1"/>{more}</joint>'


SKEL_BALL = "<sphere><radius>0.1</radius></sphere>"


def skel(*skeletons):
    physics = f"<physics><time_step>{DT}</time_step><gravity>0 0 {-G}</gravity></physics>"
    return f'<skel version="1.0"><world name="w">{physics}{"".join(skeletons)}</world></skel>'


def skeleton(name, shapes, mobile=True, pose="0 0 0 0 0 0", extra="", type="free", axis=""):
    """A skeleton of one body, and what else is in it."""
    joint = f'<joint type="{type}" name="j"><parent>world</parent><child>b</child>{axis}</joint>'
    body = (
        f'<body name="b"><transformation>{pose}</transformation><inertia><mass>2</mass><moment_of_inertia><ixx>0.02</ixx><iyy>0.02</iyy>'
        f"<izz>0.02</izz></moment_of_inertia></inertia>{shapes}</body>"
    )
    return f'<skeleton name="{name}"><mobile>{str(mobile).lower()}</mobile>{body}{extra}{joint}</skeleton>'


def touchable(geometry, more=""):
    return f"<collision_shape><geometry>{geometry}</geometry>{more}</collision_shape>"


SKEL_FLOOR = skeleton("floor", touchable("<plane><normal>0 0 1</normal></plane>"), mobile=False)


def touching(spec) -> set[frozenset[str]]:
    """Pairs of bodies whose shapes may touch; "" stands for the world."""
    built = xsim.build(spec)
    names = [built.body_names[g.body] if g.body >= 0 else "" for g in built.topology.geoms]
    return {frozenset(names[g] for g in pair) for info in built.topology.pairs for pair in info.geoms.value.tolist()}


def pair(*names):
    return frozenset(names)


@jax.jit
def accelerated(built, q, v):
    return xsim.forward_dynamics(built, q, v)


# ---- surfaces ------------------------------------------------------------------------------------------------------------------


def test_a_surface_that_says_nothing_has_the_defaults():
    surface = collision("").contact
    assert (surface.contype, surface.conaffinity, surface.condim, surface.friction) == (0xFFFF, 0xFFFF, 3, (1.0, 0.0, 0.0))
    assert surface.soft == Soft() and surface.solmix == 0 and surface.margin == 0
    spec = parse_text(sdf(FLOOR), "sdf")
    kinds = ("holonomic", "friction", "limit", "servo", "soft", "contact")
    assert spec.option.constraint_kinds == kinds and spec.option.solver["cone"] == "elliptic"
    for other in (parse_text(urdf(limb("a")), "urdf"), parse_text(skel(skeleton("s", touchable(SKEL_BALL))), "skel")):
        found = other.bodies[0].geoms[0].contact
        assert (found.contype, found.condim, found.friction, found.soft) == (0xFFFF, 3, (1.0, 0.0, 0.0), Soft())
        assert "contact" in other.option.constraint_kinds
    for shape in ("<geometry><cone><radius>1</radius><length>1</length></cone></geometry>",):
        assert collision("", shape).contact is None


def test_friction_of_a_surface():
    def friction(inside):
        return collision(f"<friction>{inside}</friction>").contact

    assert friction("<ode><mu>0.3</mu><mu2>0.3</mu2></ode>").friction == (0.3, 0, 0)
    assert friction("<bullet><friction>0.4</friction></bullet>").friction == (0.4, 0, 0)
    with pytest.warns(UnsupportedWarning, match="friction 0.3 and 1: the smaller one counts in every direction"):
        assert friction("<ode><mu>0.3</mu></ode>").friction == (0.3, 0, 0)
    patch = friction("<torsional><coefficient>0.5</coefficient><patch_radius>0.02</patch_radius></torsional>")
    assert patch.condim == 4
    np.testing.assert_allclose(patch.friction, (1.0, 3 * np.pi / 16 * 0.02 * 0.5, 0.0))
    off = "<torsional><use_patch_radius>0</use_patch_radius><patch_radius>0.02</patch_radius></torsional>"
    assert friction(off).friction == (1, 0, 0)
    roll = friction("<bullet><rolling_friction>0.01</rolling_friction></bullet>")
    assert roll.condim == 6 and roll.friction == (1, 0, 0.01)
    with pytest.raises(ParseError, match="friction -1; allowed: numbers >= 0"):
        friction("<ode><mu>-1</mu><mu2>-1</mu2></ode>")


def test_masks_of_a_surface():
    def masks(inside):
        found = collision(f"<contact>{inside}</contact>").contact
        return found.contype, found.conaffinity

    assert masks("<collide_bitmask>0x0f</collide_bitmask>") == (15, 15)
    assert masks("<category_bitmask>2</category_bitmask>") == (2, 0xFFFF)
    assert masks("<category_bitmask>2</category_bitmask><collide_bitmask>4</collide_bitmask>") == (2, 4)
    assert collision("<contact><collide_without_contact>true</collide_without_contact></contact>").contact is None


def test_how_soft_a_surface_is():
    def contact(inside, mass=2.0):
        return collision(f"<contact>{inside}</contact>", mass=mass).contact

    both = contact("<ode><kp>2e4</kp><kd>20</kd></ode>")
    assert both.soft == spring_damper(2e4, 20.0, DT, 2.0) and both.solmix == 1
    assert contact("<bullet><kp>2e4</kp><kd>20</kd></bullet>").soft == both.soft
    erp, cfm = DT * 2e4 / (DT * 2e4 + 20), 1 / (DT * 2e4 + 20)
    same = contact(f"<ode><soft_erp>{erp}</soft_erp><soft_cfm>{cfm}</soft_cfm></ode>").soft
    np.testing.assert_allclose(same.solref + same.solimp, both.soft.solref + both.soft.solimp, rtol=1e-12)
    rigid = contact("<ode><kp>inf</kp></ode>").soft
    assert rigid.solimp[0] == 1 - 1e-4 and rigid.solref[0] == pytest.approx(-rigid.solimp[0] / DT**2)
    assert contact("<ode><min_depth>0.001</min_depth></ode>").margin == -0.001
    for bad in ("<ode><kp>-1</kp></ode>", "<ode><min_depth>-1</min_depth></ode>"):
        with pytest.raises(ParseError, match="allowed: numbers >= 0"):
            contact(bad)


def test_numbers_of_a_surface_that_do_not_act_are_noted():
    for inside, text in (
        ("<bounce><restitution_coefficient>0.5</restitution_coefficient></bounce>", "contacts do not bounce"),
        ("<friction><ode><slip1>0.1</slip1></ode></friction>", "do not slip"),
        ("<friction><ode><slip2>0.1</slip2></ode></friction>", "do not slip"),
        ("<friction><torsional><ode><slip>0.1</slip></ode></torsional></friction>", "do not slip"),
        ("<friction><torsional><surface_radius>0.1</surface_radius></torsional></friction>", "patch_radius"),
        ("<contact><elastic_modulus>1e9</elastic_modulus></contact>", "see kp"),
        ("<contact><ode><max_vel>0.01</max_vel></ode></contact>", "no bound"),
        ("<soft_contact><dart><stiffness>100</stiffness></dart></soft_contact>", "links are rigid"),
        ("<soft_contact><dart><damping>10</damping></dart></soft_contact>", "links are rigid"),
        ("<soft_contact><dart><flesh_mass_fraction>0.1</flesh_mass_fraction></dart></soft_contact>", "links are rigid"),
    ):
        with pytest.warns(UnsupportedWarning, match=f'collision name="c".*{text}'):
            collision(inside)
    collision(
        "<bounce><restitution_coefficient>0</restitution_coefficient><threshold>1</threshold></bounce>"
        "<friction><ode><fdir1>1 0 0</fdir1></ode><bullet><fdir1>1 0 0</fdir1></bullet></friction>"
        "<contact><poissons_ratio>0.3</poissons_ratio><bullet><split_impulse>1</split_impulse></bullet></contact>"
    )


def test_surfaces_of_urdf():
    """contact_coefficients of old ROS in a collision, Bullet's contact in a link."""

    def surface(*args, **options):
        return parse_text(urdf(limb("a", *args, **options)), "urdf").bodies[0].geoms[0].contact

    old = surface('<contact_coefficients mu="0.3" kp="2e4" kd="20"/>')
    assert old.friction == (0.3, 0, 0) and old.soft == spring_damper(2e4, 20.0, DT, 2.0) and old.solmix == 1
    new = '<lateral_friction value="0.3"/><spinning_friction value="0.02"/><rolling_friction value="0.01"/>'
    found = surface(contact=f'<contact>{new}<stiffness value="2e4"/><damping value="20"/></contact>')
    assert found.friction == (0.3, 0.02, 0.01) and found.condim == 6 and found.soft == old.soft
    erp = surface(contact='<contact><contact_erp value="0.5"/><contact_cfm value="0.025"/></contact>').soft
    np.testing.assert_allclose(erp.solref + erp.solimp, old.soft.solref + old.soft.solimp)
    with pytest.warns(UnsupportedWarning, match="do not bounce"):
        surface(contact='<contact><restitution value="0.5"/></contact>')
    with pytest.raises(ParseError, match="numbers >= 0"):
        surface('<contact_coefficients mu="-1"/>')


# ---- which shapes touch --------------------------------------------------------------------------------------------------------


def test_links_of_one_model_touch_only_where_it_is_asked_for():
    links = "".join(link(n, pose=f"{i} 0 0") for i, n in enumerate("abc"))
    wanted = {pair("m::a", "m::b"), pair("m::a", "m::c"), pair("m::b", "m::c")}
    ground = {pair(f"m::{n}", "floor::f") for n in "abc"}

    def found(inside, *others):
        return touching(parse_text(sdf(FLOOR, model("m", inside), *others), "sdf"))

    assert found(links) == ground
    assert found("<self_collide>true</self_collide>" + links) == ground | wanted
    one = links.replace('<link name="b">', '<link name="b"><self_collide>true</self_collide>')
    assert found(one) == ground | {p for p in wanted if "m::b" in p}
    two = links.replace('<link name="b">', '<link name="b"><self_collide>false</self_collide>')
    assert found("<self_collide>true</self_collide>" + two) == ground | wanted  # one of the two that asks is enough
    ends = '<joint name="j" type="revolute"><parent>a</parent><child>b</child><axis><xyz>0 0 1</xyz></axis></joint>'
    assert found("<self_collide>true</self_collide>" + links + ends) == ground | wanted - {pair("m::a", "m::b")}
    nested = model("n", link("d"), "3 0 0")
    assert found(links + nested) == ground | {pair("m::n::d", "floor::f")}  # nested models belong to the model around them
    other = found(links, model("o", link("e"), "5 0 0"))
    assert other == ground | {pair("o::e", "floor::f")} | {pair("o::e", f"m::{n}") for n in "abc"}


def test_joints_that_close_loops_keep_their_links_from_touching():
    links = "".join(link(n, pose=f"{i} 0 0") for i, n in enumerate("abc"))
    joints = "".join(
        f'<joint name="{a}{b}" type="revolute"><parent>{a}</parent><child>{b}</child><axis><xyz>0 0 1</xyz></axis></joint>'
        for a, b in ("ab", "bc", "ac")
    )
    spec = parse_text(sdf(model("m", "<self_collide>1</self_collide>" + links + joints)), "sdf")
    assert len(spec.constraints) == 1 and touching(spec) == set()


def test_masks_keep_models_apart():
    """A contact where the category of one meets the collide bits of the other, either way round."""

    def ball(name, category, collide, x):
        bits = f"<category_bitmask>{category}</category_bitmask><collide_bitmask>{collide}</collide_bitmask>"
        return model(name, link("l", f"<contact>{bits}</contact>"), f"{x} 0 0")

    spec = parse_text(sdf(ball("a", 1, 2, 0), ball("b", 2, 4, 1), ball("c", 8, 16, 2), ball("d", 32, 8, 3)), "sdf")
    assert touching(spec) == {pair("a::l", "b::l"), pair("c::l", "d::l")}


def test_static_models_touch_only_what_moves():
    spec = parse_text(sdf(FLOOR, model("wall", "<static>1</static>" + link("w", shape=BOX)), model("m", link())), "sdf")
    assert touching(spec) == {pair("floor::f", "m::l"), pair("wall::w", "m::l")}


def test_links_of_a_urdf_touch_where_self_collide_says_so():
    links = [limb(n) for n in "abc"]
    joints = hinge("a", "b") + hinge("b", "c")
    assert touching(parse_text(urdf(*links, joints=joints), "urdf")) == set()
    assert touching(parse_text(urdf(*links, joints=joints), "urdf", self_collide=True)) == {pair("a", "c")}
    table = '<link name="world"><collision><geometry><box size="1 1 1"/></geometry></collision></link>'
    scenery = urdf(table, *links, joints=hinge("world", "a", "floating", "") + joints)
    assert touching(parse_text(scenery, "urdf")) == {pair("", n) for n in "abc"}


def test_bodies_of_different_skeletons_touch():
    child = '<body name="c">' + touchable(SKEL_BALL) + "</body>"
    child += '<joint type="revolute" name="k"><parent>b</parent><child>c</child><axis><xyz>0 0 1</xyz></axis></joint>'
    child += '<body name="d">' + touchable(SKEL_BALL, "<collidable>0</collidable>") + "</body>"
    child += '<joint type="revolute" name="i"><parent>c</parent><child>d</child><axis><xyz>0 0 1</xyz></axis></joint>'
    spec = parse_text(skel(SKEL_FLOOR, skeleton("s", touchable(SKEL_BALL), extra=child), skeleton("t", touchable(SKEL_BALL))), "skel")
    own, other = ("s/b", "s/c"), "t/b"
    assert touching(spec) == {pair("floor/b", n) for n in (*own, other)} | {pair(n, other) for n in own}


# ---- the ground ----------------------------------------------------------------------------------------------------------------


def test_with_ground():
    spec = parse_text(urdf(limb("a"), limb("b"), joints=hinge("a", "b")), "urdf").with_ground(friction=0.7, height=-0.5)
    assert touching(spec) == {pair("", "a"), pair("", "b")}
    (floor,) = spec.world_geoms
    assert floor.shape == "plane" and floor.contact.friction == (0.7, 0, 0) and floor.pos[2] == -0.5
    bare = spec.replace(world_geoms=(), option=spec.option.__class__(constraint_kinds=("limit",)))
    assert bare.with_ground().option.constraint_kinds == ("limit", "contact")
    cone = f"<model name='m'>{link(shape='<geometry><cone><radius>1</radius><length>1</length></cone></geometry>')}</model>"
    cone = f'<sdf version="1.12">{cone}</sdf>'
    with pytest.raises(ValueError, match="no shape of the model can touch a ground: cone of 'l'"):
        parse_text(cone, "sdf").with_ground()
    with pytest.raises(ValueError, match="no shape"):
        parse(xsim.models.path("chain")).replace(bodies=()).with_ground()
    two = cone.replace("</model>", link("b").replace('name="c"', 'name="c2"') + "</model>")
    with pytest.warns(UserWarning, match="fall through the ground: cone of 'l'"):
        parse_text(two, "sdf").with_ground()


# ---- meshes --------------------------------------------------------------------------------------------------------------------

CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0.1, 0.1, 0.1]])  # the last one is inside


@pytest.fixture
def folder(tmp_path):
    faces = ((1, 3, 2), (1, 2, 4), (1, 4, 3), (2, 3, 4), (1, 2, 5))
    lines = [f"v {x} {y} {z}" for x, y, z in CORNERS] + [f"f {a} {b} {c}" for a, b, c in faces]
    (tmp_path / "t.obj").write_text("\n".join(lines))
    (tmp_path / "broken.stl").write_text("nothing")
    return tmp_path


def check_hull(spec, scale):
    """The only mesh of the only body: the four corners of the tetrahedron, where the file has them."""
    ((mesh,), (geom,)) = spec.meshes, [g for b in spec.bodies for g in b.geoms if g.shape == "mesh"]
    assert geom.asset == 0 and geom.contact is not None and len(mesh.hull) == 4 and (geom.size > 0).all()
    found = geom.pos + geom.size * mesh.vertices[np.unique(mesh.hull)]
    np.testing.assert_allclose(sorted(found.tolist()), sorted((CORNERS[:4] * scale).tolist()), atol=1e-12)
    xsim.build(spec)


def test_meshes_touch_by_their_convex_hull(folder):
    mesh = '<geometry><mesh filename="t.obj" scale="2 1 -1"/></geometry>'
    text = urdf(limb("a").replace('<geometry><sphere radius="0.1"/></geometry>', mesh))
    (folder / "r.urdf").write_text(text)
    check_hull(parse(folder / "r.urdf"), (2, 1, -1))
    mesh = "<geometry><mesh><uri>t.obj</uri><scale>2 1 -1</scale></mesh></geometry>"
    (folder / "r.sdf").write_text(sdf(FLOOR, model("m", link(shape=mesh))))
    check_hull(parse(folder / "r.sdf"), (2, 1, -1))
    shape = touchable("<mesh><file_name>t.obj</file_name><scale>2 1 1</scale></mesh>")
    (folder / "r.skel").write_text(skel(SKEL_FLOOR, skeleton("s", shape)))
    check_hull(parse(folder / "r.skel"), (2, 1, 1))


def test_meshes_that_are_not_found_touch_nothing(folder):
    """They are noted where there is something to touch."""

    def mesh(name):
        return model("m", link(shape=f"<geometry><mesh><uri>{name}</uri></mesh></geometry>"))

    for name, why in (("gone.obj", "is not found"), ("broken.stl", "has 0 vertices")):
        (folder / "r.sdf").write_text(sdf(FLOOR, mesh(name)))
        with pytest.warns(UnsupportedWarning, match=f"{why}.*touches nothing"):
            spec = parse(folder / "r.sdf")
        assert touching(spec) == set()
        (folder / "r.sdf").write_text(sdf(mesh(name)))
        parse(folder / "r.sdf", strict=True)
    polyline = "<polyline><point>0 0</point><point>1 0</point><point>0 1</point><height>2</height></polyline>"
    others = {"cone": "<cone><radius>1</radius><length>1</length></cone>", "heightmap": "<heightmap><uri>h.png</uri></heightmap>"}
    for kind, shape in (others | {"polyline": polyline}).items():
        with pytest.warns(UnsupportedWarning, match=f"collision {kind} is no shape that touches"):
            parse_text(sdf(FLOOR, model("m", link(shape=f"<geometry>{shape}</geometry>")), version="1.12"), "sdf")


# ---- motion --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_kp_and_kd_are_a_spring_and_a_damper(x64):
    """A ball of mass m: m a = -m g - K (r + h v + h^2 a) - D (v + h a), r its height above touching. The floor says nothing."""
    K, D, m = 2e4, 20.0, 2.0
    soft = f"<contact><ode><kp>{K}</kp><kd>{D}</kd></ode></contact>"
    built = xsim.build(parse_text(sdf(FLOOR, model("m", link(surface=soft), "0 0 0.1")), "sdf"))
    height = np.array([-m * G / K, -0.002, -0.002, -0.01, 0.001])
    speed = np.array([0.0, -0.1, 0.05, -1.0, -0.1])
    q, v = np.tile(xsim.init(built).q, (5, 1)), np.zeros((5, 6))
    q[:, 2] += height
    v[:, 2] = speed
    a = np.asarray(accelerated(built, q, v))
    wanted = (-m * G - K * (height + DT * speed) - D * speed) / (m + K * DT**2 + D * DT)
    wanted[-1] = -G
    np.testing.assert_allclose(a[:, 2], wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.delete(a, 2, 1), 0.0, atol=1e-9)
    assert wanted[0] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
def test_the_smaller_friction_of_two_surfaces_counts(x64):
    """What slides is held back by the coefficient times what carries it. The floor has 2; the last surface says nothing."""
    texts = [f"<friction><ode><mu>{mu}</mu><mu2>{mu}</mu2></ode></friction>" for mu in (0.3, 3.0, 1.5, 0.0)] + [""]
    built = [xsim.build(parse_text(sdf(FLOOR, model("m", link(surface=s), "0 0 0.1")), "sdf")) for s in texts]
    balls = built[0].replace({"surface.friction": jnp.stack([b.surface.friction for b in built])})
    q, v = np.tile(xsim.init(built[0]).q, (5, 1)), np.zeros((5, 6))
    q[:, 2] -= 1e-4
    v[:, 0] = 0.5
    a = np.asarray(accelerated(balls, q, v))
    np.testing.assert_allclose(-a[:, 0] / (a[:, 2] + G), [0.3, 2.0, 1.5, 1e-5, 1.0], rtol=1e-6)


def held_back(spec, across: int, up: int) -> float:
    """The coefficient that holds back what slides along one coordinate, a little too deep in the floor along another."""
    built = xsim.build(spec)
    q, v = np.array(xsim.init(built).q), np.zeros(built.nv)
    q[up] -= 1e-4
    v[across] = 0.5
    a = np.asarray(accelerated(built, q, v))
    return -a[across] / (a[up] + G)


@pytest.mark.slow
def test_a_urdf_robot_slides_on_the_ground(x64):
    ends = "".join(
        f'<joint name="{child}" type="prismatic"><parent link="{parent}"/><child link="{child}"/><axis xyz="{axis}"/>'
        '<limit lower="-9" upper="9" effort="1" velocity="1"/></joint>'
        for parent, child, axis in (("world", "rail", "1 0 0"), ("rail", "a", "0 0 1"))
    )
    text = urdf('<link name="world"/><link name="rail"/>', limb("a", '<contact_coefficients mu="0.6"/>'), joints=ends)
    spec = parse_text(text, "urdf").with_ground(friction=0.8, height=-0.1)
    assert held_back(spec, 0, 1) == pytest.approx(0.6)


@pytest.mark.slow
def test_skeletons_slide_on_each_other(x64):
    ball = skeleton("s", touchable(SKEL_BALL), pose="0 0 0.1 0 0 0", type="translational")
    assert held_back(parse_text(skel(SKEL_FLOOR, ball), "skel"), 0, 2) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_box_slides_where_the_slope_is_steeper_than_its_friction(x64):
    """tan(angle) against mu, both sides; g (sin - mu cos) t where it slides."""
    mu, steps = 0.5, 300
    surface = f"<friction><ode><mu>{mu}</mu><mu2>{mu}</mu2></ode></friction>"
    built = xsim.build(parse_text(sdf(FLOOR, model("m", link(surface=surface, shape=BOX), "0 0 0.1")), "sdf"))
    angle = np.arctan([0.0, 0.4, 0.6, 0.8])
    slopes = built.replace({"option.gravity": jnp.asarray(G * np.stack([np.sin(angle), 0 * angle, -np.cos(angle)], -1))})
    final, speed = xsim.rollout(slopes, xsim.init(slopes), steps=steps, record=lambda state, _: state.v[..., 0])
    assert (np.abs(speed[-1, :2]) < 1e-3).all() and (np.abs(final.q[:2, 0]) < 1e-3).all()
    gained = np.asarray(speed[-1] - speed[steps // 3])[2:]
    np.testing.assert_allclose(gained, G * (np.sin(angle) - mu * np.cos(angle))[2:] * (steps - steps // 3) * DT, rtol=0.1)
    assert (np.abs(final.q[:, 2] - 0.1) < 2e-3).all()


def test_what_lies_flat_has_several_contacts(x64):
    """A cylinder upright on a box: on four points of its rim."""
    table = model("t", "<static>true</static>" + link("t", shape="<geometry><box><size>1 1 1</size></box></geometry>"))
    drum = link(shape="<geometry><cylinder><radius>0.2</radius><length>0.2</length></cylinder></geometry>")
    built = xsim.build(parse_text(sdf(table, model("m", drum, "0 0 0.599")), "sdf"))
    found = by_numpy(xsim.contacts)(built, xsim.init(built))
    assert found.active.sum() == 4
    np.testing.assert_allclose(found.distance[found.active], -1e-3, atol=1e-9)


# ---- soft limits ---------------------------------------------------------------------------------------------------------------


def slider(limit, body=""):
    """A weight on a vertical slide, and what its limit says."""
    ends = "<parent>world</parent><child>l</child>"
    joint = f'<joint name="j" type="prismatic">{ends}<axis><xyz>0 0 1</xyz><limit>{limit}</limit></axis></joint>'
    return sdf(model("m", link() + body + joint))


def test_limits_of_sdformat_and_urdf_are_soft():
    assert parse_text(slider("<lower>-1</lower>"), "sdf").bodies[0].joint.limit_soft == Soft()
    assert parse_text(slider(""), "sdf").bodies[0].joint.limit_soft is None
    rigid = slider("<lower>-1</lower><stiffness>1e8</stiffness><dissipation>1</dissipation>")
    assert parse_text(rigid, "sdf").bodies[0].joint.limit_soft == Soft()
    limit = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
    spec = parse_text(urdf(limb("a"), limb("b"), joints=hinge("a", "b", "revolute", limit)), "urdf")
    assert spec.bodies[1].joint.limit_soft == Soft() and "soft" in spec.option.constraint_kinds
    built = xsim.build(spec)
    assert [info.kind for info in built.topology.soft] == ["lower", "upper"]


def test_stiffness_and_dissipation_of_a_stop(x64):
    """At rest the weight has sunk m g / K into its stop."""
    K, D, m = 1e4, 50.0, 2.0
    built = xsim.loads(slider(f"<lower>-1</lower><stiffness>{K}</stiffness><dissipation>{D}</dissipation>"), "sdf")
    rest = -1 - m * G / K
    q, v = np.array([[rest], [rest - 0.001], [-0.9]]), np.array([[0.0], [-0.2], [0.0]])
    a = np.asarray(accelerated(built, q, v))[:, 0]
    wanted = (-m * G - K * (q + 1 + DT * v) - D * v)[:, 0] / (m + K * DT**2 + D * DT)
    np.testing.assert_allclose(a, [0.0, wanted[1], -G], rtol=1e-9, atol=1e-9)


def test_the_stop_of_a_hinge_counts_all_that_it_moves():
    arm = link("b", pose="1 0 0") + '<joint name="k" type="fixed"><parent>l</parent><child>b</child></joint>'
    ends = "<parent>world</parent><child>l</child>"
    limit = "<limit><lower>-1</lower><stiffness>1e4</stiffness><dissipation>50</dissipation></limit>"
    joint = f'<joint name="j" type="revolute">{ends}<axis><xyz>0 0 1</xyz>{limit}</axis></joint>'
    found = {b.name: b for b in parse_text(sdf(model("m", link() + arm + joint)), "sdf").bodies}["m::l"].joint
    assert found.limit_soft == spring_damper(1e4, 50.0, DT, 0.02 + 0.02 + 2.0)


def test_rule_of_skel():
    limit = "<axis><xyz>0 0 1</xyz><dynamics><friction>1</friction></dynamics><limit><lower>-1</lower><upper>1</upper></limit></axis>"
    text = skel(skeleton("s", touchable(SKEL_BALL), type="prismatic", axis=limit))
    dart, soft = (parse_text(text, "skel", rule=rule) for rule in ("dart", "soft"))
    assert dart.bodies[0].joint.limit_soft is None and "soft" not in dart.option.constraint_kinds and not xsim.build(dart).topology.soft
    assert soft.bodies[0].joint.limit_soft == soft.bodies[0].joint.friction_soft == Soft()
    assert [info.kind for info in xsim.build(soft).topology.soft] == ["friction", "lower", "upper"]
    with pytest.raises(ValueError, match="unknown rule 'hard'; allowed: dart, soft"):
        parse_text(text, "skel", rule="hard")


def test_more_pairs_than_a_model_may_have_are_refused():
    """The error names the geom with which there are too many."""
    bodies = "\n".join(f'<body pos="{3 * i} 0 0"><freejoint/><geom size="1"/></body>' for i in range(3))
    text = f"<mujoco><worldbody>\n{bodies}\n</worldbody></mujoco>"
    assert len(xsim.loads(text, "mjcf").topology.pairs[0].leaf_rows.value) == 3
    with pytest.raises(ValueError, match=r"three\.xml:4: more than 2 pairs of geoms can collide \(limits: pairs\); masks"):
        xsim.build(parse_text(text, "mjcf", file="three.xml"), limits=xsim.Limits(pairs=2))
