"""The engine that reaches workers of a Dask cluster."""
