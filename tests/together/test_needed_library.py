"""Functions that need a library are not computed in others."""

import jax
import jax.numpy as jnp
from functional_envs import InJax, InTorch

from arrayferry_envs import check, rollout


def test_the_others_cannot_compute_them():
    assert rollout(InJax(), lambda *_: (jnp.ones(2, int), None), None, jax.random.key(0), 3, 2)
    assert InTorch().make_vec(2, xp="torch", differentiable=True)
    assert check(InJax) == []
