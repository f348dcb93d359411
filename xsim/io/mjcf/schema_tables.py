"""The elements of MJCF by release: their attributes and what they may hold.

`SCHEMAS` maps a release to the `Rule` of <mujoco>. Two tables say it: that of 3.2, and what 4.0 changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

__all__ = ["SCHEMAS", "Rule"]


@dataclass
class Rule:
    """What an element may hold.

    once: whether a parent has at most one of it. unsupported: attributes of the release that xsim does not simulate. supported: whether
    xsim simulates the element.
    """

    once: bool = False
    attributes: tuple[str, ...] = ()
    children: dict[str, Rule] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    supported: bool = True


_GROUPS = {
    "$orientation": "quat axisangle euler xyaxes zaxis",
    "$limited": "solimplimit solreflimit solimpfriction solreffriction frictionloss limited margin range damping stiffness group",
    "$drive": "cranklength ctrllimited ctrlrange forcelimited forcerange gear group user",
    "$target": "name class joint jointinparent tendon site refsite slidersite cranksite cranklength lengthrange ctrllimited ctrlrange "
    "forcelimited forcerange gear group user",
    "$contact": "conaffinity condim contype friction gap margin priority solimp solmix solref",
    "$sensor": "name cutoff noise user",
    "$delay": "delay interp nsample",
    "$orientation_servo": "ctrlrange dampratio delay forcelimited forcerange group input interp kp kv nsample user",
    "$pid": "armature damping dampratio ffrange imax inheritrange input ki kp kv posrange slewmax velrange",
    "$dcmotor": "armature cogging controller damping inductance input lugre motorconst nominal resistance saturation thermal",
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
  frame $orientation childclass name pos
  replicate childclass count euler offset sep
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
    clock $sensor
    user $sensor datatype dim needstage objname objtype
    plugin cutoff instance name objname objtype plugin refname reftype user
  keyframe
    key act ctrl mpos mquat name qpos qvel time
"""

# What 4.0 changed, by the paths of elements (several of one parent with the same changes: a|b): the attributes an element has more (+),
# those it has no more (-), and those that xsim does not simulate (!). A path that is not in the table above is a new element; xsim does not
# simulate one whose tag follows a !.
_CHANGES_OF_4_0 = """
compiler + conflict passthrough savecanonical savecompiled saveinertial
option + sleep_tolerance - apirate
option/flag + damper diagexact sleep speculative spring ! ipc - passive
visual/global + cameraid
default/texture? + builtin colorspace embed gridlayout gridsize height hflip mark markrgb nchannel random rgb1 rgb2 type vflip width
default/material/layer + role texture
default/joint + springyield
default/geom + adhesion castshadow surfacevel
default/site + mesh
default/camera + output projection - orthographic
default/light + intensity range softness type
default/pair + adhesion
default/tendon + actuatorfrclimited actuatorfrcrange armature springyield
default/general + armature damping ffrange inheritrange input velrange $delay
default/motor|position|velocity|damper|cylinder + armature damping $delay
default/muscle + armature damping $delay - tausmooth
default/intvelocity + actlimited armature damping $delay
default/adhesion + $delay
default/orientation? + $orientation_servo
default/pid? + $drive $pid $delay
default/dcmotor? + $drive $dcmotor $delay - forcelimited forcerange
asset/mesh + builtin material params
asset/texture + class colorspace embed
worldbody + fuse simple sleep
worldbody/joint + springyield
worldbody/geom + adhesion castshadow surfacevel
worldbody/attach + frame
worldbody/site + mesh
worldbody/camera + output projection
worldbody/light + intensity range softness texture type
frame + massscale scale scaling
worldbody/flexcomp + cellcount dof mesh
worldbody/flexcomp/contact + passive - internal
worldbody/flexcomp/elasticity + elastic2d section sectionsize shear yield
deformable/flex + cellcount dof elemtexcoord node nodecoord
deformable/flex/contact + passive - internal
deformable/flex/elasticity + elastic2d section sectionsize shear yield
contact/pair + adhesion
equality/flexstrain + active cell class flex name solimp solref
tendon/spatial|fixed + actuatorfrclimited actuatorfrcrange armature springyield
actuator/general + armature damping ffrange inheritrange input velrange $delay
actuator/motor|position|velocity|damper|cylinder|muscle|plugin + armature damping $delay
actuator/intvelocity + actlimited armature damping $delay
actuator/adhesion + $delay
actuator/orientation + class name joint refsite site $orientation_servo
actuator/pid + $target $pid $delay
actuator/dcmotor + $target $dcmotor $delay - forcelimited forcerange
sensor/rangefinder + camera data
sensor/contact + body1 body2 data geom1 geom2 num reduce site subtree1 subtree2 $sensor
sensor/insidesite + enclosed objname objtype site $sensor
sensor/e_potential|e_kinetic + $sensor
sensor/tendonactuatorfrc + tendon $sensor
sensor/tactile + cutoff geom mesh name user
keyframe/key + plastic
"""


def _tree(table: str) -> Rule:
    """The rule of <mujoco> that a table says, without what recurs."""
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
        for rule in found:
            rule.attributes += _names(words)
    return root.children["mujoco"]


def _names(words: list[str]) -> tuple[str, ...]:
    return tuple(name for word in words for name in _GROUPS.get(word, word).split())


def _change(root: Rule, changes: str) -> Rule:
    """The rules after the changes of a table."""
    for line in changes.strip("\n").splitlines():
        path, *words = line.split()
        parent, _, tags = path.rpartition("/")
        for tag in tags.split("|"):
            rule, sign = _at(root, f"{parent}/{tag}".strip("/")), ""
            for word in words:
                if word in ("+", "-", "!"):
                    sign = word
                    continue
                names = _names([word])
                rule.attributes = tuple(n for n in rule.attributes if n not in names) + (names if sign == "+" else ())
                rule.unsupported += names if sign == "!" else ()
    for tag, rule in root.children["sensor"].children.items():
        rule.attributes += () if tag in ("user", "plugin") else (*_names(["$delay"]), "interval")
    return root


def _at(root: Rule, path: str) -> Rule:
    """The rule at a path, which is made if there is none."""
    rule = root
    for tag in path.split("/"):
        new = Rule(once=tag.endswith("?"), supported=not tag.startswith("!"))
        rule = rule.children.setdefault(tag.strip("!?"), new)
    return rule


def _linked(mujoco: Rule) -> Rule:
    """The rules with what recurs: bodies and frames in each other, classes in classes, the settings of plugins."""
    body = mujoco.children.pop("worldbody")
    frame, replicate = mujoco.children.pop("frame"), mujoco.children.pop("replicate")
    body.children |= {"body": body, "frame": frame, "replicate": replicate}
    replicate.children = body.children
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


SCHEMAS = {"3.2": _linked(_tree(_TABLE)), "4.0": _linked(_change(_tree(_TABLE), _CHANGES_OF_4_0))}
"""The rule of <mujoco> by release."""
