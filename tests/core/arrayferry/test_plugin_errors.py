"""A plugin that errs is named, with the method, the value and the remedy, and it disturbs nobody else."""

import importlib
import inspect
import itertools
import sys
import traceback
from typing import Protocol

import numpy as np
import pytest
import torch
from boxes import Box, BoxBackend, DirectToTorch, Held, HeldContainer, faulty, raising
from refusals import refused

import arrayferry as af

X = np.arange(3, dtype=np.float32)


pytestmark = pytest.mark.usefixtures("boxlib")


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("method", ["to_numpy", "is_traced", "device_of"])
def test_methods_of_the_source(register, method, times):
    register(faulty(**{method: raising}))
    conversion = af.converter("torch")
    for _ in range(times):
        with pytest.raises(
            af.ConversionError,
            match=rf"^{method}\(\) of the backend 'boxes' raised ZeroDivisionError: a fault for a .*Box of "
            r"dtype float32 and shape \(3,\), at \['a'\], from boxes to torch$",
        ) as caught:
            conversion({"b": X, "a": Box(X)})
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        text = "".join(traceback.format_exception(caught.value))
        assert (text.count("Traceback"), len(text.splitlines()) < 30) == (2, True), text
        assert isinstance(caught.value, af.ContractError)
        assert caught.value.method == method
    assert conversion([X])[0].tolist() == [0, 1, 2]


TARGET_CALLS = [
    ("from_numpy", lambda: af.convert([X], "boxes")),
    ("dtypes", lambda: af.convert([X], "boxes")),
    ("devices.names", lambda: af.convert([X], "boxes")),
    ("devices.name_of", lambda: af.convert(X, "boxes", device=object())),
    ("devices.move", lambda: af.convert(Box(X), "boxes", device="box:1")),
    ("copy", lambda: af.convert(Box(X), "boxes", copy=True)),
    ("device_of", lambda: af.convert(X, like=Box(X))),
    ("device_of", lambda: af.route(Box(X), "torch")),
]


@pytest.mark.parametrize(("method", "call"), TARGET_CALLS)
def test_methods_of_the_target(register, method, call):
    own = {method.removeprefix("devices."): raising}
    register(faulty(**{"names": lambda self: ("cpu", "box:1"), **own}))
    words = rf"^{method}\(\) of the backend 'boxes' raised ZeroDivisionError"
    with pytest.raises(af.ConversionError, match=words):
        call()


def test_check(register):
    part = register(faulty(check=raising))
    words = r"boxes is installed, but cannot be used here: check\(\) of its plugin raised ZeroDiv"
    for call in (lambda: af.convert(X, "boxes"), lambda: af.route("numpy", "boxes")):
        with pytest.raises(af.BackendUnavailableError, match=words):
            call()
    assert part.problem() is not None


OTHER_FORMS = [
    ("devices.names", [()], X, af.DeviceError, "named no device"),
    ("to_numpy", [[1, 2]], Box(X), af.ConversionError, "returned a list, from boxes"),
    ("to_numpy", [X, None], Box(X), af.ContractError, "returned a NoneType, from boxes"),
    ("is_traced", [X], Box(X), af.ContractError, "raised ValueError.*from boxes"),
    ("number_dtype", [[1]], 1, af.ContractError, r"returned \[1\], to boxes"),
    ("dtypes", [3], X, af.ConversionError, "returned a int"),
]


@pytest.mark.parametrize(("method", "returned", "x", "error", "words"), OTHER_FORMS)
def test_what_is_not_of_the_form_asked_for(register, method, returned, x, error, words):
    results = itertools.chain(returned, itertools.repeat(returned[-1]))
    register(faulty(**{method.removeprefix("devices."): lambda self, *args: next(results)}))
    to = "numpy" if type(x) is Box else "boxes"
    options = {"copy": False} if to == "numpy" else {"scalars": "convert"}
    refused(error, rf"{method}\(\) of the backend 'boxes' {words}", x, to, **options)


