"""mjlab on a CPU, in which the caller resets what has ended."""

import warnings

import pytest
import torch
from real_simulators import ByHand, Row, built

import arrayferry as af
from arrayferry_gym import from_simulator

with warnings.catch_warnings(action="ignore"):
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

pytestmark = pytest.mark.filterwarnings("ignore")
SOME = [True, False, False, True]


@pytest.fixture(scope="module")
def simulator():
    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs, cfg.auto_reset, cfg.episode_length_s = 4, False, 1.0
    env = built("mjlab", "3 minutes", lambda: ManagerBasedRlEnv(cfg, device="cpu"))
    yield env
    env.close()


class TestMjlab(ByHand):
    """Before the sixth step, two environments are reset, so that not all reach the limit at once."""

    options = {"group": "actor"}

    def steps(self, simulator, actions):
        simulator.reset(seed=3)
        for number, action in enumerate(actions):
            if number == 5:
                simulator.reset(env_ids=torch.tensor(SOME).nonzero()[:, 0])
            groups, reward, terminated, truncated, _ = simulator.step(action)
            final = observation = groups["actor"].clone()
            copies = [x.clone() for x in (reward, terminated, truncated)]
            ended = terminated | truncated
            if ended.any():
                after = simulator.reset(env_ids=ended.nonzero()[:, 0])[0]["actor"]
                observation = torch.where(ended[:, None], after, final)
            yield Row(observation, final, *copies)

    def adapted_steps(self, envs, actions):
        envs.reset(seed=3)
        for number, action in enumerate(actions):
            if number == 5:
                envs.reset(options={"reset_mask": SOME})
            final, reward, terminated, truncated, _ = envs.step(action)
            observation, ended = final, terminated | truncated
            if ended.any():
                observation, _ = envs.reset(options={"reset_mask": ended})
            yield Row(observation, final, reward, terminated, truncated)


def test_it_resets_by_itself_unless_it_is_told_not_to(simulator, monkeypatch):
    monkeypatch.setattr(simulator.cfg, "auto_reset", True)
    with pytest.raises(af.OptionError, match="does not say when it resets"):
        from_simulator(simulator)
