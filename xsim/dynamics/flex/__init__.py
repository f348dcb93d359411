"""Deformable bodies (flexes) of points, edges and elements. Numbers in the state: `rods`, `plasticity`."""
