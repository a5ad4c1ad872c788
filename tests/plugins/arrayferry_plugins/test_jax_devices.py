"""Several devices of one kind in JAX, in a process where JAX is told to have them."""

import jax
import pytest

SHARDED = r"""
import jax, numpy as np, pickle, pytest
import jax.numpy as jnp
import arrayferry as af
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
x = np.arange(8, dtype=np.float32)
backend = af.registry.backend("jax")

for sharding in (rows, everywhere, SingleDeviceSharding(jax.devices()[2])):
    convert = af.converter("jax", device=sharding)
    here = jax.device_put(x, sharding)
    assert backend.device_of(here) == backend.devices.name_of(sharding)
    import torch, dask.array as da
    for value in (x, torch.tensor(x), jnp.arange(8.0), da.from_array(x), jax.device_put(x, jax.devices()[1])):
        for _ in range(4):
            for found in (convert(value), convert({"x": [value]})["x"][0], af.convert(value, like=here)):
                assert found.sharding.is_equivalent_to(sharding, 1), (value, found.sharding)
                assert found.committed and found.tolist() == x.tolist()
    for _ in range(4):  # what is there already stays
        assert convert(here) is here and convert([here])[0] is here
        assert af.convert(here, "jax", device=sharding, copy=False) is here
        copied = af.convert(here, "jax", device=sharding, copy=True)
        assert copied is not here and copied.sharding.is_equivalent_to(sharding, 1)
    assert af.convert(here, "jax") is here
    for target in ("numpy", "torch", "dask"):
        assert np.asarray(af.convert(here, target)).tolist() == x.tolist()
assert backend.devices.name_of(rows) == "cpu,cpu:1,cpu:2,cpu:3"

# the same devices, but other shards
other = jax.device_put(x, everywhere)
assert af.convert(other, "jax", device=rows).sharding.is_equivalent_to(rows, 1)
for target, device in (("jax", rows), ("numpy", None)):
    with pytest.raises(af.CopyRequiredError):
        af.convert(other if device else af.convert(x, "jax", device=rows), target, device=device, copy=False)

for value in (np.arange(3.0), {"a": x, "b": np.float32(1)}):
    with pytest.raises(af.ConversionError, match="does not fit.*sharding that fits"):
        af.convert(value, "jax", device=rows, scalars="convert")
flat = {"obs": jnp.arange(8.0), "reward": jnp.float32(1)}
with pytest.raises(af.ConversionError, match=r"does not fit.*\['reward'\]"):
    af.convert(flat, "jax", device=rows)

# what is copied or moved has memory of its own, and stays where it is
def addresses(x):
    return {shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards}

for x8 in (jax.device_put(x, everywhere), jax.device_put(x, rows)):
    for device in (jax.devices()[0], everywhere, rows):
        moved = af.convert(x8, "jax", device=device, copy=True)
        assert addresses(moved).isdisjoint(addresses(x8)), (x8.sharding, device)
        assert moved.tolist() == x.tolist()
        where = device if device in (everywhere, rows) else SingleDeviceSharding(device)
        assert moved.sharding.is_equivalent_to(where, 1)
empty = jax.device_put(np.zeros((0, 4), np.float32), rows)
assert af.convert(empty, "jax", copy=True).sharding.is_equivalent_to(rows, 2)
unpinned = jax.device_put(x, SingleDeviceSharding(jax.devices()[1], memory_kind="unpinned_host"))
assert af.convert(unpinned, "jax", copy=True).sharding == unpinned.sharding

# Dask knows shardings apart
from arrayferry_plugins.dask_ import to_dask
half, other_half = (NamedSharding(jax.sharding.Mesh(np.array(some), "x"), P("x")) for some in (jax.devices()[:2], jax.devices()[2:]))
blocks = da.compute(*(to_dask(x, blocks="jax", device=some) for some in (half, other_half)))
assert [block.sharding.device_set for block in blocks] == [half.device_set, other_half.device_set]
import copy
assert copy.deepcopy(af.converter("jax", device=half)).options.device is half
assert "NamedSharding" in repr(af.converter("jax", device=half))
assert str(af.route(jax.device_put(x, rows), "numpy")).startswith("jax (cpu) -> numpy (cpu)")

with pytest.raises(TypeError, match="cannot be pickled"):
    pickle.dumps(af.converter("jax", device=rows))
assert pickle.loads(pickle.dumps(af.converter("jax", device=jax.devices()[1])))(x).devices() == {jax.devices()[1]}

# memory of the host that a device can read
if "pinned_host" in [memory.kind for memory in jax.devices()[1].addressable_memories()]:
    pinned = SingleDeviceSharding(jax.devices()[1], memory_kind="pinned_host")
    held = jax.device_put(x, pinned)
    assert af.convert(held, "numpy").tolist() == af.convert(held, "torch").tolist() == x.tolist()
    assert af.convert(x, like=held).sharding.memory_kind == "pinned_host"
    assert af.convert(x, "jax", device=pinned).sharding == pinned
    assert af.convert(held, "jax") is held

from arrayferry_plugins.jax_ import NumpyToGpu

for device, there in ((None, 0), ("cpu:2", 2), (jax.devices()[3], 3)):
    packed = NumpyToGpu().bind_many(af.Options(device=device))
    tree = [np.full((i % 3, 2) if i % 4 else (), i, np.float64 if i % 5 else np.int8) for i in range(32)]
    assert packed(tree) == [NotImplemented] * 32  # one that is seen once is not compiled for
    for _ in range(2):
        for n, y in zip(tree, packed(tree)):
            assert y.devices() == {jax.devices()[there]} and y.committed == (device is not None)
            assert y.dtype == (np.float32 if n.dtype == np.float64 else n.dtype)
            np.testing.assert_array_equal(y, n)
    tree[0][...] = 99
    assert NumpyToGpu().bind(af.Options(device=rows)) is None
    assert packed([np.ones(3), np.array(["text"]), np.full(2, 1e300), np.ones(2), np.ones(2**20)])[1:3] == [NotImplemented] * 2
"""


