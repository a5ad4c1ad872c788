"""Spaces as trees of leaves, batches of their values, and spaces of other packages."""
