"""The built-in plugins: one module for each library, all of the same shape.

They use the entry-point group `arrayferry` like any other plugin. No module here imports its library at
the top.
"""
