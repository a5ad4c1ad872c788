"""Flattening a value into its arrays, and rebuilding the value with other arrays.

These modules know structures, but no libraries. A function, `kind_of`, returns how a conversion treats an object.
"""
