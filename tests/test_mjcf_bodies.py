"""The tree of an MJCF model: bodies, joints, geoms, mass properties, places, options, against both releases' numbers and by hand."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from corpus import corpus, needs_corpus

from xsim.io import ParseError, SuspiciousInputWarning, parse, parse_text
from xsim.io.mjcf.inertia import SHELLS, body_inertial
from xsim.io.solids import SOLIDS, tensor
from xsim.poses import Pose, quat_about, quat_mul, rotate, rotation_matrix

TYPES = ("free", "ball", "slide", "hinge")


def read(text: str, head: str = "", rules: str = "3.2", strict: bool = False):
    return parse_text(f"<mujoco>{head}<worldbody>{text}</worldbody></mujoco>", "mjcf", file="m.xml", rules=rules, strict=strict)


def body(text: str, head: str = "", rules: str = "3.2"):
    return read(f"<body>{text}</body>", head, rules).bodies[0]


# ---- the corpus --------------------------------------------------------------------------------------------------------------


def _facts(release: str):
    root = corpus()
    assert root is not None
    for path in sorted((root / "oracles" / "mjcf" / release).rglob("*.json")):
        facts = json.loads(path.read_text())
        if "error" not in facts:
            yield root / "models" / "mjcf" / facts["model"].split("models/mjcf/")[-1], facts


def _start(b) -> Pose:
    """Pose of a body in its parent at the start."""
    if b.joints and b.joints[0].type == "free":
        return Pose(b.joints[0].q0[3:], b.joints[0].q0[:3])
    return Pose(b.quat, b.pos)


def _differences(spec, facts: dict, places: bool):
    """(what, found, wanted, tolerance) of a model. places: compare where the mass of geoms on meshes is, too."""
    geoms = [*spec.world_geoms, *(g for b in spec.bodies for g in b.geoms)]
    joints = [j for b in spec.bodies for j in b.joints]
    inertials = [body_inertial(b, spec.meshes) for b in spec.bodies]
    q0 = np.concatenate([j.q0 for j in joints]) if joints else np.zeros(0)
    size = facts["size"]
    counts = {"nbody": len(spec.bodies) + 1, "njnt": len(joints), "nq": len(q0), "ngeom": len(geoms), "nsite": len(spec.sites),
              "ncam": len(spec.cameras), "nlight": len(spec.lights), "nmesh": len(spec.meshes), "nhfield": len(spec.hfields),
              "nmocap": sum(b.mocap for b in spec.bodies)}  # fmt: skip
    yield "sizes", counts, {k: size[k] for k in counts}, None
    if any(counts[k] != size[k] for k in ("nbody", "njnt", "ngeom", "nsite", "ncam", "nlight")):
        return
    wanted = facts["body"]
    names = ["world", *(b.name for b in spec.bodies)]
    yield "body names", names, [name or (f"body#{i}" if i else "world") for i, name in enumerate(wanted["name"])], None
    yield "joint names", [j.name for j in joints], facts["joint"]["name"], None
    for kind, items in (("geom", geoms), ("site", spec.sites), ("camera", spec.cameras), ("light", spec.lights)):
        if kind in facts["names"]:
            yield f"{kind} names", [item.name for item in items], facts["names"][kind], None
    yield "parents", [0, *(b.parent + 1 for b in spec.bodies)], wanted["parent"], 0
    yield "joint types", [TYPES.index(j.type) for j in joints], facts["joint"]["type"], 0
    yield "qposadr", np.cumsum([0, *(len(j.q0) for j in joints)])[:-1], facts["joint"]["qposadr"], 0
    # 3.2.7 and 4.0.0 stop turning to principal axes at about 1e-6 rad, which a body that is aligned with them shows.
    yield "qpos0", q0, facts["qpos0"], 3e-8
    # 3.2.7 integrates meshes in single precision.
    mass = 1e-6 if spec.meshes else 1e-10
    yield "mass", [0, *(i.mass for i in inertials)], wanted["mass"], mass * max(facts["total_mass"], 1)
    yield "total mass", sum(i.mass for i in inertials), facts["total_mass"], mass * facts["total_mass"]
    if "pos" not in wanted:
        return
    starts = [_start(b) for b in spec.bodies]
    # The points of composites and flexes are in single precision there.
    yield "pos", [s.pos for s in starts], wanted["pos"][1:], 1e-10 if not spec.flexes and "composite" not in facts["model"] else 2e-8
    for s, quat in zip(starts, wanted["quat"][1:], strict=True):
        yield "quat", s.quat * np.sign(s.quat @ np.array(quat)), quat, 3e-8
    for b, i, com, quat, moments in zip(spec.bodies, inertials, *(wanted[k][1:] for k in ("ipos", "iquat", "inertia")), strict=True):
        if places:
            yield f"com of {b.name}", i.com if i.mass else com, com, 1e-8
            R = rotation_matrix(quat)
            # The shell of an ellipsoid is a difference of two ellipsoids there, true to 5e-6.
            yield f"inertia of {b.name}", tensor(i.inertia), R @ np.diag(moments) @ R.T, 5e-6 * max(moments) + 1e-12
    yield from _places(spec, facts["states"]["qpos0"], geoms, places)


def _places(spec, state: dict, geoms, places: bool):
    """Where things are in the world at the start."""
    if "xpos" not in state:
        return
    world: list[Pose] = []
    for b in spec.bodies:
        start = _start(b)
        world.append(start if b.parent < 0 else world[b.parent] @ start)
    yield "xpos", [x.pos for x in world], state["xpos"][1:], 1e-7
    owners = [Pose()] * len(spec.world_geoms) + [x for x, b in zip(world, spec.bodies, strict=True) for _ in b.geoms]
    at = [world[s.body] if s.body >= 0 else Pose() for s in spec.sites]
    eye = [world[c.body] if c.body >= 0 else Pose() for c in spec.cameras]
    for kind, items, frames in (("geom", geoms, owners), ("site", spec.sites, at), ("cam", spec.cameras, eye)):
        if f"{kind}_xpos" in state:
            found = [frame @ Pose(item.quat, item.pos) for frame, item in zip(frames, items, strict=True)]
            if kind != "geom" or places:
                yield f"{kind} pos", [pose.pos for pose in found], state[f"{kind}_xpos"], 1e-7
            for item, pose, R in zip(items, found, np.reshape(state[f"{kind}_xmat"], (-1, 9)), strict=True):
                # The principal frame of a mesh is not unique where two moments are the same; a camera may look at a body.
                if not (kind == "geom" and spec.meshes or kind == "cam" and item.mode.startswith("target")):
                    # A geom turned by less than 1e-6 from its body's inertia has the orientation of that there.
                    yield f"{kind} {item.name}", rotation_matrix(pose.quat).reshape(9), R, 1e-6
    lamp = [world[light.body] if light.body >= 0 else Pose() for light in spec.lights]
    for light, frame, pos, way in zip(spec.lights, lamp, state.get("light_xpos", []), state.get("light_xdir", []), strict=False):
        if light.mode == "fixed":
            yield "light", [*(frame.pos + rotate(frame.quat, light.pos)), *rotate(frame.quat, light.dir)], [*pos, *way], 1e-7


@pytest.mark.slow
@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize(("release", "rules"), [("3.2.7", "3.2"), ("4.0.0", "4.0")])
def test_bodies_of_the_corpus(release, rules):
    """Counts, names, tree, start, masses, inertias and places of every file that needs no plugin are those of the release."""
    models, wrong = 0, []
    for path, facts in _facts(release):
        try:
            spec = parse(path, rules=rules)
        except ParseError as error:
            assert "plugin" in str(error), error
            continue
        models += 1
        # 3.2.7 shifts a primitive that is fitted to the box around a mesh, and a mesh with its mass on the surface, against the manual.
        single = 1e-6 if spec.passive else 0.0  # the points of cables are in single precision there
        places = rules == "4.0" or path.stem not in ("mesh_fit_aabb", "mesh_shellinertia_3_2")
        for what, found, wanted, tolerance in _differences(spec, facts, places):
            if tolerance is None:
                same = found == wanted
            else:
                found, wanted = np.asarray(found, float), np.asarray(wanted, float)
                same = found.size == wanted.size and np.allclose(found.ravel(), wanted.ravel(), rtol=1e-9, atol=tolerance + single)
            if not same:
                wrong.append(f"{path.parent.name}/{path.stem}: {what}: {found} against {wanted}")
    assert models > 170 and not wrong, "\n".join(wrong)


# ---- joints ------------------------------------------------------------------------------------------------------------------


def test_joint_attributes_and_units():
    text = """<joint name="h" axis="0 3 4" pos="1 2 3" range="-90 180" ref="30" springref="60" stiffness="2" damping=".5" armature=".1"
      frictionloss=".2" margin=".01" solreflimit=".03" solimplimit=".8" solimpfriction=".7 .8" actuatorfrcrange="-1 2"
      actuatorgravcomp="true" group="3" user="1 2"/>
      <joint type="slide" range="-1 2" ref=".5" springdamper=".1 2"/><joint type="ball" range="0 90"/>
      <geom size=".1"/>"""
    h, s, b = body(text).joints
    assert np.allclose(h.params["axes"], [[0, 0.6, 0.8]]) and h.anchored and np.allclose(h.pos, [1, 2, 3])
    assert np.allclose(h.position_range, [[-np.pi / 2, np.pi]]) and np.isclose(h.ref, np.pi / 6)
    assert np.allclose(h.q0, np.pi / 6) and np.allclose(h.spring_ref, np.pi / 3)
    assert (h.stiffness, h.damping, h.armature, h.friction, h.margin) == (2, 0.5, 0.1, 0.2, 0.01)
    assert h.limit_soft.solref == (0.03, 1.0) and h.limit_soft.solimp == (0.8, 0.95, 0.001, 0.5, 2.0)
    assert h.friction_soft.solimp == (0.7, 0.8, 0.001, 0.5, 2.0)
    assert h.actuator_force_range == (-1, 2) and h.actuator_gravcomp and h.group == 3 and h.user == (1, 2)
    assert np.allclose(s.position_range, [[-1, 2]]) and s.spring_damper == (0.1, 2) and s.user == (0, 0) and s.friction is None
    assert np.isclose(b.angle_limit, np.pi / 2) and b.position_range is None and b.stiffness.shape == b.damping.shape == (3,)
    assert np.allclose(b.q0, [1, 0, 0, 0])


def test_free_joints():
    """The pose of a free body is its joint's start, defaults reach <joint type="free"> only."""
    head = '<default><joint damping="3" armature="2"/></default>'
    for joint, damping in (("<freejoint/>", 0), ('<joint type="free" pos="9 9 9" axis="0 0 0" limited="true"/>', 3)):
        free = read(f'<body pos="1 2 3" euler="0 0 90">{joint}<geom size=".1"/></body>', head).bodies[0]
        assert np.allclose(free.joint.q0, [1, 2, 3, np.sqrt(0.5), 0, 0, np.sqrt(0.5)]) and np.allclose(free.joint.q0, free.joint.spring_ref)
        assert not free.pos.any() and not free.joint.pos.any() and free.quat[0] == 1
        assert np.array_equal(free.joint.damping, np.full(6, damping))


