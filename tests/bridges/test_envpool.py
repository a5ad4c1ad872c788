"""EnvPool, by the suite: the same as its own trajectory, in each autoreset mode."""

import pickle

import envpool
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry.extending import map_arrays
from arrayferry_envs import evaluate, from_env, make, make_vec, suites
from arrayferry_gym import wrappers
from arrayferry_gym.sb3 import SB3VecEnv

pytestmark = pytest.mark.filterwarnings("ignore")

FAMILIES = {
    "Breakout-v5": {"max_episode_steps": 15}, "SpaceInvaders-v5": {"max_episode_steps": 20}, "CarRacing-v3": {"max_episode_steps": 8},
    "BipedalWalker-v3": {"max_episode_steps": 15}, "LunarLander-v3": {"max_episode_steps": 15}, "CartPole-v1": {}, "Acrobot-v1": {"max_episode_steps": 30},
    "MountainCar-v0": {"max_episode_steps": 20}, "gfootball/11_vs_11_easy_stochastic-v1": {"max_episode_steps": 8},
    "Highway-v0": {}, "BinPack-v2": {}, "Snake-v1": {}, "MiniGrid-Empty-5x5-v0": {"max_episode_steps": 12},
    "MiniGrid-DoorKey-6x6-v0": {"max_episode_steps": 12}, "AcrobotSwingup-v1": {"max_episode_steps": 10},
    "HopperHop-v1": {"max_episode_steps": 10}, "Hopper-v5": {}, "Ant-v4": {"max_episode_steps": 20},
    "MetaWorld/Assembly-v3": {"max_episode_steps": 10}, "MyoHandAirplaneFixed-v0": {"max_episode_steps": 10},
    "AlohaHandOver-v1": {"max_episode_steps": 10}, "FetchReach-v4": {"max_episode_steps": 10},
    "Catch-v0": {}, "FrozenLake-v1": {}, "Blackjack-v1": {},
}  # fmt: skip
"""An id of each family that installs, and options in which episodes end soon.

VizDoom (D1Basic-v1) is left out, since `envpool.make` itself sometimes hangs.
"""
N, STEPS = 4, 60


def own_trajectory(name, actions, **options):
    """Return the steps of each environment of EnvPool itself, without those whose action it ignores."""
    pool = envpool.make(name, env_type="gymnasium", num_envs=N, seed=7, **options)
    steps = [[] for _ in range(N)]
    observations, infos = pool.reset()
    over = np.zeros(N, bool)
    taken = [0] * N
    first = [map_arrays(lambda x, i=i: x[i].copy(), observations) for i in range(N)]
    while min(taken) < STEPS:
        batch = np.stack([actions[min(taken[i], STEPS - 1)][i] for i in range(N)])
        observations, rewards, terminated, truncated, infos = pool.step(batch)
        for i in range(N):
            seen = map_arrays(lambda x, i=i: x[i].copy(), observations)
            if over[i]:
                steps[i][-1].append(seen)  # the first observation of the next episode
            else:
                row = [seen, rewards[i], bool(terminated[i]), bool(truncated[i])]
                steps[i].append([*row, infos["elapsed_step"][i]])
                taken[i] += 1
        over = terminated | truncated
    return first, steps


def same(ours, theirs):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, x in theirs.items():
            same(ours[key], x)
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", FAMILIES)
def test_same_step_is_its_own_trajectory(name):
    options = FAMILIES[name]
    envs = make_vec(f"envpool/{name}", N, autoreset_mode="SameStep", seed=7, **options)
    envs.action_space.seed(3)
    actions = [envs.action_space.sample() for _ in range(STEPS)]
    first, steps = own_trajectory(name, actions, **options)
    observations, _ = envs.reset()
    for i in range(N):
        same(map_arrays(lambda x, i=i: x[i], observations), first[i])
    ends = 0
    for t in range(STEPS):
        observations, rewards, terminated, truncated, infos = envs.step(actions[t])
        assert (infos["_final_obs"] == terminated | truncated).all()
        last = infos["final_obs"]
        for i in range(N):
            seen, reward, *flags, elapsed = steps[i][t][:5]
            same(map_arrays(lambda x, i=i: x[i], last), seen)
            assert rewards[i] == reward
            assert [terminated[i], truncated[i]] == flags
            after = map_arrays(lambda x, i=i: x[i], observations)
            if any(flags):
                ends += 1
                assert infos["final_info"]["elapsed_step"][i] == elapsed
                if len(steps[i][t]) > 5:
                    same(after, steps[i][t][5])
            else:
                same(after, seen)
    assert ends >= N
    assert envs.observation_space.contains(observations)
    envs.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_lives_are_episodes_of_one_game(mode):
    """`reset` of EnvPool would begin a new game with each life."""
    envs = make_vec(
        "envpool/Breakout-v5",
        2,
        autoreset_mode=mode,
        episodic_life=True,
        seed=1,
        use_fire_reset=True,
    )
    envs.reset()
    envs.action_space.seed(1)
    lives, seen = [[], []], 0
    while seen < 3000 and min(map(len, lives)) < 6:
        *_, terminated, truncated, infos = envs.step(envs.action_space.sample())
        last = infos.get("final_info", infos)
        for i in np.flatnonzero(terminated | truncated):
            lives[i].append(int(last["lives"][i]))
        seen += 1
    for each in lives:
        assert each[:6] == [4, 3, 2, 1, 0, 4]
    with pytest.raises(af.OptionError, match="ends episodes with each life"):
        make_vec("envpool/Breakout-v5", 2, autoreset_mode="Disabled", episodic_life=True)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1"])
