"""Default classes of MJCF: an attribute of a class is as good as the element's own."""

from __future__ import annotations

import pytest
from test_mjcf_assets import L
from test_mjcf_meaning import ASSETS, BALL, CLAMPED, DRIVEN, LENS, NEEDS, SCENE, read
from test_perturbation import plain

from xsim.io import ParseError
from xsim.io.mjcf.schema_tables import SCHEMAS

KINDS = [tag for tag in SCHEMAS["3.2"].children["default"].children if tag != "default"]
ELEMENTS = {  # of each kind: the section it stands in, and one with a place for attributes
    "mesh": ("asset", f'<mesh name="x" {L} {{}}/>'),
    "material": ("asset", '<material name="x" {}/>'),
    "joint": ("world", f"<body><joint {{}}/>{BALL}</body>"),
    "geom": ("world", "<geom {}/>"),
    "site": ("world", "<site {}/>"),
    "camera": ("world", "<camera {}/>"),
    "light": ("world", "<light {}/>"),
    "pair": ("contact", '<pair geom1="ga" geom2="gb" {}/>'),
    "equality": ("equality", '<weld body1="a" {}/>'),
    "tendon": ("tendon", '<spatial {}><site site="s1"/><site site="s3"/></spatial>'),
    **{kind: ("actuator", f"<{kind} {{}}/>") for kind in DRIVEN},
    "adhesion": ("actuator", '<adhesion body="b" {}/>'),
}
# A value for every attribute, where kinds differ under the kind.
SAMPLES = {
    "scale": "2 3 4", "inertia": "convex", "maxhullvert": "6", "emission": ".3", "metallic": ".3", "reflectance": ".3",
    "rgba": ".1 .2 .3 .4", "roughness": ".3", "shininess": ".3", "specular": ".3", "texrepeat": "2 3", "texture": "t", "texuniform": "true",
    "solimplimit": ".3", "solreflimit": ".3", "solimpfriction": ".3", "solreffriction": ".3", "frictionloss": ".3", "limited": "false",
    "margin": ".3", "range": ".2 .7", "damping": ".3", "stiffness": ".3", "group": "3", "actuatorfrclimited": "false",
    "actuatorfrcrange": "-1 2", "actuatorgravcomp": "true", "armature": ".3", "axis": "1 2 3", "pos": "1 2 3", "ref": ".3",
    "springdamper": ".3 .4", "springref": ".3", "type": "slide", "user": "1 2", "quat": "1 2 3 4", "axisangle": "1 2 3 4", "euler": "1 2 3",
    "xyaxes": "1 2 3 3 2 1", "zaxis": "1 2 3", "conaffinity": "3", "condim": "4", "contype": "3", "friction": "2", "gap": ".3",
    "priority": "3", "solimp": ".3", "solmix": "3", "solref": ".3", "density": "3", "fitscale": "3", "fluidcoef": "1 2 3 4 5",
    "fluidshape": "ellipsoid", "fromto": "1 2 3 3 2 1", "hfield": "h", "mass": "3", "material": "m", "mesh": "cube", "shellinertia": "true",
    "size": ".3 .4 .5", "focal": "3 4", "focalpixel": "3 4", "fovy": "30", "ipd": ".3", "mode": "track", "orthographic": "true",
    "principal": "3 4", "principalpixel": "3 4", "resolution": "30 40", "sensorsize": ".3 .4", "active": "false", "ambient": "1 2 3",
    "attenuation": "1 2 3", "bulbradius": ".3", "castshadow": "false", "cutoff": "30", "diffuse": "1 2 3", "dir": "1 2 3",
    "directional": "true", "exponent": "3", "springlength": ".3", "width": ".3", "cranklength": ".3", "ctrllimited": "false",
    "ctrlrange": ".2 .7", "forcelimited": "false", "forcerange": "-1 2", "gear": "2 3", "actdim": "0", "actearly": "true",
    "actlimited": "false", "actrange": "-1 2", "biasprm": "1 2", "biastype": "affine", "dynprm": ".3", "dyntype": "filter", "gainprm": "3",
    "gaintype": "affine", "dampratio": ".3", "inheritrange": ".3", "kp": "3", "kv": "3", "timeconst": ".3", "area": "3", "bias": "1 2 3",
    "diameter": "3", "force": "3", "fpmax": "3", "fvmax": "3", "lmax": "3", "lmin": ".3", "vmax": "3", "tausmooth": ".3", "gain": "3",
    ("geom", "type"): "box", ("site", "type"): "box", ("light", "specular"): "1 2 3", ("pair", "friction"): "2 3",
    ("muscle", "timeconst"): ".3 .4", ("muscle", "range"): ".3 .4", ("muscle", "scale"): "3",
}  # fmt: skip
APART = ASSETS.replace("<mesh", '<mesh class="none"').replace("<material", '<material class="none"')
BESIDE = {  # what else the element needs, by kind, and where an attribute needs something else
    "geom": 'size=".1 .2 .3"', **{kind: 'joint="jb"' for kind in DRIVEN}, **{kind: f'joint="jb" {NEEDS[kind]}' for kind in NEEDS},
    "adhesion": 'ctrlrange="0 1"',
    **{(kind, "cranklength"): f'cranksite="s1" slidersite="s2" {NEEDS.get(kind, "")}' for kind in DRIVEN},
    **{(kind, "ctrllimited"): f'joint="jb" ctrlrange="1 2" {NEEDS.get(kind, "")}' for kind in CLAMPED},
    **{(kind, "forcelimited"): f'joint="jb" forcerange="1 2" {NEEDS.get(kind, "")}' for kind in DRIVEN},
    ("adhesion", "forcelimited"): 'ctrlrange="0 1" forcerange="1 2"', ("adhesion", "ctrlrange"): "", ("damper", "ctrlrange"): 'joint="jb"',
    ("intvelocity", "actrange"): 'joint="jb"', ("intvelocity", "inheritrange"): 'joint="jb"',
    ("general", "actlimited"): 'joint="jb" actrange="-1 2" dyntype="filter"', ("general", "actrange"): 'joint="jb" dyntype="filter"',
    ("joint", "limited"): 'range="1 2"', ("joint", "actuatorfrclimited"): 'actuatorfrcrange="1 2"', ("tendon", "limited"): 'range="1 2"',
    ("geom", "fromto"): 'type="capsule" size=".3"', ("geom", "hfield"): 'type="hfield"', ("geom", "mesh"): 'type="mesh"',
    ("geom", "fitscale"): 'mesh="cube"', ("geom", "size"): 'type="box"', ("geom", "fluidcoef"): 'size="1" fluidshape="ellipsoid"',
    ("site", "fromto"): 'type="capsule"', ("site", "size"): 'type="box"', ("camera", "focal"): 'sensorsize=".3 .4" resolution="30 40"',
    ("camera", "focalpixel"): 'sensorsize=".3 .4" resolution="30 40"', ("camera", "principal"): LENS, ("camera", "principalpixel"): LENS,
    ("camera", "sensorsize"): 'focal="3 4" resolution="30 40"',
}  # fmt: skip
ALONE = {("general", "actdim")}  # the value that it has anyhow


