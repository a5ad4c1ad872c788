"""`Collector`: trajectories of environments on the workers of a cluster."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env, Space

import arrayferry as af
from arrayferry.adapting import never_raises
from arrayferry.typing import Target
from arrayferry_gym._arrays import portable
from arrayferry_gym._options.env_options import UNSET, check_actions_of, check_flag, count_of
from arrayferry_gym._spaces.trees import ARRAYS, leaves
from arrayferry_gym.distributed._dask.engine import engine_for
from arrayferry_gym.distributed._placing.checks import check_seconds, common_spaces, pickled
from arrayferry_gym.distributed._placing.closing import ClosedOnce
from arrayferry_gym.distributed._placing.engine import Engine
from arrayferry_gym.distributed._placing.placement import Placement
from arrayferry_gym.distributed._placing.pool import HostPool, await_workers
from arrayferry_gym.distributed._workers.messages import GroupSetup, Plan, to_bytes
from arrayferry_gym.distributed._workers.records import GroupRecord
from arrayferry_gym.distributed._workers.trajectories import Trajectories
from arrayferry_gym.functional import FunctionalEnv
from arrayferry_gym.functional._policies.policies import check_policy, is_module, policy_rows

from .display import Display
from .group_runner import AHEAD, GroupRunner, Weights
from .segments import joined
from .stats import CollectorStats

if TYPE_CHECKING:
    from arrayferry_gym._options.types import CheckActions


class Collector(ClosedOnce, Iterator[Trajectories]):
    """Steps environments on the workers of a Dask cluster with a policy, and returns their trajectories.

    The environments are divided into groups. Each group is on one worker, which also computes the policy: one call
    returns `num_steps` steps. Iterating yields the `Trajectories`. Episodes that end are reset in the same step.

    Results are determined by the seed, the groups and the weights. They do not depend on where a group runs.

    If a worker dies, its groups are restarted on others. Their unfinished segments are collected again, and
    `Trajectories.restarted` reports it once.

    Args:
        envs: functions that make one environment each, as for `DistributedVectorEnv`; or a `FunctionalEnv`, of which each
            group runs a compiled `rollout`.
        policy: as for `rollout`: `policy(policy_params, observation, key) -> (action, extras)`, for a batch of
            observations. With `policy_state` it is
            `policy(policy_params, observation, key, policy_state) -> (action, extras, policy_state)`.
            The key is a JAX key, or an `arrayferry.Random` in any other library. Or a PyTorch module, which is called
            with the observations and returns actions, and with `policy_state` with `(observation, policy_state)` and
            returns `(action, policy_state)`.
        policy_params: the first argument of the policy: a tree of arrays of any library. For a module its
            `state_dict`, None for the weights that it has.
        num_steps: the number of steps of a segment, in each environment.
        num_envs: the number of environments of a `FunctionalEnv`.
        groups: the number of groups, None for one on each current worker. Pass `collector.groups` to repeat a run
            elsewhere.
        workers: as for `DistributedVectorEnv`.
        resources: the same.
        seed: the seed of all random numbers. None takes one from the operating system, available as
            `collector.seed`.
        client: as for `DistributedVectorEnv`.
        mode: "sync" yields the next segments of all groups, with the newest weights. "async" yields the segment of the
            group that is ready first, and meanwhile continues: at most two segments of a group are in progress or
            waiting.
        to: the library of the trajectories. With "dask" they stay on the workers, as Dask arrays with one chunk for each group.
        device: their device, None for the library's default.
        timeout: seconds that a step may take. For a `FunctionalEnv`, `num_steps` times as many for a segment.
        policy_xp: the library of the policy, for its observations and parameters. None means NumPy, JAX with a
            `FunctionalEnv`, or PyTorch with a module.
        policy_state: the state of a policy at the first step of each episode: a tree of arrays (environments, ...).
        env_params: the parameters of a `FunctionalEnv`, or a dict of those that differ from the defaults.
        max_episode_steps: the number of steps after which an episode of a `FunctionalEnv` is truncated, None for no
            limit.
        infos: the names of the infos to return.
        final_observation: whether to return the observations before resets.
        min_workers: how many workers to wait for, for at most `timeout` seconds.
        engine: as for `DistributedVectorEnv`.
        check_actions: as for the adapters of this package.
        progress: whether to show progress in a terminal, with rich.

    Attributes:
        groups: the number of groups.
        num_envs: the number of environments.
        num_steps: as given.
        seed: the seed.
        version: how often the weights were updated.
        single_observation_space: the space of one observation.
        single_action_space: the space of one action.

    Raises:
        arrayferry.ArrayFerryError: an option is invalid, or a target is not usable here.
        DistributedEnvError: the environments cannot be made.

    Examples:
        A script that passes no client needs the second line::

            collector = Collector([lambda: gym.make("CartPole-v1")] * 16, policy, params, num_steps=128, seed=1)
            if __name__ == "__main__":
                for trajectories in itertools.islice(collector, 100):
                    params = learn(params, trajectories)
                    collector.update(params)
                collector.close()
    """

    groups: int
    num_envs: int
    num_steps: int
    seed: int
    single_observation_space: Space[Any]
    single_action_space: Space[Any]

    def __init__(
        self,
        envs: Sequence[Callable[[], Env[Any, Any]]] | FunctionalEnv | type[FunctionalEnv],
        policy: Any,
        policy_params: Any = None,
        *,
        num_steps: int,
        num_envs: int | None = None,
        groups: int | None = None,
        workers: Sequence[str] | None = None,
        resources: Mapping[str, float] | None = None,
        seed: int | None = None,
        client: Any = None,
        mode: str = "sync",
        to: Target = "numpy",
        device: Any = None,
        timeout: float = 60.0,
        policy_xp: Target | None = None,
        policy_state: Any = None,
        env_params: Any = None,
        max_episode_steps: Any = UNSET,
        infos: Sequence[str] = (),
        final_observation: bool = True,
        min_workers: int = 1,
        engine: Engine | None = None,
        check_actions: CheckActions = "fit",
        progress: bool = False,
    ) -> None:
        env, factories = _environments(envs, num_envs, env_params, max_episode_steps)
        self.num_envs = len(factories) or count_of("num_envs", num_envs)
        self.num_steps = count_of("num_steps", num_steps)
        groups = None if groups is None else count_of("groups", groups)
        min_workers = count_of("min_workers", min_workers)
        check_seconds(timeout)
        check_flag("final_observation", final_observation)
        check_flag("progress", progress)
        if mode not in ("sync", "async"):
            raise af.OptionError(
                f"mode={mode!r:.80} is not valid", remedy='Pass "sync" or "async".'
            )
        self._is_sync = mode == "sync"
        self._display = Display(progress)
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self.seed = count_of("seed", seed, "an integer of 0 or more", 0)
        backend = af.registry.backend(to)
        self._keep = backend.name == "dask"
        self._convert: Any = None
        if not self._keep and (backend.name != "numpy" or device is not None):
            self._convert = af.converter(to, device=device)
        if self._keep and engine is not None and not engine.keeps_arrays:
            raise af.OptionError(
                f"to='dask': {type(engine).__name__} cannot keep arrays where they are",
                remedy="Use Dask's engine, or another target.",
            )
        library = _library(policy, policy_xp, env)
        self._module = policy if is_module(policy) else None
        if self._module is not None:
            policy = copy.deepcopy(policy).cpu()
        plan = Plan(
            env, policy, portable(library), self.num_steps, self.seed, env_params, max_episode_steps,
            _names(infos), final_observation, check_actions_of(check_actions), self._keep,
        )  # fmt: skip
        rows = _policy_state(policy_state, self.num_envs)
        with _pickling("the policy or the environment"):
            data = to_bytes(plan)
        weights = Weights(0, _pickled_weights(policy_params))
        own_engine = engine is None
        engine = engine_for(
            engine, self.num_envs, client=client, groups=groups, min_workers=min_workers,
            workers=workers, resources=resources, set_as_default=self._keep,
        )  # fmt: skip
        try:
            await_workers(engine, min_workers, timeout, range(self.num_envs))
            self.groups = min(groups or len(engine.workers()) or 1, self.num_envs)
        except BaseException:
            if own_engine:
                engine.close()
            raise
        bounds = [self.num_envs * index // self.groups for index in range(self.groups + 1)]
        records = []
        for index, (first, last) in enumerate(itertools.pairwise(bounds)):
            of_group = tuple(factories[first:last])
            setup = GroupSetup(index, first, last - first, of_group, data, rows(first, last))
            records.append(GroupRecord(index, setup))
        # a compiled segment does not report its steps
        silence, steps = (self.num_steps, 1) if env is not None else (1, self.num_steps)
        longest = timeout * silence * steps * AHEAD * self.groups
        self._placement = Placement(
            HostPool(engine, records, None, timeout, timeout * silence, longest)
        )
        self._opened(self._placement.pool, own_engine)
        self._runner = GroupRunner(records, self._placement, self._keep, weights)
        try:
            spaces = common_spaces(self._runner.make_all(), "same")
            self.single_observation_space = spaces.single_observation_space
            self.single_action_space = spaces.single_action_space
            if not all(isinstance(x, ARRAYS) for x, _ in leaves(self.single_observation_space)):
                raise af.OptionError(
                    f"observations of {self.single_observation_space} are not arrays, but trajectories are",
                    remedy="Use a wrapper that makes arrays of them.",
                )
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Collector:
        return self

    def __next__(self) -> Trajectories:
        """Return the next trajectories.

        Raises:
            NotReadyError: the collector is closed.
            DistributedEnvError: an environment or the policy failed or did not answer, or there is no worker. The
                next call continues: collected segments are kept, and groups that failed are restarted.
        """
        self._require_open()
        runner = self._runner
        runner.counts.begin()
        segments = runner.all_ready() if self._is_sync else runner.first_ready()
        trajectories = joined(segments, self._keep)
        if self._convert is not None:
            trajectories = self._convert(trajectories)
        self._display.show(self)
        return runner.take(segments, trajectories)

    def update(self, policy_params: Any) -> None:
        """Take a snapshot of new policy parameters, and return immediately.

        Segments requested from now on use them. They are sent to each worker once.

        Args:
            policy_params: as in the constructor. For a module its `state_dict`, or the module itself.

        Raises:
            arrayferry.OptionError: they cannot be sent.
        """
        self._require_open()
        if self._module is not None and is_module(policy_params):
            policy_params = policy_params.state_dict()
        self._runner.weights = Weights(self.version + 1, _pickled_weights(policy_params))

    @property
    def version(self) -> int:
        """How often the weights were updated."""
        return self._runner.weights.version

    @property
    def stats(self) -> CollectorStats:
        """Statistics of the work done so far."""
        return self._runner.counts.stats(self.version)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the trajectories returned so far, as numbers, lists and NumPy arrays.

        A `FunctionalEnv` continues from it exactly: with the same weights, a collector that loads it returns what
        this one will return. The state of ordinary environments is not known: they are restarted, with other seeds,
        which are derived from these numbers. The weights are not included.

        Raises:
            DistributedEnvError: a group does not answer.
        """
        self._require_open()
        return {
            "groups": self.groups,
            "num_envs": self.num_envs,
            "num_steps": self.num_steps,
            "seed": self.seed,
            **self._runner.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another collector with the same options.

        Args:
            state: the result of its `state_dict`.

        Raises:
            arrayferry.OptionError: its groups, environments, steps or seed were different, or it is not such a state.
            DistributedEnvError: a group cannot be made.
        """
        self._require_open()
        given = state if isinstance(state, Mapping) else {}
        for name in ("groups", "num_envs", "num_steps", "seed"):
            if given.get(name) != getattr(self, name):
                raise af.OptionError(
                    f"the state is of a collector with {name}={given.get(name)!r:.40}, but this one has {getattr(self, name)}",
                    remedy="Make the collector with the same options.",
                )
        self._runner.load_state_dict(dict(state))

    def close(self) -> None:
        """Close the environments, and the cluster if it was started for them, without waiting for any that hang."""
        if not self.closed:
            self.closed = True
            self._display.close()
            self._runner.forget()
            self._closing.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        ended = ", closed" if self.closed else ""
        return f"<Collector of {self.num_envs} environments in {self.groups} groups{ended}>"


def _environments(
    envs: Any, num_envs: Any, env_params: Any, limit: Any
) -> tuple[FunctionalEnv | None, list[bytes]]:
    """Return a `FunctionalEnv`, or functions that make environments, pickled."""
    if isinstance(envs, type) and issubclass(envs, FunctionalEnv):
        envs = envs()
    if isinstance(envs, FunctionalEnv):
        return envs, []
    factories = pickled(envs)
    if num_envs is not None and num_envs != len(factories):
        raise af.OptionError(
            f"num_envs={num_envs!r:.80}, but envs are {len(factories)}", remedy="Leave it out."
        )
    if env_params is not None or limit is not UNSET:
        raise af.OptionError(
            "env_params and max_episode_steps are for a FunctionalEnv, but envs are functions",
            remedy="Set parameters and limits in the functions.",
        )
    return None, factories


def _library(policy: Any, policy_xp: Any, env: Any) -> Any:
    """Return the backend of a policy."""
    check_policy(policy)
    own = "torch" if is_module(policy) else "jax" if env is not None else None
    backend = af.registry.backend(policy_xp or own or "numpy")
    if (own is not None and backend.name != own) or (env is not None and is_module(policy)):
        what = "a module of PyTorch" if is_module(policy) else "a policy for a FunctionalEnv"
        raise af.OptionError(
            f"{what} computes in {'PyTorch' if is_module(policy) else 'JAX'}",
            remedy="Write the policy in JAX, as rollouts are compiled by it."
            if env is not None
            else "Leave out policy_xp.",
        )
    return backend


def _names(infos: Any) -> tuple[str, ...]:
    names = (infos,) if isinstance(infos, str) else tuple(infos)
    if not all(isinstance(name, str) for name in names):
        raise af.OptionError(f"infos={infos!r:.80} is not valid", remedy="Pass names of infos.")
    return names


def _policy_state(state: Any, count: int) -> Callable[[int, int], Any]:
    """Return a function that takes the first row of a group and the one after its last, and returns its rows in NumPy."""
    arrays, layout = policy_rows(af.convert(state, "numpy", copy=True), count)

    def rows(first: int, last: int) -> Any:
        return None if state is None else layout.unflatten([x[first:last] for x in arrays])

    return rows


@contextlib.contextmanager
def _pickling(what: str) -> Iterator[None]:
    """Turn errors of pickling into an `OptionError`."""
    try:
        yield
    except Exception as error:
        raise af.OptionError(
            f"{what} cannot be pickled ({type(error).__name__}: {error})",
            remedy="Create the objects that it uses inside the function, and pass arrays and numbers in policy_params.",
        ) from error


def _pickled_weights(params: Any) -> bytes:
    """Pickle the parameters of a policy as they are now."""

    def plain(x: Any) -> Any:
        backend = af.backend_of(x)
        if backend.name == "torch":
            return x.detach().cpu()
        return x if backend.name in ("numpy", "jax") else backend.to_numpy(x)

    arrays, layout = af.flatten(params)
    with _pickling("the parameters of the policy"):
        return to_bytes(layout.unflatten([plain(x) for x in arrays]))
