"""The parts of a plugin: backends, sources, converters, containers, and the hooks that return them.

This layer imports nothing from the others. It knows neither a registry nor a route.
"""
