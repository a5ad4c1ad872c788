"""Flattening a value into its arrays, and rebuilding the value with other arrays.

These modules know structures, but no libraries. Their callers pass a function, `kind_of`, which returns how a
conversion treats an object.
"""
