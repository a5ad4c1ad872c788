"""`SavedVectorEnv`: translated environments that are loaded from a file and run without JAX."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.options import known_options, mixed_seed, seed_of
from arrayferry.typing import AnyTree, Device, Target
from arrayferry_envs._contract.actions import Actions
from arrayferry_envs._contract.errors import usable
from arrayferry_envs._contract.pickled import PickledArrays
from arrayferry_envs._contract.plain_spaces import space_in_json, space_of_json
from arrayferry_gym.extending import ServesFunctional, autoreset_mode_of, reset_mask_of
from arrayferry_translate import ProgramError, function_of, read_all, save_all, translate

from .serving import set_spaces, showing

ENDING = ".afp"
KEPT = ("num_envs", "autoreset_mode", "max_episode_steps")
"""The options that a file stores."""


def save(envs: Any, path: str | os.PathLike[str]) -> None:
    """Write translated environments to a file: their programs, spaces, autoreset mode and step limit."""
    is_saveable = envs._translated and not envs._differentiable
    if not is_saveable or not os.fspath(path).endswith(ENDING):
        raise af.OptionError(
            f"{envs!r:.80} cannot be saved as {os.fspath(path)!r}",
            remedy=f"Make them with translate=True, without differentiable=True, and end the name in {ENDING}.",
        )
    import jax

    from arrayferry_envs._engine.jax_stepper import JaxStepper, functions

    engine, n, params = envs._stepper.engine, envs.num_envs, envs._params
    stepper = JaxStepper(engine)
    stepper.seed(0)
    values, _ = stepper._prepared(params)
    initial_kernels, keys, first_key = stepper._kernels, stepper._keys, stepper.rng.key()
    generator = jax.random.key_impl(first_key)
    begin, step = functions(
        engine, None, params.static_part, params.any_batched, params.pinned, generator
    )
    leaves, kernels, _ = jax.eval_shape(begin, (), initial_kernels, first_key, None, values, None)

    def key_from_seed(first: Any, second: Any, small: Any) -> Any:
        key = jax.random.key(first)
        keys = jax.random.key_data(key), jax.random.key_data(jax.random.fold_in(key, second))
        return jax.numpy.where(small, *keys)

    def split_key(key: Any) -> Any:
        keys = jax.random.split(jax.random.wrap_key_data(key, impl=generator), 4)
        return jax.random.key_data(keys)

    word, action = np.uint32(0), batch_space(envs._chain.outside.action, n).sample()
    traced_calls: dict[str, tuple[Any, ...]] = {
        "seeded": (key_from_seed, word, word, np.bool_(1)),
        "split": (split_key, jax.random.key_data(first_key)),
        "begin": (begin, (), initial_kernels, first_key, None, values, None),
        "begin_some": (begin, leaves, kernels, first_key, np.zeros(n, bool), values, None),
        "step": (step, leaves, keys, kernels, action, values),
        "held": (lambda: (initial_kernels, values),),
    }
    programs = {
        name: translate(call, "jax").program(*args) for name, (call, *args) in traced_calls.items()
    }
    metadata = {
        "name": envs.suite_id or engine.env.name,
        "num_envs": n,
        "autoreset_mode": envs.autoreset_mode.value,
        "max_episode_steps": envs._limit,
        "acts": engine.chain.acts,
        "observation_space": space_in_json(envs._chain.outside.observation),
        "action_space": space_in_json(envs._chain.outside.action),
    }
    save_all(path, programs, metadata)


class SavedVectorEnv(PickledArrays, ServesFunctional, VectorEnv[Any, Any, Any]):
    """Environments from a file that `FunctionalVectorEnv.save` wrote, as returned by `make_vec("name.afp", n)`.

    Args:
        path: the file.
        num_envs: the number of environments, the same as in the file.
        xp: the library of observations, rewards and actions.
        device: the device of the arrays, or None for the library's default.
        check_actions: as in `FunctionalVectorEnv`.
        **fixed: options that must be the same as in the file: `autoreset_mode`, `max_episode_steps`, `translate`.

    Raises:
        FileNotFoundError: the file does not exist.
        arrayferry_translate.ProgramError: the file contains no environments, or is damaged.
        arrayferry.OptionError: an option is invalid, or differs from the file.
    """

    _held = "_leaves", "_kernels", "_keys", "_values", "_random"

    def __init__(
        self, path: str | os.PathLike[str], num_envs: int, *, xp: Target = "numpy", device: Device = None,
        check_actions: Any = "fit", **fixed: Any,
    ) -> None:  # fmt: skip
        programs, metadata = read_all(path)
        try:
            count, self._name = metadata["num_envs"], metadata["name"]
            space_jsons = metadata["observation_space"], metadata["action_space"]
            observation, action = map(space_of_json, space_jsons)
            self.autoreset_mode = autoreset_mode_of(metadata["autoreset_mode"])
            self._limit, self._acts = metadata["max_episode_steps"], metadata["acts"]
        except (AttributeError, LookupError, TypeError, ValueError):
            raise ProgramError(
                f"{os.fspath(path)} contains no environments",
                remedy="Save some by make_vec(..., translate=True).save(path).",
            ) from None
        saved_options = {name: metadata[name] for name in KEPT} | {"translate": True}
        for name, option in {"num_envs": num_envs, **fixed}.items():
            if name not in saved_options:
                raise af.OptionError(
                    f"{name} was passed, but saved environments have no such option",
                    remedy="Leave it out. The file contains parameters and kernels, but no gradients.",
                )
            if option != saved_options[name]:
                raise af.OptionError(
                    f"{name}={option!r:.80}, but {os.fspath(path)} was saved with {name}={saved_options[name]!r}",
                    remedy=f"Pass {name}={saved_options[name]!r}, or save other environments.",
                )
        backend = usable(af.registry.backend(xp))
        self.num_envs, self.check_actions = count, check_actions
        self.metadata = {"autoreset_mode": self.autoreset_mode, "jax": backend.name == "jax"}
        self._programs = {name: function_of(program, backend) for name, program in programs.items()}
        self._entered = af.converter(backend, device=device, copy=True)
        self._actions = Actions(self._name, action, count, backend, device, check=check_actions)
        set_spaces(self, observation, action, showing(backend, device))
        self._kernels, self._values = self._entered(self._programs["held"]())
        self._leaves: Any = ()
        self._random: list[Any] = []

    def __repr__(self) -> str:
        return f"SavedVectorEnv({self._name!r}, num_envs={self.num_envs}, xp={self._entered.target.name!r})"

    def _key(self, stream: list[Any]) -> Any:
        """Return the next key of a stream. Keys are the same as those of environments in JAX."""
        if len(stream) == 1:
            keys = self._programs["split"](stream[0])
            stream[:] = [keys[number, ...] for number in range(keys.shape[0])]
        return stream.pop()

    def _stream(self, seed: int | None) -> list[Any]:
        is_small = seed is not None and seed < 2**32
        seed_words = [seed, 0] if is_small else np.random.SeedSequence(seed).generate_state(2)
        key = self._programs["seeded"](*map(np.uint32, seed_words), np.bool_(is_small))
        return [self._entered(key)]

    def _seed(self, seed: Any) -> None:
        env_seed = mixed_seed("environments", seed) if isinstance(seed, list) else seed
        self._random = self._stream(env_seed)
        keys = [self._key(self._random), self._key(self._random)]
        if self._acts:
            seeds = seed if isinstance(seed, list) else [seed]
            keys.append(self._key(self._stream(mixed_seed("kernels", seeds, 0))))
        self._keys = af.namespace_of(keys[0]).stack(keys)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those where "reset_mask" in `options` is true. Seeds work as in JAX."""
        (mask,) = known_options("reset() of saved environments", options, "reset_mask")
        if mask is not None:
            mask = self._entered(reset_mask_of(mask, self.num_envs))
        seed = seed_of(seed, self.num_envs)
        if seed is not None or not self._random:
            self._seed(seed)
        self.closed = False
        key = self._key(self._random)
        if mask is not None and self._leaves:
            program, leaves = self._programs["begin_some"], self._leaves
        else:
            program, leaves, mask = self._programs["begin"], (), None
        outputs = program(leaves, self._kernels, key, mask, self._values, None)
        self._leaves, self._kernels, result = outputs
        return result  # type: ignore[no-any-return]

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments, with actions of any library."""
        if not self._leaves:
            raise gym.error.ResetNeeded("Call reset() before the first step, and after close().")
        self._leaves, self._kernels, self._keys, (result, added) = self._programs["step"](
            self._leaves, self._keys, self._kernels, self._actions(actions), self._values
        )
        for key, value in added.items():
            mask = added.get(f"_{key.removeprefix('_')}")
            if mask is None or af.convert(mask, "numpy").any():
                result[4][key] = value
        return result  # type: ignore[no-any-return]

    def close_extras(self, **kwargs: Any) -> None:
        """Discard the states."""
        self._leaves = ()
