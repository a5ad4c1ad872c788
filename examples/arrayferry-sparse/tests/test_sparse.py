import numpy as np
import pytest

sparse = pytest.importorskip("sparse")

import arrayferry as af  # noqa: E402
from arrayferry.testing import BackendContract  # noqa: E402


class TestSparse(BackendContract):
    backend = "sparse"

    def make(self, values):
        coords = np.indices(values.shape).reshape(values.ndim, values.size)
        return sparse.COO(coords, values.reshape(-1), shape=values.shape, prune=False)

    def write(self, array, value):
        array.data[...] = value


def test_every_format_is_converted_with_the_values_not_stored():
    dense = np.array([[0.0, 2.0], [3.0, 0.0]])
    coo = sparse.COO.from_numpy(dense)
    for x in (coo, sparse.GCXS(coo), sparse.DOK(coo)):
        np.testing.assert_array_equal(af.convert(x, "numpy", sparse="dense"), dense)


def test_nothing_becomes_dense_unasked():
    coo = sparse.COO.from_numpy(np.eye(2))
    for value in (coo, {"x": coo}):
        for options in ({}, {"sparse": "raise"}):
            with pytest.raises(af.ConversionError, match='sparse="dense"'):
                af.convert(value, "torch", **options)
    assert af.convert(coo, "sparse", sparse="raise") is coo


def test_zeros_are_not_stored():
    assert af.convert(np.array([0.0, 2.0, 0.0]), "sparse").nnz == 1
