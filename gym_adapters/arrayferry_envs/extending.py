"""Functions for packages that build on `arrayferry_envs`, such as suites and clusters.

    from arrayferry_envs.extending import first_carry, library_of, make_policy

**Policies.** `library_of` finds the library of a policy and checks its signature, `make_policy` makes a policy that is
called with batches, and `is_module` recognizes modules of PyTorch. `policy_rows` flattens the state of a policy.
`jax_weights` converts parameters for a policy in JAX.

    >>> import numpy as np
    >>> import arrayferry as af
    >>> from arrayferry_envs.extending import is_module, jax_weights, library_of, make_policy, policy_rows
    >>> def right(params, observation, key):
    ...     return np.ones(len(observation), int) * params, None
    >>> library = library_of("mine", right, "numpy", 0, None, functional=False)
    >>> policy = make_policy(right, library, (0,), 2)
    >>> policy.load(3)
    >>> policy.begin(0)
    >>> policy(np.zeros((2, 4)), np.ones(2, bool), 0)[0], is_module(right)
    (array([3, 3]), False)
    >>> policy_rows({"memory": np.zeros((2, 5))}, 2)[0][0].shape, jax_weights({"w": np.ones(1, np.float32)})
    ((2, 5), {'w': Array([1.], dtype=float32)})

**Environments.** `EnvBatch` steps environments of Gymnasium, with rewards of any shape. `first_carry` is the initial
carry of a rollout.

    >>> import gymnasium as gym
    >>> from gymnasium.vector import AutoresetMode
    >>> from arrayferry_envs.extending import EnvBatch
    >>> envs = EnvBatch([gym.make("CartPole-v1")] * 1, True, AutoresetMode.SAME_STEP)
    >>> _ = envs.reset(seed=1)
    >>> envs.step(np.array([1]))[1], envs.infos
    (array([1.]), [{}])

**Libraries.** `usable` returns a library, or raises an error if the library cannot be used.

    >>> from arrayferry_envs.extending import usable
    >>> usable(af.registry.backend("numpy"))
    <Backend numpy>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._contract.errors import usable
from ._contract.policies import policy_rows
from ._policies.batch import EnvBatch
from ._policies.policies import is_module
from ._policies.stepping import library_of, make_policy

if TYPE_CHECKING:
    from ._compiled.rollout import first_carry
    from ._policies.jax_policy import jax_weights

__all__ = [
    "EnvBatch", "first_carry", "is_module", "jax_weights", "library_of", "make_policy",
    "policy_rows", "usable",
]  # fmt: skip


if not TYPE_CHECKING:  # a visible __getattr__ would make type checkers accept any name

    def __getattr__(name: str) -> Any:
        if name == "first_carry":
            from ._compiled.rollout import first_carry as found
        elif name == "jax_weights":
            from ._policies.jax_policy import jax_weights as found
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
