"""Deformable bodies of points, edges and elements."""
