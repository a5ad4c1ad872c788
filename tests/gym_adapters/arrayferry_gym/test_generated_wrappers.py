"""The classes of wrappers are those that the tool writes from the kernels."""

import inspect
import runpy
from pathlib import Path

import pytest

from arrayferry_gym import wrappers
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers._kernels.kernel import arguments_of

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "wrappers.py"))
WRAPPERS = [
    (getattr(kernels, name), wrapper)
    for module in (wrappers, wrappers.vector)
    for name, wrapper in vars(module).items()
    if getattr(wrapper, "__module__", None) == module.__name__ and name in kernels.__all__
]


def test_they_are_those_that_the_tool_writes():
    assert len(TOOL["WRITTEN"]) == 4
    for place, text in TOOL["WRITTEN"].items():
        assert place.read_text() == text(), "Run: python tools/wrappers.py"


@pytest.mark.parametrize(("kernel", "wrapper"), WRAPPERS)
def test_a_wrapper_has_the_signature_of_its_kernel(kernel, wrapper):
    own, inner = (list(inspect.signature(each).parameters.values()) for each in (wrapper, kernel))
    assert own[0].name == "env"
    assert own[1:] == inner
    assert wrapper.__name__ == kernel.__name__ == getattr(kernels, kernel.__name__).__name__
    assert "Examples:" in wrapper.__doc__
    for parameter in own:
        assert f"    {parameter.name}: " in wrapper.__doc__


@pytest.mark.parametrize(
    "kernel", dict.fromkeys(kernel for kernel, _ in WRAPPERS), ids=lambda kernel: kernel.__name__
)
def test_the_attributes_of_a_kernel_are_its_arguments(kernel):
    parameters = inspect.signature(kernel).parameters.values()
    needed = {each.name: 1 for each in parameters if each.default is each.empty}
    assert [*arguments_of(kernel(**needed))] == [each.name for each in parameters]
