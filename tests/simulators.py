"""Simulators as they are written elsewhere, around the probe: batches of tensors that reset in the step or leave that to the caller.

Their observations identify episode and step, as those of `arrayferry_audit.Probe` do.
"""

from types import SimpleNamespace

import numpy as np
import torch
from gymnasium import Env, Wrapper, spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict

LIMIT = 4
"""The steps of an episode of the probe."""


ONE = spaces.Box(np.zeros(2, np.float32), np.array([1, LIMIT], np.float32))


class Simulator:
    """A batch of probes, in buffers that every step overwrites.

    Args:
        n: how many environments there are.
    """

    def __init__(self, n):
        self.num_envs, self.device = n, torch.device("cpu")
        self.single_action_space = spaces.Discrete(3)
        self.random = torch.Generator()
        self.obs_buf = torch.zeros(n, 2)
        self.rew_buf = torch.zeros(n)
        self.reset_terminated, self.reset_time_outs = torch.zeros(2, n, dtype=torch.bool)
        self.extras = {"log": {}}

    def seed(self, seed=-1):
        self.random.manual_seed(seed)
        return seed

    def begin(self, rows):
        drawn = torch.rand(self.num_envs, generator=self.random)
        self.obs_buf[rows, 0], self.obs_buf[rows, 1] = drawn[rows], 0.0
        self.extras["log"] = {"mean": drawn.mean()}

    def advance(self, actions):
        actions = actions.reshape(self.num_envs)  # (n, 1) where they are a Box
        self.obs_buf[:, 1] += 1
        self.rew_buf[:] = self.obs_buf[:, 1] + 0.5 * actions
        self.reset_terminated[:] = actions == 1
        self.reset_time_outs[:] = self.obs_buf[:, 1] >= LIMIT
        return self.reset_terminated | self.reset_time_outs


class IsaacLab(Simulator, Env):
    """Resets in the step. Last observations are in extras on demand, and stay there until the next are."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": [None]}

    def __init__(self, n, compute_final_obs=True):
        super().__init__(n)
        self.cfg = SimpleNamespace(compute_final_obs=compute_final_obs, is_finite_horizon=False)
        self.single_observation_space = spaces.Dict({"policy": ONE, "critic": ONE})
        self.observation_space = batch_space(ONE, n)  # of the policy alone, as in its DirectRLEnv
        self.action_space = batch_space(self.single_action_space, n)

    def observed(self):
        return {"policy": self.obs_buf, "critic": torch.full_like(self.obs_buf, -1.0)}

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.seed(seed)
        self.begin(torch.arange(self.num_envs))
        return self.observed(), self.extras

    def step(self, action):
        ended = self.advance(action)
        ids = ended.nonzero().squeeze(-1)
        if len(ids):
            if self.cfg.compute_final_obs:
                policy = self.obs_buf.clone()
                self.extras["final_obs"] = {"policy": policy, "critic": policy - 1}
            self.begin(ids)
        flags = self.reset_terminated, self.reset_time_outs
        return self.observed(), self.rew_buf, *flags, self.extras


class OwnBox:
    """A space of mjlab's, which has classes of its own."""

    def __init__(self, shape, low=-np.inf, high=np.inf, dtype="float32"):
        self.shape, self.low, self.high, self.dtype = shape, low, high, dtype


class OwnDict:
    def __init__(self, spaces):
        self.spaces, self.shape, self.dtype = spaces, (), "float32"


class Mjlab(Simulator):
    """Leaves resets to its caller, and refuses steps before them. Others' observations are drawn anew in a reset.

    With `auto_reset` it resets in the step, and with `captures` it returns the last observations of the rows that have ended.
    """

    is_vector_env = True
    metadata = {"render_modes": [None, "rgb_array"]}

    def __init__(self, n, auto_reset=False, captures=True):
        super().__init__(n)
        self.captures = captures
        self.cfg = SimpleNamespace(auto_reset=auto_reset)
        self.single_observation_space = OwnDict({"actor": OwnBox((2,), 0.0, LIMIT)})
        self.pending = torch.zeros(n, dtype=torch.bool)

    def reset(self, *, seed=None, env_ids=None, options=None):
        if env_ids is None:
            env_ids = torch.arange(self.num_envs)
        if seed is not None:
            self.seed(seed)
        before = self.obs_buf.clone()
        self.begin(env_ids)
        self.pending[env_ids] = False
        seen = torch.full_like(before, torch.nan)
        seen[env_ids] = self.obs_buf[env_ids]
        return {"actor": seen}, self.extras

    def step(self, action):
        if self.pending.any():
            raise RuntimeError("environments must be reset")
        ended = self.advance(action)
        self.extras.pop("terminal", None)
        if not self.cfg.auto_reset:
            self.pending[:] = ended
        elif ended.any():
            rows = ended.nonzero().squeeze(-1)
            if self.captures:
                last = {"actor": self.obs_buf[rows]}
                self.extras["terminal"] = {"env_ids": rows, "observations": last}
            self.begin(rows)
        flags = self.reset_terminated, self.reset_time_outs
        return {"actor": self.obs_buf}, self.rew_buf, *flags, self.extras


class _ManiSkill(Simulator, Env):
    """Its limit is in a wrapper. Environments to reset are an option, without which a reset is one of all."""

    __module__ = "mani_skill.envs.sapien_env"

    def __init__(self, n):
        super().__init__(n)
        self.single_observation_space, self.observation_space = ONE, batch_space(ONE, n)
        self.action_space = batch_space(self.single_action_space, n)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.seed(seed)
        self.begin((options or {}).get("env_idx", torch.arange(self.num_envs)))
        return self.obs_buf, {"reconfigure": False}

    def step(self, action):
        self.advance(action)
        never = torch.zeros(self.num_envs, dtype=torch.bool)
        return self.obs_buf, self.rew_buf, self.reset_terminated.clone(), never, {}


class ManiSkill(Wrapper):
    """What `gymnasium.make` returns."""

    def __init__(self, n):
        super().__init__(_ManiSkill(n))

    def step(self, action):
        *results, _, infos = self.env.step(action)
        return *results, self.unwrapped.reset_time_outs, infos


class Genesis(Simulator):
    """As for rsl_rl: no spaces, one flag for both ends, limits as numbers in extras, a TensorDict, and no seed in `reset`."""

    num_actions = 1

    def __init__(self, n):
        super().__init__(n)
        del self.single_action_space

    def get_observations(self):
        return TensorDict({"policy": self.obs_buf}, batch_size=[self.num_envs])

    def reset(self):
        self.begin(torch.arange(self.num_envs))
        return self.get_observations()

    def step(self, actions):
        ended = self.advance(actions)
        self.extras["time_outs"] = (self.reset_time_outs & ~self.reset_terminated).float()
        self.extras["final_obs"] = self.get_observations().clone()
        self.begin(ended)
        return self.get_observations(), self.rew_buf, ended, self.extras
