"""`Served`: the common base of served single and vector environments."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.options import (
    check_flag,
    check_render_mode,
    known_options,
    limit_of,
    seed_of,
)
from arrayferry._utilities.text import never_raises
from arrayferry.typing import AnyArray, AnyTree, Device, Target
from arrayferry_envs._contract.actions import Actions
from arrayferry_envs._contract.checked import CheckedEnv
from arrayferry_envs._contract.errors import traced_env, usable
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._contract.params import Params, prepare
from arrayferry_envs._engine.chains import chain_of
from arrayferry_envs._engine.engine import Engine
from arrayferry_envs._engine.numpy_stepper import NumpyStepper
from arrayferry_envs._engine.stepper import Stepper
from arrayferry_gym.extending import (
    Libraries,
    ServesFunctional,
    cast_fitting,
    converted_space,
    reset_mask_of,
)


class Served(ServesFunctional):
    """A batch of environments, served in the library of the agent.

    A stepper advances the environments in the library that they need. If they work in any library, they compute in the
    agent's library, or in NumPy if the agent computes in PyTorch on the CPU without gradients.

    Attributes:
        functional: the environment.
        check_actions: the option as passed.
        metadata: the metadata of the environment. Its key "jax" is True if observations are JAX arrays.
        render_mode: the option as passed.
        suite_id: the id of the environment in its suite, or "" for an environment without a suite.
    """

    functional: FunctionalEnv
    metadata: dict[str, Any]
    render_mode: str | None
    check_actions: str = "fit"
    suite_id: str = ""
    _tell: Callable[[dict[str, Any], dict[str, Any]], None]
    """Add the infos of kernels to the infos of a step. Only environments with kernels have this method."""
    _begun = False
    _runs_kernels = False
    _spec: Any = None

    def _set_up(
        self,
        env: FunctionalEnv | type[FunctionalEnv],
        n: int,
        mode: AutoresetMode,
        xp: Target,
        device: Device,
        *,
        max_episode_steps: Any,
        params: AnyTree,
        render_mode: str | None,
        check_actions: Any,
        differentiable: bool,
        translate: bool,
    ) -> Callable[..., Any]:
        """Check the options of `n` environments, and prepare to serve them. Return the result of `showing`."""
        self._env = env = checked_env(env)
        if env.kernels and not self._runs_kernels:
            raise TypeError(f"{env!r} is wrapped. Call its make() or make_vec() instead.")
        self.functional = env.base
        check_render_mode(
            render_mode,
            env.metadata,
            type(self.functional).__name__,
            'Write a method render(self, state, index), and metadata = {"render_modes": ["rgb_array"]}.',
        )
        check_flag("differentiable", differentiable)
        check_flag("translate", translate)
        self.render_mode = render_mode
        self._n, self._mode = n, mode
        limit = limit_of(max_episode_steps, env.max_episode_steps)
        self._limit = env._limited(limit)
        self._chain = chain = chain_of(env, limit)
        self.check_actions = check_actions
        self._differentiable, self._translated = differentiable, translate
        backend, sharding = usable(af.registry.backend(xp)), None
        if hasattr(device, "mesh") or len(getattr(device, "device_set", ())) > 1:
            device, sharding = None, _sharding(device, n, backend)
        convert_space = showing(backend, device)
        agent_device = None if device is None else backend.devices.name_of(device)
        runs_anywhere = not differentiable and all(kernel.any_library for kernel in chain.kernels)
        if translate and env.library not in (None, "jax"):
            raise af.OptionError(
                f"translate=True is for environments in JAX, but {type(self.functional).__name__} "
                f"computes in {env.library}",
                remedy="Leave it out: only environments in JAX can be translated.",
            )
        computing_backend = backend
        if not translate:
            computing_backend = _computing(
                env.library, backend, agent_device, differentiable, runs_anywhere
            )
        traced_backend = usable(af.registry.backend("jax")) if translate else computing_backend
        # whether the states and parameters are in another library than observations and actions
        self._converts = computing_backend is not backend
        if self._converts and computing_backend.name == "numpy":
            agent_device = "cpu"
        device = None if self._converts else device
        traced_device = None if translate else device
        checked = CheckedEnv(self.functional, traced_backend, n, limit, traced_device)
        self._params = prepare(
            params, env.default_params, n, traced_backend, traced_device, draws=env._draws_params
        )
        self._device = device if sharding is None else sharding
        self._traced_on = None if translate else self._device
        self._actions = Actions(
            checked.name, chain.outside.action, n if isinstance(self, VectorEnv) else None,
            computing_backend, self._device, check=self.check_actions,
        )  # fmt: skip
        engine = Engine(checked, mode, chain, tells_masks=True)
        if translate:
            from arrayferry_envs._engine.translated import TranslatedStepper

            self._stepper: Stepper = TranslatedStepper(
                engine, backend, device, differentiable=differentiable
            )
        elif traced_backend.name == "jax":
            from arrayferry_envs._engine.jax_stepper import JaxStepper

            self._stepper = JaxStepper(engine, sharding)
        else:
            self._stepper = (NumpyStepper if traced_backend.name == "numpy" else Stepper)(engine)
        self._held_on = agent_device
        self._to_agent = af.converter(backend, device=agent_device)
        self.metadata = {**env.metadata, "jax": backend.name == "jax"}
        return convert_space

    def _note_reset(self, rows: AnyArray) -> None:
        """Record that episodes begin where `rows` is true: a NumPy mask (n,), or None for all environments."""

    def _reset_batch(self, seed: Any, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those where "reset_mask" of the options is true.

        Returns:
            The observations and the infos, in the library in which the environments compute.
        """
        stepper = self._stepper
        mask, new_params, state = known_options("reset()", options, "reset_mask", "params", "state")
        numpy_mask = mask
        stepper.refuse_traced("reset()", (seed, mask, new_params, state))
        if mask is not None:
            try:
                numpy_mask = reset_mask_of(mask, self._n)
            except af.TracedValueError:
                raise traced_env(type(self.functional).__name__, "reset()") from None
            mask = af.convert(numpy_mask, stepper.backend, device=self._device)
        seed = seed_of(seed, self._n)
        params = self._params if new_params is None else self._changed_params(new_params, mask)
        if seed is not None or stepper.rng is None:
            stepper.seed(seed)
        if state is not None:
            state = self._checked_state(state, params, tell=new_params is None)
        result = stepper.reset(params, mask, state)
        if new_params is not None:
            self._params = params
        self._begun = True
        self._note_reset(numpy_mask)
        return result

    def _for_agent(self, tree: AnyTree) -> Any:
        """Return results in the library of the agent."""
        return self._to_agent(tree) if self._converts else tree

    def _changed_params(self, new_params: Any, mask: AnyArray) -> Params:
        env, current, defaults = self._stepper.env, self._params, self.functional.default_params
        params = prepare(
            new_params, defaults, self._n, env.backend, self._traced_on,
            base=current if isinstance(new_params, dict) else None, draws=env.sampled is not None,
        )  # fmt: skip
        env_state = self._stepper.env_state
        if mask is not None and env_state is not None:
            if env.sampled is not None:
                env.sampled.check_pinned(self._stepper.state, params, current)
            params = params.where(af.convert(mask, env.backend), current, env.xp)
        return params

    def _fitted(self, actions: AnyTree) -> Any:
        """Check actions, and return them as the arrays that the environments need."""
        if not self._begun:
            raise gym.error.ResetNeeded("Call reset() before the first step, and after close().")
        try:
            return self._actions(actions)
        except af.TracedValueError:
            raise traced_env(type(self.functional).__name__, "step()") from None

    def _image(self, index: int) -> Any:
        """Return an image of one environment."""
        state = self._stepper.env.shown(self.state)
        return self.functional.render(af.convert(state, "numpy"), index)

    def _forget(self) -> None:
        """Discard the states."""
        self._begun = False
        if "_stepper" in self.__dict__:  # a failed constructor has not set `_stepper`
            self._stepper.forget()

    @never_raises
    def __repr__(self) -> str:
        if self.suite_id:
            return described(self, self.suite_id, self.xp, self._held_on, self._limit)
        num_envs_text = f", num_envs={self._n}" if isinstance(self, VectorEnv) else ""
        text = f"{type(self).__name__}({self._env!r}{num_envs_text}, xp={self.xp!r})"
        return text if num_envs_text else f"<{text}>"

    def __str__(self) -> str:
        return repr(self)

    @property
    def xp(self) -> str:
        """The name of the library of observations and actions."""
        return self._to_agent.target.name

    @property
    def state(self) -> Any:
        """The states, as the environment's `reset` returns them. They can be set.

        If the environment draws parameters, the states have two fields, `state` and `params`. `params` is a tree of all
        parameters. In it, parameters that the environment draws are arrays (n, ...), which can also be set. Other
        parameters can only be changed by `reset`.

        The arrays are in the library that the environment needs, or in the agent's library if it works in any library.
        """
        stepper = self._stepper
        if stepper.env_state is None:
            raise gym.error.ResetNeeded("Call reset() first: there is no state yet.")
        state, sampled = stepper.state, stepper.env.sampled
        if sampled is not None:
            state = sampled.whole(state, self._params.tree)
        if self.functional.library is not None:
            return state
        return af.convert(state, self._to_agent.target, copy=True)

    @state.setter
    def state(self, state: AnyTree) -> None:
        stepper = self._stepper
        if stepper.env_state is None:
            raise gym.error.ResetNeeded("Call reset() first, then set the state.")
        stepper.refuse_traced("the setter of `state`", state)
        stepper.state = self._checked_state(state, self._params)

    def _checked_state(self, state: AnyTree, params: Params, *, tell: bool = True) -> Any:
        env, example = self._stepper.env, self._stepper.example(params)
        state = af.convert(state, env.backend, device=self._traced_on, copy=True)
        if env.sampled is not None:
            state = env.sampled.of_whole(state, params.tree, example, tell=tell)
        return env.check(state, cast_fitting)

    @property
    def params(self) -> Any:
        """The parameters. Change them with `reset(options={"params": ...})`."""
        return self._params.tree

    @property
    def spec(self) -> Any:
        """Gymnasium's spec of the environment, or None. It contains libraries by name, so that it can be saved."""
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        for name, value in getattr(spec, "kwargs", {}).items():
            if isinstance(value, ModuleType):
                spec.kwargs[name] = self.xp
        self._spec = spec


