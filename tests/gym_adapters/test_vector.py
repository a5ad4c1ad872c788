"""Adapters besides converting: options, infos, final observations, pickling, and no aliasing."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import warnings

import cloudpickle
import equinox
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

import arrayferry as af
import arrayferry_gym
from arrayferry_gym import ArrayConversion, JaxToNumpy, JaxToTorch, NumpyToTorch, vector


class Buffered(gym.Env):
    """Uses one buffer for all its observations, as fast environments do."""

    observation_space = spaces.Box(-np.inf, np.inf, (8,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, size=8):
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.buffer = np.zeros(size, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.options = options
        self.buffer[:] = 0
        return self.buffer, {"buffer": self.buffer}

    def step(self, action):
        self.buffer += 1
        return self.buffer, 0.0, False, False, {"buffer": self.buffer, "name": "n"}


@pytest.mark.parametrize("size", [2, 16, 64, 1024, 4096])
@pytest.mark.parametrize("copying", [None, True])
def test_observations_of_a_jax_agent_never_change(size, copying):
    env = ArrayConversion(Buffered(size), target_xp="jax", copy=copying)
    observation, info = env.reset()
    kept = [(observation, info["buffer"])]
    for _ in range(6):
        observation, *_, info = env.step(1)
        kept.append((observation, info["buffer"]))
    for step, pair in enumerate(kept):
        for x in pair:
            np.testing.assert_array_equal(np.asarray(x), np.full(size, step))


class JaxState(gym.Env):
    metadata = {"jax": True}
    action_space = spaces.Discrete(2)

    def __init__(self, size):
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.state = jnp.zeros(size)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.state, {}

    def step(self, action):
        self.state = self.state + 1
        return self.state, 0.0, False, False, {}


@pytest.mark.parametrize("size", [2, 16, 64, 1024, 4096])
@pytest.mark.parametrize("copying", [None, True])
def test_an_agents_writes_never_reach_a_jax_environment(size, copying):
    for wrapper in (JaxToTorch, JaxToNumpy):
        env = wrapper(JaxState(size), copy=copying)
        env.reset()
        for step in range(1, 5):
            observation, *_ = env.step(1)
            if isinstance(observation, torch.Tensor) or observation.flags.writeable:
                observation[:] = -7
            np.testing.assert_array_equal(np.asarray(env.env.state), np.full(size, step))


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, (int, jax.Array)),
        ({"scalars": "convert"}, (jax.Array, jax.Array)),
        ({"convert_info": False}, (int, np.ndarray)),
        ({"target_xp": "torch"}, (int, jax.Array)),
    ],
)
def test_infos_are_of_their_library_before_that_of_the_agent_is_known(options, kinds):
    told = {
        "text": np.array(["a"]),
        "mission": "go",
        "masked": np.ma.masked_array([1], [True]),
        "large": np.array([1e300]),
    }

    class Tells(Buffered):
        def reset(self, *, seed=None, options=None):
            return self.buffer, {"n": 3, "x": np.float32([1]), **told}

        def step(self, action):
            return self.buffer, 0.0, False, False, self.reset()[1]

    env = ArrayConversion(Tells(), info_xp="jax", narrowing="allow", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        infos = [env.reset()[1], env.step(torch.tensor(1))[4], env.reset()[1]]
    for info in infos:
        assert info["text"] is told["text"]
        assert info["mission"] == "go"
        assert isinstance(info["n"], kinds[0])
        assert isinstance(info["x"], kinds[1])
        assert isinstance(info["large"], kinds[1])


def test_options_and_infos():
    env = ArrayConversion(Buffered(), env_xp="numpy", target_xp="torch")
    strings = np.array(["a"])
    env.reset(options={"at": torch.ones(2), "name": "text", "strings": strings, "deep": [{"n": 3}]})
    options = env.env.options
    assert isinstance(options["at"], np.ndarray)
    assert options["name"] == "text"
    assert options["strings"] is strings
    assert options["deep"] == [{"n": 3}]

    class WithStrings(Buffered):
        def step(self, action):
            infos = {"strings": strings, "mission": "go", "n": 3, "f": np.float32(2), "ok": True}
            return self.buffer, 0.0, False, False, infos

    *_, info = NumpyToTorch(WithStrings()).step(torch.tensor(1))
    assert info["strings"] is strings
    assert info["mission"] == "go"
    assert type(info["n"]) is int
    assert info["ok"] is True
    assert isinstance(info["f"], torch.Tensor)
    *_, info = NumpyToTorch(WithStrings(), scalars="convert").step(torch.tensor(1))
    assert isinstance(info["n"], torch.Tensor)
    *_, info = NumpyToTorch(WithStrings(), convert_info=False).step(torch.tensor(1))
    assert isinstance(info["f"], np.float32)
    *_, info = NumpyToTorch(WithStrings(), info_xp="jax").step(torch.tensor(1))
    assert isinstance(info["f"], jax.Array)

    class StringObservation(Buffered):
        def reset(self, *, seed=None, options=None):
            return strings, {}

    with pytest.raises(af.UnsupportedDtypeError, match="text"):
        NumpyToTorch(StringObservation()).reset()


def test_like():
    env = ArrayConversion(Buffered(), like=torch.nn.Linear(2, 2))
    assert isinstance(env.reset()[0], torch.Tensor)
    model = equinox.nn.Linear(2, 2, key=jax.random.key(0))
    assert isinstance(ArrayConversion(Buffered(), like=model).reset()[0], jax.Array)
    assert isinstance(ArrayConversion(Buffered(), like={"w": [np.ones(1)]}).reset()[0], np.ndarray)
    with pytest.raises(af.OptionError, match="either like="):
        ArrayConversion(Buffered(), target_xp="torch", like=model)
    with pytest.raises(af.NotAnArrayError, match="holds no array"):
        ArrayConversion(Buffered(), like="text")


def test_mistakes_are_named():
    with pytest.raises(af.UnknownBackendError, match="Did you mean 'torch'"):
        ArrayConversion(Buffered(), target_xp="toch")
    with pytest.raises(af.DeviceError, match="cuda:8"):
        NumpyToTorch(Buffered(), device="cuda:8")
    with pytest.raises(af.OptionError, match="narrowing"):
        NumpyToTorch(Buffered(), narrowing="some")


class ManyRewards(Buffered):
    """Rewards with dimensions: several objectives, or several agents."""

    rewards = np.array([1.0, 2.0])
    flags = False

    def step(self, action):
        return self.buffer, self.rewards, self.flags, self.flags, {}


def test_rewards_with_dimensions():
    env = NumpyToTorch(ManyRewards())
    env.reset()
    _, reward, terminated, truncated, _ = env.step(torch.tensor(1))
    assert isinstance(reward, torch.Tensor)
    assert reward.tolist() == [1, 2]
    assert terminated is truncated is False
    for rewards in (np.array(1.5), np.float32(1.5), 1.5, torch.tensor(1.5)):
        env.env.rewards = rewards
        reward = env.step(torch.tensor(1))[1]
        assert type(reward) is float
        assert reward == 1.5
    env.env.rewards = {"one": np.ones(2), "two": 3.0}
    env.env.flags = np.array([True, False])
    _, reward, terminated, truncated, _ = env.step(torch.tensor(1))
    assert isinstance(reward["one"], torch.Tensor)
    assert reward["two"].item() == 3.0
    assert terminated.tolist() == truncated.tolist() == [True, False]
    assert isinstance(terminated, torch.Tensor)
    env.env.flags = np.True_
    assert env.step(torch.tensor(1))[2] is True


def test_a_contradiction_is_told_once():
    env = ArrayConversion(Buffered(), "jax", "torch")
    with pytest.warns(
        UserWarning, match=r"'jax'.*'numpy'.*ArrayConversion\(env, target_xp='torch'\)"
    ):
        env.reset()
    env.reset()
    env.step(torch.tensor(1))
    env = ArrayConversion(Buffered(), "numpy", "torch")
    env.reset()


def test_reward_dtypes():
    for dtype in ("float64", torch.float64, np.float64, np.dtype("float64"), jnp.float64, float):
        envs = vector.NumpyToTorch(make_vector(AutoresetMode.NEXT_STEP), reward_dtype=dtype)
        envs.reset()
        assert envs.step(torch.ones(3, dtype=torch.int64))[1].dtype == torch.float64
        spec = json.loads(json.dumps(envs._saved_kwargs))
        assert spec["reward_dtype"] == "float64"
    envs = vector.NumpyToTorch(make_vector(AutoresetMode.NEXT_STEP), reward_dtype=torch.bfloat16)
    envs.reset()
    assert envs.step(torch.ones(3, dtype=torch.int64))[1].dtype == torch.bfloat16
    undecided = vector.ArrayConversion(
        make_vector(AutoresetMode.NEXT_STEP), reward_dtype="bfloat16"
    )
    undecided.reset()
    with pytest.raises(af.OptionError, match=r"numpy has no such dtype.*target_xp"):
        undecided.step(np.ones(3, np.int64))


def test_what_is_seen():
    env = NumpyToTorch(gym.make("CartPole-v1"), device="cpu")
    assert repr(env).startswith("<NumpyToTorch(numpy -> torch, cpu)<TimeLimit<")
    assert repr(ArrayConversion(gym.make("CartPole-v1"))).startswith(
        "<ArrayConversion(numpy -> the library of the actions)<"
    )
    envs = vector.JaxToNumpy(make_vector(AutoresetMode.NEXT_STEP))
    assert repr(envs).startswith("<JaxToNumpy(jax -> numpy)")
    assert env.spec.additional_wrappers[-1].entry_point == "arrayferry_gym:NumpyToTorch"
    assert dir(arrayferry_gym) == sorted(arrayferry_gym.__all__)
    assert dir(vector) == sorted(vector.__all__)
    assert dir(af.testing) == ["BackendContract", "SourceContract", "contract_for"]
    for name in ("gravity", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(env, name)
    with pytest.raises(AttributeError):
        envs.nothing_of_the_kind  # noqa: B018


def test_render_is_not_converted():
    env = NumpyToTorch(gym.make("CartPole-v1", render_mode="rgb_array"))
    env.reset()
    assert isinstance(env.render(), np.ndarray)
    assert env.render_mode == "rgb_array"
    env.close()


def test_an_adapter_is_an_ordinary_wrapper():
    env = NumpyToTorch(gym.make("CartPole-v1"))
    assert env.unwrapped is env.env.unwrapped
    assert env.get_wrapper_attr("gravity") == 9.8
    env.set_wrapper_attr("gravity", 5.0)
    assert env.unwrapped.gravity == 5.0
    assert env.metadata is env.env.metadata
    assert env.has_wrapper_attr("tau")
    assert JaxToNumpy(gym.make("phys2d/CartPole-v1")).metadata["jax"] is False
    assert ArrayConversion(env.env, target_xp="jax").metadata["jax"] is True
    assert env.np_random is env.unwrapped.np_random
    assert str(env).startswith("<NumpyToTorch<")
    assert env.env_backend.name == "numpy"
    assert env.target_backend.name == "torch"


def make_vector(mode, num_envs=3):
    return gym.make_vec(
        "CartPole-v1",
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
    )


@pytest.mark.parametrize("target", ["torch", "jax", "numpy", "dask"])
def test_final_observations(target):
    envs = vector.ArrayConversion(make_vector(AutoresetMode.SAME_STEP), target_xp=target)
    stacked = vector.ArrayConversion(
        make_vector(AutoresetMode.SAME_STEP), target_xp=target, stack_final=True
    )
    plain = make_vector(AutoresetMode.SAME_STEP)
    assert envs.autoreset_mode is AutoresetMode.SAME_STEP
    for each in (envs, stacked, plain):
        each.reset(seed=1)
    seen = 0
    for _ in range(30):
        actions = np.ones(3, np.int64)
        infos, batch, expected = (each.step(actions)[-1] for each in (envs, stacked, plain))
        assert infos.keys() == batch.keys() == expected.keys()
        if "final_obs" not in expected:
            continue
        seen += 1
        mask = expected["_final_obs"]
        np.testing.assert_array_equal(np.asarray(af.convert(infos["_final_obs"], "numpy")), mask)
        assert af.backend_of(batch["final_obs"]).name == target
        whole = af.convert(batch["final_obs"], "numpy")
        assert whole.shape == (3, 4)
        for index, row in enumerate(expected["final_obs"]):
            if row is None:
                assert infos["final_obs"][index] is None
                assert not whole[index].any()
            else:
                assert af.backend_of(infos["final_obs"][index]).name == target
                np.testing.assert_array_equal(af.convert(infos["final_obs"][index], "numpy"), row)
                np.testing.assert_array_equal(whole[index], row)
    assert seen > 2


class Structured(gym.Env):
    observation_space = spaces.Dict(
        a=spaces.Box(-9, 9, (2,)), b=spaces.Tuple([spaces.Discrete(9), spaces.Text(4)])
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observation(), {}

    def observation(self):
        return {"a": np.full(2, self.time, np.float32), "b": (np.int64(self.time), "t")}

    def step(self, action):
        self.time += 1
        return self.observation(), 1.0, self.time == 3, False, {}


def test_structured_final_observations():
    envs = vector.NumpyToTorch(
        gym.vector.SyncVectorEnv([Structured] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
        stack_final=True,
    )
    observation, _ = envs.reset()
    assert observation["b"][1] == ("t", "t")
    for _ in range(3):
        *_, infos = envs.step(torch.zeros(2, dtype=torch.int64))
    final = infos["final_obs"]
    assert final["a"].tolist() == [[3, 3], [3, 3]]
    assert final["b"][0].tolist() == [3, 3]
    assert final["b"][1] == ("t", "t")


def test_reward_dtype():
    envs = vector.NumpyToTorch(make_vector(AutoresetMode.NEXT_STEP), reward_dtype="float32")
    envs.reset()
    assert envs.step(torch.ones(3, dtype=torch.int64))[1].dtype == torch.float32


def test_calls_to_the_environments_of_a_vector():
    envs = vector.NumpyToTorch(make_vector(AutoresetMode.NEXT_STEP))
    assert envs.num_envs == 3
    assert envs.get_attr("gravity") == (9.8,) * 3
    assert envs.single_action_space.contains(envs.single_action_space.sample())
    assert isinstance(envs.single_observation_space.sample(), torch.Tensor)
    observation, _ = envs.reset(seed=[1, 2, 3])
    assert envs.observation_space.contains(observation)
    with pytest.raises(AttributeError):
        envs.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("dump", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
@pytest.mark.parametrize(
    "wrapper", [NumpyToTorch, lambda env: ArrayConversion(env, target_xp="jax")]
)
def test_adapters_can_be_pickled_and_copied(dump, wrapper):
    env = wrapper(gym.make("CartPole-v1"))
    env.reset(seed=3)
    action = env.action_space.sample()
    env.step(action)
    for again in (pickle.loads(dump.dumps(env)), copy.deepcopy(env)):
        np.testing.assert_array_equal(
            np.asarray(again.step(action)[0]), np.asarray(copy.deepcopy(env).step(action)[0])
        )
        assert again.action_space == env.action_space


SPACES = {
    "Discrete": spaces.Discrete(3), "MultiDiscrete": spaces.MultiDiscrete([3, 4]), "Box": spaces.Box(-1, 1, (2,)),
    "Dict": spaces.Dict(a=spaces.Discrete(3)),
}  # fmt: skip


class Answers(gym.Env):
    """An environment of a library that it is told by name."""

    observation_space = spaces.Box(-1, 1, (2,))

    def __init__(self, space, library):
        self.action_space = space
        self.library = library

    def reset(self, *, seed=None, options=None):
        return af.convert(np.zeros(2, np.float32), self.library), {}

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("checked", ["fit", "strict"])
@pytest.mark.parametrize("space", SPACES)
def test_adapters_are_pickled_and_copied_after_actions(space, checked, library):
    env = ArrayConversion(
        Answers(SPACES[space], library), env_xp=library, target_xp="torch", check_actions=checked
    )
    env.reset()
    for _ in range(3):
        env.step(env.action_space.sample())
    for again in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env), copy.copy(env)):
        again.step(again.action_space.sample())
    wrong = torch.full((2,), 7) if space != "Dict" else {"a": torch.tensor(3)}
    again = copy.deepcopy(env)
    if space != "Box" or checked == "strict":
        with pytest.raises(af.ConversionError):
            again.step(wrong)


def test_vector_adapters_can_be_pickled():
    makers = [functools.partial(gym.make, "CartPole-v1")] * 3
    envs = vector.NumpyToTorch(gym.vector.SyncVectorEnv(makers), stack_final=True)
    envs.reset(seed=1)
    again = pickle.loads(pickle.dumps(envs))
    actions = torch.ones(3, dtype=torch.int64)
    assert torch.equal(again.step(actions)[0], envs.step(actions)[0])


@pytest.mark.parametrize(
    "make",
    [
        NumpyToTorch,
        lambda env: NumpyToTorch(env, device="cpu"),
        lambda env: NumpyToTorch(env, device=torch.device("cpu"), copy=True),
        lambda env: ArrayConversion(env, np, torch),
        lambda env: ArrayConversion(env, target_xp="torch", info_xp=np, narrowing="allow"),
        lambda env: ArrayConversion(env, like=torch.ones(1)),
    ],
)
def test_specs_can_be_sent_as_json(make):
    env = make(gym.make("CartPole-v1"))
    spec = EnvSpec.from_json(env.spec.to_json())
    again = gym.make(spec)
    ours, theirs = env.reset(seed=1)[0], again.reset(seed=1)[0]
    assert isinstance(theirs, torch.Tensor)
    assert torch.equal(ours, theirs)
    assert again.spec.to_json() == spec.to_json()


def test_additional_wrappers():
    spec = copy.deepcopy(gym.spec("CartPole-v1"))
    spec.additional_wrappers = (NumpyToTorch.wrapper_spec(device="cpu"),)
    env = gym.make(spec)
    assert isinstance(env.reset()[0], torch.Tensor)


FUNCTIONS = {
    "jax_to_numpy": np.ndarray,
    "torch_to_numpy": np.ndarray,
    "numpy_to_jax": jax.Array,
    "torch_to_jax": jax.Array,
    "numpy_to_torch": torch.Tensor,
    "jax_to_torch": torch.Tensor,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = getattr(arrayferry_gym, name)
    source = {"jax": jnp.array, "torch": torch.tensor, "numpy": np.array}[name.partition("_")[0]]
    found = function({"a": source([1.0, 2.0]), "n": (3, "text", None)})
    assert isinstance(found["a"], FUNCTIONS[name])
    assert isinstance(found["n"][0], FUNCTIONS[name])
    assert found["n"][1:] == ("text", None)


def test_array_conversion_takes_namespaces():
    import array_api_strict

    found = arrayferry_gym.array_conversion([1, torch.ones(2)], array_api_strict)
    assert all(af.backend_of(x).name == "array_api_strict" for x in found)
    assert arrayferry_gym.array_conversion(torch.ones(1), jnp, device="cpu").devices()


def test_a_framework_that_is_not_needed_is_not_imported(run_python):
    out = run_python(
        """
import sys
sys.modules["jax"] = None
import gymnasium as gym, torch
from arrayferry_gym import NumpyToTorch
env = NumpyToTorch(gym.make("CartPole-v1"))
print(env.reset(seed=1)[0].dtype, env.step(torch.tensor(1))[0].shape)
"""
    )
    assert out.strip() == "torch.float32 torch.Size([4])"
