"""Groups on the workers of a Dask cluster: requests to them, and recovery when a worker is lost."""
