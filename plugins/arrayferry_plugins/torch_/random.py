"""Random numbers of PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

from arrayferry._utilities.cache import once
from arrayferry.typing import AnyArray, AnyTree, Device
from arrayferry_gym import Random, RandomFactory, check_integers


def _in_host_memory(bound: AnyArray) -> Any:
    """Return a bound for integers as a NumPy array if it has values in host memory. Return other bounds unchanged."""
    if not getattr(bound, "is_cpu", False):
        return bound
    try:
        return bound.detach().numpy()
    except Exception:  # a traced bound has no values
        return bound


class TorchRandom(Random):
    """Random numbers from a generator of PyTorch.

    Args:
        seed: the seed.
        device: the device of the generator and of the numbers.
    """

    def __init__(self, seed: Any = None, device: Device = None) -> None:
        import torch

        self._device = torch.device("cpu" if device is None else device)
        self._seed = seed

    @once
    def _generator(self) -> Any:
        """The generator. It is made when it is first needed: to make it takes longer than a step of an environment."""
        import numpy as np
        import torch

        generator, seed = torch.Generator(self._device), self._seed
        # use a seed of 32 bits unchanged, and hash all other seeds
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
            seed = np.random.SeedSequence(seed).generate_state(1, "uint64")[0] >> np.uint64(1)
        return generator.manual_seed(int(seed))

    def getstate(self) -> Any:
        return self._generator.get_state()

    def setstate(self, state: AnyTree) -> None:
        self._generator.set_state(state)

    def _draw(self, make: Any, shape: Any, dtype: str) -> Any:
        import torch

        dtype = getattr(torch, dtype)
        return make(shape, generator=self._generator, device=self._device, dtype=dtype)

    def _tensors(self, dtype: str, *arrays: AnyTree) -> Any:
        """Return arrays as tensors. Python numbers are not converted, since they have no dtype."""
        import torch

        to_tensor = partial(torch.as_tensor, dtype=getattr(torch, dtype), device=self._device)
        return [x if isinstance(x, (int, float)) else to_tensor(x) for x in arrays]

    def uniform(
        self, shape: Any, low: AnyArray = 0.0, high: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        import torch

        shape, dtype, low, high = self._checked("uniform", shape, dtype, low, high)
        # convert the bounds before the subtraction, which may overflow in an integer dtype
        low, high = self._tensors(dtype, low, high)
        values = self._draw(torch.rand, shape, dtype)
        return values * (high - low) + low

    def normal(
        self, shape: Any, mean: AnyArray = 0.0, std: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        import torch

        shape, dtype, mean, std = self._checked("normal", shape, dtype, mean, std)
        # for a 16-bit dtype, PyTorch would draw from few different numbers
        drawn_dtype = dtype if dtype == "float64" else "float32"
        mean, std = self._tensors(drawn_dtype, mean, std)
        values = self._draw(torch.randn, shape, drawn_dtype)
        return (values * std + mean).to(getattr(torch, dtype))

    def integers(self, shape: Any, low: AnyArray, high: AnyArray, dtype: str = "int32") -> Any:
        import torch

        shape, dtype, low, high = self._checked("integers", shape, dtype, low, high)
        bounds = _in_host_memory(low), _in_host_memory(high)
        check_integers(*bounds, dtype)
        are_ints = isinstance(low, int) and isinstance(high, int)
        # from larger ranges, randint draws with unequal probabilities
        if are_ints and high < 2**63 and high - low <= 2**56:
            return self._draw(partial(torch.randint, int(low), int(high)), shape, dtype)
        if not any(isinstance(bound, torch.Tensor) for bound in bounds):
            return self._by_numpy(shape, *bounds, dtype)
        low, high = (torch.as_tensor(bound, device=self._device).long() for bound in (low, high))
        values = self._draw(torch.rand, shape, "float64") * (high - low)
        return (values.long() + low).to(getattr(torch, dtype))

    def _by_numpy(self, shape: Any, low: AnyArray, high: AnyArray, dtype: str) -> Any:
        """Draw integers by NumPy, with equal probabilities, from ranges for which PyTorch lacks a suitable function."""
        import numpy as np
        import torch

        seed = torch.randint(2**62, (), generator=self._generator, device=self._device)
        values = np.random.default_rng(int(seed)).integers(low, high, shape, dtype)
        return torch.from_numpy(values).to(self._device)

    def categorical(self, shape: Any, logits: AnyArray, dtype: str = "int32") -> Any:
        import torch

        shape, dtype, logits = self._checked("categorical", shape, dtype, logits)
        (logits,) = self._tensors(
            "float64" if "float64" in str(logits.dtype) else "float32", logits
        )
        # draw an exponential waiting time at the rate exp(logit) for each index: the index with the
        # shortest time has the distribution of the logits
        waits = torch.empty((*shape, logits.shape[-1]), device=self._device, dtype=logits.dtype)
        waits.exponential_(generator=self._generator).clamp_min_(torch.finfo(waits.dtype).tiny)
        return (logits - waits.log()).argmax(-1).to(getattr(torch, dtype))


class TorchRandomFactory(RandomFactory):
    """Makes a `TorchRandom` from a seed."""

    name = "torch"

    def make(self, seed: Any = None, device: Device = None) -> TorchRandom:
        return TorchRandom(seed, device)
