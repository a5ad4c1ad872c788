"""What is registered or imported may change at any time: in another thread, in a fork, during a call."""

import gc
import importlib
import inspect
import linecache
import sys
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import boxes
import numpy as np
import pytest
import torch
from boxes import Box, Held, HeldContainer

import arrayferry as af
from arrayferry._route import execute
from arrayferry._utilities.threads import Threads

X = np.arange(3, dtype=np.float32)


class BoxBackend(boxes.BoxBackend):
    name = "boxlib"

    def from_numpy(self, x, device=None):
        return sys.modules["boxlib"].Box(x)


class Unknown:
    pass


@pytest.fixture
def module(monkeypatch):
    """A library that is imported, so far without its array type."""
    made = types.ModuleType("boxlib")
    monkeypatch.setitem(sys.modules, "boxlib", made)
    return made


def test_a_library_that_is_imported_later(module, register):
    register(BoxBackend())
    conversions = [af.converter("torch") for _ in range(2)] * 4
    for conversion in conversions:
        assert conversion([Unknown(), X])[1].tolist() == [0, 1, 2]
    module.Box = Box
    for conversion in conversions:
        assert conversion([Box(X)])[0].tolist() == [0, 1, 2]


def test_an_array_that_was_seen_while_its_library_was_imported(module, register):
    register(BoxBackend())
    module.__spec__ = types.SimpleNamespace(_initializing=True)
    conversion = af.converter("torch")
    box = Box(X)
    for _ in range(4):
        assert conversion([box])[0] is box
    module.Box = Box
    module.__spec__._initializing = False
    for _ in range(4):
        assert conversion([box])[0].tolist() == [0, 1, 2]


def test_a_container_whose_library_is_imported_later(module, register):
    register(type("Later", (HeldContainer,), {"types": ("boxlib.Held",)})())
    value = Held(X)
    for _ in range(4):
        assert af.convert(value, "torch") is value
    module.Held = Held
    af.convert(Unknown(), "torch")
    for _ in range(4):
        assert isinstance(af.convert(value, "torch").x, torch.Tensor)


@pytest.fixture
def run_again(tmp_path, monkeypatch):
    """Import a library from a file, and return what runs that again."""
    (tmp_path / "boxlib.py").write_text(inspect.getsource(boxes))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "boxlib", raising=False)
    yield lambda: importlib.reload(importlib.import_module("boxlib"))
    sys.modules.pop("boxlib", None)


def test_a_library_that_is_run_again(run_again, register):
    """Its new arrays are arrays, and so are those that were made before. Classes without objects are freed."""
    register(BoxBackend())
    register(type("Later", (HeldContainer,), {"types": ("boxlib.Held",)})())
    to, back = af.converter("torch"), af.converter("boxlib")
    old, classes = run_again().Box(X), []
    for _ in range(3):
        library = run_again()
        classes.append(weakref.ref(library.Box))
        for x in (library.Box(X), old) * 3:
            assert to(x).tolist() == to({"x": x})["x"].tolist() == [0, 1, 2]
            assert to(library.Held(x)).x.tolist() == [0, 1, 2]
            assert af.backend_of(x).name == "boxlib"
            assert af.convert(x, "torch").tolist() == [0, 1, 2]
            assert type(back(torch.ones(2))) is library.Box
    gc.collect()
    assert [ref() is None for ref in classes] == [True, True, False]


@pytest.mark.parametrize("where", ["children", "rebuild"])
@pytest.mark.parametrize("when", [0, 3])
def test_a_change_within_a_conversion(where, when, register):
    """The conversion ends as it began. What it has learnt is not used after the change, and nothing is lost."""
    trigger_type, armed = type("Trigger", (Held,), {}), []

    def firing(self, *args):
        if armed:
            register(armed.pop())
        return getattr(HeldContainer, where)(self, *args)

    register(type("Triggers", (HeldContainer,), {"types": (trigger_type,), where: firing})())
    conversion = af.converter("torch")
    value = {"mine": Held(X), "trigger": trigger_type(X), "another": Held(X)}
    for times in range(6):
        if times == when:
            armed.append(HeldContainer())
        found = conversion(value)
        assert isinstance(found["trigger"].x, torch.Tensor)
        assert isinstance(found["mine"].x, torch.Tensor) == (times > when)
        assert isinstance(found["another"].x, torch.Tensor) == (times > when)


