"""Evaluations of policies of any library, in environments of any kind."""

import functools
import gc
import operator

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.progress
import torch
from cases import crossed
from envs import EVERY_MODE, MODES, NAMESPACES, Takes, begun, make_vec
from functional_envs import Count, lean, with_two_rewards
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import arrayferry as af
import arrayferry_gym
from arrayferry_envs import CartPole, evaluate, record, rollout, wrap
from arrayferry_envs._policies.batch import EnvBatch
from arrayferry_envs.extending import first_carry, make_policy
from arrayferry_gym.vector import ArrayConversion, NumpyToTorch
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers.vector import NormalizeObservation

ENDS = [2.0, 3.0, 7.0]
N = len(ENDS)
PARAMS = {"end": np.array(ENDS, np.float32)}
LIBRARIES = pytest.mark.parametrize("library", ["numpy", "torch", "jax"])


class Stops(Count):
    """Truncates itself at 3."""

    default_params = {"end": 4.0, "stop": 3.0}


def policy(library):
    """Return a policy that needs arrays of a library, and its own kind of random numbers."""
    xp = NAMESPACES[library]

    def act(params, observation, key):
        assert af.backend_of(observation).name == af.backend_of(params["w"]).name == library
        if library == "jax":
            return jax.random.randint(key, observation.shape[:1], 0, 2), None
        return key.integers(observation.shape[:1], 0, 2), xp.sum(params["w"])

    return act


WEIGHTS = {"w": np.ones(2, np.float32)}


def check(results):
    """Check the episodes of `Stops` with `ENDS`."""
    assert np.asarray(results.lengths).tolist() == [[2, 2], [3, 3], [3, 3]]
    assert np.asarray(results.returns).tolist() == [[3, 3], [6, 6], [6, 6]]
    assert np.asarray(results.discounted_returns).tolist() == [[2, 2], [2.75, 2.75], [2.75, 2.75]]
    assert np.asarray(results.terminated).tolist() == [[True] * 2, [True] * 2, [False] * 2]
    assert np.asarray(results.truncated).tolist() == [[False] * 2, [True] * 2, [True] * 2]


@LIBRARIES
def test_a_functional_environment(library):
    results = evaluate(
        Stops(), policy(library), policy_params=WEIGHTS, key=0, num_envs=N, episodes=2, gamma=0.5,
        env_params=PARAMS, policy_xp=library,
    )  # fmt: skip
    check(results)
    assert af.backend_of(results.returns).name == ("jax" if library == "jax" else "numpy")
    assert results.returns.dtype == (np.float32 if library == "jax" else np.float64)
    assert results.lengths.dtype == np.int32


@pytest.mark.parametrize(
    ("served", "library", "adapted", "mode"),
    crossed(NAMESPACES, ["torch", "jax", "numpy"], [False, True], EVERY_MODE),
)
def test_a_vector_environment(served, library, adapted, mode):
    envs = Stops().make_vec(N, xp=served, autoreset_mode=mode, params=PARAMS)
    if adapted:
        envs = ArrayConversion(envs, served, library)
    xp = None if served == library or adapted else library
    check(
        evaluate(envs, policy(library), policy_params=WEIGHTS, key=0, episodes=2, gamma=np.array(0.5), policy_xp=xp)
    )  # fmt: skip


@MODES
def test_the_same_episodes_in_each_mode(mode):
    envs = make_vec(4, mode)
    found = evaluate(envs, lean, key=5, episodes=3)
    assert (found.returns == found.lengths).all()
    for other in (envs, make_vec(4, AutoresetMode.DISABLED)):
        again = evaluate(other, lean, key=5, episodes=3)
        assert again.lengths.tolist() == found.lengths.tolist()
    assert len(set(found.lengths.ravel().tolist())) > 3
    assert not envs.closed


class Closes(Takes):
    """Counts its resets, and knows whether it was closed."""

    resets, closed = 0, False

    def reset(self, **options):
        self.resets += 1
        return super().reset(**options)

    def close(self):
        self.closed = True


