"""Policies called from Python: functions of any library, and modules of PyTorch."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry._utilities.options import stream_seed
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Device
from arrayferry_envs._contract.policies import checked_results, policy_rows
from arrayferry_gym import make_rng
from arrayferry_gym.extending import namespace, select

TO_NUMPY = af.converter("numpy", copy=False, unsupported="keep")


def is_module(policy: Any) -> bool:
    """Return whether a policy is a module of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(policy, torch.nn.Module)


class LibraryPolicy:
    """Calls a policy, a function of any library, with arrays of this library.

    Args:
        policy: the policy, as the user passed it.
        backend: the library of the policy.
        seed_prefix: integers that seed the policy's random numbers, together with the number passed to `begin`.
        count: the number of environments, n.
        state: the policy's state at the beginning of an episode, arrays (n, ...), or None for a policy without a state.
        device: the device of the policy's arguments, or None for the library's default.

    Attributes:
        library: the name of the policy's library.
    """

    def __init__(
        self, policy: Any, backend: af.Backend, seed_prefix: tuple[int, ...], count: int, state: AnyTree, device: Device
    ) -> None:  # fmt: skip
        self._policy = policy
        self._backend = backend
        self.library: str = backend.name
        self._device = device
        self._convert = af.converter(backend, device=device)
        self._seed_prefix = seed_prefix
        self._params: Any = None
        self._first_state = self._state = self._initial(state, count)
        self._state_name = () if state is None else ("policy_state",)

    def _initial(self, state: AnyTree, count: int) -> Any:
        """Check the initial state of the policy, and convert it to the policy's library. None stays None."""
        policy_rows(state, count)
        return None if state is None else self._convert(state)

    def begin(self, number: int) -> None:
        """Begin a segment: consecutive steps whose random numbers depend on the segment's `number`."""
        seed = stream_seed("policy", *self._seed_prefix, number)
        self._rng = make_rng(self._backend, seed, self._device)
        self._torch = TorchNumbers(seed, self._device)

    def load(self, params: AnyTree) -> None:
        """Load the parameters of the policy."""
        self._params = af.convert(params, self._backend, unsupported="keep", unknown="keep")

    def __call__(self, observation: AnyTree, began: AnyArray, step: int) -> tuple[Any, Any]:
        """Return actions and extras in the policy's library.

        Args:
            observation: the batch of observations, in any library.
            began: which environments begin an episode, bool (n,) of NumPy.
            step: the number of the step in the segment, counted from 0.
        """
        if self.library != "numpy" or type(observation) is not np.ndarray:
            observation = self._convert(observation)
        state = () if self._first_state is None else (self._state_of(began),)
        with self._torch.drawing():
            action, extras, *next_state = self._results(observation, *state)
        self._state = next_state[0] if next_state else None
        return action, extras

    def _results(self, observation: AnyTree, *state: Any) -> tuple[Any, ...]:
        """Call the policy. Return the actions, the extras and, for a policy with a state, the next state."""
        result = self._policy(self._params, observation, self._rng, *state)
        return checked_results(result, "action", "extras", *self._state_name)

    def _state_of(self, began: AnyArray) -> Any:
        """Return the state of the policy, reset to the initial state where an episode begins."""
        mask = self._convert(began)
        initial, layout = af.flatten(self._first_state)
        state, new_layout = af.flatten(self._state)
        if layout != new_layout:
            raise af.OptionError(
                f"the policy received a policy_state of structure {layout}, but returned {new_layout}",
                remedy="Return states of the same structure as policy_state.",
            )
        xp = namespace(self._backend)
        rows = [select(xp, mask, x, y) for x, y in zip(initial, state, strict=True)]
        return layout.unflatten(rows)

    def given(self, observation: AnyTree) -> str:
        """Describe the observations that the policy receives, for errors."""
        arrays = af.flatten(self._convert(observation))[0]
        array_texts = ", ".join(f"{dtype_name(x.dtype)} {tuple(x.shape)}" for x in arrays[:4])
        return f"observations of {self.library}: {array_texts}{', ...' * (len(arrays) > 4)}"

    def in_numpy(self, action: AnyTree, extras: AnyTree) -> tuple[Any, Any]:
        """Return the actions and extras of a call as NumPy arrays."""
        if type(action) is np.ndarray and self.library == "numpy":
            return action, extras
        return TO_NUMPY((action, extras))


class ModulePolicy(LibraryPolicy):
    """A module of PyTorch that maps observations to actions. A state of the policy is a second argument and result."""

    def load(self, params: AnyTree) -> None:
        if params is not None:
            self._policy.load_state_dict(af.convert(params, "torch", unsupported="keep"))

    def _results(self, observation: AnyTree, *state: Any) -> tuple[Any, ...]:
        result = self._policy(observation, *state)
        if not state:
            return result, None
        action, next_state = checked_results(result, "action", *self._state_name)
        return action, None, next_state


class TorchNumbers:
    """Seeds the random numbers that PyTorch draws by itself in a policy, as in `Categorical.sample`.

    PyTorch's own generators are restored after each call of the policy.

    Args:
        seed: the seed of PyTorch's generators.
        device: the device of the policy. The generators of this device and of the CPU are seeded.
    """

    def __init__(self, seed: int, device: Device) -> None:
        self._seed = seed % 2**63
        self._device = device
        self._own: list[Any] = []

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """In a block, let PyTorch draw from the seeded generators, and record no gradients."""
        torch = sys.modules.get("torch")
        if torch is None:
            yield
            return
        with _drawing, torch.no_grad():
            shared = _generators(torch, self._device)
            if not self._own:
                self._own = [torch.Generator(x.device).manual_seed(self._seed) for x in shared]
            states = [default.get_state() for default in shared]
            try:
                for default, private in zip(shared, self._own, strict=True):
                    default.set_state(private.get_state())
                yield
            finally:
                for default, private, state in zip(shared, self._own, states, strict=True):
                    private.set_state(default.get_state())
                    default.set_state(state)


_drawing = threading.RLock()
"""A lock for policies that draw from PyTorch's generators, which all threads share."""


def _generators(torch: Any, device: Device) -> list[Any]:
    """Return PyTorch's default generators of the CPU and of a device."""
    generators = [torch.default_generator]
    if device is not None and (torch_device := torch.device(device)).type == "cuda":
        torch.cuda.init()
        index = torch.cuda.current_device() if torch_device.index is None else torch_device.index
        generators.append(torch.cuda.default_generators[index])
    return generators
