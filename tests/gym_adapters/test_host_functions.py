"""Ordinary environments inside `jit`."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import make_vec
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import arrayferry as af
from arrayferry_gym.functional import (
    CartPole,
    EnvResultError,
    HostFunctions,
    StaleStateError,
    rollout,
)


def random_actions(key, number):
    return jax.random.randint(key, (number,) if number else (), 0, 2)


def collect(functions, number, steps):
    """Return a compiled function that takes steps with random actions."""

    @jax.jit
    def run(seed, key):
        def one(carry, key):
            state, _observation = carry
            action = random_actions(key, number)
            state, outcome = functions.step(state, action)
            return (state, outcome.observation), outcome

        state, observation, _ = functions.reset(seed)
        return jax.lax.scan(one, (state, observation), jax.random.split(key, steps))[1]

    return run


@pytest.mark.parametrize(
    ("mode", "steps"),
    [
        (AutoresetMode.SAME_STEP, 1_000),
        pytest.param(AutoresetMode.SAME_STEP, 2_500, marks=pytest.mark.long),
        pytest.param(AutoresetMode.NEXT_STEP, 2_500, marks=pytest.mark.long),
    ],
)
def test_steps_equal_those_of_a_loop(mode, steps):
    number = 4
    with HostFunctions(make_vec(number, mode)) as functions:
        found = collect(functions, number, steps)(3, jax.random.key(0))
        found = jax.tree.map(np.asarray, found)
    envs = make_vec(number, mode)
    envs.reset(seed=3)
    for step, key in enumerate(jax.random.split(jax.random.key(0), steps)):
        observation, reward, terminated, truncated, info = envs.step(
            np.asarray(random_actions(key, number))
        )
        assert (found.observation[step] == observation).all()
        assert (found.reward[step] == reward).all()
        assert (found.terminated[step] == terminated).all()
        assert (found.truncated[step] == truncated).all()
        final = observation.copy()
        if "final_obs" in info:
            for row in np.flatnonzero(terminated | truncated):
                final[row] = info["final_obs"][row]
        assert (found.final_observation[step] == final).all()
    assert found.terminated.sum() > steps / 25


def test_a_single_environment():
    steps = 2_000
    with HostFunctions(gym.make("CartPole-v1")) as functions:
        found = jax.tree.map(np.asarray, collect(functions, None, steps)(5, jax.random.key(1)))
    env = gym.make("CartPole-v1")
    env.reset(seed=5)
    for step, key in enumerate(jax.random.split(jax.random.key(1), steps)):
        observation, reward, terminated, truncated, _ = env.step(int(random_actions(key, None)))
        assert (found.final_observation[step] == observation).all()
        if terminated or truncated:
            observation, _ = env.reset()
        assert (found.observation[step] == observation).all()
        assert found.reward[step] == reward
        assert bool(found.terminated[step]) is terminated
    assert found.terminated.sum() > 50


class Everything(gym.Env):
    """Nested spaces of several dtypes, and infos. It writes to its observations in place."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 3), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(5, start=2), spaces.MultiBinary(3)]),
            "wide": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        }
    )
    action_space = spaces.Dict({"move": spaces.Box(-1, 1, (2,)), "jump": spaces.Discrete(3)})

    def __init__(self):
        self.image = np.zeros((2, 3), np.uint8)
        self.actions = []

    def _observation(self):
        return {"image": self.image, "pair": (np.int64(4), np.ones(3, np.int8)), "wide": np.ones(2)}

    def reset(self, *, seed=None, options=None):
        self.image[:] = (options or {}).get("start", 0)
        return self._observation(), {"seed": -1 if seed is None else seed}

    def step(self, action):
        self.image += 1
        self.actions.append(action)
        info = {"position": np.full(2, 0.5), "text": "left out"}
        if self.image[0, 0] % 2:
            info["odd"] = 1
        return self._observation(), 1.5, False, False, info


def test_nested_spaces_infos_and_options():
    env = Everything()
    example = {"position": np.zeros(2), "odd": 0}
    functions = HostFunctions(env, info_like=example)

    @jax.jit
    def run(start):
        state, observation, _info = functions.reset(7, {"start": start, "name": "text"})
        action = {"move": jnp.array([0.5, -0.5]), "jump": jnp.int32(2)}
        state, first = functions.step(state, action)
        state, second = functions.step(state, action)
        return observation, first, second

    observation, first, second = run(10)
    assert observation["image"].dtype == np.uint8
    assert observation["pair"][0] == 4
    assert observation["wide"].dtype == np.float32
    seen = observation, first.observation, second.observation
    assert [int(x["image"][0, 0]) for x in seen] == [10, 11, 12]
    assert first.reward == 1.5
    assert [int(o.info["odd"]) for o in (first, second)] == [1, 0]
    assert first.info["position"].tolist() == [0.5, 0.5]
    assert first.info.keys() == example.keys()
    assert env.actions[0]["jump"] == 2
    assert isinstance(env.actions[0]["jump"], np.int64)
    assert env.actions[0]["move"].tolist() == [0.5, -0.5]
    env.actions[0]["move"][:] = 9  # its own memory
    assert env.actions[1]["move"].tolist() == [0.5, -0.5]


