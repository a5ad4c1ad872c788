"""Several devices of one kind in JAX, in a process where JAX is told to have them."""

from __future__ import annotations

SCRIPT = """
import jax, numpy as np
import arrayferry as af

x = np.arange(3, dtype=np.float32)
backend = af.registry.backend("jax")
assert backend.devices() == ("cpu", "cpu:1", "cpu:2"), backend.devices()
for number, device in enumerate(backend.devices()):
    for value in (x, {"x": [x]}, jax.device_put(x, jax.devices()[2])):
        for _ in range(3):
            found = jax.tree.leaves(af.convert(value, "jax", device=device))[0]
            assert found.devices() == {jax.devices()[number]}, (device, found.devices())
            assert backend.device_of(found) == device
            assert found.tolist() == [0, 1, 2]
here = jax.device_put(x, jax.devices()[1])
assert af.convert(here, "jax") is here
assert af.convert(here, "jax", device=jax.devices()[2]).devices() == {jax.devices()[2]}
assert af.convert(x, like=here).devices() == {jax.devices()[1]}
assert af.convert(here, "numpy").tolist() == [0, 1, 2]
assert af.convert(here, "torch").tolist() == [0, 1, 2]
import torch

for value in (x, torch.tensor(x), np.float64(3)):  # from host memory to JAX's default device, uncommitted
    for _ in range(3):
        found = af.convert(value, "jax")
        assert found.devices() == {jax.devices()[0]} and not found.committed
        with jax.default_device(jax.devices()[1]):
            found = af.convert(value, "jax")
            assert found.devices() == {jax.devices()[1]} and not found.committed, found.devices()
            assert af.convert(value, "jax", device="cpu").committed
            assert af.convert(here, "jax", copy=True).devices() == {jax.devices()[1]}
            there = jax.device_put(x, jax.devices()[2])
            assert af.convert(there, "jax", copy=True).devices() == {jax.devices()[2]}
try:
    af.convert(x, "jax", device="cpu:3")
except af.DeviceError as error:
    assert "cpu:2" in str(error), error
else:
    raise AssertionError("there is no fourth device")
"""


def test_three_devices(run_python):
    run_python(SCRIPT, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=3"})
