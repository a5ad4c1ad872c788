"""The `frozendict` of Python 3.15. JAX would sort its keys."""

from __future__ import annotations

import builtins
import sys

import jax
import numpy as np
import pytest

import arrayferry as af

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 15), reason="frozendict is new in Python 3.15"
)
X = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("times", [1, 5], ids=["once", "with a plan"])
def test_frozen_dicts(times):
    made = builtins.frozendict({"b": X, "a": "a text", 3: builtins.frozendict(c=(X, None))})
    convert = af.converter("jax")
    for _ in range(times):
        found = convert([made])[0]
        assert type(found) is type(found[3]) is builtins.frozendict
        assert list(found) == ["b", "a", 3]
        assert isinstance(found["b"], jax.Array)
        assert isinstance(found[3]["c"][0], jax.Array)
        assert found["a"] is made["a"]
        assert made["b"] is X


def test_one_that_stays_as_it_is():
    made = builtins.frozendict(b=X, a=builtins.frozendict())
    found = af.convert(made, "numpy")
    assert list(found) == ["b", "a"]
    assert found["b"] is X
    assert found["a"] == {}


def test_derived_classes():
    class Named(builtins.frozendict):
        def __new__(cls, name, items):
            made = super().__new__(cls, items)
            made.name = name
            return made

        def values(self):
            raise TypeError("not to be called")

    found = af.convert(Named("me", {"b": X, "a": 1}), "jax")
    assert type(found) is Named
    assert found.name == "me"
    assert list(found) == ["b", "a"]
    assert isinstance(found["b"], jax.Array)


def test_an_error_names_the_key():
    made = builtins.frozendict(good=X, bad=np.array(2**40))
    with pytest.raises(af.ConversionError, match=r"at \['bad'\]"):
        af.convert(made, "jax")
