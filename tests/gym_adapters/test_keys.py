"""Keys of compiled code: what changes is seen or refused, what is the same is compiled once, and nothing is kept alive."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import hashlib
import pickle
import sys
import types
import weakref
from typing import Any, NamedTuple

import equinox
import flax.linen
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import still
from gymnasium import spaces

import arrayferry as af
import arrayferry_gym._keys.identity as _identity
from arrayferry_gym._keys.identity import identity
from arrayferry_gym.functional import (
    CartPole,
    FunctionalEnv,
    TabularEnv,
    Transitions,
    episode,
    evaluate,
    rollout,
    wrap,
)
from arrayferry_gym.wrappers import kernels

KEY = jax.random.key(0)


class Echo(FunctionalEnv):
    """The reward is the action."""

    observation_space = spaces.Box(-9, 9, (1,), np.float32)
    action_space = spaces.Discrete(9)
    max_episode_steps = 1

    def reset(self, xp, rng, n, params):
        return xp.zeros((n,), dtype=xp.float32)

    def step(self, xp, rng, state, action, params):
        return state, xp.astype(action, xp.float32), False

    def observe(self, xp, state, params):
        return state[:, None]


def chosen(policy, params=None, run=rollout):
    if run is episode:
        return float(episode(Echo(), policy, params, KEY, 1).total[0])
    return float(run(Echo(), policy, params, KEY, 1, 1)[1].reward[0, 0])


def constant(action):
    return jnp.full(1, action, int), None


class Net:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self):
        return constant(self.weight)


def test_the_key_that_an_environment_keeps_is_of_its_present_attributes():
    """Whoever gets round what refuses changes does not get old results."""
    inner, other = Sized(2.0), Sized(3.0)
    env = wrap(inner, kernels.ClipReward(max_reward=9.0))
    before, outer = identity(inner), identity(env)
    assert (identity(inner), identity(env)) == (before, outer)
    assert identity(inner) != identity(other)
    made = copy.copy(inner)
    object.__setattr__(made, "size", 3.0)
    assert identity(made) == identity(other)
    for value in (3.0, 2, 2.0):
        object.__setattr__(inner, "size", value)
        assert (identity(inner) == before) is (type(value) is float and value == 2.0)
        assert (identity(env) == outer) is (identity(inner) == before)
    object.__setattr__(inner, "max_episode_steps", 7)  # until now that of the class
    assert identity(inner) != before
    for copied in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env), copy.copy(env)):
        assert identity(copied) == identity(env)
        object.__setattr__(copied.env, "size", 4.0)
        assert identity(copied) == identity(wrap(copied.env, *copied.kernels))
        object.__setattr__(copied.env, "size", 2.0)


class Sized(CartPole):
    def __init__(self, size):
        self.size = size


class Agent:
    """No pytree."""

    level = 2

    def __init__(self, weight):
        self.weight = weight
        self.deep = [{"a": (weight,)}]
        self.net = Net(weight)
        self.unused = np.zeros(3)
        self.number = 1

    def direct(self, params, observation, key):
        return constant(self.weight)

    def nested(self, params, observation, key):
        return constant(self.deep[0]["a"][0])

    def through_an_object(self, params, observation, key):
        return self.net()

    def through_a_method(self, params, observation, key):
        return self.helped()

    def through_a_function(self, params, observation, key):
        return helping(self)

    def by_name(self, params, observation, key):
        return constant(getattr(self, "wei" + "ght"))

    def helped(self):
        return constant(self.weight)

    def harmless(self, params, observation, key):
        return constant(self.number + self.level)

    @property
    def shown(self):
        return self.weight

    def through_a_property(self, params, observation, key):
        return constant(self.shown)

    def __call__(self, params, observation, key):
        return constant(self.weight)


def helping(agent):
    return constant(agent.weight)


def closed(weight):
    def policy(params, observation, key):
        return constant(weight)

    return policy


def taking(weight, params, observation, key):
    return constant(weight)


def asking(agent, params, observation, key):
    return agent.direct(params, observation, key)


WEIGHTS = {"jax": jnp.asarray(1), "numpy": np.asarray(1), "torch": torch.asarray(1)}
METHODS = [
    "direct",
    "nested",
    "through_an_object",
    "through_a_method",
    "through_a_function",
    "by_name",
    "through_a_property",
]

HOLDERS: dict[str, Any] = {
    **{name: (lambda w, name=name: getattr(Agent(w), name)) for name in METHODS},
    "an object that is called": Agent,
    "jit": lambda w: jax.jit(Agent(w).direct),
    "a closure": closed,
    "a closure in jit": lambda w: jax.jit(closed(w)),
    "a container in a closure": lambda w: (lambda held: lambda p, o, k: constant(held["a"][0]))({"a": [w]}),
    "a pytree in a closure": lambda w: (lambda held: lambda p, o, k: constant(held.weight))(Struct(w)),
    "an object in a closure": lambda w: (lambda agent: lambda p, o, k: agent.direct(p, o, k))(Agent(w)),
    "a closure in a closure": lambda w: (lambda inner: lambda p, o, k: inner(p, o, k))(closed(w)),
    "a default": lambda w: lambda p, o, k, weight=w: constant(weight),
    "a keyword default": lambda w: lambda p, o, k, *, weight=w: constant(weight),
    "an object in a partial": lambda w: functools.partial(asking, Agent(w)),
    "a method in a Partial": lambda w: jax.tree_util.Partial(Agent(w).direct),
    "a closure in a partial": lambda w: functools.partial(closed(w)),
}  # fmt: skip


@flax.struct.dataclass
class Struct:
    weight: Any

    def act(self, params, observation, key):
        return constant(self.weight)


class Module(equinox.Module):
    weight: Any

    def act(self, params, observation, key):
        return constant(self.weight)

    def __call__(self, params, observation, key):
        return constant(self.weight)


@pytest.mark.parametrize("run", [rollout, episode])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_function_that_holds_an_array_is_refused(holder, weight, run):
    policy = HOLDERS[holder](WEIGHTS[weight])
    with pytest.raises(
        af.OptionError,
        match=r"holds an array, .*(weight|deep\[0\]\['a'\]\[0\]|held|defaults|inner)",
    ) as caught:
        chosen(policy, run=run)
    assert "policy_params" in str(caught.value)


def test_the_place_of_the_array_is_named():
    for name, path in (
        ("nested", r"\.deep\[0\]\['a'\]\[0\]"),
        ("through_an_object", r"\.net\.weight"),
    ):
        with pytest.raises(af.OptionError, match=rf"Agent\.{name} holds an array, {path},"):
            chosen(getattr(Agent(jnp.ones(3)), name))


def test_arrays_that_are_not_used_are_no_reason():
    agent = Agent(jnp.ones(3))
    assert chosen(agent.harmless) == 3
    agent.number = 4  # and what is used is seen
    assert chosen(agent.harmless) == 6


class TestValues:
    """Arrays of a pytree that is the object of a method, and of a partial, are values."""

    MAKE = {
        "struct": lambda w: Struct(w).act,
        "module": lambda w: Module(w),
        "method of a module": lambda w: Module(w).act,
        "Partial": lambda w: jax.tree_util.Partial(taking, w),
        "partial": lambda w: functools.partial(taking, w),
        "partial by keyword": lambda w: functools.partial(lambda p, o, k, *, w: constant(w), w=w),
        "partial of a method": lambda w: functools.partial(Struct(w).act),
        "partial of a partial": lambda w: functools.partial(functools.partial(taking, w)),
        "partial of a tree": lambda w: functools.partial(
            lambda held, p, o, k: constant(held["a"][0]), {"a": [w]}
        ),
    }

    @pytest.mark.parametrize("kind", MAKE)
    def test_changes_are_seen_and_not_compiled(self, kind):
        make = self.MAKE[kind]
        assert chosen(make(jnp.asarray(1))) == 1
        before = _compilations()
        assert [chosen(make(jnp.asarray(number))) for number in (2, 3)] == [2, 3]
        assert _compilations() == before

    @pytest.mark.parametrize("kind", MAKE)
    def test_traced_values_too(self, kind):
        def reward(weight):
            return rollout(Echo(), self.MAKE[kind](weight), None, KEY, 1, 1)[1].reward.sum()

        assert jax.jit(reward)(2) == 2
        assert jax.vmap(reward)(jnp.arange(3)).tolist() == [0, 1, 2]


def _compilations():
    from arrayferry_gym.functional._compiled.evaluation import _evaluate
    from arrayferry_gym.functional._compiled.rollout import _rollout

    return _rollout._cache_size() + _evaluate._cache_size()


def test_traced_values_may_be_closed_over_in_their_function():
    def reward(weight):
        return rollout(Echo(), lambda p, o, k: (jnp.zeros(1, int), weight), None, KEY, 2, 1)[
            1
        ].extras.sum()

    assert jax.jit(reward)(3.0) == 6
    assert jax.grad(reward)(3.0) == 2
    assert jax.vmap(reward)(jnp.arange(2.0)).tolist() == [0, 2]
    agent = Agent(0)

    def kept(weight):
        agent.weight = weight
        return chosen(agent.direct)

    with pytest.raises(af.OptionError, match=r"\.weight"):
        jax.jit(kept)(1)


# What is the same, and what is not.


def test_functions_of_flax_hold_no_arrays():
    module = flax.linen.Dense(2)
    params = module.init(KEY, jnp.zeros((1, 1)))
    for policy in (
        lambda p, o, k: (module.apply(p, o).argmax(axis=1), None),
        functools.partial(lambda apply, p, o, k: (apply(p, o).argmax(axis=1), None), module.apply),
        jax.jit(lambda p, o, k: (module.apply(p, o).argmax(axis=1), None)),
    ):
        chosen(policy, params)
        before = _compilations()
        chosen(policy, params)
        assert _compilations() == before


def test_functions_that_are_made_anew_are_the_same():
    def make(number):
        return [
            lambda p, o, k: constant(number),
            functools.partial(taking, number),
            functools.partial(lambda p, o, k, *, n: constant(n["a"]), n={"a": number}),
        ]

    for index in range(3):
        assert chosen(make(2)[index]) == 2
        before = _compilations()
        assert chosen(make(2)[index]) == 2
        assert _compilations() == before
        assert chosen(make(3)[index]) == 3


class Point(NamedTuple):
    x: Any


@dataclasses.dataclass(frozen=True)
class Cfg:
    x: Any


@dataclasses.dataclass
class Loose:
    x: Any


class Compared:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x

    def __hash__(self):
        return hash(self.x)


class Slotted(Compared):
    __slots__ = ("y",)

    def __init__(self, x):
        self.x, self.y = 0, x

    __eq__, __hash__ = Compared.__eq__, Compared.__hash__


WRAPS: dict[str, Any] = {
    "itself": lambda x: x, "tuple": lambda x: (x,), "list": lambda x: [x], "named tuple": Point, "frozenset": lambda x: frozenset([x]),
    "set": lambda x: {x}, "dict": lambda x: {"a": x}, "key of a dict": lambda x: {x: "a"}, "frozen dataclass": Cfg, "dataclass": Loose,
    "comparison": Compared, "slots": Slotted, "deep": lambda x: (Cfg(frozenset([Point((x,))])),), "in a list": lambda x: [{"a": Cfg(x)}],
    "function": lambda x: lambda: x, "partial": lambda x: functools.partial(taking, x), "space": lambda x: spaces.Discrete(3, start=int(x)) if type(x) is int else x,
    "environment": lambda x: Holding(x),
}  # fmt: skip


class Holding(Echo):
    def __init__(self, held):
        self.held = held

    def step(self, xp, rng, state, action, params):
        kinds = {int: 1.0, float: 2.0, bool: 3.0, np.float32: 4.0}
        found = self.held.x if isinstance(self.held, Cfg) else self.held
        return state, kinds[type(found)], False


NUMBERS = [1, 1.0, True, np.float32(1), np.int64(1), 1 + 0j]
ZEROS = [0.0, -0.0, 0, False]


@pytest.mark.parametrize("wrap", WRAPS)
def test_equal_numbers_of_other_types_are_others(wrap):
    make = WRAPS[wrap]
    for numbers in (NUMBERS, ZEROS):
        envs = [Holding(make(number)) for number in numbers]
        for index, env in enumerate(envs):
            for other in envs[index + 1 :]:
                assert env != other
                assert identity(env) != identity(other)
    for number in (2, 2.0, "a", float("nan")):
        assert identity(Holding(make(number))) == identity(Holding(make(number)))
        assert hash(Holding(make(number))) == hash(Holding(make(number)))


def test_code_of_another_environment_is_never_used():
    def reward(held):
        return float(
            rollout(Holding(held), lambda p, o, k: constant(0), None, KEY, 1, 1)[1].reward[0, 0]
        )

    assert [reward(Cfg(x)) for x in (1, 1.0, True, 1)] == [1, 2, 3, 1]
    assert [reward(x) for x in (1, 1.0, True, 1)] == [1, 2, 3, 1]


class Static(equinox.Module):
    x: Any = equinox.field(static=True)


def test_static_fields_of_pytrees_have_types():
    def policy(params, observation, key):
        return constant({int: 1, float: 2, bool: 3}[type(params.x)])

    assert [chosen(policy, Static(x)) for x in (1, 1.0, True)] == [1, 2, 3]
    assert [chosen(lambda p, o, k: policy(p[0], o, k), (Static(x),)) for x in (1.0, True, 1)] == [
        2,
        3,
        1,
    ]


class Spaced(Echo):
    """As a wrapper that holds what it has computed: all is equal when it is made anew."""

    def __init__(self, high=3.0):
        self.space = spaces.Dict(a=spaces.Box(-1.0, high, (2,)), b=spaces.Discrete(3))
        self.table = np.arange(300.0) * high
        self.inner = CartPole()
        self.options = {"a": [1, 2.0]}


def test_equal_environments_are_compiled_once():
    def run(env):
        rollout(env, still, None, KEY, 2, 1)

    run(Spaced())
    before = _compilations()
    env = Spaced()
    env.space.seed(3)
    env.space.sample()
    run(env)
    assert _compilations() == before
    assert Spaced() == Spaced() != Spaced(4.0)
    run(Spaced(4.0))
    assert _compilations() == before + 1
    env.table[3] = 99  # it must not change, but if it does, it is seen
    run(env)
    assert _compilations() == before + 2


class Counting(NamedTuple):
    step: Any
    weight: Any


@pytest.mark.parametrize("run", [rollout, episode])
def test_a_leaf_that_compiles_again_and_again_is_named_once(run, recwarn):
    def policy(params, observation, key):
        return constant(params["state"].weight.astype(int))

    def act(step):
        return chosen(policy, {"state": Counting(step, jnp.ones(()))}, run)

    act(0)
    act(1)
    assert not recwarn.list
    with pytest.warns(
        UserWarning, match=r"third time, because policy_params\['state'\]\.step was another"
    ):
        act(2)
    act(3)
    act(2)
    for step in (4, 5):
        act(jnp.asarray(step))
    assert len(recwarn.list) == 0


def test_what_a_user_changes_is_no_reason_to_warn():
    for steps in (1, 2, 3, 4):
        rollout(Echo(), still, None, KEY, steps, 1)
        rollout(Echo(), still, None, KEY, 1, steps, max_episode_steps=steps)
        rollout(Spaced(float(steps)), still, None, KEY, 1, 1)


def test_an_object_that_is_made_anew_is_named():
    class Opaque:
        pass

    def run():
        rollout(Opaqued(Opaque()), still, None, KEY, 1, 1)

    run()
    run()
    with pytest.warns(UserWarning, match=r"because env\.held was another one"):
        run()


class Opaqued(Echo):
    def __init__(self, held):
        self.held = held


def test_a_policy_may_name_an_environment_that_holds_arrays():
    """It is immutable, and compared by its contents, so that another one compiles again."""

    def drawn(env):
        def policy(params, observation, key):
            return jnp.full(
                observation.shape[:1], env.default_params.starts[0] % env.action_space.n
            ), None

        return rollout(CartPole(), policy, None, jax.random.key(0), 2, 2)[1].action.tolist()

    table = {state: {action: [(1.0, state, 0.0, False)] for action in (0, 1)} for state in (0, 1)}
    one, other = (TabularEnv(Transitions.of(table, [start])) for start in (0, 1))
    assert drawn(one) == [[0, 0], [0, 0]]
    assert drawn(other) == [[1, 1], [1, 1]]
    one.default_params.starts[0] = 1  # in place, which nothing stops
    assert drawn(one) == [[1, 1], [1, 1]]


def test_a_policy_may_name_a_space():
    def drawn(space):
        def policy(params, observation, key):
            return jnp.full(observation.shape[:1], jnp.asarray(space.high).sum().astype(int)), None

        return rollout(Echo(), policy, None, KEY, 1, 2)[1].reward.tolist()

    one = spaces.Box(0, 3, (2,), np.float32)
    assert drawn(one) == [[6, 6]]
    assert drawn(spaces.Box(0, 3, (2,), np.float32)) == [[6, 6]]
    one.high[0] = 1  # in place, which nothing stops
    assert drawn(one) == [[4, 4]]


OF_A_SCRIPT = """
import jax.numpy as jnp