def test_frames_move_what_stands_in_them():
    text = """<frame pos="5 5 5" euler="0 0 90"><joint axis="1 0 0" pos="1 0 0"/><frame pos="1 0 0"><geom size=".1"/></frame>
      <light dir="1 0 0"/><site/><inertial pos="1 0 0" mass="1" diaginertia="1 1 1"/></frame>"""
    for rules, com in (("3.2", [1, 0, 0]), ("4.0", [5, 6, 5])):
        spec = read(f"<body>{text}</body>", rules=rules)
        b = spec.bodies[0]
        assert np.allclose(b.joint.pos, [5, 6, 5]) and np.allclose(b.joint.params["axes"], [[0, 1, 0]])
        assert np.allclose(b.geoms[0].pos, [5, 6, 5]) and np.allclose(spec.lights[0].dir, [0, 1, 0])
        assert np.allclose(b.inertial.com, com)


@pytest.mark.parametrize(
    ("text", "mass"),  # as MuJoCo 3.2.7 reads it
    [
        ('{0}<frame pos="0 5 0">{1}</frame>', 2),
        ('<frame pos="0 5 0">{1}</frame>{0}', 1),
        ('<frame>{0}</frame><frame pos="0 5 0">{1}</frame>', 2),
        ("<frame>{0}<frame>{1}</frame></frame>", 2),
        ("<frame>{1}{0}</frame>", 1),
    ],
)
def test_of_two_inertials_the_last_counts_where_one_is_in_a_frame(text, mass):
    inertials = [f'<inertial pos="{m} 0 0" mass="{m}" diaginertia="1 1 1"/>' for m in (1, 2)]
    text = f"<body>\n{text.format(*inertials)}</body>"
    with pytest.warns(SuspiciousInputWarning, match=r"m.xml:2: <inertial>: second <inertial> of the body.*assumed: the last one"):
        inertial = read(text).bodies[0].inertial
    assert inertial.mass == mass and inertial.com[0] == mass
    with pytest.raises(ParseError, match="m.xml:2: .*second <inertial>"):
        read(text, strict=True)
    with pytest.raises(ParseError, match="second <inertial>"):
        read(f"<body>{''.join(inertials)}</body>")


