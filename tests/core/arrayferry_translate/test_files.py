"""Programs in files: read without JAX, damaged, of a newer version, called with other arguments."""

import copy
import json
import pickle
import threading
import types
import zipfile
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax import lax

import arrayferry as af
from arrayferry_translate import ProgramError, TranslationError, load, read_all, save_all, translate


class Point(NamedTuple):
    x: object
    y: object


@pytest.fixture
def path(tmp_path):
    return tmp_path / "function.afp"


WITHOUT_JAX = """
import sys
class Refuse:
    def find_spec(self, name, *args):
        if name.partition(".")[0] in ("jax", "jaxlib"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np, torch
from arrayferry_translate import load
for to in ("numpy", "torch"):
    run = load({path!r}, to)
    key, x = np.array([0, 7], "uint32"), np.arange(4, dtype="float32")
    result = run(key, {{"x": x, "n": np.int32(3)}})
    print([np.asarray(value).tolist() for value in (result.x, *result.y)])
"""


@pytest.mark.assumes_other("rbg")
def test_a_file_needs_no_jax(path, run_python):
    def function(key, tree):
        def body(i, x):
            return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, i)), x * 2, x - 1)

        return Point(
            jax.lax.fori_loop(0, tree["n"], body, tree["x"]),
            (jax.random.bits(key, (2,)), jnp.ones(2)),
        )

    given = np.array([0, 7], "uint32"), {"x": np.arange(4, dtype="float32"), "n": np.int32(3)}
    translate(function, "numpy").program(*given).save(path)
    expected = jax.jit(function)(jax.random.key(7), given[1])
    lines = run_python(WITHOUT_JAX.format(path=str(path))).strip().splitlines()
    assert [json.loads(line) for line in lines] == [
        [np.asarray(value).tolist() for value in (expected.x, *expected.y)]
    ] * 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "uint8", "bool", "uint32", "float32"])
def test_constants_keep_their_values(path, dtype):
    constant = np.array([0, 1, 3], ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    translate(lambda: (constant, jnp.inf, -jnp.nan), "numpy").program().save(path)
    found, infinity, nan = load(path, "numpy")()
    assert found.dtype == constant.dtype
    assert (found == constant).all()
    assert np.isinf(infinity)
    assert np.isnan(nan)
    assert load(path, "torch")()[0].tolist() == constant.tolist()


def test_structures(path):
    def function(a, *, b):
        return {"p": Point(a["x"], None), "z": [b, (b,)], "none": ()}

    given = {"x": np.ones(2, np.float32)}
    translate(function, "numpy").program(given, b=np.float32(3)).save(path)
    found = load(path, "numpy")(given, b=3)
    assert list(found) == ["none", "p", "z"]
    assert type(found["p"]).__name__ == "Point"
    assert found["p"].y is None
    assert found["z"][1][0] == 3
    assert found["none"] == ()


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_named_tuples_are_copied_and_pickled(path, copied):
    translate(lambda x: {"p": Point(x, None)}, "numpy").program(np.ones(2, np.float32)).save(path)
    found = load(path, "numpy")(np.ones(2, np.float32))["p"]
    again = copied(found)
    assert type(again) is type(found)
    assert again._fields == ("x", "y")
    assert again.x.tolist() == [1, 1]
    assert again.y is None


def test_objects_come_as_namespaces(path):
    jax.tree_util.register_pytree_with_keys_class(Body) if not hasattr(Body, "made") else None
    translate(lambda body: body, "numpy").program(Body(np.ones(2, np.float32))).save(path)
    run = load(path, "numpy")
    found = run(Body(np.zeros(2, np.float32)))
    assert type(found) is types.SimpleNamespace
    assert run(found).mass.tolist() == [0, 0]
    with pytest.raises(ProgramError, match=r"needs a Body with mass at \[0\]\[0\], not a dict"):
        run({"mass": 1})


class Body:
    def __init__(self, mass):
        self.mass = mass

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey("mass"), self.mass)], None

    def tree_flatten(self):
        return [self.mass], None

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(*children)