def test_classic_control_is_that_of_gymnasium(name):
    envs = make_vec(f"envpool/{name}", 3, autoreset_mode="Disabled", max_episode_steps=40)
    theirs = [gym.make(name, max_episode_steps=40) for _ in range(3)]
    observations, _ = envs.reset(seed=5)
    envs.action_space.seed(2)
    for row, env in zip(observations, theirs, strict=True):
        env.reset()
        put_state(env.unwrapped, name, row)
    for _ in range(40):
        actions = envs.action_space.sample()
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        for i, env in enumerate(theirs):
            seen, reward, *flags, _ = env.step(actions[i])
            np.testing.assert_allclose(observations[i], seen, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(rewards[i], reward, rtol=1e-5, atol=1e-5)
            assert [terminated[i], truncated[i]] == flags
        if (terminated | truncated).any():
            break


def put_state(env, name, row):
    row = np.asarray(row, np.float64)
    if name == "Pendulum-v1":
        row = np.array([np.arctan2(row[1], row[0]), row[2]])
    elif name == "Acrobot-v1":
        row = np.array([np.arctan2(row[1], row[0]), np.arctan2(row[3], row[2]), row[4], row[5]])
    env.state = row


def test_disabled_rows_wait_for_their_reset():
    envs = make_vec("envpool/CartPole-v1", 3, autoreset_mode="Disabled", seed=3)
    observations, _ = envs.reset()
    over = np.zeros(3, bool)
    while not over.all():
        before = observations.copy(), over.copy()
        observations, rewards, terminated, truncated, infos = envs.step([1, 0, 1])
        np.testing.assert_array_equal(observations[before[1]], before[0][before[1]])
        assert (rewards[before[1]] == 0).all()
        assert (rewards[~before[1]] == 1).all()
        assert (terminated | truncated)[before[1]].all()
        over = terminated | truncated
    kept = observations.copy()
    mask = np.array([True, False, True])
    observations, infos = envs.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(observations[1], kept[1])
    assert (np.abs(observations[mask]) <= 0.05).all()
    assert infos["elapsed_step"].tolist()[::2] == [0, 0]
    observations[:] = 7  # what was returned is the caller's own
    after, rewards, terminated, *_ = envs.step([0, 0, 0])
    assert terminated.tolist() == [False, True, False]
    assert rewards.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(after[1], kept[1])


def test_seeds_make_it_anew():
    envs = make_vec("envpool/CartPole-v1", 3, xp="torch")
    first = envs.reset(seed=4)[0]
    assert (envs.reset()[0] != first).any()
    assert (envs.reset(seed=4)[0] == first).all()
    assert (envs.reset(seed=[4, 9, 6])[0][0] == first[0]).all()
    own = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=4)
    np.testing.assert_array_equal(first, own.reset()[0])
    others = make_vec("envpool/CartPole-v1", 3), make_vec("envpool/CartPole-v1", 3)
    assert (others[0].reset()[0] != others[1].reset()[0]).any()
    for seed in (2**31 - 1, [1, None, 2]):
        with pytest.raises(af.OptionError, match="refuses seed="):
            envs.reset(seed=seed)
    assert (envs.reset(seed=4)[0] == first).all()


def test_what_it_cannot_do_is_told():
    with pytest.raises(af.OptionError, match="only some of its environments"):
        make_vec("envpool/CartPole-v1", 4, batch_size=2)
    with pytest.raises(af.OptionError, match="several players"):
        make_vec("envpool/Go9x9-v1", 3)
    with pytest.raises(af.OptionError, match='env_type="gymnasium"'):
        from_env(envpool.make("CartPole-v1", env_type="dm"))
    envs = make_vec("envpool/CartPole-v1", 2)
    with pytest.raises(gym.error.ResetNeeded):
        envs.step([0, 1])
    envs.reset()
    with pytest.raises(af.ConversionError):
        envs.step([0, 5])
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(envs)
    with pytest.raises(af.OptionError, match="only in DISABLED mode"):
        envs.reset(options={"reset_mask": [True, False]})
    with pytest.raises(LookupError, match="Did you mean 'envpool/CartPole-v1'"):
        make_vec("envpool/CartPol-v1")
    assert suites()["envpool"].seeds == "construction"


def test_a_batch_that_somebody_made():
    own = envpool.make("FrozenLake-v1", env_type="gymnasium", num_envs=2, seed=2)
    envs = from_env(own, autoreset_mode="SameStep")
    observations, _ = envs.reset()
    assert observations.dtype == np.int64
    assert envs.autoreset_mode is AutoresetMode.SAME_STEP
    own = envpool.make("HopperHop-v1", env_type="gymnasium", num_envs=2, seed=2)
    envs = from_env(own)
    observations, _ = envs.reset()
    assert envs.observation_space.contains(observations)


