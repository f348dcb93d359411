"""The equation of motion and the integrators."""
