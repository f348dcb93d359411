"""Which pairs of shapes collide in closed form.

Kinds are in MuJoCo's order: plane, sphere, capsule, ellipsoid, cylinder, box, mesh; after them facets of flexes. Every function takes the
two `Shape`s and returns its `Touch`es; `capsule_capsule` and `box_box` also take the margin, `box_box` the rules.
"""

from xsim.dynamics.collide.boxes import box_box, capsule_box
from xsim.dynamics.collide.planes import plane_box, plane_capsule, plane_cylinder, plane_ellipsoid, plane_mesh, plane_sphere
from xsim.dynamics.collide.simplices import sphere_facet
from xsim.dynamics.collide.spheres_capsules import capsule_capsule, sphere_box, sphere_capsule, sphere_cylinder, sphere_sphere

ANALYTIC = {
    ("plane", "sphere"): plane_sphere,
    ("plane", "capsule"): plane_capsule,
    ("plane", "ellipsoid"): plane_ellipsoid,
    ("plane", "cylinder"): plane_cylinder,
    ("plane", "box"): plane_box,
    ("plane", "mesh"): plane_mesh,
    ("sphere", "sphere"): sphere_sphere,
    ("sphere", "capsule"): sphere_capsule,
    ("sphere", "cylinder"): sphere_cylinder,
    ("sphere", "box"): sphere_box,
    ("sphere", "facet"): sphere_facet,
    ("capsule", "capsule"): capsule_capsule,
    ("capsule", "box"): capsule_box,
    ("box", "box"): box_box,
}
