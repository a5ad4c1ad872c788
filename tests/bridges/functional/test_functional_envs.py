"""Functional environments of other libraries, by `from_env`: `make bridges`.

Each library has a probe that is written as it asks, for the conformance kit, and real environments, whose steps are those of
the library itself.
"""

from __future__ import annotations

import copy
import functools
import pickle
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import begun
from flax import struct
from gymnasium import spaces

import arrayferry as af
from arrayferry_audit import LIMIT, BridgeContract
from arrayferry_envs import evaluate, from_env, record, repeat_action, rollout, wrap
from arrayferry_gym.wrappers import kernels

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings(action="ignore"):
    import brax.envs
    import gymnax
    import imageio.v3 as imageio
    import jumanji
    import mujoco
    import navix
    import pgx
    from brax.envs import base as brax_base
    from brax.envs.inverted_pendulum import InvertedPendulum
    from brax.envs.wrappers import training
    from craftax.craftax_env import make_craftax_env_from_name
    from craftax.environment_base import environment_bases as craftax_bases
    from gymnax.environments import environment as gymnax_base
    from gymnax.environments import spaces as gymnax_spaces
    from jumanji import specs as jumanji_specs
    from jumanji import types as jumanji_types
    from jumanji import wrappers as jumanji_wrappers
    from ml_collections import config_dict
    from mujoco_playground import registry
    from mujoco_playground._src import mjx_env
    from navix.environments import environment as navix_base
    from navix.spaces import Continuous, Discrete
    from pgx import tic_tac_toe


def observed(start, count):
    return jnp.stack([start, jnp.asarray(count, jnp.float32)])


def reward_of(count, action):
    return jnp.asarray(count, jnp.float32) + jnp.asarray(action, jnp.float32) / 2


@struct.dataclass
class Counted:
    start: jax.Array
    time: jax.Array


def counted(key):
    return Counted(jax.random.uniform(key), jnp.zeros((), jnp.int32))


# gymnax, whose steps tell limits apart


@struct.dataclass
class GymnaxParams(gymnax_base.EnvParams):
    max_steps_in_episode: int = LIMIT


class GymnaxProbe(gymnax_base.Environment):
    default_params = GymnaxParams()

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time + 1)
        reward = reward_of(state.time, action)
        return observed(state.start, state.time), state, reward, action == 1, {}

    def reset_env(self, key, params):
        state = counted(key)
        return observed(state.start, state.time), state

    def action_space(self, params=None):
        return gymnax_spaces.Discrete(3)

    def observation_space(self, params):
        return gymnax_spaces.Box(0, LIMIT, (2,), jnp.float32)


# Craftax, and gymnax before 1.0: one flag, in which the limit is hidden


@struct.dataclass
class CraftaxParams:
    max_timesteps: int = LIMIT


class CraftaxProbe(craftax_bases.EnvironmentAutoReset):
    default_params = CraftaxParams()
    action_space = GymnaxProbe.action_space
    observation_space = GymnaxProbe.observation_space
    reset_env = GymnaxProbe.reset_env

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time + 1)
        done = (action == 1) | (state.time >= params.max_timesteps)
        info = {"discount": 1.0 - done.astype(jnp.float32), "text": "left out"}
        return observed(state.start, state.time), state, reward_of(state.time, action), done, info


# Brax and MuJoCo Playground: numbers as actions, floats as flags


def moved(state, part, action):
    kept = getattr(state, part)
    kept = kept.replace(time=kept.time + 1)
    chosen = jnp.round(action[0]) + 1
    return state.replace(
        obs=observed(kept.start, kept.time),
        reward=reward_of(kept.time, chosen),
        done=(chosen == 1).astype(jnp.float32),
        **{part: kept},
    )


class BraxProbe(brax_base.Env):
    observation_size, action_size, backend = 2, 1, "none"

    def reset(self, rng):
        state = counted(rng)
        zero = jnp.zeros(())
        return brax_base.State(state, observed(state.start, 0), zero, zero, {"speed": zero}, {})

    def step(self, state, action):
        state = moved(state, "pipeline_state", action)
        return state.replace(metrics={"speed": state.pipeline_state.start})


