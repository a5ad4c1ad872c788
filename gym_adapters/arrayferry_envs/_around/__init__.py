"""Functional environments that contain another environment: wrapped, repeated, seeded."""
