"""An audit of vector environments, and conformance tests for bridges.

`check_vector_env` finds faults of vector environments from their results alone. A bridge lets trainers of one project
use environments of another project. To test a bridge, put it around a probe, an environment whose observations identify
their episode and step. Define how to reset and step the bridge, and run pytest:

    from arrayferry_audit import BridgeContract, BridgeStep, Probe

    class TestMyBridge(BridgeContract):
        def make(self):
            return MyBridge(Probe().make_vec(self.num_envs, autoreset_mode="SameStep"))

        def reset(self, bridge, seed):
            return bridge.reset(seed)

        def step(self, bridge, actions):
            observation, reward, done, infos = bridge.step(actions)
            ...
            return BridgeStep(observation, reward, terminated, truncated, final_observation)

For a bridge that makes environments of another project usable in arrayferry, write a probe with the interface of that
project. The probe must return the observations, rewards and flags of `Probe`. The tests audit the bridge, and compare
the results of the bridge with those of `Probe`.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import arrayferry_gym  # noqa: F401  # first, since it says how to install Gymnasium

# isort: split
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arrayferry._utilities.options import count_of
from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs import FunctionalEnv

from ._audit import Audit
from ._checks import PARTS, Found
from ._record import Run, VectorProblem, in_numpy, to_numpy
from ._suites import SuiteContract

__all__ = [
    "LIMIT", "BridgeContract", "BridgeStep", "Probe", "SuiteContract", "VectorProblem",
    "check_vector_env",
]  # fmt: skip

LIMIT = 4
"""The number of steps after which an episode of the probe is truncated."""


def check_vector_env(
    envs: VectorEnv[Any, Any, Any] | Callable[[], Any], *, steps: int = 300, seed: int = 0
) -> list[VectorProblem]:
    """Audit vector environments by their results alone, and return the problems.

    A run with a seed and random actions is recorded and checked. Then the run is repeated several times, with one change
    each time, such as other actions of one environment, and the results are compared.

    Args:
        envs: a vector environment, or a function without arguments that makes vector environments of equal behaviour.
            The audit closes environments that the function made. With a function, the audit also repeats a run while it
            makes, steps and closes other environments. Environments from a function may return other results after a
            second reset with the same seed.
        steps: the number of steps of a run. The audit makes up to 14 runs, and keeps one of them in memory. Several
            episodes should end in a run. If there is a time limit, pass a multiple of it.
        seed: the seed of the first run, 0 or more.

    Returns:
        A list of problems, which is empty if no problem was found. The text of a problem names the environment and the
        step, and says what is wrong and what to do.

    Raises:
        TypeError: `envs` is neither a vector environment nor a function that makes one.
        arrayferry.OptionError: `steps` is not a positive integer, or `seed` is not an integer of 0 or more.

    Warns:
        UserWarning: no problem was found, but no episode has ended, so that ends of episodes were not checked.

    Examples:
        >>> from gymnasium.vector import AutoresetMode
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_audit import check_vector_env
        >>> envs = CartPole().make_vec(3, autoreset_mode="SameStep")
        >>> check_vector_env(envs)
        []
        >>> envs.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP  # which is wrong
        >>> problems = check_vector_env(envs)
        >>> print(problems[0].place, problems[0].remedy)
        all environments, step 1 State SAME_STEP if the step resets; otherwise remove these infos.
    """
    steps = count_of("steps", steps)
    seed = count_of("seed", seed, "an integer of 0 or more", least=0)
    audit = Audit(envs, steps, seed)
    if not audit.ended and not audit.problems:
        warnings.warn(
            f"no episode ended in {steps} steps, so ends of episodes were not checked. Pass a greater number of steps, or make "
            "the environments with a smaller time limit",
            stacklevel=2,
        )
    return audit.problems


class ProbeState(NamedTuple):
    """The state of `Probe`: the number drawn for each episode, and the count of its steps, both float32 (n,)."""

    start: Any
    count: Any


class Probe(FunctionalEnv):
    """An environment whose observations identify their episode and step.

    An observation is float32 of shape (2,): a number from 0 to 1 that is drawn for each episode, and the count of steps
    in the episode so far. Action 1 terminates the episode, actions 0 and 2 do not. The reward is the count after
    the step plus half the action. An episode is truncated after 4 steps.

    Examples:
        >>> from arrayferry_audit import Probe
        >>> env = Probe().make()
        >>> observation, info = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> observation[1], reward, terminated, truncated
        (np.float32(1.0), 1.5, True, False)
    """

    observation_space: Space[Any] = spaces.Box(
        np.zeros(2, np.float32), np.array([1, LIMIT], np.float32)
    )
    action_space: Space[Any] = spaces.Discrete(3)
    max_episode_steps: int | None = LIMIT

    def reset(self, xp: Namespace, rng: Any, n: int, params: AnyTree) -> ProbeState:
        """Draw a number for each episode, and set the counts to 0."""
        return ProbeState(rng.uniform((n,), 0.0, 1.0), xp.zeros((n,), dtype=xp.float32))

    def step(
        self, xp: Namespace, rng: Any, state: ProbeState, action: AnyTree, params: AnyTree
    ) -> tuple[ProbeState, Any, Any]:
        """Count the step. Return the state, the rewards, and where action 1 terminates the episode."""
        count = state.count + 1
        reward = count + 0.5 * xp.astype(action, xp.float32)
        return ProbeState(state.start, count), reward, action == 1

    def observe(self, xp: Namespace, state: ProbeState, params: AnyTree) -> Any:
        """Return the number drawn for each episode and the count of its steps, (n, 2)."""
        return xp.stack([state.start, state.count], axis=1)


class BridgeStep(NamedTuple):
    """The results of a step that a trainer receives, as lists or arrays of any library.

    Attributes:
        observation: the observations, (n, 2). Where an episode has ended, the first observation of the next episode.
        reward: the rewards, (n,).
        terminated: which episodes have terminated, booleans (n,).
        truncated: which episodes have been truncated, booleans (n,).
        final_observation: the observations after the step and before any reset, (n, 2). Only rows whose episode has
            ended are used. All other rows may have any value, also None.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any


