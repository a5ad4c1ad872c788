"""RLlib trains on environments with an adapter around them, in its own vector environments.

It is run in a process of its own: it starts others, and the libraries that other packages load crash beside it.
"""

import os

import gymnasium as gym
import pytest
from recipes import run

import arrayferry_envs  # noqa: F401, which registers ids
from arrayferry_gym import ArrayConversion, NumpyToTorch

os.environ.setdefault("RLLIB_TEST_NO_TF_IMPORT", "1")
ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")

ENVS = {
    "in NumPy, of JAX": lambda _: ArrayConversion(
        gym.make("arrayferry/CartPole-v0", xp="jax"), env_xp="jax", target_xp="numpy"
    ),
    "in PyTorch, of NumPy": lambda _: NumpyToTorch(gym.make("CartPole-v1")),
}


@pytest.mark.parametrize("name", ENVS)
def test_an_iteration_of_ppo(name):
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", ignore_reinit_error=True)
    register_env("adapted", ENVS[name])
    config = (
        PPOConfig()
        .environment("adapted")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=400, minibatch_size=100, num_epochs=1)
    )
    algorithm = config.build_algo()
    try:
        found = algorithm.train()["env_runners"]
        assert found["num_env_steps_sampled"] >= 400
        assert 8 < found["episode_return_mean"] < 100
    finally:
        algorithm.stop()
        ray.shutdown()


def test_the_recipe():
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", ignore_reinit_error=True)
    try:
        assert run("RLlib", steps=400)["algorithm"].iteration == 1
    finally:
        ray.shutdown()
