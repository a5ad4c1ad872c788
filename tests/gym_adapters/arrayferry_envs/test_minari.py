"""Data sets of Minari from trajectories."""

import sys
from types import SimpleNamespace

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from walks import Walk, check_walks, policy

import arrayferry as af
from arrayferry_envs import CartPole, Pendulum, rollout, to_minari


@pytest.fixture
def minari(monkeypatch, tmp_path):
    """Minari, whose datasets are in a folder of the test."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari")


def segments(env, how, *, num_steps, count, n=5, seed=0, **options):
    """Take rollouts that follow one another."""
    found, carry = [], None
    for key in jax.random.split(jax.random.key(seed), count):
        carry, steps = rollout(env, how, None, key, num_steps, n, carry=carry, **options)
        found.append(steps)
    return found


def randomly(params, observation, key):
    return jax.random.randint(key, observation.shape[:1], 0, 2), None


def expected(parts):
    """Return the episodes of CartPole that are whole, step by step."""
    whole = af.convert(jax.tree.map(lambda *x: jnp.concatenate(x), *parts), "numpy")
    found = []
    for row in range(whole.reward.shape[1]):
        steps = None
        for t in range(len(whole.reward)):
            if whole.began[t, row]:
                steps = []
            if steps is None:
                continue
            steps.append(t)
            if whole.terminated[t, row] or whole.truncated[t, row]:
                obs = [*whole.observation[steps, row], whole.final_observation[t, row]]
                rest = (x[steps, row] for x in whole[1:5])
                found.append((np.array(obs), *rest))
                steps = None
    return found


def same(episodes, wanted):
    """Tell whether episodes of a dataset are these, in some order."""
    names = "observations", "actions", "rewards", "terminations", "truncations"
    episodes = [tuple(getattr(each, name) for name in names) for each in episodes]
    for parts in (*episodes, *wanted):
        assert [len(x) - (i == 0) for i, x in enumerate(parts)] == [len(parts[1])] * 5
    key = lambda parts: parts[0][0].tolist()  # noqa: E731
    pairs = zip(sorted(episodes, key=key), sorted(wanted, key=key), strict=True)
    return all(
        x.dtype == y.dtype and np.array_equal(x, y)
        for one, two in pairs
        for x, y in zip(one, two, strict=True)
    )


@pytest.mark.parametrize(("num_steps", "count"), [(120, 1), (40, 3), (1, 120), (17, 7)])
def test_episodes_are_joined_and_read_back_equal(minari, num_steps, count):
    env = CartPole()
    parts = segments(env, randomly, num_steps=num_steps, count=count, max_episode_steps=25)
    stored = to_minari(iter(parts), "cart/random-v0", env=env, author="me")
    dataset = minari.load_dataset("cart/random-v0")
    assert same(dataset, expected(parts))
    ended = sum(int((x.terminated | x.truncated).sum()) for x in parts)
    assert len(dataset) == dataset.total_episodes == stored.episodes == ended > 20
    assert any(each.truncations[-1] for each in dataset)
    assert dataset.total_steps == stored.steps == stored.dataset.total_steps
    assert stored.steps + stored.steps_left_out == num_steps * count * 5
    assert stored.begun_before == 0
    assert stored.unfinished == 5 - int((parts[-1].terminated | parts[-1].truncated)[-1].sum())
    assert dataset.observation_space == env.observation_space
    assert dataset.action_space == env.action_space
    assert "EpisodeData" in repr(dataset[0])


def test_one_trajectory_of_any_library(minari):
    (steps,) = segments(CartPole(), randomly, num_steps=90, count=1)
    stored = to_minari(af.convert(steps, "torch"), "cart/torch-v0", env=gym.make("CartPole-v1"))
    assert same(stored.dataset, expected([steps]))
    fields = SimpleNamespace(**steps._asdict())
    stored = to_minari([fields], "cart/fields-v0", env=CartPole().make_vec(2, xp="torch"))
    assert same(minari.load_dataset("cart/fields-v0"), expected([steps]))


def test_trees_and_images(minari):
    parts = segments(Walk(), policy, num_steps=9, count=8)
    to_minari(parts, "walk-v0", env=Walk())
    dataset = minari.load_dataset("walk-v0")
    check_walks(dataset)
    assert dataset.observation_space == Walk.observation_space
    assert dataset[0].observations["image"].dtype == np.uint8
    assert type(dataset[0].observations["walk"]) is tuple


def test_what_is_left_out(minari):
    parts = segments(CartPole(), randomly, num_steps=7, count=20)
    late = parts[1:]
    stored = to_minari(late, "cart/late-v0", env=CartPole())
    assert same(stored.dataset, expected(late))
    before = int((~late[0].began[0]).sum())
    assert stored.begun_before == before > 0
    assert stored.unfinished == int((~(late[-1].terminated | late[-1].truncated)[-1]).sum())
    assert stored.steps + stored.steps_left_out == 19 * 7 * 5
    other = segments(CartPole(), randomly, num_steps=50, count=1, seed=1)
    cut = to_minari([*parts, *other], "cart/cut-v0", env=CartPole())  # as after a restart
    assert same(cut.dataset, [*expected(parts), *expected(other)])
    opened = sum(int((~(x[-1].terminated | x[-1].truncated)[-1]).sum()) for x in (parts, other))
    assert cut.unfinished == opened


def test_specs(minari):
    steps = segments(CartPole(), randomly, num_steps=90, count=1)
    batch = gym.make_vec("CartPole-v1", 3, vectorization_mode="sync", sutton_barto_reward=True)
    many = gym.make_vec("CartPole-v1", 3, max_episode_steps=77)
    for number, env in enumerate((gym.make("CartPole-v1"), batch, many)):
        made = to_minari(steps, f"cart/spec-v{number}", env=env).dataset.recover_environment()
        assert made.spec.id == "CartPole-v1"
        assert made.spec.max_episode_steps == (77 if env is many else 500)
    assert minari.load_dataset("cart/spec-v1").env_spec.kwargs == {"sutton_barto_reward": True}
    unknown = gym.make(gym.spec("CartPole-v1"), sutton_barto_reward=False)
    unknown.unwrapped.spec.kwargs["given"] = object()
    assert to_minari(steps, "cart/none-v0", env=unknown).dataset.env_spec is None


def test_what_is_refused(minari):
    env, parts = CartPole(), segments(CartPole(), randomly, num_steps=7, count=9)
    refused = [
        (parts[:1], "no episode is complete: 0 began before the first step, and 5 have no end"),
        ([], "no episode is complete"),
        ([*parts[:3], *parts[4:]], r"step \d of segment 3 does not continue the episode of env"),
        ([parts[0], parts[0]._replace(began=parts[1].began)], "does not continue"),
        (parts[0]._replace(final_observation=None), "segment 0 has no final_observation"),
        ([*parts, 5], "segment 9 has no observation: its type is int"),
        (5, "steps=5 is not a Trajectory"),
        (parts[0]._replace(action=parts[0].action[..., None]), "action of segment 0 has the shape"),
    ]
    for number, (steps, why) in enumerate(refused):
        with pytest.raises(af.OptionError, match=why):
            to_minari(steps, f"cart/wrong-v{number}", env=env)
    with pytest.raises(af.OptionError, match=r"observation of segment 0 has the shape \(7, 5, 4\)"):
        to_minari(parts, "cart/wrong-v99", env=Pendulum())
    with pytest.raises(af.OptionError, match=r"observation of segment 0 .* a dict with the keys"):
        to_minari(parts, "cart/wrong-v99", env=Walk())
    with pytest.raises(TypeError, match="env must be a FunctionalEnv or an environment"):
        to_minari(parts, "cart/wrong-v99", env="CartPole-v1")
    whole = to_minari(parts, "cart/once-v0", env=env)
    with pytest.raises(ValueError, match="already exists"):
        to_minari(parts, "cart/once-v0", env=env)
    assert minari.load_dataset("cart/once-v0").total_steps == whole.steps
    assert minari.load_dataset("cart/wrong-v5").total_episodes == whole.episodes
    assert [*minari.list_local_datasets()] == ["cart/once-v0", "cart/wrong-v2", "cart/wrong-v5"]


def test_without_minari(monkeypatch):
    for name in ("minari", "h5py", "PIL"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(
                af.BackendUnavailableError, match="to_minari needs Minari"
            ) as raised:
                to_minari([], "cart/random-v0", env=CartPole())
            assert raised.value.remedy == "Run: pip install minari h5py pillow"
