"""Sparse arrays are made dense only if that is asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from cases import quick_if
from jax.experimental import sparse as jax_sparse
from refusals import refused

import arrayferry as af

VALUES = np.array([[0.0, 2.0], [3.0, 0.0]], np.float32)
MAKE = {
    "torch coo": lambda: torch.tensor(VALUES).to_sparse(),
    "torch csr": lambda: torch.tensor(VALUES).to_sparse_csr(),
    "torch csc": lambda: torch.tensor(VALUES).to_sparse_csc(),
    "torch, not coalesced": lambda: torch.sparse_coo_tensor(
        [[0, 1, 1], [1, 0, 0]], [2.0, 1.0, 2.0], (2, 2), dtype=torch.float32, check_invariants=True
    ),
    "torch, with gradient": lambda: torch.tensor(VALUES).to_sparse().requires_grad_(),
    "jax bcoo": lambda: jax_sparse.BCOO.fromdense(jnp.asarray(VALUES)),
    "jax bcsr": lambda: jax_sparse.BCSR.fromdense(jnp.asarray(VALUES)),
    "jax batched": lambda: jax_sparse.BCOO.fromdense(jnp.asarray(VALUES), n_batch=1),
}
pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC) tensor support is in beta")


@pytest.mark.parametrize("name", quick_if(MAKE, lambda name: name != "jax batched"))
@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "dask"])
def test_the_option_says(name, to):
    x = MAKE[name]()
    if af.backend_of(x).name == to:
        for sparse in ("raise", "dense"):
            assert af.convert({"x": x}, to, sparse=sparse)["x"] is x
        assert af.convert(x, to, copy=True) is not x
        return
    for _ in range(4):
        words = r"sparse, at \['x'\].*sparse=.dense.*x\.to_?dense\(\)"
        refused(af.ConversionError, words, {"x": x}, to)
        y = af.convert({"x": x}, to, sparse="dense")["x"]
        np.testing.assert_array_equal(np.asarray(y), VALUES)
        assert af.backend_of(y).name == to
        assert np.asarray(y).dtype == np.float32
        y = af.convert([x, VALUES], to, sparse="dense", copy=True)[0]
        np.testing.assert_array_equal(np.asarray(y), VALUES)
    refused(af.CopyRequiredError, "shared", x, to, sparse="dense", copy=False)


def test_a_copy_has_memory_of_its_own():
    x = torch.tensor(VALUES).to_sparse()
    copy = af.convert(x, "torch", copy=True)
    x._values().zero_()
    np.testing.assert_array_equal(copy.to_dense().numpy(), VALUES)


def test_inside_jit():
    x = MAKE["jax bcoo"]()

    @jax.jit
    def total(x):
        refused(af.TracedValueError, "from jax to numpy", x, "numpy", sparse="dense")
        return af.convert(x, "jax").todense().sum()

    assert total(x) == 5


def test_sparse_arrays_are_arrays_of_their_library():
    x = MAKE["jax bcoo"]()
    assert af.backend_of(x).name == "jax"
    assert str(af.route(x, "numpy")) == "jax (cpu) -> numpy (cpu) shared"
    assert af.convert(VALUES, like=x).tolist() == VALUES.tolist()
    moved = af.convert(x, "jax", device="cpu")
    assert moved is x
