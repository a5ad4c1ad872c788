"""Flattening a value into its arrays, and rebuilding the value with other arrays.

This layer knows structures. A function, `kind_of`, tells it how a conversion treats an object.
"""