class BridgeContract:
    """The test that every bridge must pass. Name your subclass `Test...`.

    The test runs the audit of `check_vector_env`, and compares the bridge's results with those of `Probe`. The default
    methods work for a Gymnasium vector environment in SAME_STEP mode.

    Attributes:
        num_envs: the number of rows in observations. A row is an environment, or an agent of a game.
        steps: the number of steps of each run. More steps find late faults, such as counts that overflow.
        exclusive: whether the trainer expects at most one of the flags terminated and truncated. If so, truncated must
            be false where both would be true.
        together: whether the rows are agents of one game, which begins and ends for all agents together.

    Examples:
        >>> from arrayferry_audit import BridgeContract, Probe
        >>> class TestServed(BridgeContract):
        ...     def make(self):
        ...         return Probe().make_vec(self.num_envs, xp="torch", autoreset_mode="SameStep")
        >>> TestServed().test_the_bridge_is_right()
    """

    num_envs: int = 3
    steps: int = 64
    exclusive: bool = False
    together: bool = False

    def make(self) -> Any:
        """Return a new bridge around `num_envs` probes."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a method make() that returns the bridge. Define it"
        )

    def reset(self, bridge: Any, seed: int | None) -> Any:
        """Reset all rows, and return the observations (n, 2).

        Args:
            bridge: the result of `make`.
            seed: the seed, or None to continue with the current random numbers.
        """
        return bridge.reset(seed=seed)[0]

    def step(self, bridge: Any, actions: np.ndarray[Any, Any]) -> BridgeStep:
        """Take a step. If the bridge does not reset by itself, also reset the rows whose episode has ended.

        Args:
            bridge: the result of `make`.
            actions: an action for each row, int64 (n,).
        """
        observation, reward, terminated, truncated, infos = bridge.step(actions)
        return BridgeStep(observation, reward, terminated, truncated, infos.get("final_obs"))

    def spaces(self, bridge: Any) -> tuple[Space[Any] | None, Space[Any] | None]:
        """Return the observation space and the action space of one row, or None for a space that the bridge lacks."""
        return bridge.single_observation_space, bridge.single_action_space

    def close(self, bridge: Any) -> None:
        """Close the bridge."""
        getattr(bridge, "close", lambda: None)()

    def test_the_bridge_is_right(self) -> None:
        """The audit finds no problem, and all results are those of `Probe`.

        A bridge with one row is tested too, if `make` uses `num_envs`.
        """
        problems = self._problems(self.steps)
        if not problems and self.num_envs > 1:
            single_contract = copy.copy(self)
            single_contract.num_envs = 1
            bridge = single_contract.make()
            observation_shape = np.shape(to_numpy(single_contract.reset(bridge, 0)))
            single_contract.close(bridge)
            if observation_shape != (self.num_envs, 2):
                problems = single_contract._problems(24)
        assert not problems, "\n".join(map(str, ["", *problems]))

    def _problems(self, steps: int) -> list[VectorProblem]:
        make_probes = functools.partial(_BridgedProbes, self)
        more_checks = {
            self._wrong: "Return what the probe returns. At a time limit, set truncated, and not terminated."
        }
        return Audit(make_probes, steps, 0, together=self.together, also=more_checks).problems

    def _wrong(self, run: Run) -> Iterator[Found]:
        """Compare a run with results computed from the rules of `Probe`. Yield the first difference."""
        action_space = self.spaces(run.envs.bridge)[1]
        if action_space not in (None, spaces.Discrete(3)):
            yield None, None, f"the space of actions is {action_space}, not Discrete(3)"
        starts, counts, drawn_starts = np.zeros(run.n, np.float32), np.zeros(run.n, int), []
        for call in run.calls:
            observations, began = np.stack(call.observations), call.began
            if call.actions:
                counts, actions = counts + 1, np.array(call.actions)
                terminated, truncated = actions == 1, counts >= LIMIT
                if self.together:
                    terminated[:] = terminated.any()
                began = terminated | truncated
                final_pairs = zip(observations, call.finals, strict=True)
                finals = np.stack([x if y is None else y for x, y in final_pairs])
                expected_last = np.stack([starts, counts], axis=1).astype(np.float32)
                truncated = truncated & ~(terminated & self.exclusive)
                expected = expected_last, counts + actions / 2, terminated, truncated
                names = "the last observation", *PARTS[1:4]
                for name, x, wanted in zip(names, (finals, *call.seen[1:4]), expected, strict=True):
                    for row in range(run.n):
                        if not np.array_equal(x[row], wanted[row]):
                            step_text = f"after step {counts[row]} of an episode with the action {actions[row]}"
                            yield row, call, f"{name} is {x[row]}, not {wanted[row]}, {step_text}"
                            return
            for row in np.flatnonzero(began & (observations[:, 1] != 0)).tolist():
                message = f"an episode begins with the observation {observations[row]}, but its second number must be 0"
                yield row, call, message
                return
            drawn_starts += observations[began, 0].tolist()
            starts, counts = np.where(began, observations[:, 0], starts), np.where(began, 0, counts)
        if np.array_equal(np.array(drawn_starts, np.float16), drawn_starts):
            yield None, None, f"observations are rounded to float16: {drawn_starts[:3]}"


class _Actions(spaces.Discrete):
    """The action space of `Probe`. A fifth of the samples is action 1, which terminates the episode."""

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        return np.int64(self.np_random.choice(3, p=[0.6, 0.2, 0.2]))


class _BridgedProbes:
    """A bridge with the interface of a Gymnasium vector environment, which the audit requires."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_action_space = _Actions(3)

    def __init__(self, contract: BridgeContract) -> None:
        self.contract, self.bridge, self.num_envs = contract, contract.make(), contract.num_envs
        self.single_observation_space = contract.spaces(self.bridge)[0] or Probe.observation_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(spaces.Discrete(3), self.num_envs)

    def reset(self, *, seed: Any = None) -> tuple[Any, dict[str, Any]]:
        if isinstance(seed, list):
            # many bridges refuse lists of seeds, so this error makes the audit skip its check of such lists
            raise TypeError
        return self.contract.reset(self.bridge, seed), {}

    def step(self, actions: AnyTree) -> tuple[Any, ...]:
        *results, final_obs = self.contract.step(self.bridge, actions)
        if final_obs is None:
            return *results, {}
        _, _, *flags, _ = in_numpy((*results, None))
        return *results, {"final_obs": final_obs, "_final_obs": np.logical_or(*flags).astype(bool)}

    def close(self) -> None:
        self.contract.close(self.bridge)


def __dir__() -> list[str]:
    return sorted(__all__)
