"""Spreads batches of environments over several devices."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

import arrayferry as af
from arrayferry.typing import AnyArray, AnyTree


def batch_sharding(sharding: Any, n: int) -> Any:
    """Check the sharding of a batch, and return a sharding for compiled code. Return None if `sharding` is None.

    Args:
        sharding: a sharding that splits only the axis of environments.
        n: the number of environments.

    Raises:
        arrayferry.OptionError: the sharding cannot split the environments.
    """
    if sharding is None:
        return None
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        raise af.OptionError(
            f"sharding={sharding!r:.80} is not valid",
            remedy='Pass jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("envs")), with a mesh of devices.',
        )
    if any(part is not None for part in sharding.spec[1:]):
        raise af.OptionError(
            f"sharding={sharding!r:.80} splits more than the axis of environments",
            remedy="Name axes of the mesh only in the first part of the PartitionSpec.",
        )
    # the new mesh has Auto axes, since with Explicit axes, all code of the environment and the
    # policy would need shardings
    mesh = Mesh(sharding.mesh.devices, sharding.mesh.axis_names)
    sharding = NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
    try:
        sharding.shard_shape((n,))
    except ValueError as error:
        raise af.OptionError(
            f"{n} environments cannot be split over the {mesh.size} devices of the mesh",
            remedy="Use a number of environments that is divisible by the number of devices.",
        ) from error
    return sharding


def spread(tree: AnyTree, n: int, sharding: Any) -> Any:
    """Spread the arrays with an axis of environments over the devices, in compiled code."""
    if sharding is None:
        return tree

    def constrained(x: AnyArray) -> Any:
        return jax.lax.with_sharding_constraint(x, sharding) if x.shape[:1] == (n,) else x

    return jax.tree.map(constrained, tree)
