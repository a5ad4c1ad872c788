"""Two simulated GPUs, with streams that work late, and allocators that use freed memory again at once.

Work is queued and done when something waits for it, or when a test says so. A queued copy knows addresses only, as a
kernel does: it does not keep its source. Each library has streams and an allocator of its own, and its arrays are
exchanged by DLPack, whose capsule is the array itself here.

`Machine.counts` counts what libraries do: "to device", "to host", "between devices", "copies" (on a device), "flags"
(one bit to the host), "waits" (of a stream for another). `Machine.questions` counts those to the driver.
"""

import contextlib
import functools
import operator
import types

import numpy as np

import arrayferry as af


class Event:
    def __init__(self, stream):
        self.stream = stream
        self.done = False
        stream.put(self.fire)

    def fire(self):
        self.done = True

    def synchronize(self):
        while not self.done:
            self.stream.step()


class Stream:
    def __init__(self, machine):
        self.machine = machine
        self.queue = []
        machine.streams.append(self)

    def put(self, work):
        self.queue.append(work)

    def step(self):
        self.queue.pop(0)()

    def synchronize(self):
        while self.queue:
            self.step()

    def record(self):
        return Event(self)

    def wait_event(self, event):
        self.machine.counts["waits"] += 1
        self.put(event.synchronize)


class Block:
    """Memory of a device. When it is freed, the next array of its library and size gets it."""

    def __init__(self, library, device, size):
        self.pool = library.pools.setdefault((device, size), [])
        self.memory = self.pool.pop() if self.pool else np.zeros(size, np.uint8)

    def __del__(self):
        self.pool.append(self.memory)


class Array:
    """An array of a simulated library."""

    library = None
    managed = False

    def __init__(self, block, device, values, owner=None):
        self.block = block
        self.device = types.SimpleNamespace(id=device)
        self.values = values
        self.owner = owner

    data = property(lambda self: types.SimpleNamespace(ptr=self.pointer))

    @property
    def pointer(self):
        return self.values.__array_interface__["data"][0]

    @property
    def stream(self):
        return self.library.stream(self.device.id)

    def view(self, values):
        y = type(self)(self.block, self.device.id, values, self.owner)
        y.managed = self.managed
        return y

    def __getitem__(self, index):
        if isinstance(index, Array):  # a mask
            return self.library.namespace.apply(lambda x, mask: x[mask], self, index)
        return self.view(self.values[index])

    def reshape(self, shape):
        return self.view(self.values.reshape(shape))

    def item(self):
        self.stream.synchronize()
        return self.values.item()

    def fill(self, value):
        memory = self.values
        self.stream.put(lambda: memory.fill(value))

    def copy(self):
        """Copy on the current device, as CuPy does: an array of another device is made compact there, and moved."""
        there = self.library.current
        if self.device.id != there and not self.values.flags.c_contiguous:
            made = self.library.queue(lambda: self.values, self.shape, self.dtype, self.device.id)
            return self.library.array(made, there)
        self.library.machine.counts["copies" if self.device.id == there else "between devices"] += 1
        return self.library.queue(lambda: self.values, self.shape, self.dtype, there)

    def __dlpack_device__(self):
        return (13 if self.managed else 2, self.device.id)

    def __dlpack__(self, *, stream=None, **options):
        mine = self.stream_of_export
        if stream is not None and stream is not mine:
            stream.wait_event(mine.record())
        return self

    @property
    def stream_of_export(self):
        """CuPy takes the current stream of the current device, wherever the array is."""
        return self.library.stream(self.library.current)

    def __array_namespace__(self, api_version=None):
        return self.library.namespace