@pytest.mark.parametrize("path", ["boxlib.Bax", "boxlib.sub.Box", "nolib.Box"])
def test_array_types_with_a_typo(register, path):
    register(faulty(array_types=(path,)))
    for _ in range(3):
        told = rf"which is not one of its array_types \('{path}',\).*misspelt"
        words = rf"from_numpy\(\) of the backend 'boxes' returned a .*Box of dtype .*, {told}"
        refused(af.ConversionError, words, [X], "boxes")


def test_a_target_that_is_not_registered():
    refused(af.ContractError, r"'boxes' returned a .*not registered.*register\(\)", X, BoxBackend())


READ, REBUILT = (rf"{part} by the container Pairs \(" for part in ("read", "rebuilt .*"))
FAULTY = [
    ("children", lambda self, value: None, READ),
    ("children", raising, READ),
    ("children", lambda self, value: 3, READ),
    (
        "steps",
        lambda self, value: [],
        rf"{READ}ValueError: steps\(\) returned 0 steps for 1 children",
    ),
    ("steps", raising, READ),
    ("rebuild", raising, REBUILT),
    ("rebuild", lambda *args: None, rf"{REBUILT}TypeError: rebuild\(\) returned None"),
    ("rebuild", lambda *args: NotImplemented, rf"{REBUILT}TypeError: rebuild\(\) returned Not"),
]


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(("name", "method", "words"), FAULTY)
def test_methods_of_a_container(register, name, method, words, times):
    register(type("Pairs", (HeldContainer,), {name: method})())
    calls = {"children": (af.flatten, af.converter("torch")), "steps": (af.flatten,)}
    for call in calls.get(name, (af.converter("torch"),)) * times:
        with pytest.raises(af.StructureError, match=rf"Held could not be {words}.*at \['p'\]"):
            call({"p": Held(X)})
    assert isinstance(af.convert({"p": [X]}, "torch")["p"][0], torch.Tensor)


def test_one_error_that_is_raised_again_has_the_place_of_each_time(register):
    def same(*args):
        raise error

    error = af.ConversionError("the same")
    register(faulty(to_numpy=same))
    register(type("Pairs", (HeldContainer,), {"rebuild": same})())
    for path, value in itertools.product("ab", (Box(X), Held(X))):
        assert refused(af.ConversionError, "the same", {path: value}, "torch").path == f"['{path}']"


def test_a_plan_checks_what_rebuild_returns(register):
    """`rebuild` may fail for the first time after code was written for the structure."""

    def rebuild(self, value, children):
        return None if value.x[0] else HeldContainer.rebuild(self, value, children)

    register(type("Pairs", (HeldContainer,), {"rebuild": rebuild})())
    convert = af.converter("torch")
    for _ in range(20):
        assert convert(Held(X)).x.tolist() == [0, 1, 2]
    assert "rebuilt(" in convert.explain()
    with pytest.raises(af.StructureError, match=r"rebuild\(\) returned None"):
        convert(Held(X + 1))


def test_children_may_be_any_iterable(register):
    register(type("Pairs", (HeldContainer,), {"children": lambda self, value: iter([value.x])})())
    for _ in range(4):
        assert af.convert([Held(X)], "torch")[0].x.tolist() == [0, 1, 2]


def inlined(test, result):
    return lambda self, options: af.Inline(test, result, {"convert": self.convert})


def to_torch(register, **methods):
    """Return a conversion of boxes by a direct converter with methods of its own."""
    register(BoxBackend())
    register(type("Direct", (DirectToTorch,), methods)())
    return af.converter("torch")


@pytest.mark.parametrize("to_numpy", [raising, lambda self, x: x.values])
def test_a_traced_value_that_to_numpy_does_not_refuse(register, to_numpy):
    register(faulty(is_traced=lambda self, x: True, to_numpy=to_numpy))
    refused(af.TracedValueError, "no values yet.*outside the traced function", [Box(X)], "torch")


