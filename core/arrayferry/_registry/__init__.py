"""Discovers, checks and registers plugins, and finds their parts by name and by type."""