TABLE = jnp.arange(9)


def even(number):
    return number == 0 or odd(number - 1)


def odd(number):
    return number != 0 and even(number - 1)


def policy(params, observation, key):
    traced()
    return jnp.full(1, SCALE + even(4), int) + 0 * TABLE[0], None
"""


def run_again(code, name="a_script_that_is_not_imported", **names):
    """Return the policy of a script that is run, as by runpy, or loaded by cloudpickle where it cannot be imported."""
    module = types.ModuleType(name)
    exec(compile(code, "a_script.py", "exec"), vars(module))
    vars(module).update(names)
    return module


@pytest.mark.filterwarnings("ignore:rollout is compiled for the third time")
def test_copies_of_a_function_that_refer_to_equal_values_are_the_same():
    counts, table = iter(range(99)), jnp.ones(3, int)
    names = {"traced": counts.__next__, "TABLE": table, "unused": object()}
    for _ in range(4):
        module = run_again(OF_A_SCRIPT, SCALE=2, **names)
        assert chosen(module.policy) == 3
    first = next(counts)
    assert chosen(run_again(OF_A_SCRIPT, SCALE=5, **names).policy) == 6
    assert next(counts) == 2 * first + 1
    module.TABLE = jnp.ones(3, int)
    assert chosen(module.policy) == 3
    assert next(counts) == 3 * first + 2


@pytest.mark.parametrize("scale", ["globals()['SCALE']", "eval('SCALE')"])
def test_copies_of_a_function_that_may_reach_any_global_are_others(scale):
    code = f"import jax.numpy as jnp\ndef policy(p, o, k): return jnp.full(1, {scale}, int), None"
    assert chosen(run_again(code, SCALE=2).policy) == 2
    assert chosen(run_again(code, SCALE=5).policy) == 5


def test_a_module_that_runs_again_is_named(monkeypatch):
    def run():
        code = "import jax.numpy as jnp\ndef policy(p, o, k): return jnp.zeros(1, int), None"
        module = run_again(code, "a_module")
        monkeypatch.setitem(sys.modules, "a_module", module)
        assert chosen(module.policy) == 0

    run()
    run()
    with pytest.warns(UserWarning, match="because the module that defines policy was run again"):
        run()


AN_OBJECT = """
import jax.numpy as jnp

