"""Shared fixtures: the installed libraries, and arrays of each."""

import contextlib
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import arrayferry as af

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parent / "adversaries"))

import boxes
import toys

_MODULES = sys.path[:2]
"""Where scripts find the modules of the tests, too."""

_EXAMPLES = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("test", max_examples=50, derandomize=True, **_EXAMPLES)
hypothesis.settings.register_profile("test-all", max_examples=500, **_EXAMPLES)
hypothesis.settings.load_profile("test")

# `make settings` runs the tests under some of these, which users choose for all that they run.
_CHOSEN = [*filter(None, os.environ.get("ARRAYFERRY_SETTING", "").split(","))]
_SETTINGS: dict[str, Callable[[], object]] = {
    "x64": lambda: jax.config.update("jax_enable_x64", True),
    "rbg": lambda: jax.config.update("jax_default_prng_impl", "rbg"),
    "rank": lambda: jax.config.update("jax_numpy_rank_promotion", "raise"),
    "strict": lambda: jax.config.update("jax_numpy_dtype_promotion", "strict"),
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "no_grad": lambda: torch.set_grad_enabled(False),
    "seterr": lambda: np.seterr(all="raise"),
}
if _CHOSEN:
    import jax
    import numpy as np
    import torch

    for _setting in _CHOSEN:
        _SETTINGS[_setting]()

# What JAX has compiled for one test is not compiled again for another. Each process has a folder
# of its own, since JAX does not lock it.
_COMPILED = tempfile.mkdtemp(prefix="arrayferry-tests-")
with contextlib.suppress(ModuleNotFoundError):
    import jax

    jax.config.update("jax_compilation_cache_dir", _COMPILED)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_unconfigure() -> None:
    shutil.rmtree(_COMPILED, ignore_errors=True)


# Workers of clusters, also those that take the place of killed ones, need not import everything anew.
with contextlib.suppress(ModuleNotFoundError):
    import dask

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--installed",
        action="store_true",
        help="skip what needs a library that is missing, for those who package this",
    )


def _skipped_if_missing(report: Any, node: pytest.Collector | pytest.Item) -> Any:
    text = r"(?:ModuleNotFound|BackendUnavailable|UnknownBackend)Error: .*"
    missing = re.findall(text, str(report.longrepr)) if report.failed else []
    own = missing and re.search(r"'(arrayferry\w*|numpy|pluggy)|no plugin", missing[-1])
    if missing and not own and node.config.getoption("--installed"):
        report.outcome, report.longrepr = "skipped", (str(node.path), 0, missing[-1])
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    return _skipped_if_missing((yield), collector)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    return _skipped_if_missing((yield), item)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("assumes_other"):
        for setting in set(_CHOSEN).intersection(marker.args):
            pytest.skip(f"the test assumes another setting than {setting}")


# Collection imports all libraries, and need not search them for garbage.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def old_objects_are_not_searched() -> None:
    """Search only what a module makes for garbage, and not the million objects of all libraries.

    Each of the many `gc.collect()` of the tests takes half a second otherwise. What JAX has compiled for other modules
    is dropped, as it would take gigabytes.
    """
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def tracer_is_kept() -> Iterator[None]:
    """Fail a test that ends the tracing of coverage, which would see nothing of the next tests."""
    before = sys.gettrace()
    yield
    if sys.gettrace() is not before:
        sys.settrace(before)
        pytest.fail("the test leaves another function in sys.settrace than it found")


@pytest.fixture
def registry() -> af.Registry:
    """A separate registry with the built-in plugins."""
    return af.Registry()


@pytest.fixture(scope="session")
def enable_x64() -> Callable[[bool], Any]:
    """Return JAX's context manager for 64-bit dtypes, which older versions keep elsewhere."""
    import jax
    import jax.experimental

    place: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    found: Callable[[bool], Any] = place.enable_x64
    return found


@pytest.fixture
def x64() -> Iterator[None]:
    """Turn on JAX's 64-bit dtypes in all threads, as gradients may be computed in another one."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def register() -> Iterator[Callable[[Any], Any]]:
    """Register parts for the time of the test."""
    with contextlib.ExitStack() as stack:

        def add(part: Any, **own: Any) -> Any:
            stack.enter_context(boxes.registered(part, **own))
            return part

        yield add


@pytest.fixture
def boxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the library of `boxes.py` as if it was installed."""
    monkeypatch.setitem(sys.modules, "boxlib", boxes)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the library of `toys.py` as if it was installed."""
    monkeypatch.setitem(sys.modules, "toy_library", toys)


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """Run a script in a fresh interpreter and return its output."""

    def run(script: str, *, env: dict[str, str] | None = None, timeout: float = 300) -> str:
        path = os.pathsep.join([*_MODULES, *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def run_forked() -> Callable[[Callable[[], None]], None]:
    """Call a function in a forked process."""

    def run(function: Callable[[], None]) -> None:
        tracer = sys.gettrace()
        sys.settrace(None)  # that of coverage takes a lock, which another thread may hold
        with warnings.catch_warnings(action="ignore"):  # about threads and forks
            child = os.fork()
        if child:
            sys.settrace(tracer)
        else:
            try:
                function()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "the forked process failed: see its output"

    return run


@pytest.fixture
def fork_while(run_forked: Any) -> Any:
    """Return a function that waits, and one that forks while a thread waits in it, and works in the fork."""
    inside, leave = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        leave.wait(30)

    def fork(in_thread: Any, in_fork: Any) -> None:
        thread = threading.Thread(target=in_thread)
        thread.start()
        try:
            assert inside.wait(30)
            # the alarm ends a process that hangs
            run_forked(lambda: (signal.alarm(30), leave.set(), in_fork()))
        finally:
            leave.set()
            thread.join()

    return wait, fork
