"""Arrays on a real GPU that CuPy, PyTorch and JAX can use. Without one, these tests are skipped."""

import gc
import itertools
import os
from types import SimpleNamespace

import numpy as np
import pytest

import arrayferry as af

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
pytestmark = pytest.mark.gpu

NAMES = ("torch", "cupy", "jax")
PAIRS = list(itertools.permutations(NAMES, 2))
SHARING = [("torch", "cupy"), ("cupy", "torch")]
COPYING = [pair for pair in PAIRS if pair not in SHARING]
VALUES = np.arange(12, dtype=np.float32)


def _usable():
    try:
        import cupy
        import jax
        import torch

        if not cupy.cuda.runtime.getDeviceCount():
            return "CuPy sees no GPU"
        if not torch.cuda.is_available():
            return "PyTorch cannot use CUDA"
        if jax.default_backend() != "gpu":
            return "JAX has no GPU"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return ""


@pytest.fixture(scope="module")
def gpu():
    """The three libraries: how arrays are made, where they are, and what is in them."""
    problem = _usable()
    if problem:
        pytest.skip(f"no GPU that CuPy, PyTorch and JAX can use ({problem})")
    import cupy
    import jax
    import torch

    def settle():
        torch.cuda.synchronize()
        cupy.cuda.runtime.deviceSynchronize()

    def transfers(function):
        """Count what crosses between host and device: to the device, and to the host."""
        from torch.profiler import ProfilerActivity, profile

        settle()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            kept = function()
            settle()
        names = [event.name for event in seen.events()]
        del kept
        return tuple(sum(way in name for name in names) for way in ("Memcpy HtoD", "Memcpy DtoH"))

    device = jax.devices("gpu")[0]
    return SimpleNamespace(
        make={
            "torch": lambda n: torch.from_numpy(n.copy()).to("cuda:0"),
            "cupy": cupy.array,
            "jax": lambda n: jax.device_put(n, device),
        },
        address={
            "torch": lambda x: x.data_ptr(),
            "cupy": lambda x: x.data.ptr,
            "jax": lambda x: x.unsafe_buffer_pointer(),
        },
        read={"torch": lambda x: x.cpu().numpy(), "cupy": cupy.asnumpy, "jax": np.asarray},
        cupy=cupy,
        jax=jax,
        torch=torch,
        settle=settle,
        transfers=transfers,
    )


def where(x):
    return af.backend_of(x).device_of(x)