@LIBRARIES
def test_a_single_environment(library):
    env, act = Closes(spaces.Discrete(2)), policy(library)
    inexact = gym.wrappers.TransformReward(env, lambda _: 0.1)  # in float32
    limited = gym.wrappers.TimeLimit(inexact, 100)
    results = evaluate(limited, act, policy_params=WEIGHTS, key=0, episodes=3, policy_xp=library)
    gc.collect()
    assert not env.closed
    assert env.resets == 3
    assert results.lengths.tolist() == [[100] * 3]
    added = functools.reduce(operator.add, [0.1] * 100)  # sum() is more precise from Python 3.12 on
    assert results.returns[0].tolist() == [added] * 3


def test_a_single_environment_is_not_switched_to_another_library():
    for env in (
        Stops().make(xp="torch"),
        gym.wrappers.OrderEnforcing(Stops().make(xp="torch")),
        gym.wrappers.OrderEnforcing(arrayferry_gym.JaxToTorch(Stops().make(xp="jax"))),
    ):
        for options in ({"policy_xp": "torch"}, {}):
            results = evaluate(env, policy("torch"), policy_params=WEIGHTS, **options)
            assert results.lengths.tolist() == [[3]]
        assert type(env.reset(seed=0)[0]) is torch.Tensor


class Agent(torch.nn.Module):
    def __init__(self, size=4):
        super().__init__()
        layers = torch.nn.BatchNorm1d(size), torch.nn.Linear(size, 2)
        self.layers = torch.nn.Sequential(*layers).float()

    def forward(self, observation):
        assert not observation.requires_grad
        return self.layers(observation).argmax(-1)


@pytest.mark.parametrize(
    "make",
    [CartPole, lambda: make_vec(3), lambda: NumpyToTorch(make_vec(3)), lambda: gym.make("CartPole-v1")],
    ids=["functional", "vector", "adapter", "single"],
)  # fmt: skip
def test_a_module_stays_as_it_is(make):
    env, agent = make(), Agent()
    options = {"num_envs": 3} if isinstance(env, CartPole) else {}
    before = {name: x.clone() for name, x in agent.state_dict().items()}
    results = evaluate(env, agent, episodes=2, **options)
    assert (results.lengths > 5).all()
    other = {name: torch.zeros_like(x) for name, x in before.items()}  # always pushes to the left
    left = evaluate(env, agent, policy_params=other, **options)
    assert (left.lengths < 15).all()
    assert agent.training
    assert all((x == before[name]).all() for name, x in agent.state_dict().items())


@LIBRARIES
@pytest.mark.assumes_other("strict")
def test_a_policy_with_a_state(library):
    seen = []

    def counting(params, observation, key, steps):
        if library != "jax":
            seen.append((np.asarray(steps).tolist(), np.asarray(observation)[:, 0].tolist()))
        return (steps % 2) * (observation[:, 0] == steps), None, steps + 1

    rows = np.zeros(N, np.int32)
    for env, own in (
        (Stops(), {"num_envs": N, "env_params": PARAMS}),
        (Stops().make_vec(N, autoreset_mode="NextStep", params=PARAMS), {}),
        (Stops().make_vec(N, autoreset_mode="Disabled", params=PARAMS), {}),
    ):
        found = evaluate(env, counting, policy_xp=library, policy_state=rows, episodes=2, **own)
        assert np.asarray(found.lengths).tolist() == [[2, 2], [3, 3], [3, 3]]
    for steps, counts in seen:
        at_end = np.array(counts) >= np.minimum(ENDS, 3)  # whose action does not count
        assert ((np.array(steps) == counts) | at_end).all()


class Counts(torch.nn.Module):
    """Counts the steps of an episode in its state, and fails if the observation says otherwise."""

    def forward(self, observation, steps):
        at_end = (observation[:, 0] == 2) | (observation[:, 0] == 3)  # whose action does not count
        assert ((steps == observation[:, 0]) | at_end).all()
        return (steps % 2).int(), steps + 1


