"""What many tests of functional environments take."""

import pytest
from functional_envs import LIBRARIES


@pytest.fixture(params=LIBRARIES)
def library(request):
    """Each of the libraries in which functional environments are served, by its name in `LIBRARIES`."""
    return request.param
