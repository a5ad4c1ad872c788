"""An action that cannot be in the space is an error that names the space, at the first step and at any other."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from cases import crossed
from envs import NAMESPACES, Takes, begun
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from interrupts import quick_turns
from refusals import refused_step

import arrayferry as af
from arrayferry_gym import ArrayConversion, vector

AGENTS = {"numpy": np.asarray, "torch": torch.as_tensor, "jax": jnp.asarray}
LIBRARIES = tuple(NAMESPACES)


@pytest.fixture(params=LIBRARIES)
def library(request):
    """The library of the environment."""
    return request.param


BOX = spaces.Box(-1, 1, (1,), np.float32)
NESTED = spaces.Dict(
    move=spaces.Tuple([spaces.Discrete(3), BOX]), look=spaces.MultiDiscrete([3, 4])
)

# Discrete has no dtype before Gymnasium 1.2
NEWER, WIDE = gym.__version__ >= "1.2", {"start": 2**31 - 5, "dtype": np.int32}

RIGHT = [
    (spaces.Discrete(2), [0, 1, 1.0, [1], [[0]]]),
    (spaces.Discrete(5, start=-2), [-2, 2, -1.0]),
    (BOX, [[0.5], [-1.0], [1], [7.5], [float("nan")], [float("inf")], 0.5, 1]),
    (spaces.Box(-1, 1, (), np.float32), [0.5, 1]),
    (spaces.Box(-1, 1, (1, 1), np.float32), [0.5]),
    (spaces.Box(0, 255, (2,), np.uint8), [[0, 255], [7.0, 0.0]]),
    (spaces.MultiDiscrete([3, 4]), [[0, 0], [2, 3], [1.0, 2.0]]),
    (spaces.MultiDiscrete([3, 4], start=[1, -2]), [[1, -2], [3, 1]]),
    (spaces.MultiDiscrete([56, 56], np.uint8, start=[200, 200]), [[200, 255]]),
    (spaces.MultiDiscrete([28], np.int8, start=[100]), [[127]]),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), [[[1, 2], [3, 4]]]),
    (spaces.MultiBinary(3), [[0, 1, 1], [1.0, 0.0, 0.0]]),
    *((spaces.Discrete(6, start=250, dtype=np.uint8), [255]) for _ in range(NEWER)),
    *((spaces.Discrete(5, **WIDE), [2**31 - 1]) for _ in range(NEWER)),
]

WRONG = [
    (spaces.Discrete(2), [7, 2, -1, 0.5, float("nan"), [0.2, 0.8], [[0, 1]], 1j, []]),
    (spaces.Discrete(5, start=-2), [-3, 3, 7]),
    (BOX, [[], [1j]]),
    (spaces.Box(-1, 1, (3,), np.float32), [0.5, [0.5], [0.5, 0.5]]),
    (spaces.Box(-1, 1, (), np.float32), [1j]),
    (spaces.Box(0, 255, (2,), np.uint8), [[1]]),
    (spaces.MultiDiscrete([3, 4]), [[3, 0], [0, 4], [-1, 0], [0, -9], [0.5, 0.0], [0], [0, 0, 0], 1]),
    (spaces.MultiDiscrete([3, 4], start=[1, -2]), [[0, 0], [4, 0], [1, 2], [1, -3]]),
    (spaces.MultiDiscrete([56, 56], np.uint8, start=[200, 200]), [[199, 255], [200, 256]]),
    (spaces.MultiDiscrete([28], np.int8, start=[100]), [[99], [128]]),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), [[[1, 2], [3, 5]]]),
    (spaces.MultiBinary(3), [[0, 1], [0.5, 0.0, 1.0], [0, 2, 1], [0, -1, 1]]),
    *((spaces.Discrete(6, start=250, dtype=np.uint8), [249, 256]) for _ in range(NEWER)),
    *((spaces.Discrete(5, **WIDE), [2.0**31]) for _ in range(NEWER)),
]  # fmt: skip

ONES = [
    (BOX, [[[0.5]]]),
    (spaces.Box(-1, 1, (), np.float32), [[0.5], [[1.0]]]),
    (spaces.Box(-1, 1, (3,), np.float32), [[[0.5, 0.0, 7.0]], [[0.5], [0.0], [1.0]]]),
    (spaces.Box(-1, 1, (2, 1), np.float32), [[0.5, 1.0]]),
    (spaces.MultiDiscrete([3, 4]), [[[0, 3]], [[2], [1]]]),
    (spaces.MultiDiscrete([3]), [2]),
    (spaces.MultiBinary(3), [[[0, 1, 1]]]),
]

PASSED_ON = [
    (BOX, [[0.5, 0.5], [[0.5, 0.5]]]),
    (spaces.Box(-1, 1, (2, 2), np.float32), [[0.5, 0.5, 0.5, 0.5]]),
    (spaces.Box(0, 255, (2,), np.uint8), [[0.5, 1.0], [0, 256], [-1, 0]]),
]


# Of the agent and the environment. The environment's library is another one in quick tests.
PAIRS = pytest.mark.parametrize(("agent", "library"), crossed(AGENTS, ["jax", "numpy", "torch"]))


def each(cases, *more):
    return [
        pytest.param(space, action, *more, id=f"{space}-{action}")
        for space, actions in cases
        for action in actions
    ]


def adapted(space, library="numpy", agent="torch", **options):
    """Return an adapter around an environment that remembers its actions, after a reset."""
    env = ArrayConversion(Takes(space, library), env_xp=library, target_xp=agent, **options)
    return begun(env)


def taken_as(env):
    return np.asarray(env.env.taken).tolist()


@PAIRS
@pytest.mark.parametrize(("space", "action"), each(RIGHT + ONES))
def test_actions_that_fit(space, action, library, agent):
    env = adapted(space, library, agent)
    expected = np.asarray(action, space.dtype).reshape(space.shape)
    for _ in range(4):
        env.step(AGENTS[agent](action))
        np.testing.assert_array_equal(np.asarray(env.env.taken), expected)
        assert np.asarray(env.env.taken).shape == space.shape
        assert af.backend_of(env.env.taken).name == library
        if isinstance(space, spaces.Box):
            assert str(space.dtype) in str(env.env.taken.dtype)
        if library == "numpy":
            assert env.env.taken.dtype == space.dtype
            assert isinstance(env.env.taken, type(space.sample()))


@PAIRS
@pytest.mark.parametrize(("space", "action"), each(WRONG))
def test_actions_that_do_not_fit(space, action, library, agent):
    env = adapted(space, library, agent)
    wrong, right = AGENTS[agent](action), AGENTS[agent](space.sample())
    for value in (wrong, right, right, wrong, right, right, right, wrong):
        if value is wrong:
            refused_step(env, value, rf"(?s)action.*{re.escape(str(space))}")
        else:
            env.step(value)


@PAIRS
@pytest.mark.parametrize(("space", "action"), each(PASSED_ON))
def test_what_the_environment_may_know_is_passed_on(space, action, library, agent):
    env = adapted(space, library, agent)
    with pytest.warns(UserWarning, match="was passed on though") as warned:
        env.step(AGENTS[agent](action))
    assert warned[0].filename == __file__
    for _ in range(3):  # one warning is enough
        env.step(AGENTS[agent](action))
        assert taken_as(env) == action
        assert af.backend_of(env.env.taken).name == library
        env.step(AGENTS[agent](space.sample()))
    strict = adapted(space, library, agent, check_actions="strict")
    refused_step(strict, AGENTS[agent](action), "is not valid for the space")


def test_what_was_passed_on_is_in_the_error_of_the_environment():
    class Takes2(Takes):
        def step(self, action):
            if action.shape != (1,):
                raise ValueError("one number, please")
            return super().step(action)

    env = ArrayConversion(Takes2(BOX), target_xp="torch")
    env.step(torch.zeros(1))
    with (
        pytest.warns(UserWarning, match="passed on"),
        pytest.raises(ValueError, match="one number") as caught,
    ):
        env.step(torch.zeros(2))
    assert caught.value.__notes__ == [
        f"an action for the space {BOX} was passed on though it does not fit: "
        "it has the shape (2,) instead of (1,)"
    ]
    env.step(torch.zeros(1))
    env.env.step = lambda action: 1 / 0
    with pytest.raises(ZeroDivisionError) as caught:
        env.step(torch.zeros(1))
    assert not hasattr(caught.value, "__notes__")


def test_finite_numbers_that_a_float_cannot_hold_are_passed_on():
    env = ArrayConversion(Takes(spaces.Box(-1, 1, (2,), np.float32)), target_xp="numpy")
    with pytest.warns(UserWarning, match=r"1e\+300, at \[1\], is no float32"):
        env.step(np.array([0.0, 1e300]))
    for value in ([0.5, 0.25], [0.0, -1e300]):
        env.step(np.array(value))
        assert taken_as(env) == value


def test_further_keys_are_passed_on_after_those_of_the_space(library):
    space = spaces.Dict([("z", spaces.Discrete(3)), ("a", BOX)])
    env = adapted(space, library)
    action = {"a": torch.zeros(1), "more": torch.ones(2), "z": torch.tensor(1)}
    with pytest.warns(UserWarning, match="the key 'more', which the space does not have"):
        env.step(action)
    for _ in range(2):
        env.step(action)
        assert list(env.env.taken) == ["z", "a", "more"]
        assert af.backend_of(env.env.taken["more"]).name == library
    refused_step(env, {"a": torch.zeros(1)}, "'z' is missing")
    strict = adapted(space, library, check_actions="strict")
    refused_step(strict, action, "'more' is none of them")


def test_arrays_of_objects_are_numbers(library):
    for space, action in (
        (spaces.Discrete(3), 2), (BOX, [0.5]), (spaces.MultiDiscrete([3, 4]), [1, 2]),
        (spaces.Dict(a=BOX), {"a": np.array([0.25], object)}),
    ):  # fmt: skip
        for agent in (None, "numpy"):
            env = adapted(space, library, agent)
            given = action if isinstance(action, dict) else np.array(action, object)
            for _ in range(3):
                env.step(given)
                taken = env.env.taken["a"] if isinstance(action, dict) else env.env.taken
                assert af.backend_of(taken).name == library
                assert np.asarray(taken).dtype.kind in "if"
    for wrong in (["a"], [None], [10**30]):
        refused_step(env, {"a": np.array(wrong, object)}, "is not valid for")


def test_no_action_is_left_to_the_environment():
    for space in (spaces.Discrete(2), BOX):
        env = ArrayConversion(Takes(space), target_xp="torch", check_actions="strict")
        env.step(None)
        assert env.env.taken is None


def test_nothing_is_checked_if_that_is_asked_for():
    env = ArrayConversion(Takes(spaces.Discrete(2)), target_xp="torch", check_actions="off")
    for value in (torch.tensor(7), torch.zeros(3), torch.tensor([[1]]), {"a": torch.ones(1)}):
        env.step(value)
        taken = env.env.taken["a"] if isinstance(value, dict) else env.env.taken
        assert isinstance(taken, np.ndarray)
    env.step("left")
    assert env.env.taken == "left"
    for wrong in ("loose", None, 1, 0.0, True, False):
        with pytest.raises(af.OptionError, match="'fit', 'strict', 'off'"):
            ArrayConversion(Takes(BOX), check_actions=wrong)
    strict, fit = (ArrayConversion(Takes(BOX), check_actions=x) for x in ("strict", "fit"))
    assert strict._saved_kwargs["check_actions"] == "strict"
    assert "check_actions" not in fit._saved_kwargs


CAUSES = [
    (spaces.Discrete(3), torch.tensor([0, 1, 0]), "a one-hot code of 3 actions"),
    (spaces.Discrete(3), (torch.tensor([1]), torch.tensor([-0.3])), "a pair of an action and"),
    (spaces.Discrete(3), (np.array([1]), None), "a pair of an action and"),
    (spaces.MultiDiscrete([3, 4]), torch.zeros(2, 2, dtype=torch.int64), "one axis too many"),
    (spaces.Text(4), torch.tensor(1), "takes a string"),
    (
        spaces.Dict(a=spaces.Discrete(3)),
        {"a": torch.tensor(0.5)},
        r"dtype torch\.float32.*at \['a'\]",
    ),
]


@pytest.mark.parametrize(("space", "action", "cause"), CAUSES)
def test_errors_name_the_likely_cause_and_what_was_passed(space, action, cause):
    env = ArrayConversion(Takes(space), target_xp="torch")
    refused_step(env, action, cause)


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_values_of_python_for_discrete(library):
    env = adapted(spaces.Discrete(2), library)
    times = np.array(1, "m8[ns]"), np.array(1, "M8[ns]"), np.datetime64(1, "ns")
    objects = "left", b"x", object(), {"a": 1}, 10**5000
    for value in (7, -1, 0.5, [2], (0, 1), [], *times, *objects):
        for _ in range(3):
            env.step(1)
            refused_step(env, value, r"action .* Discrete\(2\)")


def test_lists_of_numbers_are_arrays(library):
    env = adapted(BOX, library)
    for value in ([0.5], (0.5,), [torch.tensor(0.5)]):
        env.step(value)
        assert taken_as(env) == [0.5]
        assert af.backend_of(env.env.taken).name == library
    for value in ([[0.5], [0.5, 1.0]], [], ["a"], [None], np.array(["left"]), jax.random.key(0)):
        refused_step(env, value, r"action .*space Box\(-1.0, 1.0, \(1,\), float32\)")


def test_the_place_in_a_nested_space(library):
    env = adapted(NESTED, library)

    def action(number=1, box=(0.5,), look=(0, 0)):
        return {"move": (torch.tensor(number), torch.tensor(box)), "look": torch.tensor(look)}

    for _ in range(3):
        env.step(action())
        assert np.asarray(env.env.taken["move"][1]).dtype == np.float32
        for wrong, place in (
            (action(number=3), r"Discrete\(3\).*\['move'\]\[0\]"),
            (action(box=()), r"Box\(.*\['move'\]\[1\]"),
            (action(look=(0, 4)), r"MultiDiscrete\(.*\['look'\]"),
            ({"move": action()["move"]}, r"keys \['\w+', '\w+'\]"),
            ({**action(), "move": (torch.tensor(1),)}, r"tuple of 2 parts, at \['move'\]"),
            ({**action(), "move": 1}, r"tuple of 2 parts, at \['move'\]"),
            (torch.tensor(1), "dict with the keys"),
        ):
            refused_step(env, wrong, place)


NARROW = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 0.5], np.float32))


@PAIRS
def test_bounds_are_checked_if_asked_for(library, agent):
    unchecked = adapted(NARROW, library, agent)
    checked = adapted(NARROW, library, agent, check_actions="strict")
    for env in (unchecked, checked):
        for _ in range(3):
            env.step(AGENTS[agent](NARROW.sample()))
    for value in ([1.5, 0.2], [0.0, -0.1], [float("nan"), 0.0], [0.0, float("inf")]):
        unchecked.step(AGENTS[agent](value))
        for _ in range(2):
            refused_step(checked, AGENTS[agent](value), "out of its bounds")
    text = ArrayConversion(Takes(spaces.Text(4)), target_xp=agent, check_actions="strict")
    text.step("abc")
    refused_step(text, "abcdefgh", r"contains\(\) of the space returns False")


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    ("env_id", "count", "right", "wrong", "words"),
    [
        ("CartPole-v1", 3, [[0, 1, 1]],
         [[0, 1], [0, 1, 1, 0], [[0, 1, 1]], [0, 1, 2], [0, -1, 0], [0.5, 0.0, 1.0], 1], "MultiDiscrete"),
        ("Pendulum-v1", 2, [[[0.5], [1.5]], [0.5, 0.5], [[[0.5]], [[0.5]]]],
         [[[0.5]], [0.5], 0.5, [[0.5, 0.5]], [[0.5], [0.5], [0.5]], [[0.5, 0.5], [0.5, 0.5]]], r"Box\("),
    ],
)  # fmt: skip
def test_batches(env_id, count, right, wrong, words, agent):
    make = AGENTS[agent]
    envs = begun(vector.ArrayConversion(gym.make_vec(env_id, num_envs=count), target_xp=agent))
    for value in wrong * 2:
        for fits in right:
            envs.step(make(fits))
        refused_step(envs, make(value), words)
    envs.close()


BEYOND = [
    (space, x)
    for space, actions in WRONG
    for x in actions
    if not isinstance(space, spaces.Box) and np.shape(x) == space.shape
]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("space", "wrong"), BEYOND)
def test_ranges_hold_for_each_environment_of_a_batch(space, wrong, agent):
    """The spaces that Gymnasium makes of batches are a Box, whose bounds need not hold."""
    envs = vector.ArrayConversion(SyncVectorEnv([lambda: Takes(space)] * 3), target_xp=agent)
    envs.reset()
    right = [space.sample() for _ in range(3)]
    for index in range(3):
        for _ in range(3):
            envs.step(AGENTS[agent](np.array(right)))
        actions = [wrong if index == row else right[row] for row in range(3)]
        refused_step(envs, AGENTS[agent](np.array(actions)), "not valid for the space Multi")


def test_a_traced_action_is_passed_on():
    env = adapted(BOX, "jax", "jax")

    def loss(action):
        env.step(action)
        return (env.env.taken**2).sum()

    for _ in range(3):
        assert jax.grad(loss)(jnp.array([0.5])).tolist() == [1.0]
        assert jax.jit(jax.grad(loss))(jnp.array([0.5])).tolist() == [1.0]
    env.env.action_space = spaces.MultiDiscrete([3, 4])
    env.reset()
    for _ in range(3):
        assert jax.jit(loss)(jnp.array([1, 2])) == 5


INNER = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)])
LINKS = np.array([[0, 1]])
STRUCTURED = {
    "one of": (
        spaces.OneOf([spaces.Discrete(2), BOX]),
        [(1, np.ones(1, np.float32)), (0, np.array(1)), (np.array(0), np.array(0))],
        [(2, np.array(0)), (0, np.array(5)), (np.array(1),), 3, "text", (1, np.ones(2))],
    ),
    "sequence": (
        spaces.Sequence(spaces.Discrete(3)),
        [(), (np.array(1), 2), tuple(np.arange(3))],
        ["text", np.array([9, 9]), 1j, (3,), (np.array([1]),)],
    ),
    "stacked": (
        spaces.Sequence(INNER, stack=True),
        [(np.array([1, 2]), np.zeros((2, 2), np.float32))],
        [(np.array([1, 3]), np.zeros((2, 2), np.float32)), np.array([1]), (np.array([1]), np.ones((1, 3)))],
    ),
    "stacked arrays": (
        spaces.Sequence(BOX, stack=True),
        [np.zeros((2, 1), np.float32), np.ones((0, 1), np.float32)],
        [np.ones((1, 3), np.float32), "text"],
    ),
    "graph": (
        spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)),
        [spaces.GraphInstance(np.zeros((2, 2), np.float32), np.array([1]), LINKS)],
        [
            {}, "text", np.zeros(2), spaces.GraphInstance(None, None, LINKS),
            spaces.GraphInstance(np.zeros((2, 3), np.float32), np.array([1]), LINKS),
            spaces.GraphInstance(np.zeros((2, 2), np.float32), np.array([3]), LINKS),
        ],
    ),
}  # fmt: skip


@PAIRS
@pytest.mark.parametrize("case", STRUCTURED)
def test_contains_decides_of_structured_spaces(case, library, agent):
    """Arrays in these are not cast, but JAX's narrower ones are contained too."""
    space, right, wrong = STRUCTURED[case]
    env = adapted(space, library, agent)
    for action in (*right, space.sample(), env.action_space.sample()):
        for _ in range(3):
            env.step(af.convert(action, agent))
            arrays = af.flatten(env.env.taken)[0]
            assert {af.backend_of(x).name for x in arrays} <= {library}
            if library == "numpy":
                assert space.contains(env.env.taken)
    for action in wrong:
        refused_step(env, action, r"contains\(\) of the space returns False")