def test_code_of_a_converter_is_one_condition_and_keeps_its_names(register):
    """A test of several conditions is joined with those of other arrays, and each result is checked."""
    found = []
    names = {"checked": lambda x: found.append(x) or torch.from_numpy(x.values)}
    test = "{x}.values.ndim == 1 or {x}.values.ndim == 2"
    code = af.Inline(test, "{checked}({x})", names)
    conversion = to_torch(register, inline=lambda self, options: code)
    for _ in range(4):
        conversion([Box(X), Box(X[None])])
    assert len(found) == 4  # of two conversions
    conversion([Box(X[None, None]), Box(X)])
    assert len(found) == 4


def test_a_type_that_cannot_be_asked_for_its_subclasses_harms_no_other(register):
    class Shaped(Protocol):
        shape: tuple

    register(type("Shapes", (HeldContainer,), {"types": (Shaped,)})())
    with pytest.warns(af.PluginWarning, match=r"does not use .*Shaped of .*issubclass\(\) fails"):
        converted = af.convert({"a": X}, "torch")
    assert type(converted["a"]) is torch.Tensor


@pytest.mark.parametrize("x", [X, Box(X)], ids=["from NumPy", "within the library"])
def test_a_backend_that_ignores_the_device(register, x):
    stays = {"device_of": lambda self, x: "cpu", "move": lambda self, x, device: x}
    register(faulty(names=lambda self: ("cpu", "tpu"), **stays))
    for value in (x, [x], [x]):
        with pytest.raises(af.ConversionError, match="'boxes' put an array on cpu instead of tpu"):
            af.convert(value, "boxes", device="tpu")
        assert isinstance(af.convert(value, "boxes", device="cpu"), (Box, list))


def test_the_types_that_a_direct_converter_was_asked_about_are_few(register):
    asked = []
    conversion = to_torch(register, takes=lambda self, cls: asked.append(cls) or True)
    for number in range(300):
        cls = type(f"Array{number}", (Box,), {})
        assert conversion(cls(X)).tolist() == [0, 1, 2]
    direct = conversion._plans.pairs.pair(af.registry.backend("boxes")).direct
    assert isinstance(direct.converter, DirectToTorch)
    assert len(asked) >= 300
    assert direct._taken.cache_info().currsize <= 64


DIRECT = {
    "bind": raising,
    "bind_many": raising,
    "inline": raising,
    "takes": raising,
    "inline with a name that it does not declare": inlined("", "{convrt}({x})"),
    "inline with a test that is no expression": inlined("not", "{convert}({x})"),
    "inline with a result that is no expression": inlined("", "{convert}({x}"),
    "inline that is no Inline": lambda self, options: "{convert}({x})",
    "inline with a text for its names": lambda self, options: af.Inline("", "{x}", "convert"),
}


@pytest.mark.parametrize("fault", DIRECT)
def test_a_direct_converter_that_fails_is_named_and_not_used(register, fault):
    method = fault.split()[0]
    conversion = to_torch(register, **{method: DIRECT[fault]})
    with pytest.warns(af.PluginWarning, match=rf"boxes -> torch> \(.*\) failed in {method}\(\) \("):
        assert conversion([Box(X), Box(X)])[1].tolist() == [0, 1, 2]
    for _ in range(5):
        assert conversion([Box(X), Box(X)])[1].tolist() == [0, 1, 2]


def test_memory_that_runs_out_is_no_answer_about_a_type(register):
    answers = iter([MemoryError("none left"), True])
    used = []

    def takes(self, cls):
        answer = next(answers)
        if answer is not True:
            raise answer
        return answer

    def convert(self, x, device=None, copy=None):
        used.append(x)
        return torch.from_numpy(x.values.copy())

    conversion = to_torch(register, takes=takes, convert=convert)
    with pytest.raises(MemoryError, match="none left"):
        conversion(Box(X))
    assert conversion(Box(X)).tolist() == [0, 1, 2]
    assert len(used) == 1


