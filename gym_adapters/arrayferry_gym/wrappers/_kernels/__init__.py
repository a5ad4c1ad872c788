"""The kernels of the wrappers, for actions, observations, earlier observations, rewards and statistics."""