def test_masks_and_units_are_not_lost():
    class Metres(np.ndarray):
        unit = "m"

    env = ArrayConversion(Takes(spaces.Box(-1, 1, (2,), np.float32)), target_xp="numpy")
    for wrong in (np.ma.array([1.0, 0.5], mask=[0, 1]), np.zeros(2, np.float32).view(Metres)):
        for _ in range(2):
            env.step(np.zeros(2, np.float32))
            refused_step(env, wrong, "would be lost")
    env.step(np.ma.array([1.0, 0.5], mask=False))
    assert type(env.env.taken) is np.ndarray


@pytest.mark.filterwarnings("ignore:.* was passed on though")
def test_whole_numbers_that_a_float_cannot_hold():
    space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    env = ArrayConversion(Takes(space), target_xp="numpy")
    for number in (2**53, 2**53 + 1, 2**63 - 1, 3):
        env.step(np.array([number]))
        assert int(env.env.taken[0]) == number
    half = ArrayConversion(Takes(spaces.Box(-np.inf, np.inf, (1,), np.float16)), target_xp="numpy")
    half.step(np.array([-(2**31)], np.int32))  # infinite in float16
    assert half.env.taken == -(2**31)


class Even(spaces.Discrete):
    def contains(self, x):
        return bool(super().contains(x) and x % 2 == 0)