@pytest.mark.parametrize("limit", ['limited="true"', 'limited="true" range="0 0"'])
def test_ball_joint_limited_without_a_range_cannot_turn(limit):
    text = f'<body>\n<joint type="ball" {limit}/>{GEOMS}</body>'
    with pytest.warns(SuspiciousInputWarning, match=r'm.xml:2: <joint type="ball">: range: .*assumed: 0 0, the joint cannot turn'):
        joint = read(text).bodies[0].joint
    assert joint.angle_limit == 0
    with pytest.raises(ParseError, match="m.xml:2: .*range: found none or 0 0"):
        read(text, strict=True)
    for kind in ("hinge", "slide"):  # MuJoCo refuses these
        with pytest.raises(ParseError, match="range: found 0 0"):
            read(text.replace("ball", kind))


# ---- orientations, sizes, defaults -------------------------------------------------------------------------------------------


HALF = np.sqrt(0.5)


@pytest.mark.parametrize(
    ("attributes", "compiler", "quat"),
    [
        ('quat="0 0 2 0"', "", [0, 0, 1, 0]),
        ('axisangle="0 0 5 90"', "", [HALF, 0, 0, HALF]),
        ('axisangle="0 0 5 1"', 'angle="radian"', [np.cos(0.5), 0, 0, np.sin(0.5)]),
        ('euler="90 0 90"', "", quat_mul(quat_about((1, 0, 0), np.pi / 2), quat_about((0, 0, 1), np.pi / 2))),
        ('euler="90 0 90"', 'eulerseq="XYZ"', quat_mul(quat_about((0, 0, 1), np.pi / 2), quat_about((1, 0, 0), np.pi / 2))),
        ('xyaxes="0 2 0 -1 5 0"', "", [HALF, 0, 0, HALF]),
        ('xyaxes="1 0 0 0 -1 0"', "", [0, 1, 0, 0]),
        ('zaxis="3 0 0"', "", [HALF, 0, HALF, 0]),
        ('zaxis="0 0 -1"', "", [0, 1, 0, 0]),
    ],
)
def test_orientations(attributes, compiler, quat):
    spec = read(f"<site {attributes}/>", f"<compiler {compiler}/>")
    assert np.allclose(spec.sites[0].quat, quat, atol=1e-15)