@pytest.mark.long
def test_shardings(run_python):
    run_python(SHARDED, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"})


PLACES = """
import jax, numpy as np, pytest, jax.numpy as jnp, torch, arrayferry as af
from jax.sharding import AxisType

x = np.arange(8.0, dtype=np.float32)
values = [x, [x, x[:3]], torch.tensor(x), {"x": torch.tensor(x)}, np.ones(40_000, np.float32), [x] * 130, np.float64(3)]
first, second, third, fourth = jax.devices()


def places():
    found = []
    for device in (None, "cpu", "cpu:1", "default", third):
        to_jax = af.converter("jax", device=device)
        for value in values:
            for _ in range(4):  # once compiled, it stays the same
                for made in (to_jax(value), af.convert(to_jax(value), "jax", copy=True)):
                    y = jax.tree.leaves(made)[0]
                    found.append((device if device is None or type(device) is str else "object", sorted(d.id for d in y.devices()), y.committed))
                assert af.convert(made, "numpy") is not None
    return found


def expected(default):
    return {(None, default, False), ("default", default, False), ("cpu", 0, True), ("cpu:1", 1, True), ("object", 2, True)}


backend = af.registry.backend("jax")
assert backend.devices.names() == ("cpu", "cpu:1", "cpu:2", "cpu:3"), backend.devices.names()
for number, device in enumerate(backend.devices.names()):
    for value in (x, {"x": [x]}, jax.device_put(x, third)):
        for _ in range(3):
            found = jax.tree.leaves(af.convert(value, "jax", device=device))[0]
            assert found.devices() == {jax.devices()[number]}, (device, found.devices())
            assert backend.device_of(found) == device
            assert found.tolist() == x.tolist()
with pytest.raises(af.DeviceError, match="'cpu:4' here. Pass one of its devices: 'cpu', 'cpu:1', 'cpu:2', 'cpu:3'."):
    af.convert(x, "jax", device="cpu:4")
before = places()
assert {(device, *ids, committed) for device, ids, committed in before} == expected(0)
with jax.default_device(fourth):
    moved = places()
assert {(device, *ids, committed) for device, ids, committed in moved} == expected(3)
here = jax.device_put(x, second)
for default in (first, fourth):
    with jax.default_device(default):
        assert af.convert(here, "jax") is here
        assert af.convert(here, "jax", copy=True).devices() == {second}
        assert af.convert(here, "jax", device=third).devices() == {third}
assert af.convert(here, "numpy").tolist() == af.convert(here, "torch").tolist() == x.tolist()

# Like an array that is committed, or is not.
for like, ids, committed in (
    (jnp.ones(3), [0], False),
    (jax.device_put(jnp.ones(3), first), [0], True),
    (jax.device_put(jnp.ones(3), second), [1], True),
):
    for value in (x, torch.tensor(x), jax.device_put(x, third)):
        for _ in range(4):
            y = af.convert([value], like=like)[0]
            assert [d.id for d in y.devices()] == ids
            if not isinstance(value, jax.Array):
                assert y.committed is committed, (like, value)
    answer = af.agnostic("numpy")(lambda v: v + 1)(like)
    assert [d.id for d in answer.devices()] == ids and answer.committed is committed

# A mesh that is set changes nothing.
for kind in (AxisType.Auto, AxisType.Explicit) if hasattr(jax, "set_mesh") else ():
    mesh = jax.make_mesh((4,), ("i",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        assert places() == before
        sharded = jax.device_put(jnp.ones(8), jax.NamedSharding(mesh, jax.P("i")))
        assert af.convert(sharded, "jax", copy=True).sharding == sharded.sharding
        y = jax.jit(lambda a, b: a + b)(sharded, af.convert(x, "jax"))
        assert af.convert(y, "numpy").tolist() == (1 + x).tolist()
        with jax.default_device(fourth):
            assert places() == moved
    for device in ("cpu:1", second, "default"):
        assert jax.jit(lambda a: a + 1)(af.convert(sharded, "jax", device=device)).sum() == 16
assert places() == before
"""


@pytest.mark.long
def test_places_of_arrays(run_python):
    run_python(PLACES, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"})


WIDE = """
import warnings
import jax, numpy as np, arrayferry as af

warnings.simplefilter("error")
with jax.enable_x64(True):
    wide = [jax.numpy.asarray(x) for x in (np.array([2**40, -3]), np.array([1e300, 0.1]), np.array([1e300j]))]
for x in wide:
    for options in (
        {"copy": True}, {"device": "cpu:1"}, {"device": "cpu"}, {"device": "default"},
        {"device": jax.devices()[2], "copy": True}, {"like": jax.device_put(np.ones(3, np.float32), jax.devices()[1])},
    ):
        for _ in range(4):
            y = af.convert([x], **({} if "like" in options else {"to": "jax"}), **options)[0]
            assert y.dtype == x.dtype and np.array_equal(np.asarray(y), np.asarray(x)), (options, y)
x = jax.numpy.ones(3)
to_default = af.converter("jax", device="default")
for number in (0, 1, 2, 0):
    with jax.default_device(jax.devices()[number]):
        for value in (x, [x], [x] * 20):
            for _ in range(4):
                assert jax.tree.leaves(to_default(value))[0].devices() == {jax.devices()[number]}
        for value in (np.ones(3, "f4"), np.ones(3)) * 4:
            for device in ("cpu", jax.devices()[0]):
                assert af.convert(value, "jax", device=device).devices() == {jax.devices()[0]}
"""


@pytest.mark.skipif(not hasattr(jax, "enable_x64"), reason="this JAX has it elsewhere")
def test_arrays_of_64_bits_that_are_moved_keep_them(run_python):
    run_python(WIDE, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=3"})


STAYS = """
import warnings
import jax, numpy as np, jax.numpy as jnp, arrayferry as af
from jax.experimental import sparse

warnings.simplefilter("error")
first, second = jax.devices()
with jax.default_device(second):
    there = jnp.arange(3.0)
    arrays = [(there, second), (jnp.zeros((0, 3)), second), (jnp.float32(2), second)]
    thin = sparse.BCOO.fromdense(jnp.eye(3))
arrays += [(jnp.ones(3), first), (jax.random.key(0), first), (jax.device_put(jnp.ones(3), second), second), (thin, second)]
for default in (None, first, second, "cpu"):
    with jax.default_device(default):
        for x, device in arrays:
            for value in (x, {"x": x}, [x, x]):
                for _ in range(3):
                    y = jax.tree.leaves(af.convert(value, "jax", copy=True))[0]
                    assert y.devices() == {device}, (default, x, y.devices())
                    assert y.committed is jax.tree.leaves(x)[0].committed
        assert af.backends()["jax"].to_dense(thin).devices() == {second}
"""


@pytest.mark.skipif(
    not hasattr(jax, "set_mesh"), reason="names of platforms are no default devices"
)
def test_another_default_device_moves_nothing(run_python):
    run_python(STAYS, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"})


SPARSE = """
import jax, numpy as np, jax.numpy as jnp, arrayferry as af
from jax.experimental import sparse

second = jax.devices()[1]
there = jax.device_put(jnp.ones(3), second)
for kind in (sparse.BCOO, sparse.BCSR, sparse.CSR, sparse.COO):
    x = kind.fromdense(jnp.eye(3))
    for value in (x, {"x": x}, [x, jnp.ones(3)]):
        for options in ({}, {"copy": True}, {"sparse": "dense"}):
            for target in ({"to": "jax", "device": "cpu:1"}, {"to": "jax", "device": second}, {"like": there}):
                found = af.convert(value, **target, **options)
                assert all(part.devices() == {second} for part in jax.tree.leaves(found))
                y = found if value is x else next(iter(found.values() if type(found) is dict else found))
                assert type(y) is kind and y.shape == (3, 3)
                np.testing.assert_array_equal(y.todense(), np.eye(3))
        for part in jax.tree.leaves(af.convert(found, "jax", device="cpu")):
            assert part.devices() == {jax.devices()[0]}
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
rows = jax.device_put(jnp.ones(4), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
y = af.convert(sparse.BCOO.fromdense(jnp.eye(3)), like=rows)
assert y.data.devices() == set(jax.devices())
"""


def test_sparse_arrays_are_moved(run_python):
    run_python(SPARSE, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"})
