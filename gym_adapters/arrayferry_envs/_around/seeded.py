"""`with_seeds`: a `FunctionalEnv` whose episodes are levels, each identified by a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import arrayferry as af
from arrayferry._utilities.options import count_of, stream_seed
from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._contract.sampled import SampledParams, WithParams
from arrayferry_gym import Random, make_rng

from .around import AroundEnv

LARGEST = 2**31 - 1
"""The largest valid seed of a level: the maximum of int32."""


class WithSeed(NamedTuple):
    """The states of environments whose episodes are levels.

    Attributes:
        state: the states of the inner environment.
        seed: the seeds of the current episodes, int32 (n,).
    """

    state: Any
    seed: Any


@dataclasses.dataclass(eq=False, repr=False)
class SeededEnv(AroundEnv):
    """A `FunctionalEnv` whose episodes are levels, as returned by `with_seeds`.

    Attributes:
        env: the inner environment.
        seeds: the seeds of the levels.
    """

    seeds: range | tuple[int, ...]

    def _random(self, xp: Namespace, rng: Any, n: int) -> Any:
        """Return the seeds of `n` new episodes, int32 (n,). `rng` is a `Random`, or already an array of these seeds."""
        if not isinstance(rng, Random):
            return rng
        seed_indices = rng.integers((n,), 0, len(self.seeds))
        if isinstance(self.seeds, range):
            return seed_indices * self.seeds.step + self.seeds.start
        return xp.take(xp.asarray(self.seeds, dtype=xp.int32), seed_indices, axis=0)

    def _each(
        self, xp: Namespace, part: int, function: Callable[..., Any], seeds: Any, params: AnyTree
    ) -> Any:
        """Call `function(xp, rng, 1, params)` for each seed separately, and concatenate the arrays of the results.

        `rng` depends on the seed and on `part`, which is 0 if `function` draws parameters, and 1 if it draws states.
        """
        backend, n = af.backend_of(seeds), seeds.shape[0]
        specs: list[af.TreeSpec] = []
        param_leaves, layout = af.flatten(params, everything=True)
        defaults = af.flatten(self.default_params, everything=True)[0]
        pairs = zip(param_leaves, defaults, strict=True)
        batched = [np.shape(x) == (n, *np.shape(default)) for x, default in pairs]

        def run(row: Any, seed: Any) -> list[Any]:
            pairs = zip(param_leaves, batched, strict=True)
            params = layout.unflatten([x[row, ...][None, ...] if each else x for x, each in pairs])
            leaves, spec = af.flatten(function(xp, make_rng(backend, seed, device), 1, params))
            specs.append(spec)
            return leaves

        if backend.name == "jax":
            import jax

            # vmap returns arrays (n, 1, ...), which concatenate joins to (n, ...)
            device, concatenate = None, jax.numpy.concatenate
            # threefry, since under vmap the numbers of other generators would depend on the batch
            key = jax.random.key(stream_seed("level", part) % 2**32, impl="threefry2x32")
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, seeds)
            columns: Any = jax.vmap(run)(jax.numpy.arange(n), keys)
        else:
            device, concatenate = backend.device_of(seeds), xp.concat
            row_seeds = enumerate(backend.to_numpy(seeds).tolist())
            outputs = [run(row, stream_seed("level", part, seed)) for row, seed in row_seeds]
            columns = zip(*outputs, strict=True)
        shared = self._shared if part == 1 else ()
        leaves = [x[0] if i in shared else concatenate(x) for i, x in enumerate(columns)]
        return specs[0].unflatten(leaves)

    def sample_params(self, xp: Namespace, rng: Any, n: int, params: AnyTree) -> Any:
        """Return the parameters that the inner environment draws for `n` levels."""
        sampler, seeds = SampledParams(self.env, keeps=False), self._random(xp, rng, n)
        sampled = self._each(xp, 0, sampler.draw, seeds, params)
        return sampler.whole(WithParams(None, sampled), params).params

    def reset(self, xp: Namespace, rng: Any, n: int, params: AnyTree) -> WithSeed:
        """Return the first states of `n` levels."""
        seeds = self._random(xp, rng, n)
        return WithSeed(self._each(xp, 1, self.env.reset, seeds, params), seeds)

    def step(
        self, xp: Namespace, rng: Random, state: WithSeed, action: AnyTree, params: AnyTree
    ) -> Any:
        """Take a step of the inner environment. The random numbers of steps do not depend on the seeds of levels."""
        next_state, *results = self.env.step(xp, rng, state.state, action, params)
        return WithSeed(next_state, state.seed), *results

    def observe(self, xp: Namespace, state: WithSeed, params: AnyTree) -> Any:
        """Return the observations of the inner environment."""
        return self.env.observe(xp, state.state, params)

    def info(self, xp: Namespace, state: WithSeed, params: AnyTree) -> dict[str, Any]:
        """Return the infos of the inner environment, and the seeds of the levels."""
        return {**self.env.info(xp, state.state, params), "seed": state.seed}

    def __repr__(self) -> str:
        return f"<with_seeds({self.env!r}, {self.seeds!r:.80})>"


def with_seeds(env: FunctionalEnv | type[FunctionalEnv], seeds: Iterable[int]) -> FunctionalEnv:
    """Make an environment whose episodes are levels, so that some levels can be reserved for tests.

    Each level has a seed, and each reset chooses one of the seeds at random. The seed and the environment's parameters
    determine the first state of the level and the parameters that the environment draws. The first state and the
    drawn parameters do not depend on the index of the environment, the number of environments or earlier resets. The
    choice of levels and the random numbers of steps are drawn for the whole batch, from `reset(seed=)` or the key of a
    rollout.

    Infos contain "seed", the seeds of the current episodes, int32 (n,). A state is a named tuple of the inner state
    and the seed.

    In NumPy and PyTorch, the environment's `reset` is called separately for each level. With PyTorch on a GPU or with
    `differentiable=True`, each step computes a reset of all environments, which is slow.

    Args:
        env: the environment, or its class.
        seeds: integers from 0 to 2**31 - 1, such as `range(1000)`.

    Raises:
        arrayferry.OptionError: there are no seeds, or a seed is invalid.

    Examples:
        >>> from arrayferry_envs import CartPole, with_seeds
        >>> envs = with_seeds(CartPole(), [7]).make_vec(3)
        >>> observations, infos = envs.reset(seed=1)
        >>> infos["seed"], bool((observations == observations[0]).all())
        (array([7, 7, 7], dtype=int32), True)
    """
    env, seeds = checked_env(env), checked_seeds(seeds)
    if env.kernels:
        return dataclasses.replace(env, env=with_seeds(env.base, seeds))  # type: ignore[type-var]
    return SeededEnv(env.env if isinstance(env, SeededEnv) else env, seeds)


def checked_seeds(seeds: Any) -> range | tuple[int, ...]:
    """Check the seeds of levels, and return them as a range or a tuple of integers.

    Raises:
        arrayferry.OptionError: there are no seeds, or a seed is invalid.
    """
    try:
        levels = seeds if isinstance(seeds, range) else tuple(seeds)
        to_check = (levels[0], levels[-1]) if isinstance(levels, range) else levels
        to_check = tuple(count_of("seed", seed, least=0) for seed in to_check)
        is_valid = max(to_check) <= LARGEST
    except Exception:  # seeds may be arrays of any library, so any error may occur
        levels, to_check, is_valid = (), (), False
    if not is_valid:
        remedy = f"Pass one or more integers from 0 to {LARGEST}, such as range(1000)."
        raise af.OptionError(f"seeds={seeds!r:.80} is not valid", remedy=remedy)
    return levels if isinstance(levels, range) else to_check
