"""Functional environments around others: wrapped, repeated, seeded."""
