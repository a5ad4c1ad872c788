"""The `Collector`, and how it requests segments of trajectories from workers and joins them."""
