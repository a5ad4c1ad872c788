"""The kernels of the wrappers, sorted as in Gymnasium: observations, rewards, actions, and those with statistics."""
