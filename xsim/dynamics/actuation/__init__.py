"""Actuators: commands, transmissions, activations and forces."""
