"""The conversion of a whole value: all arrays of one library together, and by code compiled for its structure."""
