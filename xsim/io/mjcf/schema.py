"""The schema of MJCF: every element, its attributes and its children."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xsim.io.errors import allowed
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.releases import Release
from xsim.io.reader import MAX_DEPTH, Element

__all__ = ["MJCF", "Rule", "check_schema", "check_tree"]


@dataclass
class Rule:
    """What an element may hold. once: whether a parent has at most one of it."""

    once: bool = False
    attributes: tuple[str, ...] = ()
    children: dict[str, Rule] = field(default_factory=dict)


_GROUPS = {
    "$orientation": "quat axisangle euler xyaxes zaxis",
    "$limited": "solimplimit solreflimit solimpfriction solreffriction frictionloss limited margin range damping stiffness group",
    "$drive": "cranklength ctrllimited ctrlrange forcelimited forcerange gear group user",
    "$target": "name class joint jointinparent tendon site refsite slidersite cranksite cranklength lengthrange ctrllimited ctrlrange "
    "forcelimited forcerange gear group user",
    "$contact": "conaffinity condim contype friction gap margin priority solimp solmix solref",
    "$sensor": "name cutoff noise user",
}

# One line for an element: its tag (several with the same rule: a|b; at most one in its parent: ?), then its attributes; a line that starts
# with + continues it. What it may hold follows, indented. Rules that recur are linked below.
_TABLE = """
mujoco model
  compiler alignfree angle assetdir autolimits balanceinertia boundinertia boundmass coordinate discardvisual eulerseq fitaabb
      + fusestatic inertiafromgeom inertiagrouprange meshdir settotalmass strippath texturedir usethread
    lengthrange? accel interval inttotal maxforce mode timeconst timestep tolrange useexisting uselimit
  option actuatorgroupdisable apirate ccd_iterations ccd_tolerance cone density gravity impratio integrator iterations jacobian
      + ls_iterations ls_tolerance magnetic noslip_iterations noslip_tolerance o_friction o_margin o_solimp o_solref sdf_initpoints
      + sdf_iterations solver timestep tolerance viscosity wind
    flag? actuation autoreset clampctrl constraint contact energy equality eulerdamp filterparent frictionloss fwdinv gravity
        + invdiscrete island limit midphase multiccd nativeccd override passive refsafe sensor warmstart
  size memory nconmax njmax nkey nstack nuser_actuator nuser_body nuser_cam nuser_geom nuser_jnt nuser_sensor nuser_site
      + nuser_tendon nuserdata
  visual
    global? azimuth bvactive elevation ellipsoidinertia fovy glow ipd linewidth offheight offwidth orthographic realtime
    quality? numquads numslices numstacks offsamples shadowsize
    headlight? active ambient diffuse specular
    map? actuatortendon alpha fogend fogstart force haze shadowclip shadowscale stiffness stiffnessrot torque zfar znear
    scale? actuatorlength actuatorwidth camera com connect constraint contactheight contactwidth forcewidth framelength framewidth
        + frustum jointlength jointwidth light selectpoint slidercrank
    rgba? actuator actuatornegative actuatorpositive bv bvactive camera com connect constraint contactforce contactfriction
        + contactgap contactpoint contacttorque crankbroken fog force frustum haze inertia joint light rangefinder selectpoint slidercrank
  statistic center extent meaninertia meanmass meansize
  default class
    mesh? inertia maxhullvert scale
    material? emission metallic reflectance rgba roughness shininess specular texrepeat texture texuniform
    joint? $limited actuatorfrclimited actuatorfrcrange actuatorgravcomp armature axis pos ref springdamper springref type user
    geom? $orientation $contact density fitscale fluidcoef fluidshape fromto group hfield mass material mesh pos rgba shellinertia
        + size type user
    site? $orientation fromto group material pos rgba size type user
    camera? $orientation focal focalpixel fovy ipd mode orthographic pos principal principalpixel resolution sensorsize user
    light? active ambient attenuation bulbradius castshadow cutoff diffuse dir directional exponent mode pos specular
    pair? condim friction gap margin solimp solref solreffriction
    equality? active solimp solref
    tendon? $limited material rgba springlength user width
    general? $drive actdim actearly actlimited actrange biasprm biastype dynprm dyntype gainprm gaintype
    motor? $drive
    position? $drive dampratio inheritrange kp kv timeconst
    velocity? $drive kv
    intvelocity? $drive actrange dampratio inheritrange kp kv
    damper? cranklength ctrlrange forcelimited forcerange gear group kv user
    cylinder? $drive area bias diameter timeconst
    muscle? $drive force fpmax fvmax lmax lmin range scale timeconst vmax tausmooth
    adhesion? ctrlrange forcelimited forcerange gain group user
  extension
    plugin plugin
      instance name
  custom
    numeric data name size
    text data name
    tuple name
      element objname objtype prm
  asset
    mesh class content_type face file inertia maxhullvert name normal refpos refquat scale smoothnormal texcoord vertex
      plugin instance plugin
    hfield content_type elevation file name ncol nrow size
    skin face file group inflate material name rgba texcoord vertex
      bone bindpos bindquat body vertid vertweight
    texture builtin content_type file fileback filedown filefront fileleft fileright fileup gridlayout gridsize height hflip mark
        + markrgb name nchannel random rgb1 rgb2 type vflip width
    material class emission metallic name reflectance rgba roughness shininess specular texrepeat texture texuniform
      layer role texture
    model content_type file name
  worldbody $orientation childclass gravcomp mocap name pos user
    inertial? $orientation diaginertia fullinertia mass pos
    joint $limited actuatorfrclimited actuatorfrcrange actuatorgravcomp armature axis class name pos ref springdamper springref type
        + user
    freejoint align group name
    geom $orientation $contact class density fitscale fluidcoef fluidshape fromto group hfield mass material mesh name pos rgba
        + shellinertia size type user
      plugin instance plugin
    attach body model prefix
    site $orientation class fromto group material name pos rgba size type user
    camera $orientation class focal focalpixel fovy ipd mode name orthographic pos principal principalpixel resolution sensorsize
        + target user
    light active ambient attenuation bulbradius castshadow class cutoff diffuse dir directional exponent mode name pos specular
        + target
    plugin instance plugin
    composite count curve flatinertia initial offset prefix size solimpsmooth solrefsmooth spacing type vertex
      joint $limited armature axis kind solimpfix solreffix type
      tendon $limited kind material rgba solimpfix solreffix width
      skin? group inflate material rgba subgrid texcoord
      geom? $contact density group mass material rgba size type
      site? group material rgba size
      pin coord
      plugin instance plugin
    flexcomp $orientation count dim element file flatskin group inertiabox mass material name origin point pos radius rgba rigid
        + scale spacing texcoord type
      edge? damping equality solimp solref stiffness
      elasticity? damping poisson thickness young
      contact? $contact activelayers internal selfcollide
      pin grid gridrange id range
      plugin instance plugin
  deformable
    flex body dim element flatskin group material name radius rgba texcoord vertex
      contact? $contact activelayers internal selfcollide
      edge? damping stiffness
      elasticity? damping poisson thickness young
    skin face file group inflate material name rgba texcoord vertex
      bone bindpos bindquat body vertid vertweight
  contact
    pair class condim friction gap geom1 geom2 margin name solimp solref solreffriction
    exclude body1 body2 name
  equality
    connect active anchor body1 body2 class name site1 site2 solimp solref
    weld active anchor body1 body2 class name relpose site1 site2 solimp solref torquescale
    joint active class joint1 joint2 name polycoef solimp solref
    tendon active class name polycoef solimp solref tendon1 tendon2
    flex active class flex name solimp solref
  tendon
    spatial $limited class material name rgba springlength user width
      site site
      geom geom sidesite
      pulley divisor
    fixed $limited class name springlength user
      joint coef joint
  actuator
    general $target actdim actearly actlimited actrange biasprm biastype body dynprm dyntype gainprm gaintype
    motor $target
    position $target dampratio inheritrange kp kv timeconst
    velocity $target kv
    intvelocity $target actrange dampratio inheritrange kp kv
    damper class cranklength cranksite ctrlrange forcelimited forcerange gear group joint jointinparent kv lengthrange name refsite
        + site slidersite tendon user
    cylinder $target area bias diameter timeconst
    muscle $drive class cranksite force fpmax fvmax joint jointinparent lengthrange lmax lmin name range scale slidersite tausmooth
        + tendon timeconst vmax
    adhesion body class ctrlrange forcelimited forcerange gain group name user
    plugin $drive actdim actearly actlimited actrange class cranksite dynprm dyntype instance joint jointinparent lengthrange name
        + plugin site slidersite tendon
  sensor
    touch|accelerometer|velocimeter|gyro|force|torque|magnetometer $sensor site
    camprojection $sensor camera site
    rangefinder $sensor site
    jointpos|jointvel $sensor joint
    tendonpos|tendonvel $sensor tendon
    actuatorpos|actuatorvel|actuatorfrc $sensor actuator
    jointactuatorfrc|ballquat|ballangvel|jointlimitpos|jointlimitvel|jointlimitfrc $sensor joint
    tendonlimitpos|tendonlimitvel|tendonlimitfrc $sensor tendon
    framepos|framequat|framexaxis|frameyaxis|framezaxis|framelinvel|frameangvel $sensor objname objtype refname reftype
    framelinacc|frameangacc $sensor objname objtype
    subtreecom|subtreelinvel|subtreeangmom $sensor body
    distance|normal|fromto $sensor body1 body2 geom1 geom2
    contact $sensor body1 body2 data geom1 geom2 num reduce site subtree1 subtree2
    insidesite $sensor enclosed objname objtype site
    e_potential|e_kinetic|clock $sensor
    user $sensor datatype dim needstage objname objtype
    plugin cutoff instance name objname objtype plugin refname reftype user
  keyframe
    key act ctrl mpos mquat name qpos qvel time
