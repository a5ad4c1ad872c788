"""What is called again and again while something fails. No array library but NumPy is imported for it."""

import gymnasium as gym
import numpy as np

import arrayferry as af
from arrayferry_envs import CartPole, wrap
from arrayferry_gym import ArrayConversion

X = np.arange(4, dtype=np.float32)


def read(value):
    return [np.asarray(af.convert(x, "numpy")).tolist() for x in af.flatten(value)[0]]


def tree(target, source="numpy"):
    conversion, x = af.converter(target), af.convert(X, source)
    value = {"a": X, "b": [x, "text", (X, 3)]}
    return lambda: conversion(value)


def function(own, library, source):
    called, y = af.agnostic(library)(own), af.convert(X, source)
    return lambda: called(y, b=y)


def adapter(target, action):
    env = ArrayConversion(gym.make("CartPole-v1", disable_env_checker=True), target_xp=target)
    return lambda: (env.reset(seed=1)[0], *env.step(action)[:2])


def vector(*chain, results=2):
    envs = wrap(CartPole(), *chain).make_vec(2)
    return lambda: (envs.reset(seed=1)[0], *envs.step(np.array([0, 1]))[:results])
