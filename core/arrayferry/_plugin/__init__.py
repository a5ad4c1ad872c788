"""The parts of a plugin: backends, sources, converters, containers, and the hooks that return them.

This package imports `_utilities` and no other subpackage, so it does not depend on the registry or on routes.
"""