class InTorch(gym.Env):
    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        return torch.zeros(2), {}

    def step(self, action):
        assert isinstance(action, torch.Tensor)
        return action * 0.5, torch.tensor(2.0), torch.tensor(False), False, {}


def test_arrays_that_the_environment_uses_again():
    class Reusing(gym.Env):
        observation_space = spaces.Box(0, 9, (1,))
        action_space = spaces.Discrete(2)

        def __init__(self):
            self.observation, self.reward, self.seen = np.zeros((3, 1), np.float32)

        def reset(self, *, seed=None, options=None):
            self.observation[:], self.reward[:], self.seen[:] = 0, 0, 0
            return self.observation, {"seen": self.seen}

        def step(self, action):
            self.observation[:], self.reward[:], self.seen[:] = 1, 2, 3
            return self.observation, self.reward, True, False, {"seen": self.seen}

    example = np.zeros(1, np.float32)
    functions = HostFunctions(Reusing(), reward_like=example, info_like={"seen": example})
    state, _, _ = functions.reset(seed=1)
    outcome = functions.step(state, jnp.array(0))[1]
    seen = outcome.observation, outcome.final_observation, outcome.reward, outcome.info["seen"]
    assert np.concatenate(seen).tolist() == [0, 1, 2, 3]


def test_an_environment_in_torch():
    functions = HostFunctions(InTorch())
    state, _, _ = functions.reset()
    _, outcome = jax.jit(functions.step)(state, jnp.array([0.2, -0.4]))
    assert outcome.observation.tolist() == pytest.approx([0.1, -0.2])
    assert outcome.reward == 2.0


