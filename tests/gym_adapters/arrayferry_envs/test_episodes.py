"""The rule of episodes: every kind of vector environment does in each autoreset mode what a model of a few lines does."""

import jax
import numpy as np
import pytest
from envs import EVERY_MODE, MODES, in_mode
from functional_envs import LIBRARIES, Count
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry_envs import Functions, wrap
from arrayferry_gym import vector
from arrayferry_gym._episodes import RULES
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers import vector as wrappers

ENDS, STOPS, LIMIT, STEPS = (2, 3, 5, 9), (9, 3, 9, 3), 4, 12


BOTH = list(zip(ENDS, STOPS, strict=True))
PARAMS = {"end": np.array(ENDS, np.float32), "stop": np.array(STOPS, np.float32)}


class Model:
    """One environment: the counts that are seen, step by step."""

    def __init__(self, mode, end, stop):
        self.mode, self.end, self.limit = mode, end, min(stop, LIMIT)
        self.reset()

    def reset(self):
        self.count, self.ended = 0, False

    def step(self):
        """Return the count that is seen, the reward, both ends, and the last count of an episode that was reset."""
        if self.ended:
            assert self.mode is not AutoresetMode.DISABLED
            self.reset()
            return 0, 0.0, False, False, None
        self.count += 1
        count, final = self.count, None
        ends = count >= self.end, count >= self.limit
        self.ended = any(ends)
        if self.ended and self.mode is AutoresetMode.SAME_STEP:
            final = count
            self.reset()
        return self.count, float(count), *ends, final


def sync(mode):
    """Make single environments, in Gymnasium's own vector environment."""
    params = [dict(zip(PARAMS, both, strict=True)) for both in BOTH]
    makes = [lambda own=own: Count().make(params=own, max_episode_steps=LIMIT) for own in params]
    return in_mode(makes, mode)


def served(library, env=None):
    options = {"params": PARAMS, "max_episode_steps": LIMIT, **LIBRARIES[library]}
    return lambda mode: (env or Count()).make_vec(len(ENDS), autoreset_mode=mode, **options)


CHAIN = kernels.RecordEpisodeStatistics(), kernels.FrameStackObservation(2)
MAKERS = {
    "gymnasium": sync,
    "adapter": lambda mode: vector.ArrayConversion(sync(mode), target_xp="torch"),
    **{library: served(library) for library in LIBRARIES},
    "kernels": served("numpy", wrap(Count(), *CHAIN)),
    "kernels in jax": served("jax", wrap(Count(), *CHAIN)),
    "wrappers": lambda mode: wrappers.FrameStackObservation(
        wrappers.RecordEpisodeStatistics(sync(mode)), 2
    ),
    "wrappers of jax": lambda mode: wrappers.FrameStackObservation(served("jax")(mode), 2),
}


host = af.converter("numpy", unsupported="keep")


def newest(observation):
    """Return the count, the last of those that are stacked."""
    return float(observation.ravel()[-1])


def check_step(results, infos, ended, last, told, models):
    """Check a step by the models, environment by environment.

    Args:
        results: observations, rewards and both flags.
        infos: of the step.
        ended: where the last observation of an episode is told.
        last: these observations.
        told: their infos.
        models: one for each environment.
    """
    observations, *others = (host(x) for x in results)
    for i, model in enumerate(models):
        count, final = newest(observations[i]), None
        assert infos["twice"][i] == 2 * count
        if ended[i]:
            final = newest(last[i])
            assert told["twice"][i] == 2 * final
        assert (count, *(x[i].item() for x in others), final) == model.step()


@MODES
@pytest.mark.parametrize("name", MAKERS)
def test_vector_environments_follow_the_rule(name, mode):
    envs = MAKERS[name](mode)
    models = [Model(mode, *both) for both in BOTH]

    def reset(mask):
        envs.reset(options={"reset_mask": mask})
        for model, chosen in zip(models, mask, strict=True):
            if chosen:
                model.reset()

    _, infos = envs.reset(seed=1)
    assert host(infos["twice"]).tolist() == [0] * len(ENDS)
    assert host(infos["_twice"]).all()
    for step in range(STEPS):
        if step == 3:
            reset(np.array([False, True, False, False]))
        ended = np.array([model.ended for model in models])
        if mode is AutoresetMode.DISABLED and ended.any():
            reset(ended)
        *results, infos = envs.step(np.zeros(len(ENDS), np.int64))
        infos = host(infos)
        ended = infos.get("_final_obs", np.zeros(len(ENDS), bool))
        assert not ended.any() or infos["_final_info"][ended].all()
        assert infos["_twice"].all()
        last = infos.get("final_obs"), infos.get("final_info")
        check_step(results, infos, ended, *last, models)
    envs.close()


@pytest.mark.parametrize("mode", [mode for mode in EVERY_MODE if RULES[mode].by_itself])
def test_functions_follow_the_rule(mode):
    env = Functions(Count(), autoreset_mode=mode, max_episode_steps=LIMIT)
    models = [Model(mode, *both) for both in BOTH]
    state, _ = env.reset(jax.random.key(0), len(ENDS), PARAMS)
    for step in range(STEPS):
        action = np.zeros(len(ENDS), np.int32)
        state, outcome = env.step(jax.random.key(step), state, action, PARAMS)
        outcome = host(outcome)
        ended = outcome.terminated | outcome.truncated
        if outcome.final_observation is None:
            ended = ended & False
        check_step(outcome[:4], outcome.info, ended, *outcome[-2:], models)
