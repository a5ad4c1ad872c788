"""Actions that fit their space: the casts, checks and warnings."""
