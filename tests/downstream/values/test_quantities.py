"""Quantities are never stripped of their units, whatever the options."""

from __future__ import annotations

import numpy as np
import pytest

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
