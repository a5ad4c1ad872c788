"""Flattening a value into its arrays, and rebuilding the value with other arrays.

These modules handle structures of all types, but do not depend on array libraries. Callers pass a function, `kind_of`,
which returns how a conversion treats an object.
"""
