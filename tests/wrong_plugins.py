"""Wrong plugins: `PLANTED` has for each test of the contract kit the faults that it must find, and words of its message."""

import warnings

import numpy as np
from subtle_plugins import answers, backend, devices, dlpack, making, placing, read_only, reading
from toys import Array, Correct, CorrectImmutable, CorrectLazy

from arrayferry_streams import Blocks, Reader, Slices, Streaming, even_lengths


class ToyStreaming(Streaming):
    """How blocks of a toy library are read."""

    name = "toy"

    def blocks(self, xs, axis, *, block=None, client=None):
        lengths = [even_lengths(x.values.shape, 4, axis, wanted=block or 2) for x in xs]
        return ToyBlocks([x.values for x in xs], axis, lengths)


class ToyBlocks(Slices):
    def read(self, array, block):
        return super().read(array, block).copy()


def streaming(method=ToyStreaming.blocks, name="toy"):
    """Return what a plugin says to streams, with its own method."""
    return {"arrayferry_blocks": type("Own", (ToyStreaming,), {"blocks": method, "name": name})()}


def emptied(x):
    """Return the values of an array, and overwrite the array where that is allowed."""
    values = x.copy()
    if x.flags.writeable:
        x[...] = 0
    return values


def warning(x):
    warnings.warn("look out", stacklevel=1)
    return x


def without_text(x):
    if x.dtype.kind == "U":
        raise TypeError("no text")
    return x


def computing(function):
    """Return a lazy backend whose `compute` changes the list of results."""
    return backend(CorrectLazy, compute=lambda self, xs: function([x.values.copy() for x in xs]))


def with_blocks(change):
    """Return a lazy backend, and a part whose `blocks` changes what the correct one returns."""

    def blocks(self, xs, axis, *, block=None, client=None):
        made = ToyStreaming.blocks(self, xs, axis, block=block)
        return change(made, [x.values for x in xs], axis)

    return CorrectLazy(), streaming(blocks)


def with_attribute(name, value):
    """Return a lazy backend with another attribute of what `blocks` returns."""

    def change(blocks, xs, axis):
        setattr(blocks, name, value)
        return blocks

    return with_blocks(change)


class WithoutLengths(Blocks):
    def read(self, array, block):
        return np.zeros(2)


class Swapped(Reader):
    def read(self, step):
        return super().read(step)[::-1]


def in_any_order(blocks, xs, axis):
    blocks.open = lambda steps: Swapped(blocks, steps)
    return blocks


