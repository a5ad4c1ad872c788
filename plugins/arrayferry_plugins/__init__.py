"""The built-in plugins: one module a library, the same shape in each.

They enter by the entry-point group `arrayferry`, the same door as anybody's. No module here imports
its library at the top.
"""
