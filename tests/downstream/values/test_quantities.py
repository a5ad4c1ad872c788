"""Quantities are never stripped of their units, nor arrays of their masks, whatever the options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import arrayferry as af

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def astropy():
    units = pytest.importorskip("astropy.units")
    return [np.ones(3) * units.m, 2.0 * units.s]


def pint():
    quantity = pytest.importorskip("pint").UnitRegistry().Quantity
    return [quantity(np.ones(3), "m"), quantity(2.0, "s")]


def unyt():
    package = pytest.importorskip("unyt")
    return [package.unyt_array(np.ones(3), "m"), package.unyt_quantity(2.0, "s")]


@pytest.mark.parametrize("make", [astropy, pint, unyt])
@pytest.mark.parametrize("to", ["torch", "jax", "dask"])
@pytest.mark.parametrize("unknown", ["keep", "raise", "convert"])
def test_units_are_never_lost(make, to, unknown):
    for x in make():
        for _ in range(3):
            with pytest.raises(af.ConversionError, match="units") as info:
                af.convert(x, to, unknown=unknown)
            assert "units that you want first" in str(info.value)


@pytest.mark.parametrize("make", [astropy, pint, unyt])
def test_in_trees_nothing_is_lost_either(make):
    for x in make():
        with pytest.raises(af.ConversionError, match=r"units.*at \['x'\]"):
            af.convert({"x": x}, "torch", unknown="convert")
        if make is pint:  # its quantities are no arrays
            assert af.convert({"x": x}, "torch")["x"] is x
        else:
            with pytest.raises(af.ConversionError, match="units"):
                af.convert({"x": x}, "torch")


@pytest.mark.parametrize("make", [astropy, unyt])
def test_numpy_keeps_numpys_own(make):
    for x in make():
        assert af.convert(x, "numpy") is x


def units():
    return pytest.importorskip("astropy.units")


def masked():
    return pytest.importorskip("astropy.utils.masked").Masked


def test_units_and_masks_of_dask_blocks_are_never_lost():
    da = pytest.importorskip("dask.array")
    metre = units().m
    measured = da.ones(3).map_blocks(lambda b: b * metre, dtype=float, meta=np.ones(0))
    hidden = da.ones(3).map_blocks(lambda b: masked()(b, mask=True), dtype=float, meta=np.ones(0))
    for to in ("numpy", "torch", "jax"):
        with pytest.raises(af.ConversionError, match=r"units, which would be lost.*at \['x'\]"):
            af.convert({"x": measured}, to)
        with pytest.raises(af.ConversionError, match="mask would be lost"):
            af.convert(hidden, to)


def test_masks_of_other_packages():
    with pytest.raises(af.ConversionError, match="mask would be lost"):
        af.convert(masked()(np.ones(2), mask=[True, False]), "torch")
    whole = masked()(np.ones(2), mask=[False, False])
    assert af.convert(whole, "torch").tolist() == [1, 1]


def test_a_column_without_units_has_none():
    table = pytest.importorskip("astropy.table")
    assert af.convert(table.Column([1, 2]), "torch").tolist() == [1, 2]
    with pytest.raises(af.ConversionError, match="units, which would be lost"):
        af.convert(table.Column([1, 2], unit="m"), "torch")


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype")
def test_masked_tensors():
    x = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
    with pytest.raises(af.ConversionError, match="mask would be lost"):
        af.convert([x], "numpy")
