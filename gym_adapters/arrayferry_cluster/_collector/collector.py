"""`Collector`: trajectories of environments on the workers of a cluster."""

from __future__ import annotations

import contextlib
import copy
import itertools
import numbers
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, Space

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import UNSET, check_flag, count_of, limit_of
from arrayferry._utilities.text import never_raises
from arrayferry.extending import portable
from arrayferry.typing import AnyTree, Device, Target
from arrayferry_cluster._dask.cluster import Cluster, Sent
from arrayferry_cluster._dask.groups import ActorGroup, GroupStatus, Position, TaskGroup
from arrayferry_cluster._errors import NotReadyError, SpaceMismatchError
from arrayferry_cluster._trajectories import CollectorStats, Trajectory
from arrayferry_cluster._workers.plan import GroupSetup, Plan, jax_settings, to_bytes
from arrayferry_envs import FunctionalEnv
from arrayferry_envs.extending import is_module, library_of, policy_rows
from arrayferry_gym.extending import ARRAYS, leaves
from arrayferry_gym.typing import ArrT

from .runner import Runner
from .segments import joined

_inherited: list[Any] = []
"""The runners that a forked process has from its parent. Their deletion would close connections of the parent."""


@uncompiled
class Collector(Iterator[Trajectory[ArrT]]):
    """Steps environments on the workers of a Dask cluster with a policy, and returns their trajectories.

    The environments are divided into groups. Each group runs on one worker, which also computes the policy. An
    iteration over the collector yields trajectories of `num_steps` steps, which are called segments. If an episode
    ends, its environment is reset in the same step.

    The seed, the groups and the weights determine the results, whichever workers the groups run on. This includes
    numbers that a policy of PyTorch draws from PyTorch's global generator, as by `Categorical.sample`, but not numbers
    from `numpy.random` or `random`.

    A policy in JAX and a `FunctionalEnv` compute with the settings of JAX that the calling thread has when it makes the
    collector: `jax_enable_x64`, `jax_default_matmul_precision`, `jax_default_prng_impl`, `jax_numpy_dtype_promotion`
    and `jax_threefry_partitionable`.

    If a worker dies, Dask runs the segment of a `FunctionalEnv` again, with the same result. A group of ordinary
    environments is made again on another worker, with seeds derived from its original seeds. Its unfinished segment is
    collected again, and `Trajectory.restarted` reports the restart once.

    Args:
        envs: a list of functions that make one environment each, or a `FunctionalEnv`. Each group of a
            `FunctionalEnv` runs a compiled `rollout`.
        policy: a function as for `rollout`: `policy(policy_params, observation, key) -> (action, extras)`, for a batch of
            observations. With `policy_state` it is
            `policy(policy_params, observation, key, policy_state) -> (action, extras, policy_state)`.
            In JAX, `key` is a JAX key. In any other library, it is an `arrayferry_gym.Random`. The policy may also be a
            PyTorch module, which maps observations to actions. With `policy_state`, the module maps
            `(observation, policy_state)` to `(action, policy_state)`.
        policy_params: the first argument of the policy: a tree of arrays of any library. For a module, its
            `state_dict`, or None for its current weights.
        num_steps: the number of steps of a segment, in each environment.
        num_envs: the number of environments of a `FunctionalEnv`.
        groups: the number of groups, or None for one on each current worker. To repeat a run elsewhere, pass
            `collector.groups`.
        workers: the addresses or names of the workers to use, or None for all.
        resources: Dask resources that a worker must have, such as `{"GPU": 1}`. A group of ordinary environments
            reserves these resources only until Dask has placed its actor on a worker.
        seed: the seed of all random numbers. None uses a seed from the operating system, and stores it in
            `collector.seed`.
        client: the client of a Dask cluster, or the address of its scheduler. None uses the current client. If there
            is no current client, the collector starts workers on this machine.
        mode: "sync" yields the next segments of all groups, with the newest weights. "async" yields the first segment
            that is ready, while collection continues. A group then has at most two segments that are in progress, or
            ready but not yet returned.
        xp: the library of the trajectories.
        device: the device of the trajectories, or None for the library's default.
        timeout: the maximum number of seconds for a step, or for a segment of a `FunctionalEnv` and its compilation.
            After that, the worker is restarted.
        policy_xp: the library of the policy's observations and parameters. None stands for JAX for a `FunctionalEnv`,
            PyTorch for a module, and NumPy otherwise.
        policy_state: the state of a policy at the first step of each episode: a tree of arrays (environments, ...).
        env_params: the parameters of a `FunctionalEnv`, or a dict of the parameters that differ from the defaults.
        max_episode_steps: the number of steps after which an episode of a `FunctionalEnv` is truncated, or None for no
            limit.
        infos: the names of the infos to return.
        final_observation: whether to return the observations before resets.
        wrapper_state: for a `FunctionalEnv` made by `wrap`, the initial statistics of each group, as for `rollout`.

    Attributes:
        groups: the number of groups.
        num_envs: the number of environments.
        num_steps: the number of steps of a segment.
        seed: the seed that was passed, or else a seed from the operating system.
        version: the version of the newest weights, which each call of `update` increases by 1.
        single_observation_space: the space of one observation.
        single_action_space: the space of one action.

    Raises:
        arrayferry.ArrayFerryError: an option is invalid, the client is asynchronous, or a target is not usable here.
        DistributedEnvError: the environments cannot be made.

    Examples:
        A script that passes no client needs `if __name__ == "__main__":`, since workers import the script::

            collector = Collector([lambda: gym.make("CartPole-v1")] * 16, policy, params, num_steps=128, seed=1)
            if __name__ == "__main__":
                for trajectories in itertools.islice(collector, 100):
                    params = learn(params, trajectories)
                    collector.update(params)
                collector.close()
    """

    closed: bool = True
    _began_at: float | None = None

    def __init__(
        self,
        envs: Sequence[Callable[[], Env[Any, Any]]] | FunctionalEnv | type[FunctionalEnv],
        policy: Any,
        policy_params: AnyTree = None,
        *,
        num_steps: int,
        num_envs: int | None = None,
        groups: int | None = None,
        workers: Sequence[str] | None = None,
        resources: Mapping[str, float] | None = None,
        seed: int | None = None,
        client: Any = None,
        mode: str = "sync",
        xp: Target = "numpy",
        device: Device = None,
        timeout: float = 60.0,
        policy_xp: Target | None = None,
        policy_state: AnyTree = None,
        env_params: AnyTree = None,
        max_episode_steps: Any = UNSET,
        infos: Sequence[str] = (),
        final_observation: bool = True,
        wrapper_state: AnyTree = None,
    ) -> None:
        env_options = env_params, wrapper_state
        env, factories = _environments(envs, num_envs, env_options, max_episode_steps)
        self._env: Any = env
        self.num_envs: int = len(factories) or count_of("num_envs", num_envs)
        self.num_steps: int = count_of("num_steps", num_steps)
        groups = None if groups is None else count_of("groups", groups)
        timeout = _seconds(timeout)
        infos = (infos,) if isinstance(infos, str) else tuple(infos)
        if not all(isinstance(name, str) for name in infos):
            raise af.OptionError(
                f"infos={infos!r:.80} is not valid", remedy="Pass a list of names."
            )
        check_flag("final_observation", final_observation)
        if mode not in ("sync", "async"):
            raise af.OptionError(f"mode={mode!r:.80} is unknown", remedy='Pass "sync" or "async".')
        self._is_sync = mode == "sync"
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self.seed: int = count_of("seed", seed, "an integer of 0 or more", 0)
        self._convert = af.converter(xp, device=device)
        library = library_of("Collector", policy, policy_xp, self.seed, policy_state, functional=env is not None)  # fmt: skip
        if env is not None and (library is None or library.name != "jax"):
            raise af.OptionError(
                "a policy for a FunctionalEnv must be written in JAX",
                remedy="Write the policy in JAX, which compiles rollouts.",
            )
        settings = jax_settings() if library is not None and library.name == "jax" else ()
        self._has_module = is_module(policy)
        if self._has_module:
            policy = copy.deepcopy(policy).cpu()
        plan = Plan(
            env, policy, portable(library or af.registry.backend("numpy")), self.num_steps, self.seed,
            env_params, max_episode_steps, infos, final_observation,
            af.convert(wrapper_state, "numpy", copy=True),
        )  # fmt: skip
        state, layout = policy_rows(af.convert(policy_state, "numpy", copy=True), self.num_envs)
        plan_bytes = to_bytes(plan, "the policy or the environment")
        n_workers = min(groups or os.cpu_count() or 1, self.num_envs)
        pickled_weights = _pickled_weights(policy_params)
        self._cluster = cluster = Cluster(client, n_workers, workers, resources)
        self._runner = Runner(cluster, Sent(cluster, pickled_weights), timeout)
        self._process = os.getpid()
        self.closed = False
        try:
            while not (addresses := cluster.check_workers(timeout)):
                time.sleep(0.05)
            self.groups: int = min(groups or len(addresses), self.num_envs)
            bounds = [self.num_envs * index // self.groups for index in range(self.groups + 1)]
            sent, group_type = Sent(cluster, plan_bytes), ActorGroup if env is None else TaskGroup
            for index, (start, stop) in enumerate(itertools.pairwise(bounds)):
                group_state = layout.unflatten([array[start:stop] for array in state])
                group_factories = factories[start:stop]
                setup = GroupSetup(
                    index, start, stop - start, group_factories, group_state, settings
                )
                self._runner.groups.append(group_type(cluster, sent, setup, timeout))
            spaces = self._runner.spaces() if env is None else [_spaces(env, max_episode_steps)]
            self._runner.positions = (Position(0),) * self.groups
            _check_common(spaces)
            self.single_observation_space: Space[Any] = spaces[0][0]
            self.single_action_space: Space[Any] = spaces[0][1]
            if not all(isinstance(x, ARRAYS) for x, _ in leaves(self.single_observation_space)):
                raise af.OptionError(
                    f"observations of {self.single_observation_space} are not arrays, so they cannot be part "
                    "of trajectories",
                    remedy="Use a wrapper that turns observations into arrays.",
                )
        except BaseException:
            self.close()
            raise

    def __next__(self) -> Trajectory[ArrT]:
        """Return the next trajectories.

        Raises:
            NotReadyError: the collector is closed, or was made before this process was forked.
            arrayferry.OptionError: the call is in the thread of the client's event loop, or the groups returned arrays
                that cannot be concatenated.
            DistributedEnvError: an environment or the policy failed or did not answer, or there is no worker. The
                next call continues with the collected segments, and restarts the groups that failed.
        """
        self._require_open()
        runner = self._runner
        self._began_at = self._began_at or time.perf_counter()
        ready_groups = runner.all_ready() if self._is_sync else runner.first_ready()
        positions_before, positions_after = runner.positions, runner.after(ready_groups)
        trajectories: Trajectory[ArrT] = self._convert(joined(ready_groups))
        try:  # if Ctrl-C interrupts the return, no segment may be lost
            runner.positions = positions_after
            return trajectories
        except BaseException:
            runner.positions = positions_before
            raise

    def update(self, policy_params: AnyTree) -> None:
        """Copy new policy parameters, and return immediately. All segments that are requested later use them.

        Args:
            policy_params: as in the constructor. For a module, its `state_dict` or the module itself.

        Raises:
            arrayferry.OptionError: the parameters cannot be pickled.
        """
        self._require_open()
        if self._has_module and is_module(policy_params):
            policy_params = policy_params.state_dict()
        pickled_weights = _pickled_weights(policy_params)
        self._runner.weights = Sent(self._cluster, pickled_weights, self.version + 1)

    @property
    def version(self) -> int:
        """The version of the newest weights, which each call of `update` increases by 1."""
        return self._runner.weights.version

    @property
    def stats(self) -> CollectorStats:
        """The progress so far: steps, segments, seconds and lost workers."""
        runner = self._runner
        counts = [position.number for position in runner.positions]
        env_steps = sum(n * g.setup.num_envs for n, g in zip(counts, runner.groups, strict=True))
        seconds = 0.0 if self._began_at is None else time.perf_counter() - self._began_at
        num_lost = sum(group.status.losses for group in runner.groups)
        return CollectorStats(env_steps * self.num_steps, sum(counts), seconds, num_lost)

    def statistics(self) -> list[dict[str, Any]]:
        """Return the statistics of the kernels of each group, after the trajectories returned so far.

        Each element of the list is a dict like the result of `env.state_dict`. If `wrapper_state` was None,
        `arrayferry_gym.wrappers.merge` combines the dicts of all groups.

        Raises:
            arrayferry.OptionError: the environment was not made by `wrap`.
        """
        self._require_open()
        if self._env is None or not self._env.kernels:
            raise af.OptionError(
                f"{self!r} has no kernels with statistics",
                remedy="Pass wrap(env, *kernels) as the environment.",
            )
        states = [position.state for position in self._runner.positions]
        return [self._env.state_dict(state.env_state) for state in states if state is not None]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a `FunctionalEnv`'s environments after the trajectories returned so far.

        The state can be pickled. A collector that loads it continues with the same results as this one, if both have
        the same weights. The state of ordinary environments is not included.
        """
        self._require_open()
        runner = self._runner
        positions = [position[:2] for position in runner.positions]
        restarts = [(group.status.restarts, group.status.begins) for group in runner.groups]
        return {
            "seed": self.seed,
            "version": self.version,
            "positions": positions,
            "restarts": restarts,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another collector with the same options.

        Args:
            state: the result of the other collector's `state_dict`.

        Raises:
            arrayferry.OptionError: the number of groups or the seed differs, or the environments are ordinary.
        """
        self._require_open()
        runner = self._runner
        if isinstance(runner.groups[0], ActorGroup):
            raise af.OptionError(
                f"{self!r} cannot continue from a state: ordinary environments cannot be saved in a state",
                remedy="Make a new collector with the last weights and another seed. It begins with new episodes.",
            )
        positions = tuple(Position(*position) for position in state["positions"])
        loaded_options, expected_options = (len(positions), state["seed"]), (self.groups, self.seed)
        if loaded_options != expected_options:
            raise af.OptionError(
                f"the state has (groups, seed) = {loaded_options}, but {self!r} has {expected_options}",
                remedy="Pass the state of a collector with the same options.",
            )
        # older states lack restarts. No segment has the number -1, so no group begins again
        all_restarts = state.get("restarts", [(0, -1)] * self.groups)
        for group, (restarts, begins) in zip(runner.groups, all_restarts, strict=True):
            group.status = GroupStatus(restarts=restarts, begins=begins)
        runner.positions = positions
        runner.weights = Sent(self._cluster, runner.weights.data, state["version"])

    def _require_open(self) -> None:
        if self.closed:
            raise NotReadyError("this Collector is closed", remedy="Make another Collector.")
        if self._process != os.getpid():
            raise NotReadyError(
                "this Collector belongs to the process from which this process was forked",
                remedy="Make another Collector in this process, with a new client.",
            )

    def close(self) -> None:
        """Release the environments, and close the cluster if the collector started it.

        It does not wait for environments that hang.
        """
        if self.closed:
            return
        self.closed = True
        if self._process != os.getpid():
            _inherited.append(self._runner)
            return
        self._runner.close()

    def __del__(self) -> None:
        if self.closed or self._process != os.getpid():
            self.close()
        else:  # this may be the thread of the client's event loop, which must not wait
            with contextlib.suppress(RuntimeError):  # no threads can be started at Python's exit
                threading.Thread(target=self._runner.close).start()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        closed_text = ", closed" if self.closed else ""
        return f"<Collector of {self.num_envs} environments in {self.groups} groups{closed_text}>"


def _environments(
    envs: Any, num_envs: Any, env_options: tuple[Any, Any], limit: Any
) -> tuple[FunctionalEnv | None, list[bytes]]:
    """Return the `FunctionalEnv` and [], or None and a list of the pickled functions that make environments."""
    if isinstance(envs, type) and issubclass(envs, FunctionalEnv):
        envs = envs()
    if isinstance(envs, FunctionalEnv):
        return envs, []
    makers = list(envs) if isinstance(envs, Sequence) else []
    if not makers or any(not callable(maker) or isinstance(maker, Env) for maker in makers):
        raise af.OptionError(
            f"envs={envs!r:.80} is not a list of functions",
            remedy="Pass a list of functions that make one environment each, such as [lambda: gym.make(...)] * n, or pass a FunctionalEnv.",
        )
    has_env_options = limit is not UNSET or any(option is not None for option in env_options)
    if num_envs not in (None, len(makers)) or has_env_options:
        raise af.OptionError(
            f"num_envs={num_envs!r:.80}, env_params, wrapper_state and max_episode_steps are for a FunctionalEnv, but envs are {len(makers)} functions",
            remedy="Leave these options out, and set parameters and limits in the functions.",
        )
    pickled_by_id = {id(maker): to_bytes(maker, f"{maker!r:.80} of envs") for maker in makers}
    return None, [pickled_by_id[id(maker)] for maker in makers]


def _spaces(env: Any, limit: Any) -> tuple[Space[Any], Space[Any]]:
    """Return the spaces of observations and actions of a `FunctionalEnv`. The spaces may depend on `limit`."""
    if not env.kernels:
        return env.observation_space, env.action_space
    outer_spaces = env.chain(limit_of(limit, env.max_episode_steps)).outside
    return outer_spaces.observation, outer_spaces.action


def _seconds(timeout: Any) -> float:
    """Check a timeout in seconds. Return it, or `threading.TIMEOUT_MAX` if that is less."""
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real) or not float(timeout) > 0:
        raise af.OptionError(
            f"timeout={timeout!r:.80} is not valid",
            remedy="Pass a number of seconds greater than 0.",
        )
    return min(float(timeout), threading.TIMEOUT_MAX)


def _check_common(spaces: Sequence[tuple[Space[Any], Space[Any]]]) -> None:
    """Check that all environments have the same spaces of observations and actions."""
    for env_index, env_spaces in enumerate(spaces):
        if env_spaces != spaces[0]:
            raise SpaceMismatchError(
                f"environment {env_index} has the spaces {env_spaces[0]} and {env_spaces[1]}, but {spaces[0][0]} and {spaces[0][1]} are expected",
                remedy="Pass environments with the same spaces, or wrap them so that their spaces are the same.",
                indices=(env_index,),
            )


def _pickled_weights(params: AnyTree) -> bytes:
    """Pickle the current parameters of a policy."""
    params = af.convert(params, "numpy", unsupported="keep", unknown="keep")
    return to_bytes(params, "the parameters of the policy")
