"""`DistributedVectorEnv`: environments on the workers of a cluster, as one vector environment."""

# pyright: reportInvalidTypeVarUse=false, reportOverlappingOverload=false
from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

import numpy as np
from gymnasium import Env, Space
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry.adapting import never_raises
from arrayferry_gym._batches import rows_of
from arrayferry_gym._libraries import Target
from arrayferry_gym._types import ActT, ArrT, ObsT

from ._checks import (
    check_engine,
    check_numbers,
    check_workers,
    checked_mask,
    checked_seeds,
    common_spaces,
    mode_of,
    pickled,
    split_actions,
)
from ._closing import Closing, close_at_exit
from ._dask import DaskEngine
from ._engine import Engine
from ._errors import NotReadyError
from ._messages import (
    Call,
    Configure,
    Description,
    EnvSetup,
    Render,
    Request,
    Reset,
    SetAttr,
    Start,
    Step,
    StepResult,
)
from ._observations import Observations, Piece, is_stackable
from ._placement import Placement
from ._records import EnvRecord, Group

if TYPE_CHECKING:
    from typing import Unpack

    from arrayferry.typing import (
        CupyArray,
        DaskArray,
        JaxArray,
        Nothing,
        NumpyArray,
        ToCupy,
        ToDask,
        ToJax,
        ToNumpy,
        TorchArray,
        ToTorch,
        Unclear,
    )
    from arrayferry_gym._types import (
        Distributed,
        K,
        V,
        W,
        X,
    )

__all__ = ["DistributedVectorEnv"]


