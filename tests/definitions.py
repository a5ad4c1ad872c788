"""Advantages by their definition."""

import numpy as np

FACTORS = {"gamma": 0.97, "lam": 0.9}


def summed(rewards, values, after, terminated, truncated, counts=None, *, gamma, lam):
    """The definition: for each step, the errors of the later steps of its episode, each with its weight."""
    rewards, values, after = (np.asarray(x, np.float64) for x in (rewards, values, after))
    extra = (..., *(None,) * (values.ndim - terminated.ndim))
    ended = (terminated | truncated)[extra]
    counts = np.ones_like(ended) if counts is None else counts[extra]
    errors = rewards + gamma * np.where(terminated[extra], 0, after) - values
    total = np.zeros_like(errors)
    for begin in range(len(errors)):
        alive, weight = counts[begin].copy(), 1.0
        for step in range(begin, len(errors)):
            alive = alive & counts[step]
            total[begin] += np.where(alive, weight * errors[step], 0)
            weight *= gamma * lam
            alive = alive & ~ended[step]
            if not alive.any():
                break
    return total
