"""Adapters around single environments: libraries, options, infos, rewards, pickling, and no aliasing."""

import copy
import itertools
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
from envs import Takes, begun, make_vec
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import arrayferry as af
import arrayferry_gym
from arrayferry_gym import ArrayConversion, JaxToNumpy, JaxToTorch, NumpyToTorch, vector


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_both_libraries_are_detected_at_run_time(library):
    env = ArrayConversion(Takes(spaces.Discrete(2), library))
    assert af.backend_of(env.reset()[0]).name == library
    for _ in range(3):  # also with forms of actions that are known
        for action, expected in (
            (torch.tensor(1), torch.Tensor),
            (np.int64(0), np.ndarray),
            (jnp.array(1), jax.Array),
            (1, jax.Array),  # the library of the last action
        ):
            for _ in range(3):
                assert isinstance(env.step(action)[0], expected)
                assert af.backend_of(env.env.taken).name == library


def test_without_gymnasium_the_error_names_the_install_command(run_python):
    out = run_python(
        "import sys; sys.modules['gymnasium'] = None\n"
        "try:\n    import arrayferry_gym\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    assert "run: pip install '.[gym]'" in out


class Buffered(gym.Env):
    """Uses one buffer for all its observations, as fast environments do. In JAX it cannot."""

    action_space = spaces.Discrete(2)

    def __init__(self, size=8, xp=np):
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.buffer = xp.zeros(size, xp.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.options = options
        self.buffer *= 0
        return self.buffer, {"buffer": self.buffer}

    def step(self, action):
        self.buffer += 1
        return self.buffer, 0.0, False, False, {"buffer": self.buffer, "name": "n"}


ZEROS = np.zeros(2)


def returning(observation=ZEROS, reward=0.0, flag=False, **info):
    """Return an environment that always returns these."""
    env = Takes(spaces.Discrete(2))
    env.reset = lambda **options: (observation, info)
    env.step = lambda action: (observation, reward, flag, flag, info)
    return env


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


@pytest.mark.parametrize("size", [2, 16, 64, 1024, 4096])
@pytest.mark.parametrize("copying", [None, True])
def test_an_agents_writes_never_reach_a_jax_environment(size, copying):
    for wrapper in (JaxToTorch, JaxToNumpy):
        env = begun(wrapper(Buffered(size, jnp), copy=copying), None)
        for step in range(1, 5):
            observation, *_ = env.step(1)
            if isinstance(observation, torch.Tensor) or observation.flags.writeable:
                observation[:] = -7
            np.testing.assert_array_equal(np.asarray(env.env.buffer), np.full(size, step))


INFOS = [
    ({}, (int, jax.Array)),
    ({"scalars": "convert"}, (jax.Array, jax.Array)),
    ({"convert_info": False}, (int, np.ndarray)),
    ({"target_xp": "torch"}, (int, jax.Array)),
]


@pytest.mark.parametrize(("options", "kinds"), INFOS)
def test_infos_are_of_their_library_before_that_of_the_agent_is_known(options, kinds):
    told = {"text": np.array(["a"]), "mission": "go", "large": np.array([1e300])}
    told["masked"] = np.ma.masked_array([1], [True])
    tells = returning(n=3, x=np.float32([1]), **told)
    env = ArrayConversion(tells, info_xp="jax", narrowing="allow", **options)
    with warnings.catch_warnings(action="ignore"):
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
    *_, info = NumpyToTorch(returning(f=np.float32(2), ok=True)).step(torch.tensor(1))
    assert info["ok"] is True
    assert isinstance(info["f"], torch.Tensor)
    with pytest.raises(af.UnsupportedDtypeError, match="text"):
        NumpyToTorch(returning(strings)).reset()


def test_like():
    env = ArrayConversion(Buffered(), like=torch.nn.Linear(2, 2))
    assert isinstance(env.reset()[0], torch.Tensor)
    model = equinox.nn.Linear(2, 2, key=jax.random.key(0))
    assert isinstance(ArrayConversion(Buffered(), like=model).reset()[0], jax.Array)
    assert isinstance(ArrayConversion(Buffered(), like={"w": [np.ones(1)]}).reset()[0], np.ndarray)


def test_rewards_with_dimensions():
    """Of several objectives, or of several agents."""
    env = NumpyToTorch(returning())

    def step(reward, flag=False):
        env.env.step = returning(reward=reward, flag=flag).step
        return env.step(torch.tensor(1))

    _, reward, terminated, truncated, _ = step(np.array([1.0, 2.0]))
    assert isinstance(reward, torch.Tensor)
    assert reward.tolist() == [1, 2]
    assert terminated is truncated is False
    for rewards in (np.array(1.5), np.float32(1.5), 1.5, torch.tensor(1.5)):
        reward = step(rewards)[1]
        assert type(reward) is float
        assert reward == 1.5
    both = {"one": np.ones(2), "two": 3.0}
    _, reward, terminated, truncated, _ = step(both, np.array([True, False]))
    assert isinstance(reward["one"], torch.Tensor)
    assert reward["two"].item() == 3.0
    assert terminated.tolist() == truncated.tolist() == [True, False]
    assert isinstance(terminated, torch.Tensor)
    assert step(1.5, np.True_)[2] is True


def test_what_is_seen():
    env = NumpyToTorch(gym.make("CartPole-v1"), device="cpu")
    assert repr(env).startswith("<NumpyToTorch(numpy -> torch, cpu)<TimeLimit<")
    assert repr(pickle.loads(pickle.dumps(env))) == repr(env)
    for env_id, library in (("CartPole-v1", "numpy"), ("phys2d/CartPole-v1", "jax")):
        shown = repr(ArrayConversion(gym.make(env_id)))
        assert shown.startswith(f"<ArrayConversion({library} -> the library of the actions)<")
    assert env.spec.additional_wrappers[-1].entry_point == "arrayferry_gym:NumpyToTorch"
    assert dir(arrayferry_gym) == sorted(arrayferry_gym.__all__)
    assert dir(vector) == sorted(vector.__all__)
    for name in ("gravity", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(env, name)
    with pytest.raises(AttributeError):
        vector.NumpyToTorch(make_vec(3)).nothing_of_the_kind  # noqa: B018


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


SPACES = {
    "Discrete": spaces.Discrete(3), "MultiDiscrete": spaces.MultiDiscrete([3, 4]), "Box": spaces.Box(-1, 1, (2,)),
    "Dict": spaces.Dict(a=spaces.Discrete(3)),
}  # fmt: skip


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("checked", ["fit", "strict"])
@pytest.mark.parametrize("space", SPACES)
def test_adapters_are_pickled_and_copied_after_actions(space, checked, library):
    env = ArrayConversion(
        Takes(SPACES[space], library), env_xp=library, target_xp="torch", check_actions=checked
    )
    env.reset()
    for _ in range(3):
        env.step(env.action_space.sample())
    copies = [pickle.loads(dump.dumps(env)) for dump in (pickle, cloudpickle)]
    for again in (*copies, copy.deepcopy(env), copy.copy(env)):
        assert again.action_space == env.action_space
        again.step(again.action_space.sample())
    wrong = torch.full((2,), 7) if space != "Dict" else {"a": torch.tensor(3)}
    again = copy.deepcopy(env)
    if space != "Box" or checked == "strict":
        with pytest.raises(af.ConversionError):
            again.step(wrong)


SENT = [
    NumpyToTorch,
    lambda env: NumpyToTorch(env, device="cpu"),
    lambda env: NumpyToTorch(env, device=torch.device("cpu"), copy=True),
    lambda env: ArrayConversion(env, np, torch),
    lambda env: ArrayConversion(env, target_xp="torch", info_xp=np, narrowing="allow"),
    lambda env: ArrayConversion(env, like=torch.ones(1)),
]


@pytest.mark.parametrize("make", SENT)
def test_specs_can_be_sent_as_json(make):
    env = make(gym.make("CartPole-v1"))
    spec = EnvSpec.from_json(env.spec.to_json())
    again = gym.make(spec)
    ours, theirs = env.reset(seed=1)[0], again.reset(seed=1)[0]
    assert isinstance(theirs, torch.Tensor)
    assert torch.equal(ours, theirs)
    assert again.spec.to_json() == spec.to_json()


@pytest.mark.parametrize(
    ("source", "target"), [*itertools.permutations(["numpy", "torch", "jax"], 2)]
)
def test_functions(source, target):
    function = getattr(arrayferry_gym, f"{source}_to_{target}")
    given = af.convert(np.ones(2), source)
    found = function({"a": given, "n": (3, given, "text", None)})
    arrays = [found["a"], *found["n"][:2]]  # numbers of Python become arrays too
    assert [af.backend_of(x).name for x in arrays] == [target] * 3
    assert found["n"][2:] == ("text", None)


def test_array_conversion_takes_namespaces():
    import array_api_strict

    found = arrayferry_gym.array_conversion([1, torch.ones(2)], array_api_strict)
    assert all(af.backend_of(x).name == "array_api_strict" for x in found)
    assert arrayferry_gym.array_conversion(torch.ones(1), jnp, device="cpu").devices()


def test_masks_in_infos_are_left_as_they_are():
    mask = np.ma.array([1.0, 2.0], mask=[0, 1])
    inner = returning(mask=mask, x=np.ones(1))
    inner.reset = lambda **options: (ZEROS, {"legal": {"mask": mask}, "x": np.ones(1)})
    env = NumpyToTorch(inner)
    with pytest.warns(UserWarning, match=r"info\['legal'\]\['mask'\] was left unchanged") as warned:
        _, info = env.reset()
    assert warned[0].filename == __file__
    assert info["legal"]["mask"] is mask
    assert isinstance(info["x"], torch.Tensor)
    told = {"mask": mask}
    inner.reset = lambda **options: (ZEROS, told)
    env.reset()[1]["mine"] = 1
    assert list(told) == ["mask"]
    for _ in range(2):
        *_, info = env.step(torch.tensor(1))
        assert info["mask"] is mask
        assert isinstance(info["x"], torch.Tensor)


def test_frames_are_converted_if_asked_for():
    env = begun(gym.make("CartPole-v1", render_mode="rgb_array"))
    assert isinstance(NumpyToTorch(env).render(), np.ndarray)
    assert NumpyToTorch(env).render_mode == "rgb_array"
    assert isinstance(NumpyToTorch(env, convert_render=True).render(), torch.Tensor)
    with pytest.raises(af.OptionError, match="convert_render"):
        NumpyToTorch(env, convert_render=1)
