"""Ordinary environments inside `jit`."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import Forgetful, Takes, at_random, begun, make_vec
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import arrayferry as af
from arrayferry_envs import CartPole, EnvResultError, HostFunctions, StaleStateError

SAME = AutoresetMode.SAME_STEP


def of(make, number=1):
    """Return the functions of a vector environment."""
    return HostFunctions(SyncVectorEnv([make] * number, autoreset_mode=SAME))


def cart_poles(number=1):
    return HostFunctions(make_vec(number, SAME))


def collect(functions, steps):
    """Return a compiled function that takes steps with random actions."""

    @jax.jit
    def run(seed, key):
        def one(carry, key):
            state, observation = carry
            state, outcome = functions.step(state, at_random(None, observation, key)[0])
            return (state, outcome.observation), outcome

        return jax.lax.scan(one, functions.reset(seed), jax.random.split(key, steps))[1]

    return run


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda: make_vec(4, SAME), 500),
        (lambda: CartPole().make_vec(4, xp="torch", autoreset_mode="SameStep"), 50),
    ],
    ids=["Gymnasium", "PyTorch"],
)
def test_steps_equal_those_of_a_loop(make, steps):
    found = collect(HostFunctions(make()), steps)(3, jax.random.key(0))
    envs = begun(make(), 3)
    for step, key in enumerate(jax.random.split(jax.random.key(0), steps)):
        *results, infos = envs.step(np.asarray(at_random(None, np.zeros(4), key)[0]))
        results = af.convert(results, "numpy")
        final = results[0].copy()
        for row in np.flatnonzero(results[2] | results[3]):
            final[row] = af.convert(infos["final_obs"][row], "numpy")
        for one, other in zip(found[:4], results, strict=True):
            assert (one[step] == other).all()
        assert (found.final_observation[step] == final).all()
    assert found.terminated.sum() > steps / 25


class Everything(gym.Env):
    """Nested spaces of several dtypes. It writes to its observations in place."""

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
        self.image[:] = 10
        return self._observation(), {}

    def step(self, action):
        self.image += 1
        self.actions.append(action)
        return self._observation(), 1.5, False, False, {"left": "out"}


def test_nested_spaces():
    env = Everything()
    functions = of(lambda: env)

    @jax.jit
    def run():
        state, observation = functions.reset(7)
        action = {"move": jnp.array([[0.5, -0.5]]), "jump": jnp.full(1, 2)}
        state, first = functions.step(state, action)
        state, second = functions.step(state, action)
        return observation, first, second

    observation, first, second = run()
    assert observation["image"].dtype == np.uint8
    assert observation["pair"][0].tolist() == [4]
    assert observation["wide"].dtype == np.float32
    seen = observation, first.observation, second.final_observation
    assert [int(x["image"][0, 0, 0]) for x in seen] == [10, 11, 12]
    assert first.reward.tolist() == [1.5]
    assert first.info == {}
    assert env.actions[0]["jump"] == 2
    assert env.actions[0]["move"].tolist() == [0.5, -0.5]


class Reusing(VectorEnv):
    """Has the same arrays in all results. Its rewards have two dimensions."""

    metadata: ClassVar = {"autoreset_mode": SAME}
    num_envs = 1
    single_observation_space = spaces.Box(0, 9, (1,))
    observation_space = spaces.Box(0, 9, (1, 1))
    single_action_space, action_space = spaces.Discrete(2), spaces.MultiDiscrete([2])
    reward_space = spaces.Box(0, 9, (2,))

    def __init__(self):
        self.observation, self.final = np.zeros((2, 1, 1), np.float32)
        self.reward = np.zeros((1, 2))
        self.ended = np.zeros(1, bool)

    def reset(self, *, seed=None, options=None):
        self.observation[:], self.final[:], self.reward[:], self.ended[:] = 0, 0, 0, False
        return self.observation, {}

    def step(self, actions):
        self.final += 1
        self.reward += 2
        self.ended[:] = ~self.ended
        infos = {"final_obs": self.final, "_final_obs": self.ended} if self.ended.any() else {}
        return self.observation, self.reward, self.ended, np.zeros(1, bool), infos


@pytest.mark.parametrize("compiled", [False, True])
def test_arrays_that_the_environment_uses_again(compiled):
    functions = HostFunctions(Reusing())
    step = jax.jit(functions.step) if compiled else functions.step
    state, observation = functions.reset(seed=1)
    outcomes = []
    for _ in range(3):
        state, outcome = step(state, jnp.array([0]))
        outcomes.append(outcome)
    assert observation.tolist() == [[0]]
    assert [o.final_observation.item() for o in outcomes] == [1, 0, 3]
    assert [o.reward.tolist() for o in outcomes] == [[[2, 2]], [[4, 4]], [[6, 6]]]
    assert [o.terminated.item() for o in outcomes] == [True, False, True]


class Faulty(Takes):
    """Raises at the third step."""

    def __init__(self, error):
        super().__init__(spaces.Discrete(2))
        self.error = error

    def reset(self, **options):
        self.count = 0
        return super().reset(**options)

    def step(self, action):
        self.count += 1
        if self.count == 3:
            raise self.error
        return super().step(action)


@pytest.mark.parametrize("error", [KeyError("broken"), SystemExit(3), KeyboardInterrupt()])
def test_exceptions_of_the_environment(error):
    functions = of(lambda: Faulty(error))

    @jax.jit
    def run(steps):
        zero = jnp.zeros(1, int)
        state = functions.reset()[0]
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
    functions = cart_poles()
    broken = jax.jit(lambda x: jax.pure_callback(lambda x: 1 / 0, x, x))

    @functions.errors()
    def run():
        state = functions.reset(seed=0)[0]
        with pytest.raises(jax.errors.JaxRuntimeError, match="ConversionError"):
            jax.block_until_ready(functions.step(state, jnp.array([7])))
        functions.step(state, jnp.array([0]))
        jax.block_until_ready(broken(jnp.ones(2)))

    with pytest.raises(jax.errors.JaxRuntimeError, match="ZeroDivisionError"):
        run()


def test_errors_of_several_environments():
    first, second = (of(lambda name=name: Faulty(KeyError(name))) for name in ("first", "second"))
    zero = jnp.zeros(1, int)

    @jax.jit
    def run():
        a, b = first.reset()[0], second.reset()[0]
        for _ in range(2):
            a, b = first.step(a, zero)[0], second.step(b, zero)[0]
        return first.step(a, zero)[0]

    with pytest.raises(KeyError, match="first"), second.errors(), first.errors():
        run()


def test_a_state_is_used_once():
    functions, action = cart_poles(), jnp.array([0])
    with functions.errors():
        state, _ = functions.reset(seed=0)
        newer, _ = functions.step(state, action)
        with (
            pytest.raises(
                StaleStateError, match=r"state 1 of CartPole-v1 is not its newest, which is 2"
            ),
            functions.errors(),
        ):
            functions.step(state, action)
        functions.step(newer, action)
        functions.reset()
    for wrong in (newer, None):
        with pytest.raises(StaleStateError), functions.errors():
            functions.step(wrong, action)


def test_wrong_actions():
    functions = of(Everything)
    state = functions.reset()[0]
    good = {"move": jnp.zeros((1, 2)), "jump": jnp.zeros(1, int)}
    for action, words in (
        ({"move": jnp.zeros((1, 2))}, "'jump' is missing"),
        ([1, 2], "it takes a dict with the keys"),
        ({**good, "move": jnp.zeros((1, 3))}, r"the shape \(1, 2\), not \(1, 3\), at \['move'\]"),
        ({**good, "jump": jnp.full(1, 0.5)}, r"it takes whole numbers|is no int64"),
        ({**good, "jump": jnp.full(1, 3)}, r"MultiDiscrete\(\[3\]\)"),
    ):
        with pytest.raises(af.ConversionError, match=words), functions.errors():
            jax.jit(functions.step)(state, action)
    functions.step(state, good)


def test_vmap_and_grad_are_refused_in_words():
    functions = of(Everything)
    state = functions.reset()[0]

    def step(move):
        action = {"move": move[None], "jump": jnp.zeros(1, int)}
        return functions.step(state, action)[1].reward[0]

    with pytest.raises(
        af.TracedValueError, match=r"the step of SyncVectorEnv cannot be batched by vmap"
    ):
        jax.vmap(step)(jnp.zeros((3, 2)))
    with pytest.raises(af.TracedValueError, match="the reset of SyncVectorEnv cannot be batched"):
        jax.vmap(lambda seed: functions.reset(seed)[1]["wide"])(jnp.arange(3))
    with pytest.raises(
        af.TracedValueError, match=r"the step of SyncVectorEnv runs outside .*stop_gradient"
    ):
        jax.grad(step)(jnp.zeros(2))
    assert jax.grad(lambda x: x * step(jax.lax.stop_gradient(jnp.full(2, x))))(1.0) == 1.5


def test_gradients_go_past_an_environment():
    """As those of a policy do, whose actions are sampled."""
    functions = cart_poles()

    def loss(weight, key):
        state, observation = functions.reset(0)
        logit = observation @ weight
        action = jax.random.bernoulli(key, jax.nn.sigmoid(logit)).astype(int)
        _, outcome = functions.step(state, action)
        return jax.nn.log_sigmoid(outcome.observation @ weight).sum()

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
        of(lambda: env)


class Wrong(Reusing):
    def __init__(self, observation, reward):
        super().__init__()
        self.results = observation, reward

    def step(self, actions):
        return (*self.results, np.zeros(1, bool), np.zeros(1, bool), {})


@pytest.mark.parametrize(
    ("observation", "reward", "words"),
    [
        (np.zeros((1, 3)), np.zeros((1, 2)), r"shape \(1, 3\) was returned, where the observation"),
        (np.array([[1e300]]), np.zeros((1, 2)), "do not fit float32"),
        (np.array([[1j]]), np.zeros((1, 2)), "do not fit float32"),
        (np.array([[2**53 + 1]]), np.zeros((1, 2)), "do not fit float32"),
        (np.zeros((1, 1)), np.zeros(1), r"shape \(1,\) .* the reward of Wrong"),
        ("text", np.zeros((1, 2)), "was returned"),
    ],
)
def test_wrong_results_of_an_environment(observation, reward, words):
    functions = HostFunctions(Wrong(observation, reward))
    with pytest.raises(EnvResultError, match=words), functions.errors():
        functions.step(functions.reset()[0], jnp.array([0]))


@pytest.mark.parametrize("dtype", [np.int64, jnp.bfloat16])
def test_results_that_fit_are_cast(dtype):
    functions = HostFunctions(Wrong(np.array([[1]], dtype), np.array([[1, 2]], dtype)))
    _, outcome = functions.step(functions.reset()[0], jnp.array([0]))
    assert outcome.observation.tolist() == [[1.0]]
    assert outcome.observation.dtype == outcome.reward.dtype == np.float32
    assert outcome.reward.tolist() == [[1.0, 2.0]]


def test_missing_final_observations_are_an_error():
    env = functools.partial(gym.make, "CartPole-v1", max_episode_steps=2)
    functions = HostFunctions(Forgetful(SyncVectorEnv([env], autoreset_mode=SAME)))
    with functions.errors():
        state, _ = functions.step(functions.reset(0)[0], jnp.array([0]))
        with pytest.raises(af.OptionError, match="no 'final_obs'"), functions.errors():
            functions.step(state, jnp.array([0]))


def test_compiled_code_does_not_keep_an_environment():
    def compile_one():
        functions = cart_poles()
        compiled = jax.jit(lambda: functions.reset(0)[1]).lower().compile()
        assert compiled().shape == (1, 4)
        return compiled, weakref.ref(functions)

    compiled, alive = compile_one()
    gc.collect()
    assert alive() is None
    with pytest.raises(jax.errors.JaxRuntimeError, match="CartPole-v1 is gone"):
        jax.block_until_ready(compiled())


def test_seeds():
    functions = cart_poles(2)
    by_number = functions.reset(5)[1]
    assert (by_number == functions.reset(jnp.int32(5))[1]).all()
    assert (by_number == functions.reset([5, 6])[1]).all()
    assert (by_number == functions.reset(jnp.array([5, 6]))[1]).all()
    assert (by_number != functions.reset()[1]).any()
    assert functions.reset(2**40)[1].shape == (2, 4)
    keyed = functions.reset(jax.random.key(0))[1]
    assert (keyed == functions.reset(jax.random.key(0))[1]).all()
    assert (keyed != functions.reset(jax.random.key(1))[1]).any()


def test_without_jit_and_with_x64(request):
    functions, action = cart_poles(), jnp.array([1])
    with jax.disable_jit(), functions.errors():
        state, observation = functions.reset(3)
        _, outcome = functions.step(state, action)
    env = gym.make("CartPole-v1")
    assert (env.reset(seed=3)[0] == observation[0]).all()
    assert (env.step(1)[0] == outcome.observation[0]).all()
    wide = of(Everything)
    assert wide.reset()[1]["wide"].dtype == np.float32
    request.getfixturevalue("x64")
    assert wide.reset()[1]["wide"].dtype == np.float64
    assert wide.reset()[1]["pair"][0].dtype == np.int64


@pytest.mark.long
def test_threads():
    """Each has an environment of its own; together they use JAX."""

    def work(seed):
        functions = cart_poles()
        run = collect(functions, 200)
        first = np.asarray(run(seed, jax.random.key(seed)).observation)
        for _ in range(3):
            assert (np.asarray(run(seed, jax.random.key(seed)).observation) == first).all()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))


@pytest.mark.long
def test_copies_have_an_environment_of_their_own():
    functions = HostFunctions(CartPole().make_vec(1, xp="numpy", autoreset_mode="SameStep"))
    expected = np.asarray(collect(functions, 20)(0, jax.random.key(0)).observation)
    for other in (pickle.loads(pickle.dumps(functions)), copy.deepcopy(functions)):
        assert other.env is not functions.env
        found = collect(other, 20)(0, jax.random.key(0))
        assert (np.asarray(found.observation) == expected).all()
