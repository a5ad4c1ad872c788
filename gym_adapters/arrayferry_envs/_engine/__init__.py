"""A batch of a functional environment that is stepped and reset: in NumPy and PyTorch, and compiled in JAX."""
