"""`make_policy`: makes the `LibraryPolicy` for a policy."""

from __future__ import annotations

from typing import Any

import arrayferry as af
from arrayferry.typing import AnyTree, Device

from .policies import FunctionPolicy, LibraryPolicy, ModulePolicy, is_module


def make_policy(
    policy: Any, backend: af.Backend, seed_prefix: tuple[int, ...], count: int, state: AnyTree = None, device: Device = None
) -> LibraryPolicy:  # fmt: skip
    """Return a `LibraryPolicy` that calls a policy in its library. For the arguments, see `LibraryPolicy`."""
    policy_class: type[LibraryPolicy] = ModulePolicy if is_module(policy) else FunctionPolicy
    if backend.name == "jax":
        from .jax_policy import JaxPolicy

        policy_class = JaxPolicy
    return policy_class(policy, backend, seed_prefix, count, state, device)
