"""Traces of functions."""

import torch

import arrayferry as af


def test_agnostic_functions_are_counted_where_they_are_called():
    @af.agnostic("numpy")
    def mean(x):
        return x.mean(axis=0)

    with af.trace() as t:
        mean(torch.ones(4, 2))
    assert {(row.source, row.target) for row in t.rows} == {("torch", "numpy"), ("numpy", "torch")}
    (function,) = {row.function for row in t.rows}
    assert function == "test_agnostic_functions_are_counted_where_they_are_called"
