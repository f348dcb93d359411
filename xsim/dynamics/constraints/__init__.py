"""Constraints: holonomic rows, soft constraints of MuJoCo's model, contacts, and the solver."""
