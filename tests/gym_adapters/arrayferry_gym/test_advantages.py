"""Advantages: the sums that their definition says, in each library, and right where episodes end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from definitions import FACTORS, summed

import arrayferry as af
from arrayferry_gym import advantages

library = pytest.mark.parametrize("library", ["numpy", "torch", "jax", "array_api_strict", "dask"])


def steps(shape, dtype, seed=0, ends=0.15):
    rng = np.random.default_rng(seed)
    rewards, values, after = (rng.normal(size=shape).astype(dtype) for _ in range(3))
    terminated, truncated = (rng.random(shape[:2]) < ends for _ in range(2))
    after[terminated] = np.nan  # what is beyond the end does not matter
    return rewards, values, after, terminated, truncated


@library
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 2), (1, 3), (0, 3)], ids=str)
def test_the_sums_of_the_definition(library, dtype, shape, enable_x64):
    given = steps(shape, dtype)
    rtol = 1e-12 if dtype is np.float64 else 1e-4
    with enable_x64(dtype is np.float64):
        for factors in (FACTORS, {"gamma": 0.9, "lam": 1}):
            found = advantages(*(af.convert(x, library) for x in given), **factors)
            assert af.backend_of(found).name.startswith(library.partition("_")[0])
            found = af.convert(found, "numpy")
            assert found.dtype == dtype
            np.testing.assert_allclose(found, summed(*given, **factors), rtol=rtol, atol=rtol)


def test_arrays_of_several_libraries_become_that_of_the_values():
    """As rewards in NumPy and values in PyTorch, with a discount for each reward."""
    rewards, values, after, *flags = steps((20, 4, 2), np.float64)
    values = torch.tensor(values, dtype=torch.float32, requires_grad=True)
    gamma = np.array([0.9, 0.5])
    found = advantages(rewards, values, jnp.asarray(after), *flags, gamma=gamma, lam=0.8)
    assert found.dtype == torch.float32
    expected = summed(rewards, values.detach(), after, *flags, gamma=gamma, lam=0.8)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-4, atol=1e-4)
    found.sum().backward()
    assert torch.isfinite(values.grad).all()


@library
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_flags_of_other_dtypes(library, dtype):
    *given, terminated, truncated = steps((6, 3), np.float32)
    counts = np.arange(18).reshape(6, 3) % 5 > 0
    flags = [
        af.convert(x.astype(dtype), library, narrowing="allow")
        for x in (terminated, truncated, counts)
    ]
    values = af.convert(given[1], library)
    found = advantages(given[0], values, given[2], *flags[:2], counts=flags[2], **FACTORS)
    expected = summed(*given, terminated, truncated, counts, **FACTORS)
    np.testing.assert_allclose(af.convert(found, "numpy"), expected, rtol=1e-4, atol=1e-4)


@library
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 2), (0, 3), (5, 0), (5, 0, 2), (0, 0)], ids=str)
def test_rewards_of_other_dtypes(library, dtype, shape):
    rewards, values, after, *flags = steps(shape, np.float32)
    rewards = (rewards > 0).astype(dtype)
    given = [af.convert(x, library) for x in (rewards, values, after, *flags)]
    gamma = af.convert(np.ones(shape[2:], dtype), library) if shape[2:] else True
    found = af.convert(advantages(*given, gamma=gamma, lam=0.5), "numpy")
    assert found.dtype == np.float32
    factors = {"gamma": 1.0, "lam": 0.5}
    expected = summed(rewards.astype("f4"), values, after, *flags, **factors)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_rewards_beyond_the_dtype_of_the_values_are_refused(library, dtype):
    rewards, values, after, *flags = (
        af.convert(x, library) for x in steps((2, 3), np.float16, ends=0.0)
    )
    rewards = af.convert(np.full((2, 3), 100_000, dtype), library)
    with pytest.raises(af.OptionError, match=r"does not fit .*float16, the dtype of the values"):
        advantages(rewards, values, after, *flags, **FACTORS)


def test_traced_arrays_are_not_read():
    """Neither the numbers of flags, nor constants that have the dtype of traced values."""
    rewards, values, after, *flags = steps((4, 3), np.float64)
    found = jax.jit(lambda x, ended: advantages(rewards, x, after, ended, flags[1], **FACTORS))
    assert found(values.astype(np.float16), flags[0] * 1.0).dtype == np.float16


def test_gradients_agree():
    rewards, values, after, *flags = steps((12, 3), np.float32)
    after = np.nan_to_num(after)

    def loss(values, after):
        return (advantages(rewards, values, after, *flags, **FACTORS) ** 2).sum()

    ours = jax.jit(jax.grad(loss, (0, 1)))(jnp.asarray(values), jnp.asarray(after))
    leaves = [torch.tensor(x, requires_grad=True) for x in (values, after)]
    loss(*leaves).backward()
    for x, y in zip(ours, leaves, strict=True):
        np.testing.assert_allclose(x, y.grad, rtol=1e-4, atol=1e-4)


X, FLAGS = np.zeros((3, 2), np.float64), np.zeros((3, 2), bool)
WRONG = {
    "no flags": ((X, X, X), {}, "needs terminated and truncated"),
    "values with an axis more": ((X, X[..., None], X, FLAGS, FLAGS), {}, r"rewards has the shape \(3, 2\)"),
    "next values of one step": ((X, X, X[-1], FLAGS, FLAGS), {}, r"next_values has the shape \(2,\).*Pass next_values separately"),
    "flags that are 2": ((X, torch.zeros(3, 2), X, FLAGS + 2.0, FLAGS), {}, "terminated has numbers other than 0 and 1"),
    "flags that are NaN": ((X, X, X, FLAGS, FLAGS + np.nan), {}, "truncated has numbers other than 0 and 1"),
    "counts that are 0.5": ((X, jnp.zeros((3, 2)), X, FLAGS, FLAGS), {"counts": FLAGS + 0.5}, "counts has numbers other"),
    "flags of other steps": ((X, X, X, FLAGS[:2], FLAGS), {}, r"terminated has the shape \(2, 2\)"),
    "values of whole numbers": ((X, X.astype(int), X, FLAGS, FLAGS), {}, "not an array of floats"),
    "values in a list": ((X, X.tolist(), X, FLAGS, FLAGS), {}, "not an array of floats"),
    "a discount for each step": ((X, X, X, FLAGS, FLAGS), {"gamma": X}, r"gamma has the shape \(3, 2\)"),
    "an array above 1": ((X, X, X, FLAGS, FLAGS), {"lam": np.array(1.5)}, "lam="),
    "a discount in text": ((X, X, X, FLAGS, FLAGS), {"gamma": "0.9"}, "gamma='0.9'"),
    "flags of time alone": ((X, X, X, FLAGS[:, 0], FLAGS), {}, r"terminated has the shape \(3,\)"),
    "rewards that values cannot hold": ((X + 1e5, X.astype("f2"), X, FLAGS, FLAGS), {}, "fit float16"),
    "next values that they cannot hold": ((X, torch.zeros(3, 2), X + 1e300, FLAGS, FLAGS), {}, "fit torch.float32"),
    "masked rewards": ((np.ma.array(X, mask=~FLAGS), X, X, FLAGS, FLAGS), {}, "takes no masked"),
    "complex rewards": ((X + 1j, X, X, FLAGS, FLAGS), {}, "takes no masked, sparse or complex"),
    "sparse values": ((X, torch.zeros(3, 2).to_sparse(), X, FLAGS, FLAGS), {}, "takes no masked, sparse"),
    "a discount above 1": ((X, X, X, FLAGS, FLAGS), {"gamma": 1.5}, "gamma=1.5"),
    "a decay that is no number": ((X, X, X, FLAGS, FLAGS), {"lam": float("nan")}, "lam=nan"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_named(wrong):
    given, options, message = WRONG[wrong]
    with pytest.raises(af.OptionError, match=message):
        advantages(*given, **{**FACTORS, **options})


def test_it_is_compiled_once():
    compiled = []

    def count(name, seconds, **more):
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(count)
    x, never = jnp.ones((5, 3)), jnp.zeros((5, 3), bool)
    for lam in (0.5, 0.6, 0.7):
        compiled.clear()
        advantages(x, x, x, never, never, gamma=lam, lam=lam)
    assert compiled == []