class OwnTruncation(BraxProbe):
    """Truncates by itself, and says so in its infos."""

    def reset(self, rng):
        return super().reset(rng).replace(info={"truncation": jnp.zeros(())})

    def step(self, state, action):
        state = super().step(state, action)
        late = (state.pipeline_state.time >= LIMIT).astype(jnp.float32) * (1 - state.done)
        return state.replace(done=jnp.maximum(state.done, late), info={"truncation": late})


class PlaygroundProbe(mjx_env.MjxEnv):
    xml_path = mj_model = mjx_model = None
    action_size = 1

    def __init__(self):
        super().__init__(config_dict.create(ctrl_dt=0.1, sim_dt=0.1, episode_length=LIMIT))

    def reset(self, rng):
        state = counted(rng)
        zero = jnp.zeros(())
        return mjx_env.State(state, {"state": observed(state.start, 0)}, zero, zero, {}, {})

    def step(self, state, action):
        state = moved(state, "data", action)
        return state.replace(obs={"state": state.obs})


# pgx: two players, who take turns


@struct.dataclass
class PgxState(tic_tac_toe.State):
    start: jax.Array = np.float32(0.0)
    env_id = "probe"


class PgxProbe(pgx.Env):
    id, version, num_players = "probe", "1", 2

    def _init(self, key):
        start, player = jax.random.split(key)
        return PgxState(
            start=jax.random.uniform(start),
            current_player=jax.random.randint(player, (), 0, 2),
            observation=jnp.zeros(2),
            legal_action_mask=jnp.ones(3, bool),
        )

    def _step(self, state, action, key):
        mover = state.current_player
        reward = reward_of(state._step_count, action)
        rewards = jnp.full(2, -reward).at[mover].set(reward)
        return state.replace(current_player=1 - mover, rewards=rewards, terminated=action == 1)

    def _observe(self, state, player_id):
        return observed(state.start, state._step_count)


# Jumanji: limits that look like terminations


class JumanjiProbe(jumanji.env.Environment):
    def __init__(self):
        self.time_limit = LIMIT
        super().__init__()

    def reset(self, key):
        state = counted(key)
        return state, jumanji_types.restart(observed(state.start, 0), extras={})

    def step(self, state, action):
        state = state.replace(time=state.time + 1)
        reward = reward_of(state.time, action)
        seen = observed(state.start, state.time)
        step = jax.lax.cond(
            (action == 1) | (state.time >= self.time_limit),
            jumanji_types.termination,
            jumanji_types.transition,
            reward,
            seen,
        )
        return state, step.replace(extras={})

    observation_spec = jumanji_specs.Array((2,), jnp.float32)
    action_spec = jumanji_specs.DiscreteArray(3)


# navix: steps that reset in the next one


class NavixProbe(navix_base.Environment):
    @classmethod
    def made(cls):
        return cls(
            height=1,
            width=1,
            max_steps=LIMIT,
            observation_space=Continuous.create((2,), jnp.float32(0), jnp.float32(LIMIT)),
            action_space=Discrete.create(3),
            reward_space=Continuous.create((), jnp.float32(0), jnp.float32(9)),
        )

    def reset(self, key, cache=None):
        state, zero = counted(key), jnp.zeros((), jnp.int32)
        return navix_base.Timestep(
            zero,
            observed(state.start, 0),
            zero,
            jnp.zeros(()),
            zero,
            state,
            {"return": jnp.zeros(())},
        )

    _reset = reset

    def _step(self, timestep, action):
        t = timestep.t + 1
        truncated = jnp.where(t >= self.max_steps, 1, 0)
        return timestep.replace(
            t=t,
            observation=observed(timestep.state.start, t),
            action=action,
            reward=reward_of(t, action),
            step_type=jnp.where(action == 1, 2, truncated),
        )


class Served(BridgeContract):
    """The environment of the library is `own`."""

    xp, options = "numpy", {}

    def make(self):
        options = {"autoreset_mode": "SameStep", "xp": self.xp, **self.options}
        return from_env(self.own()).make_vec(self.num_envs, **options)


class OfDicts(Served):
    """What the kit sees is one entry of the observation."""

    def reset(self, bridge, seed):
        return super().reset(bridge, seed)[self.key]

    def step(self, bridge, actions):
        step = super().step(bridge, actions)
        return step._replace(
            observation=step.observation[self.key],
            final_observation=step.final_observation[self.key],
        )

    def spaces(self, bridge):
        observed, acted = super().spaces(bridge)
        return observed[self.key], acted


