"""Keys of compiled code: what changes is seen or refused, what is the same is compiled once, and nothing is kept alive."""

from __future__ import annotations

import array
import copy
import dataclasses
import functools
import gc
import inspect
import pickle
import sys
import types
import weakref
from decimal import Decimal
from typing import Any, Protocol

import attrs
import cloudpickle
import equinox
import flax.linen
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Compared, Plain, Point
from cases import quick_if
from functional_envs import Bare, compilations, still
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import CartPole, ImpureError, evaluate, rollout, wrap
from arrayferry_envs._contract.params import identity
from arrayferry_gym.wrappers import kernels

KEY = jax.random.key(0)


class Echo(Bare):
    """The reward is the action."""

    action_space = spaces.Discrete(9)
    max_episode_steps = 1

    def step(self, xp, rng, state, action, params):
        return state, xp.astype(action, xp.float32), False


def chosen(policy, params=None, run=rollout):
    if run is evaluate:
        results = evaluate(Echo(), policy, policy_params=params, key=KEY, num_envs=1)
        return float(results.returns[0, 0])
    return float(run(Echo(), policy, params, KEY, 1, 1)[1].reward[0, 0])


def constant(action):
    return jnp.full(1, action, int), None


class Sized(CartPole):
    def __init__(self, size):
        self.size = size


@dataclasses.dataclass
class Data(Echo):
    size: Any

    def __post_init__(self):
        self.twice = 2 * self.size


class Derived(Data):
    def __init__(self, size):
        super().__init__(size)
        self.last = size


class Mixin:
    def __init__(self, size):
        super().__init__(size)
        self.last = size


class Mixed(Mixin, Sized):
    pass


@attrs.define(eq=False)
class Attrs(Echo):
    size: Any


@attrs.define(eq=False, slots=False)
class OpenAttrs(Echo):
    size: Any


class New(Echo):
    def __new__(cls, size=None):
        self = super().__new__(cls)
        self.size = size
        return self


class Shaped(Protocol):
    size: Any


class OfProtocol(Sized, Shaped):
    pass


class OfEquinox(Echo, equinox.Module):
    size: Any

    def __init__(self, size):
        self.size = size


MADE = [Sized, Data, Derived, Mixed, Attrs, OpenAttrs, New, OfProtocol, OfEquinox]
COPIES = {
    "itself": lambda x: x,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "cloudpickle": lambda x: cloudpickle.loads(cloudpickle.dumps(x)),
}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("cls", MADE)
def test_an_environment_is_immutable_once_it_is_made(cls, copied):
    given = np.arange(300.0)
    env = cls(given)
    key = identity(env)
    given[0] = 9  # it holds a copy
    env = COPIES[copied](env)
    with pytest.raises(ValueError, match="read-only"):
        env.size[0] = 9
    with pytest.raises((ImpureError, dataclasses.FrozenInstanceError)):
        env.size = 3
    assert identity(env) == key == identity(cls(np.arange(300.0))) != identity(cls(given))


def test_an_environment_without_a_constructor_takes_no_arguments():
    env = CartPole()
    with pytest.raises(ImpureError):
        env.size = 3
    with pytest.raises(ImpureError):
        del env.anything


@pytest.mark.parametrize("held", [np.ma.masked_array([1, 2], [0, 1]), np.array([1, None])])
def test_arrays_that_cannot_be_compared_are_refused(held):
    words = r"Sized\.size has an array with a mask or of objects"
    with pytest.raises(af.OptionError, match=words):
        Sized(held)


def test_arrays_in_trees_are_copied_and_digested_with_their_dtypes():
    tables = [np.zeros(2_000, dtype) for dtype in ("<f4", ">f4", [("a", "<f4")], [("b", "<f4")])]
    envs = [Sized({"a": [table, (table,)]}) for table in tables]
    assert len({identity(env) for env in envs}) == 4
    assert not envs[0].size["a"][1][0].flags.writeable
    assert tables[0].flags.writeable


def test_environments_may_be_made_inside_a_trace():
    def reward(size):
        return rollout(Sized(size), still, None, KEY, 2, 1)[1].reward.sum()

    assert jax.jit(reward)(1.0) == 2
    assert jax.vmap(reward)(jnp.ones(2)).tolist() == [2, 2]


