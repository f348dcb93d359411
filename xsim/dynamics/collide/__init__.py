"""Collision functions: contacts between two geoms, one file for each family of shapes, see `shapes`."""