def test_the_own_rules_of_a_space(library):
    env = adapted(Even(6), library, check_actions="strict")
    for _ in range(3):
        env.step(torch.tensor(4))
        refused_step(env, torch.tensor(3), r"contains\(\) of the space returns False")


def test_traced_actions_are_checked_for_what_is_known():
    def stepping(space, action):
        env = adapted(space, "jax", "jax")

        def run(value):
            env.step(value)
            return 0

        return jax.jit(run)(action)

    one, zero = jnp.array(1), jnp.zeros(1)
    nested = spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([BOX]))
    assert stepping(nested, {"a": one, "b": (zero,)}) == 0
    for space, action in (
        (BOX, jnp.zeros(0)), (BOX, jnp.zeros(1, jnp.complex64)), (BOX, {"a": zero}),
        (spaces.Discrete(3), jnp.array(1.0)), (spaces.Discrete(3), jnp.array([1, 2])),
        (spaces.MultiDiscrete([2, 2]), jnp.zeros(2)), (spaces.MultiDiscrete([2, 2]), jnp.zeros(3, int)),
        (nested, {"a": one}), (nested, jnp.zeros(2)), (nested, {"a": one, "b": jnp.zeros(2)}),
        (nested, {"a": one, "b": (zero, zero)}), (nested, {"a": one, "b": (jnp.zeros(0),)}),
    ):  # fmt: skip
        words = r"an action (.|\n)* is not valid for the space"
        with pytest.raises(af.ConversionError, match=words):
            stepping(space, action)