@pytest.mark.parametrize(("served", "mode"), crossed(["numpy", "torch"], EVERY_MODE))
def test_a_module_with_a_state(served, mode):
    envs = Stops().make_vec(N, xp=served, autoreset_mode=mode, params=PARAMS)
    for rows in (torch.zeros(N), np.zeros(N, np.float32)):
        check(evaluate(envs, Counts(), policy_state=rows, episodes=2, gamma=0.5))
    words = r"returned Tensor, not an action and policy_state\. Return \(action, policy_state\)\."
    with pytest.raises(af.OptionError, match=words):
        evaluate(envs, Ignores(), policy_state=rows)


class Ignores(torch.nn.Module):
    def forward(self, observation, state):
        return state


class Both(torch.nn.Module):
    def forward(self, observation):
        choice = torch.distributions.Categorical(logits=observation[:, :2])
        return choice, observation[:, 0]


@pytest.mark.parametrize(
    "env", [CartPole().make_vec(2), gym.make("CartPole-v1")], ids=["functional", "single"]
)
def test_a_module_that_returns_more_than_actions(env):
    with pytest.raises(af.ConversionError, match=r"Let forward\(\) of the module return actions"):
        evaluate(env, Both())


def test_several_objectives():
    env = with_two_rewards(Stops)()
    options = {"policy_params": WEIGHTS, "key": 0, "episodes": 2, "gamma": 0.5}
    found = evaluate(env, policy("torch"), num_envs=2, policy_xp="torch", **options)
    assert found.returns.tolist() == [[[6, -6]] * 2] * 2
    assert found.discounted_returns.tolist() == [[[2.75, -2.75]] * 2] * 2
    found = evaluate(env.make(), policy("numpy"), **options)
    assert found.discounted_returns.tolist() == [[[2.75, -2.75]] * 2]


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.long)])
@pytest.mark.assumes_other("strict")
def test_statistics_of_a_training_are_used_and_not_updated(library):
    env = wrap(CartPole(), kernels.NormalizeObservation(), kernels.NormalizeReward(gamma=0.9))
    carry, _ = rollout(env, lean, None, jax.random.key(0), 30, 4)
    compiled = evaluate(env, lean, key=0, num_envs=50, wrapper_state=carry.env_state.wrappers)
    for state in (carry.env_state.wrappers, env.state_dict(carry.env_state)):
        found = evaluate(env, lean, key=0, num_envs=50, wrapper_state=state, policy_xp=library)
        mean = (found.returns / found.lengths).mean()
        assert np.isclose(mean, (compiled.returns / compiled.lengths).mean(), rtol=1e-3)
    with pytest.raises(af.OptionError, match="return_rms"):
        evaluate(env, lean, key=0, num_envs=2, wrapper_state={"obs_rms": state["obs_rms"]}, policy_xp=library)  # fmt: skip


@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.assumes_other("strict")
def test_statistics_of_other_wrappers_are_left_out(library):
    """As of `NormalizeReward`, which an evaluation leaves out."""
    env, outer = CartPole(), kernels.NormalizeReward(gamma=0.9)
    carry, _ = rollout(wrap(env, kernels.NormalizeObservation(), outer), lean, None, jax.random.key(0), 30, 4)  # fmt: skip
    state = wrap(env, kernels.NormalizeObservation(), outer).state_dict(carry.env_state)
    env = wrap(env, kernels.NormalizeObservation())
    found, expected = (
        evaluate(env, lean, key=0, num_envs=9, wrapper_state=each, policy_xp=library)
        for each in (state, {"obs_rms": state["obs_rms"]})
    )
    assert (found.returns == expected.returns).all()
    assert (found.returns == found.lengths).all()


def above_one(params, observation, key):
    return (observation[:, 0] > 1) * 1, None


class Five(CartPole):
    """Always observes 5.0, and rewards the action."""

    def observe(self, xp, state, params):
        return 0.0 * super().observe(xp, state, params) + 5.0

    def step(self, xp, rng, state, action, params):
        return state, xp.astype(action, xp.float32), action < 0


