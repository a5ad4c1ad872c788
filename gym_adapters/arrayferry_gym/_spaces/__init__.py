"""Functions for spaces: spaces as trees, batches of values, and conversions of spaces of other packages."""
