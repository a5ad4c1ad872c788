"""What streams look like in a shell, without computing anything."""

import dask
import dask.array as da

import arrayferry as af


def test_a_stream_whose_constructor_failed():
    assert repr(af.Stream.__new__(af.Stream)) == "<Stream, incomplete>"


def test_nothing_is_computed(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("it was computed")

    stream = af.stream(da.ones(6, chunks=2), "torch")
    with monkeypatch.context() as patched, dask.config.set(scheduler=refuse):
        patched.setattr(da.Array, "__array__", refuse)
        assert repr(stream) == "<Stream of 3 blocks, 6 of 6, to torch>"