class Faulty(gym.Env):
    """Raises at the third step, or at any action 1."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)
    count = 0
    error: BaseException = KeyError("broken")

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.count == 3:
            raise self.error
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("error", [KeyError("broken"), SystemExit(3), KeyboardInterrupt()])
def test_exceptions_of_the_environment(error, caplog):
    env = Faulty()
    env.error = error
    functions = HostFunctions(env)

    @jax.jit
    def run(steps):
        state, _, _ = functions.reset()
        zero = jnp.int32(0)
        return jax.lax.fori_loop(0, steps, lambda _, s: functions.step(s, zero)[0], state)

    @functions.errors()
    def wrapped(steps):
        return run(steps)

    for _ in range(2):
        with pytest.raises(type(error)) as caught, functions.errors():
            run(5)
        assert caught.value is error
        with pytest.raises(type(error)):
            wrapped(5)
        with pytest.raises(jax.errors.JaxRuntimeError, match=type(error).__name__):
            jax.block_until_ready(run(5))
        with functions.errors():
            assert int(run(2)) > 0
    with pytest.raises(ZeroDivisionError), functions.errors():
        _ = 1 / 0


def test_errors_of_others_are_not_taken_for_its_own():
    functions = HostFunctions(gym.make("CartPole-v1"))
    broken = jax.jit(lambda x: jax.pure_callback(lambda x: 1 / 0, x, x))

    @functions.errors()
    def run():
        state = functions.reset(seed=0)[0]
        with pytest.raises(jax.errors.JaxRuntimeError, match="ConversionError"):
            jax.block_until_ready(functions.step(state, jnp.array(7)))
        functions.step(state, 0)
        jax.block_until_ready(broken(jnp.ones(2)))

    with pytest.raises(jax.errors.JaxRuntimeError, match="ZeroDivisionError"):
        run()


class ClosesItself(Faulty):
    functions = None

    def step(self, action):
        self.functions.close()


def test_an_environment_cannot_close_what_calls_it():
    env = ClosesItself()
    env.functions = HostFunctions(env)
    with pytest.raises(RuntimeError, match="cannot close"), env.functions.errors():
        env.functions.step(env.functions.reset()[0], 0)
    env.functions.close()


def test_they_are_closed_at_the_end_of_a_block():
    with HostFunctions(gym.make("CartPole-v1")) as functions:
        functions.reset()
    with pytest.raises(gym.error.ClosedEnvironmentError), functions.errors():
        functions.reset()


def test_threads_that_close_at_once_close_once(monkeypatch):
    closed = []

    class Closes(ClosesItself):
        def close(self):
            closed.append(1)

    functions = HostFunctions(Closes())
    monkeypatch.setattr(jax, "effects_barrier", threading.Barrier(3).wait)  # all have begun
    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(functions.close) for _ in range(3)]:
            each.result()
    assert closed == [1]


def test_errors_of_several_environments():
    first, second = HostFunctions(Faulty()), HostFunctions(Faulty())
    first.env.error, second.env.error = KeyError("first"), KeyError("second")

    @jax.jit
    def run():
        a, b = first.reset()[0], second.reset()[0]
        for _ in range(2):
            a, b = first.step(a, 0)[0], second.step(b, 1)[0]
        return first.step(a, 0)[0]

    with pytest.raises(KeyError, match="first"), second.errors(), first.errors():
        run()


def test_several_environments_in_one_program():
    envs = [HostFunctions(gym.make(name)) for name in ("CartPole-v1", "MountainCar-v0")]

    @jax.jit
    def run():
        carry = [functions.reset(seed)[:2] for seed, functions in enumerate(envs)]

        def one(carry, _):
            found = []
            for functions, (state, _observation) in zip(envs, carry, strict=True):
                state, outcome = functions.step(state, 1)
                found.append((state, outcome.observation))
            return found, [observation for _, observation in found]

        return jax.lax.scan(one, carry, None, length=5)[1]

    for name, seed, found in zip(("CartPole-v1", "MountainCar-v0"), range(2), run(), strict=True):
        env = gym.make(name)
        env.reset(seed=seed)
        for step in range(5):
            assert (env.step(1)[0] == found[step]).all()


def test_a_state_is_used_once():
    functions = HostFunctions(gym.make("CartPole-v1"))
    with functions.errors():
        state, _, _ = functions.reset(seed=0)
        newer, _ = functions.step(state, 0)
        with (
            pytest.raises(
                StaleStateError, match=r"state 1 of CartPole-v1 is not its newest, which is 2"
            ),
            functions.errors(),
        ):
            functions.step(state, 1)
        functions.step(newer, 1)
        functions.reset()
    with pytest.raises(StaleStateError), functions.errors():
        functions.step(newer, 1)
    with pytest.raises(af.OptionError, match="is not a state of CartPole-v1"):
        functions.step(None, 1)


def test_wrong_actions():
    functions = HostFunctions(Everything())
    state = functions.reset()[0]
    good = {"move": jnp.zeros(2), "jump": 0}
    for action, words in (
        ({"move": jnp.zeros(2)}, "'jump' is missing"),
        ([1, 2], "it takes a dict with the keys"),
        ({**good, "move": jnp.zeros(3)}, r"the shape \(2,\), not \(3,\), at \['move'\]"),
        ({**good, "jump": 0.5}, r"it takes whole numbers|is no int64"),
    ):
        with pytest.raises(af.ConversionError, match=words):
            jax.jit(functions.step)(state, action)
    with pytest.raises(af.ConversionError, match=r"Discrete\(3\)"), functions.errors():
        functions.step(state, {**good, "jump": 3})
    functions.step(state, {**good, "move": jnp.zeros((1, 2))})


def test_vmap_and_grad_are_refused_in_words():
    functions = HostFunctions(Everything())
    state = functions.reset()[0]

    def step(move):
        return functions.step(state, {"move": move, "jump": 0})[1].reward

    with pytest.raises(
        af.TracedValueError, match=r"the step of Everything cannot be batched by vmap"
    ):
        jax.vmap(step)(jnp.zeros((3, 2)))
    with pytest.raises(af.TracedValueError, match="the reset of Everything cannot be batched"):
        jax.vmap(lambda seed: functions.reset(seed)[1]["wide"])(jnp.arange(3))
    with pytest.raises(
        af.TracedValueError, match=r"the step of Everything runs outside .*stop_gradient"
    ):
        jax.grad(step)(jnp.zeros(2))
    assert jax.grad(lambda x: x * step(jax.lax.stop_gradient(jnp.full(2, x))))(1.0) == 1.5


def test_gradients_go_past_an_environment():
    """As those of a policy do, whose actions are sampled."""
    functions = HostFunctions(gym.make("CartPole-v1"))

    def loss(weight, key):
        state, observation, _ = functions.reset(0)
        total = 0.0
        for each in jax.random.split(key, 3):
            logit = observation @ weight
            action = jax.random.bernoulli(each, jax.nn.sigmoid(logit)).astype(int)
            total += jax.nn.log_sigmoid(jnp.where(action == 1, logit, -logit))
            state, outcome = functions.step(state, action)
            observation = outcome.observation
        return total

    gradient = jax.jit(jax.grad(loss))(jnp.ones(4), jax.random.key(0))
    assert np.isfinite(gradient).all()
    assert (gradient != 0).any()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Text(5), r"Text\(1, 5"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
        (spaces.Dict({"a": spaces.Tuple([spaces.Text(5)])}), r"at \['a'\]\[0\]"),
    ],
)
def test_spaces_without_a_fixed_shape(space, words):
    env = Everything()
    env.observation_space = space
    with pytest.raises(af.OptionError, match=words):
        HostFunctions(env)


def test_what_is_no_ordinary_environment():
    with pytest.raises(TypeError, match=r"not a gymnasium\.Env"):
        HostFunctions(CartPole())
    for env in (
        gym.make("phys2d/CartPole-v1"),
        gym.make_vec("arrayferry/CartPole-v0", num_envs=2, xp="jax"),
    ):
        with pytest.raises(af.OptionError, match="computes in JAX"):
            HostFunctions(env)


class Wrong(gym.Env):
    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, observation, reward=0.0):
        self.observation, self.reward = observation, reward

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return self.observation, self.reward, False, False, {}


@pytest.mark.parametrize(
    ("observation", "reward", "words"),
    [
        (np.zeros(3, np.float32), 0.0, r"shape \(3,\) was returned, where the observation space"),
        (np.array([1e300, 0]), 0.0, "do not fit float32"),
        (np.array([1j, 0]), 0.0, "do not fit float32"),
        (np.array([2**53 + 1, 0]), 0.0, "do not fit float32"),
        (np.zeros(2, np.float32), [1.0, 2.0], r"shape \(2,\) .* the reward of Wrong"),
        ("text", 0.0, "was returned"),
    ],
)
def test_wrong_results_of_an_environment(observation, reward, words):
    functions = HostFunctions(Wrong(observation, reward))
    with pytest.raises(EnvResultError, match=words), functions.errors():
        functions.step(functions.reset()[0], 0)


def test_results_that_fit_are_cast():
    functions = HostFunctions(Wrong(np.array([1, -1]), np.float64(2)))
    _, outcome = functions.step(functions.reset()[0], 0)
    assert outcome.observation.tolist() == [1.0, -1.0]
    assert outcome.observation.dtype == np.float32
    short = HostFunctions(Wrong(np.array([1, -1], jnp.bfloat16)))
    assert short.step(short.reset()[0], 0)[1].observation.tolist() == [1.0, -1.0]
    rewards = HostFunctions(Wrong(np.zeros(2), [1.0, 2.0]), reward_like=np.zeros(2))
    assert rewards.step(rewards.reset()[0], 0)[1].reward.tolist() == [1.0, 2.0]


def test_closing():
    functions = HostFunctions(gym.make("CartPole-v1"))
    run = collect(functions, None, 3)
    run(0, jax.random.key(0))  # perhaps still at work
    functions.close()
    functions.close()
    with (
        pytest.raises(
            gym.error.ClosedEnvironmentError,
            match="CartPole-v1 is closed, but compiled code calls its reset",
        ),
        functions.errors(),
    ):
        run(0, jax.random.key(0))


def test_compiled_code_does_not_keep_an_environment():
    def compile_one():
        functions = HostFunctions(gym.make("CartPole-v1"))
        compiled = jax.jit(lambda: functions.reset(0)[1]).lower().compile()
        assert compiled().shape == (4,)
        return compiled, weakref.ref(functions)

    compiled, alive = compile_one()
    gc.collect()
    assert alive() is None
    with pytest.raises(jax.errors.JaxRuntimeError, match="CartPole-v1 is gone"):
        jax.block_until_ready(compiled())


def test_seeds():
    functions = HostFunctions(make_vec(2))
    by_number = functions.reset(5)[1]
    assert (by_number == functions.reset(jnp.int32(5))[1]).all()
    assert (by_number == functions.reset([5, 6])[1]).all()
    assert (by_number == functions.reset(jnp.array([5, 6]))[1]).all()
    assert (by_number != functions.reset()[1]).any()
    keyed = functions.reset(jax.random.key(0))[1]
    assert (keyed == functions.reset(jax.random.key(0))[1]).all()
    assert (keyed != functions.reset(jax.random.key(1))[1]).any()


def test_rollout():
    envs = make_vec(3, AutoresetMode.SAME_STEP)
    functions = HostFunctions(envs)

    def policy(params, observation, key):
        return jax.random.randint(key, observation.shape[:1], 0, 2), observation.sum(-1) * params

    carry, first = rollout(functions, policy, 2.0, jax.random.key(0), 50)
    carry, _ = rollout(functions, policy, 2.0, jax.random.key(1), 50, 3, carry=carry)
    assert first.reward.shape == (50, 3)
    assert first.terminated.sum() > 2
    ended = np.asarray(first.terminated)[:-1]
    following = np.asarray(first.observation)[1:]
    same = (np.asarray(first.final_observation)[:-1] == following).all(-1)
    assert (same == ~ended).all()
    run = functools.partial(
        rollout, policy=policy, policy_params=2.0, key=jax.random.key(0), num_steps=5
    )
    for env, options, words in (
        (functions, {"num_envs": 4}, "has 3"),
        (functions, {"env_params": {}}, "its own"),
        (functions, {"max_episode_steps": 9}, "its own"),
        (HostFunctions(make_vec(2)), {}, "same step"),
        (HostFunctions(gym.make("CartPole-v1")), {}, "same step"),
        (CartPole(), {}, "num_envs=None"),
    ):
        with pytest.raises(af.OptionError, match=words):
            run(env, **options)
    alive = weakref.ref(functions)
    del functions, env
    gc.collect()
    assert alive() is None


def test_disabled_autoreset():
    """Environments are reset by a mask among the options."""
    functions = HostFunctions(make_vec(2, AutoresetMode.DISABLED))

    @jax.jit
    def run():
        state, _, _ = functions.reset(0)
        state, outcome = functions.step(state, jnp.zeros(2, int))
        state, observation, _ = functions.reset(options={"reset_mask": jnp.array([True, False])})
        return outcome.observation, observation

    before, after = run()
    assert (before[1] == after[1]).all()
    assert (before[0] != after[0]).any()


def test_without_jit_and_with_x64(request):
    functions = HostFunctions(gym.make("CartPole-v1"))
    with jax.disable_jit(), functions.errors():
        state, observation, _ = functions.reset(3)
        _, outcome = functions.step(state, 1)
    env = gym.make("CartPole-v1")
    assert (env.reset(seed=3)[0] == observation).all()
    assert (env.step(1)[0] == outcome.observation).all()
    request.getfixturevalue("x64")
    wide = HostFunctions(Everything())
    assert wide.reset()[1]["wide"].dtype == np.float64
    assert wide.reset()[1]["pair"][0].dtype == np.int64
    with pytest.raises(af.OptionError, match="jax_enable_x64 off"):
        functions.reset()


@pytest.mark.long
def test_threads():
    """Each has an environment of its own; together they use JAX."""

    def work(seed):
        functions = HostFunctions(gym.make("CartPole-v1"))
        run = collect(functions, None, 200)
        first = np.asarray(run(seed, jax.random.key(seed)).observation)
        for _ in range(3):
            assert (np.asarray(run(seed, jax.random.key(seed)).observation) == first).all()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))


def test_a_wrapped_vector_environment():
    """Wrappers of Gymnasium work inside."""
    envs = gym.wrappers.vector.RecordEpisodeStatistics(make_vec(2, AutoresetMode.SAME_STEP))
    like = {"episode": {"r": np.zeros(2), "l": np.zeros(2, int)}}
    functions = HostFunctions(envs, info_like=like)

    @jax.jit
    def run():
        state = functions.reset(0)[0]
        return jax.lax.scan(
            lambda s, _: (lambda s, o: (s, (o.info, o.terminated)))(*functions.step(s, jnp.ones(2, int))),
            state, None, length=30,
        )[1]  # fmt: skip

    info, terminated = jax.tree.map(np.asarray, run())
    assert terminated.any()
    assert (info["episode"]["r"][terminated] > 5).all()
    assert (info["episode"]["r"][~terminated] == 0).all()


@pytest.mark.long
def test_copies_have_an_environment_of_their_own():
    functions = HostFunctions(gym.make("CartPole-v1"), info_like={"x": np.zeros(1)})
    run = collect(functions, None, 20)
    expected = np.asarray(run(0, jax.random.key(0)).observation)
    for other in (pickle.loads(pickle.dumps(functions)), copy.deepcopy(functions)):
        assert other.env is not functions.env
        found = collect(other, None, 20)(0, jax.random.key(0))
        assert (np.asarray(found.observation) == expected).all()
        assert found.info["x"].shape == (20, 1)


def test_repr():
    functions = HostFunctions(SyncVectorEnv([Everything] * 2))
    assert repr(functions) == "<HostFunctions of SyncVectorEnv>"
