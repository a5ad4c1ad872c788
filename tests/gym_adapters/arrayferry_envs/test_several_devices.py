"""Batches spread over a mesh of four devices give the numbers of one device, and stay spread."""

import os

import jax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from arrayferry_envs import CartPole

SCRIPT = """
import functools, jax, jax.numpy as jnp, numpy as np, pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import arrayferry as af
from arrayferry_envs import CartPole, Functions, evaluate, rollout, wrap
from arrayferry_gym.wrappers import kernels

devices = jax.devices()
assert len(devices) == 4
N, key = 128, jax.random.key(0)
MESH = Mesh(np.array(devices), ("envs",))
shardings = {
    "auto": NamedSharding(MESH, P("envs")),
    "explicit, of two axes": NamedSharding(jax.make_mesh((2, 2), ("a", "b")), P(("a", "b"))),
    "half": NamedSharding(Mesh(np.array(devices).reshape(2, 2), ("a", "b")), P("b")),
}

def shards(x):
    return len({str(shard.index) for shard in x.addressable_shards})

def same(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            tolerance = 2e-5 * (x.dtype.kind == "f")
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)

def both(run, **options):
    one, other = run(**options), run(**options, sharding=sharding)
    same(one, other)
    return one, other

def policy(params, observation, key):
    return (observation[:, 2] * params > 0).astype(int), observation.sum(axis=1)

def remembering(params, observation, key, state):
    return (state > 0).astype(int), None, state + observation[:, 2]

run = functools.partial(rollout, policy_params=1.0, key=key, num_envs=N)
for name, sharding in shardings.items():
    count = 2 if name == "half" else 4
    # rollouts, which go on from a carry, also with wrappers and a policy with a state
    env = wrap(CartPole(), kernels.NormalizeObservation(), kernels.FrameStackObservation(2))
    for made, act, options in (
        (CartPole(), policy, {}),
        (CartPole(), remembering, {"policy_state": jnp.zeros(N)}),
        (env, lambda p, o, k: (jnp.ones(N, int), None), {}),
    ):
        one, other = both(run, env=made, policy=act, num_steps=60, **options)
        assert shards(other[0].env_state.elapsed) == count, name
        assert shards(other[1].reward) == shards(other[1].observation) == count, name
        again = functools.partial(run, made, act, num_steps=9)
        same(again(carry=one[0]), again(carry=other[0], sharding=sharding))
        if name != "auto":
            break
    served_modes = ("NextStep", "SameStep", "Disabled") if name == "auto" else ("SameStep",)
    # parameters with one value for each environment
    gravity = {"gravity": np.linspace(5, 15, N, dtype="float32")}
    both(run, env=CartPole(), policy=policy, num_steps=20, env_params=gravity)
    # to the end of episodes
    both(evaluate, env=CartPole(), policy=policy, policy_params=1.0, key=key, num_envs=N, max_episode_steps=30)
    # served: seeds, steps, masks, states
    for mode in served_modes:
        served = [CartPole().make_vec(N, xp="jax", autoreset_mode=mode, **options) for options in ({}, {"device": sharding})]
        seen = [envs.reset(seed=1) for envs in served]
        same(*seen)
        for number in range(40):
            given = np.arange(N) % 2 if number % 3 else jnp.ones(N, int)
            seen = [envs.step(given) for envs in served]
            same(*seen)
        assert shards(seen[1][0]) == shards(seen[1][1]) == count
        mask = {"reset_mask": np.arange(N) % 3 == 0}
        same(*(envs.reset(seed=4, options=mask) for envs in served))
        assert shards(served[1].state.angle) == count
        for envs in served:
            envs.state = envs.state._replace(angle=jnp.full(N, 0.1))
        same(*(envs.step(served[1].action_space.sample() * 0 + 1) for envs in served))
        same(*(envs.reset(options={"params": gravity}) for envs in served))
        assert shards(served[1].step(np.ones(N, int))[0]) == count

    # the functions themselves
    functions = Functions(CartPole(), sharding=sharding)
    env_state, observation = jax.jit(functions.reset, static_argnums=1)(key, N)
    env_state, outcome = jax.jit(functions.step)(key, env_state, jnp.ones(N, int))
    assert shards(outcome.reward) == shards(env_state.state.angle) == count

# spread by its caller
try:
    from jax import shard_map
    by_device = functools.partial(shard_map, check_vma=False)
    jax.jit(by_device(lambda x: x, mesh=MESH, in_specs=P(), out_specs=P()))
except (ImportError, TypeError):  # before JAX 0.7
    from jax.experimental.shard_map import shard_map
    by_device = functools.partial(shard_map, check_rep=False)

def one_of(keys):
    return rollout(CartPole(), policy, 1.0, keys[0], 10, 8)[1].observation[None]

keys = jax.random.split(key, 4)
spread = jax.jit(by_device(one_of, mesh=MESH, in_specs=P("envs"), out_specs=P("envs")))(keys)
assert shards(spread) == 4
same(spread, np.stack([one_of(keys[i:i + 1])[0] for i in range(4)]))

# what a program was compiled for includes the sharding
assert shards(run(CartPole(), policy, num_steps=5)[1].reward) == 1
single = jax.sharding.SingleDeviceSharding(devices[1])
assert CartPole().make_vec(4, xp="jax", device=single).reset(seed=1)[0].devices() == {devices[1]}
for run in (lambda: rollout(CartPole(), policy, 1.0, key, 5, 30, sharding=shardings["auto"]),
            lambda: CartPole().make_vec(30, xp="jax", device=shardings["auto"])):
    with pytest.raises(af.OptionError, match="30 environments cannot be split over the 4 devices"):
        run()
"""


@pytest.mark.long
def test_four_devices_are_like_one(run_python):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    run_python(SCRIPT, env={"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"})


def test_the_device_of_a_batch_can_be_a_sharding():
    sharding = NamedSharding(Mesh(jax.devices()[:1], ("envs",)), PartitionSpec("envs"))
    assert CartPole().make_vec(4, xp="jax", device=sharding).reset(seed=1)[0].shape == (4, 4)