class DistributedVectorEnv(VectorEnv[ObsT, ActT, ArrT], Generic[ObsT, ActT, ArrT]):
    """Environments on the workers of a Dask cluster, several on each, as one vector environment.

    They are stepped at the same time, by one call to each worker. Observations, rewards and infos are those of
    `gymnasium.vector.SyncVectorEnv`.

    If a worker dies, its environments are made again on others. The step in which that is noticed returns
    for them a reward of 0, truncated, and `infos["worker_lost"]`; the other environments go on. They move
    back at the ends of episodes when there is a worker again.

    Args:
        env_fns: functions that make one environment each. They are sent to the workers by cloudpickle.
        client: a `distributed.Client`, or the address of a scheduler. None takes the current client if there is
            one, and starts a cluster on this machine if not, which `close` ends.
        groups: how many processes or threads step environments, None for one for each worker.
        timeout: seconds that one step or reset of the environments of a worker may take.
        to: the library of observations, rewards, terminations and truncations. With "dask", observations stay
            on the workers, as Dask arrays with one chunk for each, and the others are NumPy arrays.
        device: the device of the results, None for the library's own choice.
        autoreset_mode: when episodes that have ended are reset.
        observation_mode: as in `gymnasium.vector.SyncVectorEnv`.
        engine: what makes and calls processes instead of Dask.
        workers: the addresses or names of the workers that may carry environments, None for all.
        min_workers: how many workers to wait for before environments are made, for `timeout` seconds at most.
        resources: what such a worker must have of Dask's resources, such as `{"GPU": 1}`.

    Attributes:
        autoreset_mode: as given.

    Raises:
        arrayferry.ArrayFerryError: an option is wrong, or a target is not usable here.
        DistributedEnvError: the environments cannot be made.

    Example:
        A script needs the second line if it passes no client::

            envs = DistributedVectorEnv([lambda: gym.make("CartPole-v1")] * 16)
            if __name__ == "__main__":
                observations, infos = envs.reset(seed=1)
                observations, rewards, *_ = envs.step(envs.action_space.sample())
                envs.close()
    """

    closed: bool = True
    num_envs: int
    metadata: dict[str, Any]
    render_mode: str | None
    autoreset_mode: AutoresetMode
    single_observation_space: Space[Any]
    observation_space: Space[Any]
    single_action_space: Space[Any]
    action_space: Space[Any]

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: DistributedVectorEnv[Any, Any, Any],
            env_fns: Sequence[Callable[[], Env[Unclear, W]]]
            | Sequence[Callable[[], Env[Nothing, W]]],
            *,
            to: Target = "numpy",
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[NumpyArray, Any, NumpyArray],
            env_fns: Sequence[Callable[[], Env[X, W]]],
            *,
            to: ToNumpy = "numpy",
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[dict[K, NumpyArray], Any, NumpyArray],
            env_fns: Sequence[Callable[[], Env[dict[K, X], W]]],
            *,
            to: ToNumpy = "numpy",
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[TorchArray, Any, TorchArray],
            env_fns: Sequence[Callable[[], Env[X, W]]],
            *,
            to: ToTorch,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[dict[K, TorchArray], Any, TorchArray],
            env_fns: Sequence[Callable[[], Env[dict[K, X], W]]],
            *,
            to: ToTorch,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[JaxArray, Any, JaxArray],
            env_fns: Sequence[Callable[[], Env[X, W]]],
            *,
            to: ToJax,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[dict[K, JaxArray], Any, JaxArray],
            env_fns: Sequence[Callable[[], Env[dict[K, X], W]]],
            *,
            to: ToJax,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[CupyArray, Any, CupyArray],
            env_fns: Sequence[Callable[[], Env[X, W]]],
            *,
            to: ToCupy,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[dict[K, CupyArray], Any, CupyArray],
            env_fns: Sequence[Callable[[], Env[dict[K, X], W]]],
            *,
            to: ToCupy,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[DaskArray, Any, NumpyArray],
            env_fns: Sequence[Callable[[], Env[X, W]]],
            *,
            to: ToDask,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[dict[K, DaskArray], Any, NumpyArray],
            env_fns: Sequence[Callable[[], Env[dict[K, X], W]]],
            *,
            to: ToDask,
            **options: Unpack[Distributed],
        ) -> None: ...
        @overload
        def __init__(
            self: DistributedVectorEnv[Any, Any, Any],
            env_fns: Sequence[Callable[[], Env[V, W]]],
            *,
            to: Target = "numpy",
            **options: Unpack[Distributed],
        ) -> None: ...

    def __init__(  # type: ignore[misc]  # pyright: ignore[reportInconsistentOverload]
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        *,
        client: Any = None,
        groups: int | None = None,
        timeout: float = 60.0,
        to: Target = "numpy",
        device: Any = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        observation_mode: str | tuple[Space[Any], Space[Any]] = "same",
        engine: Engine | None = None,
        workers: Sequence[str] | None = None,
        min_workers: int = 1,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        factories = pickled(env_fns)
        self.num_envs = len(factories)
        self.autoreset_mode = mode_of(autoreset_mode)
        check_numbers(groups, timeout, min_workers)
        check_workers(workers, resources)
        backend = af.registry.backend(to)
        self._keep = backend.name == "dask"
        check_engine(engine, client, workers, resources, self._keep)
        self._convert: Any = None
        if not self._keep and (backend.name != "numpy" or device is not None):
            self._convert = af.converter(to, device=device)
        own_engine = engine is None
        if engine is None:
            n_workers = min(groups or os.cpu_count() or 1, self.num_envs)
            n_workers = max(n_workers, min_workers)
            engine = DaskEngine(
                client,
                n_workers=n_workers,
                set_as_default=self._keep,
                workers=workers,
                resources=resources,
            )
        self._engine = engine
        self._envs = [EnvRecord(index, factory) for index, factory in enumerate(factories)]
        self._placement = Placement(engine, self._envs, groups, timeout, min_workers)
        self._closing = Closing(self._placement, engine, own_engine)
        self.closed = False
        close_at_exit(self)
        try:
            self._describe(self._placement.make_all(), observation_mode)
            self._placement.configure(Configure(self.autoreset_mode, self.single_observation_space))
        except BaseException:
            self.close()
            raise
        self._observations = Observations(
            self.single_observation_space, self.num_envs, engine if self._keep else None
        )
        self._needs_reset = "they have not been reset yet"  # why, "" if they do not
        self._called = False  # whether a method may have changed something
        self._begun = False  # whether there was a full reset
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)  # the episodes that are over

    def _describe(self, descriptions: Sequence[Description], mode: Any) -> None:
        first = descriptions[0]
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        spaces = common_spaces(descriptions, mode)
        self.single_observation_space = spaces.single_observation_space
        self.observation_space = spaces.observation_space
        self.single_action_space = spaces.single_action_space
        self.action_space = spaces.action_space
        if self._keep and not is_stackable(self.single_observation_space):
            raise af.OptionError(
                f"to='dask': observations of {self.single_observation_space} are no arrays",
                remedy="Pass another target.",
            )

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Reset all environments, or some of them.

        Args:
            seed: a whole number, to which the number of the environment is added, or a list with one number
                or None for each.
            options: passed to each environment, but for "reset_mask": an array of truth values, to reset only
                some.

        Raises:
            DistributedEnvError: an environment failed, or there is no worker.
        """
        self._require_open()
        seeds = checked_seeds(seed, self.num_envs)
        options, mask = checked_mask(options, self.num_envs)
        chosen = {self._envs[index] for index in np.flatnonzero(mask)}
        everything = len(chosen) == self.num_envs
        if self._needs_reset and not everything:
            raise NotReadyError(
                f"some environments cannot be reset alone: {self._needs_reset}",
                remedy="Reset all of them.",
            )
        for env in chosen:
            env.options = options
            if seeds[env.index] is not None:
                env.seed = seeds[env.index]
        placement = self._placement

        def setup(env: EnvRecord) -> EnvSetup:
            if env not in chosen:
                return self._setup(env)
            seed = seeds[env.index]
            start = Start(env.new_seed() if seed is None else seed, options)
            return replace(self._setup(env), start=start, reset_pending=False)

        with self._uninterrupted("a reset was not finished"):
            if everything:
                moving = placement.spread(env for env in chosen if self._same_elsewhere(env, seeds))
            else:
                placement.look_for_workers()
                moving = placement.should_move([e for e in placement.may_move if e in chosen])
            if moving:
                placement.take_out(moving)
            self._begun = self._begun or everything
            remade = set(placement.make_unplaced(setup))
            for env in moving:
                env.may_move = False  # they begin as they would anywhere
            still_to_reset = chosen - remade
            requests: dict[Group, Reset] = {}
            for group in placement.groups:
                if group.envs:
                    here = {e.index: seeds[e.index] for e in group.envs if e in still_to_reset}
                    requests[group] = Reset(group.indices, here, options, self._keep)
            replies = placement.ask(requests)
            remade.update(placement.make_unplaced(setup))
        pieces: list[Piece] = []
        infos: list[tuple[int, dict[str, Any]]] = []
        for group, result in replies.items():
            pieces.append((requests[group].indices, result.observations))
            infos += result.infos
        for env in placement.unsettled:
            if env not in chosen:
                if env.unseen and (not self._keep or env.first is not None):
                    last = self._observations.last(env)
                    pieces.append(self._observations.piece(env, last))
                continue
            if env.first is not None and env in remade:
                observation, info = env.first
                pieces.append(self._observations.piece(env, observation))
                infos.append((env.index, info))
            if env.lost:
                infos.append((env.index, {"worker_lost": True}))
            env.first, env.lost, env.unseen = None, False, False
        placement.forget_settled()
        self._ended[mask] = False
        observations = self._observations.join(pieces)
        if self._convert is not None:
            observations = self._convert(observations)
        return observations, self._joined(infos)

    def step(self, actions: Any) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Take a step in all environments, with actions of any library.

        Raises:
            NotReadyError: the environments have to be reset first.
            DistributedEnvError: an environment failed or did not answer, or there is no worker.
            arrayferry.ConversionError: there is not one action for each environment.
        """
        self._require_open()
        if self._needs_reset:
            raise NotReadyError(
                f"the environments cannot be stepped: {self._needs_reset}", remedy="Call reset."
            )
        if self.autoreset_mode == AutoresetMode.DISABLED and self._ended.any():
            indices = tuple(int(index) for index in np.flatnonzero(self._ended))
            raise NotReadyError(
                f"the episodes of the environments {', '.join(map(str, indices))} have ended",
                remedy="Reset them: reset(options={'reset_mask': terminations | truncations}).",
                indices=indices,
            )
        actions_of = split_actions(actions, self.action_space, self.num_envs)
        placement = self._placement
        with self._uninterrupted("a step was not finished"):
            moving = self._before_step() if placement.unsettled else frozenset()
            skipped = frozenset(env.index for env in placement.unsettled if env.lost)
            requests = {
                group: Step(group.indices, actions_of(group.indices), skipped, moving, self._keep)
                for group in placement.groups
                if group.envs
            }
            replies = placement.ask(requests)
            stepped = [(requests[group].indices, result) for group, result in replies.items()]
            lost, moved = self._after_step(stepped, moving) if placement.unsettled else ([], [])
        return self._merged(stepped, lost, moved)

    def _before_step(self) -> frozenset[int]:
        """Let environments that were made again move to other workers, where an episode has ended.

        Returns:
            Those that move if their episode ends in the step.
        """
        placement = self._placement
        placement.look_for_workers()
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            moving = placement.should_move(placement.may_move, at_once=False)
            return frozenset(env.index for env in moving)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            ended = [env for env in placement.may_move if self._ended[env.index]]
            self._move([env for env in placement.should_move(ended) if env.first is None])
        return frozenset()

    def _after_step(
        self, stepped: Sequence[tuple[Sequence[int], StepResult]], moving: frozenset[int]
    ) -> tuple[list[EnvRecord], list[EnvRecord]]:
        """Make environments again that were lost, or that move.

        Returns:
            Those that were lost, and those that have moved.
        """
        lost = self._placement.lost
        moved: list[EnvRecord] = []
        if moving:
            for indices, result in stepped:
                ended = result.terminations | result.truncations
                moved += [
                    self._envs[index]
                    for index, over in zip(indices, ended, strict=True)
                    if over and index in moving
                ]
            self._move(moved)
        self._placement.make_unplaced(self._setup)
        for env in lost:
            env.lost = False
        return lost, moved

    def _same_elsewhere(self, env: EnvRecord, seeds: Sequence[int | None]) -> bool:
        """Tell whether a reset gives the same results where an environment is made again."""
        return not self._called and (seeds[env.index] is not None or env.seed is None)

    def _move(self, envs: Sequence[EnvRecord]) -> None:
        if envs:
            self._placement.take_out(envs)
            self._placement.make_unplaced(self._setup)
            if self.autoreset_mode == AutoresetMode.NEXT_STEP:  # the hosts know what to return
                for env in envs:
                    if not env.lost:
                        env.first = None

    def _merged(
        self,
        stepped: Sequence[tuple[Sequence[int], StepResult]],
        lost: Sequence[EnvRecord],
        moved: Sequence[EnvRecord],
    ) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Put the results of a step together."""
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations = np.zeros(self.num_envs, dtype=np.bool_)
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        pieces: list[Piece] = []
        infos: list[tuple[int, dict[str, Any]]] = []
        same_step = self.autoreset_mode == AutoresetMode.SAME_STEP
        for indices, result in stepped:
            rows = rows_of(indices)
            rewards[rows] = result.rewards
            terminations[rows] = result.terminations
            truncations[rows] = result.truncations
            pieces.append((indices, result.observations))
            infos += result.infos
        for env in moved:
            observation, info = env.take_first()
            pieces.append(self._observations.piece(env, observation))
            infos.append((env.index, info))
        for env in lost:
            last = self._observations.last(env)
            observation, info = env.take_first()
            truncations[env.index] = True
            if same_step:
                infos.append((env.index, {"final_obs": last, "final_info": {}}))
                infos.append((env.index, info))
            else:
                observation = last
            pieces.append(self._observations.piece(env, observation))
            infos.append((env.index, {"worker_lost": True}))
        for env in self._placement.unsettled:
            env.unseen = env.unseen and (env.lost or (env in lost and not same_step))
        self._placement.forget_settled()
        self._ended = terminations | truncations
        results: Any = self._observations.join(pieces), rewards, terminations, truncations
        if self._convert is not None:
            results = self._convert(results)
        observations, rewards, terminations, truncations = results
        return observations, rewards, terminations, truncations, self._joined(infos)

    def _joined(self, infos: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
        """Return infos as vector environments do."""
        joined: dict[str, Any] = {}
        for index, info in sorted(infos, key=operator.itemgetter(0)):
            joined = self._add_info(joined, info, index)
        return joined

    def _setup(self, env: EnvRecord) -> EnvSetup:
        """Return what a host needs to make a lost environment again."""
        next_step = self.autoreset_mode == AutoresetMode.NEXT_STEP
        return env.setup(reset=self._begun, reset_pending=self._begun and next_step)

    @contextlib.contextmanager
    def _uninterrupted(self, problem: str) -> Iterator[None]:
        """Note that the environments need a reset if what follows is not finished, also by Ctrl-C."""
        self._needs_reset = problem
        if self._keep:
            self._engine.discard()  # what a step or reset before left behind when it failed
        yield
        self._needs_reset = ""

    def _require_open(self) -> None:
        if self.closed:
            raise NotReadyError("the environments are closed", remedy="Make them again.")
        if not self._closing.is_of_this_process():
            raise NotReadyError(
                "the environments belong to the process that this one was forked from",
                remedy="Make them in this process, with a client of its own.",
            )

    def _for_each(self, request: Callable[[tuple[int, ...]], Request]) -> tuple[Any, ...]:
        """Ask for one value of each environment. Those that are lost meanwhile are made again, and asked.

        Args:
            request: returns the request for some environments.
        """
        self._require_open()
        placement = self._placement
        results: dict[int, Any] = {}
        before = self._needs_reset
        self._needs_reset = before or "a call was not finished"
        try:
            while len(results) < self.num_envs:
                placement.make_unplaced(self._setup)
                left = {
                    group: tuple(index for index in group.indices if index not in results)
                    for group in placement.groups
                }
                replies = placement.ask(
                    {group: request(indices) for group, indices in left.items() if indices}
                )
                for group, values in replies.items():
                    values = [None] * len(left[group]) if values is None else values
                    results.update(zip(left[group], values, strict=True))
            placement.make_unplaced(self._setup)
        except Exception:
            if not placement.unplaced:  # an error of a method does no harm to the rest
                self._needs_reset = before
            raise
        self._needs_reset = before
        return tuple(results[index] for index in range(self.num_envs))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or get an attribute."""
        self._called = True
        return self._for_each(lambda indices: Call(indices, name, args, kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Get an attribute of each environment."""
        return self._for_each(lambda indices: Call(indices, name))

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment. Those that are made again get it too.

        Args:
            name: the attribute.
            values: a list or tuple with a value for each environment, or one value for all.
        """
        self._require_open()
        listed = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(listed) != self.num_envs:
            raise af.OptionError(
                f"{len(listed)} values were passed to {self.num_envs} environments",
                remedy="Pass one for each, or one that is no list or tuple, for all.",
            )
        self._for_each(lambda indices: SetAttr(name, {i: listed[i] for i in indices}))
        for env, value in zip(self._envs, listed, strict=True):
            env.attributes.pop(name, None)  # it is set last
            env.attributes[name] = value

    def render(self) -> tuple[Any, ...]:
        """Return the images of all environments."""
        return self._for_each(Render)

    np_random_seed: Any = property(
        lambda self: self.get_attr("np_random_seed"), doc="The seeds of the environments."
    )
    np_random: Any = property(
        lambda self: self.get_attr("np_random"),
        doc="Copies of the random generators of the environments.",
    )

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments, and what was started for them. It does not wait for those that hang."""
        self._closing.close()

    def __del__(self) -> None:
        if not self.closed:
            self.closed = True
            self._closing.close_in_thread()

    @never_raises
    def __repr__(self) -> str:
        ended = ", closed" if self.closed else ""
        return f"<DistributedVectorEnv of {self.num_envs} environments{ended}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "DistributedVectorEnv cannot be pickled, since its environments live in other processes. "
            "Make it where it is used, with the same env_fns."
        )
