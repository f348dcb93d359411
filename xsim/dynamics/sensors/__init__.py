"""Sensors: cameras, rays, contact sensors and the rest."""
