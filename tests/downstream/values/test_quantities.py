"""Quantities are never stripped of their units, nor arrays of their masks, whatever the options."""

import dask.array as da
import numpy as np
import pint
import pytest
import torch
import unyt
from astropy import table, units
from astropy.utils.masked import Masked
from refusals import refused

import arrayferry as af

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


QUANTITY = pint.UnitRegistry().Quantity
QUANTITIES = {
    "astropy": [np.ones(3) * units.m, 2.0 * units.s],
    "pint": [QUANTITY(np.ones(3), "m"), QUANTITY(2.0, "s")],
    "unyt": [unyt.unyt_array(np.ones(3), "m"), unyt.unyt_quantity(2.0, "s")],
}


@pytest.mark.parametrize("package", QUANTITIES)
@pytest.mark.parametrize("to", ["torch", "jax", "dask"])
@pytest.mark.parametrize("unknown", ["keep", "raise", "convert"])
def test_units_are_never_lost(package, to, unknown):
    for x in QUANTITIES[package]:
        for _ in range(3):
            refused(af.ConversionError, "units that you want first", x, to, unknown=unknown)


@pytest.mark.parametrize("package", QUANTITIES)
def test_in_trees_nothing_is_lost_either(package):
    for x in QUANTITIES[package]:
        refused(af.ConversionError, r"units.*at \['x'\]", {"x": x}, "torch", unknown="convert")
        if package == "pint":  # its quantities are no arrays
            assert af.convert({"x": x}, "torch")["x"] is x
        else:
            refused(af.ConversionError, "units", {"x": x}, "torch")


@pytest.mark.parametrize("package", ["astropy", "unyt"])
def test_numpy_keeps_numpys_own(package):
    for x in QUANTITIES[package]:
        assert af.convert(x, "numpy") is x


def test_units_and_masks_of_dask_blocks_are_never_lost():
    measured = da.ones(3).map_blocks(lambda b: b * units.m, dtype=float, meta=np.ones(0))
    hidden = da.ones(3).map_blocks(lambda b: Masked(b, mask=True), dtype=float, meta=np.ones(0))
    for to in ("numpy", "torch", "jax"):
        refused(af.ConversionError, r"units, which would be lost.*at \['x'\]", {"x": measured}, to)
        refused(af.ConversionError, "mask would be lost", hidden, to)


def test_masks_of_other_packages():
    with pytest.raises(af.ConversionError, match="mask would be lost"):
        af.convert(Masked(np.ones(2), mask=[True, False]), "torch")
    whole = Masked(np.ones(2), mask=[False, False])
    assert af.convert(whole, "torch").tolist() == [1, 1]


def test_a_column_without_units_has_none():
    assert af.convert(table.Column([1, 2]), "torch").tolist() == [1, 2]
    with pytest.raises(af.ConversionError, match="units, which would be lost"):
        af.convert(table.Column([1, 2], unit="m"), "torch")


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype")
def test_masked_tensors():
    x = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
    refused(af.ConversionError, "mask would be lost", [x], "numpy")