class Agent:
    """No pytree."""

    def __init__(self, weight):
        self.weight = weight
        self.number = 1

    def __call__(self, params, observation, key):
        return constant(self.weight)

    direct = __call__

    def harmless(self, params, observation, key):
        return constant(self.number + 2)

    def in_jit(self, params, observation, key):
        return constant(jax.jit(lambda: self.weight + 0)())

    def in_a_scan(self, params, observation, key):
        return constant(jax.lax.scan(lambda x, _: (x + self.weight, None), 0, None, 1)[0])

    def in_a_branch(self, params, observation, key):
        return constant(
            jax.lax.cond(observation.sum() < 9, lambda: self.weight, lambda: jnp.int32(0))
        )

    def in_a_rule(self, params, observation, key):
        scaled = jax.custom_vjp(lambda x: x.astype(int) * self.weight)
        scaled.defvjp(lambda x: (x.astype(int) * self.weight, None), lambda _, y: (y,))
        return constant(scaled(observation[:, 0]))


def decorated(function):
    @functools.wraps(function)
    def policy(*args):
        return function(*args)

    return policy


def closed(weight):
    def policy(params, observation, key):
        return constant(weight)

    return policy


def taking(weight, params, observation, key):
    return constant(weight)


def by_keyword(params, observation, key, *, w):
    return constant(w)


def in_a_tree(held, params, observation, key):
    return constant(held["a"][0])


def asking(agent, params, observation, key):
    return agent.direct(params, observation, key)


HOLDERS: dict[str, Any] = {
    "a method": lambda w: Agent(w).direct,
    "a method with jit": lambda w: Agent(w).in_jit,
    "a method with scan": lambda w: Agent(w).in_a_scan,
    "a method with cond": lambda w: Agent(w).in_a_branch,
    "a method with a rule": lambda w: Agent(w).in_a_rule,
    "an object that is called": Agent,
    "jit": lambda w: jax.jit(Agent(w).direct),
    "a decorator": lambda w: decorated(Agent(w).direct),
    "a closure": closed,
    "a default": lambda w: lambda p, o, k, weight=w: constant(weight),
    "a keyword default": lambda w: lambda p, o, k, *, weight=w: constant(weight),
    "an object in a partial": lambda w: functools.partial(asking, Agent(w)),
    "a method in a Partial": lambda w: jax.tree_util.Partial(Agent(w).direct),
    "a closure in a partial": lambda w: functools.partial(closed(w)),
}


@flax.struct.dataclass
class Struct:
    weight: Any

    def act(self, params, observation, key):
        return constant(self.weight)


class Module(equinox.Module):
    weight: Any

    def act(self, params, observation, key):
        return constant(self.weight)

    __call__ = act


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_policy_that_holds_an_array_is_refused(holder):
    policy = HOLDERS[holder](jnp.asarray(1, jnp.int32))
    for run in (rollout, evaluate):
        with pytest.raises(af.OptionError, match=r"contains an array, int32\[\], .*policy_params"):
            chosen(policy, run=run)


TABLE = jnp.arange(5, 9, dtype=jnp.int32)


@pytest.mark.parametrize("added", [None, 0])
def test_a_policy_that_uses_global_arrays_warns(added, recwarn, monkeypatch):
    monkeypatch.setitem(sys.modules, "an object, as some packages put there", None)

    def policy(params, observation, key):
        return constant(TABLE[0])

    def closure(params, observation, key):
        return constant(TABLE[0] + added)

    policy = policy if added is None else closure
    with pytest.warns(
        UserWarning, match=r"such as arrays in global variables: int32\[4\]"
    ) as caught:
        assert chosen(policy) == 5
    assert caught[0].filename == __file__
    assert chosen(policy) == 5
    assert not recwarn.list


def test_plain_attributes_and_arrays_that_are_not_used_are_no_reason():
    agent = Agent(jnp.ones(3))
    assert chosen(agent.harmless) == 3
    assert compilations(lambda: chosen(agent.harmless)) == 0
    agent.number = 4  # and what is plain is seen
    assert chosen(agent.harmless) == 6


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any


@pytest.mark.parametrize(
    "value",
    [torch.ones(2), array.array("f", [1.0]), bytearray(b"a"), types.SimpleNamespace(), Frozen([1])],
)
def test_what_is_neither_static_nor_an_array_of_jax_is_refused(value):
    with pytest.raises(af.OptionError, match=r"policy_params\['a'\]\[0\] is a .* neither"):
        chosen(lambda p, o, k: constant(0), {"a": (value,)})


