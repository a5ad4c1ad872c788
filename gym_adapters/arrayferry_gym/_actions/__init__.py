"""The casts, checks and warnings that fit actions to their space."""
