"""Rollouts and evaluations of policies with a state, what they collect, and episodes that environments truncate."""

import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import begun
from functional_envs import Bare, Count, at_random, lean, still, with_two_rewards

import arrayferry as af
from arrayferry_envs import Carry, CartPole, Functions, evaluate, rollout, wrap
from arrayferry_gym.wrappers import kernels

N = 3


def counting(params, observation, key, state):
    """Remember how many steps were taken, and the last observation."""
    action = (state["steps"] % 2).astype(int)
    return action, state, {"steps": state["steps"] + 1, "seen": observation}


def blank(n=N, size=4):
    return {"steps": jnp.zeros(n, int), "seen": jnp.full((n, size), -1.0, "float32")}


def test_what_authors_return_is_theirs():
    """A flag that the environment keeps in its state is not written to."""

    class Keeps(Bare):
        def reset(self, xp, rng, n, params):
            return {"count": xp.zeros((n, 1)), "over": xp.zeros((n,), dtype=xp.bool)}

        def step(self, xp, rng, state, action, params):
            count = state["count"] + 1
            over = count[:, 0] % 2 == 0
            return {"count": count, "over": over}, 1.0, False, over

        def observe(self, xp, state, params):
            return state["count"]

    envs = begun(Keeps().make_vec(N, xp="numpy"), 0)
    for _ in range(6):
        truncated = envs.step(np.zeros(N, int))[3]
        count, over = envs.state["count"][:, 0], envs.state["over"]
        assert (over == (count % 2 == 0) & (count > 0)).all()
        truncated[:] = True  # the caller's own


def test_runs_take_their_first_arguments_alike():
    def policy(params, observation, key):
        return jax.random.randint(key, observation.shape[:1], 0, 2), params

    for run, options in (
        (rollout, {"num_steps": 5, "num_envs": N}),
        (evaluate, {"num_envs": N, "max_episode_steps": 9}),
    ):
        by_name = run(CartPole(), policy, policy_params=0.5, key=jax.random.key(3), **options)
        for key in (3, np.uint32(3), jax.random.key(3)):
            same = jax.tree.map(
                np.array_equal, run(CartPole(), policy, 0.5, key, **options), by_name
            )
            assert all(jax.tree.leaves(same))