def test_gradients_pass_to_an_environment_of_the_same_library():
    one = torch.tensor(0.5, requires_grad=True)
    env = adapted(spaces.Box(-1, 1, (2,)), "torch")
    for action in (torch.stack([one, one]), [one, one]):
        for _ in range(3):
            env.step(action)
            assert env.env.taken.requires_grad
    for wrong in ([one], [one, torch.zeros(2)], [[one, one]]):
        refused_step(env, wrong)


def test_threads_that_share_an_adapter():
    """While one thread makes the adapter find its ways anew, no wrong action of another passes."""
    space = spaces.MultiDiscrete([3, 3])
    env = begun(ArrayConversion(Takes(space), env_xp="numpy", target_xp="numpy"), None)
    stop = threading.Event()

    def right():
        for number in range(3_000):
            env.step(np.array([1, 2]) if number % 2 else torch.tensor([1, 2]))
        stop.set()

    def wrong():
        while not stop.is_set():
            refused_step(env, np.array([7, 7]))

    with quick_turns(), ThreadPoolExecutor(2) as pool:
        working = [pool.submit(right), pool.submit(wrong)]
    for each in working:
        each.result()


@pytest.mark.parametrize(
    ("range_", "library"),
    crossed([
        ([2] * 64, 0), ([254] * 10, 0), ([255] * 10, 0), ([256] * 10, 0), ([3, 4], [1, -2]), ([300, 300], [-2, 0]),
        ([2] * 300, 0), ([[2, 3], [2, 2]], 0), ([1] * 20, 0), ([100] * 20, -5), ([100] * 20, 40),
    ], LIBRARIES),
)  # fmt: skip
def test_ranges_hold_in_every_dtype_and_shape(range_, library):
    """Each form is checked by itself, in any order, also if a known form was quick."""
    counts, start = np.array(range_[0]), range_[1]
    space = spaces.MultiDiscrete(counts, start=np.zeros_like(counts) + start)
    env = adapted(space, library, "numpy")
    rng, most = np.random.default_rng(0), int(space.nvec.max())
    edges = [-1, 0, most, -most, -most - 1, 127, 128, -128, 254, 255, 256, -254, -256, 2**31, 2**40]
    dtypes = [np.int8, np.uint8, ">i8", "<i2", np.int32, np.int64, np.uint64, np.float32, bool]
    for index in range(200):
        x = (space.start + rng.integers(0, space.nvec)).astype(np.int64)
        if index % 2:
            x.flat[rng.integers(x.size)] = rng.choice(edges)
        x = x.astype(np.dtype(dtypes[rng.integers(len(dtypes))]))
        whole = x.astype(object)
        fits = np.all((whole >= space.start) & (whole < space.start + space.nvec))
        given = x.reshape([x.shape, (1, *x.shape), (*x.shape, 1)][rng.integers(3)])
        if fits:
            env.step(given)
            np.testing.assert_array_equal(np.asarray(env.env.taken), x.astype(np.int64))
            assert not re.search("uint8|bool", str(env.env.taken.dtype))  # a mask for an index
        else:
            refused_step(env, given)


