"""The parts of a plugin: backends, sources, converters, containers, and the hooks that return them.

This package imports no other subpackage but `_utilities`. It depends neither on the registry nor on routes.
"""
