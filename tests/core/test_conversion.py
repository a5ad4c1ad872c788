"""A converter is an ordinary callable: the same before and after it has learnt, in any process."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
import types

import dask
import distributed
import numpy as np
import pytest
import torch
from boxes import registered
from clusters import local_cluster

import arrayferry as af

X = np.arange(3, dtype=np.float32)


def fresh(**options):
    return af.converter("torch", **options)


def learnt(**options):
    conversion = fresh(**options)
    for _ in range(5):
        conversion(X)
        conversion([X])
    assert "def convert_ndarray_to_torch" in conversion.explain()
    return conversion


@pytest.fixture(params=[fresh, learnt])
def make(request):
    return request.param


def test_how_it_is_called(make):
    conversion = make()
    assert str(inspect.signature(conversion)) == "(value: 'Any') -> 'Any'"
    assert torch.equal(conversion(value=X), torch.from_numpy(X))
    assert callable(conversion)
    for args, kwargs in (((), {}), ((X, None), {}), ((X,), {"value": X}), ((X,), {"miss": 1})):
        with pytest.raises(TypeError):
            conversion(*args, **kwargs)


def test_it_has_no_other_state(make):
    conversion = make(copy=True)
    assert not hasattr(conversion, "__dict__")
    with pytest.raises(AttributeError):
        conversion.something = 1
    assert conversion.target.name == "torch"
    assert repr(conversion) == "arrayferry.converter('torch', copy=True)"


def test_copies_do_the_same(make):
    for options in ({}, {"copy": True, "scalars": "convert"}, {"device": torch.device("cpu")}):
        conversion = make(**options)
        for again in (
            pickle.loads(pickle.dumps(conversion)),
            copy.copy(conversion),
            copy.deepcopy(conversion),
            fresh(**options),
        ):
            assert torch.equal(again([X])[0], torch.from_numpy(X))
            assert dask.base.tokenize(again) == dask.base.tokenize(conversion)
            assert repr(again) == repr(conversion)
    assert pickle.dumps(make()) == pickle.dumps(fresh())


def test_different_converters_have_different_tokens():
    """So Dask computes what it has computed with another one."""
    conversions = [
        af.converter("torch"),
        af.converter("jax"),
        af.converter("torch", copy=True),
        af.converter("torch", device="cpu"),
        af.converter("torch", narrowing="allow"),
        af.converter("torch", scalars="convert"),
        af.converter("torch", unsupported="keep"),
    ]
    assert len({dask.base.tokenize(conversion) for conversion in conversions}) == len(conversions)


class SpaceBackend(af.Backend):
    """A backend of a name that only one process has, for a class that all have."""

    package, array_types = "types", ("types.SimpleNamespace",)

    def __init__(self, name, fails=False):
        self.name, self.fails = name, fails

    def to_numpy(self, x):
        if self.fails:
            raise KeyError("lost")
        return x.values

    def from_numpy(self, x, device=None):
        return types.SimpleNamespace(values=x)


def test_a_target_that_was_unregistered():
    part = SpaceBackend("gone")
    with registered(part):
        conversions = [af.converter("gone"), af.converter(part)]
        for conversion in conversions:
            for _ in range(4):
                assert conversion(X).values is not None
        af.convert(X, "gone")
        pickled = [pickle.dumps(conversion) for conversion in conversions]
    for call in (*conversions, *map(pickle.loads, pickled), lambda x: af.convert(x, "gone")):
        with pytest.raises(af.UnknownBackendError, match="no array library is known as 'gone'"):
            call(X)


def test_in_another_process_that_lacks_the_target(run_python, tmp_path):
    with registered(SpaceBackend("only_here")):
        data = pickle.dumps(af.converter("only_here", device="cpu"))
    path = tmp_path / "conversion"
    path.write_bytes(data)
    out = run_python(
        "import pickle, arrayferry as af\n"
        f"conversion = pickle.load(open({str(path)!r}, 'rb'))\n"
        "print(repr(conversion))\n"
        "for _ in range(2):\n"
        "    try:\n        conversion(1)\n"
        "    except af.UnknownBackendError as error:\n        print(error)\n"
    )
    lines = out.splitlines()
    assert lines[0] == "arrayferry.converter('only_here', device='cpu')"
    assert lines[1] == lines[2]
    assert lines[1].startswith("no array library is known as 'only_here'")


@pytest.fixture(scope="module")
def client():
    with local_cluster(processes=True) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.long
def test_on_a_cluster(client, make):
    conversion = make(copy=True)
    future = client.submit(conversion, X)
    assert torch.equal(future.result(timeout=60), torch.from_numpy(X))
    futures = client.map(conversion, [X, [X, "text"]])
    assert client.gather(futures)[1][1] == "text"
    scattered = client.scatter(conversion)
    assert client.submit(lambda c, x: c(x), scattered, X).result(timeout=60).shape == (3,)
    assert repr(scattered.result(timeout=60)) == repr(conversion)
    assert client.submit(conversion, X).key == future.key


@pytest.mark.long
def test_errors_are_returned_from_a_cluster(client):
    with registered(SpaceBackend("mine_only")):
        conversion = af.converter("mine_only")
        with pytest.raises(af.UnknownBackendError, match="mine_only"):
            client.submit(conversion, X).result(timeout=60)
    with pytest.raises(af.NarrowingError, match=r"at \['step'\]"):
        client.submit(af.converter("jax"), {"step": np.array([2**40])}).result(timeout=60)
    assert client.submit(af.converter("torch"), X).result(timeout=60).shape == (3,)


def test_as_an_attribute_of_a_class(make):
    class Agent:
        convert = make()

    assert isinstance(Agent().convert(X), torch.Tensor)


def failing(conversion, times=1):
    tree = {"obs": {"camera": [X, np.array(["text"])]}}
    for _ in range(times):
        with pytest.raises(af.UnsupportedDtypeError) as caught:
            conversion(tree)
    return caught.value


def test_tracebacks_are_short(make):
    conversion = make()
    for _ in range(4):
        conversion({"obs": {"camera": [X, X]}})
    for call in (conversion, lambda tree: af.convert(tree, "torch")):
        for _ in range(4):
            error = failing(call)
            lines = "".join(traceback.format_exception(error)).splitlines()
            assert len(lines) < 30, "\n".join(lines)
            assert error.__cause__ is None
            assert error.__suppress_context__ or error.__context__ is None
            assert error.path == "['obs']['camera'][1]"


def test_the_error_of_a_plugin_is_the_only_cause():
    with registered(SpaceBackend("failing_here", fails=True)):
        for _ in range(4):
            with pytest.raises(
                af.ConversionError,
                match=r"to_numpy\(\) of the backend 'failing_here' raised KeyError: 'lost' for a types.SimpleNamespace, "
                r"at \['a'\]\[0\], from failing_here",
            ) as caught:
                af.convert({"a": [types.SimpleNamespace()]}, "torch")
            text = "".join(traceback.format_exception(caught.value))
            assert text.count("Traceback") == 2
            assert len(text.splitlines()) < 30, text
            assert isinstance(caught.value.__cause__, KeyError)
