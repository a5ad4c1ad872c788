"""Properties that hold for any tree of arrays of any libraries, in a series of values that change a little."""

import sys
import warnings
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import stateful

pytestmark = pytest.mark.needs("torch")


@hypothesis.given(st.randoms(use_true_random=False))
def test_structure_values_and_identity(rng):
    with warnings.catch_warnings(action="ignore"):
        stateful.one_converter(rng, 4)
