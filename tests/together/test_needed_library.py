"""Functions that need a library are not computed in others."""

import jax
import jax.numpy as jnp
import torch

from arrayferry_envs import CartPole, check, rollout


class InJax(CartPole):
    """Draws and computes with functions that only JAX has."""

    library = "jax"

    def reset(self, xp, rng, n, params):
        state = super().reset(xp, rng, n, params)
        angles = jax.vmap(jax.random.uniform)(jax.random.split(rng.key(), n))
        return state._replace(angle=angles / 100)

    def step(self, xp, rng, state, action, params):
        assert xp is jnp
        return jax.vmap(lambda s, a: CartPole().step(xp, rng, s, a, params))(state, action)


class InTorch(CartPole):
    library = "torch"

    def observe(self, xp, state, params):
        assert all(type(x) is torch.Tensor for x in state)
        return super().observe(xp, state, params)


def test_the_others_cannot_compute_them():
    assert rollout(InJax(), lambda *_: (jnp.ones(2, int), None), None, jax.random.key(0), 3, 2)
    assert InTorch().make_vec(2, xp="torch", differentiable=True)
    assert check(InJax) == []