HELD = {
    "struct": lambda w: Struct(w).act,
    "module": lambda w: Module(w),
    "method of a module": lambda w: Module(w).act,
    "Partial": lambda w: jax.tree_util.Partial(taking, w),
    "partial": lambda w: functools.partial(taking, w),
    "partial by keyword": lambda w: functools.partial(by_keyword, w=w),
    "partial of a method": lambda w: functools.partial(Struct(w).act),
    "partial of a partial": lambda w: functools.partial(functools.partial(taking, w)),
    "partial of a tree": lambda w: functools.partial(in_a_tree, {"a": [w]}),
}


@pytest.mark.parametrize(
    "kind", quick_if(HELD, {"struct", "method of a module", "Partial", "partial"}.__contains__)
)
def test_arrays_of_pytrees_and_partials_are_values(kind):
    make = HELD[kind]
    assert chosen(make(jnp.asarray(1))) == 1
    assert compilations(lambda: chosen(make(jnp.asarray(2)))) == 0
    assert chosen(make(jnp.asarray(3))) == 3

    def reward(weight):
        return rollout(Echo(), make(weight), None, KEY, 1, 1)[1].reward.sum()

    assert jax.jit(reward)(2) == 2
    assert jax.vmap(reward)(jnp.arange(3)).tolist() == [0, 1, 2]


def test_traced_values_may_be_closed_over_in_their_function():
    def reward(weight):
        return rollout(Echo(), lambda p, o, k: (jnp.zeros(1, int), weight), None, KEY, 2, 1)[
            1
        ].extras.sum()

    assert jax.jit(reward)(3.0) == 6
    assert jax.grad(reward)(3.0) == 2
    assert jax.vmap(reward)(jnp.arange(2.0)).tolist() == [0, 2]


# What is the same, and what is not.


class Slotted(Compared):
    __slots__ = ("y",)

    def __init__(self, x):
        self.x, self.y = 0, x

    __eq__, __hash__ = Compared.__eq__, Compared.__hash__


class Marked(Decimal):
    """Its attributes are not pickled."""

    def __new__(cls, x):
        self = super().__new__(cls, 1)
        self.x = x
        return self


@dataclasses.dataclass
class Uncompared(Echo):
    x: Any = dataclasses.field(compare=False)


WRAPS: dict[str, Any] = {
    "itself": lambda x: x, "tuple": lambda x: (x,), "list": lambda x: [x], "named tuple": Point, "frozenset": lambda x: frozenset([x]),
    "set": lambda x: {x}, "dict": lambda x: {"a": x}, "key of a dict": lambda x: {x: "a"}, "frozen dataclass": Frozen, "dataclass": Plain,
    "comparison": Compared, "slots": Slotted, "deep": lambda x: (Frozen(frozenset([Point((x,))])),), "in a list": lambda x: [{"a": Frozen(x)}],
    "space": lambda x: spaces.Discrete(3, start=int(x)) if type(x) is int else x,
    "environment": lambda x: Holding(x), "attribute of a number": Marked, "field that is not compared": Uncompared,
}  # fmt: skip


class Holding(Echo):
    def __init__(self, held):
        self.held = held


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


class Spaced(Echo):
    """As a wrapper that holds what it has computed: all is equal when it is made anew."""

    def __init__(self, high=3.0):
        self.space = spaces.Dict(a=spaces.Box(-1.0, high, (2,)), b=spaces.Discrete(3))
        self.table = np.arange(300.0) * high
        self.inner = CartPole()
        self.options = {"a": [1, 2.0]}


def counting(params, observation, key, state):
    return constant(0)[0], None, state + 1


def applying(params, observation, key):
    return DENSE.apply(params, observation).argmax(axis=1), None


def _spaced(number):
    env = Spaced(float(number))
    env.space.seed(3)
    env.space.sample()
    return env


