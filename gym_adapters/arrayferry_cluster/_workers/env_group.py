"""`EnvGroup`: a Dask actor that steps ordinary environments with a policy."""

from __future__ import annotations

import contextlib
import copy
import pickle
import time
from typing import Any, Literal

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

import arrayferry as af
from arrayferry._utilities.options import stream_seed
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_cluster._trajectories import Trajectory
from arrayferry_envs.extending import EnvBatch, is_module, make_policy
from arrayferry_gym.extending import Episodes, as_rewards, checked_reset, summed
from arrayferry_gym.vector import ArrayConversion

from .failure import Activity, Failure
from .infos import TO_NUMPY, Infos
from .plan import GroupSetup, Plan, Segment, applied, loaded, setting_up
from .recorder import Recorder

KEPT = 2
"""The number of segments that a group keeps, to return them again if a call is repeated."""


class EnvGroup:
    """A Dask actor that steps a batch of ordinary environments with a policy. Its calls run in one thread.

    The last segments are kept. A repeated call returns them, and does not step the environments again.

    Args:
        plan: the `Plan`, pickled.
        setup: the `GroupSetup`, pickled.
    """

    def __init__(self, plan: bytes, setup: bytes) -> None:
        self._plan_bytes = plan
        self._setup: GroupSetup = pickle.loads(setup)
        self._activity = Activity(self._setup.index, self._setup.indices)
        self._envs: list[_Watched] = []
        self._vector: Any = None  # an EnvBatch, or None until `_prepare` makes it
        # the number of restarts, and the number of the next segment, which is None after a failure
        self._begun: tuple[int, int | None] = (-1, None)
        self._kept: dict[tuple[int, int], Any] = {}
        self._version = -1  # the version of the weights

    def spaces(self) -> list[tuple[Space[Any], Space[Any]]] | Failure:
        """Make the environments, and return the observation and action space of each."""
        return self._activity(None, self._make)  # type: ignore[no-any-return]

    def segment(
        self, number: int, restarts: int, begins: bool, version: int, weights: bytes | None
    ) -> Segment | Failure | Literal["again", "lost"]:
        """Collect a segment.

        Args:
            number: the number of the segment, on which the random numbers depend.
            restarts: the number of restarts of the group, on which its seeds depend.
            begins: whether this is the first segment since the group was made or restarted.
            version: the version of the weights.
            weights: the pickled weights, or None if the group already has them.

        Returns:
            The segment. A `Failure` if an error was raised. "again" if an earlier call has not arrived yet, or the
            weights are missing. "lost" if this actor lacks the state after the previous segment.
        """
        segment_key = restarts, number
        if segment_key in self._kept:
            return self._kept[segment_key]  # type: ignore[no-any-return]
        begun_restarts, expected = self._begun
        is_fresh = begun_restarts != restarts
        if is_fresh and not begins:
            return "lost"
        if (not is_fresh and expected != number) or (weights is None and self._version != version):
            return "again"
        seed_restarts = restarts if is_fresh else None
        result = self._activity(number, self._segment, number, seed_restarts, version, weights)
        self._begun = restarts, None if isinstance(result, Failure) else number + 1
        self._kept = dict([*self._kept.items(), (segment_key, result)][-KEPT:])
        return result  # type: ignore[no-any-return]

    async def activity(self) -> tuple[float, str, tuple[int, ...]] | None:
        """Return the seconds since the current step or call began, its description, and its environments.

        Return None between calls.
        """
        activity = self._activity  # another thread runs the calls and changes the activity
        since = activity.since
        return (
            None if since is None else (time.monotonic() - since, str(activity), activity.indices)
        )

    def __del__(self) -> None:
        if self._vector is None:  # an EnvBatch closes its environments itself
            for env in self._envs:
                with contextlib.suppress(Exception):
                    env.close()

    def _make(self) -> list[tuple[Space[Any], Space[Any]]]:
        for local_index in range(len(self._envs), self._setup.num_envs):
            activity, env_index = self._activity, self._setup.indices[local_index]
            activity.env, activity.since = env_index, time.monotonic()
            with setting_up():
                env = pickle.loads(self._setup.factories[local_index])()
                if isinstance(env, VectorEnv):
                    raise TypeError(
                        f"its function returned {env!r:.80}, a vector environment. Pass functions that return one "
                        "environment each, as the collector steps many of them together"
                    )
            self._envs.append(_Watched(env, env_index, activity))
            activity.env = None
        return [(env.observation_space, env.action_space) for env in self._envs]

    def _prepare(self) -> None:
        """Make the environments, the policy, and the batch of environments."""
        self._make()
        self._activity.policy = True
        plan: Plan = loaded(self._plan_bytes, self._setup.settings)
        self._plan, policy, num_envs = plan, plan.policy, len(self._envs)
        if is_module(policy):  # other groups in this process use the same module with other weights
            policy = copy.deepcopy(policy)
        backend = af.registry.backend(plan.library)
        seed_prefix = (plan.seed, self._setup.index)
        policy_state = self._setup.policy_state
        with applied(self._setup.settings):
            self._policy = make_policy(policy, backend, seed_prefix, num_envs, policy_state)
        self._activity.policy = False
        # the state of a policy may contain observations, which the next step would overwrite: copy
        must_copy = policy_state is not None
        env_batch = EnvBatch(self._envs, must_copy, AutoresetMode.SAME_STEP)
        numpy_options: Any = {"env_xp": "numpy", "target_xp": "numpy"}
        self._fitting = ArrayConversion(env_batch, **numpy_options, convert_info=False)
        self._vector, self._episodes = env_batch, Episodes(env_batch)

    def _segment(
        self, number: int, restarts: int | None, version: int, weights: AnyArray
    ) -> Segment:
        if self._vector is None:
            self._prepare()
        if weights is not None:
            self._activity.policy, self._version = True, -1
            with setting_up(), applied(self._setup.settings):
                self._policy.load(pickle.loads(weights))
            self._activity.policy, self._version = False, version
        try:
            if restarts is not None:
                self._reset(restarts)
            return Segment(self._collect(number), version)
        except Exception:
            if self._activity.env is None and not self._activity.policy:
                for env in self._envs:
                    env.check()
            raise

    def _reset(self, restarts: int) -> None:
        seeds = [self._plan.seed + index for index in self._setup.indices]
        if restarts:
            indexed_seeds = zip(seeds, self._setup.indices, strict=True)
            seeds = [_derived(seed, index, restarts) for seed, index in indexed_seeds]
        self._observation, _ = self._fitting.reset(seed=seeds)
        num_envs = len(self._envs)
        self._began = np.ones(num_envs, np.bool_)
        self._returns: Any = None
        self._lengths = np.zeros(num_envs, np.int32)

    def _collect(self, number: int) -> Trajectory:
        self._activity.policy = True  # an error before the first step is an error of the policy
        plan, activity, envs, num_envs = self._plan, self._activity, self._fitting, len(self._envs)
        settings, num_steps = self._setup.settings, plan.num_steps
        with applied(settings):
            self._policy.begin(number)
        obs_recorder = Recorder("the observation")
        final_recorder = Recorder("the observation")
        action_recorder, extra_recorder = Recorder("the action"), Recorder("extras")
        reward_recorder, return_recorder = Recorder("the reward"), Recorder("the return")
        terminated, truncated, began = np.zeros((3, num_steps, num_envs), np.bool_)
        lengths = np.zeros((num_steps, num_envs), np.int32)
        infos = Infos(plan.infos)
        final_converter = TO_NUMPY if plan.final_observation else None
        for step in range(num_steps):
            activity.step, activity.since = step, time.monotonic()
            obs_recorder.write(self._observation)
            began[step] = self._began
            policy, activity.policy = self._policy, True
            with applied(settings):
                action, extra = policy.in_numpy(*policy(self._observation, self._began, step))
            action_recorder.write(action)
            extra_recorder.write(extra)
            step_result = self._episodes.step(envs.step(action), final_converter)
            reward, ended = step_result.reward, step_result.ended
            reward_recorder.write(reward)
            terminated[step], truncated[step] = step_result.terminated, step_result.truncated
            if plan.infos:
                infos.write(self._vector.infos)
            if plan.final_observation:
                final_recorder.write(step_result.final_observation)
            self._lengths[self._began] = 0
            returns_before = np.zeros_like(reward) if self._returns is None else self._returns
            self._returns = summed(np, self._began, returns_before, reward)
            self._lengths += 1
            return_recorder.write(self._returns)
            lengths[step] = self._lengths
            self._observation, self._began = step_result.observation, ended
        activity.step, activity.policy = None, True
        action_trees = action_recorder.tree(), extra_recorder.tree()
        activity.policy = False
        return Trajectory(
            obs_recorder.tree(), action_trees[0], reward_recorder.tree(), terminated, truncated,
            final_recorder.tree() if plan.final_observation else None,
            action_trees[1], began, return_recorder.tree(), lengths, infos.tree(), None, None, None,
        )  # fmt: skip


