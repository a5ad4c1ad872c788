"""Traces of streams."""

import dask.array as da

import arrayferry as af


def test_streams_are_counted():
    with af.trace() as t:
        list(af.stream(da.ones(8, chunks=2, dtype="float32"), "torch"))
    assert t.bytes == 8 * 4
    assert {row.target for row in t.rows} == {"torch"}