@pytest.mark.parametrize("options", [{}, {"device": "cuda:0"}, {"copy": False}, {"copy": False, "device": "cuda"}],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize(("one", "two"), SHARING)
def test_memory_is_shared(gpu, one, two, options):
    x = gpu.make[one](VALUES)
    for y in (af.convert(x, two, **options), af.convert([x], two, **options)[0], af.convert(x, like=gpu.make[two](VALUES))):  # fmt: skip
        assert gpu.address[two](y) == gpu.address[one](x)
        assert where(y) == "cuda:0"


@pytest.mark.parametrize(("one", "two", "copy"), [(*pair, True) for pair in PAIRS] + [(*pair, None) for pair in COPYING])  # fmt: skip
def test_memory_of_its_own_without_the_host(gpu, one, two, copy):
    x = gpu.make[one](VALUES)
    af.convert(x, two, copy=copy)
    y = af.convert(x, two, copy=copy)
    assert gpu.address[two](y) != gpu.address[one](x)
    np.testing.assert_array_equal(gpu.read[two](y), VALUES)
    assert gpu.transfers(lambda: af.convert(x, two, copy=copy)) == (0, 0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32", "float64", "complex64", "bfloat16"])  # fmt: skip
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_values(gpu, one, two, dtype):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    base = (np.arange(24).reshape(4, 6) % 7).astype(dtype)
    cuts = [np.s_[:], np.s_[:, ::2], np.s_[1, 1], np.s_[:0], np.s_[1:, 2:]]
    x = af.convert(base, one, device="cuda:0")
    for cut in cuts:
        y = af.convert(x[cut], two)
        assert where(y) == "cuda:0"
        found = gpu.read[two](y) if str(x.dtype) not in ("bfloat16", "torch.bfloat16") else af.convert(y, "numpy")  # fmt: skip
        np.testing.assert_array_equal(found.astype("c16"), base[cut].astype("c16"))
        assert found.shape == base[cut].shape
    y = af.convert(x.T, two)
    np.testing.assert_array_equal(af.convert(y, "numpy").astype("c16"), base.T.astype("c16"))


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_the_source_is_kept_until_it_is_copied(gpu, one, two):
    import jax.numpy as jnp

    count = 1 << 22
    fill = gpu.jax.jit(lambda k: jnp.full(count, -1.0, jnp.float32) * k)
    fill(1.0)
    for _ in range(10):
        x = gpu.make[one](np.full(count, 7, np.float32))
        gpu.settle()
        side = gpu.torch.cuda.Stream()
        with gpu.torch.cuda.stream(side), gpu.cupy.cuda.ExternalStream(side.cuda_stream):
            gpu.torch.cuda._sleep(200_000_000)  # a copy on this stream has to wait
            y = af.convert(x, two, copy=True)
            del x
            gc.collect()
        with gpu.torch.cuda.stream(gpu.torch.cuda.default_stream()):
            if one == "jax":
                after = [fill(float(k + 1)) for k in range(3)]
            elif one == "cupy":
                after = [gpu.cupy.full(count, -1, np.float32) for _ in range(3)]
            else:
                after = [gpu.torch.full((count,), -1.0, device="cuda:0") for _ in range(3)]
        gpu.settle()
        assert (gpu.read[two](y) == 7).all()
        del y, after


@pytest.mark.parametrize(("one", "two"), [pair for pair in PAIRS if pair[0] != "jax"])
def test_a_source_that_is_written_late(gpu, one, two):

    side = gpu.torch.cuda.Stream()
    other = gpu.cupy.cuda.ExternalStream(side.cuda_stream)
    x = gpu.make[one](np.zeros(1 << 20, np.float32))
    gpu.settle()
    convert = af.converter(two)
    with gpu.torch.cuda.stream(side):
        gpu.torch.cuda._sleep(400_000_000)
    with gpu.torch.cuda.stream(side) if one == "torch" else other:
        x.fill_(5) if one == "torch" else x.fill(5)
        y = convert(x)
    z = y.clone() if two == "torch" else y + 0
    gpu.settle()
    assert (gpu.read[two](z) == 5).all()


@pytest.mark.parametrize("one", ["torch", "cupy"])
def test_without_waiting_it_goes_wrong(gpu, one):
    """The control for the test above: memory that is read on another stream at once is not written yet."""

    count = 1 << 20
    side = gpu.torch.cuda.Stream()
    other = gpu.cupy.cuda.ExternalStream(side.cuda_stream)
    x = gpu.make[one](np.zeros(count, np.float32))
    gpu.settle()
    with gpu.torch.cuda.stream(side):
        gpu.torch.cuda._sleep(400_000_000)
    with gpu.torch.cuda.stream(side) if one == "torch" else other:
        x.fill_(5) if one == "torch" else x.fill(5)
    memory = gpu.cupy.cuda.UnownedMemory(gpu.address[one](x), 4 * count, x)
    with gpu.cupy.cuda.Stream(non_blocking=True) as reading:
        y = gpu.cupy.ndarray(count, np.float32, gpu.cupy.cuda.MemoryPointer(memory, 0)).copy()
        reading.synchronize()
        found = gpu.cupy.asnumpy(y)
    gpu.settle()
    assert (found != 5).any()


@pytest.mark.parametrize("target", ["torch", "jax"])
def test_negative_strides_do_not_end_the_process(gpu, target, run_python):
    script = (
        "import cupy, arrayferry as af\n"
        f"x = af.convert(cupy.arange(5, dtype='f4')[::-1], {target!r})\n"
        "print(af.backend_of(x).device_of(x), x.tolist())"
    )
    assert run_python(script) == "cuda:0 [4.0, 3.0, 2.0, 1.0, 0.0]\n"


@pytest.mark.parametrize("target", ["torch", "jax"])
def test_managed_memory_stays_on_the_gpu(gpu, target):

    with gpu.cupy.cuda.using_allocator(gpu.cupy.cuda.malloc_managed):
        x = gpu.cupy.ones(1024, np.float32)
    assert where(af.convert(x, target)) == "cuda:0"
    assert gpu.transfers(lambda: af.convert(x, target)) == (0, 0)


def test_while_a_cuda_graph_is_captured(gpu):

    to_cupy = af.converter("cupy")
    x = gpu.torch.ones(8, device="cuda:0")
    to_cupy(x)
    gpu.settle()
    graph = gpu.torch.cuda.CUDAGraph()
    with gpu.torch.cuda.graph(graph):
        y = x + 1
        z = to_cupy(y)
    graph.replay()
    gpu.settle()
    assert z.tolist() == [2] * 8


def test_narrowing_takes_one_flag(gpu):

    x = gpu.cupy.arange(1 << 20)
    y = af.convert(x, "jax")
    assert (str(y.dtype), int(y[-1])) == ("int32", (1 << 20) - 1)
    to_device, to_host = gpu.transfers(lambda: af.convert(x, "jax"))
    assert to_device == 0
    assert to_host <= 1
    with pytest.raises(af.NarrowingError, match=str(2**40)):
        af.convert(gpu.cupy.full(3, 2**40), "jax")


@pytest.mark.parametrize("target", NAMES)
def test_one_transfer_for_a_tree(gpu, target):
    tree = {str(i): np.full(256, i, np.float32) for i in range(32)}
    convert = af.converter(target, device="cuda:0")
    for _ in range(3):
        convert(tree)
    assert gpu.transfers(lambda: convert(tree)) == (1, 0)
    for name, y in convert(tree).items():
        assert where(y) == "cuda:0"
        assert (gpu.read[target](y) == int(name)).all()


def test_from_host_memory_to_jax(gpu):

    y = af.convert(VALUES, "jax")
    assert where(y) == "cuda:0"
    assert not y.committed
    pinned = gpu.jax.sharding.SingleDeviceSharding(
        gpu.jax.devices("gpu")[0], memory_kind="pinned_host"
    )
    held = gpu.jax.device_put(VALUES, pinned)
    assert where(held) == "cpu"
    assert where(af.convert(held, "torch")) == "cpu"
    np.testing.assert_array_equal(af.convert(held, "numpy"), VALUES)


def test_dask_blocks_stay_on_the_gpu(gpu):
    import dask.array as da

    x = da.from_array(gpu.cupy.arange(1024, dtype=np.float32), chunks=256, asarray=False) * 2
    y = af.convert(x, "torch")
    assert (where(y), float(y.sum())) == ("cuda:0", 1023 * 1024)
    assert gpu.transfers(lambda: af.convert(x, "torch"))[1] == 0
    with gpu.cupy.cuda.Stream(non_blocking=True):
        lazy = af.convert(gpu.cupy.full(1 << 24, 3, np.float32), "dask")
    assert float(lazy.min().compute()) == 3


def test_an_agent_on_the_gpu_is_evaluated(gpu):
    import gymnasium as gym

    from arrayferry_envs import CartPole, evaluate
    from arrayferry_gym.vector import JaxToTorch

    class Agent(gpu.torch.nn.Linear):
        def forward(self, observation):
            assert observation.is_cuda
            return super().forward(observation).argmax(-1)

    def remembers(params, observation, key, steps):
        assert observation.is_cuda
        assert steps.is_cuda
        return key.integers(steps.shape, 0, 2), None, steps + 1

    for env, count in (
        (CartPole(), 4),
        (gym.make_vec("CartPole-v1", num_envs=4), None),
        (gym.make("CartPole-v1"), None),
        (JaxToTorch(CartPole().make_vec(4, xp="jax")), None),
    ):
        assert (evaluate(env, Agent(4, 2).cuda(), num_envs=count).lengths > 5).all()
    rows = np.zeros(4, np.int32)
    assert (evaluate(env, remembers, policy_state=rows).lengths > 5).all()