def outcome(kind: str, default: str, own: str):
    """The model with an element and a class; None where it is refused."""
    section, element = ELEMENTS[kind]
    made = {"world": "", "asset": "", section: element.format(own)}
    # Assets and scene have a class of their own that the other one does not reach.
    head = f'<default><default class="none"/></default><default><{kind} {default}/></default>{APART}<asset>{made["asset"]}</asset>'
    world = f'<frame childclass="none">{SCENE}</frame>{made["world"]}'
    after = "" if section in ("world", "asset") else f"<{section}>{made[section]}</{section}>"
    try:
        return plain(read(world, head, after))
    except ParseError:
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_an_attribute_of_a_class_is_as_good_as_the_elements_own(kind):
    wrong = []
    for name in SCHEMAS["3.2"].children["default"].children[kind].attributes:
        beside = BESIDE.get((kind, name), BESIDE.get(kind, ""))
        said = f'{name}="{SAMPLES.get((kind, name)) or SAMPLES[name]}"'
        inherited, own, without = outcome(kind, said, beside), outcome(kind, "", f"{said} {beside}"), outcome(kind, "", beside)
        if own is None or inherited != own or own == without and (kind, name) not in ALONE:
            wrong.append((name, "refused" if own is None else "another" if inherited != own else "no effect"))
    assert not wrong