@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.assumes_other("strict")
def test_statistics_that_begin_anew_are_updated_and_told(library, tmp_path):
    env = wrap(Five(), kernels.NormalizeObservation())
    with pytest.warns(UserWarning, match="begins with new statistics") as told:
        found = evaluate(env, above_one, key=0, num_envs=2, max_episode_steps=5, policy_xp=library)
    assert [each.filename for each in told] == [__file__]
    assert found.returns.tolist() == [[0.0], [0.0]]
    with pytest.warns(UserWarning, match="begins with new statistics"):
        record(env, above_one, path=tmp_path / "x.gif", num_steps=1, policy_xp=library)


@pytest.mark.assumes_other("strict")
def test_statistics_of_mapped_trainings_are_read_one_by_one():
    env = wrap(CartPole(), kernels.NormalizeObservation())
    keys = jax.random.split(jax.random.key(0), 3)
    env_state = jax.vmap(lambda key: rollout(env, lean, None, key, 2, 4)[0].env_state)(keys)
    with pytest.raises(af.OptionError, match="these are the statistics of several runs"):
        env.state_dict(env_state)
    one = jax.tree.map(lambda x: x[0], env_state)
    assert env.state_dict(one)["obs_rms"]["count"] == 12
    with pytest.raises(af.OptionError, match="the state of one run"):
        evaluate(env, lean, key=0, num_envs=2, wrapper_state=env_state.wrappers)
    states = jax.vmap(
        lambda state: evaluate(env, lean, key=0, num_envs=2, wrapper_state=state).returns
    )(env_state.wrappers)
    assert states.shape == (3, 2, 1)
    rewarded = wrap(CartPole(), kernels.NormalizeObservation(), kernels.NormalizeReward())

    def trained(key):  # those of the inner kernels are the first
        carry = rollout(rewarded, lean, None, key, 2, 4)[0]
        states = carry.env_state.wrappers[:-1]
        return evaluate(env, lean, key=0, num_envs=2, wrapper_state=states).returns, carry

    returns, carry = jax.vmap(trained)(keys)
    assert returns.tolist() == states.tolist()
    assert len(carry.env_state.wrappers) == 2


def test_statistics_of_wrappers_are_not_updated_meanwhile():
    ours = begun(NormalizeObservation(make_vec(2, AutoresetMode.SAME_STEP)), 0)
    before = ours.state_dict()
    evaluate(ours, policy("jax"), policy_params=WEIGHTS, policy_xp="jax")
    assert ours.state_dict() == before
    assert ours.update_running_mean


def test_new_statistics_of_wrappers_are_not_updated_meanwhile():
    single = gym.wrappers.NormalizeObservation(gym.make("CartPole-v1"))
    theirs = gym.vector.SyncVectorEnv([lambda: single])
    for envs in (theirs, NormalizeObservation(make_vec(2))):
        with pytest.warns(UserWarning, match="has new statistics, which this call does not update"):
            evaluate(envs, Agent())
    assert single.obs_rms.count < 1
    assert single.update_running_mean


@pytest.mark.parametrize("count", [1, 2])
def test_statistics_out_of_reach_are_told(count):
    def one():
        env = gym.wrappers.NormalizeObservation(gym.make("CartPole-v1"))
        return env if count == 1 else gym.wrappers.NormalizeReward(env)

    envs = gym.vector.AsyncVectorEnv([one], context="spawn")
    try:
        with pytest.warns(
            UserWarning, match="in other processes, where their statistics are still updated"
        ):
            evaluate(envs, Agent())
    finally:
        envs.close()


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_progress(library, monkeypatch):
    done = []
    update = rich.progress.Progress.update

    def watched(self, task, **changed):
        done.append(changed["completed"])
        assert self.tasks[0].total == 6
        update(self, task, **changed)

    monkeypatch.setattr(rich.progress.Progress, "update", watched)
    options = {"policy_xp": library, "episodes": 2, "env_params": PARAMS, "policy_params": WEIGHTS}
    found = evaluate(Stops(), policy(library), key=0, num_envs=N, progress=True, **options)
    assert np.asarray(found.lengths).sum() == 16
    assert sorted(set(done)) == [1, 3, 4, 6]
    evaluate(Stops(), policy(library), key=0, num_envs=N, **options)
    assert done[-1] == 6


