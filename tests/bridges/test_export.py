"""Policies of Stable-Baselines3 are exported as their `predict` acts."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import CartPole, check_export, export
from arrayferry_gym.wrappers import kernels

pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")
pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings(action="ignore"):
    from sb3_contrib import RecurrentPPO
    from stable_baselines3 import DQN, PPO, SAC, TD3
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

SEEN = spaces.Box(-5, 5, (4,))
MOVES = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32))
NESTED = spaces.Dict({
    "at": SEEN, "kind": spaces.Discrete(3), "of": spaces.MultiDiscrete([2, 3])
})  # fmt: skip
MODELS = {
    "PPO": (PPO, "MlpPolicy", SEEN, spaces.Discrete(3), {}),
    "moves": (PPO, "MlpPolicy", SEEN, MOVES, {}),
    "choices": (PPO, "MlpPolicy", SEEN, spaces.MultiDiscrete([2, 3]), {}),
    "flags": (PPO, "MlpPolicy", SEEN, spaces.MultiBinary(3), {}),
    "nested": (PPO, "MultiInputPolicy", NESTED, spaces.Box(-1, 1, (2, 2)), {}),
    "images": (PPO, "CnnPolicy", spaces.Box(0, 255, (3, 36, 36), np.uint8), spaces.Discrete(3), {}),
    "squashed": (PPO, "MlpPolicy", SEEN, MOVES, {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    "DQN": (DQN, "MlpPolicy", SEEN, spaces.Discrete(3), {}),
    "SAC": (SAC, "MlpPolicy", SEEN, MOVES, {}),
    "TD3": (TD3, "MlpPolicy", SEEN, MOVES, {}),
}  # fmt: skip


class Shows(gym.Env):
    """Observations are samples."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def model_of(name, normalized=False, seed=0):
    kind, policy, seen, actions, options = MODELS[name]
    envs: Any = DummyVecEnv([lambda: Shows(seen, actions)])
    if normalized:
        keys = ["at"] if isinstance(seen, spaces.Dict) else None
        envs = VecNormalize(envs, norm_obs_keys=keys, clip_obs=1.0)
        envs.reset()
        for _ in range(10):
            envs.step([actions.sample()])
    return kind(policy, envs, seed=seed, device="cpu", **options)


def inputs_of(vector, space):
    if not isinstance(space, spaces.Dict):
        return np.asarray(vector["inputs"]["observation"], space.dtype)
    parts = space.spaces.items()
    return {k: np.asarray(vector["inputs"][f"observation.{k}"], x.dtype) for k, x in parts}


@pytest.mark.parametrize(
    ("name", "normalized"),
    [*((name, False) for name in MODELS), ("PPO", True), ("nested", True), ("SAC", True)],
)
def test_a_model_is_exported_as_it_predicts(name, normalized, tmp_path):
    model, path = model_of(name, normalized), tmp_path / "model.onnx"
    model.policy.set_training_mode(True)
    metadata = export(None, path, policy=model, num_envs=6)
    assert model.policy.training
    assert check_export(path, model) < 1e-5
    for vector in metadata["test_vectors"]:
        seen = inputs_of(vector, model.observation_space)
        if normalized:
            seen = model.get_vec_normalize_env().normalize_obs(seen)
        wanted = model.predict(seen, deterministic=True)[0]
        np.testing.assert_allclose(vector["outputs"]["action"], wanted, rtol=1e-5, atol=1e-5)
    if normalized:  # a policy alone knows no statistics
        export(None, path, policy=model.policy, num_envs=6)
        assert check_export(path, model.policy) < 1e-5


def test_other_parameters_and_other_policies(tmp_path):
    model, other, path = model_of("moves"), model_of("moves", seed=1), tmp_path / "model.onnx"
    export(None, path, policy=model, policy_params=other.policy.state_dict())
    assert check_export(path, other) < 1e-5 < check_export(path, model)
    with pytest.raises(af.OptionError, match="the policy cannot be exported"):
        export(None, path, policy=model, policy_params={"no": torch.ones(1)})


def test_a_model_acts_in_the_file_of_an_environment(tmp_path):
    import onnxruntime

    model, path = PPO("MlpPolicy", "CartPole-v1", device="cpu"), str(tmp_path / "model.onnx")
    metadata = export(CartPole(), path, policy=model, autoreset_mode="SameStep")
    feed = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in metadata["inputs"]}
    feed["last.observation"] += 0.1
    [action] = onnxruntime.InferenceSession(path).run(["action"], feed)
    assert action == model.predict(feed["last.observation"], deterministic=True)[0]


def test_recurrent_policies_are_refused(tmp_path):
    model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(af.OptionError, match=r"the policy cannot be exported.*lstm_states"):
        export(None, tmp_path / "model.onnx", policy=model)


class Around(torch.nn.Module):
    """A module that has a policy, and does more."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def forward(self, observation):
        return 1 - self.policy._predict(observation, deterministic=True)


def test_a_module_around_a_policy_acts_itself(tmp_path):
    model, path = PPO("MlpPolicy", "CartPole-v1", device="cpu"), tmp_path / "model.onnx"
    options = {"observation_space": model.observation_space, "action_space": model.action_space}
    export(None, path, policy=Around(model.policy), num_envs=8, **options)
    assert check_export(path, Around(model.policy)) == 0
    assert check_export(path, model) == 1


def test_spaces_of_a_model_are_not_those_inside_of_kernels(tmp_path):
    model, around = model_of("moves"), [kernels.RescaleAction(-1, 1)]
    with pytest.raises(af.OptionError, match="observation_space must be a space, and not None"):
        export(None, tmp_path / "model.onnx", policy=model, kernels=around)


def test_statistics_inside_of_other_wrappers_are_refused(tmp_path):
    envs = VecNormalize(DummyVecEnv([lambda: Shows(SEEN, MOVES)]))
    model = PPO("MlpPolicy", VecFrameStack(envs, 3), device="cpu")
    with pytest.raises(af.OptionError, match="VecNormalize has statistics of shape"):
        export(None, tmp_path / "model.onnx", policy=model)