def test_a_container_for_exactly_an_array_type(register):
    labelled = type("Labelled", (np.ndarray,), {})
    members = {
        "types": (labelled,),
        "children": lambda self, value: [np.asarray(value)],
        "rebuild": lambda self, value, children: {"label": value.label, "values": children[0]},
    }
    x = X.view(labelled)
    x.label = "speed"
    assert isinstance(af.convert(x, "torch"), torch.Tensor)
    register(type("LabelledContainer", (af.Container,), members)())
    for _ in range(4):
        found = af.convert([x, X], "torch")
        assert found[0]["label"] == "speed"
        assert found[0]["values"].tolist() == [0, 1, 2]
        assert isinstance(found[1], torch.Tensor)


def test_a_fork_while_another_thread_registers(fork_while):
    wait, fork = fork_while

    class Waiting(af.Registry):
        """Waits while it holds its lock."""

        def update(self, *new):
            if new:
                wait()
            return super().update(*new)

    registry, part = Waiting(), HeldContainer()
    conversion = af.Conversion("numpy", af.Options(), registry)
    conversion([X])

    def work():
        assert part not in registry.catalog.containers
        registry.register(part)
        assert part in registry.catalog.containers
        assert "numpy" in af.registry.backends()
        assert conversion([X])[0].tolist() == [0, 1, 2]

    fork(lambda: registry.register(part), work)


def test_a_hook_may_wait_for_a_thread_that_makes_a_converter(registry):
    """As if it imports a module that the thread imports already."""
    with ThreadPoolExecutor(1) as pool:
        make = partial(pool.submit, af.converter, "numpy", registry=registry)
        hook = af.hookimpl(lambda: [make().result(10), HeldContainer()][1:])
        registry.register(types.SimpleNamespace(arrayferry_containers=hook))


def test_a_fork_while_another_thread_makes_a_route(monkeypatch, fork_while):
    pytest.importorskip("array_api_strict")
    wait, fork = fork_while
    make = execute.Executor
    monkeypatch.setattr(execute, "Executor", lambda *args: (wait(), make(*args))[1])
    fork(*[lambda: af.converter("array_api_strict")(X).shape] * 2)


def test_two_threads_take_the_first_steps_of_a_route_together():
    options = af.converter("torch").options
    numpy, to = (af.registry.backend(name) for name in ("numpy", "torch"))
    executor = execute.Executor(af.registry.catalog, numpy, to, options)

    class Taken:
        @property
        def disabled(self):  # another thread takes a step
            executor._directs[object()] = self
            return False

    executor._directs[object()] = Taken()
    assert executor.run(X[::-1]).tolist() == [2, 1, 0]


def test_a_pool_of_threads_in_a_fork(run_forked):
    """Neither the threads of the parent are there, nor what they hold."""
    pool = Threads(2, "test")
    assert pool.submit(int).result(30) == 0  # now a thread has ended

    def work():
        assert [pool.submit(abs, -n).result(20) for n in range(4)] == [0, 1, 2, 3]

    with pool._lock:
        run_forked(work)
    assert pool.submit(abs, -5).result(30) == 5
    pool.shutdown()
    with pytest.raises(RuntimeError, match="new futures after shutdown"):
        pool.submit(int)


def test_dropped_converters_leave_nothing():
    def alive():
        gc.collect()
        return sum(type(thing) is af.Conversion for thing in gc.get_objects())

    before, others = len(linecache.cache), alive()
    for _ in range(300):
        conversion = af.converter("torch")
        for _ in range(3):
            conversion([X])
    del conversion
    assert alive() <= others
    assert len(linecache.cache) == before


def test_types_that_live_shortly_are_not_kept():
    made = []
    conversion = af.converter("torch")
    for number in range(2_500):
        cls = type(f"Dict{number}", (dict,), {})
        conversion([cls(x=X)])
        made.append(weakref.ref(cls))
    del cls
    gc.collect()
    assert sum(ref() is not None for ref in made) < 1_200


def test_conversions_that_are_kept_are_few():
    from arrayferry import _api

    for number in range(1_000):
        device = f"cpu{' ' * (number % 500)}"
        assert af.convert(X, "torch", device=device).tolist() == [0, 1, 2]
    assert len(_api._kept) <= _api.MAX_KEPT
    kept = _api.kept_conversion("torch", device="cpu"), _api.kept_conversion("jax", device="cpu")
    for target in ("torch", "jax"):
        af.convert(X, target, device="cpu")
    assert kept == (
        _api.kept_conversion("torch", device="cpu"),
        _api.kept_conversion("jax", device="cpu"),
    )
    assert kept[0] is _api.kept_conversion("torch", device="cpu")
