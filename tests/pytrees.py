"""Structures that JAX knows, and an array of objects."""

import jax
import numpy as np


class Scaled(dict):
    def __init__(self, *args, scale=1, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = scale


@jax.tree_util.register_pytree_node_class
class Node:
    def __init__(self, x, scale=1):
        self.x, self.scale = x, scale

    def tree_flatten(self):
        return (self.x,), self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        return cls(*children, scale=scale)


@jax.tree_util.register_pytree_node_class
class Registered(Scaled):
    def tree_flatten(self):
        return tuple(self.values()), (tuple(self), self.scale)

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(zip(aux[0], children, strict=True), scale=aux[1])


def objects(*items):
    found = np.empty(len(items), object)
    for index, item in enumerate(items):
        found[index] = item
    return found