OF_EACH_DTYPE = {
    "int64": [1, 0, 2, 255, -1, 2**40], "int32": [1, 0, 2, -1, 2**30], "uint8": [1, 0, 2, 255], "bool": [1, 0],
    "uint64": [1, 0, 2**63], "int16": [1, -1], "float32": [1, -0.0, 0.5, 3e38, np.inf, np.nan],
    "float64": [1, -0.0, 0.1, 1e300, -np.inf, np.nan], "float16": [1, 0.5, np.inf, np.nan], "bfloat16": [1, 0.5, 3e38, np.nan],
}  # fmt: skip


def of_dtype(agent, shape, number, dtype):
    """Return an array of a dtype in a library, None if that does not have it."""
    if agent == "jax" and dtype.endswith("64"):
        return None
    x = np.full(shape, number, getattr(ml_dtypes, dtype, dtype))
    return x if agent == "numpy" else af.convert(x, agent)


def taken(env, action):
    try:
        env.step(action)
    except af.ConversionError as error:
        return str(error)
    x = env.env.taken
    return type(x), x.dtype, tuple(x.shape), str(np.asarray(af.convert(x, "numpy")).tolist())


@pytest.mark.filterwarnings("ignore:.*passed on")
@pytest.mark.parametrize("space", [
    spaces.Discrete(2), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), spaces.Box(-1, 1, (2,), np.float32),
    spaces.Box(0, 200, (2,), np.uint8), spaces.Box(-1, 1, (2,), np.float16), spaces.Box(-9, 9, (2,), np.float64),
])  # fmt: skip
@PAIRS
def test_the_quick_way_does_what_the_complete_way_does(agent, library, space):
    quick, complete = adapted(space, library, agent), adapted(space, library, agent)
    for dtype, numbers in OF_EACH_DTYPE.items():
        for number in (numbers[0], *numbers):
            given = of_dtype(agent, space.shape, number, dtype)
            if given is not None:
                complete._forget_ways()
                assert taken(quick, given) == taken(complete, given), (dtype, number)