def test_an_integer_and_a_key_of_jax():
    act = policy("jax")

    def lengths(env, key, **options):
        found = evaluate(env, act, policy_params=WEIGHTS, key=key, **options)
        return found.lengths.tolist()

    for key in (3, np.int64(3), jax.random.PRNGKey(3)):
        same = lengths(CartPole(), jax.random.key(3), num_envs=2)
        assert lengths(CartPole(), key, num_envs=2) == same
    # a key tells that the policy is JAX's
    assert lengths(make_vec(2), jax.random.key(3)) == lengths(make_vec(2), jax.random.key(3))


def explained(error):
    """Return the notes of an error that name `policy_xp`. JAX adds its own."""
    return [note for note in error.__notes__ if "policy_xp=" in note]


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_an_error_of_a_policy_says_where_it_is_from(library):
    def wrong(params, observation, key):
        raise KeyError("mine")

    for env, count in ((Stops(), 2), (Stops().make_vec(2), None)):
        with pytest.raises(KeyError, match="mine") as caught:
            evaluate(env, wrong, key=0, num_envs=count, policy_xp=library)
        (note,) = explained(caught.value)
    if library != "jax":
        assert f"observations of {library}: float32 (2, 1)." in note


def test_an_error_of_a_module_says_what_it_was_called_with():
    class Doubles(Stops):
        observation_space = spaces.Box(0, 100, (1,), np.float64)

        def observe(self, xp, state, params):
            return xp.astype(state[:, None], xp.float64)

    with pytest.raises(RuntimeError, match="dtype") as caught:
        evaluate(Doubles(), torch.nn.Linear(1, 2).float(), num_envs=2)
    (note,) = caught.value.__notes__
    assert note.endswith(
        "in step 0 of evaluate, which passes observations of torch: float64 (2, 1)."
    )


@pytest.mark.assumes_other("no_grad")
def test_a_module_that_cannot_be_copied():
    agent = Agent()
    agent.last = agent.layers[1].weight * 2
    words = r"evaluate uses a copy.*RuntimeError.*Detach.*policy_xp='torch'"
    with pytest.raises(af.OptionError, match=words) as caught:
        evaluate(make_vec(2), agent)
    assert isinstance(caught.value.__cause__, RuntimeError)


class Acts:
    """Policies of other forms."""

    def __call__(self, params, observation, key):
        return observation[:, 2] > 0, None

    def several(self, *args):
        return self(*args)

    def defaults(self, params, observation, key=None, more=1):
        return self(params, observation, key)


@functools.wraps(lambda observation: observation)
def wraps_another(params, observation, key):
    return observation[:, 2] > 0, None


@pytest.mark.parametrize(
    "act",
    [Acts(), Acts().several, Acts().defaults, wraps_another, jax.jit(Acts().defaults)],
    ids=["object", "several", "defaults", "wraps_another", "compiled"],
)
def test_policies_that_take_what_they_are_called_with(act):
    assert evaluate(make_vec(2), act, key=jax.random.key(0)).lengths.shape == (2, 1)


def test_a_policy_of_another_library_is_told_what_to_pass():
    weights = torch.ones(2, 4, dtype=torch.float32)

    def other(params, observation, key):
        return torch.argmax(observation, 1), None

    def closes(params, observation, key):
        return (observation @ weights.T).argmax(-1), None

    for env, policy, options in (
        (CartPole(), other, {"num_envs": 2}),
        (CartPole(), closes, {"num_envs": 2}),
        (make_vec(2), other, {"policy_xp": "jax"}),
    ):
        with pytest.raises(TypeError, match="Tensor") as caught:
            evaluate(env, policy, **options)
        assert len(explained(caught.value)) == 1
    found = evaluate(CartPole(), closes, key=0, num_envs=2, policy_xp="torch")
    assert found.lengths.shape == (2, 1)