def test_a_policy_with_a_state_is_called_as_in_a_loop():
    env, key, steps = CartPole(), jax.random.key(5), 60
    functions = Functions(env)
    take = jax.jit(functions.step)
    _, transitions = rollout(env, counting, None, key, steps, N, policy_state=blank())
    start, key = jax.random.split(key)
    env_state, observation = functions.reset(start, N)
    state, began, ended, length = blank(), np.ones(N, bool), 0, 0

    def chosen(new, old):
        return np.where(began.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    for row, own in enumerate(jax.random.split(key, steps)):
        acting, stepping = jax.random.split(own)
        state = jax.tree.map(chosen, blank(), state)
        action, _, after = counting(None, observation, acting, state)
        assert (transitions.extras["steps"][row] == state["steps"]).all()
        assert np.allclose(transitions.extras["seen"][row], state["seen"], atol=1e-5)
        assert (transitions.began[row] == began).all()
        assert (transitions.action[row] == action).all()
        length = np.where(began, 0, length) + 1
        assert (
            np.asarray(transitions.episode_return[row]) == length
        ).all()  # each step is rewarded by 1
        assert (transitions.episode_length[row] == length).all()
        env_state, outcome = take(stepping, env_state, action)
        assert np.allclose(transitions.observation[row], observation, atol=1e-5)
        final = outcome.final_observation
        assert np.allclose(transitions.final_observation[row], final, atol=1e-5)
        observation, state = outcome.observation, after
        began = np.asarray(outcome.terminated | outcome.truncated)
        ended += began.sum()
    assert ended


def test_a_carry_holds_the_state_of_the_policy():
    key = jax.random.split(jax.random.key(0), 3)
    whole, before = rollout(CartPole(), counting, None, key[0], 45, N, policy_state=blank())
    # At the end of an episode it is the old state, with which the value of the last observation is computed.
    assert (whole.policy_state["steps"] == whole.episode_length).all()
    assert whole.first_policy_state["steps"].tolist() == [0] * N
    again, transitions = rollout(CartPole(), counting, None, key[1], 45, N, carry=whole)
    assert (transitions.observation[0] == whole.observation).all()
    last = before.final_observation[-1]
    assert (whole.observation == last).all(axis=1).tolist() == (~whole.began).tolist()
    expected = np.where(whole.began, 0, whole.policy_state["steps"])
    assert (transitions.extras["steps"][0] == expected).all()
    assert (transitions.began[0] == whole.began).all()
    assert (again.policy_state["steps"] == again.episode_length).all()


def test_a_carry_of_environments_alone():
    functions = Functions(Count())
    env_state, _ = functions.reset(jax.random.key(0), N)
    env_state, outcome = functions.step(jax.random.key(0), env_state, jnp.zeros(N, int))
    carry = Carry(env_state, outcome.observation)
    _, transitions = rollout(Count(), still, None, jax.random.key(0), 4, N, carry=carry)
    assert transitions.began[:, 0].tolist() == [False, False, False, True]
    assert transitions.episode_length[:, 0].tolist() == [2, 3, 4, 1]


def test_first_rows_need_not_be_equal():
    rows = {"steps": jnp.arange(N) * 100, "seen": jnp.zeros((N, 1), "float32")}
    _, transitions = rollout(Count(), counting, None, jax.random.key(0), 12, N, policy_state=rows)
    assert transitions.extras["steps"][:, 1].tolist() == [100, 101, 102, 103] * 3
    found = evaluate(Count(), counting, key=jax.random.key(0), num_envs=N, policy_state=rows)
    assert found.lengths.tolist() == [[4]] * N


def test_what_is_collected():
    options = {"env_params": {"end": 9.0}}
    _, plain = rollout(Count(), still, None, jax.random.key(0), 8, N, **options)
    _, more = rollout(
        Count(), still, None, jax.random.key(0), 8, N, collect=("state", "info"),
        final_observation=False, **options,
    )  # fmt: skip
    assert plain.info is plain.state is more.final_observation is None
    assert (more.state == plain.observation[..., 0]).all()
    assert (more.info["twice"] == plain.final_observation[..., 0] * 2).all()
    assert more.info["twice"][:, 0].tolist() == [2, 4, 6, 8, 10, 12, 2, 4]
    assert more.began[:, 0].tolist() == [True, *[False] * 5, True, False]
    assert (more.truncated == plain.truncated).all()
    assert more.truncated[5].all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_returns_are_added_up_in_float32(dtype):
    class Ones(Count):
        def step(self, xp, rng, state, action, params):
            state, reward, terminated, _ = super().step(xp, rng, state, action, params)
            return state, jnp.ones_like(reward, dtype), terminated

    options = {"key": jax.random.key(0), "num_envs": N, "env_params": {"end": 3000.0}}
    _, steps = rollout(Ones(), still, None, num_steps=3000, **options)
    for total in (steps.episode_return[-1], evaluate(Ones(), still, **options).returns[:, 0]):
        assert total.dtype == np.float32
        assert total.tolist() == [3000] * N


@pytest.mark.assumes_other("x64")
def test_params_that_jax_does_not_take_are_named():
    def policy(params, observation, key):
        return jnp.zeros(N, int) + (params["w"].sum() > 5).astype(int), None

    def run(w):
        return rollout(Count(), policy, {"w": w}, jax.random.key(0), 3, N)[1].action

    assert run(np.array([2.0, 4.0], ">f4")).all()
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    texts = np.array(["a"]), np.array([None]), np.array(["2026-01-01"], "M8[D]")
    for wrong in (*texts, masked, np.array([2**40]), np.array([1e300]), np.zeros(1, "i4,f4")):
        with pytest.raises(af.OptionError, match=r"\['w'\]"):
            run(wrong)
    wrong = {"env_params": {"gravity": np.array(2**40)}}
    with pytest.raises(af.OptionError, match=r"gravity.*does not fit int32"):
        rollout(CartPole(), still, None, jax.random.key(0), 3, N, **wrong)


@pytest.mark.assumes_other("x64")
def test_states_of_policies_and_limits_that_jax_does_not_take():
    def last(steps, limit=2**63):
        rows = {"steps": steps, "seen": np.zeros((N, 1), ">f4")}
        options = {"policy_state": rows, "max_episode_steps": limit}
        return rollout(Count(), counting, None, jax.random.key(0), 2, N, **options)[1]

    found = last(np.full(N, 5, ">i4"))
    assert found.extras["steps"][1].tolist() == [6] * N
    assert not found.truncated.any()
    for wrong in (np.full(N, 2**40), np.ma.masked_array(range(N), [True] * N), np.full(N, "a")):
        with pytest.raises(af.ConversionError):
            last(wrong)


def test_several_objectives():
    env = with_two_rewards(Count)()
    _, transitions = rollout(env, still, None, jax.random.key(0), 6, N)
    assert transitions.episode_return[3].tolist() == [[10, -10]] * N
    assert transitions.episode_return[4].tolist() == [[1, -1]] * N
    results = evaluate(env, still, key=jax.random.key(0), num_envs=N, episodes=2, gamma=0.5)
    assert results.returns.tolist() == [[[10, -10]] * 2] * N
    assert results.discounted_returns[0, 0].tolist() == [3.25, -3.25]


def by_hand(transitions, row, episodes, gamma):
    """Return the episodes of one environment, out of a long rollout."""
    ends = np.flatnonzero(transitions.terminated[:, row] | transitions.truncated[:, row])[:episodes]
    begins = [0, *(ends[:-1] + 1)]
    rewards = [
        np.asarray(transitions.reward[i : j + 1, row]) for i, j in zip(begins, ends, strict=True)
    ]
    return [(x.sum(), (x * gamma ** np.arange(len(x))).sum(), len(x)) for x in rewards]  # fmt: skip


@pytest.mark.parametrize("limit", [None, 12])
def test_an_evaluation_is_that_of_its_episodes(limit):
    class Fixed(CartPole):  # the same start each time, so that a rollout has the same episodes
        def reset(self, xp, rng, n, params):
            state = super().reset(xp, rng, n, params)
            return type(state)(*(xp.linspace(0.01, 0.04, n) for _ in state))

    options = {"max_episode_steps": limit}
    results = evaluate(
        Fixed(), lean, key=jax.random.key(0), num_envs=N, episodes=2, gamma=0.9, **options
    )
    _, transitions = rollout(Fixed(), lean, None, jax.random.key(0), 400, N, **options)
    for row in range(N):
        for number, (total, discounted, length) in enumerate(by_hand(transitions, row, 2, 0.9)):
            assert results.returns[row, number] == total
            assert np.isclose(results.discounted_returns[row, number], discounted, rtol=1e-5)
            assert results.lengths[row, number] == length
    assert (results.truncated == (limit is not None)).all()
    assert (results.terminated == (limit is None)).all()


def test_more_episodes_begin_with_the_same():
    options = {"key": jax.random.key(3), "num_envs": N}
    one = evaluate(CartPole(), at_random, **options)
    two = evaluate(CartPole(), at_random, **options, episodes=2)
    for first, both in zip(one, two, strict=True):
        assert first[:, 0].tolist() == both[:, 0].tolist()


@pytest.mark.parametrize(
    "gamma",
    [kind(0.5) for kind in (np.float32, np.float16, np.array, jnp.asarray, jnp.bfloat16)] + [1],
)
def test_a_discount_of_any_library(gamma):
    results = evaluate(Count(), still, key=jax.random.key(0), num_envs=N, gamma=gamma)
    expected = sum((step + 1) * float(gamma) ** step for step in range(4))
    assert results.discounted_returns.tolist() == [[expected]] * N


@pytest.mark.filterwarnings("ignore:.*begins with new statistics")
@pytest.mark.parametrize("wrapped", [False, pytest.param(True, marks=pytest.mark.long)])
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
    evaluate(env, policy, key=key, num_envs=2)
    assert sorted(log.getvalue().split()) == ["policy", "policy", "step", "step"]
    rollout(env, policy, None, key, 5, 2)
    evaluate(env, policy, key=key, num_envs=2)
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


@pytest.mark.long
def test_statistics_serve_compiled_code():
    """Those of `state_dict` are numbers, in a traced function too."""
    env = wrap(CartPole(), kernels.NormalizeObservation())
    key = jax.random.key(0)

    def policy(scale, observation, key):
        return (scale * observation[:, 2] > 0).astype(int), None

    carry, _ = rollout(env, policy, 1.0, key, 9, 4)
    statistics = env.state_dict(carry.env_state)

    def run(scale):
        env_state, _ = Functions(env).reset(key, 4, wrapper_state=statistics)
        steps = rollout(env, policy, scale, key, 3, 4, wrapper_state=statistics)[1]
        results = evaluate(
            env, policy, policy_params=scale, key=key, num_envs=4, wrapper_state=statistics
        )
        return env_state.wrappers[0].lasting["obs_rms"].count, steps.observation, results.returns

    expected = run(1.0)
    for traced in (jax.jit(run)(1.0), jax.lax.map(run, jnp.ones(1))):
        for one, other in zip(jax.tree.leaves(traced), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one.reshape(other.shape), other, rtol=1e-5)


def test_extras_that_are_no_arrays_of_an_evaluation():
    def policy(params, observation, key):
        return jnp.ones(2, int), {"d": "text"}

    assert evaluate(CartPole(), policy, key=jax.random.key(0), num_envs=2).lengths.shape == (2, 1)


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
        envs = begun(env.make_vec(2))
        assert envs.step([0, 1])[1].tolist() == [pay, pay]


@pytest.mark.parametrize(
    ("before", "after"),
    [(0, 1), ((0,), (1,)), ([0], [1]), ({"a": 0}, {"a": 1}), ((None, (0,)), (None, (1,)))],
)
def test_an_attribute_of_a_policy_that_is_replaced(before, after):
    class Acts:
        def __call__(self, params, observation, key):
            move = int("1" in str(self.moves))
            return jnp.full(observation.shape[0], move), None

    policy = Acts()
    for moves, action in ((before, 0), (after, 1), (before, 0)):
        policy.moves = moves
        _, steps = rollout(CartPole(), policy, None, jax.random.key(0), 2, 2)
        assert steps.action.tolist() == [[action] * 2] * 2
