"""Genesis on a CPU: a cart and its pole, in the form in which environments of Genesis are written, that of rsl_rl."""

import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces
from real_simulators import ByHand, Row, built
from tensordict import TensorDict

import arrayferry as af
from arrayferry_gym import from_simulator
from arrayferry_gym.sb3 import SB3VecEnv

with warnings.catch_warnings(action="ignore"):
    import genesis as gs

pytestmark = pytest.mark.filterwarnings("ignore")
MODEL = """
<mujoco><worldbody><body name="cart">
  <joint name="slide" type="slide" axis="1 0 0" damping="0.1"/><geom type="box" size="0.1 0.1 0.05" mass="1"/>
  <body name="pole">
    <joint name="hinge" type="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.02" mass="0.1"/>
  </body>
</body></worldbody></mujoco>
"""
SPACES = {
    "observation_space": spaces.Box(-np.inf, np.inf, (4,)),
    "action_space": spaces.Box(-np.inf, np.inf, (1,)),
}


class Cart:
    """A cart that is pushed, until its pole leans by more than 0.3, or for 50 steps. It resets in the step."""

    num_envs, max_episode_length = 4, 50
    final = True

    def __init__(self, path):
        gs.init(backend=gs.cpu, precision="32", logging_level="error")
        self.device = gs.device
        self.scene = gs.Scene(
            sim_options=gs.options.SimOptions(dt=0.02),
            rigid_options=gs.options.RigidOptions(enable_collision=False),
            show_viewer=False,
        )
        self.robot = self.scene.add_entity(gs.morphs.MJCF(file=str(path)))
        self.scene.build(n_envs=self.num_envs)
        self.rew_buf = torch.zeros(self.num_envs)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int32)
        self.extras = {}

    def get_observations(self):
        state = self.robot.get_dofs_position(), self.robot.get_dofs_velocity()
        return TensorDict({"policy": torch.cat(state, dim=1)}, batch_size=[self.num_envs])

    def begin(self, rows):
        rows = rows.nonzero()[:, 0]
        leaning = 0.2 * torch.rand(len(rows), 2) - 0.1
        self.robot.set_dofs_position(leaning, envs_idx=rows, zero_velocity=True)
        self.episode_length_buf[rows] = 0

    def reset(self):
        self.begin(torch.ones(self.num_envs, dtype=torch.bool))
        return self.get_observations()

    def step(self, actions):
        self.robot.control_dofs_force(10 * actions, [0])
        self.scene.step()
        self.episode_length_buf += 1
        before = self.get_observations()
        leaning = before["policy"][:, 1].abs()
        self.rew_buf[:] = 1 - leaning
        late = self.episode_length_buf >= self.max_episode_length
        ended = late | (leaning > 0.3)
        self.extras["time_outs"] = late.float()
        if self.final:
            self.extras["final_obs"] = before
        self.begin(ended)
        return self.get_observations(), self.rew_buf, ended, self.extras


@pytest.fixture(scope="module")
def simulator(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "cart.xml"
    path.write_text(MODEL)
    return built("Genesis", "2 minutes", lambda: Cart(path))


class TestGenesis(ByHand):
    options = {"group": "policy", "autoreset_mode": "SameStep", **SPACES}

    def steps(self, simulator, actions):
        torch.manual_seed(3)
        simulator.reset()
        for action in actions:
            groups, reward, ended, extras = simulator.step(action)
            late = extras["time_outs"] > 0
            final = extras["final_obs"]["policy"].clone()
            observation = groups["policy"].clone()
            # what has ended at the limit is truncated, and has not terminated
            yield Row(observation, final, reward.clone(), ended & ~late, late)

    def adapted_steps(self, envs, actions):
        torch.manual_seed(3)
        yield from super().adapted_steps(envs, actions)


def test_lost_observations_are_accepted_knowingly(simulator, monkeypatch):
    monkeypatch.setattr(simulator, "final", False)
    simulator.extras.pop("final_obs", None)
    envs = from_simulator(simulator, autoreset_mode="SameStep", group="policy", **SPACES)
    envs.reset()
    simulator.episode_length_buf[:] = simulator.max_episode_length - 1
    with pytest.raises(af.OptionError, match='final="lost"'):
        envs.step(torch.zeros(4, 1))
    envs = from_simulator(simulator, final="lost", group="policy", **SPACES)
    envs.reset()
    simulator.episode_length_buf[:] = simulator.max_episode_length - 1
    *_, truncated, infos = envs.step(torch.zeros(4, 1))
    assert truncated.all()
    assert "final_obs" not in infos
    with pytest.raises(af.OptionError, match="last observations"):
        SB3VecEnv(envs)