def test_orientation_of_the_element_wins_over_its_class():
    head = '<default><site zaxis="1 0 0"/><geom quat="0 1 0 0" size=".1"/></default>'
    spec = read('<site euler="0 0 90"/><site/><geom euler="0 0 90"/>', head)
    assert np.allclose([s.quat for s in spec.sites], [[HALF, 0, 0, HALF], [HALF, 0, HALF, 0]])
    assert np.allclose(spec.world_geoms[0].quat, [HALF, 0, 0, HALF])
    with pytest.raises(ParseError, match="quat and zaxis"):
        read('<site quat="1 0 0 0"/>', head)


def test_fromto():
    for shape, size in (("capsule", [0.1, 1]), ("cylinder", [0.1, 1]), ("box", [0.1, 0.1, 1]), ("ellipsoid", [0.1, 0.1, 1])):
        geom = read(f'<geom type="{shape}" size=".1 .7 .8" fromto="1 0 0 3 0 0" euler="1 2 3"/>').world_geoms[0]
        assert np.allclose(geom.size, size) and np.allclose(geom.pos, [2, 0, 0])
        assert np.allclose(rotate(geom.quat, (0, 0, 1)), [-1, 0, 0])


def test_vectors_in_part_keep_the_rest_of_the_class():
    inner = '<default class="c"><geom solref=".5"/></default>'
    head = f'<default><geom friction="1 2 3" solimp=".8 .85 .01" size=".1 .2 .3" user="1 2"/>{inner}</default>'
    spec = read('<geom type="box" class="c" size=".5" friction="5 6" solref=".7 .8" solimp=".6" user="9"/><geom class="c"/>', head)
    box, ball = spec.world_geoms
    assert np.allclose(box.size, [0.5, 0.2, 0.3]) and box.contact.friction == (5, 6, 3) and box.contact.soft.solref == (0.7, 0.8)
    assert box.contact.soft.solimp == (0.6, 0.85, 0.01, 0.5, 2.0) and box.user == (9, 0)
    assert ball.contact.soft.solref == (0.5, 1.0) and ball.user == (1, 2) and np.allclose(ball.size, [0.1])


