"""Adapters around vector environments: autoreset modes, final observations, rewards, copies, and batches of actions."""

import functools
import json
import pickle
import re

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import Forgetful, Takes, begun, make_vec
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from infos import Tells
from refusals import refused_step
from remote_workers import CARTPOLE

import arrayferry as af
from arrayferry_gym import vector
from arrayferry_gym.wrappers.vector import NormalizeObservation


def test_reward_dtypes():
    for dtype in ("float64", torch.float64, np.float64, np.dtype("float64"), jnp.float64, float):
        envs = begun(vector.NumpyToTorch(make_vec(3), reward_dtype=dtype))
        assert envs.step(torch.ones(3, dtype=torch.int64))[1].dtype == torch.float64
        spec = json.loads(json.dumps(envs._saved_kwargs))
        assert spec["reward_dtype"] == "float64"
    for dtype in ("float32", torch.bfloat16):
        envs = begun(vector.NumpyToTorch(make_vec(3), reward_dtype=dtype))
        found = envs.step(torch.ones(3, dtype=torch.int64))[1].dtype
        assert found == getattr(torch, str(dtype).removeprefix("torch."))
    undecided = begun(vector.ArrayConversion(make_vec(3), reward_dtype="bfloat16"))
    with pytest.raises(af.OptionError, match=r"numpy has no such dtype.*target_xp"):
        undecided.step(np.ones(3, np.int64))


@pytest.mark.parametrize("target", ["torch", "jax", "numpy", "dask"])
def test_final_observations(target):
    envs = vector.ArrayConversion(make_vec(3, AutoresetMode.SAME_STEP), target_xp=target)
    stacked = vector.ArrayConversion(
        make_vec(3, AutoresetMode.SAME_STEP), target_xp=target, stack_final=True
    )
    plain = make_vec(3, AutoresetMode.SAME_STEP)
    assert envs.autoreset_mode is AutoresetMode.SAME_STEP
    for each in (envs, stacked, plain):
        each.reset(seed=1)
    seen = 0
    for _ in range(30):
        results = [each.step(np.ones(3, np.int64)) for each in (envs, stacked, plain)]
        infos, batch, expected = (result[-1] for result in results)
        assert infos.keys() == expected.keys()
        mask = expected.get("_final_obs", np.zeros(3, bool))
        whole = results[2][0].copy()
        for row in np.flatnonzero(mask):
            whole[row] = expected["final_obs"][row]
            assert af.backend_of(infos["final_obs"][row]).name == target
            np.testing.assert_array_equal(af.convert(infos["final_obs"][row], "numpy"), whole[row])
        for row in np.flatnonzero(~mask) if mask.any() else ():
            assert infos["final_obs"][row] is None
        assert af.backend_of(batch["final_obs"]).name == target
        np.testing.assert_array_equal(af.convert(batch["final_obs"], "numpy"), whole)
        for masks in (batch["_final_obs"], infos.get("_final_obs", mask)):
            np.testing.assert_array_equal(af.convert(masks, "numpy"), mask)
        seen += mask.any()
    assert seen > 2


class Stacked(gym.vector.VectorWrapper):
    """Has last observations as one batch and without a mask, as ALE's vector environment has."""

    def step(self, actions):
        *results, infos = self.env.step(actions)
        if "final_obs" in infos:
            rows = [np.zeros(4) if row is None else row for row in infos["final_obs"]]
            infos = {"final_obs": np.stack(rows)}
        return *results, infos


@pytest.mark.parametrize("wrap", [Stacked, Forgetful])
def test_final_observations_without_a_mask(wrap):
    envs, expected = (
        begun(vector.NumpyToTorch(around(make_vec(3, AutoresetMode.SAME_STEP)), stack_final=True))
        for around in (wrap, lambda env: env)
    )
    actions = torch.ones(3, dtype=torch.int64)
    for _ in range(30):
        infos = expected.step(actions)[-1]
        if wrap is Forgetful and infos["_final_obs"].any():
            refused_step(envs, actions, "no 'final_obs' where an episode has ended", af.OptionError)
            return
        found = envs.step(actions)[-1]
        assert torch.equal(found["final_obs"].float(), infos["final_obs"])
        assert torch.equal(found["_final_obs"], infos["_final_obs"])
    assert wrap is Stacked


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_final_observations_of_other_modes_are_refused(mode):
    with pytest.raises(af.OptionError, match=f"resets in {mode.name} mode") as caught:
        vector.NumpyToTorch(make_vec(3, mode), stack_final=True)
    advice = re.search(r"gymnasium\.(make_vec\(.*?\))\), or", str(caught.value))[1]
    envs = eval(advice, {"make_vec": gym.make_vec, "id": "CartPole-v1", "n": 2})
    assert "final_obs" in begun(vector.NumpyToTorch(envs, stack_final=True)).step([0, 1])[-1]


@pytest.mark.parametrize("around", [vector.NumpyToTorch, NormalizeObservation, "SB3VecEnv"])
def test_infos_in_a_list_are_refused_where_last_observations_are_needed(around):
    if around == "SB3VecEnv":
        pytest.importorskip("stable_baselines3")
        from arrayferry_gym.sb3 import SB3VecEnv as around
    listed = gym.wrappers.vector.DictInfoToList(make_vec(3, AutoresetMode.SAME_STEP))
    envs = around(listed, **{"stack_final": True} if around is vector.NumpyToTorch else {})
    with pytest.raises(TypeError, match=r"a list as infos.*Put DictInfoToList outside"):  # noqa: PT012
        envs.reset()
        envs.step(np.zeros(3, np.int64))


