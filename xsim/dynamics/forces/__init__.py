"""Smooth forces: springs, dampers, gravity compensation, fluids, elements between two bodies, functions of time."""
