"""Models that differ between environments: joint axes, body positions, and any leaf whose range is given.

An entry of ``ranges`` names leaves and says how their numbers are sampled::

    dof.damping:      {uniform: [0.5, 2.0], relative: scale}
    body.pos[imu*]:   {normal: [0.0, 0.01], relative: offset}
    geom.mass[foot]:  {log_uniform: [0.1, 1.0], per: body}
    body.quat[imu*]:  {normal: [0.0, 0.05], relative: rotate}
    option.gravity:   {uniform: [[0, 0, -9.9], [0, 0, -9.7]], shared: true}

Left: a selector (`xsim.model.selectors`) of all rows of a leaf, or of some: a leaf path or a pattern of paths, then optionally in brackets
a name, a pattern of names or an index. Names are those of bodies (``world`` for scenery), or of the constraints, forces and functions that
the leaf belongs to. Right: one distribution and how it is used.

========================  =========================================================================================================
``uniform: [low, high]``  in [low, high); the numbers are scalars or arrays that fit one row of the leaf
``log_uniform: [l, h]``   the logarithm is uniform
``normal: [mean, std]``   ``limit: [low, high]`` truncates it
``relative``              ``value`` (default): the sample itself; ``scale``, ``offset``: times or plus what the model has;
                          ``rotate`` (orientations only): turned by the sampled rotation vector (rad, body axes)
``per``                   ``number`` (default), ``row``, ``body`` or ``leaf``: how much gets one common sample
``shared``                true: one sample for all environments; the leaf then takes no memory per environment
========================  =========================================================================================================

Where two entries cover the same rows, the later one counts. ``axes`` and ``positions`` (true or false) may stand beside them.
"""

from xsim.randomize.distributions import DISTRIBUTIONS
from xsim.randomize.ranges import read_ranges
from xsim.randomize.sampler import Sampler, make_sampler, randomize

__all__ = ["DISTRIBUTIONS", "Sampler", "make_sampler", "randomize", "read_ranges"]