def test_unnamed_bodies_are_named_by_their_number():
    names = [b.name for b in read('<body/><body name="a"><body name="body#4"/></body><body/>').bodies]
    assert names == ["body#1", "a", "body#4", "body#4#"]


# ---- mass --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHELLS)
def test_shells_are_what_solids_gain_by_a_thin_layer(shape):
    """A surface is the rate at which a solid grows when all its half extents do (a capsule's radius alone): so are its moments."""
    size = {"sphere": [0.3], "capsule": [0.3, 0.5], "cylinder": [0.3, 0.5], "ellipsoid": [0.2, 0.3, 0.5], "box": [0.2, 0.3, 0.5]}[shape]
    size, step = np.array(size), 1e-5
    grow = step * np.array([1, 0] if shape == "capsule" else np.ones(len(size)))
    more, less = SOLIDS[shape](size + grow), SOLIDS[shape](size - grow)
    area = (more.volume - less.volume) / (2 * step)
    moments = (more.volume * more.moments - less.volume * less.moments) / (2 * step) / area
    shell = SHELLS[shape](size)
    assert np.allclose(shell.moments, moments, rtol=1e-8)
    # The layer of an ellipsoid is not of the same thickness everywhere, Thomsen's area is true to about 1 %.
    assert np.isclose(shell.volume, area, rtol=0.1 if shape == "ellipsoid" else 1e-8)


GEOMS = '<geom type="box" size=".1 .2 .3" mass="2"/><geom size=".1" density="10" pos="0 0 1"/>'
BALL = 4 / 3 * np.pi * 1e-3
INERTIAL = '<inertial pos="1 0 0" mass="3" diaginertia="1 1 1"/>'


@pytest.mark.parametrize(
    ("compiler", "inside", "mass", "explicit"),
    [
        ("", GEOMS, 2 + 10 * BALL, False),
        ("", INERTIAL + GEOMS, 3, True),
        ('inertiafromgeom="true"', INERTIAL + GEOMS, 2 + 10 * BALL, False),
        ('inertiafromgeom="true"', INERTIAL, 3, True),
        ('inertiafromgeom="false"', INERTIAL + GEOMS, 3, True),
        ('inertiagrouprange="1 2"', GEOMS + '<geom size=".1" group="1" mass="4"/>', 4, False),
        ('boundmass="1"', GEOMS, 2 + 10 * BALL, False),
        ('boundmass="9"', GEOMS, 9, True),
        ('boundinertia="5"', GEOMS, 2 + 10 * BALL, True),
        ('settotalmass="7"', GEOMS, 7, False),
        ('settotalmass="7"', INERTIAL, 7, True),
        ('discardvisual="true"', GEOMS + '<geom size=".1" mass="1" contype="0" conaffinity="0"/>', 3 + 10 * BALL, True),
    ],
)
def test_where_the_mass_of_a_body_comes_from(compiler, inside, mass, explicit):
    """Mass stays with the geoms, whose sizes are then numbers of the model, unless a rule changed the sum."""
    b = body(f"<freejoint/>{inside}", f"<compiler {compiler}/>")
    found = body_inertial(b, ())
    assert np.isclose(found.mass, mass) and (b.inertial is not None) == explicit
    if "boundinertia" in compiler:
        assert np.linalg.eigvalsh(tensor(found.inertia)).min() > 5 - 1e-12


def test_a_total_mass_beyond_all_numbers_is_refused():
    with pytest.raises(ParseError, match="settotalmass multiplies all masses by"):
        body(f"<freejoint/>{GEOMS}", '<compiler settotalmass="1e308"/>')


def test_balanceinertia_takes_the_mean():
    b = body('<freejoint/><inertial pos="0 0 0" mass="1" diaginertia="5 1 .1"/>', '<compiler balanceinertia="true"/>')
    assert np.allclose(tensor(b.inertial.inertia), 6.1 / 3 * np.eye(3))


