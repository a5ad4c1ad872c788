"""Vector environments of any library for TorchRL."""

import pytest
from recipes import run

pytest.importorskip("torchrl")


# The conformance kit, in the order in which TorchRL resets and steps.


# Spaces of every kind. The observation is the last action.


@pytest.mark.filterwarnings("ignore:Creating .* is deprecated:DeprecationWarning")  # its own
def test_the_recipe():
    assert run("TorchRL")["steps"].shape == (16, 8)