class DirectToBoxes(af.Converter):
    source, target, types = "numpy", "boxes", ("numpy.ndarray",)

    def convert(self, x, device=None, copy=None):
        return Box(x.copy())


FROM_NUMPY = {
    "convert": {},
    "inline": {"inline": inlined("", "{convert}({x})")},
    "inline with a test": {"inline": inlined("{x}.ndim == 1", "{convert}({x})")},
    "bind_many": {"bind_many": lambda self, options: lambda xs: [Box(x.copy()) for x in xs]},
}


@pytest.mark.parametrize("methods", FROM_NUMPY.values(), ids=FROM_NUMPY)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: [X, x]])
def test_a_direct_converter_is_given_no_objects(register, methods, wrap):
    register(BoxBackend())
    register(type("Direct", (DirectToBoxes,), methods)())
    conversion, objects = af.converter("boxes"), np.array([None, None], object)
    objects[0], objects[1] = X, {"x": X}
    for value in (objects, X, objects):
        for _ in range(4):
            found = conversion(wrap(value))
            found = found[-1] if isinstance(found, list) else found
            if value is objects:
                assert (type(found[0]), type(found[1]["x"])) == (Box, Box)
            else:
                assert type(found) is Box


NOT_CONVERTED = [
    ("convert", raising),
    ("convert", lambda *args: NotImplemented),
    ("convert", lambda *args: None),  # the warning of it is an error here
    ("takes", lambda self, cls: False),
    ("bind", lambda self, options: None),
    ("bind_many", lambda self, options: lambda xs: xs[1:]),
    ("bind_many", lambda self, options: lambda xs: None),
]


@pytest.mark.parametrize(("method", "function"), NOT_CONVERTED)
def test_what_a_direct_converter_does_not_convert(register, method, function):
    conversion = to_torch(register, **{method: function})
    for _ in range(5):
        assert conversion([Box(X), Box(X)])[1].tolist() == [0, 1, 2]


WRONG = {
    "None": lambda x: None,
    "a list": lambda x: [1.0],
    "an array of another library": lambda x: x.values,
    "its argument": lambda x: x,
    "a number of NumPy": lambda x: x.values[0],
}
METHODS = {
    "convert": lambda function: lambda self, x, device=None, copy=None: function(x),
    "bind": lambda function: lambda self, options: function,
    "bind_many": lambda function: lambda self, options: lambda xs: [function(x) for x in xs],
    "inline": lambda function: lambda self, options: af.Inline("", "{f}({x})", {"f": function}),
}
"""How each method of a converter is to be written, so that it calls a function."""


@pytest.mark.parametrize("method", ["convert", "bind", "bind_many"])
@pytest.mark.parametrize("what", WRONG)
def test_a_direct_converter_that_returns_something_else_is_not_used(register, method, what):
    conversion = to_torch(register, **{method: METHODS[method](WRONG[what])})
    value = [Box(X), {"b": Box(X)}]
    words = "boxes -> torch> .* which is not an array of the target, so it is not used"
    with pytest.warns(af.PluginWarning, match=words):
        assert conversion(value)[1]["b"].tolist() == [0, 1, 2]
    for _ in range(5):
        found = conversion(value)
        assert isinstance(found[0], torch.Tensor)
        assert found[1]["b"].tolist() == [0, 1, 2]
        assert conversion(Box(X)).tolist() == [0, 1, 2]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", ["convert", "bind"])
