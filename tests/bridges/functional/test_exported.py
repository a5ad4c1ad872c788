"""Functional environments of other libraries in ONNX files: steps are those of JAX, run by onnxruntime. `make bridges`."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

import arrayferry as af
from arrayferry_envs import export, make_functional
from arrayferry_gym import make_rng

pytestmark = pytest.mark.filterwarnings("ignore")

SHORT = ["gymnax/Breakout-MinAtar", "pgx/tic_tac_toe"]
LONG = [
    "gymnax/Acrobot-v1", "gymnax/Asterix-MinAtar", "gymnax/CartPole-v1", "gymnax/Catch-bsuite",
    "gymnax/FourRooms-misc", "gymnax/Freeway-MinAtar", "gymnax/MountainCar-v0", "gymnax/MountainCarContinuous-v0",
    "gymnax/Pendulum-v1", "gymnax/Seaquest-MinAtar", "gymnax/SpaceInvaders-MinAtar", "pgx/2048", "pgx/backgammon",
    "pgx/chess", "pgx/connect_four", "pgx/go_9x9", *SHORT,
]  # fmt: skip
COUNT = 2


class File:
    """An exported environment, and what JAX computes for the same inputs."""

    def __init__(self, env_id, tmp_path, **options):
        self.env = env = make_functional(env_id)
        self.metadata = export(env, tmp_path / "env.onnx", num_envs=COUNT, **options)
        self.session = onnxruntime.InferenceSession(tmp_path / "env.onnx")
        self.names = [x.name for x in self.session.get_outputs()]
        self.params = env.default_params
        self.expected = jax.jit(self._expected)
        self.feed = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in self.metadata["inputs"]}

    def _expected(self, key, reset, leaves, action):
        """Return the results of a run, computed by JAX."""
        env, params = self.env, self.params
        following, step, fresh = jax.random.split(jax.random.wrap_key_data(key), 3)
        begun, layout = af.flatten(env.reset(jnp, make_rng("jax", fresh), COUNT, params))

        def chosen(others):
            pairs = zip(begun, others, strict=True)
            rows = [jnp.where(reset.reshape(-1, *[1] * (x.ndim - 1)), x, y) for x, y in pairs]
            return layout.unflatten(rows)

        state = chosen(leaves)
        state, reward, terminated, *_ = env.step(jnp, make_rng("jax", step), state, action, params)
        state = chosen(af.flatten(state)[0])
        seen = env.observe(jnp, state, params)
        results = {"reward": jnp.where(reset, 0, reward), "terminated": terminated & ~reset}
        seen = (
            {f"observation.{k}": x for k, x in seen.items()}
            if isinstance(seen, dict)
            else {"observation": seen}
        )
        states = {f"state.leaves.{n}": x for n, x in enumerate(state.leaves)}
        return results | seen | states | {"key": jax.random.key_data(following)}

    def run(self, action=None, **given):
        """Run the file and JAX for the same inputs, compare them, and hand on the results of JAX."""
        self.feed |= {name: np.asarray(x) for name, x in given.items()}
        if action is not None:
            self.feed["action"] = action
        made = dict(zip(self.names, self.session.run(None, self.feed), strict=True))
        states = [self.feed[name] for name in self.feed if name.startswith("last.state.")]
        acted = self.feed["action"].astype(
            np.int32 if self.feed["action"].dtype.kind == "i" else np.float32
        )
        expected = self.expected(self.feed["last.key"], self.feed["reset"], states, acted)
        expected = {name: np.asarray(x) for name, x in expected.items()}
        for name, x in expected.items():
            assert x.shape == made[name].shape, name
            # where observations are cast to their space
            close = {"rtol": 1e-5, "atol": 1e-6} if x.dtype.kind == "f" else {"rtol": 0}
            np.testing.assert_allclose(made[name], x, err_msg=name, **close)
        for name in self.feed:
            if name.startswith("last."):
                self.feed[name] = expected.get(name[5:], made[name[5:]])
        self.feed["reset"] = made["terminated"] | made["truncated"]
        return made


def follow(file, steps):
    """Take steps with allowed actions at random, and return how many episodes have ended."""
    rng, space, ended = np.random.default_rng(0), file.env.action_space, 0
    space.seed(0)
    made = file.run(reset=np.ones(COUNT, bool), **{"last.key": np.array([0, 7], np.uint32)})
    for _ in range(steps):
        mask = made.get("observation.action_mask")
        if mask is None:
            action = np.stack([space.sample() for _ in range(COUNT)])
        else:
            action = np.where(mask, rng.random(mask.shape), -1).argmax(1)
        made = file.run(action.astype(file.feed["action"].dtype))
        ended += int((made["terminated"] | made["truncated"]).sum())
    return ended


@pytest.mark.parametrize("env_id", SHORT)
def test_steps_are_those_of_jax(env_id, tmp_path):
    assert follow(File(env_id, tmp_path), 100)


@pytest.mark.long
@pytest.mark.parametrize("env_id", LONG)
def test_a_thousand_steps_are_those_of_jax(env_id, tmp_path):
    follow(File(env_id, tmp_path), 1000)
