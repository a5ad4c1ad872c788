"""What a plugin says: backends, converters, containers, and the hooks that give them.

This wing imports nothing of the others. It knows neither a registry nor a route.
"""
