"""The kinematic tree: the numbers of a model in the layout of the core, kinematics, recursive dynamics, frames on bodies."""
