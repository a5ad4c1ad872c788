"""`DistributedVectorEnv`: environments on the workers of a cluster, as one vector environment."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from gymnasium import Env, Space
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry.adapting import never_raises
from arrayferry.typing import Target
from arrayferry_gym._options.env_options import autoreset_mode_of, check_actions_of, count_of
from arrayferry_gym._options.types import ActT, ArrT, ObsT
from arrayferry_gym.distributed._dask.engine import engine_for
from arrayferry_gym.distributed._placing.checks import (
    check_seconds,
    checked_mask,
    checked_seeds,
    common_spaces,
    pickled,
)
from arrayferry_gym.distributed._placing.closing import ClosedOnce
from arrayferry_gym.distributed._placing.engine import Engine
from arrayferry_gym.distributed._placing.errors import NotReadyError
from arrayferry_gym.distributed._placing.placement import Placement
from arrayferry_gym.distributed._placing.pool import HostPool, Sent, await_workers
from arrayferry_gym.distributed._workers.actions import BatchActions
from arrayferry_gym.distributed._workers.host import Hosted
from arrayferry_gym.distributed._workers.messages import EnvSetup, Request
from arrayferry_gym.distributed._workers.records import EnvRecord

from .runner import Infos, Runner

if TYPE_CHECKING:
    from arrayferry_gym._options.types import CheckActions


class DistributedVectorEnv(ClosedOnce, VectorEnv[ObsT, ActT, ArrT], Generic[ObsT, ActT, ArrT]):
    """Environments on the workers of a Dask cluster, several on each, as one vector environment.

    They are stepped in parallel, with one call to each worker. Observations, rewards and infos are those of
    `gymnasium.vector.SyncVectorEnv`.

    If a worker dies, its environments are recreated on others. The step that notices returns for them a reward of 0,
    truncated, and `infos["worker_lost"]`; the other environments continue. A `reset` of all spreads them over the
    workers that are available then.

    Args:
        env_fns: functions that make one environment each. They are sent to the workers with cloudpickle.
        client: a `distributed.Client`, or the address of a scheduler. None uses the current client if there is one,
            and otherwise starts a cluster on this machine, which `close` shuts down.
        groups: the number of processes or threads that step environments, None for one on each worker.
        timeout: seconds that one step or reset of a worker's environments may take.
        to: the library of observations, rewards, terminations and truncations.
        device: the device of the results, None for the library's default.
        autoreset_mode: when finished episodes are reset.
        observation_mode: as in `gymnasium.vector.SyncVectorEnv`.
        engine: an engine that creates and calls processes instead of Dask.
        workers: the addresses or names of the workers that may run environments, None for all.
        min_workers: how many workers to wait for before environments are made, for at most `timeout` seconds.
        resources: Dask resources that such a worker must have, such as `{"GPU": 1}`.
        check_actions: as for the adapters of this package; further keys of a dict are left out.

    Attributes:
        autoreset_mode: as given.

    Raises:
        arrayferry.ArrayFerryError: an option is invalid, or a target is not usable here.
        DistributedEnvError: the environments cannot be made.

    Examples:
        A script that passes no client needs the second line::

            envs = DistributedVectorEnv([lambda: gym.make("CartPole-v1")] * 16)
            if __name__ == "__main__":
                observations, infos = envs.reset(seed=1)
                observations, rewards, *_ = envs.step(envs.action_space.sample())
                envs.close()
    """

    num_envs: int
    metadata: dict[str, Any]
    render_mode: str | None
    autoreset_mode: AutoresetMode
    single_observation_space: Space[Any]
    observation_space: Space[Any]
    single_action_space: Space[Any]
    action_space: Space[Any]

    def __init__(
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
        check_actions: CheckActions = "fit",
    ) -> None:
        factories = pickled(env_fns)
        self.num_envs = len(factories)
        self.autoreset_mode = autoreset_mode_of(autoreset_mode)
        groups = None if groups is None else count_of("groups", groups)
        min_workers = count_of("min_workers", min_workers)
        check_seconds(timeout)
        check = check_actions_of(check_actions)
        backend = af.registry.backend(to)
        self._convert: Any = None
        if backend.name != "numpy" or device is not None:
            self._convert = af.converter(to, device=device)
        self._engine = engine_for(
            engine, self.num_envs, client=client, groups=groups, min_workers=min_workers,
            workers=workers, resources=resources,
        )  # fmt: skip
        self._envs = [EnvRecord(index, factory) for index, factory in enumerate(factories)]
        self._placement = Placement(HostPool(self._engine, self._envs, groups, timeout))
        self._sent: list[Sent] | None = None  # the step in progress
        self._opened(self._placement.pool, engine is None)
        try:
            self._make_all(min_workers, observation_mode)
            self._actions = BatchActions(self.action_space, self.num_envs, check)
        except BaseException:
            self.close()
            raise

    def _make_all(self, min_workers: int, observation_mode: Any) -> None:
        """Make the environments when there are workers, and take the description of the first one for all."""
        pool = self._placement.pool
        if min_workers > 1:
            await_workers(self._engine, min_workers, pool.timeout, range(self.num_envs))
        made = self._placement.make_all(
            lambda env: partial(Hosted.make, setup=EnvSetup(env.index, env.factory))
        )
        descriptions = [reply.description for reply in made]
        self.metadata = {**descriptions[0].metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = descriptions[0].render_mode
        (
            self.single_observation_space,
            self.observation_space,
            self.single_action_space,
            self.action_space,
        ) = common_spaces(descriptions, observation_mode)
        space, mode = self.single_observation_space, self.autoreset_mode
        pool.configure(partial(Hosted.configure, mode=mode, space=space))
        self._runner = Runner(self._envs, self._placement, space=space, mode=mode)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Reset all environments, or some of them.

        Args:
            seed: an integer, to which the index of each environment is added, or a list with an integer or None for
                each.
            options: passed to each environment, except "reset_mask": an array or a list of booleans, True for
                those to reset.

        Raises:
            DistributedEnvError: an environment failed, or there is no worker.
        """
        self._require_open()
        seeds = checked_seeds(seed, self.num_envs)
        options, mask = checked_mask(options, self.num_envs)
        observations, infos = self._runner.reset(seeds, options, mask)
        if self._convert is not None:
            observations = self._convert(observations)
        joined = self._joined(infos)
        self._runner.finished()
        return observations, joined

    def step(self, actions: Any) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Take a step in all environments, with actions of any library.

        Raises:
            NotReadyError: the environments have to be reset first.
            DistributedEnvError: an environment failed or did not answer, or there is no worker.
            arrayferry.ConversionError: an action is refused, or there is not one for each environment.
        """
        return self._finish_step(self._begin_step(actions))

    def step_async(self, actions: Any) -> None:
        """Start a step in all environments, and return immediately. `step_wait` returns its results.

        Raises:
            NotReadyError: the environments have to be reset first, or a step is already in progress.
            arrayferry.ConversionError: an action is refused, or there is not one for each environment.
        """
        sent = self._begin_step(actions)
        self._placement.pool.start(sent)
        self._sent = sent

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Wait for the step started by `step_async`.

        Args:
            timeout: how many seconds to wait, None for the timeout of the environments.

        Raises:
            NotReadyError: no step is in progress.
            DistributedEnvError: an environment failed or did not answer, or there is no worker.
        """
        if self._sent is None:
            raise NotReadyError("no step is in progress", remedy="Call step_async first.")
        if timeout is not None:
            check_seconds(timeout)
        sent, self._sent = self._sent, None
        return self._finish_step(sent, timeout)

    def _begin_step(self, actions: Any) -> list[Sent]:
        self._require_open()
        self._runner.require_steppable()
        return self._runner.begin_step(self._actions(actions))

    def _finish_step(
        self, sent: list[Sent], timeout: float | None = None
    ) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        results: Any
        *results, infos = self._runner.finish_step(sent, timeout)
        if self._convert is not None:
            results = self._convert(tuple(results))
        observations, rewards, terminations, truncations = results
        joined = self._joined(infos)
        self._runner.finished()
        return observations, rewards, terminations, truncations, joined

    def _joined(self, infos: Infos) -> dict[str, Any]:
        """Return infos as vector environments do."""
        joined: dict[str, Any] = {}
        for index, info in sorted(infos, key=operator.itemgetter(0)):
            joined = self._add_info(joined, info, index)
        return joined

    def _require_open(self) -> None:
        super()._require_open()
        if self._sent is not None:
            raise NotReadyError("a step is in progress", remedy="Call step_wait first.")

    def _ask(self, request: Callable[[tuple[int, ...]], Request]) -> tuple[Any, ...]:
        self._require_open()
        return self._runner.ask(request)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or get an attribute."""
        self._runner.note_change()
        return self._call(name, args, kwargs)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return self._ask(
            lambda indices: partial(
                Hosted.call, indices=indices, attribute=name, args=args, kwargs=kwargs
            )
        )

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Get an attribute of each environment."""
        return self._call(name, (), {})

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment. Recreated environments get it too.

        Args:
            name: the attribute.
            values: a list or tuple with a value for each environment, or one value for all.
        """
        self._require_open()
        listed = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(listed) != self.num_envs:
            raise af.OptionError(
                f"{len(listed)} values were passed to {self.num_envs} environments",
                remedy="Pass one value for each, or a single value for all that is not a list or tuple.",
            )
        self._ask(
            lambda indices: partial(
                Hosted.set_attr, attribute=name, values={i: listed[i] for i in indices}
            )
        )
        for env, value in zip(self._envs, listed, strict=True):
            env.attributes.pop(name, None)  # it is set last
            env.attributes[name] = value

    def render(self) -> tuple[Any, ...]:
        """Return the images of all environments."""
        return self._ask(lambda indices: partial(Hosted.render, indices=indices))

    np_random_seed: Any = property(
        lambda self: self.get_attr("np_random_seed"), doc="The seeds of the environments."
    )
    np_random: Any = property(
        lambda self: self.get_attr("np_random"),
        doc="Copies of the random generators of the environments.",
    )

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments, and the cluster if it was started for them, without waiting for any that hang."""
        self._closing.close()

    @never_raises
    def __repr__(self) -> str:
        ended = ", closed" if self.closed else ""
        return f"<DistributedVectorEnv of {self.num_envs} environments{ended}>"