DENSE = flax.linen.Dense(2)
FUNCTIONS = [lambda p, o, k, number=number: constant(number) for number in range(2)]
RUN = functools.partial(rollout, policy=still, policy_params=None, key=KEY, num_steps=2, num_envs=1)
# What is run with a number, and how many programs are compiled for another one
COMPILED = {
    "a key": (lambda n: RUN(CartPole(), key=jax.random.key(n)), 0),
    "a parameter": (lambda n: RUN(CartPole(), env_params={"half_length": 0.5 + n}), 0),
    "a state of the policy": (lambda n: RUN(Echo(), policy=counting, policy_state=jnp.full(1, n)), 0),
    "numbers in policy_params": (lambda n: RUN(Echo(), policy_params=float(n)), 0),
    "weights of Flax": (
        lambda n: RUN(
            Echo(), policy=applying,
            policy_params=DENSE.init(jax.random.key(n), jnp.zeros((1, 1))),
        ), 0,
    ),
    "a whole number in policy_params": (lambda n: RUN(Echo(), policy_params=n), 1),
    "a function": (lambda n: RUN(Echo(), policy=FUNCTIONS[n]), 1),
    "a number in a partial": (lambda n: RUN(Echo(), policy=functools.partial(taking, n)), 1),
    "steps": (lambda n: RUN(CartPole(), num_steps=7 + n), 1),
    "an environment": (lambda n: RUN(_spaced(n)), 1),
    "a wrapper": (lambda n: RUN(wrap(CartPole(), kernels.NormalizeObservation(1e-8 + n))), 1),
    "an evaluation": (lambda n: evaluate(CartPole(), still, key=jax.random.key(n), num_envs=1), 0),
}  # fmt: skip


SLOW = "a wrapper", "an evaluation", "steps", "weights of Flax"


@pytest.mark.parametrize("what", quick_if(COMPILED, lambda what: what not in SLOW))
def test_what_is_compiled_again(what):
    run, again = COMPILED[what]
    run(0)
    assert [compilations(lambda n=n: run(n)) for n in (0, 1, 0)] == [0, again, 0]


def test_functions_that_are_made_inside_a_trace():
    def total(weight):
        policies = [lambda p, o, k: constant(weight) for _ in range(2)]
        return sum(rollout(Echo(), each, None, KEY, 1, 1)[1].reward.sum() for each in policies)

    assert jax.jit(total)(1) == 2
    assert jax.vmap(total)(jnp.arange(2)).tolist() == [0, 2]


def test_a_policy_may_name_an_environment_that_holds_arrays():
    class Holds(CartPole):
        def __init__(self, start):
            self.default_params = {"starts": np.array([start])}

    one, other = Holds(0), Holds(1)

    def drawn(env):
        def policy(params, observation, key):
            start = env.default_params["starts"][0] % env.action_space.n
            return jnp.full(observation.shape[:1], start), None

        return rollout(CartPole(), policy, None, jax.random.key(0), 2, 2)[1].action.tolist()

    assert drawn(one) == [[0, 0], [0, 0]]
    assert drawn(other) == [[1, 1], [1, 1]]


# What compiled code keeps.


@pytest.mark.parametrize("run", quick_if([rollout, evaluate], lambda run: run is rollout))
def test_compiled_code_keeps_no_environment_alive(run):
    """Also where its policy refers to it."""

    def called():
        env = Spaced(7.0)
        policies = [
            lambda p, o, k: constant(env.action_space.start),
            functools.partial(lambda env, p, o, k: constant(env.action_space.start), env),
        ]
        for policy in policies:
            steps = {"num_steps": 2} if run is rollout else {}
            run(env, policy, policy_params=None, key=KEY, num_envs=1, **steps)
        return weakref.ref(env), weakref.ref(env.space)

    kept = called()
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


@pytest.mark.parametrize("run", [rollout, pytest.param(evaluate, marks=pytest.mark.long)])
def test_compiled_code_keeps_no_policy_alive(run):
    policy = lambda p, o, k: constant(0)  # noqa: E731
    agent = Agent(1)
    chosen(policy, run=run)
    chosen(agent.harmless, run=run)
    kept = weakref.ref(policy), weakref.ref(agent)
    del policy, agent
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


def test_classes_that_take_arguments_may_be_defined_after_objects_of_their_base_class():
    class Base(Echo):
        pass

    Base()

    class Late(Base):
        def __new__(cls, size):
            self = super().__new__(cls)
            self.size = size
            return self

    class Later(Late):
        pass

    assert Late(3).size == Late(size=3).size == 3
    assert Late(3) == Late(3) != Late(4)
    assert Later(5).size == 5
    assert str(inspect.signature(Late)) == "(size)"
    with pytest.raises(ImpureError, match="does not change after construction"):
        Late(3).size = 4
    with pytest.raises(TypeError, match="exactly one argument"):
        Base(1)
