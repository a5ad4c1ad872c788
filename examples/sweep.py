"""Many trainings in one compiled call, over seeds and learning rates, and their returns with a band over the seeds.

Run it with `python examples/sweep.py`, or with `--rates 0.001 0.005 --seeds 16`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from ppo import PPO, Settings
from ppo_jit import train


def sweep(rates: Sequence[float], seeds: int, settings: Settings) -> Any:
    """Train with each learning rate and each seed, in one call.

    Args:
        rates: the learning rates.
        seeds: how many seeds.
        settings: everything else.

    Returns:
        The mean returns of the episodes that have ended in each update, (rates, seeds, updates); nan if none has.

    Examples:
        >>> sweep([0.001, 0.01], 3, Settings(updates=2, num_envs=4, num_steps=8)).shape
        (2, 3, 2)
    """

    def one(rate: Any, seed: Any) -> Any:
        return train(PPO(settings._replace(learning_rate=rate)), seed)[1]

    over_seeds = jax.vmap(one, in_axes=(None, 0))
    over_both = jax.vmap(over_seeds, in_axes=(0, None))
    return jax.jit(over_both)(jnp.asarray(rates), jnp.arange(seeds))


def draw(path: str, rates: Sequence[float], returns: Any, settings: Settings, part: int) -> None:
    """Save a picture: for each learning rate the median over the seeds, and a band with half of them.

    Args:
        path: where to save it.
        rates: the learning rates.
        returns: the result of `sweep`.
        settings: of the trainings.
        part: how many updates a point is the mean of.

    Examples:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "sweep.png")
        ...     draw(path, [0.1], np.ones((1, 3, 4)), Settings(updates=4), 2)
        ...     os.path.exists(path)
        True
    """
    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    points = np.nanmean(np.reshape(returns, (*np.shape(returns)[:2], -1, part)), axis=-1)
    steps = np.arange(1, points.shape[-1] + 1) * part * settings.per_update
    for rate, curves in zip(rates, points, strict=True):
        low, middle, high = np.percentile(curves, [25, 50, 75], axis=0)
        axes.plot(steps, middle, label=f"learning rate {rate:g}")
        axes.fill_between(steps, low, high, alpha=0.2)
    axes.set(xlabel="steps", ylabel="return")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    """Train, print the last returns, and draw all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0005, 0.002, 0.005])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--picture", default="sweep.png")
    given = parser.parse_args()
    settings = Settings()
    returns = sweep(given.rates, given.seeds, settings)
    for rate, curves in zip(given.rates, returns, strict=True):
        last = np.nanmean(curves[:, -20:], axis=1)
        print(f"learning rate {rate:g}: {last.mean():.0f}, from {last.min():.0f} to {last.max():.0f}")  # fmt: skip
    draw(given.picture, given.rates, returns, settings, 10)
    print(f"The returns are in {given.picture}.")


if __name__ == "__main__":
    main()
