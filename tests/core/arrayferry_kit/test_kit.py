"""The contract kit finds faults: `PLANTED` names the test that must find each planted one."""

import re
from functools import partialmethod

import numpy as np
import pytest
import subtle_plugins
import torch
from boxes import registered
from cases import first_of_each, quick_if
from distributions import plugin, run_pytest, write_distribution
from subtle_plugins import SUBTLE, backend, devices, direct, making, many, narrowed_cube, reading
from toy_contract import ToyContract, cases, failing, failures, toy_failures
from toys import Array, Correct, CorrectImmutable, CorrectLazy, OnlyDoubles, OnlyIntegers
from wrong_plugins import PLANTED, streaming

import arrayferry as af
import arrayferry_kit
from arrayferry.extending import describe_error
from arrayferry.testing import BackendContract, SourceContract, check_container, contract_for
from arrayferry_functions import Flat
from arrayferry_plugins.torch_.functions import TorchAutodiff

pytestmark = pytest.mark.usefixtures("toy")
DIRECT = "test_direct_converters_match_the_general_path"
PLACED = "test_arrays_are_on_the_requested_device"


def test_a_dtype_that_the_library_lacks():
    """`dtypes()` is named where arrays of a dtype cannot be made."""

    class Contract(BackendContract):
        backend = backend(OnlyDoubles, dtypes=Correct.dtypes)

        def make(self, values):
            assert values.dtype == float, values.dtype
            return Array(values)

    failed = failures(Contract(), Contract.backend, "test_its_arrays_are_recognised")
    notes = [note for error in failed.values() for note in error.__notes__]
    assert notes == ["If the library has no float32, leave it out of dtypes()."]


CORRECT = [Correct, CorrectImmutable, CorrectLazy, OnlyIntegers, OnlyDoubles]


@pytest.mark.parametrize("plugin", quick_if(CORRECT, CORRECT[:2].__contains__))
def test_a_correct_plugin_passes(plugin):
    assert toy_failures((plugin(), streaming() if plugin is CorrectLazy else {})) == {}


FAULTS = [(test, fault) for test, faults in PLANTED.items() for fault in faults]


@pytest.mark.parametrize(("test", "fault"), first_of_each(FAULTS, lambda case: case[0]))
def test_a_planted_fault_is_caught(test, fault):
    plugin, *words = PLANTED[test][fault]
    messages = [str(error) for error in toy_failures(plugin, test).values()]
    assert any(all(word in message for word in words) for message in messages), messages


def first_message(contract) -> str:
    """Return the first message of the kit, "" if there is none."""
    errors = (error for _, error in failing(contract) if type(error) is not pytest.skip.Exception)
    return str(next(errors, ""))


def first_failure(parts) -> str:
    """Return the first message of the kit for a backend and what belongs to it, "" if there is none."""

    class Contract(ToyContract):
        backend = parts[0]
        others = ()

    with registered(*parts):
        return first_message(Contract())


@pytest.mark.parametrize("fault", first_of_each(SUBTLE, lambda fault: fault.split()[0]))
def test_a_subtle_fault_is_told_first(fault):
    """What is wrong for few arrays only is caught, and the first message names the cause."""
    message = first_failure([part for part in SUBTLE[fault] if not isinstance(part, str)])
    words = [word for word in SUBTLE[fault] if isinstance(word, str)]
    assert message
    assert [word for word in words if word not in message] == [], message


ROUND_TRIPS = {
    "makes float32": (making(lambda x: x.astype("f4")), "from_numpy()", "dtype float32 instead of"),
    "makes flat arrays": (making(np.ravel), "from_numpy()", "shape (6,) instead of (2, 3)"),
    "reads float32": (reading(lambda x: x.astype("f4")), "to_numpy()", "dtype float32 instead of"),
    "reads flat arrays": (reading(np.ravel), "to_numpy()", "shape (1,) instead of ()"),
}


@pytest.mark.parametrize("fault", ROUND_TRIPS)
def test_the_wrong_half_of_a_round_trip_is_told_first(fault, register):
    """Where only the plugin can make arrays, what an array says of itself tells which method is wrong."""
    part, method, words = ROUND_TRIPS[fault]
    message = first_message(contract_for(register(part))())
    assert message.startswith(method)
    assert words in message


