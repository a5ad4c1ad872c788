"""Groups of environments on the workers of a Dask cluster: requests of segments, and recovery from lost workers."""