def test_fullinertia():
    b = body('<freejoint/><inertial pos="0 0 0" mass="1" fullinertia="3 2 2.5 .1 .2 .3"/>')
    assert np.allclose(b.inertial.inertia, [3, 2, 2.5, 0.1, 0.2, 0.3], atol=1e-12)


def test_free_bodies_are_aligned_with_their_inertia():
    """The body moves onto its inertial frame, what it holds stays where it was; not where it has children."""
    inside = '<freejoint {}/><geom type="box" size=".1 .2 .05" pos=".2 .1 0" euler="20 30 0"/><site pos=".1 0 0"/>'
    for align, child, moves in (("", "", True), ('align="false"', "", False), ("", "<body/>", False)):
        spec = read(f'<body pos="0 0 1" euler="0 40 0">{inside.format(align)}{child}</body>', '<compiler alignfree="true"/>')
        q0, geom, site = spec.bodies[0].joint.q0, spec.bodies[0].geoms[0], spec.sites[0]
        frame = Pose(q0[3:], q0[:3])
        assert np.allclose(geom.pos, 0, atol=1e-15) == moves
        turn = quat_about((0, 1, 0), np.radians(40))
        assert np.allclose((frame @ Pose(geom.quat, geom.pos)).pos, [0, 0, 1] + rotate(turn, (0.2, 0.1, 0)))
        assert np.allclose((frame @ Pose(site.quat, site.pos)).pos, [0, 0, 1] + rotate(turn, (0.1, 0, 0)))


FUSE = """<body name="a"><joint/><geom name="ga" size=".1" mass="1"/>
  <body name="b" pos="0 0 1"><geom name="gb" size=".1" mass="1"/><site name="s"/>
    <body name="c" pos="0 1 0"><joint/><geom name="gc" size=".1"/></body></body></body>
<body name="d" pos="1 0 0"><geom name="gd" size=".1"/></body>"""


def test_fusestatic():
    head = '<compiler fusestatic="true"/>'
    spec = read(FUSE, head)
    assert [b.name for b in spec.bodies] == ["a", "c"] and [g.name for g in spec.world_geoms] == ["gd"]
    a, c = spec.bodies
    assert [g.name for g in a.geoms] == ["ga", "gb"] and np.allclose(a.geoms[1].pos, [0, 0, 1]) and a.inertial is None
    assert np.allclose(c.pos, [0, 1, 1]) and c.parent == 0 and spec.sites[0].body == 0 and np.allclose(spec.sites[0].pos, [0, 0, 1])
    sensor = '</worldbody><sensor><framepos objtype="body" objname="b"/></sensor><worldbody>'
    assert [b.name for b in read(FUSE + sensor, head).bodies] == ["a", "b", "c", "d"]
    assert [b.name for b in read(FUSE + sensor, head, "4.0").bodies] == ["a", "b", "c"]
    compensated = FUSE.replace('name="b"', 'name="b" gravcomp="1"')
    assert [b.name for b in read(compensated, head).bodies] == ["a", "b", "c"]


@pytest.mark.parametrize("rules, bodies", [("3.2", ["a"]), ("4.0", ["a", "b", "e"])])
def test_fusestatic_in_a_medium(rules, bodies):
    """MuJoCo 4.0.0 keeps bodies with mass or with an ellipsoid, on which the medium acts apart; 3.2.7 does not."""
    geom, inside = '<geom size=".1" {}/>', ""
    for name, attributes in (("b", ""), ("c", 'mass="0"'), ("e", 'mass="0" fluidshape="ellipsoid"')):
        inside += f'<body name="{name}" pos="1 0 0">{geom.format(attributes)}</body>'
    text = f'<body name="a"><freejoint/>{geom.format("")}{inside}</body><body name="w">{geom.format("")}</body>'
    head = '<compiler fusestatic="true"/><option density="1"/>'
    assert [b.name for b in read(text, head, rules).bodies] == bodies
    assert [b.name for b in read(text, head.replace("density", "timestep"), rules).bodies] == ["a"]


BOX = '<geom type="box" size=".3 .1 .05" euler="{}"/>'
SORTED, TURNED = (0.0, np.sqrt(0.5), 0.0, np.sqrt(0.5)), (0.943714, 0.127679, 0.144878, 0.268536)


