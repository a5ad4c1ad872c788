"""Steps and resets a batch of a functional environment: in NumPy and PyTorch, and compiled in JAX."""