def test_correct_converters_pass():
    assert first_failure([Correct(), direct("numpy toy"), direct("toy numpy")]) == ""


@pytest.mark.long
def test_the_order_of_the_tests_is_that_of_pytest(tmp_path):
    output = run_kit(tmp_path, "--collect-only")
    found = [line.rpartition("::")[2] for line in output.splitlines() if "::test_" in line]
    assert found == [id_ for id_, _, _ in cases(BackendContract)]
    assert found.index("test_values[copy]") < found.index(DIRECT)


ODD = """
import arrayferry as af

class Odd(af.Backend):
    name, package, array_types, replaces = "odd", "numpy", ("numpy.ndarray",), ("numpy",)
    def to_numpy(self, x):
        raise RuntimeError("odd")
    from_numpy = to_numpy

class OddWay(af.Converter):
    source, target, cost = "numpy", "toy", "share"
    def convert(self, x, device=None, copy=None):
        return 3

def arrayferry_backends():
    return [Odd()]

def arrayferry_converters():
    return [OddWay()]
"""
TOY_TEST = """
from arrayferry.testing import BackendContract
from toy_plugin import Array

class TestToy(BackendContract):
    backend, others = "toy", ()
    def make(self, values):
        return Array(values.copy())
    def write(self, array, value):
        array.values[...] = value
"""


def run_kit(folder, *options):
    """Run the tests of the toy plugin in a process of its own."""
    write_distribution(folder, "toy", plugin("toy"))
    (folder / "test_toy.py").write_text(TOY_TEST)
    return run_pytest(folder, "-W", "error", *options, places=[folder])[1]


@pytest.mark.long
def test_other_plugins_do_not_fail_the_one_under_test(tmp_path):
    write_distribution(tmp_path, "odd", ODD)
    write_distribution(tmp_path, "broken", "import sys; sys.exit(3)")
    output = run_kit(tmp_path)
    assert " passed" in output, output
    assert "failed" not in output, output
    assert "error" not in output.lower(), output


class Settable(Array):
    def __setitem__(self, key, value):
        self.values[key] = value