class TestGymnax(Served):
    xp, own = "torch", GymnaxProbe


class TestCraftax(Served):
    own = CraftaxProbe


class _OfNumbers(Served):
    """The actions 0, 1 and 2 are the numbers -1, 0 and 1."""

    def spaces(self, bridge):
        assert bridge.single_action_space == spaces.Box(-1, 1, (1,), np.float32)
        return bridge.single_observation_space, None

    def step(self, bridge, actions):
        return super().step(bridge, (actions - 1).astype(np.float32)[:, None])


class TestBrax(_OfNumbers):
    def own(self):
        env = training.EpisodeWrapper(BraxProbe(), LIMIT, 1)
        return training.AutoResetWrapper(training.VmapWrapper(env))


class TestBraxThatTruncates(_OfNumbers):
    exclusive = True  # as Brax has it
    own = OwnTruncation


class TestPlayground(OfDicts, _OfNumbers):
    key, own = "state", PlaygroundProbe


class TestPgx(OfDicts):
    xp, key, own = "jax", "observation", PgxProbe
    options = {"max_episode_steps": LIMIT}


class TestJumanji(Served):
    """An episode that ends and reaches the limit has terminated: Jumanji does not say both."""

    exclusive = True
    own = JumanjiProbe


class TestNavix(Served):
    exclusive = True  # as navix has it
    own = NavixProbe.made


# Real environments


def at_random(env):
    space = env.action_space

    def policy(params, observation, key):
        n = jax.tree.leaves(observation)[0].shape[0]
        if isinstance(space, spaces.Discrete):
            return jax.random.randint(key, (n,), 0, int(space.n)), None
        if isinstance(space, spaces.MultiDiscrete):
            return jax.random.randint(key, (n, *space.shape), 0, jnp.asarray(space.nvec)), None
        return jax.random.uniform(key, (n, *space.shape), minval=-1, maxval=1), None

    return policy


KEY = jax.random.PRNGKey(0)


def gymnax_step(env, kept, action):
    return env.step_env(KEY, kept[1], action, env.default_params)[:3:2]


