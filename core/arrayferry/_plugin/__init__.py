"""What a plugin defines: backends, converters, containers, and the hooks that return them.

This layer imports nothing from the others. It knows neither a registry nor a route.
"""
