"""The kernels of the wrappers, grouped as in Gymnasium: observations, rewards, actions, and statistics."""
