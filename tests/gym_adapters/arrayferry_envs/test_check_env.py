"""`check_functional_env` names what an author wrote wrong, with the method and the line."""

import inspect
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cases import crossed, quick_if
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import (
    CartPole,
    EnvResultError,
    FunctionalEnv,
    Pendulum,
    check_functional_env,
    repeat_action,
    wrap,
)
from arrayferry_gym.wrappers import kernels


class Right(FunctionalEnv):
    observation_space = spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    default_params = {"end": 5.0}

    def reset(self, xp, rng, n, params):
        return {"x": rng.uniform((n,), -1.0, 1.0), "v": xp.zeros((n,), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        x = state["x"] + 0.1 * xp.astype(action, xp.float32) + rng.normal(state["x"].shape) * 0.01
        return {**state, "x": x}, x, x > params["end"]

    def observe(self, xp, state, params):
        return state["x"][:, None]


def branches(self, xp, rng, state, action, params):
    if state["x"] > 0:  # here
        return state, 1.0, False
    return state, 0.0, False


def assigns(self, xp, rng, state, action, params):
    state["x"][0] = 0.0  # here
    return state, 1.0, False


def adds(self, xp, rng, state, action, params):
    x = state["x"]
    x += 1  # here
    return {**state, "x": x}, 1.0, False


def uses_numpy(self, xp, rng, state, action, params):
    return {**state, "x": np.sin(state["x"])}, 1.0, False  # here


def misspells(self, xp, rng, state, action, params):
    return state, 1.0, state["x"] > params["and"]  # here


def misspells_the_state(self, xp, rng, state, action, params):
    return state, state["y"], False  # here


def depends(self, xp, rng, state, action, params):
    x = state["x"] - xp.mean(state["x"])
    return {**state, "x": x}, 1.0, False


def lacks(self, xp, state, action, params):
    return state, 1.0, False


def selects(self, xp, rng, state, action, params):
    x = state["x"][state["x"] > 0]  # here
    return {**state, "x": x}, 1.0, False


def is_not_standard(self, xp, rng, state, action, params):
    return {**state, "x": xp.clamp(state["x"], 0, 1)}, 1.0, False  # here


def needs_values(self, xp, rng, state, action, params):
    for _ in range(int(state["v"][0])):  # here
        pass
    return state, 1.0, False


def without_dtype(self, xp, rng, n, params):
    return {"x": rng.uniform((n,), -1.0, 1.0), "v": xp.zeros((n,))}


def outside(self, xp, state, params):
    return state["x"][:, None] + 1000.0


def other_form(self, xp, state, params):
    return state["x"]


def fails(self, xp, rng, state, action, params):
    raise RuntimeError("the author's own")  # here


def one_for_all(self, xp, rng, state, action, params):
    ends = params["end"] * xp.ones((len(state["x"]), 2))
    both = xp.stack([state["x"], state["v"]], axis=1) + ends
    return {**state, "x": both[:, 0]}, state["x"], state["x"] > 5.0


def columns(self, xp, rng, state, action, params):
    return state, state["x"][:, None], state["x"] > 5.0


def counts_a_flag(self, xp, rng, state, action, params):
    return state, 1.0 * (state["x"] > 0), state["x"] > 5.0  # here


def broadcasts(self, xp, rng, state, action, params):
    both = xp.stack([state["x"], state["v"]], axis=1) * state["x"]  # here
    return {**state, "x": both[:, 0]}, 1.0, state["x"] > 5.0


def other_fields(self, xp, rng, n, params):
    return {"other": rng.uniform((n,))}


def misspells_the_parameter(self, xp, rng, n, params):
    return {"end": params["and"]}  # here


def draws_parameters(self, xp, rng, n, params):
    return {"end": xp.asarray(np.float32(np.random.rand(n)))}


def short(self, xp, rng, n, params):
    return {"end": rng.uniform((3,))}


def by_index(self, xp, rng, n, params):
    return {"end": rng.uniform((n,)) + xp.astype(xp.arange(n), xp.float32)}


def sets(self, xp, rng, n, params):
    self.count = 1  # here
    return params


def sets_in_step(self, xp, rng, state, action, params):
    self.count = 1  # here
    return state, 1.0, False


def draws_sometimes(self, xp, rng, state, action, params):
    reward = 1.0 if np.random.rand() < 0.05 else 0.0
    return state, state["x"] + np.float32(reward), False


def counts(self, xp, rng, state, action, params):
    COUNT[0] += 1
    return state, state["x"] + np.float32(COUNT[0] // 40), False


COUNT = [0]
WRONG = [
    ("step", branches, "asks whether an array is true", {"numpy", "array_api_strict", "torch", "jax"}),
    ("step", assigns, "changes an array in place", {"numpy", "jax"}),
    ("step", misspells, "there is no parameter 'and'", {"numpy", "array_api_strict", "torch", "jax"}),
    ("step", depends, "depends on the others in its batch", {"numpy"}),
    ("step", lacks, "its signature does not match", set()),
    ("step", selects, "selects by a mask", {"jax"}),
    ("observe", other_form, "an array of shape", {"numpy", "array_api_strict", "torch", "jax"}),
    ("step", columns, r"the reward of .* has the shape \(5, 1\)", {"numpy", "array_api_strict", "torch", "jax"}),
    ("step", fails, "RuntimeError: the author's own", {"numpy", "array_api_strict", "torch", "jax"}),
    ("sample_params", sets, "count, since an environment does not change", {"numpy", "array_api_strict", "torch", "jax"}),
]  # fmt: skip
MORE = [
    ("step", counts_a_flag, "computes with a flag", {"array_api_strict"}),
    ("step", broadcasts, "it combines arrays of incompatible shapes", {"numpy", "array_api_strict", "torch", "jax"}),
    ("step", adds, "changes an array in place", {"numpy"}),
    ("step", uses_numpy, "a function of NumPy was called", {"jax"}),
    ("step", misspells_the_state, "KeyError: 'y'", {"numpy", "array_api_strict", "torch", "jax"}),
    ("step", is_not_standard, "xp has no 'clamp'", {"numpy", "jax"}),
    ("step", needs_values, "needs the value of an array as a Python number", {"jax"}),
    ("reset", without_dtype, r"state\['v'\] is float64 in numpy", {"numpy", "torch"}),
    ("observe", outside, "is not in the space", {"numpy"}),
    ("step", one_for_all, r"with parameters of shape \(5,\), one for each environment", {"numpy"}),
    ("sample_params", other_fields, r"sample_params\(\) returned the parameters", {"numpy", "jax"}),
    ("sample_params", misspells_the_parameter, "there is no parameter 'and'", {"numpy", "jax"}),
    ("sample_params", draws_parameters, "different results for the same arguments", {"numpy"}),
    ("sample_params", short, r"the shape \(3,\) for params", {"numpy", "array_api_strict", "torch", "jax"}),
    ("sample_params", by_index, "depends on its index", {"numpy"}),
    ("step", sets_in_step, "count, since an environment does not change", {"numpy", "jax"}),
    ("step", draws_sometimes, "different results for the same arguments", {"numpy"}),
    ("step", counts, "different results for the same arguments", {"numpy"}),
]  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("method", "function", "words", "libraries"),
    quick_if([*WRONG, *MORE], WRONG.__contains__),
    ids=[case[1].__name__ for case in (*WRONG, *MORE)],
)
def test_mistakes_are_named(method, function, words, libraries):
    wrong = type("Wrong", (Right,), {method: function})
    function.__name__ = method
    problems = check_functional_env(wrong)
    found = [problem for problem in problems if re.search(words, problem.what)]
    assert len(found) == 1, problems
    (problem,) = found
    assert problem.method == method
    assert libraries <= set(problem.libraries)
    lines, start = inspect.getsourcelines(function)
    marked = [start + index for index, line in enumerate(lines) if line.rstrip().endswith("# here")]
    assert problem.place == f"test_check_env.py:{(marked or [start])[0]}"
    assert problem.place in str(problem)


def test_an_action_that_is_clipped_must_not_be_changed():
    class Halves(Right):
        action_space = spaces.Box(-1, 1, (1,), np.float32)

        def step(self, xp, rng, state, action, params):
            action *= 0.5
            return super().step(xp, rng, state, action[:, 0], params)

    (problem,) = check_functional_env(Halves, ["numpy"])
    assert "changes an array in place" in problem.what


def stepping(change, limit=None, rewards=()):
    """Return an environment in which a function changes the state, the reward and the end of a step."""

    class Wrong(Right):
        max_episode_steps, reward_shape = limit, rewards

        def step(self, xp, rng, state, action, params):
            return change(xp, *super().step(xp, rng, state, action, params))

    return Wrong


def own(xp, x, index):
    """Return x, with a little added in the rows of an index."""
    return x + 0.5 * xp.astype(xp.arange(x.shape[0]) == index, xp.float32)


# what a row may not be made of: of the values x (n,) of all rows
OTHERS = {
    "the first row": lambda xp, x: x + x[0],
    "the last row": lambda xp, x: x + x[-1],
    "the row before": lambda xp, x: xp.concat([x[-1:], x[:-1]]),
    "the largest": lambda xp, x: x - xp.max(x),
    "the smallest, where it is small": lambda xp, x: xp.where(xp.min(x) < 0.3, x, x + 1.0),
    "the sum of those before": lambda xp, x: xp.cumulative_sum(x),
    "the rank": lambda xp, x: xp.astype(xp.argsort(x), xp.float32),
    "whether any is large": lambda xp, x: xp.where(xp.any(x > 0.9), x, x + 1.0),
}
PLACES = {
    "its index": lambda xp, x: x + xp.astype(xp.arange(x.shape[0]), xp.float32),
    "whether it is in the middle": lambda xp, x: own(xp, x, 2),
    "whether its index is even": lambda xp, x: x + xp.astype(xp.arange(x.shape[0]) % 2, xp.float32),
    "the number of rows": lambda xp, x: x / x.shape[0],
    "the size of the batch": lambda xp, x: x + (1.0 if x.shape[0] > 4 else 0.0),
    "an array of the author": lambda xp, x: x + xp.asarray(np.float32([1, 1, 2, 2, 3])),
    "a shape of the author": lambda xp, x: x + xp.zeros((5,), dtype=xp.float32),
}


def made_of(method, how):
    """Return an environment in which the result of a method depends on what `how` says."""

    class Wrong(Right):
        def reset(self, xp, rng, n, params):
            x = rng.uniform((n,), -1.0, 1.0)
            return {"x": how(xp, x) if method == "reset" else x, "v": xp.zeros_like(x)}

        def step(self, xp, rng, state, action, params):
            state, reward, over = super().step(xp, rng, state, action, params)
            if method == "step":
                state = {**state, "x": how(xp, state["x"])}
            return state, how(xp, reward) if method == "reward" else reward, over

        def observe(self, xp, state, params):
            seen = {"x": how(xp, state["x"])} if method == "observe" else state
            return super().observe(xp, seen, params)

        def info(self, xp, state, params):
            return {"a": {"b": how(xp, state["x"]) if method == "info" else state["x"]}}

    return Wrong


WORDS = {
    **dict.fromkeys(OTHERS, "on the others|on its index|number of environments"),
    **dict.fromkeys(PLACES, "on its index|number of environments|shape"),
    "a random number of NumPy": "different results for the same arguments",
}


@pytest.mark.parametrize(
    ("what", "method"), crossed(WORDS, ["reset", "step", "reward", "observe", "info"])
)
def test_rows_that_depend_on_more_than_themselves(method, what):
    how = {**OTHERS, **PLACES}.get(what, lambda xp, x: x + np.float32(np.random.rand()))
    (problem,) = check_functional_env(made_of(method, how), ["numpy"])
    assert problem.method == ("step" if method == "reward" else method)
    assert re.search(WORDS[what], problem.what), problem


@pytest.mark.parametrize(
    "oldest", [lambda xp, t: xp.max(t), pytest.param(lambda xp, t: t[0], marks=pytest.mark.long)]
)
def test_rows_that_depend_on_the_age_of_another_episode(oldest):
    class Wrong(Right):
        def reset(self, xp, rng, n, params):
            state = super().reset(xp, rng, n, params)
            return {**state, "t": xp.zeros((n,), dtype=xp.int32)}

        def step(self, xp, rng, state, action, params):
            state, reward, _ = super().step(xp, rng, state, action, params)
            state = {**state, "t": state["t"] + 1}
            return state, reward, xp.broadcast_to(oldest(xp, state["t"]) > 3, reward.shape)

    (problem,) = check_functional_env(Wrong, ["numpy"])
    assert problem.method == "step"
    assert "on the others" in problem.what


@pytest.mark.long
def test_repeated_actions_of_what_cannot_be_rendered():
    assert check_functional_env(repeat_action(Right(), 2), ["numpy"]) == []


@pytest.mark.long
def test_numbers_that_are_drawn_in_other_shapes_are_no_mistake():
    class Other(Right):
        def reset(self, xp, rng, n, params):
            x = rng.uniform((2, n))[0, :] + rng.uniform(())
            k = rng.categorical((n,), xp.zeros((n, 3), dtype=xp.float32))
            return {"x": x, "v": xp.astype(k + rng.integers((n,), 0, 5), xp.float32)}

        def step(self, xp, rng, state, action, params):
            state, reward, over = super().step(xp, rng, state, action, params)
            return state, xp.where(state["v"] > 3, xp.nan, reward), over

    assert check_functional_env(Other) == []


@pytest.mark.parametrize("axes", [(), pytest.param((2,), marks=pytest.mark.long)])
def test_a_reward_that_is_always_nan(axes):
    def change(xp, state, reward, over):
        lost = reward * xp.nan
        return state, xp.stack([reward, lost], axis=1) if axes else lost, over

    (problem,) = check_functional_env(stepping(change, rewards=axes), ["numpy"])
    assert (problem.method, problem.what) == ("step", "the reward is always NaN")


def test_the_line_of_a_helper_is_named():
    def helper(x):
        return 1.0 if x > 0 else 0.0

    wrong = stepping(lambda xp, state, reward, over: (state, helper(state["x"]), False))
    (problem,) = check_functional_env(wrong, ["numpy"])
    assert problem.place == f"test_check_env.py:{helper.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("env", quick_if([Right, CartPole(), Pendulum], lambda env: env is Right))
def test_environments_that_are_right(env):
    assert check_functional_env(env) == []


def test_libraries():
    assert (
        check_functional_env(Right, ["numpy", "cupy"]) == []
    )  # which is not installed, or needs a GPU
    with pytest.raises(af.ArrayFerryError, match="nolibrary"):
        check_functional_env(Right, ["numpy", "nolibrary"])


def test_parameters_truncations_and_infos_are_tried():
    class More(Right):
        default_params = {"end": 5.0, "start": 0.0}

        def sample_params(self, xp, rng, n, params):
            return {**params, "start": rng.uniform((n,), 0.0, 1.0)}

        def step(self, xp, rng, state, action, params):
            return *super().step(xp, rng, state, action, params), state["x"] > params["start"]

        def info(self, xp, state, params):
            return {"x": state["x"]}

        def render(self, state, index):
            return np.full((2, 2, 3), float(state["x"][index]))

    (problem,) = check_functional_env(More)
    assert problem.method == "render"
    assert "float64 of shape (2, 2, 3)" in problem.what


@pytest.mark.long
def test_threads_leave_the_filters_of_warnings_alone():
    before = list(warnings.filters)
    inside, done = threading.Event(), threading.Event()

    class First(Right):
        def reset(self, xp, rng, n, params):
            inside.wait(0.2)  # once, if the other one waits for its turn
            inside.set()
            return super().reset(xp, rng, n, params)

    class Second(Right):
        def reset(self, xp, rng, n, params):
            inside.set()
            done.wait(0.2)
            done.set()
            return super().reset(xp, rng, n, params)

    def first():
        try:
            return check_functional_env(First, ["numpy"])
        finally:
            done.set()

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(first), pool.submit(check_functional_env, Second, ["numpy"])]
    assert [each.result() for each in found] == [[], []]
    assert warnings.filters == before


def ending(when, *limit):
    return stepping(lambda xp, state, reward, over: (state, reward, when(state["x"])), *limit)


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "told"),
    [
        (ending(lambda x: x < 100), "every episode ended in its first step"),
        (ending(lambda x: x > 1e6), "no episode ended in 10000 steps.*max_episode_steps"),
    ],
)
def test_episodes_of_one_step_and_those_without_end(env, told):
    with pytest.warns(UserWarning, match=rf"Wrong.step\(\), test_check_env.py:\d+: {told}") as got:
        assert check_functional_env(env) == []
    assert len(got) == 1
    assert got[0].filename == __file__
    assert check_functional_env(ending(lambda x: x > 2.5), ["numpy"]) == []  # at some time
    assert check_functional_env(ending(lambda x: x > 1e6, 50), ["numpy"]) == []


