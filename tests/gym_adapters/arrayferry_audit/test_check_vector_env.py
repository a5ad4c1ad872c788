"""The audit of vector environments: what is right passes, and each fault is found, by what is returned alone."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from cases import crossed, quick_if
from envs import EVERY_MODE, in_mode
from functional_envs import LIBRARIES, Count
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper

import arrayferry as af
import arrayferry_envs
from arrayferry_audit import check_vector_env
from arrayferry_audit.pytest import NAMES
from arrayferry_gym import vector
from arrayferry_gym.wrappers import vector as wrappers

NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


def each(make, mode=NEXT):
    return in_mode([make] * 3, mode)


def sync(mode, name="CartPole-v1", **options):
    return each(lambda: gym.make(name, **options), mode)


def counts(mode, **options):
    """Count steps, the observation and the info: they terminate after 4, or are truncated after 3."""
    params = {"end": np.array([4, 9, 5], np.float32), "stop": np.array([9, 3, 9], np.float32)}
    return Count().make_vec(3, autoreset_mode=mode, params=params, **options)


def own(xp):
    return lambda mode: arrayferry_envs.CartPole().make_vec(3, autoreset_mode=mode, **LIBRARIES[xp])


class Catch(gym.Env):
    """The ball falls for 5 steps, and all episodes have this length. The last row ends them, and is seen."""

    observation_space = gym.spaces.Box(0, 1, (6, 3), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ball, self.paddle, self.row = *self.np_random.integers(3, size=2), 0
        return self.board(), {}

    def step(self, action):
        self.paddle, self.row = np.clip(self.paddle + action - 1, 0, 2), self.row + 1
        return self.board(), float(self.ball == self.paddle), self.row == 5, False, {}

    def board(self):
        board = np.zeros((6, 3), np.float32)
        board[self.row, self.ball], board[5, self.paddle] = 1, 1
        return board


class BestOf(Catch):
    """Episodes of 3 to 5 rounds, until a side has won 3. Only the last round is seen."""

    observation_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        gym.Env.reset(self, seed=seed)
        self.won = [0, 0]
        return 0, {}

    def step(self, action):
        won = int(self.np_random.integers(2))
        self.won[won] += 1
        return won, float(won), 3 in self.won, False, {}


class Price(gym.Env):
    """A price that one may sell at: action 1 ends the episode, and changes nothing, or leaves zeros."""

    observation_space = gym.spaces.Box(-100, 100, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, zeros=False):
        self.zeros = zeros

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 5 + self.np_random.random(2, np.float32)
        return self.at.copy(), {"legal": 2}

    def step(self, action):
        if action == 1:
            return self.at * (not self.zeros), float(self.at[0]), True, False, {}
        self.at = self.at + self.np_random.random(2, np.float32)
        return self.at.copy(), 0.0, False, False, {"legal": 2}


class Reserved(Price):
    """A price that one may sell at later. Before, action 1 changes it as action 0 does."""

    def step(self, action):
        return super().step(action if self.at[0] > 8 else 0)


class Corridor(gym.Env):
    """A table of 7 places. Walls end the episode, at the place before."""

    observation_space = gym.spaces.Discrete(7)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(1, 6))
        return self.at, {}

    def step(self, action):
        at = self.at + 2 * int(action) - 1
        over = not 0 <= at <= 6
        self.at = self.at if over else at
        return self.at, 1.0, over, False, {}


class Left(gym.Wrapper):
    """The reward is the share of the time that is left."""

    def step(self, action):
        observation, _, *rest = self.env.step(action)
        share = 1 - self.get_wrapper_attr("_elapsed_steps") / 9
        return observation, share, *rest


class Rolls(Catch):
    """Up to five rolls of a die, whose count is seen. A 6 ends the game."""

    observation_space = gym.spaces.Box(0, 6, (2,), np.float32)

    def board(self):
        return np.float32([self.row and self.face, self.row])

    def step(self, action):
        self.row, self.face = self.row + 1, self.np_random.integers(1, 7)
        return self.board(), 1.0, self.row == 5 or self.face == 6, False, {}


def timed(limit=12):
    return gym.wrappers.TimeAwareObservation(gym.make("CartPole-v1", max_episode_steps=limit))


def old_infos(envs, results):
    """Last infos are an array of dicts, as older versions of Gymnasium returned them."""
    if "final_info" in results[4]:
        results[4]["final_info"] = np.array([{"episode": {"l": 1}}] * 3, object)
        results[4]["_final_info"] = results[4]["_final_obs"]


RIGHT = {
    "Catch": lambda mode: each(Catch, mode),
    "the best of 5": lambda mode: each(BestOf, mode),
    "CartPole": sync,
    "Pendulum": lambda mode: sync(mode, "Pendulum-v1", max_episode_steps=20),
    "Blackjack": lambda mode: sync(mode, "Blackjack-v1"),
    "FrozenLake": lambda mode: sync(mode, "FrozenLake-v1"),
    "in processes": lambda mode: AsyncVectorEnv(
        [lambda: gym.make("CartPole-v1")] * 2, context="spawn", autoreset_mode=mode
    ),
    "for torch": lambda mode: vector.ArrayConversion(sync(mode), target_xp="torch"),
    "wrapped": lambda mode: wrappers.RecordEpisodeStatistics(sync(mode)),
    "counts": counts,
    "with the time": lambda mode: each(timed, mode),
    **{xp: own(xp) for xp in LIBRARIES},
    "a price": lambda mode: each(Price, mode),
    "a price that ends in zeros": lambda mode: each(lambda: Price(zeros=True), mode),
    "a price for later": lambda mode: each(Reserved, mode),
    "a corridor": lambda mode: each(Corridor, mode),
    "the time left": lambda mode: each(
        lambda: Left(gym.make("CartPole-v1", max_episode_steps=9)), mode
    ),
    "five rolls": lambda mode: each(Rolls, mode),
    "old infos": lambda mode: Changed(sync(mode), old_infos),
}


@pytest.mark.parametrize(("name", "mode"), crossed(RIGHT, EVERY_MODE))
def test_what_is_right_passes(name, mode):
    assert check_vector_env(lambda: RIGHT[name](mode), steps=60) == []


class Changed(VectorWrapper):
    """Vector environments whose results are changed by a function, which also gets what was observed before."""

    def __init__(self, envs, step=None, reset=None, mode=None):
        super().__init__(envs)
        self.metadata = {"autoreset_mode": mode or envs.metadata["autoreset_mode"]}
        self.change, self.change_reset = step, reset

    def reset(self, *, seed=None, options=None):
        self.kept = {}
        change = self.change_reset or type(self.env).reset
        self.last, infos = change(self.env, seed=seed, options=options)
        return self.last.copy(), infos

    def step(self, actions):
        self.actions, self.before = actions, self.last
        results = list(self.env.step(actions))
        self.last = results[0].copy()
        if self.change is not None:
            self.change(self, results)
        return tuple(results)


def of(index, change):
    """Return a change of one part of the results."""

    def changed(envs, results):
        results[index] = change(results[index])

    return changed


def final(change):
    """Return a change of the last observations."""

    def changed(envs, results):
        if "final_obs" in results[4]:
            results[4]["final_obs"] = change(envs, results)

    return changed


def scaled(factor):
    """Return a change of the last observations to other units."""
    return final(
        lambda _, results: np.array(
            [x if x is None else x * np.float32(factor) for x in results[4]["final_obs"]]
        )
    )


def infos(change):
    return lambda envs, results: change(results[4])


def lost(given):
    for key in [key for key in given if "final" in key]:
        given.pop(key)


def info_of_next(given):
    if "final_info" in given:
        given["final_info"]["twice"] = given["twice"]


def late_info(given):
    ended = given.get("_final_obs", np.zeros(3, bool))
    if ended.any():
        given["twice"] = np.where(ended, given["final_info"]["twice"], given["twice"])


def limit(envs, results):
    results[2], results[3] = results[2] | results[3], np.zeros(3, bool)


def buffered(envs, results):
    buffer = envs.kept.setdefault("rewards", np.zeros(3))
    buffer[:] = results[1]
    results[1] = buffer


def buffered_info(envs, results):
    results[4]["twice"] = buffer = envs.kept.setdefault("twice", np.zeros(3, np.float32))
    buffer += 1


def neighbours(envs, results):
    results[1] = results[1] + np.roll(envs.actions, 1)


def stands_still(envs, results):
    """What others do in a step that resets one is lost, as in an update of the state before the step."""
    ended = results[2] | results[3]
    if ended.any():
        results[0][~ended] = envs.before[~ended]


def remembers(envs, results):
    results[1] = results[1] + envs.kept.get("actions", 0)
    envs.kept["actions"] = envs.actions


def first_action(envs, results):
    results[1] = results[1] + envs.actions[0]


def statistics(key, late=False):
    """Return a change of infos: sums that go on after an end, or that are told one step late."""

    def changed(envs, results):
        ended, before = results[2] | results[3], envs.kept.get("sums", np.zeros(3))
        sums = before + results[1]  # each reward is 1, that of a reset is 0
        envs.kept["sums"] = np.where(ended & late, 0, sums)
        told = np.where(ended, before if late else sums, 0)
        infos = {"episode": {key: told}, "_episode": ended}
        if envs.metadata["autoreset_mode"] is NEXT:
            results[4] = infos
        elif ended.any():
            results[4]["final_info"] = infos

    return changed


def no_last_reward(envs, results):
    results[1] = results[1] * ~results[3]


class Stacked(gym.wrappers.FrameStackObservation):
    """A stack that an automatic reset does not clear."""

    def reset(self, *, seed=None, options=None):
        old = [*self.obs_queue]
        observation, infos = super().reset(seed=seed, options=options)
        if seed is None and old and options is None:
            self.obs_queue.extend([old[-1], self.obs_queue[-1]])
            observation = np.stack(self.obs_queue)
        return observation, infos


def marked(envs, seed, options):
    """A reset that has options, by which it differs from an automatic one."""
    return envs.reset(seed=seed, options=options or {})


def both_flags(envs, results):
    results[2] = results[2] | results[3]


class LateLimit(gym.wrappers.TimeLimit):
    """An automatic reset after a termination does not count the steps anew."""

    def reset(self, *, seed=None, options=None):
        before = self._elapsed_steps or 0
        results = super().reset(seed=seed, options=options)
        self._elapsed_steps = before % 14 if options is None else 0
        return results


class LateTime(gym.wrappers.TimeAwareObservation):
    """The time goes on after automatic resets."""

    def reset(self, *, seed=None, options=None):
        observation, infos = self.env.reset(seed=seed, options=options)
        self.timesteps = self.timesteps + 1 if options is None else 0
        return self.observation(observation), infos


def late_flags(envs, results):
    """Each end is told one step late, with the last observation."""
    now = {part: results[part] for part in (2, 3)} | {4: dict(results[4])}
    before = envs.kept.get("late", {2: now[2] & False, 3: now[3] & False, 4: {}})
    results[2], results[3], results[4] = before[2], before[3], before[4]
    envs.kept["late"] = now


def all_at_once(envs, results):
    """Where one environment is reset, all are: in the step that ends the episode, or in the next."""
    ended, over = results[2] | results[3], envs.kept.pop("over", False)
    if over or ended.any():
        begun = envs.env.reset(options={"reset_mask": np.ones(3, bool)})[0]
    if over:
        results[:] = begun, np.zeros(3), *np.zeros((2, 3), bool), {}
    elif envs.metadata["autoreset_mode"] is NEXT:
        envs.kept["over"] = ended.any()
    elif ended.any():
        results[0], results[4] = begun, {"final_obs": results[0], "_final_obs": ended}


def all_alike(envs, seed, options):
    return envs.reset(seed=[seed] * 3 if seed is not None else None, options=options)


def without_seed(envs, seed, options):
    return envs.reset(options=options)


def first_seed(envs, seed, options):
    return envs.reset(seed=0, options=options)


def masked(envs, seed, options):
    observation, infos = envs.reset(seed=seed, options=options)
    return observation + np.float32(options is not None), infos


class AlwaysTheFirst(gym.Wrapper):
    """Later episodes begin as the first did."""

    def reset(self, *, seed=None, options=None):
        self.seed = seed if seed is not None else self.seed
        return self.env.reset(seed=self.seed)


def single(mode):
    envs = sync(mode)
    envs.observation_space = envs.single_observation_space
    return envs


class Swapped(VectorWrapper):
    """The actions of environments 1 and 2 are swapped."""

    def step(self, actions):
        return self.env.step(actions[[0, 2, 1, *range(3, len(actions))]])


class Batch(VectorWrapper):
    """The info is memory that the next step reads."""

    def reset(self, **options):
        results, self.sums = self.env.reset(**options), np.zeros(3)
        return results[0], {"sums": self.sums, "_sums": np.ones(3, bool)}

    def step(self, actions):
        observation, reward, *flags, infos = self.env.step(actions)
        self.sums = reward + self.sums
        infos = {**infos, "sums": self.sums, "_sums": np.ones(3, bool)}
        return observation, self.sums.copy(), *flags, infos


PLACE = np.arange(12).reshape(3, 4) == 4
OF_NEXT = final(lambda _, results: results[0].copy())
WRONG = {
    "observations in double": (lambda: Changed(sync(SAME), of(0, np.float64)), "is float64 of shape"),
    "NaN": (lambda: Changed(sync(SAME), of(0, lambda x: np.where(PLACE, np.nan, x))), "environment 1, step 1: the observation is NaN"),
    "flags are numbers": (lambda: Changed(sync(SAME), of(2, lambda x: x.astype(int))), "terminated is of dtype int64"),
    "no masks": (lambda: Changed(sync(SAME), infos(lambda given: given.update(k=np.ones(3)))), "the info 'k' has no mask"),
    "no batch": (lambda: single(SAME), r"observation_space is not batch_space\(single_observation_space, 3\)"),
    "lost": (lambda: Changed(sync(SAME), infos(lost)), "the last observation is lost"),
    "of the next": (lambda: Changed(sync(SAME), OF_NEXT), "final_obs is the observation that is returned"),
    "the one before": (lambda: Changed(sync(SAME), final(lambda envs, _: envs.before)), "final_obs is the observation before"),
    "info of the next": (lambda: Changed(counts(SAME), infos(info_of_next)), "'twice' of the last step has the value that it has after a reset"),
    "final_obs in other units": (lambda: Changed(sync(SAME, max_episode_steps=9), scaled(9)), "final_obs is unlike other observations"),
    "old frames": (lambda: Changed(each(lambda: Stacked(gym.make("CartPole-v1"), 2)), reset=marked), "episodes begin with numbers of the previous episode: "),
    "a limit sets both flags": (lambda: Changed(sync(SAME, max_episode_steps=16), both_flags), "truncated episodes were also terminated"),
    "a reset keeps the time": (lambda: Changed(each(lambda: LateTime(gym.make("CartPole-v1"))), reset=marked), "begins with .* in element 4 .* but episodes after .* begin with 0"),
    "returns of several episodes": (lambda: Changed(sync(NEXT), statistics("r")), r"infos\['episode'\]\['r'\] of an episode is"),
    "statistics of Gymnasium": (lambda: gym.wrappers.vector.RecordEpisodeStatistics(sync(DISABLED)), r"infos\['episode'\]\['l'\]"),
    "no reward at a limit": (lambda: Changed(sync(SAME, max_episode_steps=9), no_last_reward), "the reward is 0 in all"),
    "a limit over several episodes": (lambda: Changed(each(lambda: LateLimit(gym.make("CartPole-v1"), 14)), reset=marked), "later episode is truncated after .* the first episodes after .* after 14"),
    "a limit that terminates": (lambda: Changed(sync(NEXT, max_episode_steps=6), limit), "after 6 steps.*a time limit"),
    "flags are late": (lambda: Changed(sync(SAME), late_flags), "reset in a step that sets neither"),
    "all are reset with one": (lambda: Changed(sync(DISABLED), all_at_once, mode=SAME), "reset in a step that sets neither"),
    "SAME_STEP is NEXT_STEP": (lambda: Changed(sync(NEXT), mode=SAME), "last observation is lost"),
    "no mode": (lambda: Changed(sync(NEXT), mode="sometimes"), "is missing or is not an autoreset mode"),
    "a reset of some": (lambda: Changed(sync(DISABLED), reset=masked), "the reset of other environments"),
    "a buffer of rewards": (lambda: Changed(counts(SAME), buffered), "the reward was overwritten"),
    "actions are kept": (lambda: Changed(sync(SAME), remembers), "what the agent writes"),
    "others stand still": (lambda: Changed(sync(SAME), stands_still), "stays the same in .* steps in which another environment resets"),
    "rows of others": (lambda: Changed(sync(SAME), neighbours), "depend on the actions of environment 2"),
    "rows are swapped": (lambda: Swapped(in_mode([lambda: gym.make("CartPole-v1")] * 4, SAME)), "depend on the actions of environment"),
    "rows of many are swapped": (lambda: Swapped(in_mode([lambda: gym.make("CartPole-v1")] * 9, SAME)), "depend on the actions of environment"),
    "infos are the state": (lambda: Batch(sync(NEXT)), "what the agent writes"),
    "zeros": (lambda: Changed(sync(SAME), final(lambda envs, _: np.zeros_like(envs.before))), "final_obs is all zeros"),
    "the one before, at a limit": (lambda: Changed(sync(SAME, "Pendulum-v1", max_episode_steps=9), final(lambda envs, _: envs.before)), "final_obs is the observation before"),
    "all begin alike": (lambda: Changed(sync(SAME), reset=all_alike), "with one seed, all environments begin with the same observation"),
    "always the first": (lambda: each(lambda: AlwaysTheFirst(gym.make("CartPole-v1")), SAME), "automatic resets returned only . different observations"),
}  # fmt: skip
SIMILAR = {
    "outside": (lambda: Changed(sync(SAME), of(0, lambda x: x + np.float32(9))), "is outside of Box"),
    "NaN as reward": (lambda: Changed(sync(NEXT), of(1, lambda x: x * np.nan)), "the reward is NaN"),
    "two libraries": (lambda: Changed(sync(SAME), of(1, torch.as_tensor)), "the reward is an array of torch on cpu, but"),
    "a mask that is none": (lambda: Changed(sync(SAME), infos(lambda given: given.update(_final_obs=True))), "could not be checked whether ends have"),
    "of the next, whole numbers": (lambda: Changed(counts(SAME), OF_NEXT), "is the observation that is returned"),
    "of another": (lambda: Changed(sync(SAME), final(lambda _, results: np.roll(results[0], 1, axis=0))), "final_obs is that of another environment"),
    "late info": (lambda: Changed(counts(SAME), infos(late_info)), "'twice' does not belong to the episode that begins"),
    "final_obs in smaller units": (lambda: Changed(sync(SAME, "Pendulum-v1", max_episode_steps=9), scaled(0.2)), "its standard deviation differs by a factor"),
    "a limit that terminates, timed": (lambda: Changed(each(lambda: timed(16)), limit), "after 16 steps.*a time limit"),
    "returns of several episodes, in final_info": (lambda: Changed(sync(SAME), statistics("r")), r"infos\['episode'\]\['r'\] of an episode is"),
    "lengths of several episodes": (lambda: Changed(sync(NEXT), statistics("l")), r"infos\['episode'\]\['l'\] of an episode is"),
    "lengths that lack a step": (lambda: Changed(sync(NEXT), statistics("l", late=True)), r"infos\['episode'\]\['l'\] of an episode is"),
    "a buffer of infos": (lambda: Changed(counts(SAME), buffered_info), r"infos\['twice'\] was overwritten"),
    "no final_info": (lambda: Changed(counts(SAME), infos(lambda given: given.pop("final_info", None))), r"final_info lacks \['twice'\]"),
    "a limit that ends a few": (lambda: Changed(sync(SAME, max_episode_steps=24), limit), "after 24 steps.*a time limit"),
    "all are reset with one, later": (lambda: Changed(sync(DISABLED), all_at_once, mode=NEXT), "reset in a step that sets neither"),
    "NEXT_STEP is SAME_STEP": (lambda: Changed(sync(SAME), infos(lost), mode=NEXT), "this step only resets.*1.0"),
    "DISABLED is SAME_STEP": (lambda: Changed(sync(SAME), mode=DISABLED), "which do not belong in the mode DISABLED"),
    "rows of the first": (lambda: Changed(sync(SAME), first_action), "depend on the actions of environment 0"),
    "no seed": (lambda: Changed(sync(SAME), reset=without_seed), "same seed.* gave other results"),
    "one seed": (lambda: Changed(sync(SAME), reset=first_seed), "other seeds gave the same run"),
    "copy=False": (lambda: SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, copy=False), "was overwritten"),
}  # fmt: skip
"""Faults that are like others of `WRONG`."""


@pytest.mark.parametrize("fault", quick_if({**WRONG, **SIMILAR}, WRONG.__contains__))
def test_each_fault_is_found(fault):
    make, message = {**WRONG, **SIMILAR}[fault]
    problems = check_vector_env(make(), steps=100)
    told = "\n".join(map(str, problems))
    assert re.search(message, told), told
    assert {problem.check for problem in problems} <= {*NAMES}


def test_an_error_is_a_problem_too():
    envs = Changed(sync(SAME), lambda envs, results: results.pop())
    (problem,) = check_vector_env(envs)
    assert (problem.env, problem.step) == (None, 1)
    assert "cannot be read: ValueError" in problem.what
    assert "Return a row for each environment" in problem.remedy
    (problem,) = check_vector_env(Changed(sync(SAME), lambda envs, results: 1 / 0))
    assert re.search(r"ZeroDivisionError: division by zero, at test_\w+\.py:\d+\.$", str(problem))


def test_environments_are_closed_only_if_they_were_made_here():
    made = []

    def make():
        made.append(sync(SAME))
        return made[-1]

    assert check_vector_env(make, steps=20) == []
    envs = type("Made", (Changed,), {"__init__": lambda x: Changed.__init__(x, make())})
    assert check_vector_env(envs, steps=20) == []
    assert len(made) > 2
    assert all(envs.closed for envs in made)
    envs = sync(SAME)
    assert check_vector_env(envs, steps=np.int64(20), seed=np.int64(7)) == []
    assert not envs.closed


def test_a_run_without_an_end_is_told():
    with pytest.warns(UserWarning, match="no episode ended in 5 steps"):
        assert check_vector_env(sync(SAME, "Pendulum-v1"), steps=5) == []


def test_what_it_takes():
    with pytest.raises(TypeError, match="neither a vector environment nor a function"):
        check_vector_env(gym.make("CartPole-v1"))
    with pytest.raises(af.OptionError, match="steps=0 is not valid"):
        check_vector_env(sync(SAME), steps=0)
    with pytest.raises(af.OptionError, match="seed=-1 is not valid"):
        check_vector_env(sync(SAME), seed=-1)