@pytest.mark.long
def test_an_agent_in_pytorch_needs_no_jax(run_python):
    out = run_python(
        "import sys; sys.modules['jax'] = None\n"
        "import arrayferry_envs, arrayferry_gym, gymnasium as gym\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "class Agent(torch.nn.Linear):\n"
        "    def forward(self, x): return super().forward(x).argmax(-1)\n"
        "envs = gym.make_vec('CartPole-v1', num_envs=2)\n"
        "print(arrayferry_envs.evaluate(envs, Agent(4, 2)).lengths.shape)\n"
        "print(arrayferry_envs.evaluate(arrayferry_envs.CartPole, Agent(4, 2), num_envs=2).lengths.shape)\n"
        "env = arrayferry_gym.NumpyToTorch(gym.make('CartPole-v1'))\n"
        "print(env.reset(seed=1)[0].dtype, env.step(torch.tensor(1))[0].shape)"
    )
    assert out.split("\n")[:3] == ["(2, 1)", "(2, 1)", "torch.float32 torch.Size([4])"]


class Informs(gym.Env):
    """Its infos are of any kind, even as Gymnasium's own vector environments name theirs."""

    observation_space, action_space = spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(2)

    def __init__(self, info):
        self.info = info

    def reset(self, *, seed=None, options=None):
        self.x = np.zeros(1, np.float32)
        return self.x, None

    def step(self, action):
        self.x += 1
        return self.x, [1, 2], bool(self.x[0] > 1), False, self.info


@pytest.mark.parametrize("info", [None, "text", {"final_obs": 1, "final_info": 2}])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_a_batch_keeps_infos_and_rewards_as_they_are(info, mode):
    batch = EnvBatch([Informs(info), Informs(info)], True, mode)
    batch.reset()
    for _ in range(2):
        observations, rewards, terminated, _, infos = batch.step(np.zeros(2, int))
        assert rewards.tolist() == [[1, 2], [1, 2]]
        assert batch.infos == [info, info]
        assert (infos == {}) == (mode is AutoresetMode.DISABLED or not terminated.any())
    assert terminated.all()
    assert [x.tolist() for x in infos.get("final_obs", observations)] == [[2.0], [2.0]]
    assert observations.tolist() == [[0.0 if mode is AutoresetMode.SAME_STEP else 2.0]] * 2


@pytest.mark.parametrize("wrong", [1.5, -0.5, np.float32(1.5), np.array(-1e-3), float("inf"), 2])
def test_a_discount_is_from_0_to_1(wrong):
    for given in (wrong, torch.as_tensor(wrong), jnp.asarray(wrong, jnp.float32)):
        with pytest.raises(af.OptionError, match=r"gamma=.* is not valid"):
            evaluate(Count(), lean, gamma=given, num_envs=1)
        with pytest.raises(af.OptionError, match=r"gamma=.* is not valid"):
            kernels.RecordEpisodeStatistics(gamma=given)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (np.array([2**40] * 3), r"1099511627776 does not fit int32, at \['h'\]"),
        (np.array([2**40] * 2), r"\['h'\] has the shape \(2,\)"),
    ],
)
def test_first_states_of_policies_in_jax_are_told_by_their_path(state, told, enable_x64):
    with enable_x64(False), pytest.raises(af.ArrayFerryError, match=told):
        make_policy(lambda *args: None, af.registry.backend("jax"), (0,), 3, {"h": state})


def test_a_first_carry_calls_no_policy():
    def policy(*args):
        raise AssertionError("it was called")

    carry = first_carry(CartPole(), policy, None, jax.random.key(0), 2)
    assert carry.observation.shape == (2, 4)