def test_no_environment():
    with pytest.raises(TypeError, match="a FunctionalEnv is needed"):
        check_functional_env(object())


class Counted(Right):
    """Its observations fit their space until an episode ends, and no longer."""

    observation_space = spaces.Box(0.0, 3.0, (1,), np.float32)
    max_episode_steps = 3

    def reset(self, xp, rng, n, params):
        return {"x": xp.zeros((n,), dtype=xp.float32), "v": xp.zeros((n,), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        x = state["x"] + 1.0
        return {**state, "x": x}, x, self.terminated(xp, x, action)

    def terminated(self, xp, x, action):
        return x < 0.0


class Ended(Counted):
    max_episode_steps = None

    def terminated(self, xp, x, action):
        return (x > 2.5) | (action == 1)


@pytest.mark.parametrize("env", [Counted, Ended])
def test_no_step_is_taken_after_an_end(env):
    assert check_functional_env(env) == []


def test_last_observations_are_in_their_space():
    class Far(Ended):
        def observe(self, xp, state, params):
            return xp.where(state["x"] > 2.5, 9.0, state["x"])[:, None]

    (problem,) = check_functional_env(Far, ["numpy"])
    assert "is not in the space" in problem.what


def test_wrapped_environments_are_tried_with_their_kernels():
    def branching(x):
        return x if x[0, 0] > -200 else -x  # here

    assert (
        check_functional_env(
            wrap(Right(), kernels.FrameStackObservation(2), kernels.NormalizeReward())
        )
        == []
    )
    assert (
        check_functional_env(wrap(Counted(), kernels.TimeAwareObservation()), ["torch", "jax"])
        == []
    )
    wrong = wrap(Right(), kernels.TransformObservation(branching))
    assert check_functional_env(wrong, ["numpy", "torch"]) == []
    (problem,) = check_functional_env(wrong)
    assert (problem.method, problem.libraries) == ("wrap", ("jax",))
    assert problem.place == f"test_check_env.py:{branching.__code__.co_firstlineno + 1}"
    method = stepping(lambda xp, state, reward, over: (state, 1.0 if reward > 0 else 0.0, over))
    (problem,) = check_functional_env(wrap(method(), kernels.ClipReward(0.0, 1.0)), ["numpy"])
    assert problem.method == "step"
    assert problem.place.startswith("test_check_env.py")


@pytest.mark.parametrize("method", ["info", "sample_params"])
def test_methods_that_do_not_take_their_arguments(method):
    wrong = type("Wrong", (Right,), {method: lambda self, xp: {}})
    with pytest.raises(EnvResultError, match=rf"{method}\(\).* does not accept its arguments"):
        wrong().make_vec(2)
