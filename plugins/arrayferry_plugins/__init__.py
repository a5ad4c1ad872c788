"""The built-in plugins: one module for each library, all with the same structure.

These plugins use the entry-point group `arrayferry` like any other plugin. No module here imports its library at
module level. A hook here needs no decorator `hookimpl`, since the name of the hook begins with `arrayferry_`.
"""