@pytest.mark.parametrize("what", ["None", "a list", "a tensor", "its argument", "shared"])
def test_a_wrong_converter_that_is_one_step_of_several_is_not_used(register, method, what):
    """It is asked once, and told, as one that is the whole way is."""
    calls = []
    others = {"a tensor": lambda x: torch.zeros(3), "shared": lambda x: x.values}
    wrong = {**WRONG, **others}[what]
    methods = {
        each: METHODS[each](lambda x: calls.append(x) or wrong(x)) for each in ("convert", method)
    }
    register(faulty(to_numpy_shares=True))
    register(type("ToNumpy", (DirectToTorch,), {"target": "numpy", "cost": "share", **methods})())
    conversion = af.converter("dask", copy=True if what == "shared" else None)
    assert len(af.route("boxes", "dask").steps) == 2
    message = "ignores copy=True" if what == "shared" else "which is not an array of the target"
    with pytest.warns(af.PluginWarning, match=rf"boxes -> numpy> .*{message}, so it is not used"):
        first = conversion({"a": Box(X)})["a"]
    found = [first, *(conversion({"a": Box(X)})["a"] for _ in range(4)), conversion(Box(X))]
    assert [x.compute().tolist() for x in found] == [[0, 1, 2]] * 6
    assert len(calls) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_direct_converter_that_is_right_first(register, method):
    """Code that was written while it was right does not use it any more."""
    calls = []

    def odd(x):
        calls.append(x)
        return x.values if x.values[0] == 7 else torch.from_numpy(x.values.copy())

    conversion = to_torch(register, **{method: METHODS[method](odd)})
    seven = Box(np.full(3, 7, np.float32))
    for _ in range(5):
        assert conversion([Box(X), Box(X)])[1].tolist() == [0, 1, 2]
        assert conversion(Box(X)).tolist() == [0, 1, 2]
    assert calls
    words = "which is not an array of the target, so it is not used"
    with pytest.warns(af.PluginWarning, match=words):
        assert conversion([Box(X), seven])[1].tolist() == [7, 7, 7]
    count = len(calls)
    for _ in range(5):
        assert conversion([Box(X), seven])[1].tolist() == [7, 7, 7]
        assert conversion([Box(X), Box(X)])[1].tolist() == [0, 1, 2]
        assert conversion(seven).tolist() == [7, 7, 7]
    assert len(calls) == count


@pytest.mark.parametrize("source", ["numpy", "torch", "boxes"])
@pytest.mark.parametrize(
    "made", [lambda x: x.copy(), lambda x: None, lambda x: x[0], torch.from_numpy]
)
def test_a_backend_that_makes_something_else(register, source, made):
    register(
        faulty(from_numpy=lambda self, x, device=None: made(x), copy=lambda self, x: made(x.values))
    )
    x = af.convert(X, source) if source != "boxes" else Box(X)
    method = "copy" if source == "boxes" else "from_numpy"
    for value in (x, [x], {"a": x}):
        for _ in range(3):
            words = rf"{method}\(\) of the backend 'boxes' returned a"
            refused(af.ConversionError, words, value, "boxes", copy=True)


@pytest.mark.parametrize(
    "pair", [("boxes", "numpy"), ("numpy", "boxes"), ("boxes", "torch"), ("torch", "boxes")]
)
def test_a_direct_converter_that_ignores_copy_is_not_used(register, pair):
    calls, make = [], {"boxes": Box, "numpy": np.asarray, "torch": torch.from_numpy}

    class Shares(af.Converter):
        source, target, cost = *pair, "copy"

        def convert(self, x, device=None, copy=None):
            calls.append(x)
            return make[pair[1]](x.values if isinstance(x, Box) else np.asarray(x))

    register(faulty(address=lambda self, x: x.values.ctypes.data))
    register(Shares())
    memory = X.copy()
    x = make[pair[0]](memory)
    conversion = af.converter(pair[1], copy=True)
    with pytest.warns(af.PluginWarning, match="ignores copy=True, so it is not used"):
        found = [conversion([x])[0] for _ in range(4)]
    assert len(calls) < 3
    memory[:] = -1
    for y in found:
        assert np.asarray(y.values if isinstance(y, Box) else y).tolist() == [0, 1, 2]


