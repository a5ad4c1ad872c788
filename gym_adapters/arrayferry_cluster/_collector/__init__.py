"""The `Collector`, which requests and joins segments of groups."""
