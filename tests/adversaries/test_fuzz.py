"""The fuzzer runs for a while, and finds planted failures."""

import pytest

QUIET = {"PYTHONWARNINGS": "ignore"}


@pytest.mark.long
@pytest.mark.needs("torch")
def test_raw_buffers_never_crash_and_keep_their_values(run_python):
    script = "import fuzz; print(fuzz.fuzz(400, first=7_000_000))"
    assert run_python(script, env=QUIET, timeout=900).strip() == "[]"


@pytest.mark.long
@pytest.mark.parametrize("count", [15_000, 60_000])
def test_memory_does_not_grow(run_python, count):
    script = f"import fuzz; print(fuzz.growth({count}))"
    grown = int(run_python(script, env=QUIET, timeout=900))
    assert grown < count * 160


def test_the_fuzzer_finds_a_crash_and_a_wrong_value(run_python):
    out = run_python(
        "import fuzz, os, signal\n"
        "def dies(seed):\n"
        "    if seed == 12: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "print(fuzz.in_child(range(10, 20), dies))\n"
        "def wrong(seed):\n"
        "    assert seed != 13, 'not equal'\n"
        "print(fuzz.in_child(range(10, 20), wrong))\n",
        env=QUIET,
    )
    crash, wrong = out.splitlines()
    assert crash.startswith("(12, 'the process died")
    assert wrong.startswith("(13, ")
    assert "not equal" in wrong
