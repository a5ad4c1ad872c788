"""Functional environments around others: wrapped and repeated."""
