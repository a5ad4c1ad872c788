"""Plugins that fail in functions and streams."""

import numpy as np
import pytest
from boxes import Box, faulty

import arrayferry as af

pytestmark = pytest.mark.usefixtures("boxlib")

X = np.arange(3, dtype=np.float32)


CALLS = {
    "alone": lambda: af.convert(X, "boxes"),
    "in a tree": lambda: af.convert({"a": [X], "b": X}, "boxes"),
    "copied": lambda: af.convert(X, "boxes", copy=True),
    "on a device": lambda: af.convert(X, "boxes", device="cpu"),
    "like": lambda: af.convert(X, like=Box(X)),
    "a number": lambda: af.convert(3, "boxes", scalars="convert"),
    "a number of NumPy": lambda: af.convert(np.float32(3), "boxes"),
    "a subclass": lambda: af.convert(X.view(np.recarray), "boxes"),
    "an argument": lambda: af.agnostic("boxes")(lambda x: x)(X),
    "a stream": lambda: list(af.stream(X, "boxes", block=2)),
}


@pytest.mark.parametrize("shares", [False, None, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_backend_that_returns_its_argument(register, call, shares):
    """The NumPy array is no array of the library, although nothing was done to it."""
    register(faulty(from_numpy=lambda self, x, device=None: x, from_numpy_shares=shares))
    for _ in range(5):
        with pytest.raises(
            af.ConversionError,
            match=r"from_numpy\(\) of the backend 'boxes' returned a numpy\..*array of .*, which is an array of numpy",
        ):
            CALLS[call]()