@pytest.mark.parametrize("space", [spaces.MultiBinary(2), spaces.Box(-1, 1, (2,), np.float32)])
@PAIRS
def test_a_second_action_of_a_dtype_takes_the_quick_way(agent, library, space):
    whole = isinstance(space, spaces.MultiBinary)
    for dtype in ("int64", "uint8", "bool") if whole else ("float64", "float16", "float32"):
        action, env = of_dtype(agent, space.shape, 1, dtype), adapted(space, library, agent)
        if action is not None:
            env.step(action)
            env._fit = None  # the complete way
            env.step(action)


WHOLE = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")


@pytest.mark.parametrize("space", [
    spaces.Discrete(2), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), spaces.MultiDiscrete([2], np.int16),
])  # fmt: skip
@PAIRS
def test_whole_numbers_have_the_dtype_of_the_space(agent, library, space):
    held = af.convert(np.zeros((), space.dtype), library).dtype
    for strict in ("fit", "strict"):
        for dtype in WHOLE:
            env = adapted(space, library, agent, check_actions=strict)
            action = of_dtype(agent, space.shape, 0, dtype)
            for _ in range(3 * (action is not None)):
                env.step(action)
                assert env.env.taken.dtype == held
                assert (np.asarray(env.env.taken - 1) == -1).all()


