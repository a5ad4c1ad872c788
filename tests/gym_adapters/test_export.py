"""`export`: environments as ONNX files, which step as they do in NumPy with the same random numbers."""

from __future__ import annotations

import json

import array_api_compat.numpy as xp
import numpy as np
import pytest

import arrayferry as af
from arrayferry_gym import functional
from arrayferry_gym.functional import CartPole, FunctionalEnv, export, wrap
from arrayferry_gym.wrappers import kernels

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

CLASSIC = ("Acrobot", "CartPole", "MountainCar", "MountainCarContinuous", "Pendulum")
TABULAR = ("Blackjack", "CliffWalking", "FrozenLake", "Taxi")


class Fed(af.Random):
    """Random numbers of NumPy from raw ones, by the formulas of files."""

    def __init__(self, raw):
        self.raw = list(raw)

    def uniform(self, shape, low=0.0, high=1.0, dtype="float32"):
        u = self.raw.pop(0).astype(dtype)
        assert u.shape == tuple(shape)
        return (low + u * (high - low)).astype(dtype)

    def normal(self, shape, mean=0.0, std=1.0, dtype="float32"):
        return (mean + self.raw.pop(0).astype(dtype) * std).astype(dtype)

    def integers(self, shape, low, high, dtype="int32"):
        u = self.raw.pop(0).astype(np.float64)
        low, high = np.float64(low), np.float64(high)
        return np.minimum(np.floor(low + u * (high - low)), high - 1).astype(dtype)

    def categorical(self, shape, logits, dtype="int32"):
        waits = -np.log1p(-self.raw.pop(0).astype(np.float64)) + 1e-300
        return (np.float64(logits) - np.log(waits)).argmax(-1).astype(dtype)


class File:
    """A file at work.

    Attributes:
        metadata: its metadata.
        rng: makes raw random numbers.
        raw: those of the last run, by the names of inputs.
    """

    def __init__(self, env, tmp_path, **options):
        path = str(tmp_path / "env.onnx")
        export(env, path, **options)
        self.session = onnxruntime.InferenceSession(path)
        self.metadata = json.loads(self.session.get_modelmeta().custom_metadata_map["arrayferry"])
        self.rng = np.random.default_rng(1)
        self.feed = {
            x["name"]: np.zeros(x["shape"], x["dtype"]) for x in self.metadata["inputs"]
        }
        for name in self.feed.keys() & self.metadata["params"].keys():
            self.feed[name] = np.asarray(self.metadata["params"][name], np.float32)

    def run(self, reset=False, **given):
        """Run the graph, and return its outputs by name. The next run continues from there."""
        draws = {"uniform": self.rng.random, "normal": self.rng.standard_normal}
        self.raw = {
            x["name"]: draws[x["random"]](x["shape"]).astype(np.float32)
            for x in self.metadata["inputs"]
            if "random" in x
        }
        n = self.metadata["num_envs"]
        self.feed |= {**self.raw, **given, "reset": np.broadcast_to(reset, (n,)).copy()}
        names = [x.name for x in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(names, self.feed), strict=True))
        self.feed |= {f"last.{k}": x for k, x in outputs.items() if f"last.{k}" in self.feed}
        return outputs

    def fed(self, use):
        return Fed(x for name, x in self.raw.items() if name.startswith(f"random.{use}."))


def states_of(file, layout):
    """The states that a file hands on, as the environment has them in NumPy."""
    return layout.unflatten([x for name, x in file.feed.items() if name.startswith("last.state")])


def check_steps(env, tmp_path, steps, n, exact):
    """Compare single steps, each from NumPy's own states."""
    file, rng = File(env, tmp_path, num_envs=n), np.random.default_rng(2)
    params, space = env.default_params, env.action_space
    result = file.run(reset=True)
    layout = af.flatten(env.reset(xp, Fed(list(file.raw.values())), n, params))[1]
    tolerance = {} if exact else {"rtol": 2e-5, "atol": 2e-5}
    for _ in range(steps):
        state = states_of(file, layout)
        begins = rng.random(n) < 0.02
        begins |= file.feed["last.ended"]
        if space.shape:
            action = rng.uniform(space.low, space.high, (n, *space.shape)).astype(space.dtype)
        else:
            action = rng.integers(0, space.n, n)
        taken = file.feed["last.elapsed"] + 1
        result = file.run(reset=begins, action=action)
        after, reward, terminated = env.step(xp, file.fed("step"), state, action, params)
        fresh = env.reset(xp, file.fed("reset"), n, params)
        leaves = [
            np.where(np.reshape(begins, (n, *(1,) * (x.ndim - 1))), x, y)
            for x, y in zip(af.flatten(fresh)[0], af.flatten(after)[0], strict=True)
        ]
        for got, wanted in zip(af.flatten(states_of(file, layout))[0], leaves, strict=True):
            np.testing.assert_allclose(got, wanted, **tolerance)
        seen = env.observe(xp, layout.unflatten(leaves), params)
        if isinstance(seen, np.ndarray):
            np.testing.assert_allclose(result["observation"], seen, **tolerance)
        np.testing.assert_allclose(result["reward"], np.where(begins, 0, reward), **tolerance)
        assert np.array_equal(result["terminated"], np.asarray(terminated) & ~begins)
        limit = env.max_episode_steps
        late = np.zeros(n, bool) if limit is None else taken >= limit
        assert np.array_equal(result["truncated"], late & ~begins)
        # the next step is from NumPy's own states
        names = [name for name in file.feed if name.startswith("last.state")]
        file.feed |= {name: x.astype(file.feed[name].dtype) for name, x in zip(names, leaves, strict=True)}


@pytest.mark.parametrize("name", [*CLASSIC, *TABULAR])
def test_files_step_as_numpy(name, tmp_path):
    check_steps(getattr(functional, name)(), tmp_path, 60, 32, exact=name in TABULAR)
