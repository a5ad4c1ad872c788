"""Environments in JAX: no recompilation, pure functions, rollouts and episodes in one compiled call."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import equinox
import flax.linen
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boxes import Plain
from cases import crossed, quick_if
from envs import MODES, begun
from functional_envs import Bare, Sums, at_random, compilations
from gymnasium import spaces

import arrayferry as af
import arrayferry_envs
from arrayferry_envs import CartPole, FunctionalEnv, Functions, Pendulum, evaluate, rollout, wrap
from arrayferry_gym.wrappers import kernels

CLASSES = [CartPole, Pendulum]


class Counter(Bare):
    max_episode_steps = 100
    default_params = {"end": 4.0, "stride": 1}

    def reset(self, xp, rng, n, params):
        return Plain(xp.zeros((n,), dtype=xp.float32))

    def step(self, xp, rng, state, action, params):
        count = state.x + params["stride"]
        return Plain(count), count, count >= params["end"]

    def observe(self, xp, state, params):
        return state.x[:, None]


@pytest.fixture
def compiled(capfd):
    """Tells whether JAX has compiled anything since it was asked last."""
    with jax.log_compiles():
        yield lambda: "Compiling" in capfd.readouterr().err


@MODES
def test_nothing_is_compiled_again(mode, compiled):
    envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=100, xp="jax", autoreset_mode=mode)
    action = np.random.default_rng(0).integers(0, 2, 100)
    for gravity in (9.8, 5.0):
        envs.reset(seed=0, options={"params": {"gravity": gravity}})
        envs.step(action)
    for _ in range(3):  # a converter learns
        envs.reset(options={"reset_mask": np.zeros(100, bool)})
    assert compiled()
    rng = np.random.default_rng(1)
    ended = 0
    for index in range(400):
        _, _, terminated, _, _ = envs.step(rng.integers(0, 2, 100))
        if index % 100 == 0:
            ended += int(np.asarray(terminated).sum())
            envs.reset(options={"reset_mask": rng.random(100) < 0.5})
        if index % 200 == 0:
            envs.reset(seed=index, options={"params": {"gravity": 1.0 + index}})
    assert ended > 4
    assert not compiled()


def test_static_parameters_are_compiled_once_for_each_value(compiled):
    envs = Counter().make_vec(3, xp="jax")
    for stride in (1, 2):
        envs.reset(seed=0, options={"params": {"stride": stride}})
        envs.step(np.zeros(3, int))
    assert compiled()
    found = []
    for stride in (1, 2, 1, 2):
        envs.reset(seed=0, options={"params": {"stride": stride}})
        found.append(float(np.asarray(envs.step(np.zeros(3, int))[0])[0, 0]))
    assert found == [1, 2, 1, 2]
    assert not compiled()


def leaning(params, observation, key):
    return (observation[:, 2] > params).astype(int), None


TOTALS = {
    "rollout": lambda bias, key: rollout(CartPole(), leaning, bias, key, 20, 4)[1].reward.sum(),
    "evaluate": lambda bias, key: evaluate(
        CartPole(), leaning, policy_params=bias, key=key, num_envs=4
    ).returns.mean(),
}


@pytest.mark.parametrize("run", quick_if(TOTALS, "rollout".__eq__))
def test_under_vmap_and_jit(run):
    biases, keys = jnp.array([-0.1, 0.0, 0.1]), jax.random.split(jax.random.key(0), 3)
    found = jax.jit(jax.vmap(TOTALS[run]))(biases, keys)
    alone = [float(TOTALS[run](bias, key)) for bias, key in zip(biases, keys, strict=True)]
    assert np.allclose(found, alone)


# Gradients.


@pytest.mark.parametrize(
    ("of", "at"), [("policy_params", 0.5), pytest.param("env_params", 1.0, marks=pytest.mark.long)]
)
def test_gradients(of, at):
    def policy(torque, observation, key):
        return torque * jnp.cos(observation[:, :1]), None

    def total(x):
        given = {"policy_params": x} if of == "policy_params" else {"env_params": {"length": x}}
        options = {"policy_params": 0.0, **given, "key": jax.random.key(0), "num_envs": 4}
        return rollout(Pendulum(), policy, num_steps=20, **options)[1].reward.sum()

    step = 1e-2
    by_hand = (total(at + step) - total(at - step)) / (2 * step)
    assert np.isclose(jax.grad(total)(at), by_hand, rtol=1e-2)


def test_gradients_of_an_evaluation_are_refused():
    def of_an_evaluation(torque):
        def policy(params, observation, key):
            return params * jnp.ones((1, 1)), None

        options = {"policy_params": torque, "key": jax.random.key(0), "num_envs": 1}
        return evaluate(Pendulum(), policy, **options).returns.sum()

    with pytest.raises(ValueError, match=r"[Rr]everse-mode differentiation"):
        jax.grad(of_an_evaluation)(0.5)


FLAGS = {
    "disable_jit": lambda enable_x64: jax.disable_jit(),
    "debug_nans": lambda enable_x64: jax.debug_nans(True),
    "enable_x64": lambda enable_x64: enable_x64(True),
    "rank_promotion": lambda enable_x64: jax.numpy_rank_promotion("raise"),
    "dtype_promotion": lambda enable_x64: jax.numpy_dtype_promotion("strict"),
}
FLAGGED = {
    "plain": CartPole(), "no pytree": Counter(),
    "statistics": wrap(
        Sums(), kernels.RecordEpisodeStatistics(), kernels.NormalizeObservation(), kernels.NormalizeReward()
    ),
    "kernels": wrap(
        Sums(), kernels.RescaleAction(np.float32(-0.5), np.float32(0.25)), kernels.ClipAction(),
        kernels.RescaleObservation(np.float32(-1), np.float32(1)), kernels.DelayObservation(1),
        kernels.TimeAwareObservation(flatten=False), kernels.FilterObservation(["obs"]),
        kernels.FrameStackObservation(3, padding_type="zero"), kernels.FlattenObservation(),
        kernels.TransformReward(lambda x: x * 2), kernels.ClipReward(-0.3, 0.4),
    ),
}  # fmt: skip


def cosine(params, observation, key):
    return jnp.cos(observation.reshape(observation.shape[0], -1)[:, 0]).astype(jnp.float32), None


@pytest.mark.parametrize(("flag", "name"), crossed(FLAGS, FLAGGED))
def test_flags_of_jax(name, flag, enable_x64):
    env, key = FLAGGED[name], jax.random.key(0)
    policy = at_random if isinstance(env.action_space, spaces.Discrete) else cosine

    def run():
        carry, first = rollout(env, policy, None, key, 4, 3)
        _, then = rollout(env, policy, None, key, 6, 3, carry=carry)
        states = {"wrapper_state": carry.env_state.wrappers} if name == "statistics" else {}
        options = {"key": key, "num_envs": 2, "max_episode_steps": 10, **states}
        results = evaluate(env, policy, **options)
        return first.observation, first.reward, then.observation, then.reward, results

    usual = jax.tree.map(np.asarray, run())
    with FLAGS[flag](enable_x64):
        found = run()
        envs = begun(env.make_vec(3, xp="jax"), 0)
        for _ in range(12):
            envs.step(np.zeros(3, env.action_space.dtype))
    if (flag, name) != ("enable_x64", "plain"):  # with which other numbers are drawn
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(usual), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cls", quick_if(CLASSES, lambda cls: cls is CartPole))
def test_strict_promotion_of_dtypes(cls):
    """With 64 environments: from there on, resets of few and of many are compiled apart."""
    env, n, key = cls(), 64, jax.random.key(0)
    discrete = isinstance(env.action_space, spaces.Discrete)

    def policy(params, observation, key):
        if discrete:
            return jax.random.randint(key, (n,), 0, env.action_space.n), None
        return jax.random.uniform(key, (n, *env.action_space.shape), minval=-3, maxval=3), None

    with jax.numpy_dtype_promotion("strict"):
        _, found = rollout(env, policy, None, key, 3, n, max_episode_steps=2)
        assert found.truncated[1].all()
        results = evaluate(env, policy, key=key, num_envs=n, max_episode_steps=2)
        assert (results.lengths == 2).all()
        envs = begun(env.make_vec(n, xp="jax", max_episode_steps=2), 0)
        for dtype in (np.int64, np.int32, np.uint8) if discrete else (np.float64, np.float32):
            action = np.ones((n, *env.action_space.shape), dtype)
            envs.step(action)
        assert envs.reset(options={"reset_mask": np.arange(n) % 2 == 0})[0].shape[0] == n


# Policies and environments of all kinds.


def of_equinox():
    module = equinox.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
    return lambda module, x, key: jax.vmap(module)(x), module


def of_flax():
    module = flax.linen.Dense(2)
    params = module.init(jax.random.key(0), jnp.zeros((1, 4)))
    return lambda params, x, key: module.apply(params, x), params


def of_haiku():
    haiku = pytest.importorskip("haiku")
    module = haiku.transform(lambda x: haiku.Linear(2)(x))
    params = module.init(jax.random.key(0), jnp.zeros((1, 4)))
    return lambda params, x, key: module.apply(params, key, x), params


@pytest.mark.long
@pytest.mark.parametrize("make", [of_equinox, of_flax, of_haiku])
def test_policies_learn_inside_jit(make):
    logits, params = make()

    def act(params, observation, key):
        scores = logits(params, observation, key)
        action = jax.random.categorical(key, scores)
        return action, jax.nn.log_softmax(scores)[jnp.arange(len(action)), action]

    @equinox.filter_jit
    @equinox.filter_value_and_grad
    def objective(params):
        _, transitions = rollout(CartPole(), act, params, jax.random.key(0), 16, 8)
        return -(transitions.extras * transitions.reward).mean()

    value, gradients = objective(params)
    assert np.isfinite(value)
    leaves = jax.tree.leaves(equinox.filter(gradients, equinox.is_array))
    assert leaves
    assert all(np.any(leaf != 0) for leaf in leaves)


class EquinoxEnv(equinox.Module, Bare):
    """An environment that is an Equinox module, with an array in it."""

    slope: jax.Array
    observation_space = spaces.Box(-100, 100, (2,), np.float32)

    def step(self, xp, rng, state, action, params):
        state = state + self.slope
        return state, state[:, 0], False


@pytest.mark.long
def test_environments_of_equinox():
    env = EquinoxEnv(jnp.array([1.0, 2.0]))
    envs = begun(env.make_vec(3, xp="jax"), 0)
    assert envs.step(np.zeros(3, int))[0].tolist() == [[1, 2]] * 3

    def total(env):
        return rollout(env, at_random, None, jax.random.key(0), 3, 2)[1].reward.sum()

    assert total(env) == 12
    assert equinox.filter_grad(total)(env).slope.tolist() == [12, 0]


def test_progress_from_inside():
    seen = []

    class Talks(Counter):
        def step(self, xp, rng, state, action, params):
            jax.debug.callback(lambda count: seen.append(float(count[0])), state.x)
            jax.debug.print("{}", state.x[0])
            return super().step(xp, rng, state, action, params)

    rollout(Talks(), at_random, None, jax.random.key(0), 6, 2)
    jax.effects_barrier()
    assert sorted(seen) == [0, 0, 1, 1, 2, 3]


def test_keys_of_the_author():
    class Keys(Counter):
        def step(self, xp, rng, state, action, params):
            draw = jax.random.uniform(rng.key(), state.x.shape)
            return Plain(state.x + 1), draw + rng.uniform((state.x.shape[0],)), False

    _, transitions = rollout(Keys(), at_random, None, jax.random.key(0), 50, 20)
    assert len(np.unique(transitions.reward)) > 990
    envs = begun(Keys().make_vec(20, xp="jax"), 0)
    rewards = np.array([envs.step(np.zeros(20, int))[1] for _ in range(50)])
    assert len(np.unique(rewards)) > 990


@pytest.mark.parametrize("n", quick_if([10, 64, 200], (10).__eq__))
def test_resets_of_few_and_of_many_are_drawn_apart(n):
    class Draws(Bare):
        def reset(self, xp, rng, n, params):
            return rng.uniform((n, 1), 0.0, 2.0)

        def step(self, xp, rng, state, action, params):
            state = state + 0.1 * xp.astype(action, xp.float32)[:, None]
            return state, 1.0, state[:, 0] > 3

    for share in (0.02, 0.1, 0.5, 1.0):
        envs = begun(Draws().make_vec(n, xp="jax", autoreset_mode="SameStep"), 0)
        ended = np.random.default_rng(0).random(n) <= share
        before = np.where(ended, 2.95, 1.0).astype(np.float32)
        envs.state = jnp.asarray(before)[:, None]
        observation, _, terminated, _, infos = envs.step(np.ones(n, int))
        observation = np.asarray(observation)[:, 0]
        assert np.array_equal(terminated, ended)
        assert np.allclose(infos["final_obs"][:, 0], before + 0.1)
        assert np.allclose(observation[~ended], 1.1)
        assert len(np.unique(observation[ended])) == ended.sum()
        assert np.all((observation[ended] >= 0) & (observation[ended] < 2))


@dataclasses.dataclass
class PlainParams:
    scale: Any = 1.0
    steps: int = 1


class Scaled(Counter):
    default_params = PlainParams()

    def step(self, xp, rng, state, action, params):
        return state, params.scale * params.steps + 0 * state.x, False


def test_parameters_of_rollouts_are_values():
    def reward(scale, steps=1):
        params = PlainParams(scale, steps)
        run = rollout(Scaled(), at_random, None, jax.random.key(0), 2, 3, env_params=params)
        return run[1].reward.sum()

    assert reward(2.0) == 12
    assert compilations(lambda: reward(3.0)) == 0
    assert reward(3.0, np.int64(2)) == 36
    assert jax.grad(reward)(1.0) == 6
    assert jax.vmap(reward)(jnp.array([1.0, 2.0])).tolist() == [6, 12]


def test_objects_with_a_dtype_are_no_arrays():
    class Typed(Counter):
        dtype = "float32"

    module = flax.linen.Dense(2)

    def policy(params, observation, key):
        module, weights, _ = params
        return module.apply(weights, observation).argmax(axis=1), None

    params = module, module.init(jax.random.key(0), jnp.zeros((1, 1))), np.float32
    assert rollout(Typed(), policy, params, jax.random.key(0), 2, 3)[1].reward.shape == (2, 3)


def test_functions_check_their_arguments():
    functions = Functions(CartPole)  # the class too
    env_state, _ = functions.reset(jax.random.PRNGKey(0), 4)
    for action in (jnp.full(4, 0.7), 0, jnp.zeros(1, int), {"a": 1}):
        with pytest.raises(af.ConversionError, match="CartPole"):
            functions.step(jax.random.key(1), env_state, action)
    env_state, outcome = functions.step(jax.random.PRNGKey(1), env_state, [0, 1, 0, 1])
    assert outcome.reward.shape == (4,)


def test_keys_in_states_can_be_copied():
    class Keyed(Counter):
        def reset(self, xp, rng, n, params):
            keys = jax.random.split(rng.key(), n)
            return {"key": keys, "count": xp.zeros((n,), dtype=xp.float32)}

        def step(self, xp, rng, state, action, params):
            return state, jax.vmap(jax.random.uniform)(state["key"]), False

        def observe(self, xp, state, params):
            return state["count"][:, None]

    envs = begun(Keyed().make_vec(3, xp="jax", autoreset_mode="SameStep", max_episode_steps=2), 0)
    first, second, third = (envs.step(np.zeros(3, int))[1].tolist() for _ in range(3))
    assert first == second != third
    other = copy.deepcopy(envs)
    assert other.step(np.zeros(3, int))[1].tolist() == envs.step(np.zeros(3, int))[1].tolist()


def test_a_failed_step_asks_for_a_reset():
    fails = []

    def check(count):
        if fails:
            raise RuntimeError("no")
        return count

    class Fails(Counter):
        def step(self, xp, rng, state, action, params):
            return Plain(jax.pure_callback(check, state.x, state.x)), 1.0, False

    envs, action = begun(Fails().make_vec(2, xp="jax"), 0), np.zeros(2, int)
    envs.step(action)
    fails.append(True)
    with pytest.raises(Exception, match=r"no|reset"):  # noqa: PT012
        for _ in range(2):
            jax.block_until_ready(envs.step(action))
    fails.clear()
    envs.reset(seed=0)
    assert envs.step(action)[1].tolist() == [1, 1]


class SharesAClock(FunctionalEnv):
    """Its state has the steps of each episode, and for all environments those of the batch, twice."""

    library = "jax"
    _shared = frozenset({1})
    observation_space = spaces.Box(0, 99, (2,), np.float32)
    action_space = spaces.Discrete(2)
    max_episode_steps = 2

    def reset(self, xp, rng, n, params):
        return xp.zeros((n,), dtype=xp.float32), xp.zeros((2,), dtype=xp.float32)

    def step(self, xp, rng, state, action, params):
        count, clock = state
        return (count + 1, clock + 1), count, count < 0

    def observe(self, xp, state, params):
        return xp.stack([state[0], xp.full_like(state[0], state[1][0])], axis=1)


@pytest.mark.parametrize("n", [2, 3, 64])
def test_arrays_that_environments_share_are_not_reset(n):
    envs = begun(SharesAClock().make_vec(n, xp="jax", autoreset_mode="SameStep"))
    seen = [envs.step(np.zeros(n, int))[0] for _ in range(3)]
    assert np.stack(seen)[:, 0].tolist() == [[1, 1], [0, 2], [1, 3]]
    observation, _ = envs.reset(options={"reset_mask": np.arange(n) == 1})
    assert observation[:2].tolist() == [[1, 3], [0, 3]]
    seen = [envs.step(np.zeros(n, int))[0] for _ in range(2)]  # then one is reset alone
    assert np.stack(seen)[:, :2].tolist() == [[[0, 4], [1, 4]], [[1, 5], [0, 5]]]
    thrice = arrayferry_envs.repeat_action(SharesAClock(), 3)
    envs = begun(thrice.make_vec(n, xp="jax", autoreset_mode="Disabled"))
    assert envs.step(np.zeros(n, int))[0][0].tolist() == [2, 3]