class _Watched:
    """An environment that records when it is in use, and what it returned last.

    Args:
        env: the environment.
        index: the number of the environment in the collector.
        activity: the `Activity` of the group, in which the use is recorded.
    """

    def __init__(self, env: Any, index: int, activity: Activity) -> None:
        self.env = env
        self.index = index
        self._activity = activity
        self._last: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._activity.env = self.index
        result = checked_reset(self.env, self.env.reset(**options))
        self._last = result[0], 0.0, False, False, {}
        self._activity.env = None
        return result

    def step(self, action: AnyTree) -> tuple[Any, ...]:
        self._activity.env, self._activity.policy = self.index, False
        result = self._last = self.env.step(action)
        # check the final observation here: in the batch, an observation of a reset replaces it
        if result[2] or result[3]:
            self.check()
        self._activity.env = None
        return result  # type: ignore[no-any-return]

    def check(self) -> None:
        """Raise an error if the last observation or reward of the environment cannot be a row of a batch."""
        self._activity.env = self.index
        observation, reward, _, _, _ = self._last
        space = self.env.observation_space
        batch: Any = create_empty_array(space, 1)
        try:
            concatenate(space, [observation], batch)
        except Exception as error:
            text = f"its observation is {_form(observation)}, which does not fit its space {space}"
            raise TypeError(text) from error
        as_rewards(reward)
        self._activity.env = None


def _form(x: AnyArray) -> str:
    """Return a description of an observation, by the shapes and dtypes of its arrays."""
    if isinstance(x, dict):
        return "{" + ", ".join(f"{key!r}: {_form(member)}" for key, member in x.items()) + "}"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"an array of shape {tuple(x.shape)} and dtype {x.dtype}"
    return f"{x!r:.80}"


def _derived(seed: int, index: int, restarts: int) -> int:
    """Return a seed for an environment of a restarted group, derived from the environment's original seed."""
    mixed_seed = stream_seed("restart", seed, index, restarts)
    return int(np.random.SeedSequence(mixed_seed).generate_state(1)[0])
