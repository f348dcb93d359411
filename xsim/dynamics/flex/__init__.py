"""Deformable bodies (flexes) of points, edges and elements."""