def test_single_environments_and_lives():
    env = make("envpool/Breakout-v5", xp="torch", episodic_life=True, seed=1)
    env.action_space.seed(1)
    lives = []
    for _ in range(5):
        observation, info = env.reset()
        over = False
        while not over:
            observation, reward, *flags, info = env.step(env.action_space.sample())
            over = any(flags)
        lives.append(int(info["lives"]))
        with pytest.raises(gym.error.ResetNeeded):
            env.step(1)
    assert lives == [4, 3, 2, 1, 0]
    assert observation.shape == (4, 84, 84)
    assert type(reward) is float


def falls(params, observation, key):
    return (observation[:, 2] > 0).astype(int), {}


def test_wrappers_bridges_and_evaluation():
    made = make_vec("envpool/CartPole-v1", 4, xp="torch", autoreset_mode="SameStep", seed=1)
    envs = wrappers.vector.NormalizeObservation(wrappers.vector.RecordEpisodeStatistics(made))
    envs.reset(seed=1)
    lengths = []
    for _ in range(200):
        *_, infos = envs.step(envs.action_space.sample())
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    assert 10 < np.mean(lengths) < 40
    vec = SB3VecEnv(make_vec("envpool/CartPole-v1", 4, autoreset_mode="SameStep", seed=1))
    vec.reset()
    for _ in range(60):
        _, _, dones, infos = vec.step(np.ones(4, int))
        for done, info in zip(dones, infos, strict=True):
            assert done == ("terminal_observation" in info)
    for mode in ("NextStep", "SameStep", "Disabled"):
        envs = make_vec("envpool/CartPole-v1", 4, autoreset_mode=mode)
        found = evaluate(envs, falls, policy_xp="numpy", episodes=2, key=3)
        assert found.lengths.shape == (4, 2)
        assert (found.lengths > 20).all()


@pytest.mark.long
def test_ppo_learns_cartpole():
    from stable_baselines3 import PPO

    envs = SB3VecEnv(make_vec("envpool/CartPole-v1", 8, autoreset_mode="SameStep", seed=1))
    agent = PPO(
        "MlpPolicy", envs, n_steps=32, batch_size=256, n_epochs=20, gae_lambda=0.8, gamma=0.98,
        ent_coef=0.0, learning_rate=lambda left: left * 1e-3, clip_range=lambda left: left * 0.2, seed=1,
    )  # fmt: skip
    agent.learn(100_000)
    test = SB3VecEnv(make_vec("envpool/CartPole-v1", 8, autoreset_mode="SameStep", seed=77))
    observations, returns, running = test.reset(), [], np.zeros(8)
    while len(returns) < 16:
        observations, rewards, dones, _ = test.step(
            agent.predict(observations, deterministic=True)[0]
        )
        running += rewards
        returns += running[dones].tolist()
        running[dones] = 0
    assert np.mean(returns) >= 475


def test_other_bridges():
    from arrayferry_gym.tianshou import TianshouVectorEnv
    from arrayferry_gym.torchrl import TorchRLEnv
    from arrayferry_gym.vector import ArrayConversion

    made = [
        make_vec("envpool/CartPole-v1", 4, xp=xp, autoreset_mode="SameStep", seed=1)
        for xp in ("torch", "numpy")
    ]
    data = TorchRLEnv(made[0]).rollout(40, break_when_any_done=False)
    assert data["next", "observation"].shape == (4, 40, 4)
    ended = data["next", "done"][..., 0]
    assert ended.any()
    assert (data["next", "observation"][ended].abs() > 0.05).any(1).all()
    envs = TianshouVectorEnv(made[1])
    envs.reset()
    for _ in range(30):
        observations, _, terminated, truncated, _ = envs.step(np.ones(4, int))
        for i in np.flatnonzero(terminated | truncated):
            assert (np.abs(observations[i]) > 0.05).any()
            envs.reset([i])
    pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=2, seed=3)
    envs = ArrayConversion(
        from_env(pool, autoreset_mode="SameStep"), target_xp="torch", stack_final=True
    )
    envs.reset()
    assert envs.step([0, 1])[4]["final_obs"].shape == (2, 4)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_after_a_step_that_failed_a_reset_is_needed(mode, monkeypatch):
    envs = make_vec("envpool/CartPole-v1", 2, autoreset_mode=mode, seed=1)
    envs.reset()
    inner = envs.unwrapped

    def interrupted(actions, ids):
        pool.send(actions, ids)  # whose results are never received
        raise KeyboardInterrupt

    pool = inner._pool
    monkeypatch.setattr(pool, "step", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        envs.step([0, 1])
    with pytest.raises(gym.error.ResetNeeded):
        envs.step([0, 1])
    observations, infos = envs.reset()
    assert (np.abs(observations) <= 0.05).all()
    assert infos["elapsed_step"].tolist() == [0, 0]
    assert envs.step([0, 1])[4]["elapsed_step"].tolist() == [1, 1]