CONTRACTS = {
    # What a contract has, the test that is run, and words of its error
    "no backend": (BackendContract, {"make": None}, "values", r'Empty must name the .* backend = "mylib"'),
    "no source": (SourceContract, {}, "to_numpy", "Empty must name the source under test"),
    "no way to make an array": (BackendContract, {"backend": "numpy"}, "values", r"Empty must say how an .* Write make\(self, values"),
    "no way to make a source": (SourceContract, {"source": "h5py"}, "to_numpy", r"Write make\(self, values\)"),
    **{
        f"{kind} is not refused": (
            BackendContract, {"backend": "numpy", "unportable": lambda self, value=value: [(value, "units")]},
            "arrays_with_more_than_values_are_refused", f"{told} instead of a ConversionError with a remedy{more}",
        )
        for kind, value, told, more in (
            ("an array", np.ones(2), r"tensor\(\[1., 1.\].*", ""),
            ("a mask", np.ma.array([1, 2], mask=[0, 1]), "Mask.*", ", which names units"),
        )
    },
    **{
        f"memory is not {says}": (
            BackendContract, {"backend": backend(memory=says), "make": lambda self, values, array=array: array(values)},
            "memory_is_as_stated", words,
        )
        for array, says, words in (
            (Array, "writable", r"written to by array.* Define write\(self, array, value\)"),
            (Settable, "immutable", r"memory is 'immutable', but write\(\) changed an array"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("what", CONTRACTS)
def test_what_is_wrong_with_a_contract_is_named(what):
    contract, members, name, words = CONTRACTS[what]
    test = getattr(type("Empty", (contract,), members)(), f"test_{name}")
    with pytest.raises(NotImplementedError if what[:2] == "no" else AssertionError, match=words):
        test("to_numpy") if name == "values" else test()


@pytest.mark.needs("torch")
def test_others_are_the_built_in_backends_or_those_that_are_named(register):
    pytest.importorskip("jax")

    class Test(BackendContract):
        backend = Correct()

    register(backend(name="failing_third_party", array_types=("toy_library.Other",)))
    names = {other.name for other in Test()._others()}
    assert names >= {"numpy", "torch", "jax", "dask"}
    assert not names & {"failing_third_party", "sparse", "tensorflow", "mlx"}
    Test.others = ()
    assert Test()._others() == []
    Test.others = ("jnp", "numpy", "cupy")
    assert {other.name for other in Test()._others()} >= {"jax", "numpy"}
    Test.others = ("troch",)
    with pytest.raises(af.UnknownBackendError, match="Did you mean 'torch'"):
        Test()._others()


class NeverCopies(af.Converter):
    """A direct converter between the toy library and PyTorch."""

    cost = "share"

    def __init__(self, source, target):
        self.source, self.target = source, target

    def convert(self, x, device=None, copy=None):
        return Array(x.numpy()) if self.target == "toy" else torch.from_numpy(x.values)


def fails(*args, **kwargs):
    raise RuntimeError("a compiled rule is wrong")


CONVERTERS = {
    "raises": (direct(convert=fails), "for every ordinary array of dtype float32 on the CPU: raised RuntimeError: a com"),
    "makes lists of many": (
        direct(bind_many=many(lambda xs: [x.values.tolist() for x in xs])),
        "a (float|list), which is recognised as an array of no known library instead of numpy",
    ),
    "loses one of many": (
        direct(bind_many=many(lambda xs: [x.values for x in xs[1:]])), "the number of results of .* instead of",
    ),
    **{
        f"never copies to {target}": (
            NeverCopies(source, target), "copy=True: .* must not change when the (source|result) is written to",
        )
        for source, target in (("toy", "torch"), ("torch", "toy"))
    },
}  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize("fault", CONVERTERS)
def test_a_direct_converter_that_is_wrong_is_told(fault, register):
    converter, words = CONVERTERS[fault]
    register(converter)
    error = toy_failures(Correct(), DIRECT)[DIRECT]
    assert isinstance(error, AssertionError)
    assert re.search(words, str(error))


def _without_gradient(autodiff, call, crossing, arrays):
    return crossing(arrays, ())[0]


def _doubled(autodiff, call, crossing, arrays):
    results, build = call(autodiff, crossing, arrays)
    return Flat([2 * y for y in results], build)


class TorchContract(BackendContract):
    backend = "torch"

    def make(self, values):
        return torch.from_numpy(values.copy())


@pytest.mark.parametrize("fault", [_without_gradient, _doubled])
def test_planted_faults_of_gradients_are_caught(fault, monkeypatch):
    pytest.importorskip("jax")
    TorchContract().test_gradients_cross()
    monkeypatch.setattr(TorchAutodiff, "call", partialmethod(fault, TorchAutodiff.call))
    with pytest.raises((AssertionError, RuntimeError)):
        TorchContract().test_gradients_cross()


class CorrectSource(af.Source):
    name, package, memory = "columns", "toy_library", "lazy"
    array_types = ("toy_library.Array",)
    to_numpy_shares = False

    def to_numpy(self, x):
        return x.values.copy()


def source(change=np.copy, **members):
    members["to_numpy"] = lambda self, x: change(x.values)
    return type("Source", (CorrectSource,), members)()


def source_failures(part, own=streaming(name="columns")):  # noqa: B008
    class Contract(SourceContract):
        source, parts = part, own

        def make(self, values):
            return Array(values.copy(order="K"))

    return {name: str(error) for name, error in failures(Contract(), part).items()}


SOURCES = {
    "reads flat arrays": (source(np.ravel), "test_to_numpy", "shape (1,) instead of ()"),
    "reads memory as it lies": (source(subtle_plugins.scrambled), "test_to_numpy", "to_numpy(), for", " instead of "),
    "narrows cubes": (source(lambda x: narrowed_cube(x).copy()), "test_to_numpy", "float32 instead of float64"),
    "reads the same again": (source(subtle_plugins.remembering()), "test_to_numpy", "to_numpy(), for", " instead of "),
    "shares": (
        source(lambda x: x), "test_to_numpy",
        "to_numpy_shares is False: the source must not change when the result is written to",
    ),
    "misnames its types": (
        source(array_types=("toy_library.Other",)), "test_its_arrays_are_recognised",
        "array_types are ('toy_library.Other',)",
    ),
    "has no blocks": (
        (source(), streaming(lambda self, xs, axis, **options: 3, "columns")), "test_blocks",
        "returned an int instead of an arrayferry_streams.Blocks",
    ),
}  # fmt: skip


def test_a_correct_source_passes():
    assert source_failures(CorrectSource()) == {}


@pytest.mark.parametrize("fault", SOURCES)
def test_a_fault_of_a_source_is_caught(fault):
    part, test, *words = SOURCES[fault]
    message = source_failures(*(part if isinstance(part, tuple) else (part,)))[test]
    assert [word for word in words if word not in message] == [], message


# Containers.


class Pair:
    def __init__(self, left, right, name="first"):
        self.left, self.right, self.name = left, right, name


class Pairs(af.Container):
    types = (f"{__name__}.Pair", "not_installed.Pair")

    def children(self, value):
        return [value.left, value.right]

    def rebuild(self, value, children):
        return Pair(*children, value.name)


def as_numpy(x):
    return x if isinstance(x, dict) else np.asarray(x)


def written(self, value, children):
    value.left, value.right = children
    return value


PAIR = Pair(np.zeros(2), {"x": np.zeros(2), "y": 1}, "a")


def test_a_correct_container_passes():
    check_container(Pairs())
    check_container(Pairs(), PAIR)


FAULTY = [
    ({"types": (Pair, f"{__name__}.Pear")}, r"types names \['[\w.]+\.Pear'\], which does not exist"),
    ({"children": lambda self, value: [value.left]}, r"children\(\) leaves out \.right"),
    ({"rebuild": lambda self, value, children: None}, r"rebuild\(\) returned None"),
    ({"rebuild": lambda self, value, xs: Pair(xs[1], xs[0])}, r"holds \[\{'x'.* instead of the given \[array.*\{'x'"),
    ({"rebuild": lambda self, value, xs: value}, "has changed the value"),
    ({"rebuild": written}, "has changed the value"),
    ({"rebuild": lambda self, value, xs: Pair(*xs, None)}, r"lost the attributes \['name'\]"),
    ({"rebuild": lambda self, value, xs: Pair(*xs, "")}, r"has \{'name': ''\} instead of"),
    (
        {
            "static": lambda self, value: value.name,
            "rebuild": lambda self, value, xs: Pair(*xs, "b"),
        },
        "has 'b' instead of 'a'",
    ),
    (
        {"rebuild": lambda self, value, xs: Pair(*map(as_numpy, xs), value.name)},
        r"rebuild\(\) holds \[array.* instead of the given \[",
    ),
    ({"rebuild": lambda self, value, xs: Pair(xs[0], None)}, r"rebuild\(\) holds \[array\(.*, None\] instead of"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "words"), FAULTY)
def test_a_fault_of_a_container_is_named(fault, words):
    with pytest.raises(AssertionError, match=words):
        check_container(type("Faulty", (Pairs,), fault)(), PAIR)


def test_a_container_with_a_wrong_attribute():
    with pytest.raises(af.PluginError, match="mind the comma"):
        check_container(type("Faulty", (Pairs,), {"types": Pair})(), PAIR)


# What a message says, and whom it blames.


LACKS = "not tested: the library lacks something here ({})"
LACKING = {
    "CUDA that is not compiled in": AssertionError("Torch not compiled with CUDA enabled"),
    "no GPU": RuntimeError("No CUDA GPUs are available"),
    "no driver": RuntimeError("Found no NVIDIA driver on your system."),
    "an old driver": OSError("the CUDA driver version is insufficient"),
    "no compiler": RuntimeError("InvalidCxxCompiler: No working C++ compiler found in ('g++',)"),
    "no file of the compiler": FileNotFoundError(2, "No such file or directory", "g++"),
    "a compiler that is not found": FileNotFoundError("'clang'"),
    "no nvcc": OSError("nvcc: not found"),
}


def missing(error):
    """Return an error of a library as it comes out of it."""
    return RuntimeError(f"{type(error).__name__}: {error}")


class OnGPU(Correct):
    """Names a GPU that is not there."""

    error: Exception
    devices = devices(names=lambda self: ("cpu", "cuda:0"), move=lambda *args: NotImplemented)

    def from_numpy(self, x, device=None):
        if device == "cuda:0":
            raise self.error
        return Array(x, device or "cpu")


@pytest.mark.parametrize("lack", LACKING)
def test_no_plugin_is_blamed_for_a_device_that_is_missing(lack):
    part = OnGPU()
    part.error = missing(LACKING[lack])
    text = LACKS.format(describe_error(part.error).rstrip("."))
    found = toy_failures(part, PLACED)[PLACED]
    assert type(found) is pytest.skip.Exception
    assert str(found) == text


def test_what_is_missing_in_one_method_reads_the_same_in_each_test():
    def copy(self, x):
        raise FileNotFoundError("'clang'")

    found = toy_failures(backend(copy=copy))
    assert found.keys() >= {"test_values[copy]", "test_memory[True-copy]", PLACED}
    assert {type(error) for error in found.values()} == {pytest.skip.Exception}
    assert {str(error) for error in found.values()} == {LACKS.format("FileNotFoundError: 'clang'")}


def test_what_comes_after_a_missing_device_is_tested():
    class Both(OnGPU):
        error = RuntimeError("No CUDA GPUs are available")
        devices = devices(names=lambda self: ("cpu", "cuda:0", "toy:1"))

        def from_numpy(self, x, device=None):
            made = super().from_numpy(x, device)
            return Array(x * 0, device) if device == "toy:1" else made

    assert "from_numpy(x, 'toy:1')" in str(toy_failures(Both(), PLACED)[PLACED])


@pytest.mark.parametrize("method", ["convert", "bind", "bind_many", "inline"])
def test_no_converter_is_blamed_for_a_compiler_that_is_missing(method, register):
    def fails(*args, **kwargs):
        raise RuntimeError("No working C++ compiler found")

    register(direct("numpy toy", **{method: fails}))
    found = toy_failures(Correct(), DIRECT)
    assert {type(error) for error in found.values()} <= {pytest.skip.Exception}
    if method == "convert":
        (error,) = found.values()
        assert "No working C++ compiler found" in str(error)


def test_gradients_that_need_a_compiler(monkeypatch):
    pytest.importorskip("jax")

    def vjp(self, function, wanted, *, compiled):
        raise missing(LACKING["no compiler"])

    monkeypatch.setattr(TorchAutodiff, "vjp", vjp)
    with pytest.raises(pytest.skip.Exception, match="not tested: the library lacks something here"):
        TorchContract().test_gradients_cross()


def test_too_little_memory_for_a_large_array():
    def small(x):
        if x.nbytes > 8 * 2**20:
            raise MemoryError("none left")
        return x

    found = toy_failures(making(small, from_numpy_shares=True))
    assert list(found) == ["test_memory[stated-from_numpy]"]
    error = found["test_memory[stated-from_numpy]"]
    assert isinstance(error, pytest.skip.Exception)
    assert str(error) == LACKS.format("MemoryError: none left")


@pytest.mark.parametrize("limit", ["dates", pytest.param("layouts", marks=pytest.mark.long)])
def test_what_make_of_the_test_does_not_know_is_no_fault(limit):
    """An author's `make` for ordinary values only."""

    class Test(ToyContract):
        backend = backend(dtypes=lambda self: None)
        others = ()

        def make(self, values):
            if limit == "dates" and values.dtype.kind not in "?biufc":
                raise TypeError("no such numbers")
            order = "K" if limit == "layouts" else "C"  # it takes memory as it lies
            return Array(np.ravel(values, order=order).copy().reshape(values.shape))

    assert failures(Test(), Test.backend) == {}


def test_its_names_are_found_in_two_places():
    assert af.testing.BackendContract is arrayferry_kit.BackendContract
    assert dir(af.testing) == sorted(arrayferry_kit.__all__)
