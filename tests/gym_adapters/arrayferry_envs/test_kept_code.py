"""With JAX's cache on disk, a second process compiles nothing: programs do not differ from process to process."""

import json

import pytest

BEGIN = """
import collections, json
import jax, jax.numpy as jnp, numpy as np
from arrayferry_envs import CartPole, Pendulum, evaluate, repeat_action, rollout, wrap
from arrayferry_gym.wrappers import kernels

counts = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **more: counts.update([name.rpartition("/")[2]]))
seen, params, key = [], jnp.ones(4), jax.random.key(0)
wrapped = wrap(CartPole(), kernels.NormalizeObservation(), kernels.RecordEpisodeStatistics())


def policy(params, observation, key):
    return (observation @ params > 0).astype(int), None


def add(*tree):
    seen.extend(float(np.sum(x, dtype=float)) for x in jax.tree.leaves(tree) if x.dtype.kind in "bif")


def serve(env, mode):
    envs = env.make_vec(4, xp="jax", autoreset_mode=mode)
    add(envs.reset(seed=1)[0], envs.step(np.zeros(envs.action_space.shape, np.int32))[:4])
    add(envs.reset(options={"reset_mask": [True, False, False, True]})[0])

"""
END = """
print(json.dumps([counts["cache_misses"], counts["cache_hits"], seen]))
"""
PROGRAMS = {
    "short": """
add(rollout(CartPole(), policy, params, key, 3, 4)[1].observation)
serve(CartPole(), 'SameStep')
results = evaluate(CartPole(), policy, policy_params=params, key=key, num_envs=4, max_episode_steps=5)
add(results.returns, results.lengths)
""",
    "more": """
import torch
from arrayferry_gym.vector import JaxToTorch

add(rollout(wrapped, policy, params, key, 3, 70, collect="info")[1].observation)
for env, mode in ((CartPole(), "NextStep"), (wrapped, "SameStep"), (repeat_action(Pendulum(), 2), "Disabled")):
    serve(env, mode)
env = CartPole().make(xp="jax")
add(env.reset(seed=1)[0], env.step(1)[0])
envs = JaxToTorch(CartPole().make_vec(2, xp="jax"))
envs.reset(seed=1)
add([x.numpy() for x in envs.step(torch.tensor([0, 1]))[:4]])
""",
}


def kept_in(folder):
    """Return the variables of the environment with which JAX keeps all that it compiles in a folder."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.mark.parametrize(
    "program",
    [pytest.param(name, marks=[pytest.mark.long] * (name == "more")) for name in PROGRAMS],
)
def test_a_second_process_compiles_nothing(program, run_python, tmp_path):
    found = []
    for seed in "12":  # of the hashes of text
        environment = {**kept_in(tmp_path), "PYTHONHASHSEED": seed}
        output = run_python(BEGIN + PROGRAMS[program] + END, env=environment)
        found.append(json.loads(output.splitlines()[-1]))
    (misses, _, before), (again, hits, after) = found
    assert (misses > 2, again, hits >= misses) == (True, 0, True)
    assert before == after


def test_what_is_served_again_compiles_nothing_and_sees_what_has_changed(run_python, tmp_path):
    output = run_python(
        BEGIN
        + """
class Scaled(CartPole):
    scale = 1.0

    def step(self, xp, rng, state, action, params):
        state, reward, *ends = super().step(xp, rng, state, action, params)
        return state, reward * self.scale * SCALE, *ends

SCALE, env, misses = 1.0, Scaled(), []

def again(env, mode="SameStep"):
    start, _ = len(seen), serve(env, mode)
    misses.append(counts["cache_misses"])
    return seen[start:][2]  # rewards

rewards = [again(env), again(env), again(env, "NextStep"), again(wrap(env, kernels.ClipReward(0.0, 0.5)))]
assert misses[0] == misses[1] < misses[2] < misses[3], misses
SCALE = 3.0
rewards.append(again(env))
Scaled.scale = 5.0
rewards.append(again(env))
print(json.dumps([rewards]))
""",
        env=kept_in(tmp_path),
    )
    assert json.loads(output.splitlines()[-1]) == [[4.0, 4.0, 4.0, 2.0, 12.0, 60.0]]
