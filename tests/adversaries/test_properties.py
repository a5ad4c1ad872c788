"""Properties that hold for any tree of arrays of any libraries, in a series of values that change a little."""

import warnings

import hypothesis
import pytest
import stateful
from hypothesis import strategies as st

pytestmark = pytest.mark.needs("torch")


@hypothesis.given(st.randoms(use_true_random=False))
def test_structure_values_and_identity(rng):
    with warnings.catch_warnings(action="ignore"):
        stateful.one_converter(rng, 4)