def _sharding(sharding: Any, n: int, backend: af.Backend) -> Any:
    """Check a sharding that was passed as the device of a batch, and return it."""
    if backend.name != "jax":
        raise af.OptionError(
            f"device={sharding!r:.80} was passed with xp={backend.name!r}, but only JAX spreads arrays over devices",
            remedy="Pass one device.",
        )
    from arrayferry_envs._engine.shardings import batch_sharding

    return batch_sharding(sharding, n)


def showing(backend: af.Backend, device: Device) -> Callable[..., Any]:
    """Return a function that converts spaces to the agent's library."""
    libraries = Libraries({}, "numpy", backend, None, device)

    def converted(space: Space[Any]) -> Any:
        return space if backend.name == "numpy" else converted_space(space, libraries)

    return converted


def set_spaces(
    envs: Any, observation: Space[Any], action: Space[Any], shown: Callable[..., Any]
) -> None:
    """Set the spaces of environments and of their batch. The function `shown` converts them to the agent's library."""
    envs.single_observation_space = shown(observation)
    envs.observation_space = shown(batch_space(observation, envs.num_envs))
    envs.single_action_space = shown(action)
    envs.action_space = shown(batch_space(action, envs.num_envs))


def _computing(
    needed: str | None, agent: af.Backend, device: str | None, gradients: bool, portable: bool
) -> af.Backend:
    """Return the library that environments compute in.

    Args:
        needed: the library that the environments need, or None for any.
        agent: the library of the agent.
        device: the device of the agent's arrays, or None for the library's default.
        gradients: whether gradients flow through steps.
        portable: whether environments may compute in NumPy for an agent in PyTorch.
    """
    if needed is not None:
        computing_backend = usable(af.registry.backend(needed))
        if gradients and computing_backend.name != agent.name:
            raise af.OptionError(
                f"differentiable=True with xp={agent.name!r}, but these environments compute in {needed}",
                remedy=f"Use xp={needed!r}, or step them in a function that is decorated with "
                f'arrayferry.agnostic("{needed}", differentiable=True).',
            )
        return agent if computing_backend.name == agent.name else computing_backend
    uses_numpy = agent.name == "torch" and device in (None, "cpu") and portable
    return af.registry.backend("numpy") if uses_numpy else agent


def described(env: Any, suite_id: str, xp: str, device: Device, limit: int | None) -> str:
    """Return the `repr` of an environment or batch of a suite.

    Args:
        env: the environment or batch to describe.
        suite_id: the id of the environment.
        xp: the library of the agent.
        device: the device of observations, or None for the library's default.
        limit: the number of steps after which episodes are truncated.
    """
    shown_options: dict[str, Any] = {"xp": xp, "device": None if device is None else str(device)}
    if isinstance(env, VectorEnv):
        mode = env.metadata["autoreset_mode"].value
        shown_options = {"num_envs": env.num_envs, **shown_options, "autoreset_mode": mode}
    shown_options["max_episode_steps"] = limit
    options_text = ", ".join(f"{key}={x!r}" for key, x in shown_options.items())
    text = f"{type(env).__name__}({suite_id!r}, {options_text})"
    return text if isinstance(env, VectorEnv) else f"<{text}>"
