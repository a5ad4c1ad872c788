"""What is computed in exported files equals NumPy, also where onnxruntime or ndonnx compute otherwise; or it is refused."""

from __future__ import annotations

import re
import sys
from collections import deque
from typing import Any

import array_api_compat.numpy as numpy_xp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from raw_random import Fed

import arrayferry as af
from arrayferry_envs import CartPole, FunctionalEnv, export, wrap
from arrayferry_gym.wrappers import kernels

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")


class Computes(FunctionalEnv):
    """Its infos are a function of its state, which are constants that no step changes."""

    observation_space = spaces.Box(0, 1, ())
    action_space = spaces.Discrete(2)

    def __init__(self, function, *values):
        self.function, self.values = function, [x.tobytes() for x in values]
        self.forms = [(x.dtype, x.shape) for x in values]

    def reset(self, xp, rng, n, params):
        pairs = zip(self.values, self.forms, strict=True)
        return [xp.asarray(np.frombuffer(x, dtype).reshape(shape)) for x, (dtype, shape) in pairs]

    def step(self, xp, rng, state, action, params):
        return state, 0.0, False

    def observe(self, xp, state, params):
        return xp.zeros(state[0].shape[:1], dtype=xp.float32)

    def info(self, xp, state, params):
        return {"result": self.function(xp, *state)}


def computed(tmp_path, function, *values):
    """Export, and return what the file computes after a reset, by names without "info."."""
    path = str(tmp_path / "env.onnx")
    metadata = export(Computes(function, *values), path, num_envs=len(values[0]))
    session = onnxruntime.InferenceSession(path)
    feed = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in metadata["inputs"]}
    feed["reset"] = ~feed["reset"]
    [result] = session.run(["info.result"], feed)
    return result


LARGE = np.array([[2**55 + 1, -(2**55) - 3, 3, -7], [2**53 + 1, 1, 9, 5]])
UNSIGNED = np.array([[2**64 - 1, 2**63 + 1, 3, 7], [0, 2**55 + 5, 1, 5]], np.uint64)
SMALL = np.array([[120, 100, 3, -7], [0, 5, -128, 9]], np.int8)
FLAGS = np.array([[True, False, True, True], [False, True, False, False]])
FEW = np.array([[3, 2, 1, 4], [7, 1, 2, 3]])
NAN = np.array([[1.5, np.nan, np.inf, np.nan], [-np.inf, 2.0, 2.0, 0.25]], np.float32)
FLOATS = np.array([[1.5, -2.5, 100.0, 0.0], [0.25, 8.0, 3.25, -7.0]], np.float32)
OTHERS = np.array([[0.0, 1.0, -100.0, np.inf], [0.25, -np.inf, 3.0, -7.0]], np.float32)
ANGLES = np.array([[1e9 + 0.5, -3.0, 0.5, 1e-9], [1.5, -1e6, 2.0, 3.0]])