def test_a_view_of_what_never_changes_is_read_only(register):
    register(faulty(memory="immutable", to_numpy_shares=True))
    for copy in (None, False):
        for value in (Box(X), [Box(X)], [Box(X)]):
            found = af.convert(value, "numpy", copy=copy)
            found = found[0] if isinstance(found, list) else found
            assert not found.flags.writeable
            assert np.shares_memory(found, X)


def test_values_of_a_subclass_are_plain_for_users(register):
    register(faulty(to_numpy=lambda self, x: x.values.view(np.recarray)))
    assert type(af.convert(Box(X), "numpy")) is np.ndarray
    for target in ("torch", "jax"):
        assert np.asarray(af.convert([Box(X)], target)[0]).tolist() == [0, 1, 2]


def test_a_plan_that_cannot_be_written_loses_no_result(register):
    failed = []

    def names(self):
        if any(frame.function == "write_plan" for frame in inspect.stack(0)):
            failed.append(True)
            raise RuntimeError("broken")
        return ("cpu",)

    register(faulty(names=names))
    conversion = af.converter("boxes", device="cpu")
    for _ in range(5):
        assert conversion([Box(X)])[0].values.tolist() == [0, 1, 2]
    assert failed


def test_a_backend_is_given_plain_arrays(register):
    given = []
    register(faulty(from_numpy=lambda self, x, device=None: given.append(x) or Box(x)))
    for x in (X.view(np.matrix), X[::-1], X.astype(">f4"), X.view(np.recarray)):
        af.convert([x], "boxes")
    for x in given:
        assert type(x) is np.ndarray
        assert x.dtype.isnative
        assert all(stride >= 0 for stride in x.strides)


def test_a_converter_to_nobody_disturbs_no_other_route(register):
    register(BoxBackend())
    register(type("ToNobody", (DirectToTorch,), {"target": "nobody", "cost": "share"})())
    words = r"does not use <Converter boxes -> nobody> of .*no backend is named 'nobody'"
    with pytest.warns(af.PluginWarning, match=words):
        assert af.convert([Box(X)], "jax")[0].tolist() == [0, 1, 2]
    register(faulty(name="nobody", array_types=("boxlib.Nobody",)))  # its backend may come later
    assert af.convert([Box(X)], "jax")[0].tolist() == [0, 1, 2]
    assert [step.via for step in af.route("boxes", "jax").steps]


@pytest.mark.parametrize("install", ["", "box-library"])
def test_a_library_whose_import_fails(register, monkeypatch, tmp_path, install):
    (tmp_path / "brokenlib.py").write_text("raise OSError('no such driver')\n")
    monkeypatch.syspath_prepend(tmp_path)
    register(faulty(package="brokenlib", install=install, name="broken"))
    command = f", for instance: pip install --force-reinstall {install}" if install else r"\."
    words = rf"failed with OSError: no such driver\. Reinstall it{command}$"
    refused(af.BackendUnavailableError, words, X, "broken")


def full(*args, **kwargs):
    raise MemoryError("none left")


OUT_OF_MEMORY = {
    "to_numpy": (faulty(to_numpy=full), lambda: [Box(X)], "torch"),
    "from_numpy": (faulty(from_numpy=full), lambda: [X], "boxes"),
    "children": (type("Pairs", (HeldContainer,), {"children": full})(), lambda: [Held(X)], "torch"),
}  # fmt: skip


@pytest.mark.parametrize("where", OUT_OF_MEMORY)
def test_out_of_memory_is_raised_as_it_is(register, where):
    part, value, target = OUT_OF_MEMORY[where]
    register(part)
    for _ in range(3):
        refused(MemoryError, "none left", value(), target)


@pytest.mark.parametrize("error", [MemoryError("none left"), torch.OutOfMemoryError("none left")])
@pytest.mark.parametrize("times", [0, 4])
def test_out_of_memory_in_a_direct_converter(register, error, times):
    def convert(self, x, device=None, copy=None):
        if x.values is None:
            raise error
        return torch.from_numpy(x.values.copy())

    conversion = to_torch(register, convert=convert)
    for _ in range(times):
        conversion([Box(X)])
    for _ in range(3):
        with pytest.raises(type(error), match="none left"):
            conversion([Box(None)])