PLANTED = {
    "test_memory": {
        "shares what is large": (
            making(lambda x: x if x.nbytes > 2**21 else x.copy(), base=CorrectImmutable, from_numpy_shares=False),
            "from_numpy_shares is False", "4,194,304 bytes",
        ),
        "claims to share what is constant": (
            backend(CorrectImmutable, to_numpy=lambda self, x: read_only(x.values.copy())),
            "to_numpy_shares is True: two results for one array do not share memory",
        ),
        "shares when asked to copy": (
            backend(from_numpy_shares=False), "from_numpy() by convert(copy=True)", "from_numpy_shares is False",
        ),
        "only sparse": (
            backend(is_sparse=lambda self, x: True, to_dense=lambda self, x: x),
            "to_numpy() by convert(copy=None), for an array", "It must return a dense array of the same library",
        ),
    },
    "test_values": {
        "types for names of dtypes": (backend(**answers(dtypes={np.float32})), "instead of a set of names such as {'float32'}"),
        "takes no device": (
            backend(from_numpy=lambda self, x: Array(x.copy())),
            "from_numpy(), for", "raised TypeError", "takes 2 positional arguments but 3 were given",
        ),
        "a subclass": (reading(lambda x: x.view(np.recarray)), "returned a numpy.recarray instead of a numpy.ndarray"),
        "makes nothing": (
            backend(**answers(from_numpy=None)), "from_numpy(), for an array",
            "None, which is recognised as an array of no known library",
        ),
        "makes NumPy arrays": (
            backend(from_numpy=lambda self, x, device=None: x),
            "from_numpy(), for an array", "recognised as an array of numpy instead of toy",
        ),
        "changes its source": (reading(emptied, to_numpy_shares=False), "to_numpy(), for an array", "its argument"),
        "takes no text, which dtypes() says it does": (
            making(without_text, from_numpy_shares=True, dtypes=lambda self: None),
            "from_numpy(), for an array of dtype str", "no text",
        ),
    },
    "test_arrays_are_on_the_requested_device": {
        "forgets the device": (
            backend(from_numpy=lambda self, x, device=None: Array(x, "cpu"), devices=devices(move=lambda self, x, device: x)),
            "put an array on cpu instead of toy:1",
        ),
        "moves when copied": (
            backend(copy=lambda self, x: Array(x.values.copy(), "cpu")),
            "copy(), for an array on toy:1", "'cpu' instead of 'toy:1'",
        ),
        "moves nothing": (
            placing(move=lambda self, x, device: Array(x.values.copy(), x.device)), "put an array on toy:1 instead of cpu",
        ),
        **{
            f"{what}, as names of devices": (
                placing(**answers(names=names)), f"devices.names(): returned {names}", 'instead of names such as ("cpu"',
            )
            for what, names in (("none", ()), ("objects", (1,)))
        },
        "moves zeros": (
            placing(move=lambda self, x, device: Array(np.zeros_like(x.values), device)),
            "devices.move(x, 'cpu'), for an array on toy:1: 0.0",
        ),
        "reads zeros elsewhere": (
            backend(to_numpy=lambda self, x: x.values if x.device == "cpu" else x.values * 0),
            "to_numpy(), for an array on toy:1: ",
        ),
        "a place that is unknown": (
            placing(place_of=lambda self, x: {}["place"]), "devices.place_of(), for an array on cpu: raised KeyError",
        ),
        **{
            f"{what} of devices": (placing(**answers(**{method: answer})), f"devices.{method}({told}", words)
            for what, method, answer, told, words in (
                ("another default", "default", "toy:1", ")", "'cpu' instead of 'toy:1'"),
                ("a wrong place", "place_of", "cpu", "), for an array on toy:1", "'cpu' instead of 'toy:1'"),
                ("a fence of no kind", "fence", True, "), for an array", "returned True instead of a function"),
                ("no context", "use", None, "'cpu'): returned None", "a context manager"),
            )
        },
    },
    "test_results_outlive_their_sources": {
        "keeps an address, and not the memory": (
            making(lambda x: x if x.size < 300_000 else np.zeros_like(x), from_numpy_shares=True),
            "from_numpy(), for an array", "after the array that it was called with was deleted",
        ),
    },
    "test_many_at_once": {
        "computes too few": (computing(lambda found: found[1:]), "compute(), for 9 arrays", "8 instead of 9"),
        "computes nothing": (
            computing(lambda found: [x.tolist() for x in found]), "compute(), for an array", "no known library",
        ),
        "computes in place": (
            backend(CorrectLazy, compute=lambda self, xs: [x.values for x in xs]),
            "compute(), after its results were written to",
        ),
    },
    "test_answers": {
        **{
            what: (placing(is_out_of_memory=method), "devices.is_out_of_memory(), for ValueError", words)
            for what, method, words in (
                ("always out of memory", lambda self, error: True, "returned True instead of False"),
                ("fails out of memory", lambda self, error: error.code, "raised AttributeError"),
            )
        },
        **{
            what: (backend(**answers(**{method: answer})), f"{method}({told}", f"returned {words}")
            for what, method, answer, told, words in (
                ("not sparse", "is_sparse", None, "), for an array", "None instead of True or False"),
                ("a hint of no kind", "dtype_hint", 3, "'float64')", "an int instead of a text"),
                ("always traced", "is_traced", True, "), for an array", "True instead of False"),
            )
        },
    },
    "test_addresses": {
        "an address of no kind": (
            backend(to_numpy_shares=None, address=lambda self, x: float(x.values.ctypes.data)),
            "returned a float", "a whole number",
        ),
    },
    "test_array_types_exist": {
        "missing types": (
            backend(array_types=("toy_library.Missing", "toy_library.not_there.Array", "not_there.Array")),
            "['toy_library.Missing', 'toy_library.not_there.Array'], which does not exist",
        ),
    },
    "test_its_arrays_are_recognised": {
        "a wrong type": (
            backend(array_types=("toy_library.Other",)),
            "make() of the test: a toys.Array", "an array of no known library instead of toy, whose array_types are ('toy_library.Other',)",
        ),
    },
    "test_conversions_do_not_warn": {
        "warns": (reading(warning, to_numpy_shares=True), "to_numpy() by convert(copy=None), for an array", "UserWarning: look out"),
    },
    "test_dtypes_are_known": {
        what: (backend(**answers(dtypes=names)), *words)
        for what, names, *words in (
            ("a misspelt dtype", {"float32", "flaot64"}, "dtypes(): names that neither NumPy nor ml_dtypes has: ['flaot64']"),
            ("a text of dtypes", "float32", "returned 'float32'", "a set of names", "{'float32'}"),
            ("no dtypes", (), "dtypes(): returned ()", "{'float32'}"),
        )
    },
    "test_default_dtypes_of_numbers": {
        "wrong numbers": (backend(**answers(number_dtype="float")), "number_dtype('bool')", "'float' instead of 'bool'"),
    },
    "test_one_number": {
        "no item": (backend(item_types=("toy_library.Array",)), "item() of a toys.Array", "raised AttributeError"),
    },
    "test_dlpack": {
        "no DLPack": (
            backend(dlpack=dlpack()),
            "dlpack.export(), for an array", "__dlpack__ and __dlpack_device__",
        ),
        "DLPack in one direction": (
            backend(dlpack=dlpack(export=lambda self, x: x.values)),
            "dlpack.load(dlpack.export())", "NotImplementedError: Wrong accepts no arrays by DLPack",
        ),
    },
    "test_dtypes_are_named": {
        "names the library": (
            backend(dlpack=dlpack(kinds=("cuda",), dtype_of=lambda self, x: "toy")),
            "dlpack.dtype_of(), for an array", "'toy' instead of 'bool'",
        ),
    },
    "test_blocks": {
        "blocks of writable arrays": ((Correct(), streaming()), "memory, which must be lazy", "'writable' instead of 'lazy'"),
        "blocks of no kind": (
            with_blocks(lambda blocks, xs, axis: xs), "returned a list instead of an arrayferry_streams.Blocks",
        ),
        "blocks that raise": (
            (CorrectLazy(), streaming(lambda self, xs, axis: None)), "blocks(), for two arrays", "raised TypeError",
        ),
        "blocks that are too short": (
            with_blocks(lambda blocks, xs, axis: ToyBlocks(xs, axis, [[2]] * len(xs))),
            "lengths [[2], [2]] of blocks()", "[2, 2] instead of [7, 7]",
        ),
        "blocks without lengths": (
            with_blocks(lambda blocks, xs, axis: WithoutLengths()), "lengths of blocks()", "raised AttributeError",
        ),
        "blocks of another axis": (with_attribute("_axis", 0), "read() of blocks(), for (array, block)", "axis=1"),
        "blocks that are views": (
            with_blocks(lambda blocks, xs, axis: Slices(xs, axis, blocks.lengths)),
            "read() of blocks(), for (array, block)", "-1.0 instead of",
        ),
        "blocks that fail": (
            with_attribute("read", lambda array, block: 1 // 0), "read() of blocks(), for", "raised ZeroDivisionError",
        ),
        "blocks in any order": (with_blocks(in_any_order), "read() of open("),
        "blocks without a reader": (
            with_attribute("open", lambda steps: None), "open(), for [[(", "None instead of an arrayferry_streams.Reader",
        ),
    },
}  # fmt: skip
"""For each test of the kit, the plugins whose fault it finds, with what they say to layers, and words of its message."""
