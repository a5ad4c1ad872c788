import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

import arrayferry as af  # noqa: E402
from arrayferry.testing import BackendContract  # noqa: E402


class TestMlx(BackendContract):
    backend = "mlx"

    def make(self, values):
        if values.dtype.name == "bfloat16":
            return mx.array(values.astype(np.float32)).astype(mx.bfloat16)
        return mx.array(values)


def test_float64_is_checked_before_it_is_narrowed():
    assert af.convert(np.array([0.5]), "mlx").dtype == mx.float32
    with pytest.raises(af.NarrowingError, match=r"1e\+300 does not fit float32"):
        af.convert(np.array([1e300]), "mlx")
