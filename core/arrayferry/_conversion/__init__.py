"""The conversion of a whole value. Code compiled for its structure converts all arrays of one library together."""