"""

_TENDON = ("armature",)
# Attributes and elements that only later releases have, by tag or by parent and tag, and by parent.
_NEWER = {
    "flag": ("spring", "damper"), "camera": ("projection",), "default/tendon": _TENDON, "spatial": _TENDON, "fixed": _TENDON,
}  # fmt: skip
_NEWER_ELEMENTS = {"sensor": ("contact", "insidesite", "e_potential", "e_kinetic")}
_GONE = {"flag": ("passive",)}  # and those that they have no more


def _parse(table: str) -> Rule:
    root = Rule()
    chain: list[list[Rule]] = [[root]]
    for line in table.strip("\n").splitlines():
        words = line.split()
        depth = (len(line) - len(line.lstrip())) // 2
        if words[0] == "+":
            found, words = chain[-1], words[1:]
        else:
            found = []
            for tag in words.pop(0).split("|"):
                rule = Rule(once=tag.endswith("?"))
                chain[depth][0].children[tag.rstrip("?")] = rule
                found.append(rule)
            chain[depth + 1 :] = [found]
        names = [name for word in words for name in _GROUPS.get(word, word).split()]
        for rule in found:
            rule.attributes += tuple(names)
    return root.children["mujoco"]


def _linked(mujoco: Rule) -> Rule:
    """The rules with what recurs: bodies and frames in each other, classes in classes, the settings of plugins."""
    body = mujoco.children.pop("worldbody")
    frame = Rule(attributes=("name", "childclass", "pos", *_GROUPS["$orientation"].split()), children=body.children)
    replicate = Rule(attributes=("count", "sep", "offset", "euler", "childclass"), children=body.children)
    body.children |= {"body": body, "frame": frame, "replicate": replicate}
    frame.children = body.children | {"inertial": replace(body.children["inertial"], once=False)}  # only bodies count them
    mujoco.children["worldbody"] = Rule(children=body.children)
    mujoco.children["default"].children["default"] = mujoco.children["default"]
    config = Rule(attributes=("key", "value"))
    seen, pending = set(), [mujoco]
    while pending:
        rule = pending.pop()
        for tag, child in rule.children.items():
            if id(child) not in seen:
                seen.add(id(child))
                pending.append(child)
                if tag == "instance" or tag == "plugin" and "instance" in child.attributes:
                    child.children["config"] = config
    return mujoco


MJCF = _linked(_parse(_TABLE))


def _newer(node: Node) -> tuple[str, ...]:
    """The attributes of an element that only later releases have."""
    parent = "" if node.parent is None else node.parent.tag
    return _NEWER.get(node.tag, ()) + _NEWER.get(f"{parent}/{node.tag}", ())


def check_schema(root: Node, release: Release) -> None:
    """Refuse elements and attributes that are not allowed in their parent, and second ones of what is allowed once. Raises ParseError."""
    if root.tag != "mujoco":
        raise Element(root, root.file).error("unknown root element; allowed: <mujoco>")
    pending = [(root, MJCF)]
    while pending:
        node, rule = pending.pop()
        e = Element(node, node.file)
        names, newer = rule.attributes, _newer(node)
        if release.schema_of_4_0:
            names = {*names, *newer}.difference(_GONE.get(node.tag, ()))
        for name in node.attrib:
            if name not in names:
                known = allowed(name, sorted(names)) if names else "it has none"
                known = 'allowed: with rules="4.0"' if name in newer else known
                raise e.error(f"unknown attribute {name!r}; {known}")
        first: dict[str, Node] = {}
        for child in node.children:
            inner = rule.children.get(child.tag)
            if inner is not None and child.tag in _NEWER_ELEMENTS.get(node.tag, ()) and not release.schema_of_4_0:
                raise Element(child, child.file).error('not in MuJoCo 3.2; allowed: with the option rules="4.0"')
            if inner is None:
                known = allowed(child.tag, sorted(rule.children)) if rule.children else "none is allowed"
                raise Element(child, child.file).error(f"unknown element in <{node.tag}>; {known}")
            if inner.once and child.tag in first:
                before = Element(first[child.tag], first[child.tag].file).source
                raise Element(child, child.file).error(f"second <{child.tag}> in <{node.tag}> (the first is in {before}); allowed: one")
            first.setdefault(child.tag, child)
            pending.append((child, inner))


def check_tree(root: Node) -> None:
    """Refuse what no single file could have, once all files are one: too deep a tree, two frames of one name. Raises ParseError."""
    frames: dict[str, Node] = {}
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise Element(node, node.file).error(f"nested deeper than {MAX_DEPTH} elements")
        if node.tag == "frame" and "name" in node.attrib:
            first = frames.setdefault(node.attrib["name"], node)
            if first is not node:
                before = Element(first, first.file).source
                text = f"second frame of this name (the first is in {before}); allowed: a name of its own"
                raise Element(node, node.file).error(text, "name")
        pending.extend((child, depth + 1) for child in reversed(node.children))
