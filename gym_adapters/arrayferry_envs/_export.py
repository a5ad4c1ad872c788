"""`export`: an environment or a policy as an ONNX file, which runs it without Python; `check_export` compares them."""

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
    """Write an environment, a policy, or both as an ONNX file: dynamics, wrappers, and what chooses actions, as one graph.

    Each run of the graph is a step of all environments, or a reset of those in its input "reset". ONNX has no state and
    no random numbers, so both are inputs:

    - "last.state...", "last.elapsed" and "last.ended" are the outputs "state...", "elapsed" and "ended" of the run
      before. In the first run they are zeros, and "reset" is true everywhere.
    - "reset", bool (n,), begins episodes: their rewards are 0, and no action is taken.
    - "action..." are the actions, clipped to their space. With a policy, they are outputs, and "last.observation..." are
      the observations of the run before.
    - "random..." are uniform numbers in [0, 1) or normal ones, new ones in each run. Which is which is in the metadata.
    - "last.key", uint32 (2,), of environments in JAX: the key of all random numbers of their steps and resets, such as the
      numbers of `jax.random.key(0)` in the first run, and the output "key" of the run before in others. A run splits it in
      three: the next "key", one for steps, and one for resets.
    - "params...", if `param_inputs`, are numbers that would be constants otherwise. Their values are in the metadata. Of
      those that an environment draws, there are only those that have an effect.

    The outputs are those of a step of a vector environment: "observation...", "reward", "terminated", "truncated",
    "info...", and in SAME_STEP mode "final_observation...". Names of parts of trees have dots: "last.state.position".

    **A policy alone**, where `env` is None, takes "observation..." of the environment and returns "action..." for it: the
    kernels see the observation, the policy acts, kernels change the action, and it is clipped to its space. Kernels with a
    memory, such as a stack of frames, have "reset" and "last.wrappers..." as above. The metadata has "test_vectors": inputs,
    outputs, and what the policy has seen and chosen, for three runs that follow each other.

    Args:
        env: the environment, or one that `wrap` returned, in Array API code or in JAX. None for a policy alone.
        path: the file to write.
        num_envs: how many environments a run of the graph steps, n.
        policy: a function in Array API code, of NumPy or of JAX, `policy(policy_params, observation, rng) -> action, extras`;
            a module of PyTorch or Flax that returns actions, in evaluation mode, or one of Equinox, which takes one
            observation; or a model or policy of Stable-Baselines3, which
            acts as its `predict` with deterministic=True. A model includes the statistics of its `VecNormalize`. None
            to leave actions to the caller.
        policy_params: the parameters of the policy, which become constants. Modules of JAX hold their own, but for those of
            `flax.linen`, whose variables these are.
        env_params: parameters of the environment, or a dict of those that differ from the defaults.
        param_inputs: whether parameters that are numbers or arrays are inputs. Their values are in the metadata.
        max_episode_steps: the number of steps after which an episode is truncated, None for no limit. The default is
            the environment's.
        autoreset_mode: when episodes that have ended are reset: SAME_STEP, NEXT_STEP, or DISABLED by "reset" alone.
        wrapper_state: the statistics of wrappers: the `state_dict` of an environment, or the `wrappers` of a rollout.
            They are constants, which no step updates.
        kernels: the wrappers around a policy alone, innermost first. `wrap` puts them around an environment.
        observation_space: of a policy alone, the space of an observation of the environment, inside of the kernels. The
            default without kernels is that of a model of Stable-Baselines3.
        action_space: likewise, of an action.

    Returns:
        The metadata, which the file has as JSON by the name "arrayferry": inputs and outputs with dtypes and shapes, spaces,
        parameters, the step limit, and versions.

    Raises:
        arrayferry.OptionError: the environment or the policy cannot be exported: it needs a library other than JAX, or
            what ONNX lacks. The message names the line.
        arrayferry.BackendUnavailableError: ndonnx is not installed, or onnxscript, which modules of PyTorch need.

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
            f"kernels={kernels!r:.80} is no sequence", remedy="Pass [kernel, ...]."
        )
    kernels = tuple(kernels)
    resets = RULES[autoreset_mode_of(autoreset_mode)].by_itself or None
    others = (
        (env_params, param_inputs or None, resets)
        if env is None
        else (*kernels, observation_space, action_space)
    )
    if any(x is not None for x in others):
        raise af.OptionError(
            "env_params, param_inputs and autoreset_mode are of an environment; kernels, observation_space and action_space "
            "of a policy alone",
            remedy="Leave out the others. Kernels are put around an environment by wrap(env, *kernels).",
        )
    graph: Any
    if env is None:
        from ._onnx_agents import AgentGraph

        spaces = {"observation_space": observation_space, "action_space": action_space}
        if not kernels:  # a model knows only what it sees itself
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
    content, metadata = graph.written()
    with open(path, "wb") as file:
        file.write(content)
    return metadata  # type: ignore[no-any-return]


def check_export(
    path: str | os.PathLike[str], policy: Any = None, policy_params: AnyTree = None
) -> float:
    """Run the file of a policy in onnxruntime, and return the largest difference from its test vectors.

    Args:
        path: a file that `export` wrote of a policy alone, without an environment.
        policy: the policy. If it is passed, it is called with what it has seen in the test vectors too, and the result
            includes the largest difference from what it has chosen there.
        policy_params: its parameters, as for `export`.

    Returns:
        The largest absolute difference of two numbers, inf where only one is NaN, or shapes or names differ.

    Raises:
        arrayferry.OptionError: the file is damaged or has no test vectors, or the policy draws other numbers than in it.
        FileNotFoundError: there is no file.
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