def test_whole_numbers_of_traced_arrays_have_the_dtype_of_the_space():
    env = adapted(spaces.MultiBinary(2), "jax", "jax")

    def taken(action):
        env.step(action)
        return env.env.taken

    for _ in range(2):
        for dtype in ("int32", "int8", "uint16", "bool"):
            assert jax.jit(taken)(jnp.ones(2, dtype)).dtype == "int8"
    assert len(env._quick) == 1


@pytest.mark.parametrize("check", ["fit", "strict"])
@pytest.mark.parametrize("agent", AGENTS)
def test_numbers_that_jax_does_not_have_are_refused(agent, check):
    env = adapted(spaces.Box(-(2**40), 2**40, (1,), np.int64), "jax", agent, check_actions=check)
    for dtype in ("int64", "uint32", "uint64", "float32", "float64"):
        right, wrong = (of_dtype(agent, 1, x, dtype) for x in (1, 2**32 - 2**8))
        for _ in range(3 * (right is not None)):
            env.step(right)
            assert env.env.taken.dtype == "int32"
            with pytest.raises(af.NarrowingError, match=r"jax has no .*64 here, and .* does not"):
                env.step(wrong)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mask_is_refused_after_an_array_of_its_class_without_one(library, dtype):
    env = adapted(BOX, library, "numpy")
    for _ in range(3):
        env.step(np.ma.masked_array(np.ones(1, dtype)))
        refused_step(env, np.ma.masked_array(np.ones(1, dtype), [True]), "mask")


