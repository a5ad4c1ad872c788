"""`export`: an environment as an ONNX file, which steps it without Python."""

from __future__ import annotations

import os
from typing import Any

from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry._utilities.options import UNSET, check_flag

from ._contract.functional_env import FunctionalEnv, checked_env


def export(
    env: FunctionalEnv | type[FunctionalEnv],
    path: str | os.PathLike[str],
    *,
    num_envs: int = 1,
    policy: Any = None,
    policy_params: Any = None,
    env_params: Any = None,
    param_inputs: bool = False,
    max_episode_steps: Any = UNSET,
    autoreset_mode: AutoresetMode | str = AutoresetMode.DISABLED,
    wrapper_state: Any = None,
) -> dict[str, Any]:
    """Write an environment as an ONNX file: its dynamics, its wrappers, and a policy, as one graph.

    Each run of the graph is a step of all environments, or a reset of those in its input "reset". ONNX has no state and
    no random numbers, so both are inputs:

    - "last.state...", "last.elapsed" and "last.ended" are the outputs "state...", "elapsed" and "ended" of the run
      before. In the first run they are zeros, and "reset" is true everywhere.
    - "reset", bool (n,), begins episodes: their rewards are 0, and no action is taken.
    - "action..." are the actions, clipped to their space. With a policy, they are outputs, and "last.observation..." are
      the observations of the run before.
    - "random..." are uniform numbers in [0, 1) or normal ones, new ones in each run. Which is which is in the metadata.
    - "params...", if `param_inputs`, are numbers that would be constants otherwise. Their values are in the metadata.

    The outputs are those of a step of a vector environment: "observation...", "reward", "terminated", "truncated",
    "info...", and in SAME_STEP mode "final_observation...". Names of parts of trees have dots: "last.state.position".

    Args:
        env: the environment, or one that `wrap` returned.
        path: the file to write.
        num_envs: how many environments a run of the graph steps, n.
        policy: a function in Array API code, `policy(policy_params, observation, rng) -> action, extras`, or a module
            of PyTorch that returns actions. None to leave actions to the caller.
        policy_params: the parameters of the policy, which become constants.
        env_params: parameters of the environment, or a dict of those that differ from the defaults.
        param_inputs: whether parameters that are numbers or arrays are inputs. Their values are in the metadata.
        max_episode_steps: the number of steps after which an episode is truncated, None for no limit. The default is
            the environment's.
        autoreset_mode: when episodes that have ended are reset: SAME_STEP, NEXT_STEP, or DISABLED by "reset" alone.
        wrapper_state: the statistics of wrappers: the `state_dict` of an environment, or the `wrappers` of a rollout.
            They are constants, which no step updates.

    Returns:
        The metadata, which the file has as JSON by the name "arrayferry": inputs and outputs with dtypes and shapes, spaces,
        parameters, the step limit, and versions.

    Raises:
        arrayferry.OptionError: the environment or the policy cannot be exported. The message names the line.
        arrayferry.BackendUnavailableError: ndonnx is not installed.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> import onnxruntime
        >>> from arrayferry_envs import CartPole, export
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     metadata = export(CartPole(), f"{folder}/cart_pole.onnx")
        ...     session = onnxruntime.InferenceSession(f"{folder}/cart_pole.onnx")
        >>> feed = {x.name: np.zeros(x.shape, np.float32) for x in session.get_inputs() if "float" in x.type}
        >>> feed["action"], feed["last.elapsed"] = np.zeros(1, np.int64), np.zeros(1, np.int32)
        >>> feed["last.ended"], feed["reset"] = np.zeros(1, bool), np.ones(1, bool)
        >>> [observation] = session.run(["observation"], feed)
        >>> observation.shape
        (1, 4)
    """
    from ._onnx import OnnxGraph

    env = checked_env(env)
    check_flag("param_inputs", param_inputs)
    if policy is None and policy_params is not None:
        raise af.OptionError("policy_params was passed without a policy", remedy="Pass policy=.")
    graph = OnnxGraph(env, num_envs, env_params, param_inputs, max_episode_steps, autoreset_mode)
    graph.use_statistics(wrapper_state)
    if policy is not None:
        graph.act_by(policy, policy_params)
    content, metadata = graph.written()
    with open(path, "wb") as file:
        file.write(content)
    return metadata
