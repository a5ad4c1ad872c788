"""The audit of vector environments: a run is recorded and checked, and then repeated with one thing changed."""
