"""Producers of DLPack that break its rules: an error or right values, and no memory that is freed twice."""

import ctypes
import gc

import numpy as np
import pytest
from cases import crossed

import arrayferry as af

TARGETS = ("numpy", "torch", "jax", "array_api_strict")


class Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MANAGED = [("context", ctypes.c_void_p), ("deleter", DELETER)]


class Old(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = [("tensor", Tensor), *MANAGED]


class Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        *MANAGED,
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = (
    ctypes.py_object,
    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
)


class Rogue:
    """An array of three numbers, float32, whose capsules are made by hand."""

    def __init__(
        self, device=(1, 0), name=None, version=None, flags=0, once=False, deleter=None, **fields
    ):
        self.values, self.shape = np.arange(3, dtype=np.float32), (ctypes.c_int64 * 1)(3)
        self.device, self.version, self.flags, self.once = device, version, flags, once
        self.name = name or (b"dltensor_versioned" if version else b"dltensor")
        self.deleted, self.kept, self.capsule, self.own = [], [], None, deleter
        self.deleter = DELETER(self.delete)
        fields = {"device_type": 1, "ndim": 1, "code": 2, "bits": 32, "lanes": 1, **fields}
        self.tensor = Tensor(data=self.values.ctypes.data, shape=self.shape, **fields)

    def delete(self, address):
        self.deleted.append(address)
        if self.own is not None:
            self.own()

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if self.capsule is None or not self.once:
            made = (Versioned if self.version else Old)(tensor=self.tensor, deleter=self.deleter)
            if self.version:
                (made.major, made.minor), made.flags = self.version, self.flags
            self.kept.append(made)
            self.capsule = new_capsule(ctypes.addressof(made), self.name, None)
        return self.capsule


def failing():
    raise ValueError("in the deleter")


ROGUES = {
    "right": {},
    "right and versioned": {"version": (1, 0)},
    "a deleter that raises": {"deleter": failing},
    "one capsule": {"once": True},
    "read-only": {"version": (1, 0), "flags": 1},
    "of a later version": {"version": (9, 0)},
    "of an unknown name": {"name": b"array"},
    "on a device that is not here": {"device": (2, 0), "device_type": 2},
    "on another device than it tells": {"device_type": 2},
    "not where it tells": {"device": (2, 0)},
    "of an unknown device": {"device": (99, 0), "device_type": 99},
    "of an unknown dtype": {"code": 77},
    "of bits that no dtype has": {"bits": 13},
    "of vectors": {"lanes": 4},
}
if np.lib.NumpyVersion(np.__version__) < "2.1.0":  # it reads no versioned capsules
    ROGUES = {name: rogue for name, rogue in ROGUES.items() if "version" not in rogue}
READ = ("right", "right and versioned", "a deleter that raises", "read-only", "not where it tells")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("name", "target"), crossed(ROGUES, TARGETS))
def test_values_of_a_rogue(name, target):
    rogue = Rogue(**ROGUES[name])
    for call in range(4):
        if name in READ or (name == "one capsule" and not call):
            y = af.convert([rogue], target, unknown="convert")[0]
            assert af.convert(y, "numpy").tolist() == [0, 1, 2]
            rogue.values[0] = 5  # the result has memory of its own
            assert af.convert(y, "numpy").tolist() == [0, 1, 2]
            rogue.values[0] = 0
        else:
            with pytest.raises(af.ConversionError, match="Rogue offers no array of numbers"):
                af.convert([rogue], target, unknown="convert")
    y = None
    gc.collect()
    taken = 4 if name in READ else int(name == "one capsule")
    assert len(rogue.deleted) == len({*rogue.deleted}) == taken