@pytest.mark.parametrize(
    "geoms, quat_4_0, quat_3_2",
    [
        (BOX.format("10 20 30"), TURNED, TURNED),
        (BOX.format("10 20 30") + '<geom size=".1" mass="0"/>', TURNED, (-0.280166, 0.769751, 0.0996, 0.564863)),
        (BOX.format("0 0 0") + '<geom size=".1"/>', SORTED, SORTED),
        (BOX.format("0 0 0") + '<body><geom size=".1"/></body>', SORTED, (1.0, 0.0, 0.0, 0.0)),  # 3.2.7 aligns first, what has no children
    ],
)
def test_axes_of_the_inertial_frame(geoms, quat_4_0, quat_3_2):
    """A geom alone gives its own, several give the principal axes in the order of their moments, in 3.2.7 also where others have no mass.
    Orientations of alignfree, from MuJoCo 4.0.0 and 3.2.7."""
    for rules, quat in (("4.0", quat_4_0), ("3.2", quat_3_2)):
        spec = read(f"<body><freejoint/>{geoms}</body>", '<compiler alignfree="true" fusestatic="true"/>', rules)
        found = spec.bodies[0].joint.q0[3:]
        assert np.allclose(found * np.sign(found @ quat), quat, atol=2e-6)


def test_discardvisual_keeps_what_others_refer_to():
    visual = '<geom name="{}" type="mesh" mesh="{}" contype="0" conaffinity="0" material="m"/>'
    head = '<compiler discardvisual="true"/><asset><mesh name="u" vertex="{0}"/><mesh name="v" vertex="{0}"/><material name="m"/></asset>'
    sensor = '</worldbody><sensor><framepos objtype="geom" objname="k"/></sensor><worldbody>'
    inside = "<freejoint/>" + visual.format("g", "u") + visual.format("k", "v")
    spec = read(f"<body>{inside}</body>{sensor}", head.format("0 0 0 1 0 0 0 1 0 0 0 1"))
    assert [g.name for g in spec.bodies[0].geoms] == ["k"] and [m.name for m in spec.meshes] == ["v"]
    assert spec.bodies[0].geoms[0].asset == 0 and spec.bodies[0].geoms[0].material == ""
    assert np.isclose(spec.bodies[0].inertial.mass, 2 * 1000 / 6)


def test_discardvisual_keeps_what_a_medium_moves():
    """As in MuJoCo 4.0.0, the geom that is an ellipsoid to the medium is left."""
    visual = '<geom size=".1" contype="0" conaffinity="0"/>'
    moved = visual.replace("/>", ' fluidshape="ellipsoid"/>')
    spec = read(f"<body><freejoint/>{visual}{moved}</body>", '<compiler discardvisual="true"/>')
    (geom,) = spec.bodies[0].geoms
    assert geom.fluid is not None and np.isclose(spec.bodies[0].inertial.mass, 2 * 1000 * BALL)


# ---- places and settings -----------------------------------------------------------------------------------------------------


def test_camera_lenses():
    text = """<camera fovy="90"/><camera sensorsize="2 1" {0} resolution="200 100" principalpixel="10 20"/>
      <camera orthographic="true" fovy="3"/>"""
    for focal in ('focal="3 2"', 'focal="7 7" focalpixel="300 200"'):
        plain, lens, flat = read(text.format(focal)).cameras
        assert np.isclose(plain.fovy, np.pi / 2) and plain.sensor_size == (0, 0)
        assert np.allclose(lens.intrinsic, [3, 2, 0.1, 0.2]) and lens.resolution == (200, 100)
        assert np.isclose(lens.fovy, 2 * np.arctan(0.25)) and flat.fovy == 3 and flat.orthographic
    aimed, lost = read('<body name="b"/><camera mode="targetbody" target="b"/><camera mode="targetbody"/>').cameras
    assert (aimed.mode, aimed.target) == ("targetbody", 0) and (lost.mode, lost.target) == ("fixed", None)


def test_options():
    head = """
      <option timestep=".01" gravity="1 2 3" integrator="implicitfast" cone="elliptic" o_solimp=".8" actuatorgroupdisable="1 3">
        <flag contact="disable" energy="enable"/></option>
      <option iterations="7" actuatorgroupdisable="2"><flag gravity="disable"/></option>"""
    option = read("", head).option
    assert option.dt == 0.01 and option.gravity.tolist() == [1, 2, 3] and option.integrator == "implicitfast"
    assert option.constraint_kinds == ("soft", "contact")
    assert option.disabled == ("contact", "gravity") and option.actuator_groups_off == (1, 2, 3)
    assert option.solver["cone"] == "elliptic" and option.solver["iterations"] == 7
    assert option.solver["energy"] and not option.solver["override"]
    assert option.solver["o_solimp"] == (0.8, 0.95, 0.001, 0.5, 2.0)
    assert not read("").option.solver["nativeccd"] and read("", rules="4.0").option.solver["nativeccd"]


