"""One environment between two libraries: the adapter, its spaces, and how it is shown."""