EQUAL = {
    "sum": (lambda xp, x: xp.sum(x, axis=1), LARGE),
    "sum of all": (lambda xp, x: xp.broadcast_to(xp.sum(x), x.shape), LARGE),
    "sum of two axes": (lambda xp, x: xp.sum(x, axis=(0, 1), keepdims=True) + x, LARGE),
    "sum of uint64": (lambda xp, x: xp.sum(x, axis=1), UNSIGNED),
    "sum of int8": (lambda xp, x: xp.sum(x, axis=-1, keepdims=True), SMALL),
    "sum as int8": (lambda xp, x: xp.sum(x, axis=1, dtype=xp.int8), SMALL),
    "sum of uint8": (lambda xp, x: xp.sum(x, axis=1), SMALL.view(np.uint8)),
    "sum of flags": (lambda xp, x: xp.sum(x, axis=1), FLAGS),
    "sum as floats": (lambda xp, x: xp.sum(x, axis=1, dtype=xp.float64), FEW),
    "prod": (lambda xp, x: xp.prod(x, axis=1), FEW + 2**11),
    "prod of two axes": (lambda xp, x: xp.prod(x, axis=(0, 1), keepdims=True) + x, FEW + 20),
    "prod of uint8": (lambda xp, x: xp.prod(x, axis=1), SMALL.view(np.uint8)),
    "running sum": (lambda xp, x: xp.cumulative_sum(x, axis=1), UNSIGNED),
    "running sum and 0": (lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True), SMALL),
    "vecdot": (lambda xp, x, y: xp.vecdot(x, y), LARGE, FEW),
    "where": (lambda xp, x: xp.where(x > 3, x, 0), UNSIGNED),
    "where of scalars": (lambda xp, x: xp.where(x > 3, 1, 0), UNSIGNED),
    "power": (lambda xp, x: x**4 + x**0, LARGE // 2**40 + 9001),
    "power by a function": (lambda xp, x: xp.pow(x, 4), LARGE // 2**40 + 9001),
    "power of 2": (lambda xp, x: 2**x, FEW),
    "power of a float": (lambda xp, x: 1.5**x, FEW),
    "power of floats": (lambda xp, x: 3**x + x**2.5 + x**3, abs(FLOATS) / 10),
    "float power": (lambda xp, x: xp.astype(x, xp.float64) ** 0.5 + x**0.5, FEW),
    "argmax": (lambda xp, x: xp.argmax(x, axis=1), NAN),
    "argmin": (lambda xp, x: xp.argmin(x, axis=1, keepdims=True), NAN),
    "argmax of all": (lambda xp, x: xp.argmax(x) + xp.argmax(x, axis=1), NAN),
    "argmax of integers": (lambda xp, x: xp.argmax(x, axis=1), LARGE),
    "std": (lambda xp, x: xp.std(x, axis=1, correction=0.5), FLOATS),
    "var": (lambda xp, x: xp.var(x, axis=(0, 1), correction=2.5, keepdims=True) + x, FLOATS),
    "var of too few": (lambda xp, x: xp.var(x, axis=1, correction=4), FLOATS),
    "std without correction": (lambda xp, x: xp.std(x, axis=1), FLOATS),
    "logaddexp": (lambda xp, x, y: xp.logaddexp(x, y), FLOATS, OTHERS),
    "logaddexp of infinities": (lambda xp, x: xp.logaddexp(x, x), OTHERS),
    "sqrt": (lambda xp, x: xp.sqrt(xp.abs(x)), FEW),
    "cos": (lambda xp, x: xp.cos(x), ANGLES),
    "tan": (lambda xp, x: xp.tan(x), ANGLES),
    "mean": (lambda xp, x: xp.mean(xp.astype(x, xp.float32), axis=1), SMALL),
}


@pytest.mark.filterwarnings("ignore:Degrees of freedom")
@pytest.mark.parametrize("name", EQUAL)
def test_results_equal_those_of_numpy(name, tmp_path):
    function, *values = EQUAL[name]
    with np.errstate(all="ignore"):
        wanted = np.asarray(function(numpy_xp, *values))
    result = computed(tmp_path, function, *values)
    assert result.dtype == wanted.dtype
    if wanted.dtype.kind == "f":
        digits = {"rtol": 1e-9 if wanted.dtype == "float64" else 2e-5}
        np.testing.assert_allclose(result, wanted, **digits)
    else:
        np.testing.assert_array_equal(result, wanted)


LOST = {
    "max of uint64": (lambda xp, x: xp.max(x, axis=1), UNSIGNED),
    "sort of uint64": (lambda xp, x: xp.sort(x, axis=1), UNSIGNED),
    "argmax of uint64": (lambda xp, x: xp.argmax(x, axis=1), UNSIGNED),
    "power of uint64": (lambda xp, x: 2**x, UNSIGNED),
    "matmul of uint64": (lambda xp, x: xp.tensordot(x, x, axes=([1], [1])), UNSIGNED),
    "atan": (lambda xp, x: xp.atan(x), ANGLES),
    "sinh": (lambda xp, x: xp.sinh(x), ANGLES),
}


@pytest.mark.parametrize("name", LOST)
def test_what_would_lose_digits_is_refused(name, tmp_path):
    function, *values = LOST[name]
    with pytest.raises(af.OptionError, match=r"test_export_numbers.py:\d+: digits would be lost"):
        computed(tmp_path, function, *values)


@pytest.mark.parametrize("function", [lambda xp, x: x**x, lambda xp, x: 3**x])
def test_powers_of_integers_are_refused(function, tmp_path):
    with pytest.raises(af.OptionError, match="computes powers of integers as floats"):
        computed(tmp_path, function, FEW)


def test_ndonnx_is_as_before_after_an_export(tmp_path):
    import ndonnx

    with pytest.raises(af.OptionError):
        computed(tmp_path, *LOST["atan"])
    assert ndonnx.asarray(1).__array_namespace__() is ndonnx
    assert not hasattr(ndonnx.Array, "__array_ufunc__")


class Draws(CartPole):
    """Draws, and shows as infos."""

    def __init__(self, draw):
        self.draw = draw

    def reset(self, xp, rng, n, params):
        return super().reset(xp, rng, n, params), self.draw(rng, n)

    def step(self, xp, rng, state, action, params):
        inner, reward, terminated = super().step(xp, rng, state[0], action, params)
        return (inner, state[1]), reward, terminated

    def observe(self, xp, state, params):
        return super().observe(xp, state[0], params)


DRAWN = {
    "beyond 2**53": lambda rng, n: rng.integers((n,), 2**60, 2**60 + 5, "int64"),
    "uint64": lambda rng, n: rng.integers((n,), 2**64 - 9, 2**64, "uint64"),
    "many": lambda rng, n: rng.integers((n,), -(2**62), 2**61, "int64"),
    "between arrays": lambda rng, n: rng.integers((n,), np.int8(-100), np.full(n, 100, np.int8), "int8"),
    "uniform": lambda rng, n: rng.uniform((n,), np.int8(-100), np.full(n, 100, np.int8)),
    "normal": lambda rng, n: rng.normal((n,), np.int8(-100), np.full(n, 100, np.int8)),
    "float64": lambda rng, n: rng.uniform((n,), -1.0, 1.0, "float64"),
    "float16": lambda rng, n: rng.uniform((n,), -1.0, 1.0, "float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.assumes_other("seterr")
def test_drawn_numbers(name, tmp_path):
    n, path = 400, str(tmp_path / "env.onnx")
    metadata = export(Draws(DRAWN[name]), path, num_envs=n)
    rng, feed = np.random.default_rng(0), {}
    for x in metadata["inputs"]:
        draw = rng.standard_normal if x.get("random") == "normal" else rng.random
        feed[x["name"]] = np.zeros(x["shape"], x["dtype"])
        if "random" in x:
            feed[x["name"]] = draw(x["shape"], x["dtype"])
    feed["reset"] = ~feed["reset"]
    [drawn] = onnxruntime.InferenceSession(path).run(["state.1"], feed)
    raw = [x for name, x in feed.items() if name.startswith("random.reset")]
    wanted = DRAWN[name](Fed(raw[-1:]), n)
    assert drawn.dtype == wanted.dtype
    np.testing.assert_allclose(drawn, wanted, rtol=1e-5, atol=1e-5)
    if name == "float64":
        assert (drawn != drawn.astype(np.float32)).any()
    if wanted.dtype.kind in "iu":
        assert np.array_equal(drawn, wanted)
        assert drawn.min() >= (-(2**62) if name == "many" else -100)
        assert name in ("many", "between arrays") or set(np.unique(drawn)) == set(np.unique(wanted))
        assert len(np.unique(drawn)) >= 5


REFUSED = {
    "the range": (lambda rng, n: rng.integers((n,), 0, 300, "int8"), "do not fit int8"),
    "no range": (lambda rng, n: rng.integers((n,), 3, 3), "there are no integers"),
    "the dtype": (lambda rng, n: rng.uniform((n,), dtype="int32"), "does not support the dtype 'int32'"),
    "too many": (lambda rng, n: rng.integers((n,), 0, 2**64, "uint64"), "fewer than 2**63 integers"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_numpy_refuses_to_draw(name, tmp_path):
    draw, words = REFUSED[name]
    with pytest.raises(af.OptionError, match=re.escape(words)):
        export(Draws(draw), tmp_path / "env.onnx")


class Bounded(CartPole):
    """Shows its actions."""

    action_space: Any = spaces.Box(-100, 100, (), np.int8)

    def reset(self, xp, rng, n, params):
        return super().reset(xp, rng, n, params), xp.zeros((n,), dtype=xp.int8)

    def step(self, xp, rng, state, action, params):
        inner, reward, terminated = super().step(xp, rng, state[0], action > 0, params)
        return (inner, action), reward, terminated

    def observe(self, xp, state, params):
        return super().observe(xp, state[0], params)


@pytest.mark.parametrize(("chosen", "taken"), [(140, 100), (-140, -100), (-(2**40), -100), (7, 7)])
def test_actions_of_a_policy_are_clipped_before_they_are_cast(chosen, taken, tmp_path):
    def policy(params, observation, rng):
        xp = af.namespace_of(observation)
        return xp.full((1,), chosen, dtype=xp.int64), None

    path = str(tmp_path / "env.onnx")
    metadata = export(Bounded(), path, policy=policy)
    feed = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in metadata["inputs"]}
    assert onnxruntime.InferenceSession(path).run(["state.1"], feed)[0].tolist() == [taken]


class Drawn(CartPole):
    """Draws one parameter without, and one with its value."""

    default_params: Any = {
        "inner": CartPole.default_params,
        "mass": 1.0,
        "wind": 2.0,
        "length": 3.0,
    }

    def sample_params(self, xp, rng, n, params):
        return {**params, "mass": rng.uniform((n,)), "wind": rng.uniform((n,)) * params["wind"]}

    def reset(self, xp, rng, n, params):
        return super().reset(xp, rng, n, params["inner"])

    def step(self, xp, rng, state, action, params):
        state, _, terminated = super().step(xp, rng, state, action, params["inner"])
        return state, params["mass"] * params["wind"] * params["length"], terminated

    def observe(self, xp, state, params):
        return super().observe(xp, state, params["inner"])


def test_parameters_without_an_effect_are_no_inputs(tmp_path):
    path = tmp_path / "env.onnx"

    def inputs(env_params):
        metadata = export(Drawn(), path, param_inputs=True, env_params=env_params)
        session = onnxruntime.InferenceSession(str(path))
        assert [x.name for x in session.get_inputs()] == [x["name"] for x in metadata["inputs"]]
        names = {x["name"] for x in metadata["inputs"]}
        return {x.partition(".")[2] for x in names if x.startswith("params.") and "inner" not in x}

    assert inputs(None) == {"wind", "length"}
    assert inputs({"mass": 4.0}) == {"mass", "wind", "length"}


def test_states_of_uint64_are_kept(tmp_path):
    class Seeded(Bounded):
        action_space = spaces.Discrete(2)

        def reset(self, xp, rng, n, params):
            inner, _ = super().reset(xp, rng, n, params)
            return inner, xp.full((n,), 2**64 - 59, dtype=xp.uint64)

        def step(self, xp, rng, state, action, params):
            (inner, _), reward, terminated = super().step(xp, rng, state, action, params)
            return (inner, state[1] * 3 ^ (state[1] >> 7)), reward, terminated

    path = str(tmp_path / "env.onnx")
    metadata = export(Seeded(), path, autoreset_mode="SameStep")
    feed = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in metadata["inputs"]}
    session, wanted = onnxruntime.InferenceSession(path), 2**64 - 59
    for begins in (True, False, False):
        if not begins:
            wanted = (wanted * 3 % 2**64) ^ (wanted >> 7)
        [value] = session.run(["state.1"], feed | {"reset": np.array([begins])})
        assert int(value[0]) == wanted
        feed["last.state.1"] = value


class Counts(torch.nn.Linear):
    """Counts calls in a buffer, in place or by a new one, or keeps observations."""

    def __init__(self, way):
        super().__init__(4, 2)
        self.way, self.calls, self.seen = way, 0, deque([torch.zeros(1, 4)] * 4, 4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, observation):
        if self.way == "in place":
            self.count += 1
        elif self.way == "new":
            self.count = self.count + 1
        elif self.way == "attribute":
            self.calls += 1
        elif self.way == "list":
            self.seen.append(observation)
        scores = super().forward(observation + sum(self.seen))
        return (1000 * scores).sum(-1).long() + self.calls


@pytest.mark.parametrize(
    ("way", "name"), [("in place", "count"), ("new", "count"), ("attribute", ""), ("list", "")]
)
def test_modules_that_keep_something_are_refused(way, name, tmp_path):
    module = Counts(way)
    words = f"changes what later calls return{f' {[name]}' if name else ', or draws'}"
    with pytest.raises(af.OptionError, match=re.escape(words)):
        export(CartPole(), tmp_path / "env.onnx", policy=module)
    assert module.count == 0


class Drops(torch.nn.Linear):
    def forward(self, observation):
        return torch.nn.functional.dropout(super().forward(observation), 0.5).argmax(-1)


@pytest.mark.long
def test_dropout_that_goes_on_is_refused(tmp_path):
    with pytest.raises(af.OptionError, match=r"it draws random numbers.*the weights alone"):
        export(CartPole(), tmp_path / "env.onnx", policy=Drops(4, 2))


def test_a_module_needs_onnxscript(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(af.BackendUnavailableError, match="pip install onnxscript"):
        export(CartPole(), tmp_path / "env.onnx", policy=Counts("not"))


def test_statistics_are_used_in_float64(tmp_path):
    """Observations whose mean no float32 tells from them."""
    far = 2.0**30

    class Far(CartPole):
        observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)

        def observe(self, xp, state, params):
            return xp.astype(super().observe(xp, state, params), xp.float64) + far

    env = wrap(Far(), kernels.NormalizeObservation(), kernels.NormalizeReward())
    moments = {"obs_rms": {"count": 9, "mean": [far] * 4, "var": [1.0] * 4}}
    moments["return_rms"] = {"count": 9, "mean": 1.0, "var": 4.0}
    path = str(tmp_path / "env.onnx")
    metadata = export(env, path, wrapper_state=moments)
    feed = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in metadata["inputs"]}
    names = ["observation", "state.position", "reward"]
    seen, position, reward = onnxruntime.InferenceSession(path).run(names, feed)
    np.testing.assert_allclose(seen[:, 0], position, atol=1e-7)
    assert reward == 0.5