# ---- refused -----------------------------------------------------------------------------------------------------------------

FREE = "<freejoint/>" + GEOMS


@pytest.mark.parametrize(
    ("text", "compiler", "words"),
    [
        ("<joint/>", "", "found in the world"),
        (f"<body><joint/>{FREE}</body>", "", "free joint alone"),
        (f"<body>{GEOMS}<body>{FREE}</body></body>", "", "children of the world"),
        (f'<body><joint type="ball"/><joint/>{GEOMS}</body>', "", "after a ball joint"),
        (f"<body>{'<joint/>' * 7}{GEOMS}</body>", "", "degrees of freedom"),
        (f'<body><joint axis="0 0 0"/>{GEOMS}</body>', "", "axis: found a direction of no length"),
        (f'<body><joint range="2 1" limited="true"/>{GEOMS}</body>', "", 'range: found 2 1 with limited="true"'),
        (f'<body><joint range="1 2"/>{GEOMS}</body>', 'autolimits="false"', "range: a range without limited"),
        (f'<body><joint type="ball" range="1 2"/>{GEOMS}</body>', "", "largest angle"),
        (f'<body><joint springdamper="1 0"/>{GEOMS}</body>', "", "two numbers > 0"),
        (f'<body><joint actuatorfrcrange="1 0" actuatorfrclimited="true"/>{GEOMS}</body>', "", "actuatorfrclimited"),
        (f'<body mocap="true">{FREE}</body>', "", "mocap body with a joint"),
        ("<body name='b'><joint/><body><joint/><geom size='.1'/></body></body>", "", 'body name="b".*no mass'),
        ('<body><joint/><inertial pos="0 0 0" mass="1" diaginertia="1 .1 .1"/></body>', "", "principal moments of inertia"),
        ('<body><inertial pos="0 0 0" mass="1" fullinertia="1 1 1 2 0 0"/></body>', "", "positive definite"),
        ('<body><inertial pos="0 0 0" mass="1" fullinertia="1 1 1 0 0 0" quat="1 0 0 0"/></body>', "", "fullinertia and an orientation"),
        ('<body><inertial mass="1" diaginertia="1 1 1"/></body>', "", "'pos' is missing"),
        (f'<body><joint/>{GEOMS}<geom type="plane" size="1 1 1"/></body>', "", "plane on a body that moves"),
        ('<geom type="plane" size="1 1"/>', "", "third number"),
        ('<geom type="box" size="1 1"/>', "", "size: found 1 1 0 for a box"),
        ('<geom fromto="0 0 0 1 0 0" size="1"/>', "", "fromto: found on a sphere"),
        ('<geom type="capsule" fromto="0 0 0 1 0 0" size="1" pos="1 0 0"/>', "", "pos and fromto"),
        ('<geom size="1" condim="2"/>', "", "allowed: 1, 3, 4, 6"),
        ('<geom size="1" mesh="nope"/>', "", "unknown mesh"),
        ('<geom type="mesh"/>', "", "'mesh' is missing"),
        ('<geom type="sdf" size="1"/>', "", "plugin"),
        ('<geom size="1" contype="4294967296"/>', "", "32 bits"),
        ('<geom size="1" mass="-1"/>', "", "mass: found -1"),
        ('<site quat="0 0 0 0"/>', "", "no length"),
        ('<site euler="0 0 1" zaxis="0 0 1"/>', "", "euler and zaxis"),
        ('<camera focal="1 1"/>', "", "focal: found without sensorsize"),
        ('<camera mode="track" target="nope"/>', "", "unknown body"),
        ('<light dir="0 0 0"/>', "", "no length"),
        ('<body user="1 2 3"/><body/></worldbody><size nuser_body="2"/><worldbody>', "", "user: found 3 numbers; allowed: 2"),
    ],
)
def test_refused(text, compiler, words):
    with pytest.raises(ParseError, match=re.compile(words, re.DOTALL)) as caught:
        read(text, f"<compiler {compiler}/>")
    assert caught.value.line is not None