class Replaces(Takes):
    """The options of a reset say how many actions there are."""

    def reset(self, *, seed=None, options=None):
        self.action_space = spaces.Discrete(options["n"])
        return super().reset()


def test_a_space_that_a_reset_replaces_counts_at_once():
    env = ArrayConversion(Replaces(None), env_xp="numpy", target_xp="torch")
    for n in (3, 2, 4):
        env.reset(options={"n": n})
        for form in (int, torch.tensor):
            for _ in range(3):
                env.step(form(n - 1))
            refused_step(env, form(n), rf"Discrete\({n}\)")
    inner = gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    envs = vector.ArrayConversion(inner, env_xp="numpy", target_xp="torch")
    reset = inner.reset

    def replacing(**options):
        inner.action_space = spaces.MultiDiscrete([1, 1])
        return reset(**options)

    envs.reset()
    for _ in range(3):
        envs.step(torch.tensor([1, 1]))
    inner.reset = replacing
    envs.reset()
    refused_step(envs, torch.tensor([1, 1]), r"\[1 1\]")


NUMBER, THREE = spaces.Discrete(5, start=1), spaces.Box(-1, 1, (3,), np.float32)


TWOS = [
    2, 2.0, [2], (2.0,), np.int32(2), np.int8(2), np.float64(2), np.array(2), torch.tensor(2), torch.tensor([2]),
    torch.tensor(2, dtype=torch.uint8), torch.tensor(2.0), torch.tensor(2.0, requires_grad=True),
    jnp.array(2), jnp.array(2.0, jnp.bfloat16), True, np.True_, np.array(2, np.uint8), np.array(True),
]  # fmt: skip


@pytest.mark.parametrize("action", TWOS, ids=repr)
def test_discrete_gets_a_scalar_of_its_library(action, library):
    env = adapted(NUMBER, library)
    number = 1 if "bool" in str(getattr(action, "dtype", type(action))) else 2
    for _ in range(3):
        env.step(action)
        assert env.env.taken == number
        assert env.env.taken.shape == ()
        assert not re.search("uint8|bool", str(env.env.taken.dtype))  # a mask for an index
        if library == "numpy":
            assert type(env.env.taken) is np.int64
            assert hash(env.env.taken) == hash(number)
        else:
            assert af.backend_of(env.env.taken).name == library


def test_boxes_keep_their_dtype(library):
    dtypes = torch.float64, torch.float32, torch.float16, torch.bfloat16
    env = adapted(THREE, library)
    for action in (
        *(torch.tensor([0.5, 0, -0.5], dtype=dtype) for dtype in dtypes),
        torch.tensor([0.5, 0, -0.5], requires_grad=True),
        jnp.array([0.5, 0, -0.5], jnp.float16), np.array([0.5, 0, -0.5], ml_dtypes.bfloat16),
    ):  # fmt: skip
        env.step(action)
        assert af.backend_of(env.env.taken).name == library
        assert "float32" in str(env.env.taken.dtype)
        assert env.env.taken.tolist() == [0.5, 0, -0.5]


def test_sparse_observations_and_actions_become_dense():
    env = gym.wrappers.TransformObservation(Takes(THREE, "torch"), torch.Tensor.to_sparse, None)
    assert type(ArrayConversion(env, target_xp="numpy").reset()[0]) is np.ndarray
    env = adapted(THREE)
    env.step(torch.ones(3).to_sparse())
    assert taken_as(env) == [1, 1, 1]


@pytest.mark.parametrize("agent", ["numpy", "torch", "jax"])
def test_an_array_is_a_tuple_as_for_gymnasium(agent):
    space = spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (), np.float32)))
    env = begun(ArrayConversion(Takes(space), target_xp=agent))
    env.step(af.convert(np.array([2, 1]), agent, narrowing="allow"))
    assert tuple(map(float, env.unwrapped.taken)) == (2, 1)
    with pytest.raises(af.ConversionError, match="takes a tuple of 2"):
        env.step(af.convert(np.array([2, 1, 0]), agent, narrowing="allow"))