class Library:
    """A simulated library: its arrays, its streams for each GPU, and its allocator."""

    def __init__(self, machine, name, type_name):
        self.machine = machine
        self.name = name
        self.pools = {}
        self.current = 0
        self.managed = False
        self.defaults = {gpu: Stream(machine) for gpu in range(machine.gpus)}
        self.entered = {}
        members = {"library": self, "__module__": name}
        if name != "cupy":
            members["stream_of_export"] = Array.stream
        self.type = type(type_name, (Array,), members)
        self.namespace = Namespace(self)

    def stream(self, gpu):
        return self.entered.get(gpu, self.defaults[gpu])

    def queue(self, source, shape, dtype, gpu):
        """Make an array, and queue that it is filled."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=int)) * dtype.itemsize
        block = Block(self, gpu, max(size, 1))
        values = np.ndarray(shape, dtype, block.memory.data)
        made = source()
        self.stream(gpu).put(lambda: np.copyto(values, made, casting="unsafe"))
        y = self.type(block, gpu, values)
        y.managed = self.managed
        return y

    def array(self, x, gpu=None):
        gpu = self.current if gpu is None else gpu
        if isinstance(x, Array):
            self.machine.counts["copies" if x.device.id == gpu else "between devices"] += 1
            made = x.values
        else:
            self.machine.counts["to device"] += 1
            made = np.array(x)
        return self.queue(lambda: made, made.shape, made.dtype, gpu)

    def asnumpy(self, x):
        self.machine.counts["to host"] += 1
        x.stream.synchronize()
        return x.values.copy()

    def from_dlpack(self, x, refuses=None):
        _, gpu = x.__dlpack_device__()
        shared = x.__dlpack__(stream=self.stream(gpu))
        if refuses is not None:
            refuses(shared)
        return self.type(shared.block, gpu, shared.values, owner=shared)


class Described:
    """An array of no known library, which only CuPy and PyTorch take, as those of PyCUDA."""

    def __init__(self, x):
        self.x = x

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.x.shape, "data": (self.x.pointer, False), "version": 3}

    def get(self):
        return self.x.values


class Namespace:
    """The functions of the Array API that narrowing on a device needs. They wait, and stay on the device."""

    int32, int64, uint32, uint64 = map(np.dtype, ("int32", "int64", "uint32", "uint64"))
    float32, float64, complex64 = map(np.dtype, ("float32", "float64", "complex64"))

    def __init__(self, library):
        self.library = library
        self.__name__ = library.name

    def apply(self, function, *arrays):
        for x in arrays:
            x.stream.synchronize()
        with np.errstate(all="ignore"):
            made = np.asarray(function(*(x.values for x in arrays)))
        y = self.library.queue(lambda: made, made.shape, made.dtype, arrays[0].device.id)
        y.stream.synchronize()
        return y

    def astype(self, x, dtype):
        return self.apply(lambda values: values.astype(dtype), x)

    isfinite = functools.partialmethod(apply, np.isfinite)
    real = functools.partialmethod(apply, np.real)
    imag = functools.partialmethod(apply, np.imag)

    def any(self, x):
        self.library.machine.counts["flags"] += 1
        return bool(x.values.any())


def _operator(function):
    return lambda *arrays: arrays[0].library.namespace.apply(function, *arrays)


for _name in ("shape", "dtype", "strides", "flags", "ndim", "nbytes", "size"):
    setattr(Array, _name, property(operator.attrgetter(f"values.{_name}")))
Array.__ne__ = _operator(np.not_equal)
Array.__and__ = _operator(np.logical_and)
Array.__or__ = _operator(np.logical_or)
Array.__invert__ = _operator(np.logical_not)
Array.__hash__ = object.__hash__


def cupy_module(machine, version="14.1.0"):
    """Return a module that stands for CuPy."""
    library = Library(machine, "cupy", "ndarray")
    module = types.ModuleType("cupy")
    module.__version__ = version
    module.__path__ = []
    module.__spec__ = types.SimpleNamespace(
        name="cupy", loader=None, submodule_search_locations=[], origin=None
    )
    module.library, module.ndarray = library, library.type
    for name in ("array", "asnumpy", "from_dlpack"):
        setattr(module, name, getattr(library, name))

    def asarray(x):
        assert x.__cuda_array_interface__["version"] == 3
        return library.type(x.x.block, x.x.device.id, x.x.values, owner=x)

    module.asarray = asarray

    @contextlib.contextmanager
    def using_allocator(malloc):
        before, library.managed = library.managed, malloc == "managed"
        try:
            yield
        finally:
            library.managed = before

    def empty(size):
        y = library.type(None, library.current, np.empty(size))
        y.managed = library.managed
        return y

    module.empty = empty
    module.get_default_memory_pool = lambda: types.SimpleNamespace(malloc="device")

    class Device:
        def __init__(self, index=None):
            self.id = library.current if index is None else index

        def __enter__(self):
            self.before, library.current = library.current, self.id
            return self

        def __exit__(self, *exception):
            library.current = self.before

        def synchronize(self):
            library.stream(self.id).synchronize()
            library.defaults[self.id].synchronize()

    class Entered(Stream):
        def __init__(self, **options):
            super().__init__(machine)

        def __enter__(self):
            self.gpu = library.current
            self.before = library.stream(self.gpu)
            library.entered[self.gpu] = self
            return self

        def __exit__(self, *exception):
            library.entered[self.gpu] = self.before

    def count():
        machine.questions += 1
        return machine.gpus

    module.cuda = types.SimpleNamespace(
        Device=Device,
        Stream=Entered,
        using_allocator=using_allocator,
        get_current_stream=lambda: library.stream(library.current),
        runtime=types.SimpleNamespace(getDeviceCount=count, getDevice=lambda: library.current),
    )
    return module


STANDARD = af.STANDARD_DTYPES


class SimulatedDevices(af.Devices):
    """The GPUs of a simulated library."""

    def __init__(self, library):
        self.library = library

    def names(self):
        return tuple(f"cuda:{gpu}" for gpu in range(self.library.machine.gpus))

    def move(self, x, device):
        there = _index(device)
        if x.device.id == there:
            return x
        self.library.stream(there).wait_event(x.stream.record())
        y = self.library.array(x, there)
        x.stream.wait_event(y.stream.record())  # as PyTorch does
        return y


class TellingDevices(SimulatedDevices):
    def fence(self, x):
        event = x.stream.record()
        return lambda: event.done


class SimulatedDLPack(af.DLPack):
    """Arrays are exchanged unless the backend refuses them."""

    def __init__(self, backend):
        self.backend = backend

    def load(self, x, device=None):
        return self.backend.library.from_dlpack(x, self.backend.refuses)

    def wait(self, x):
        self.load(x)
        return self.backend.memory == "immutable"  # as JAX, it has one stream on each GPU


class Simulated(af.Backend):
    """The backend of a simulated library other than CuPy."""

    to_numpy_shares = False
    from_numpy_shares = False
    kind_of_devices = SimulatedDevices
    lacks = frozenset()
    refuses = None

    def __init__(self, machine, name, memory, **attributes):
        self.name = self.package = name
        self.library = Library(machine, name, "Array")
        self.devices, self.dlpack = self.kind_of_devices(self.library), SimulatedDLPack(self)
        self.array_types = (f"{name}.Array",)
        self.memory = memory
        self.module = types.ModuleType(name)
        self.module.Array = self.library.type
        self.module.__spec__ = types.SimpleNamespace(name=name)
        vars(self).update(attributes)

    def to_numpy(self, x):
        return self.library.asnumpy(x)

    def from_numpy(self, x, device=None):
        return self.library.array(x, _index(device))

    def copy(self, x):
        self.library.machine.counts["copies"] += 1
        made = x.values
        return self.library.queue(lambda: made, x.shape, x.dtype, x.device.id)

    def device_of(self, x):
        return f"cuda:{x.device.id}"

    def address(self, x):
        return x.pointer

    def dtypes(self):
        return STANDARD - self.lacks


class Telling(Simulated):
    """One that tells when its work is done."""

    kind_of_devices = TellingDevices


def _index(device):
    return 0 if device is None else int(str(device).partition(":")[2] or 0)


def like_torch(x):
    """Refuse what PyTorch does: it ends the process for negative strides."""
    if any(stride < 0 for stride in x.strides):
        raise SystemExit("negative strides end the process")
    if x.__dlpack_device__()[0] == 13:
        raise BufferError("Unsupported device_type: 13")


def like_jax(x):
    """Refuse what JAX does: strides that leave gaps."""
    if not (x.values.flags.c_contiguous or x.values.flags.f_contiguous):
        raise RuntimeError("UNIMPLEMENTED: only compact strides are supported")
    if x.__dlpack_device__()[0] == 13:
        raise TypeError("unsupported device type")
