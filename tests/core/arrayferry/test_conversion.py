"""A converter is an ordinary callable: the same before and after it has learnt, in any process."""

import copy
import inspect
import pickle
import traceback

import cloudpickle
import dask
import numpy as np
import pytest
import torch
from boxes import BoxBackend, registered

import arrayferry as af

X = np.arange(3, dtype=np.float32)


def test_how_it_is_called(make):
    conversion = make("torch", copy=True)
    assert str(inspect.signature(conversion)) == "(value: 'AnyTree') -> 'Any'"
    assert repr(conversion) == "arrayferry.converter('torch', copy=True)"
    assert conversion.target.name == "torch"
    agent = type("Agent", (), {"convert": conversion})()  # it is no method
    assert torch.equal(conversion(value=X), agent.convert(X))
    for args, kwargs in (((), {}), ((X, None), {}), ((X,), {"value": X}), ((X,), {"miss": 1})):
        with pytest.raises(TypeError):
            conversion(*args, **kwargs)
    assert not hasattr(conversion, "__dict__")
    with pytest.raises(AttributeError):
        conversion.something = 1


def test_copies_do_the_same(make):
    for options in ({}, {"copy": True, "scalars": "convert"}, {"device": torch.device("cpu")}):
        conversion = make("torch", **options)
        copies = copy.copy(conversion), copy.deepcopy(conversion)
        pickled = pickle.loads(pickle.dumps(conversion))
        for again in (*copies, pickled, af.converter("torch", **options)):
            assert torch.equal(again([X])[0], torch.from_numpy(X))
            assert dask.base.tokenize(again) == dask.base.tokenize(conversion)
            assert repr(again) == repr(conversion)
    assert pickle.dumps(make("torch")) == pickle.dumps(af.converter("torch"))


@pytest.mark.parametrize("target", ["array_api_strict", "torch"])
def test_tokens_are_the_same_whatever_objects_hold_the_texts(target):
    made = af.converter(target, unsupported="keep")
    equal = af.converter("".join(target), unsupported="".join(["ke", "ep"]))
    copies = [equal, pickle.loads(pickle.dumps(made)), cloudpickle.loads(cloudpickle.dumps(equal))]
    assert {dask.base.tokenize(x) for x in copies} == {dask.base.tokenize(made)}


def test_different_converters_have_different_tokens():
    """So Dask computes what it has computed with another one."""
    options = {
        "copy": True, "device": "cpu", "narrowing": "allow", "scalars": "convert", "unsupported": "keep"
    }  # fmt: skip
    conversions = [af.converter("torch", **{name: value}) for name, value in options.items()]
    conversions += [af.converter("torch"), af.converter("jax")]
    assert len({dask.base.tokenize(conversion) for conversion in conversions}) == len(conversions)


class Gone(BoxBackend):
    name, package, array_types = "gone", "boxes", ("boxes.Box",)


def test_a_target_that_was_unregistered():
    part = Gone()
    with registered(part):
        conversions = [af.converter("gone"), af.converter(part, device="cpu")]
        for conversion in conversions:
            for _ in range(4):
                assert conversion(X).values is not None
        af.convert(X, "gone")
        pickled = [pickle.dumps(conversion) for conversion in conversions]
    again = [*map(pickle.loads, pickled)]
    assert repr(again[1]) == "arrayferry.converter('gone', device='cpu')"
    for call in (*conversions, *again, lambda x: af.convert(x, "gone")):
        for _ in range(2):
            with pytest.raises(af.UnknownBackendError, match="no array library is known as 'gone'"):
                call(X)


def test_tracebacks_are_short(make):
    conversion = make("torch")
    for _ in range(4):
        conversion({"obs": {"camera": [X, X]}})
    for call in (conversion, lambda tree: af.convert(tree, "torch")):
        for _ in range(4):
            with pytest.raises(af.UnsupportedDtypeError, match="from numpy to torch") as caught:
                call({"obs": {"camera": [X, np.array(["text"])]}})
            error = caught.value
            lines = "".join(traceback.format_exception(error)).splitlines()
            assert len(lines) < 30, "\n".join(lines)
            assert error.__cause__ is None
            assert error.__suppress_context__ or error.__context__ is None
            assert error.path == "['obs']['camera'][1]"
