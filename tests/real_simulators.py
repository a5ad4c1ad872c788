"""What `make bridges` checks of a real simulator, which is built once for all agents."""

import contextlib
import copy
import time
from typing import NamedTuple

import numpy as np
import torch

import arrayferry as af
from arrayferry_gym import from_simulator, vector

STEPS = 120


def built(name, duration, build):
    """Return what `build` does, and say how long that takes."""
    print(f"\n{name}: building takes {duration} the first time", flush=True)
    before = time.perf_counter()
    simulator = build()
    print(f"{name}: built in {time.perf_counter() - before:.0f} s", flush=True)
    return simulator


@contextlib.contextmanager
def learns(module):
    """Fail unless the numbers of a module change, and stay finite."""
    before = copy.deepcopy(module.state_dict())
    yield
    after = module.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert all(torch.isfinite(value).all() for value in after.values())


class Row(NamedTuple):
    """A step of all environments. `final` is observed before resets, `observation` after them."""

    observation: object
    final: object
    reward: object
    terminated: object
    truncated: object


class ByHand:
    """Values and trainers of a simulator, which is the fixture `simulator`.

    Attributes:
        options: those of `from_simulator`.
        size: how many numbers an action has.
    """

    size = 1

    def steps(self, simulator, actions):
        """Reset the simulator and take steps by hand. Yields a `Row` of copies for each."""
        raise NotImplementedError

    def adapted_steps(self, envs, actions):
        """Do the same by its vector environment."""
        envs.reset(seed=3)
        for action in actions:
            observation, reward, terminated, truncated, infos = envs.step(action)
            yield Row(observation, infos["final_obs"], reward, terminated, truncated)

    def test_values_are_those_by_hand(self, simulator):
        draws = np.random.default_rng(0)
        actions = draws.uniform(-1, 1, (STEPS, simulator.num_envs, self.size)).astype(np.float32)
        expected = list(self.steps(simulator, torch.from_numpy(actions)))
        ends = torch.stack([row.terminated | row.truncated for row in expected])
        assert (ends.any(dim=1) & ~ends.all(dim=1)).any(), "no episodes ended at different times"
        for xp in ("numpy", "torch", "jax"):
            envs = vector.ArrayConversion(from_simulator(simulator, **self.options), target_xp=xp)
            found = self.adapted_steps(envs, af.convert(actions, xp))
            for number, rows in enumerate(zip(found, expected, strict=True)):
                for name, mine, wanted in zip(Row._fields, *rows, strict=True):
                    assert xp in af.namespace_of(mine).__name__
                    where = f"{name} of step {number} in {xp}"
                    np.testing.assert_array_equal(af.convert(mine, "numpy"), wanted, where)

    def test_stable_baselines3_trains(self, simulator):
        from stable_baselines3 import PPO

        from arrayferry_gym.sb3 import SB3VecEnv

        envs = from_simulator(simulator, **self.options, action_bounds=(-1, 1))
        model = PPO("MlpPolicy", SB3VecEnv(envs), n_steps=32, batch_size=64, device="cpu")
        with learns(model.policy):
            model.learn(64 * simulator.num_envs)

    def test_rsl_rl_trains(self, simulator):
        from rsl_rl.runners import OnPolicyRunner

        from arrayferry_gym.rsl_rl import RslRlVecEnv

        envs = RslRlVecEnv(from_simulator(simulator, **self.options))
        network = {"class_name": "MLPModel", "hidden_dims": [16], "activation": "elu"}
        config = {
            "num_steps_per_env": 32,
            "save_interval": 100,
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "algorithm": {"class_name": "PPO"},
            "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution"}},
            "critic": network,
        }
        runner = OnPolicyRunner(envs, config)
        with learns(runner.alg.actor):
            runner.learn(2)