class Policy:
    def __init__(self):
        self.one = self.two = 0

    def act(self, params, observation, key):
        return self.inner(observation), None

    def inner(self, observation):
        return helper(self, observation)

def helper(policy, observation):
    return jnp.full(len(observation), policy.one)
"""


@pytest.mark.filterwarnings("ignore:rollout is compiled for the third time")
@pytest.mark.parametrize("changed", ["a module", "a function", "a method"])
def test_what_is_defined_anew_may_name_other_attributes(changed):
    module = run_again(AN_OBJECT)
    assert chosen(module.Policy().act) == 0
    if changed == "a module":
        module = run_again(AN_OBJECT.replace("policy.one", "policy.two"))
    elif changed == "a function":
        module.helper = run_again(AN_OBJECT.replace("policy.one", "policy.two")).helper
        module.helper.__globals__["__name__"] = module.__name__
    else:
        module.Policy.inner = lambda policy, observation: jnp.full(len(observation), policy.two)
    policy = module.Policy()
    assert chosen(policy.act) == 0
    policy.two = 1
    assert chosen(policy.act) == 1


# What compiled code keeps.


@pytest.mark.parametrize("run", [rollout, episode, evaluate])
def test_compiled_code_keeps_no_environment_alive(run):
    """Also where its policy refers to it. An equal environment that is made later uses the same code."""

    def called():
        env = Spaced(7.0)
        policies = [
            lambda p, o, k: constant(env.action_space.start),
            functools.partial(lambda env, p, o, k: constant(env.action_space.start), env),
        ]
        for policy in policies:
            steps = {"num_steps": 2} if run is rollout else {}
            run(env, policy, None, KEY, num_envs=1, **steps)
        return weakref.ref(env), weakref.ref(env.space)

    kept = called()
    gc.collect()
    assert [reference() for reference in kept] == [None, None]
    before = _compilations()
    called()
    assert _compilations() == before


# What is computed once.


def test_the_digest_of_an_array_is_computed_when_it_has_changed(monkeypatch):
    digests = []

    def blake2b(data, **options):
        digests.append(len(data))
        return hashlib.blake2b(data, **options)

    monkeypatch.setattr(_identity, "hashlib", types.SimpleNamespace(blake2b=blake2b))
    env = Spaced(8.0)
    keys = [identity(env), identity(env)]
    assert digests == [env.table.nbytes]
    env.table[3] = 99
    keys += [identity(env), identity(env)]
    assert len(digests) == 2
    env.table[3] = 24
    assert keys == [identity(env), keys[0], keys[2], keys[2]]
    assert keys[0] != keys[2]
    table = id(env.table)
    assert table in _identity._DIGESTS
    del env
    assert table not in _identity._DIGESTS


def test_the_contents_of_very_large_arrays_are_not_kept(monkeypatch):
    env = Spaced(8.0)
    kept = identity(env)
    monkeypatch.setattr(_identity, "_DIGESTS", {})
    monkeypatch.setattr(_identity, "_LARGEST", env.table.nbytes - 1)
    assert identity(env) == kept
    env.table[3] = 99
    assert identity(env) != kept
    assert not _identity._DIGESTS
