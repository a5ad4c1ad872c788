"""The conversion of a whole value: of its arrays, library by library, and the code compiled for its structure."""
