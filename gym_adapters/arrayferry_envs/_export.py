"""`export` writes an environment or a policy as an ONNX file, to run without Python. `check_export` checks the file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from gymnasium import Space
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry._utilities.options import UNSET, check_flag
from arrayferry.typing import AnyTree
from arrayferry_gym.extending import RULES, autoreset_mode_of
from arrayferry_gym.wrappers.kernels import Kernel

from ._contract.functional_env import FunctionalEnv, checked_env


def export(
    env: FunctionalEnv | type[FunctionalEnv] | None,
    path: str | os.PathLike[str],
    *,
    num_envs: int = 1,
    policy: Any = None,
    policy_params: AnyTree = None,
    env_params: AnyTree = None,
    param_inputs: bool = False,
    max_episode_steps: Any = UNSET,
    autoreset_mode: AutoresetMode | str = AutoresetMode.DISABLED,
    wrapper_state: AnyTree = None,
    kernels: Sequence[Kernel] = (),
    observation_space: Space[Any] | None = None,
    action_space: Space[Any] | None = None,
) -> dict[str, Any]:
    """Write an environment, a policy, or both to an ONNX file, with all wrappers in one graph.

    Each run of the graph takes a step in all environments, or resets the environments that its input "reset" selects.
    ONNX has no state and no random numbers, so states and random numbers are inputs:

    - "last.state...", "last.elapsed" and "last.ended" are the outputs "state...", "elapsed" and "ended" of the previous
      run. In the first run they are zeros, and "reset" is true everywhere.
    - "reset", bool (n,), selects environments that begin an episode. Their reward is 0, and their action has no effect.
    - "action..." are the actions, which are clipped to their space. With a policy, the actions are outputs,
      and "last.observation...", the observations of the previous run, are inputs.
    - "random..." are random numbers, which must be new in each run. The metadata says whether each input is uniform in
      [0, 1) or normal.
    - "last.key", uint32 (2,), for environments in JAX, is the key of all random numbers of their steps and resets. In
      the first run, pass the key data of any key, such as `jax.random.key(0)`, and in later runs the output "key" of
      the previous run. A run splits this key into three keys: the next "key", a key for steps, and a key for resets.
    - "params..." are the parameters, if `param_inputs` is true. Otherwise parameters are constants. The metadata has
      their values. Parameters that the environment draws are inputs only if they have an effect.

    The outputs are the results of a vector environment's step: "observation...", "reward", "terminated", "truncated",
    "info...", and in SAME_STEP mode "final_observation...". Names of arrays in trees have dots: "last.state.position".

    **A policy alone**, with `env=None`, maps the environment's "observation..." to "action...": kernels change the
    observation, the policy acts, kernels change the action, and the action is clipped to its space. If kernels have a
    memory, such as a stack of frames, "reset" and "last.wrappers..." are further inputs, as above. In the
    metadata, "test_vectors" are the inputs, the outputs, and the policy's observations and actions in eight consecutive
    runs.

    Args:
        env: the environment, which may be wrapped by `wrap`, in Array API code or in JAX. None for a policy alone.
        path: the file to write.
        num_envs: the number of environments in the graph, n.
        policy: a function in Array API code, NumPy or JAX, `policy(policy_params, observation, rng) -> action, extras`; a
            module of PyTorch or Flax that returns actions, in evaluation mode; a module of Equinox, for one observation; or
            a model or policy of Stable-Baselines3, exported as its `predict` with deterministic=True. A model includes the
            statistics of its `VecNormalize`. With None, actions are inputs.
        policy_params: the parameters of the policy, which become constants. For `flax.linen`, they are the module's
            variables. Other modules of JAX contain their own parameters.
        env_params: parameters of the environment, or a dict of the parameters that differ from the defaults.
        param_inputs: whether parameters of the environment that are numbers or arrays become inputs.
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit. The default is
            the environment's limit.
        autoreset_mode: when environments are reset after an episode: SAME_STEP, NEXT_STEP, or DISABLED (only by the
            input "reset").
        wrapper_state: the statistics of wrappers: the result of `env.state_dict`, or `carry.env_state.wrappers` of a
            rollout. They become constants, which no step updates.
        kernels: the wrappers around a policy alone, innermost first. For an environment, use `wrap`.
        observation_space: the environment's own observation space, inside all kernels, for a policy alone. Without
            kernels, it defaults to the space of a Stable-Baselines3 model.
        action_space: the environment's own action space, inside all kernels, for a policy alone. Without kernels, it
            defaults to the space of a Stable-Baselines3 model.

    Returns:
        The metadata, which the file stores as JSON under the name "arrayferry": inputs and outputs with dtypes and shapes,
        spaces, parameters, the step limit, and versions.

    Raises:
        arrayferry.OptionError: the environment or the policy cannot be exported, for example because it needs a library
            other than JAX, or an operation that ONNX lacks. The message names the line of code.
        arrayferry.BackendUnavailableError: ndonnx is not installed; or a PyTorch module needs onnxscript.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> import onnxruntime
        >>> from arrayferry_envs import CartPole, check_export, export
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     metadata = export(CartPole(), f"{folder}/cart_pole.onnx")
        ...     session = onnxruntime.InferenceSession(f"{folder}/cart_pole.onnx")
        >>> feed = {x.name: np.zeros(x.shape, np.float32) for x in session.get_inputs() if "float" in x.type}
        >>> feed["action"], feed["last.elapsed"] = np.zeros(1, np.int64), np.zeros(1, np.int32)
        >>> feed["last.ended"], feed["reset"] = np.zeros(1, bool), np.ones(1, bool)
        >>> [observation] = session.run(["observation"], feed)
        >>> observation.shape
        (1, 4)

        A policy alone, with the statistics that it was trained with:

        >>> from arrayferry_gym.wrappers import kernels
        >>> def policy(weights, observation, rng):
        ...     return (observation @ weights > 0).astype(np.int64), None
        >>> weights = np.array([0.1, 0.5, 1.0, 1.0], np.float32)
        >>> statistics = {"obs_rms": {"count": 100, "mean": [0.0] * 4, "var": [0.1] * 4}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     metadata = export(
        ...         None, f"{folder}/policy.onnx", policy=policy, policy_params=weights,
        ...         kernels=[kernels.NormalizeObservation()], wrapper_state=statistics,
        ...         observation_space=CartPole.observation_space, action_space=CartPole.action_space,
        ...     )
        ...     check_export(f"{folder}/policy.onnx", policy, weights)
        0.0
    """
    check_flag("param_inputs", param_inputs)
    if policy is None and (policy_params is not None or env is None):
        argument = "env=None" if env is None else "policy_params"
        raise af.OptionError(f"{argument} was passed without a policy", remedy="Pass policy=.")
    if not isinstance(kernels, Iterable):
        raise af.OptionError(
            f"kernels={kernels!r:.80} is not a sequence", remedy="Pass [kernel, ...]."
        )
    kernels = tuple(kernels)
    resets_itself = RULES[autoreset_mode_of(autoreset_mode)].by_itself or None
    unfit_options = (
        (env_params, param_inputs or None, resets_itself)
        if env is None
        else (*kernels, observation_space, action_space)
    )
    if any(x is not None for x in unfit_options):
        raise af.OptionError(
            "env_params, param_inputs and autoreset_mode are for an environment; kernels, observation_space and "
            "action_space are for a policy alone",
            remedy="Leave out those that do not apply. To put kernels around an environment, use wrap(env, *kernels).",
        )
    graph: Any
    if env is None:
        from ._onnx_agents import AgentGraph

        spaces = {"observation_space": observation_space, "action_space": action_space}
        if not kernels:  # the default is the policy's spaces, unless kernels change them
            spaces = {k: getattr(policy, k, None) if x is None else x for k, x in spaces.items()}
        limit = None if max_episode_steps is UNSET else max_episode_steps
        graph = AgentGraph(spaces, kernels, num_envs, limit, wrapper_state, policy, policy_params)
    else:
        from ._onnx import OnnxGraph

        options = param_inputs, max_episode_steps, autoreset_mode
        graph = OnnxGraph(checked_env(env), num_envs, env_params, *options)
        graph.use_statistics(wrapper_state)
        if policy is not None:
            graph.act_by(policy, policy_params)
    onnx_bytes, metadata = graph.written()
    with open(path, "wb") as file:
        file.write(onnx_bytes)
    return metadata  # type: ignore[no-any-return]


def check_export(
    path: str | os.PathLike[str], policy: Any = None, policy_params: AnyTree = None
) -> float:
    """Run a policy's file in onnxruntime, and return the largest difference from its test vectors.

    Args:
        path: a file that `export` wrote for a policy alone.
        policy: the exported policy, or None. The policy is called with the observations in the test vectors, and its
            actions are compared with the actions in the test vectors. With None, only the file is checked.
        policy_params: the policy's parameters, as for `export`.

    Returns:
        The largest absolute difference of two corresponding numbers. It is inf if only one of the numbers is NaN, or if
        shapes or names differ.

    Raises:
        arrayferry.OptionError: the file is damaged or has no test vectors, or the policy draws random numbers that
            are not in the file.
        FileNotFoundError: the file does not exist.
        arrayferry.BackendUnavailableError: onnxruntime or ndonnx is not installed.

    Examples:
        >>> import tempfile
        >>> import torch
        >>> from arrayferry_envs import Pendulum, check_export, export
        >>> module = torch.nn.Linear(3, 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     metadata = export(
        ...         None, f"{folder}/policy.onnx", policy=module, observation_space=Pendulum.observation_space,
        ...         action_space=Pendulum.action_space,
        ...     )
        ...     check_export(f"{folder}/policy.onnx", module) < 1e-5
        True
    """
    from ._onnx_agents import difference

    return difference(path, policy, policy_params)