# how each is made, and its own step: of what is kept, the action and the environment; returns the observation and the reward
REAL = {
    "gymnax CartPole": (lambda: gymnax.make("CartPole-v1")[0], gymnax_step),
    "gymnax DiscountingChain": (lambda: gymnax.make("DiscountingChain-bsuite")[0], gymnax_step),
    "gymnax Breakout": (lambda: gymnax.make("Breakout-MinAtar")[0], None),
    "gymnax DeepSea": (lambda: gymnax.make("DeepSea-bsuite")[0], gymnax_step),
    "Craftax": (lambda: make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", True), None),
    "Brax": (
        lambda: brax.envs.create("inverted_pendulum", backend="generalized"),
        lambda env, kept, action: (lambda s: (s.obs, s.reward))(env.step(kept, action)),
    ),
    "pgx": (
        lambda: pgx.make("connect_four"),
        lambda env, kept, action: (lambda s: (s.observation, s.rewards[kept.current_player]))(
            env.step(kept, action)
        ),
    ),
    "Jumanji": (
        lambda: jumanji.make("Snake-v1", time_limit=12),
        lambda env, kept, action: (lambda s: (s.observation.grid, s.reward))(
            env.step(kept[0], action)[1]
        ),
    ),
    "Jumanji, several actions": (lambda: jumanji.make("RobotWarehouse-v0"), None),
    "navix": (
        lambda: navix.make("Navix-Empty-5x5-v0", max_steps=9),
        lambda env, kept, action: (lambda s: (s.observation, s.reward))(env._step(kept, action)),
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_steps_are_those_of_the_library(name):
    make, own_step = REAL[name]
    env = from_env(make())
    n = 4
    served = {xp: env.make_vec(n, xp=xp, autoreset_mode="Disabled") for xp in ("jax", "torch")}
    actions = np.random.default_rng(0)
    seen = {xp: envs.reset(seed=1) for xp, envs in served.items()}
    for _ in range(6):
        kept = served["jax"].state.tree
        action = [env.action_space.sample() for _ in range(n)]
        if "action_mask" in seen["torch"][1]:
            allowed = af.convert(seen["torch"][1]["action_mask"], "numpy")
            if allowed.ndim == 2:
                action = [int(actions.choice(np.flatnonzero(row))) for row in allowed]
        action = np.stack(action)
        seen = {xp: envs.step(action) for xp, envs in served.items()}
        converted = af.convert(seen["torch"], "jax")
        leaves = jax.tree.leaves(seen["jax"]), jax.tree.leaves(converted)
        for one, other in zip(*leaves, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        assert served["torch"].observation_space.contains(seen["torch"][0])
        if own_step is not None:
            own = jax.vmap(functools.partial(own_step, env.env))
            expected, reward = own(kept, jnp.asarray(action))
            mine = seen["jax"][0]
            if isinstance(mine, dict):
                mine = mine.get("grid", mine.get("observation"))
            for one, other in ((mine, expected), (seen["jax"][1], reward)):
                one, other = np.asarray(one, float), np.asarray(other, float)
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        seen = {xp: (result[0], result[4]) for xp, result in seen.items()}


PLAYGROUND = ("AcrobotSwingup", "BallInCup", "CartpoleBalance", "PendulumSwingup", "PointMass")


def playground(name):
    return registry.load(name, config_overrides={"impl": "jax"})


@pytest.mark.parametrize("name", PLAYGROUND)
def test_episodes_of_playground_are_those_by_hand(name):
    """Whole episodes of 1,000 steps, for agents in three libraries. At the end, all are truncated."""
    own = playground(name)
    env, n = from_env(own), 2
    served = {
        xp: env.make_vec(n, xp=xp, autoreset_mode="SameStep") for xp in ("numpy", "torch", "jax")
    }
    observations = {xp: envs.reset(seed=1)[0] for xp, envs in served.items()}
    by_hand = served["jax"].state.tree
    step = jax.jit(jax.vmap(own.step))
    draws = np.random.default_rng(0)
    for number in range(1000):
        action = draws.uniform(-1, 1, (n, own.action_size)).astype(np.float32)
        by_hand = step(by_hand, action)
        for xp, envs in served.items():
            results = envs.step(af.convert(action, xp))
            observations[xp], reward, terminated, truncated, infos = af.convert(results, "numpy")
            late = number == 999
            np.testing.assert_array_equal(truncated, [late] * n)
            np.testing.assert_array_equal(terminated, by_hand.done > 0.5)
            seen = infos["final_obs"] if late else observations[xp]
            np.testing.assert_allclose(
                seen, by_hand.obs, rtol=1e-4, atol=1e-4, err_msg=f"{xp}, step {number}"
            )
            np.testing.assert_allclose(reward, by_hand.reward, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(observations["jax"], served["jax"].state.tree.obs)
    assert not np.allclose(observations["jax"], by_hand.obs, atol=1e-4)


def randomized(model, keys):
    """Draw masses and damping, as functions for the trainers of Brax and Playground do."""

    @jax.vmap
    def draw(key):
        mass, damping = jax.random.uniform(key, (2,), minval=0.5, maxval=2.0)
        return model.body_mass * mass, model.dof_damping + damping

    mass, damping = draw(keys)
    axes = jax.tree.map(lambda x: None, model)
    axes = axes.tree_replace({"body_mass": 0, "dof_damping": 0})
    return model.tree_replace({"body_mass": mass, "dof_damping": damping}), axes


@pytest.mark.parametrize("impl", ["jax", "warp"])
def test_models_of_playground_differ_between_episodes(impl):
    own = registry.load("CartpoleBalance", config_overrides={"impl": impl})
    env = from_env(own, randomization_fn=randomized)
    assert env == from_env(own, randomization_fn=randomized) != from_env(own)
    envs = begun(env.make_vec(3, xp="jax", autoreset_mode="SameStep", max_episode_steps=7))
    draws, masses = np.random.default_rng(0), []

    @jax.jit
    @jax.vmap
    def by_hand(kept, action, params):
        same = copy.copy(own)
        same._mjx_model = own.mjx_model.tree_replace(params)
        return same.step(kept, action).obs

    for _ in range(10):
        (kept, params), action = envs.state, draws.uniform(-1, 1, (3, 1)).astype(np.float32)
        masses.append(params["body_mass"][:, 1])
        seen, _, _, truncated, infos = envs.step(action)
        seen = infos["final_obs"] if truncated.any() else seen
        expected = by_hand(kept.tree, action, params)
        np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-5)
    assert len(set(np.ravel(masses[:7]).tolist())) == 3  # one for each episode
    assert not set(np.ravel(masses[6]).tolist()) & set(np.ravel(masses[7]).tolist())
    given = {"body_mass": 2 * env.default_params["body_mass"]}
    _, transitions = rollout(env, at_random(env), None, jax.random.key(0), 9, 3, env_params=given)
    assert np.isfinite(np.asarray(transitions.reward)).all()


def test_models_of_brax_differ_between_episodes():
    def with_gravity(sys, keys):
        gravity = jax.vmap(lambda key: sys.gravity * jax.random.uniform(key, (), minval=0.5))(keys)
        axes = jax.tree.map(lambda x: None, sys).tree_replace({"gravity": 0})
        return sys.tree_replace({"gravity": gravity}), axes

    env = from_env(REAL["Brax"][0](), randomization_fn=with_gravity)
    envs = begun(env.make_vec(2, xp="torch"))
    assert envs.state.params["gravity"].shape == (2, 3)
    assert len(set(envs.state.params["gravity"][:, 2].tolist())) == 2
    with pytest.raises(af.OptionError, match="randomization_fn"):
        from_env(REAL["pgx"][0](), randomization_fn=with_gravity)


@pytest.mark.parametrize("name", ["CartpoleBalance", "WalkerWalk"])
def test_playground_as_it_comes(name):
    """Its batches of MuJoCo Warp have one list of contacts. Some episodes end before others, and none disturbs another."""
    own, n = registry.load(name), 3
    env = from_env(own)
    assert own._config.impl == "warp"
    assert env == from_env(own) != from_env(playground(name))
    envs = env.make_vec(n, xp="torch", autoreset_mode="SameStep", max_episode_steps=6)
    first = envs.reset(seed=1)[0].numpy()
    step, draws, began = jax.jit(jax.vmap(own.step)), np.random.default_rng(0), [*first]
    for number in range(12):
        kept = envs.state.tree
        if number == 2:
            envs.reset(options={"reset_mask": np.array([False, True, False])})
            now = envs.state.tree
            np.testing.assert_array_equal((now.data.qpos == kept.data.qpos).all(1), [1, 0, 1])
            began, kept = [*began, np.asarray(now.obs[1])], now
        action = draws.uniform(-1, 1, (n, own.action_size)).astype(np.float32)
        by_hand = step(kept, action)
        results = envs.step(af.convert(action, "torch"))
        seen, reward, terminated, truncated, infos = af.convert(results, "numpy")
        ended = np.array([number % 6 == (1 if row == 1 else 5) and number > 1 for row in range(n)])
        np.testing.assert_array_equal(truncated, ended)
        assert not terminated.any()
        last = np.where(ended[:, None], infos["final_obs"], seen)
        np.testing.assert_allclose(last, by_hand.obs, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(reward, by_hand.reward, rtol=1e-4, atol=1e-4)
        after = envs.state.tree.data.qpos
        np.testing.assert_array_equal((after == by_hand.data.qpos).all(1), ~ended)
        began += [*seen[ended]]
    assert len(np.unique(np.round(began, 5), axis=0)) == len(began) > 6


def test_rollouts_of_playground_as_it_comes():
    """Of 64 environments, some are reset alone. Within a step of two, all go on from their own states."""
    env = repeat_action(from_env(registry.load("CartpoleBalance")), 2)
    options = {"max_episode_steps": 4, "collect": "state"}
    carry, transitions = rollout(env, at_random(env), None, KEY, 9, 64, **options)
    ended = np.asarray(transitions.truncated)
    assert np.flatnonzero(ended[:, 0]).tolist() == [3, 7]
    time = transitions.state.tree.state.tree.data.time[:, 0]
    np.testing.assert_allclose(time, [0.02 * (i % 4) for i in range(9)], atol=1e-6)
    following, final = transitions.observation[1:], transitions.final_observation[:-1]
    assert ((following == final).all(axis=-1) != ended[:-1]).all()
    rollout(env, at_random(env), None, KEY, 2, 64, carry=carry, **options)


@pytest.mark.parametrize("name", ["gymnax CartPole", "pgx", "Jumanji", "navix"])
def test_rollouts(name):
    env = from_env(REAL[name][0]())
    one, transitions = rollout(env, at_random(env), None, jax.random.key(0), 25, 6)
    ended = np.asarray(transitions.terminated | transitions.truncated)
    assert ended.any()
    again = rollout(env, at_random(env), None, jax.random.key(0), 25, 6)[1]
    for x, y in zip(jax.tree.leaves(transitions), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(x, y)
    rollout(env, at_random(env), None, jax.random.key(1), 5, 6, carry=one)
    results = evaluate(env, at_random(env), key=jax.random.key(0), num_envs=3, max_episode_steps=20)
    assert (np.asarray(results.lengths) <= 20).all()
    assert from_env(pickle.loads(pickle.dumps(env.env)) if name != "navix" else env.env) is not None


@pytest.mark.parametrize(
    "name",
    ["gymnax CartPole", "gymnax Breakout", "Craftax", "pgx", "Jumanji", "Jumanji, several actions", "navix"],
)  # fmt: skip
def test_images(name, tmp_path):
    """A window or a message about one would be an error."""
    if name == "pgx":
        try:
            import cairosvg  # noqa: F401
        except OSError as error:
            pytest.skip(f"CairoSVG needs the library of Cairo: {error}")
    env = from_env(REAL[name][0]())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        path = record(env, at_random(env), path=tmp_path / "agent.gif", num_steps=6)
    images = imageio.imread(path, index=None)
    assert images.shape[-1] == 3
    assert any((images[0] != image).any() for image in images)


@pytest.mark.parametrize(
    "make", [REAL["Brax"][0], PlaygroundProbe, lambda: registry.load("CartpoleBalance")]
)
def test_images_of_mujoco(make, monkeypatch, tmp_path):
    class Renderer:
        """In the place of the real one, which needs OpenGL. It shows the position."""

        def __init__(self, model, height, width):
            self.image = np.zeros((height, width, 3), np.uint8)

        def update_scene(self, data, camera, **options):
            self.image[:] = 100 + 1e5 * data.qpos[0] % 100

        def render(self):
            return self.image

        def close(self):
            pass

    def own(self, trajectory):
        return [np.full((8, 8, 3), 100 + state.data.time, np.uint8) for state in trajectory]

    monkeypatch.setattr(mujoco, "Renderer", Renderer)
    monkeypatch.setattr(PlaygroundProbe, "render", own)
    env = from_env(make())
    path = record(env, at_random(env), path=tmp_path / "agent.gif", num_steps=3)
    images = imageio.imread(path, index=None)
    assert (images > 50).all()
    assert (images[0] != images[-1]).any()
    assert env.metadata["render_fps"] == round(1 / env.env.dt)


def test_what_cannot_be_drawn_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    env = from_env(REAL["pgx"][0]())
    with pytest.raises(af.OptionError, match="pip install cairosvg"):
        record(env, at_random(env), path=tmp_path / "agent.gif")
    for make in (REAL["gymnax DeepSea"][0], JumanjiProbe):
        env = from_env(make())
        with pytest.raises(NotImplementedError, match="cannot be rendered"):
            record(env, at_random(env), path=tmp_path / "agent.gif")


@pytest.mark.parametrize(
    "name", ["MemoryChain-bsuite", "MetaMaze-misc", "GaussianBandit-misc", "PointRobot-misc"]
)
def test_observations_of_gymnax_are_in_their_space(name):
    envs = from_env(gymnax.make(name)[0]).make_vec(4, autoreset_mode="SameStep")
    observations, _ = envs.reset(seed=1)
    for _ in range(80):
        assert envs.observation_space.contains(observations), observations
        observations, *_ = envs.step(envs.action_space.sample())


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("humanoid", False),
        ("inverted_pendulum", True),
        ("pusher", False),
        ("reacher", False),
        pytest.param("humanoidstandup", True, marks=pytest.mark.long),
    ],
)
def test_actions_of_brax_use_the_whole_range_of_the_actuators(name, wrapped):
    """Driven by hand: from the lowest to the highest number of our space, actuators get their whole range."""
    own = brax.envs.get_environment(name, backend="spring")
    env = from_env(brax_base.Wrapper(own) if wrapped else own)
    assert env.action_space == spaces.Box(-1, 1, (own.action_size,), np.float32)
    reached = []
    step = own.pipeline_step
    own.pipeline_step = lambda state, action: (reached.append(action), step(state, action))[1]
    envs = begun(env.make_vec(1, xp="jax", autoreset_mode="Disabled"))
    for action in (env.action_space.low, env.action_space.high):
        before = jax.tree.map(lambda x: x[0], envs.state.tree)
        after = own.step(before, jnp.asarray(action))
        np.testing.assert_allclose(envs.step(action[None])[0][0], after.obs, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.stack(reached, axis=1), own.sys.actuator.ctrl_range, rtol=1e-6)


@pytest.mark.parametrize(
    ("scaling", "low", "high"),
    [
        (lambda action: action, -3, 3),
        (lambda action: jnp.clip(action, -3, 3), -3, 3),
        (lambda action: 3 * action, -1, 1),
        (lambda action: 3 * jnp.clip(action, -1, 1), -1, 1),
        (lambda action: 3 * jnp.tanh(action), -1, 1),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_who_scales_actions_of_brax(scaling, low, high, compiled):
    class Own(InvertedPendulum):
        def step(self, state, action):
            kept = self.pipeline_step(state.pipeline_state, scaling(action))
            return state.replace(pipeline_state=kept, obs=self._get_obs(kept))

    if compiled:
        Own.step = jax.jit(Own.step, static_argnums=0)
    own = Own(backend="spring")
    assert from_env(own).action_space == spaces.Box(low, high, (1,), np.float32)


@pytest.mark.parametrize(
    "name",
    [
        "gymnax",
        "Craftax-Classic-Symbolic-v1",
        pytest.param("Craftax-Symbolic-v1", marks=pytest.mark.long),
    ],
)
def test_infos_are_those_of_the_library_also_at_the_limit(name):
    """Craftax says what was achieved when an episode ends, gymnax a discount."""
    if name == "gymnax":
        own, params = gymnax.make("CartPole-v1")
        params = params.replace(max_steps_in_episode=3)
    else:
        own = make_craftax_env_from_name(name, True)
        params = own.default_params.replace(max_timesteps=3)
    envs = begun(from_env(own, params).make_vec(2, xp="jax", autoreset_mode="Disabled"))
    seen, state, info = envs.state.tree
    if name != "gymnax":
        state = state.replace(achievements=state.achievements.at[0, 2].set(True))
        envs.reset(options={"state": type(envs.state).of((seen, state, info))})
    step = jax.jit(jax.vmap(own.step_env, (None, 0, 0, None)))
    actions = np.zeros(2, int)
    for _ in range(3):
        expected = step(KEY, envs.state.tree[1], actions, params)[-1]
        *_, terminated, truncated, infos = envs.step(actions)
        assert infos.keys() >= expected.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(infos[key], value, key)
    assert truncated.all()
    assert not terminated.any()
    if name != "gymnax":
        achieved = [infos[key].tolist() for key in expected if key.startswith("Achievements/")]
        assert [100, 0] in achieved


def test_parameters_of_gymnax():
    env = from_env(gymnax.make("Pendulum-v1")[0])
    assert env.max_episode_steps == 200
    envs = begun(env.make_vec(3, xp="jax", params={"g": np.float32([1, 10, 20]), "m": 2.0}))
    state = envs.state
    first = envs.step(np.zeros((3, 1), np.float32))[0]
    own = []
    for i, g in enumerate([1.0, 10.0, 20.0]):
        one = jax.tree.map(lambda x: x[i], state.tree[1])  # noqa: B023
        params = env.default_params.replace(g=g, m=2.0)
        own.append(env.env.step_env(KEY, one, jnp.zeros(1), params)[0])
    np.testing.assert_allclose(first, np.stack(own), rtol=1e-5)
    with pytest.raises(af.OptionError, match="Pass max_episode_steps= instead"):
        env.make_vec(3, params={"max_steps_in_episode": 7}).reset(seed=1)
    shorter = gymnax.make("Pendulum-v1")[1].replace(max_steps_in_episode=7)
    assert from_env(env.env, shorter).max_episode_steps == 7
    bandit, params = gymnax.make("BernoulliBandit-misc")  # whose limit is a float
    assert from_env(bandit, params.replace(max_steps_in_episode=3.0)).max_episode_steps == 3


def test_other_options_are_refused():
    with pytest.raises(af.OptionError, match="has no such option"):
        from_env(pgx.make("tic_tac_toe"), {"a": 1})
    repeated = brax.envs.create("inverted_pendulum", backend="spring", action_repeat=2)
    with pytest.raises(af.OptionError, match="repeat_action"):
        from_env(repeated)
    with pytest.raises(TypeError, match=r"from_env\(\*gymnax\.make"):
        from_env(gymnax.make("CartPole-v1"))


def test_wrappers_that_reset_are_not_hidden():
    class Outside(brax_base.Wrapper):
        pass

    with pytest.raises(af.OptionError, match="is wrapped in AutoResetWrapper"):
        from_env(Outside(brax.envs.create("fast")))
    assert from_env(Outside(brax.envs.create("fast", None, auto_reset=False))) is not None
    for wrapper in (jumanji_wrappers.AutoResetWrapper, jumanji_wrappers.VmapWrapper):
        with pytest.raises(af.OptionError, match=f"{wrapper.__name__}, but arrayferry itself"):
            from_env(wrapper(JumanjiProbe()))


def test_the_limit_of_a_wrapped_environment_of_jumanji_is_a_truncation():
    env = from_env(jumanji_wrappers.MultiToSingleWrapper(JumanjiProbe()))
    policy = lambda *_: (jnp.zeros(2, int), None)  # noqa: E731
    transitions = rollout(env, policy, None, jax.random.key(0), LIMIT, 2)[1]
    assert transitions.truncated[:, 0].tolist() == [False] * (LIMIT - 1) + [True]
    assert not transitions.terminated.any()


def test_with_wrappers():
    env = wrap(from_env(gymnax.make("CartPole-v1")[0]), kernels.NormalizeObservation())
    carry, transitions = rollout(env, at_random(env), None, jax.random.key(0), 20, 8)
    ended = int((transitions.terminated | transitions.truncated).sum())
    assert ended
    assert env.state_dict(carry.env_state)["obs_rms"]["count"] == 20 * 8 + 8 + ended


def given(params, observation, key):
    return params, None


def made_from(package, name):
    if package == "gymnax":
        return gymnax.make(name)
    return ({"pgx": pgx, "jumanji": jumanji}[package].make(name),)


X64 = [
    ("jumanji", "TSP-v1", "int32"),
    ("jumanji", "Maze-v0", "int64"),  # which fails with its own int32
    ("pgx", "hex", "int32"),
    ("pgx", "minatar-breakout", "int32"),
    ("gymnax", "Catch-bsuite", "int32"),
    ("gymnax", "CartPole-v1", "int32"),
    ("gymnax", "Pendulum-v1", "float32"),
]


@pytest.mark.parametrize(("package", "name", "dtype"), X64)
def test_actions_have_the_dtype_of_the_library_with_64_bits(package, name, dtype, x64):
    env = from_env(*made_from(package, name))
    seen = []

    class Seen(type(env)):
        def advance(self, key, kept, action, params):
            seen.append(str(action.dtype))
            return super().advance(key, kept, action, params)

    env = Seen(*made_from(package, name))
    envs = env.make_vec(2, xp="jax")
    assert envs.single_action_space.dtype == ("float32" if dtype == "float32" else "int64")
    envs.reset(seed=0)
    seen.clear()
    envs.step(envs.action_space.sample())
    assert {*seen} == {dtype}

    rollout(env, given, np.asarray(envs.action_space.sample()), jax.random.key(0), 2, 2)
    assert {*seen} == {dtype}


@pytest.mark.parametrize(
    "package", ["gymnax", pytest.param("brax", marks=pytest.mark.long), "pgx", "jumanji"]
)
def test_steps_and_rollouts_of_equal_environments_compile_nothing(package):
    make = {
        "gymnax": lambda: from_env(*gymnax.make("CartPole-v1")),
        "brax": lambda: from_env(InvertedPendulum()),
        "pgx": lambda: from_env(pgx.make("tic_tac_toe")),
        "jumanji": lambda: from_env(jumanji.make("Maze-v0")),
    }[package]
    compiled = []

    def count(name, seconds, **more):
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(count)
    envs = make().make_vec(2, xp="jax")
    for number in range(5):
        env = make()
        if number == 3:  # to make one may compile
            compiled.clear()
        envs.reset(seed=number)
        envs.step(envs.action_space.sample())
        action = np.asarray(envs.action_space.sample())
        rollout(env, given, action, jax.random.key(0), 2, 2)
    assert compiled == []