def test_keys_that_are_numbers(path):
    translate(lambda x: {2: x[7]}, "numpy").program({7: np.float32(1)}).save(path)
    assert load(path, "numpy")({7: 4.0})[2] == 4


def test_keys_that_no_file_holds(path):
    with pytest.raises(TranslationError, match=r"a dict with the key 1\.5 cannot be saved"):
        translate(lambda: {1.5: jnp.ones(1)}, "numpy").program()


@pytest.mark.assumes_other("strict")
def test_other_arguments_are_refused(path):
    translate(lambda x, i: x * i, "numpy").program(np.ones(2, np.float32), np.int32(1)).save(path)
    run, x = load(path, "torch"), torch.ones(2)
    assert run(x, 3).tolist() == [3, 3]
    assert run(x.double(), torch.tensor(3)).tolist() == [3, 3]  # as JAX takes 64 bits
    for given, text in (
        ((x,), "the program needs a tuple of 2"),
        ((x, 3, 4), "the program needs a tuple of 2"),
        (
            (torch.ones(3), 3),
            r"has the shape \(3,\), but the program was made for the shape \(2,\)",
        ),
        (
            (x.int(), 3),
            "has the dtype int32, but the program was made for the dtype float32",
        ),
        ((x, "3"), "the argument .* is a str"),
    ):
        with pytest.raises(ProgramError, match=text):
            run(*given)
    with pytest.raises(af.NarrowingError, match="contains 1099511627776, which does not fit int32"):
        run(x, 2**40)


