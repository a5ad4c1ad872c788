"""Rollouts and evaluations of policies with a state, what they collect, and episodes that environments truncate."""

from __future__ import annotations

import io
import pickle

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import begun, make_vec, still
from gymnasium import spaces

import arrayferry as af
from arrayferry_gym.functional import (
    Carry,
    CartPole,
    FunctionalEnv,
    Functions,
    HostFunctions,
    episode,
    evaluate,
    rollout,
    wrap,
)
from arrayferry_gym.wrappers import kernels

N = 3


class Count(FunctionalEnv):
    """Counts its steps. It terminates at `end`, and truncates itself at `stop`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    default_params = {"end": 4.0, "stop": 6.0}

    def reset(self, xp, rng, n, params):
        return {"count": xp.zeros((n,), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        count = state["count"] + 1
        return {"count": count}, count, count >= params["end"], count >= params["stop"]

    def observe(self, xp, state, params):
        return state["count"][:, None]

    def info(self, xp, state, params):
        return {"twice": state["count"] * 2}


def counting(params, observation, key, state):
    """Remember how many steps were taken, and the last observation."""
    action = (state["steps"] % 2).astype(int)
    return action, state, {"steps": state["steps"] + 1, "seen": observation}


def blank(n=N, size=4):
    return {"steps": jnp.zeros(n, int), "seen": jnp.full((n, size), -1.0)}


@pytest.mark.parametrize(
    "xp",
    [
        "numpy",
        "torch",
        *(pytest.param(x, marks=pytest.mark.long) for x in ("jax", "array_api_strict")),
    ],
)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize(
    ("params", "limit", "at", "terminated", "truncated"),
    [
        ({}, None, 4, True, False),
        ({"end": 9.0}, None, 6, False, True),
        ({"end": 9.0}, 2, 2, False, True),
        ({"end": 9.0}, 8, 6, False, True),
        ({"end": 6.0}, None, 6, True, True),
        ({"end": 2.0}, 2, 2, True, True),
    ],
)
def test_environments_truncate_episodes(xp, mode, params, limit, at, terminated, truncated):
    envs = begun(
        Count().make_vec(N, xp=xp, autoreset_mode=mode, params=params, max_episode_steps=limit), 0
    )
    for step in range(1, at + 1):
        observation, _, *flags, info = envs.step(np.zeros(N, int))
        wanted = (terminated, truncated) if step == at else (False, False)
        assert [af.convert(flag, "numpy").tolist() for flag in flags] == [[x] * N for x in wanted]
    if mode == "SameStep":
        assert af.convert(observation, "numpy").tolist() == [[0]] * N
        assert af.convert(info["final_obs"], "numpy").tolist() == [[at]] * N
    elif mode == "NextStep":
        observation, reward, *flags, _ = envs.step(np.zeros(N, int))
        assert af.convert(observation, "numpy").tolist() == [[0]] * N
        assert af.convert(reward, "numpy").tolist() == [0] * N
        assert not any(af.convert(flag, "numpy").any() for flag in flags)


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax"])
def test_single_environments_are_truncated_too(xp):
    env = begun(Count().make(xp=xp, params={"end": 9.0}), 0)
    flags = [env.step(0)[2:4] for _ in range(6)]
    assert [bool(a) or bool(b) for a, b in flags] == [False] * 5 + [True]
    assert not bool(flags[-1][0])


def test_what_authors_return_is_theirs():
    """A flag that the environment keeps in its state is not written to."""

    class Keeps(Count):
        def reset(self, xp, rng, n, params):
            return {**super().reset(xp, rng, n, params), "over": xp.zeros((n,), dtype=xp.bool)}

        def step(self, xp, rng, state, action, params):
            count = state["count"] + 1
            over = count % 2 == 0
            return {"count": count, "over": over}, count, False, over

    envs = begun(Keeps().make_vec(N, xp="numpy"), 0)
    for _ in range(6):
        truncated = envs.step(np.zeros(N, int))[3]
        state = envs.state
        assert (state["over"] == (state["count"] % 2 == 0) & (state["count"] > 0)).all()
        truncated[:] = True  # the caller's own


def test_a_policy_with_a_state_is_called_as_in_a_loop():
    env, key, steps = CartPole(), jax.random.key(5), 60
    functions = Functions(env)
    take = jax.jit(functions.step)
    _, transitions = rollout(env, counting, None, key, steps, N, policy_state=blank())
    start, key = jax.random.split(key)
    running, observation = functions.reset(start, N)
    state, began, ended = blank(), np.ones(N, bool), 0

    def chosen(new, old):
        return np.where(began.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    for row, own in enumerate(jax.random.split(key, steps)):
        acting, stepping = jax.random.split(own)
        state = jax.tree.map(chosen, blank(), state)
        action, _, after = counting(None, observation, acting, state)
        assert (transitions.extras["steps"][row] == state["steps"]).all()
        assert np.allclose(transitions.extras["seen"][row], state["seen"], atol=1e-5)
        assert (transitions.began[row] == began).all()
        running, outcome = take(stepping, running, action)
        assert np.allclose(transitions.observation[row], observation, atol=1e-5)
        observation, state = outcome.observation, after
        began = np.asarray(outcome.terminated | outcome.truncated)
        ended += began.sum()
    assert ended


def test_a_carry_holds_the_state_of_the_policy():
    key = jax.random.split(jax.random.key(0), 3)
    whole, _ = rollout(CartPole(), counting, None, key[0], 45, N, policy_state=blank())
    # At the end of an episode it is the old state, with which the value of the last observation is computed.
    assert (whole.policy_state["steps"] == whole.episode_length).all()
    assert whole.first_policy_state["steps"].tolist() == [0] * N
    again, transitions = rollout(CartPole(), counting, None, key[1], 45, N, carry=whole)
    expected = np.where(whole.began, 0, whole.policy_state["steps"])
    assert (transitions.extras["steps"][0] == expected).all()
    assert (transitions.began[0] == whole.began).all()
    assert (again.policy_state["steps"] == again.episode_length).all()


def test_a_carry_of_environments_alone():
    functions = Functions(Count())
    running, _ = functions.reset(jax.random.key(0), N)
    running, outcome = functions.step(jax.random.key(0), running, jnp.zeros(N, int))
    carry = Carry(running, outcome.observation)
    _, transitions = rollout(Count(), still, None, jax.random.key(0), 4, N, carry=carry)
    assert transitions.began[:, 0].tolist() == [False, False, False, True]
    assert transitions.episode_length[:, 0].tolist() == [2, 3, 4, 1]


def test_first_rows_need_not_be_equal():
    rows = {"steps": jnp.arange(N) * 100, "seen": jnp.zeros((N, 1))}
    _, transitions = rollout(Count(), counting, None, jax.random.key(0), 12, N, policy_state=rows)
    assert transitions.extras["steps"][:, 1].tolist() == [100, 101, 102, 103] * 3
    found = episode(Count(), counting, None, jax.random.key(0), N, policy_state=rows)
    assert found.length.tolist() == [4] * N


def test_states_of_a_policy_are_values():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if "backend_compile" in name else None
    )
    for number in range(3):
        state = jax.tree.map(lambda x, number=number: x + number, blank(size=1))
        rollout(Count(), counting, None, jax.random.key(0), 5, N, policy_state=state)
        if number == 1:
            compiled.clear()
    assert compiled == []


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lambda p, o, k, s: (jnp.zeros(N, int), None), "returned 2 values, not an action, extras and policy_state"),
        (lambda p, o, k, s: (jnp.zeros(N, int), None, s["steps"]), "of the same structure"),
        (
            lambda p, o, k, s: (jnp.zeros(N, int), None, {**s, "steps": s["steps"] + 0.5}),
            r"policy_state\['steps'\] of dtype int32",
        ),
        (
            lambda p, o, k, s: (jnp.zeros(N, int), None, {**s, "seen": s["seen"][:, 0]}),
            r"policy_state\['seen'\] of dtype float32 and shape \(3, 1\)",
        ),
    ],
)  # fmt: skip
def test_what_a_policy_must_return(policy, told):
    with pytest.raises(af.OptionError, match=told):
        rollout(Count(), policy, None, jax.random.key(0), 5, N, policy_state=blank(size=1))


def test_arguments_that_cannot_be_meant():
    carry, _ = rollout(Count(), still, None, jax.random.key(0), 5, N)
    for options, told in (
        ({"carry": carry, "policy_state": blank()}, "both passed"),
        ({"policy_state": blank(n=2)}, r"policy_state\['seen'\] has the shape \(2, 4\)"),
        ({"collect": "states"}, "cannot collect 'states'"),
        ({"collect": ("info", 3)}, "cannot collect 3"),
        ({"final_observation": 1}, "final_observation=1 is not valid"),
    ):
        with pytest.raises(af.OptionError, match=told):
            rollout(Count(), still, None, jax.random.key(0), 5, N, **options)
    with pytest.raises(af.OptionError, match="another environment"):
        rollout(CartPole(), still, None, jax.random.key(0), 5, N, carry=carry)


def test_what_is_collected():
    options = {"env_params": {"end": 9.0}}
    _, plain = rollout(Count(), still, None, jax.random.key(0), 8, N, **options)
    _, more = rollout(
        Count(), still, None, jax.random.key(0), 8, N, collect=("state", "info"),
        final_observation=False, **options,
    )  # fmt: skip
    assert plain.info is plain.state is more.final_observation is None
    assert (more.state["count"] == plain.observation[..., 0]).all()
    assert (more.info["twice"] == plain.final_observation[..., 0] * 2).all()
    assert more.info["twice"][:, 0].tolist() == [2, 4, 6, 8, 10, 12, 2, 4]
    assert more.began[:, 0].tolist() == [True, *[False] * 5, True, False]
    assert (more.truncated == plain.truncated).all()
    assert more.truncated[5].all()


def test_returns_and_lengths():
    _, transitions = rollout(CartPole(), still, None, jax.random.key(0), 60, N)
    for row in range(N):
        total = length = 0
        for step in range(60):
            if transitions.began[step, row]:
                total = length = 0
            total, length = total + transitions.reward[step, row], length + 1
            assert transitions.episode_return[step, row] == total
            assert transitions.episode_length[step, row] == length


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_returns_are_added_up_in_float32(dtype):
    class Ones(Count):
        def step(self, xp, rng, state, action, params):
            state, reward, terminated, _ = super().step(xp, rng, state, action, params)
            return state, jnp.ones_like(reward, dtype), terminated

    _, transitions = rollout(
        Ones(), still, None, jax.random.key(0), 3000, N, env_params={"end": 1e9}
    )
    assert transitions.episode_return.dtype == np.float32
    assert transitions.episode_return[-1].tolist() == [3000] * N


def test_params_that_jax_does_not_take_are_named():
    def policy(params, observation, key):
        return jnp.zeros(N, int) + (params["w"].sum() > 5), None

    def run(w):
        return rollout(Count(), policy, {"w": w}, jax.random.key(0), 3, N)[1].action

    assert run(np.array([2.0, 4.0], ">f4")).all()
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    for wrong in (np.array(["a"]), np.array([None]), masked, np.array(["2026-01-01"], "M8[D]")):
        with pytest.raises(af.OptionError, match=r"\['w'\]"):
            run(wrong)


def test_several_objectives():
    class Two(Count):
        def step(self, xp, rng, state, action, params):
            state, reward, terminated, truncated = super().step(xp, rng, state, action, params)
            return state, xp.stack([reward, -reward], axis=1), terminated, truncated

    _, transitions = rollout(Two(), still, None, jax.random.key(0), 6, N)
    assert transitions.episode_return[3].tolist() == [[10, -10]] * N
    assert transitions.episode_return[4].tolist() == [[1, -1]] * N
    results = evaluate(Two(), still, None, jax.random.key(0), N, episodes=2, discount=0.5)
    assert results.returns.tolist() == [[[10, -10]] * 2] * N
    assert results.discounted_returns[0, 0].tolist() == [1 + 1 + 0.75 + 0.5, -(1 + 1 + 0.75 + 0.5)]


def by_hand(transitions, row, episodes, discount):
    """Return the episodes of one environment, out of a long rollout."""
    ends = np.flatnonzero(transitions.terminated[:, row] | transitions.truncated[:, row])[:episodes]
    begins = [0, *(ends[:-1] + 1)]
    rewards = [
        np.asarray(transitions.reward[i : j + 1, row]) for i, j in zip(begins, ends, strict=True)
    ]
    return [(x.sum(), (x * discount ** np.arange(len(x))).sum(), len(x)) for x in rewards]  # fmt: skip


@pytest.mark.parametrize("limit", [None, 12])
def test_an_evaluation_is_that_of_its_episodes(limit):
    def lean(params, observation, key):
        return (observation[:, 2] > 0).astype(int), None

    class Fixed(CartPole):  # the same start each time, so that a rollout has the same episodes
        def reset(self, xp, rng, n, params):
            state = super().reset(xp, rng, n, params)
            return type(state)(*(xp.linspace(0.01, 0.04, n) for _ in state))

    options = {"max_episode_steps": limit}
    results = evaluate(
        Fixed(), lean, None, jax.random.key(0), N, episodes=2, discount=0.9, **options
    )
    _, transitions = rollout(Fixed(), lean, None, jax.random.key(0), 400, N, **options)
    for row in range(N):
        for number, (total, discounted, length) in enumerate(by_hand(transitions, row, 2, 0.9)):
            assert results.returns[row, number] == total
            assert np.isclose(results.discounted_returns[row, number], discounted, rtol=1e-5)
            assert results.lengths[row, number] == length
    assert (results.truncated == (limit is not None)).all()
    assert (results.terminated == (limit is None)).all()


def test_an_episode_is_the_first_of_an_evaluation():
    def at_random(params, observation, key):
        return jax.random.randint(key, observation.shape[:1], 0, 2), None

    key = jax.random.key(3)
    one = episode(CartPole(), at_random, None, key, N)
    first = evaluate(CartPole(), at_random, None, key, N, episodes=2)
    assert one.total.tolist() == first.returns[:, 0].tolist()
    assert one.length.tolist() == first.lengths[:, 0].tolist()
    assert one.terminated.tolist() == first.terminated[:, 0].tolist()


def test_environments_that_are_done_early_count_no_more():
    """Each counts its own first episodes, however many the others need time for."""
    ends = jnp.asarray([2.0, 5.0, 20.0])
    params = {"end": ends, "stop": 99.0}
    results = evaluate(Count(), still, None, jax.random.key(0), N, episodes=3, env_params=params)
    assert results.lengths.tolist() == [[2] * 3, [5] * 3, [20] * 3]
    assert results.returns.tolist() == [[3] * 3, [15] * 3, [210] * 3]


@pytest.mark.long
def test_an_evaluation_inside_vmap_and_jit():
    def leans(params, observation, key):
        return (observation[:, 2] > params).astype(int), None

    def mean(threshold, key):
        return evaluate(CartPole(), leans, threshold, key, 4).returns.mean()

    keys = jax.random.split(jax.random.key(0), 3)
    found = jax.jit(jax.vmap(mean))(jnp.asarray([-1.0, 0.0, 1.0]), keys)
    alone = [mean(t, k) for t, k in zip((-1.0, 0.0, 1.0), keys, strict=True)]
    assert np.allclose(found, alone)


def test_a_policy_with_a_state_is_evaluated():
    rows = {"steps": jnp.zeros(N, int), "seen": jnp.zeros((N, 1))}
    results = evaluate(Count(), counting, None, jax.random.key(0), N, policy_state=rows)
    assert results.lengths.tolist() == [[4]] * N


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.array, jnp.asarray, jnp.bfloat16])
def test_a_discount_of_any_library(kind):
    results = evaluate(Count(), still, None, jax.random.key(0), N, discount=kind(0.5))
    assert results.discounted_returns.tolist() == [[3.25]] * N


@pytest.mark.parametrize(
    "wrong",
    [{"episodes": 0}, {"discount": "a"}, {"discount": np.ones(1)}, {"discount": 1j},
     {"discount": np.array("a")}, {"discount": None}, {"num_envs": 0}],
)  # fmt: skip
def test_wrong_arguments_of_an_evaluation(wrong):
    with pytest.raises(af.OptionError):
        evaluate(Count(), still, None, jax.random.key(0), **{"num_envs": 2, **wrong})


def test_ordinary_environments():
    def lean(params, observation, key, state):
        return (observation[:, 2] > 0).astype(int), state, state + 1

    functions = HostFunctions(make_vec(N, gym.vector.AutoresetMode.SAME_STEP))
    first = jnp.zeros(N, int)
    carry, transitions = rollout(functions, lean, None, jax.random.key(0), 60, policy_state=first)
    ended = np.asarray(transitions.terminated | transitions.truncated)
    assert ended.any()
    assert (transitions.began[1:] == ended[:-1]).all()
    assert (transitions.extras + 1 == transitions.episode_length).all()
    _, more = rollout(functions, lean, None, jax.random.key(1), 5, carry=carry)
    assert (more.began[0] == ended[-1]).all()
    results = evaluate(functions, lean, None, jax.random.key(2), episodes=2, policy_state=first)
    assert results.returns.shape == (N, 2)
    assert (results.returns == results.lengths).all()
    with pytest.raises(af.OptionError, match="stay on the host"):
        rollout(functions, lean, None, jax.random.key(0), 5, collect="state")


@pytest.mark.parametrize("wrapped", [False, True])
def test_policy_and_step_are_traced_once(wrapped):
    log = io.StringIO()  # whose contents are no part of what the policy is compiled for

    class Traced(CartPole):
        def step(self, *args):
            log.write("step ")
            return super().step(*args)

    def policy(params, observation, key):
        log.write("policy ")
        return (observation[:, 0] > 0).astype(int), None

    env = wrap(Traced(), kernels.NormalizeObservation()) if wrapped else Traced()
    key = jax.random.key(0)
    rollout(env, policy, None, key, 5, 2)
    evaluate(env, policy, None, key, 2)
    assert sorted(log.getvalue().split()) == ["policy", "policy", "step", "step"]
    rollout(env, policy, None, key, 5, 2)
    evaluate(env, policy, None, key, 2)
    assert len(log.getvalue().split()) == 4


def test_states_of_wrappers_are_of_each_precision(enable_x64):
    """What is known of one wrapped environment serves traced calls, and calls with and without x64."""
    env = wrap(CartPole(), kernels.NormalizeObservation())
    values = {"obs_rms": {"mean": [0.0] * 4, "var": [1.0] * 4, "count": 3}}
    for x64 in (False, True, False):
        with enable_x64(x64):
            state = wrap(CartPole(), kernels.NormalizeObservation()).wrapper_state(values)
            traced = jax.jit(env.wrapper_state)(state)  # the first call with this precision
            for same in (traced, env.wrapper_state(traced), env.wrapper_state(values)):
                assert int(same[0].lasting["obs_rms"].count) == 3
    assert pickle.loads(pickle.dumps(env)) == env
    assert "_fresh" not in vars(pickle.loads(pickle.dumps(env)))


def test_statistics_serve_compiled_code():
    """Those of `state_dict` are numbers, in a traced function too."""
    env = wrap(CartPole(), kernels.NormalizeObservation())
    key = jax.random.key(0)

    def policy(scale, observation, key):
        return (scale * observation[:, 2] > 0).astype(int), None

    carry, _ = rollout(env, policy, 1.0, key, 9, 4)
    statistics = env.state_dict(carry.running)

    def run(scale):
        running, _ = Functions(env).reset(key, 4, wrapper_state=statistics)
        steps = rollout(env, policy, scale, key, 3, 4, wrapper_state=statistics)[1]
        results = evaluate(env, policy, scale, key, 4, wrapper_state=statistics)
        return running.wrappers[0].lasting["obs_rms"].count, steps.observation, results.returns

    expected = run(1.0)
    for traced in (jax.jit(run)(1.0), jax.lax.map(run, jnp.ones(1))):
        for one, other in zip(jax.tree.leaves(traced), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one.reshape(other.shape), other, rtol=1e-5)


def test_extras_that_are_no_arrays():
    def policy(params, observation, key):
        return jnp.ones(2, int), {"d": "text"}

    with pytest.raises(af.OptionError, match=r"extras\['d'\] = 'text'"):
        rollout(CartPole(), policy, None, jax.random.key(0), 2, 2)
    assert evaluate(CartPole(), policy, None, jax.random.key(0), 2).lengths.shape == (2, 1)


def test_actions_that_are_no_whole_numbers():
    def policy(params, observation, key):
        return jnp.ones(3), None

    with pytest.raises(af.ArrayFerryError, match="Cast it to an integer dtype"):
        rollout(CartPole(), policy, None, jax.random.key(0), 2, 3)


def test_default_parameters_with_attributes_of_their_own():
    class Own(type(CartPole.default_params)):
        pass

    class Pays(CartPole):
        default_params = Own(*CartPole.default_params)

        def step(self, xp, rng, state, action, params):
            after, reward, *rest = super().step(xp, rng, state, action, params)
            return after, reward * params.pay, *rest

    env = Pays()
    for pay in (1.0, 2.0):
        env.default_params.pay = pay
        envs = env.make_vec(2)
        envs.reset(seed=1)
        assert envs.step([0, 1])[1].tolist() == [pay, pay]
