"""`DistributedVectorEnv`: environments on the workers of a cluster, as one vector environment."""

# pyright: reportInvalidTypeVarUse=false, reportOverlappingOverload=false
from __future__ import annotations

import atexit
import contextlib
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

import numpy as np
from gymnasium import Env, Space
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry.adapting import never_raises
from arrayferry_gym._libraries import Target
from arrayferry_gym._types import ActT, ArrT, ObsT

from ._batch import (
    Piece,
    batch_of_one,
    is_remote,
    is_stackable,
    join,
    join_lazily,
    row_of,
    rows_of,
)
from ._checks import (
    check_numbers,
    check_workers,
    checked_mask,
    checked_seeds,
    common_spaces,
    mode_of,
    pickled,
    split_actions,
)
from ._dask import DaskEngine
from ._engine import Engine
from ._errors import NotReadyError
from ._host import Description, Order, Outcome
from ._placement import Group, Placement

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

_open: weakref.WeakSet[DistributedVectorEnv] = weakref.WeakSet()
_of_others: list[Any] = []
"""What belongs to the process that this one was forked from. Connections that are dropped here would break there."""


@atexit.register  # before distributed closes its clients, since it was imported earlier
def _close_all() -> None:
    for envs in list(_open):
        envs.close()


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
        self._factories = pickled(env_fns)
        self.num_envs = len(self._factories)
        self.autoreset_mode = mode_of(autoreset_mode)
        check_numbers(groups, timeout, min_workers)
        check_workers(workers, resources)
        backend = af.registry.backend(to)
        self._keep = backend.name == "dask"
        self._convert: Any = None
        if not self._keep and (backend.name != "numpy" or device is not None):
            self._convert = af.converter(to, device=device)
        if engine is not None and client is not None:
            raise af.OptionError(
                "both client and engine are given", remedy="Pass DaskEngine(client) as the engine."
            )
        if self._keep and engine is not None and not engine.keeps_arrays:
            raise af.OptionError(
                f"to='dask': {type(engine).__name__} cannot keep arrays where they are",
                remedy="Use Dask's engine, or another target.",
            )
        if engine is not None and (workers is not None or resources is not None):
            raise af.OptionError(
                "workers= and resources= are options of Dask's engine, but another one is given",
                remedy="Pass them to the engine: DaskEngine(client, workers=..., resources=...).",
            )
        self._process = os.getpid()
        self._own_engine = engine is None
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
        self._placement = Placement(engine, self.num_envs, groups, timeout, min_workers)
        self.closed = False
        _open.add(self)
        try:
            descriptions = self._placement.describe(self._factories)
            self._describe(descriptions, observation_mode)
            self._placement.configure(self.autoreset_mode, self.single_observation_space)
        except BaseException:
            self.close()
            raise
        self._broken = "they have not been reset yet"
        self._seeds: list[int | None] = [None] * self.num_envs
        self._options: list[dict[str, Any] | None] = [None] * self.num_envs
        self._attributes: dict[str, list[Any]] = {}
        self._made = [0] * self.num_envs
        self._called = False  # a method may have changed something
        self._begun = False
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        self._last: list[Piece] = []
        self._fresh: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._hidden: set[int] = set()  # made again, but the agent has not seen their new episode

    def _describe(self, descriptions: Sequence[Description], mode: Any) -> None:
        first = descriptions[0]
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        found = common_spaces(descriptions, mode)
        self.single_observation_space = found.single_observation_space
        self.observation_space = found.observation_space
        self.single_action_space = found.single_action_space
        self.action_space = found.action_space
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
        chosen = {int(index) for index in np.flatnonzero(mask)}
        if len(chosen) < self.num_envs and self._broken:
            raise NotReadyError(
                f"some environments cannot be reset alone: {self._broken}",
                remedy="Reset all of them.",
            )
        for index in chosen:
            self._options[index] = options
            if seeds[index] is not None:
                self._seeds[index] = seeds[index]
        placement = self._placement

        def order(index: int) -> Order:
            if index not in chosen:
                return self._order(index)
            start = self._new_seed(index) if seeds[index] is None else seeds[index], options
            return replace(self._order(index), start=start, pending=False)

        with self._whole("a reset was not finished"):
            if len(chosen) == self.num_envs:
                moving = placement.spread({i for i in chosen if self._may_move(i, seeds[i])})
            else:
                placement.look_for_workers()
                moving = placement.movable(sorted(chosen))
            if moving:
                placement.vacate(moving)
            if len(chosen) == self.num_envs:
                self._begun = True
            fresh = placement.settle(order)
            placement.displaced.difference_update(moving)  # they begin as they would anywhere
            requests: dict[Group, tuple[Any, ...]] = {}
            for group in placement.groups:
                if group.indices:
                    here = {i: seeds[i] for i in group.indices if i in chosen and i not in fresh}
                    requests[group] = "reset", tuple(group.indices), here, options, self._keep
            replies = placement.ask(requests)
            fresh.update(placement.settle(order))
        lost = placement.unreported & chosen
        placement.unreported -= chosen
        self._fresh = {i: x for i, x in {**self._fresh, **fresh}.items() if i not in chosen}
        pieces: list[Piece] = []
        infos: list[tuple[int, dict[str, Any]]] = []
        for group, outcome in replies.items():
            pieces.append((requests[group][1], outcome.observations))
            infos += [found for found in outcome.infos if found[0] not in fresh]
        for index, (observation, info) in fresh.items():
            if index in chosen:
                pieces.append(self._piece(index, observation))
                infos.append((index, info))
        self._hidden -= chosen
        for index in self._hidden:
            if not self._keep or index in self._fresh:
                pieces.append(self._piece(index, self._last_observation(index)))
        infos += [(index, {"worker_lost": True}) for index in lost]
        self._ended[mask] = False
        observations = self._observations(pieces)
        if self._convert is not None:
            observations = self._convert(observations)
        return observations, self._infos(infos)

    def step(self, actions: Any) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Take a step in all environments, with actions of any library.

        Raises:
            NotReadyError: the environments have to be reset first.
            DistributedEnvError: an environment failed or did not answer, or there is no worker.
            arrayferry.ConversionError: there is not one action for each environment.
        """
        self._require_open()
        if self._broken:
            raise NotReadyError(
                f"the environments cannot be stepped: {self._broken}", remedy="Call reset."
            )
        if self.autoreset_mode == AutoresetMode.DISABLED and self._ended.any():
            indices = tuple(int(index) for index in np.flatnonzero(self._ended))
            raise NotReadyError(
                f"the episodes of the environments {', '.join(map(str, indices))} have ended",
                remedy="Reset them: reset(options={'reset_mask': terminations | truncations}).",
                indices=indices,
            )
        split = split_actions(actions, self.action_space, self.num_envs)
        same_step = self.autoreset_mode == AutoresetMode.SAME_STEP
        placement = self._placement
        with self._whole("a step was not finished"):
            leaving: frozenset[int] = frozenset()
            if placement.displaced:
                placement.look_for_workers()
                if same_step:
                    leaving = frozenset(placement.movable(range(self.num_envs), at_once=False))
                elif self.autoreset_mode == AutoresetMode.NEXT_STEP:
                    ended = [int(index) for index in np.flatnonzero(self._ended)]
                    self._move([i for i in placement.movable(ended) if i not in self._fresh])
            skipped = frozenset(placement.unreported)
            requests: dict[Group, tuple[Any, ...]] = {
                group: (
                    "step", tuple(group.indices), split(group.indices), skipped, leaving, self._keep
                )
                for group in placement.groups
                if group.indices
            }  # fmt: skip
            replies = placement.ask(requests)
            lost = set(placement.unreported)
            stepped: list[tuple[tuple[int, ...], Outcome]] = [
                (requests[group][1], outcome) for group, outcome in replies.items()
            ]
            moved: list[int] = []
            if leaving:
                for indices, outcome in stepped:
                    ended = outcome.terminations | outcome.truncations
                    moved += [
                        i for i, over in zip(indices, ended, strict=True) if over and i in leaving
                    ]
                self._move(moved)
            if placement.homeless:
                self._fresh.update(placement.settle(self._order))
        placement.unreported -= lost
        return self._merged(stepped, lost, moved)

    def _may_move(self, index: int, seed: int | None) -> bool:
        """Tell whether a reset gives the same results where an environment is made again."""
        return not self._called and (seed is not None or self._seeds[index] is None)

    def _move(self, indices: Sequence[int]) -> None:
        if indices:
            self._placement.vacate(indices)
            self._fresh.update(self._placement.settle(self._order))
            if self.autoreset_mode == AutoresetMode.NEXT_STEP:  # the hosts know what to return
                for index in set(indices) - self._placement.unreported:
                    self._fresh.pop(index, None)

    def _merged(
        self,
        stepped: list[tuple[tuple[int, ...], Outcome]],
        lost: set[int],
        moved: Sequence[int],
    ) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Put the results of a step together."""
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations = np.zeros(self.num_envs, dtype=np.bool_)
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        pieces: list[Piece] = []
        infos: list[tuple[int, dict[str, Any]]] = []
        for indices, outcome in stepped:
            rows = rows_of(indices)
            rewards[rows] = outcome.rewards
            terminations[rows] = outcome.terminations
            truncations[rows] = outcome.truncations
            pieces.append((indices, outcome.observations))
            infos += outcome.infos
        for index in moved:
            observation, info = self._fresh.pop(index)
            pieces.append(self._piece(index, observation))
            infos.append((index, info))
        for index in sorted(lost):
            observation, info = self._fresh.pop(index)
            last = observation if self._keep else self._last_observation(index)
            truncations[index] = True
            if self.autoreset_mode == AutoresetMode.SAME_STEP:
                infos.append((index, {"final_obs": last, "final_info": {}}))
                infos.append((index, info))
            else:
                observation = last
            pieces.append(self._piece(index, observation))
            infos.append((index, {"worker_lost": True}))
        self._ended = terminations | truncations
        self._hidden &= lost if self.autoreset_mode != AutoresetMode.SAME_STEP else set()
        observations = self._observations(pieces)
        results: Any = observations, rewards, terminations, truncations
        if self._convert is not None:
            results = self._convert(results)
        observations, rewards, terminations, truncations = results
        return observations, rewards, terminations, truncations, self._infos(infos)

    def _piece(self, index: int, observation: Any) -> Piece:
        return (index,), batch_of_one(self.single_observation_space, observation)

    def _last_observation(self, index: int) -> Any:
        """Return the observation of an environment that the agent was given last."""
        if self._keep:  # it is where it was made, if that is still there
            return self._fresh[index][0]
        return row_of(self.single_observation_space, self._last, index)

    def _observations(self, pieces: list[Piece]) -> Any:
        if not self._keep:
            self._last = pieces
            return join(self.single_observation_space, pieces, self.num_envs)
        remote = [batch for indices, batch in pieces if is_remote(batch)]
        return join_lazily(pieces, self._engine.assemble(remote), self.num_envs)

    def _infos(self, found: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for index, info in sorted(found, key=operator.itemgetter(0)):
            infos = self._add_info(infos, info, index)
        return infos

    def _order(self, index: int) -> Order:
        """Return what a host needs to make a lost environment again."""
        self._made[index] += 1
        self._hidden.add(index)
        attributes = tuple((name, values[index]) for name, values in self._attributes.items())
        start = (self._new_seed(index), self._options[index]) if self._begun else None
        pending = self._begun and self.autoreset_mode == AutoresetMode.NEXT_STEP
        return Order(index, self._factories[index], attributes, start, pending)

    def _new_seed(self, index: int) -> int | None:
        seed = self._seeds[index]
        if seed is None:
            return None
        return int(np.random.SeedSequence([seed, index, self._made[index]]).generate_state(1)[0])

    @contextlib.contextmanager
    def _whole(self, problem: str) -> Iterator[None]:
        """Note that the environments need a reset if what follows is not finished, also by Ctrl-C."""
        self._broken = problem
        if self._keep:
            self._engine.discard()  # what a step or reset before left behind when it failed
        yield
        self._broken = ""

    def _require_open(self) -> None:
        if self.closed:
            raise NotReadyError("the environments are closed", remedy="Make them again.")
        if self._process != os.getpid():
            raise NotReadyError(
                "the environments belong to the process that this one was forked from",
                remedy="Make them in this process, with a client of its own.",
            )

    def _everywhere(self, request: Callable[[tuple[int, ...]], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Ask for one value of each environment. Those that are lost meanwhile are made again, and asked."""
        self._require_open()
        placement = self._placement
        results: dict[int, Any] = {}
        before, self._broken = self._broken, self._broken or "a call was not finished"
        try:
            while len(results) < self.num_envs:
                if placement.homeless:
                    self._fresh.update(placement.settle(self._order))
                wanted = {
                    group: tuple(index for index in group.indices if index not in results)
                    for group in placement.groups
                }
                replies = placement.ask(
                    {group: request(indices) for group, indices in wanted.items() if indices}
                )
                for group, values in replies.items():
                    found = [None] * len(wanted[group]) if values is None else values
                    results.update(zip(wanted[group], found, strict=True))
            if placement.homeless:
                self._fresh.update(placement.settle(self._order))
        except Exception:
            if not placement.homeless:  # an error of a method does no harm to the rest
                self._broken = before
            raise
        self._broken = before
        return tuple(results[index] for index in range(self.num_envs))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or get an attribute."""
        self._called = True
        return self._everywhere(lambda indices: ("call", indices, name, args, kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Get an attribute of each environment."""
        return self._everywhere(lambda indices: ("call", indices, name, (), {}))

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment. Those that are made again get it too.

        Args:
            name: the attribute.
            values: a list or tuple with a value for each environment, or one value for all.
        """
        self._require_open()
        found = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(found) != self.num_envs:
            raise af.OptionError(
                f"{len(found)} values were passed to {self.num_envs} environments",
                remedy="Pass one for each, or one that is no list or tuple, for all.",
            )
        self._everywhere(lambda indices: ("set_attr", name, {i: found[i] for i in indices}))
        self._attributes.pop(name, None)
        self._attributes[name] = found

    def render(self) -> tuple[Any, ...]:
        """Return the images of all environments."""
        return self._everywhere(lambda indices: ("render", indices))

    np_random_seed: Any = property(
        lambda self: self.get_attr("np_random_seed"), doc="The seeds of the environments."
    )
    np_random: Any = property(
        lambda self: self.get_attr("np_random"),
        doc="Copies of the random generators of the environments.",
    )

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments, and what was started for them. It does not wait for those that hang."""
        _open.discard(self)
        if self._process != os.getpid():
            _of_others.append((self._placement, self._engine))
            return
        if self._keep:
            self._engine.discard()
        _shut(self._placement, self._engine if self._own_engine else None)

    def __del__(self) -> None:
        if self.closed:
            return
        if self._process != os.getpid():
            _of_others.append((self._placement, self._engine))
            return
        self.closed = True
        engine = self._engine if self._own_engine else None
        try:  # not here, since this may be the thread of the engine
            threading.Thread(target=_shut, args=(self._placement, engine)).start()
        except RuntimeError:  # the interpreter ends
            pass

    @never_raises
    def __repr__(self) -> str:
        ended = ", closed" if self.closed else ""
        return f"<DistributedVectorEnv of {self.num_envs} environments{ended}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "DistributedVectorEnv cannot be pickled, since its environments live in other processes. "
            "Make it where it is used, with the same env_fns."
        )


def _shut(placement: Placement, engine: Engine | None) -> None:
    try:
        placement.close(min(placement.timeout, 5.0))
    except Exception:  # the cluster is gone
        pass
    finally:
        if engine is not None:
            engine.close()
