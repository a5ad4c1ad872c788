"""The fuzzer runs for a while, and finds planted failures."""

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def run(run_python: Callable[..., str]) -> Callable[[str], str]:
    """Run a script in a fresh interpreter, where no library has started threads before the fork."""
    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {"PYTHONPATH": os.pathsep.join(places), "PYTHONWARNINGS": "ignore"}
    return functools.partial(run_python, env=env, timeout=900)


@pytest.mark.long
@pytest.mark.needs("torch")
@pytest.mark.parametrize("count", [50, 400])
def test_raw_buffers_never_crash_and_keep_their_values(run, count):
    assert run(f"import fuzz; print(fuzz.fuzz({count}, first=7_000_000))").strip() == "[]"


@pytest.mark.long
@pytest.mark.parametrize("count", [15_000, 60_000])
def test_memory_does_not_grow(run, count):
    grown = int(run(f"import fuzz; print(fuzz.growth({count}))"))
    assert grown < count * 160


def test_the_fuzzer_finds_a_crash_and_a_wrong_value(run):
    out = run(
        "import fuzz, os, signal\n"
        "def dies(seed):\n"
        "    if seed == 12: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "print(fuzz.in_child(range(10, 20), dies))\n"
        "def wrong(seed):\n"
        "    assert seed != 13, 'not equal'\n"
        "print(fuzz.in_child(range(10, 20), wrong))\n"
    )
    crash, wrong = out.splitlines()
    assert crash.startswith("(12, 'the process died")
    assert wrong.startswith("(13, ")
    assert "not equal" in wrong
