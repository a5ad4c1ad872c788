"""Vector environments of any library for TorchRL."""

import pytest
from recipes import run

pytest.importorskip("torchrl")


@pytest.mark.filterwarnings("ignore:Creating .* is deprecated:DeprecationWarning")  # its own
def test_the_recipe():
    assert run("TorchRL")["steps"].shape == (16, 8)
