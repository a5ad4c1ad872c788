"""What a plugin defines: backends, converters, containers, and the hooks that return them.

This wing imports nothing of the others. It knows neither a registry nor a route.
"""