class Structured(Tells):
    observation_space = spaces.Dict(
        a=Tells.observation_space, b=spaces.Tuple([spaces.Discrete(9), spaces.Text(4)])
    )

    def _observed(self):
        return {"a": super()._observed(), "b": (np.int64(self.count), "t")}


def test_structured_final_observations():
    mode = AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv([lambda: Structured(1)] * 2, False, autoreset_mode=mode)
    envs = vector.NumpyToTorch(envs, stack_final=True)
    observation, _ = envs.reset()
    assert observation["b"][1] == ("t", "t")
    held = [envs.step(torch.zeros(2, dtype=torch.int64))[-1]["final_obs"] for _ in range(3)]
    assert [x["a"][0, 1].item() for x in held] == [1, 2, 3]
    final = held[-1]
    assert final["a"].tolist() == [[1, 3], [1, 3]]
    assert final["b"][0].tolist() == [3, 3]
    assert final["b"][1] == ("t", "t")


def test_calls_to_the_environments_of_a_vector():
    envs = vector.NumpyToTorch(make_vec(3))
    assert envs.num_envs == 3
    assert envs.get_attr("gravity") == (9.8,) * 3
    assert envs.single_action_space.contains(envs.single_action_space.sample())
    assert isinstance(envs.single_observation_space.sample(), torch.Tensor)
    observation, _ = envs.reset(seed=[1, 2, 3])
    assert envs.observation_space.contains(observation)


def test_vector_adapters_can_be_pickled():
    makers = [functools.partial(gym.make, "CartPole-v1")] * 3
    envs = gym.vector.SyncVectorEnv(makers, autoreset_mode="SameStep")
    envs = begun(vector.NumpyToTorch(envs, stack_final=True))
    again = pickle.loads(pickle.dumps(envs))
    actions = torch.ones(3, dtype=torch.int64)
    assert torch.equal(again.step(actions)[0], envs.step(actions)[0])


class Unbatched(gym.vector.VectorEnv):
    """Says of its actions what one environment takes, as EnvPool and SuperSuit do."""

    num_envs = 3
    observation_space = spaces.Box(-1, 1, (3, 2), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, single=False, space=None):
        self.action_space = space or self.action_space
        if single:
            self.single_action_space = self.action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros((3, 2), np.float32), {}

    def step(self, actions):
        self.taken = actions
        ended = np.zeros(3, bool)
        return np.zeros((3, 2), np.float32), np.zeros(3), ended, ended, {}


@pytest.mark.parametrize("single", [False, True])
def test_spaces_of_one_environment_are_those_of_a_batch(single):
    envs = begun(vector.ArrayConversion(Unbatched(single), target_xp="torch"))
    for _ in range(3):
        envs.step(torch.tensor([1, 0, 3]))
        assert envs.env.taken.tolist() == [1, 0, 3]
        for wrong in ([1, 0], [1, 0, 4], 1, [[1, 0, 3]]):
            refused_step(envs, torch.tensor(wrong))
    envs.step(torch.tensor([[1], [0], [3]]))
    assert envs.env.taken.shape == (3,)
    one = vector.ArrayConversion(
        gym.vector.SyncVectorEnv([lambda: Takes(spaces.MultiDiscrete([3, 4]))])
    )
    one.step(np.array([2, 3]))
    assert one.env.envs[0].taken.tolist() == [2, 3]
    box = spaces.Box(-1, 1, (2,), np.float32)
    envs = vector.ArrayConversion(Unbatched(single, box), target_xp="jax")
    envs.step(jnp.ones((3, 2)))
    assert envs.env.taken.shape == (3, 2)
    refused_step(envs, jnp.ones((2, 2)), "one action for each of the 3")
    with pytest.raises(af.ConversionError, match="logits or probabilities of 4"):
        vector.ArrayConversion(Unbatched(single), target_xp="jax").step(jnp.ones((3, 4)))


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.parametrize("copying", [True, False])
@pytest.mark.parametrize("kind", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
@pytest.mark.parametrize("target", ["jax", "torch"])
def test_vector_environments_that_reuse_their_buffers(kind, copying, target):
    envs = vector.ArrayConversion(kind([CARTPOLE] * 2, copy=copying), target_xp=target, copy=True)
    kept = [envs.reset(seed=0)[0]]
    for _ in range(5):
        kept.append(envs.step(envs.action_space.sample())[0])
    copies = [np.array(af.convert(x, "numpy")) for x in kept]
    for _ in range(3):
        envs.step(envs.action_space.sample())
    np.testing.assert_equal(af.convert(kept, "numpy"), copies)
    assert len({x.tobytes() for x in copies}) == len(copies)
    envs.close()


def test_a_jax_vector_environment_and_a_torch_agent():
    envs = vector.JaxToTorch(gym.make_vec("phys2d/CartPole-v1", num_envs=2))
    observation, _ = envs.reset(seed=1)
    assert envs.observation_space.contains(observation)
    results = envs.step(envs.action_space.sample())
    assert all(af.backend_of(x).name == "torch" for x in results[:4])
