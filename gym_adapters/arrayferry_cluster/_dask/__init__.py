"""Groups on the workers of a Dask cluster: how they are reached, and what is done when a worker is lost."""
