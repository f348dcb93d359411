"""Tendons: lengths, Jacobians and wrapping."""
