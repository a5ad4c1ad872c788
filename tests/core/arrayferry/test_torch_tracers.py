"""What compiles and records functions of PyTorch: `torch.compile`, `torch.fx` and `make_fx`."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import arrayferry as af

X = torch.tensor([1, 2])
CALLS = {
    "convert": lambda x: af.convert(x, "jax"),
    "tree": lambda x: af.convert({"a": x * 2, "b": (x, 3)}, "numpy"),
    "like": lambda x: af.convert(x, like=np.ones(1)),
    "options": lambda x: af.convert(x, "numpy", copy=True, scalars="convert"),
    "converter": lambda x: af.converter("numpy", copy=True)(x),
    "namespace_of": lambda x: af.namespace_of(x).sin(x),
    "route": lambda x: str(af.route(x, "jax")),
    "flatten": lambda x: af.flatten({"a": x})[0],
    "stream": lambda x: af.stream(x, "numpy", block=1)[1],
    "agnostic": lambda x: af.agnostic("numpy")(np.sort)(x),
}
LAYERS = {"stream": "arrayferry_streams", "agnostic": "arrayferry_functions"}


@pytest.fixture
def compiled():
    """Compiles a function anew, and counts what PyTorch compiles."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    yield lambda function: torch.compile(function, backend=counter), counter
    torch._dynamo.reset()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CALLS)
def test_compiled_functions_call_it_uncompiled(compiled, name):
    if name in LAYERS:
        pytest.importorskip(LAYERS[name])
    compile_, _ = compiled
    function = compile_(CALLS[name])
    for x in (X, X, X, torch.tensor([3, 2, 1])):
        found, expected = function(x), CALLS[name](x)
        assert str(found) == str(expected)
        assert type(found) is type(expected)


def test_the_compiler_sees_nothing_of_it(compiled):
    compile_, counter = compiled
    convert = af.converter("jax")
    assert compile_(lambda x: convert(x))(X).tolist() == [1, 2]
    assert counter.frame_count == 0
    assert compile_(lambda x: convert(x * 2))(X).tolist() == [2, 4]
    assert counter.frame_count == 1


@pytest.mark.assumes_other("x64")
def test_errors_are_those_of_the_conversion(compiled):
    with pytest.raises(af.NarrowingError, match="does not fit"):
        compiled[0](lambda x: af.convert(x, "jax"))(torch.tensor([2**40]))


SCRIPT = """
{first}
import torch
{then}
from torch._dynamo.testing import CompileCounter
counter = CompileCounter()
for x in (torch.tensor([1, 2]), torch.tensor([1, 2, 3])):
    y = torch.compile(lambda x: af.convert(x, "jax"), backend=counter)(x)
    assert y.tolist() == x.tolist()
assert counter.frame_count == 0
"""
USED = "import arrayferry as af, numpy as np; af.convert(np.ones(2), 'jax')"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (USED, ""),
        pytest.param("", "import torch._dynamo, arrayferry as af", marks=pytest.mark.long),
        pytest.param("import arrayferry as af", "", marks=pytest.mark.long),
    ],
)
def test_in_any_order_of_imports(run_python, first, then):
    run_python(SCRIPT.format(first=first, then=then))


def recorded(function):
    tracer = torch.fx.symbolic_trace(function)
    return tracer(torch.tensor([1.0, 2.0, 3.0]))


def across(to, function, **options):
    pytest.importorskip("arrayferry_functions")
    return af.agnostic(to, **options)(function)


REFUSED = {
    "convert": lambda x: af.convert(x, "jax"),
    "tree": lambda x: af.convert({"a": [x]}, "numpy"),
    "attribute": lambda x: af.convert(x.real, "numpy"),
    "std": lambda x: across("jax", lambda x: x.std())(x),
    "repeat": lambda x: across("numpy", lambda x: x.repeat(2))(x),
    "gradients": lambda x: across("jax", lambda x: x.std(), differentiable=True)(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_crosses_in_what_fx_records(name):
    with pytest.raises(af.TracedValueError, match=r"has no values yet|cannot be recorded"):
        recorded(REFUSED[name])
    with pytest.raises(af.TracedValueError, match=r"has no values yet|cannot be recorded"):
        make_fx(REFUSED[name])(torch.tensor([1.0, 2.0, 3.0]))


def test_what_stays_in_torch_is_recorded():
    x = torch.tensor([1.0, 2.0, 3.0])
    for function in (
        across("torch", lambda x: x.std()),
        lambda x: af.convert({"a": x}, "torch")["a"].std(),
    ):
        assert torch.fx.symbolic_trace(function)(2 * x) == (2 * x).std()
        assert make_fx(function)(x)(2 * x) == (2 * x).std()


def test_constants_are_recorded():
    """Values that depend on no argument: of tensors from outside, and of other libraries."""
    held = torch.ones(2)

    def function(x):
        return x * float(af.convert(held, "numpy").sum()) + af.convert(jnp.ones(3), "torch")

    assert make_fx(function)(torch.zeros(3))(torch.ones(3)).tolist() == [3.0] * 3


def test_other_modes_of_torch_record_nothing():
    from torch.utils.flop_counter import FlopCounterMode

    for to in ("numpy", "jax"):
        convert = af.converter(to)
        for _ in range(5):
            with FlopCounterMode(display=False):
                assert convert(X).tolist() == [1, 2]


@pytest.mark.assumes_other("no_grad")
def test_compiled_backward_passes_call_it_uncompiled():
    from torch._dynamo import compiled_autograd

    square = across("jax", lambda x: (x**2).sum(), differentiable=True)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        square(x).backward()
    assert x.grad.tolist() == [2, 4]


def test_conversions_go_on_without_private_names_of_torch(run_python):
    run_python(
        "import torch; from torch.fx import _symbolic_trace; del _symbolic_trace._is_fx_tracing_flag\n"
        "import arrayferry as af\n"
        "for _ in range(4):\n"
        "    assert af.convert(torch.ones(2), 'numpy').sum() == 2\n"
        "    assert af.convert({'a': torch.ones(2)}, 'numpy')['a'].sum() == 2"
    )
