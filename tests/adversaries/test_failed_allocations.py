"""The n-th allocation of Python fails: there is an error or a right result, and right results afterwards.

Each part runs in a process of its own. PyTorch and JAX end it, as `jax.random.key(0)` alone does: neither is used.
So does NumPy now and then where it sets chosen rows of an array, as `evaluate` does.
"""

import sys
from importlib.util import find_spec

import pytest
from cases import quick_if

FAIL = """
import _testcapi, sys
import numpy as np
import arrayferry as af
from arrayferry_gym.wrappers import kernels
from calls import adapter, function, read, tree, vector

sys.unraisablehook = lambda _: None  # of objects that are deleted meanwhile

def stream():
    stream = af.stream(np.arange(6), "array_api_strict", block=2, prefetch=0)
    return lambda: list(stream)

def check(make, step):
    expected, failed, number = read(make()()), 0, -1
    while number < 40 * step or failed:
        number += step
        failed, call = max(0, failed - 1), make()
        for _ in range(number % 4):
            call()
        try:
            _testcapi.set_nomemory(number // 4, number // 4 + 1)
            found = call()
        except Exception:
            found, failed = None, 20
        finally:
            _testcapi.remove_mem_hooks()
        assert found is None or read(found) == expected, number
        for _ in range(3):
            assert read(call()) == expected, number
    print(number)
"""
PARTS = {
    "tree('numpy')": 19,
    "tree('array_api_strict')": 61,
    "function(lambda a, b: a + b, 'numpy', 'array_api_strict')": 61,
    "stream()": 211,
    "adapter('array_api_strict', np.int64(1))": 61,
    "vector(kernels.NormalizeReward(), kernels.FrameStackObservation(2), results=1)": 301,
}
"""Each n-th number is tried, so that a part takes a few seconds."""


@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this Python has no _testcapi")
@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="CPython 3.13 ends where a function cannot be allocated"
)
@pytest.mark.parametrize("part", quick_if(PARTS, {"tree('array_api_strict')"}.__contains__))
def test_the_nth_allocation_fails(run_python, part):
    script = f"{FAIL}\ncheck(lambda: {part}, {PARTS[part]})"
    tried = run_python(script, env={"PYTHONWARNINGS": "ignore"})
    assert int(tried) > 1000
