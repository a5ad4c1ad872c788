"""Trajectories of served environments, and comparisons of them."""

import numpy as np

import arrayferry as af

PUSHES = np.random.default_rng(0).integers(0, 2, (40, 4))


def walked(envs, steps=12, actions=PUSHES, seed=3):
    """Return all results of a reset and of steps, in NumPy, without the time that an episode took."""
    results = [envs.reset(seed=seed)]
    for action in actions[:steps]:
        results.append(envs.step(action))
        results[-1][4].get("episode", {}).pop("t", None)
    return af.convert(results, "numpy")


def assert_same(given, expected):
    """Compare trees: all but floats are equal, and floats are close."""
    (ours, layout), (theirs, other) = af.flatten(given), af.flatten(expected)
    assert layout.paths == other.paths
    for path, x, y in zip(layout.paths, ours, theirs, strict=True):
        x, y = (np.asarray(af.convert(value, "numpy")) for value in (x, y))
        assert (x.dtype, x.shape) == (y.dtype, y.shape), path
        if x.dtype.kind == "f":
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=path)
        else:
            np.testing.assert_array_equal(x, y, err_msg=path)
