"""The built-in plugins: one module for each library, all with the same structure.

These plugins use the entry-point group `arrayferry` like any other plugin. No module here imports its library at
the top. A hook needs no `hookimpl`, since its name begins with `arrayferry_`.
"""
