"""Games of PettingZoo pass the tests of bridges."""

import numpy as np
import pytest
from games import AGENTS, EACH, TYPES, Probe, in_turns, made
from pettingzoo.utils import aec_to_parallel, parallel_to_aec

from arrayferry_audit import BridgeContract, BridgeStep
from arrayferry_gym.pettingzoo import AECConversion, ParallelConversion


class Players(BridgeContract):
    together = True
    inner = "numpy"

    def spaces(self, bridge):
        agent = bridge.possible_agents[1]
        return bridge.observation_space(agent), bridge.action_space(agent)

    def rows(self, values):
        assert list(values) == AGENTS
        for agent, value in values.items():
            assert isinstance(value, TYPES[EACH[agent]])
        return np.stack([np.asarray(value) for value in values.values()])

    def stepped(self, bridge, observations, *others):
        """Return a step of a game that is reset at once where it ends."""
        final = self.rows(observations)
        first = final if bridge.agents else self.rows(bridge.reset()[0])
        return BridgeStep(first, *([values[a] for a in AGENTS] for values in others), final)


class TestParallel(Players):
    """Players of three libraries, who move at once."""

    def make(self):
        return ParallelConversion(Probe(self.inner), target_xp=EACH)

    def reset(self, bridge, seed):
        observations, _ = bridge.reset(seed=seed)
        return self.rows(observations)

    def step(self, bridge, actions):
        given = {agent: made(a, EACH[agent], "int64") for agent, a in zip(AGENTS, actions, strict=True)}  # fmt: skip
        observations, *others, infos = bridge.step(given)
        assert all(isinstance(infos[agent]["mask"], TYPES[EACH[agent]]) for agent in AGENTS)
        for values, kind in zip(others, (float, bool, bool), strict=True):
            assert all(type(value) is kind for value in values.values())
        return self.stepped(bridge, observations, *others)


class TestParallelOfJax(TestParallel):
    inner = "jax"


class TestTurns(Players):
    """Players of three libraries, who take turns."""

    def make(self):
        return AECConversion(in_turns(self.inner), target_xp=EACH)

    def observe(self, bridge):
        return self.rows({agent: bridge.observe(agent) for agent in AGENTS})

    def reset(self, bridge, seed):
        bridge.reset(seed=seed)
        return self.observe(bridge)

    def step(self, bridge, actions):
        for agent, action in zip(AGENTS, actions, strict=True):
            assert bridge.agent_selection == agent
            bridge.step(made(action, EACH[agent], "int64"))
        final = self.observe(bridge)
        given = [bridge._cumulative_rewards, bridge.terminations, bridge.truncations]
        for values, kind in zip(given, (float, bool, bool), strict=True):
            assert [type(values[agent]) for agent in AGENTS] == [kind] * 3
        last = bridge.last()
        assert np.array_equal(last[0], final[0])
        assert last[1:4] == tuple(values[AGENTS[0]] for values in given)
        assert isinstance(last[4]["mask"], TYPES[EACH[AGENTS[0]]])
        rows = [[values[agent] for agent in AGENTS] for values in given]
        first = final
        if last[2] or last[3]:
            for _ in bridge.agent_iter():
                bridge.step(None)  # as those who are dead do
            first = self.reset(bridge, None)
        return BridgeStep(first, *rows, final)


@pytest.mark.long
class TestTurnsOfJax(TestTurns):
    inner = "jax"


@pytest.mark.long
class TestTurnsOfParallel(TestTurns):
    """PettingZoo's own conversion outside."""

    def make(self):
        return parallel_to_aec(ParallelConversion(Probe(), target_xp=EACH))


@pytest.mark.long
class TestParallelOfTurns(TestParallel):
    """PettingZoo's own conversion outside. A game that ends is at once without players."""

    def make(self):
        return aec_to_parallel(AECConversion(in_turns("jax"), target_xp=EACH))

    def step(self, bridge, actions):
        given = {agent: int(action) for agent, action in zip(AGENTS, actions, strict=True)}
        return self.stepped(bridge, *bridge.step(given)[:4])
