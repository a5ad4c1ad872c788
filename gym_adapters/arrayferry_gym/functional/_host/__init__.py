"""An ordinary environment that is called from compiled code of JAX."""