def test_a_tensor_that_is_too_large():
    huge = np.broadcast_to(np.float32(0), (2**45,))
    refused((MemoryError, RuntimeError), r"(?i)allocate", [huge], "torch", copy=True)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (("numpy", "cupy"), "^cupy is not installed. Run: pip install cupy-cuda13x"),
        (("jax", "numpy"), "^jax is not installed. Run: pip install jax$"),
    ],
)
def test_routes_to_what_is_not_there(registry, monkeypatch, pair, words):
    for name in ("cupy", "jax"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(af.BackendUnavailableError, match=words):
        af.route(*pair, registry=registry)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_quantities_are_refused():
    class Quantity(np.ndarray):
        unit = "m"

    class WithUnits(np.ndarray):
        pass

    other = X.view(WithUnits)
    other.units = "s"
    for x in (X.view(Quantity), other):
        for target in ("torch", "jax", "dask", "array_api_strict"):
            for _ in range(3):
                words = r"has units, which would be lost.*at \['v'\].*x\.value"
                refused(af.ConversionError, words, {"v": x}, target)
        assert af.convert(x, "numpy") is x
    for kept in (np.asmatrix(X), X.view(np.recarray), X.view(type("Own", (np.ndarray,), {}))):
        assert af.convert(kept, "torch").ravel().tolist() == [0, 1, 2]


NAMES_OF_DTYPES = [
    [np.float32], ["float32"], ("float32",), {"float32": 1}, "float32", [np.float32, np.int8],
    {"float32", "bfloat16"}, {"float32", "quint8"}, {"float32", "string"},
]  # fmt: skip


@pytest.mark.parametrize("held", NAMES_OF_DTYPES)
def test_dtypes_in_whatever_way(register, held):
    """Also those that NumPy does not have."""
    sys.modules["boxlib"].quint8 = object()
    register(faulty(dtypes=lambda self: held))
    assert af.convert(np.ones(2), "boxes").values.dtype == np.float32


def native_only(self, x, device=None):
    torch.from_numpy(x)  # which refuses other byte orders
    box = Box(x)
    box.device = device or "cpu"
    return box


@pytest.mark.parametrize(
    "options", [{"copy": True}, {"device": "cpu", "copy": True}, {"device": "box:1"}]
)
def test_values_in_another_byte_order(register, options):
    """What `to_numpy` returned is made ready for `from_numpy`, also within the library."""
    register(
        faulty(
            to_numpy=lambda self, x: x.values.astype(">f4"),
            from_numpy=native_only,
            names=lambda self: ("cpu", "box:1"),
            device_of=lambda self, x: getattr(x, "device", "cpu"),
        )
    )
    found = af.convert([Box(X)], "boxes", **options)[0]
    assert (found.device, found.values.tolist()) == (options.get("device", "cpu"), [0, 1, 2])
    for target in ("torch", "jax") if "copy" in options else ():
        assert np.asarray(af.convert([Box(X)], target, **options)[0]).tolist() == [0, 1, 2]


INSTALLED = """
import boxes

class Faulty(boxes.BoxBackend):
    def to_numpy(self, x):
        raise ZeroDivisionError("a fault")
"""


@pytest.mark.parametrize("folder", ["site-packages", "checkout"])
def test_only_users_are_told_to_report_a_fault(register, tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "faulty_plugin.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(tmp_path / folder)
    monkeypatch.delitem(sys.modules, "faulty_plugin", raising=False)
    register(importlib.import_module("faulty_plugin").Faulty())
    words = r"raised ZeroDivisionError: a fault for a .*Box"
    caught = refused(af.ContractError, words, Box(X), "torch")
    told = "report this to the author of the plugin" in str(caught)
    assert told == (folder == "site-packages")