def test_files_that_are_none(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.afp", "numpy")
    path.write_bytes(b"text")
    with pytest.raises(ProgramError, match=r"function\.afp contains no program, or is damaged"):
        load(path, "numpy")


def changed(path, change):
    """Change the JSON of a file."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    document = json.loads(members["program.json"])
    change(document)
    members["program.json"] = json.dumps(document).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)


def damage(function):
    return lambda document: function(document["programs"][""])


DAMAGES = {
    "primitive": damage(lambda p: p["equations"][0].__setitem__(0, "exec")),
    "parameters": damage(lambda p: p["equations"][0][3].update(more=1)),
    "later value": damage(lambda p: p["equations"][0].__setitem__(1, [99])),
    "value that is no number": damage(lambda p: p["equations"][0].__setitem__(1, [0.5])),
    "value that no equation makes": damage(lambda p: p.update(outputs=[99])),
    "negative value": damage(lambda p: p.update(outputs=[-1])),
    "numbers": damage(lambda p: p["equations"][-1].__setitem__(2, [1])),
    "shape": damage(lambda p: p["specs"][0].__setitem__(0, [-3])),
    "dtype": damage(lambda p: p["specs"][0].__setitem__(1, "object")),
    "unknown dtype": damage(lambda p: p["specs"][0].__setitem__(1, "x")),
    "dtype of other bytes": damage(lambda p: p["specs"][0].__setitem__(1, ">f4")),
    "more arguments": damage(lambda p: p["arguments"][2].append([2, None])),
    "fewer results": damage(lambda p: p.update(results=["tuple", "", []])),
    "results that are none": damage(lambda p: p.update(results=["sum", "", [[0, None]]])),
    "names of fields": damage(lambda p: p.update(results=["object", "", [[3, None]]])),
    "no parts": damage(lambda p: p["arguments"].pop()),
    "no dtype": damage(lambda p: p["specs"][0].__setitem__(1, 3)),
    "constant": damage(lambda p: p.update(constants=[7])),
    "shape of a constant": damage(lambda p: p["specs"][1].__setitem__(0, [5])),
    "missing": damage(lambda p: p.pop("inputs")),
    "deep": lambda d: d.update(programs=nested(900)),
    "list": lambda d: d.update(programs=[1]),
}


WORDS = {
    "parameters": "has the wrong parameters", "dtype": "not a dtype of numbers", "shape": "not a whole number",
    "value that no equation makes": "the number of values is wrong", "fewer results": "have different numbers of arrays",
    "numbers": "are not numbered in order", "later value": "uses a value before it is computed",
}  # fmt: skip


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return {"": {"specs": value}}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files(path, name):
    offset = jnp.array([1.0, 2.0])
    translate(lambda x: jnp.sin(x + offset), "numpy").program(np.ones(2, np.float32)).save(path)
    assert load(path, "numpy")(np.ones(2, np.float32)).shape == (2,)
    changed(path, DAMAGES[name])
    with pytest.raises(ProgramError, match="contains no program, or is damaged") as error:
        load(path, "numpy")
    assert WORDS.get(name, "") in str(error.value)


PARAMETERS = {
    "axes": lambda params: params.update(axes=7),
    "program": lambda params: params.update(jaxpr="text"),
    "length": lambda params: params.update(length="text"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_damaged_parameters(path, name):
    def function(x):
        return lax.scan(lambda c, y: (c + y, jnp.argmax(x)), 0.0, x), jnp.argmax(x)

    def change(document):
        for equation in document["programs"][""]["equations"]:
            if {name, "length" if name == "program" else name} & {*equation[3]}:
                PARAMETERS[name](equation[3])

    translate(function, "numpy").program(np.ones(2, np.float32)).save(path)
    changed(path, change)
    for to in ("numpy", "torch"):
        with pytest.raises(
            ProgramError, match=r"the program is damaged: (argmax|scan) does not accept inputs of"
        ):
            load(path, to)


def test_truncated_files(path):
    translate(lambda x: x + 1, "numpy").program(np.ones(2, np.float32)).save(path)
    data = path.read_bytes()
    for length in range(0, len(data), 37):
        path.write_bytes(data[:length])
        with pytest.raises(ProgramError):
            load(path, "numpy")
    place = data.rindex(b"PK\x05\x06") + 12  # the size of the directory
    path.write_bytes(data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :])
    with pytest.raises(ProgramError, match="or is damaged"):
        load(path, "numpy")


def test_newer_files(path):
    translate(lambda x: x + 1, "numpy").program(np.ones(2, np.float32)).save(path)
    changed(path, lambda document: document.update(format=99))
    with pytest.raises(
        ProgramError,
        match=r"has the format 99, but .* reads only the format 1\. Upgrade arrayferry",
    ):
        load(path, "numpy")


def test_a_file_does_not_depend_on_hashes(path):
    def function(x):
        return lax.fori_loop(0, 3, lambda i, x: x.at[i].set(x[i]), x), lax.sort((x, x), num_keys=1)

    translate(function, "numpy").program(np.ones(3, np.float32)).save(path)
    with zipfile.ZipFile(path) as file:
        document = json.loads(file.read("program.json"))
    params = [params for *_, params in document["programs"][""]["equations"]]
    assert max(map(len, params)) > 1
    assert all([*each] == sorted(each) for each in params)


def test_several_programs(path):
    program = translate(lambda x: x + 1, "numpy").program(np.float32(1))
    save_all(path, {"one": program, "two": program}, {"by": "hand"})
    programs, about = read_all(path)
    assert list(programs) == ["one", "two"]
    assert about == {"by": "hand"}
    assert str(programs["one"]) == str(program)
    with pytest.raises(ProgramError, match="contains several programs instead of one: one, two"):
        load(path, "numpy")
    with pytest.raises(FileNotFoundError):
        read_all(path.with_name("none"))
    path.write_bytes(b"")
    with pytest.raises(ProgramError):
        read_all(path)


def test_a_file_is_replaced_whole(path):
    translate(lambda x: x + 1, "numpy").program(np.float32(1)).save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_all(path, {}, {"no": object()})
    assert path.read_bytes() == before
    object_array = np.array([None])
    with pytest.raises(ValueError, match="Object arrays"):
        save_all(path, {"": replace(read_all(path)[0][""], constants=(object_array,))})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    translate(lambda x: x + 2, "numpy").program(np.float32(1)).save(str(path))
    assert load(path, "numpy")(np.float32(1)) == 3
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_several_threads_write_one_file(path):
    program = translate(lambda x: x + jnp.arange(20_000), "numpy").program(np.int32(1))
    failed = []

    def write():
        try:
            for _ in range(4):
                program.save(path)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed
    assert load(path, "numpy")(1)[3] == 4
    assert [file.name for file in path.parent.iterdir()] == [path.name]
