"""Plans: written for structures seen twice, correct for every value, readable."""

import collections
import gc
import random
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Plain, Point, registered
from cases import crossed, quick_if
from frames import calls_of

import arrayferry as af
from arrayferry._conversion import plan, plans
from arrayferry._conversion.plans import Plans
from arrayferry_plugins.jax_.identity import Identity, chunks, identity

X = np.arange(3, dtype=np.float32)


def convert_often(conversion, value, times=4):
    for _ in range(times):
        found = conversion(value)
    return found


def learnt(target, value, times=4, **options):
    """Return a conversion that was called with a value several times."""
    conversion = af.converter(target, **options)
    convert_often(conversion, value, times)
    return conversion


def test_a_plan_is_written_at_the_second_call():
    conversion = af.converter("torch")
    assert "no plan" in conversion.explain()
    conversion({"a": X})
    assert "no plan" in conversion.explain()
    conversion({"a": X})
    compile(conversion.explain(), "plans", "exec")
    assert "no plan" not in conversion.explain()


VALUES = {
    "float": X,
    "double": X.astype(np.float64),
    "wide": np.array([1, 2**40]),
    "flipped": X[::-1],
    "strided": np.arange(9, dtype=np.float32)[::3],
    "fortran": np.ones((2, 3), np.float32, order="F"),
    "empty": X[:0],
    "0-d": np.array(2.5, np.float32),
    "big-endian": X.astype(">f4"),
    "unaligned": np.frombuffer(bytearray(13), np.uint8)[1:].view(np.float32),
    "broadcast": np.broadcast_to(X, (2, 3)),
    "bool": np.array([True, False]),
    "half": X.astype(np.float16),
    "unsigned": np.array([1], np.uint64),
    "complex": np.array([1 - 2j], np.complex64),
}


@pytest.mark.parametrize(
    ("target", "copying"),
    crossed(["numpy", "torch", "jax", "dask", "array_api_strict"], [None, True]),
)
def test_values_that_change_under_one_structure(target, copying):
    conversion = learnt(target, {"a": [X], "b": (X, "text")}, copy=copying)
    for _ in range(2):
        for name, x in VALUES.items():
            if target == "jax" and name == "wide" and not jax.config.jax_enable_x64:
                with pytest.raises(af.NarrowingError, match=r"at \['a'\]\[0\]"):
                    conversion({"a": [x], "b": (X, "text")})
                continue
            found = conversion({"a": [x], "b": (x, "text")})
            for y in (found["a"][0], found["b"][0]):
                assert af.backend_of(y).name == target
                np.testing.assert_array_equal(np.asarray(af.convert(y, "numpy")), x)
            assert found["b"][1] == "text"


@pytest.mark.parametrize("target", ["numpy", "jax"])
def test_tensors_that_change_under_one_structure(target):
    conversion = learnt(target, [torch.arange(3.0)])
    z, weight = torch.tensor([1 + 2j]), torch.arange(3.0, requires_grad=True)
    for x in (
        weight, weight * 2, torch.nn.Parameter(weight), z.conj(), z.conj().imag, torch.arange(6.0)[::2],
        torch.ones(1).expand(4), torch.ones(2, dtype=torch.bfloat16), torch.ones(0), torch.ones(()),
        torch._efficientzerotensor((2,)),
    ):  # fmt: skip
        found = conversion([x])[0]
        expected = x.detach().resolve_conj().resolve_neg().clone()
        assert af.convert(found, "torch").tolist() == expected.tolist()
    assert weight.requires_grad
    with pytest.raises(af.ConversionError, match="sparse"):
        conversion([torch.ones(2).to_sparse()])


def test_jax_arrays_that_change_under_one_structure():
    for target in ("numpy", "torch"):
        conversion = learnt(target, [jnp.arange(3.0)])
        assert conversion([jnp.ones(2, jnp.bfloat16)])[0].tolist() == [1, 1]
        with pytest.raises(af.ConversionError, match="PRNG"):
            conversion([jax.random.key(0)])
        gone = jnp.ones(2)
        gone.delete()
        with pytest.raises(af.ConversionError, match="deleted"):
            conversion([gone])
        with pytest.raises(af.TracedValueError):
            jax.jit(lambda x, run=conversion: run([x]))(jnp.ones(1))


def test_structures_that_change_between_calls():
    conversion = af.converter("torch")
    shapes = [
        lambda: {"a": X, "b": X},
        lambda: {"b": X, "a": X},
        lambda: {"a": X, "b": None},
        lambda: collections.OrderedDict(a=X, b=X),
        *(lambda key=key: {key: X} for key in (1, True, 1.0, np.str_("a"), "a")),
        *(lambda size=size: [X] * size for size in (0, 2, 3, 40, 50)),
        lambda: (X, X),
        lambda: Point(X, X),
        lambda: Point(X, "y"),
        lambda: Plain([X], "note"),
        lambda: {str(i): X for i in range(30)},
        lambda: {"r": [torch.ones(1)] * 20, "n": X},
        lambda: X,
        lambda: np.float32(2),
        lambda: "text",
    ]

    for make in [*shapes * 6, *(make for make in shapes for _ in range(4))]:
        made = make()
        found = conversion(made)
        (arrays, layout), (converted, same) = af.flatten(made), af.flatten(found)
        assert layout == same
        assert type(found) is type(made) or arrays
        for x, y in zip(arrays, converted, strict=True):
            assert isinstance(y, torch.Tensor)
            assert y.tolist() == x.tolist()


WITHIN = [
    (lambda inner: {"x": X, "in": inner}, lambda part: part["in"]),
    (lambda inner: {"x": X, "in": {"y": inner}}, lambda part: part["in"]["y"]),
    (lambda inner: [inner, X], lambda part: part[0]),
    (lambda inner: ({"deep": inner},), lambda part: part[0]["deep"]),
]


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("make", "get"), WITHIN)
def test_containers_within_the_parts_of_a_long_list_stay_shared(make, get, target):
    conversion = learnt(target, [make([X]) for _ in range(20)])
    shared = [X]
    found = conversion([make(shared if index in (3, 17) else [X]) for index in range(20)])
    assert type(found) is list
    assert get(found[3]) is get(found[17])
    assert len({id(get(part)) for part in found}) == 19


PARTS = {
    "arrays": lambda n: {"a": n, "b": n[:2]},
    "nested": lambda n: {"obs": {"x": n, "t": (n[:1], "text")}, "a": n[:2], "id": len(n)},
    "data": lambda n: Plain([n, n[:2]], ("a", "b")),
    "several libraries": lambda n: {"a": torch.from_numpy(n), "b": (n, jnp.asarray(n)), "c": None},
}


WHERE = [lambda x: x, lambda x: {"x": X, "in": tuple(x), "y": [X]}]


@pytest.mark.parametrize(
    ("name", "target", "where"), crossed(PARTS, ["jax", "torch", "numpy"], WHERE)
)
def test_a_long_list_of_parts(name, target, where, without_plans):
    part, conversion, rng = PARTS[name], af.converter(target), random.Random(1)
    for step in range(12):
        count = rng.randrange(16, 60)
        value = where([part(np.full(3, 100 * step + n, np.float32)) for n in range(count)])
        if step == 4:
            without_plans.clear()
        found = conversion(value)
        arrays, layout = af.flatten(found)
        expected, same = af.flatten(value)
        assert str(layout) == str(same)
        for y, x in zip(arrays, expected, strict=True):
            assert af.backend_of(y).name == target
            assert y.tolist() == x.tolist()
    assert without_plans == []


@pytest.fixture
def crossings(monkeypatch):
    """Return how many arrays each call of a compiled identity took."""
    taken = []
    run = Identity._run
    monkeypatch.setattr(
        Identity, "_run", lambda self, program, xs: taken.append(len(xs)) or run(self, program, xs)
    )
    return taken


def test_a_long_list_of_dicts_crosses_at_once(crossings):
    learnt("jax", {"x": X, "list": [{"a": X, "b": X[:2]} for _ in range(23)]}, 30)
    assert crossings[-1] == 47
    assert crossings.count(47) > 5


@pytest.mark.parametrize("size", quick_if([1, 3, 7], (3).__eq__))
def test_few_programs_serve_long_lists_of_every_length(size, crossings):
    conversion, compiled = af.converter("jax"), identity(committed=False)
    convert_often(conversion, {"x": X})
    before = compiled._compilations
    for count in range(16, 216):
        value = [{n: np.full(n + 1, count, np.float32) for n in range(size)} for _ in range(count)]
        found = conversion(value)
    assert compiled._compilations - before < 16
    assert [y.tolist() for y in found[-1].values()] == [x.tolist() for x in value[-1].values()]
    crossings.clear()
    conversion(value)
    assert len(crossings) < 4 + sum(crossings) // 64


def test_arrays_that_differ_go_together_in_long_trees():
    shapes = [(n,) for n in range(1, 200)]
    for signature in (shapes, [*shapes[:5], *shapes[:3] * 40, *shapes[:9]], shapes[:1] * 700):
        places = list(chunks(tuple(signature)))
        covered = [n for place in places for n in range(place.start, place.stop)]
        assert covered == [*range(len(signature))]
        assert max(place.stop - place.start for place in places) <= 128
        assert len(places) < 12


def test_a_cycle_under_a_plan():
    conversion = learnt("torch", [[X], X])
    tree = [None, X]
    tree[0] = tree
    with pytest.raises(af.StructureError):
        conversion(tree)
    convert_often(conversion, [[[X] * 3], [X], [[X]]])
    wide = []
    wide += [wide] * 9
    with pytest.raises(af.StructureError):
        conversion(wide)


def test_more_shapes_into_jax_than_programs_are_kept(monkeypatch):
    monkeypatch.setattr(Identity, "MOST", 8)
    enter = Identity()

    def convert(sizes, times):
        """Return how many programs were compiled."""
        before = enter._compilations
        for _ in range(times):
            for size in sizes:
                n = np.arange(size, dtype=np.float32)
                assert enter([n])[0].tolist() == n.tolist()
                assert len(enter._programs) <= 8
        return enter._compilations - before

    assert convert(range(1, 9), 4) == 8
    assert convert(range(1, 13), 100) < 20
    assert convert(range(20, 26), 50) == 6
    assert convert(range(20, 26), 50) == 0


@pytest.mark.parametrize("size", [3, 1000, 20_000, 100_000])
def test_arrays_in_jax_do_not_change_when_buffers_are_reused(size):
    conversion = af.converter("jax")
    memory = np.zeros(size, np.float32)
    kept = []
    for step in range(8):
        memory[:] = step
        kept.append(conversion({"a": memory, "b": [memory]}))
        memory[:] = -1
    for step, found in enumerate(kept):
        for y in (found["a"], found["b"][0]):
            assert bool((np.asarray(y) == step).all())


def test_classes_with_awkward_names():
    conversion = af.converter("torch")
    for name in ("dict", "v1", "miss", "plan", "class", "take", "ndarray", "None", "größe", "len"):
        cls = type(name, (dict,), {})
        made = cls(a=X)
        assert type(convert_often(conversion, {"x": made})["x"]) is cls
        assert type(convert_often(conversion, {"x": {"a": X}})["x"]) is dict


def test_plans_are_dropped_when_the_registry_changes():
    class Better(af.Converter):
        source, target, cost = "numpy", "torch", "share"

        def convert(self, x, device=None, copy=None):
            return torch.full((1,), 7.0)

    both = [af.converter("torch"), af.converter("torch")]
    for conversion in both:
        convert_often(conversion, [X])
    part = Better()
    before = af.registry.catalog.converters
    with registered(part):
        assert ["no plan" in conversion.explain() for conversion in both] == [True, True]
        assert af.registry.catalog.converters == (part, *before)
    for conversion in both:
        assert convert_often(conversion, [X])[0].tolist() == [0, 1, 2]


@pytest.fixture
def few_plans(monkeypatch):
    """Let conversions have few plans, and return how many."""
    monkeypatch.setattr(plans, "MAX_PLANS", 32)
    return 32


def test_the_number_of_plans_is_bounded(few_plans):
    conversion = af.converter("torch")
    for size in range(1, 2 * few_plans):
        for _ in range(4):
            conversion([{"k": X}, *bits(size)])
    assert len(conversion._plans.all) == few_plans
    for number in range(2 * few_plans):
        convert_often(conversion, type(f"Made{number}", (dict,), {})(x=X))
    assert len(conversion._plans.all) <= few_plans


def test_types_of_dropped_plans_are_freed(few_plans):
    conversion = af.converter("torch")
    classes = []
    for number in range(40 * few_plans):
        cls = type(f"Made{number}", (dict,), {})
        classes.append(weakref.ref(cls))
        convert_often(conversion, [cls(x=X)], 8)
    conversion.registry.catalog.kinds.cached.clear()
    del cls
    gc.collect()
    assert sum(ref() is not None for ref in classes) <= few_plans


def bits(number):
    return [None if number >> place & 1 else "text" for place in range(9)]


def nested(levels):
    value = X
    for _ in range(levels):
        value = [value]
    return value


MANY = {
    "lengths": lambda n: {"x": X, "note": (None,) * n},
    "lengths of lists": lambda n: [X] * n,
    "depths": lambda n: {"a": nested(n % 28), "b": nested(n // 2 % 28)},
    "types": lambda n: {"x": X, "note": bits(n)},
    "types of arrays": lambda n: {place: X if n >> place & 1 else T for place in range(6)},
    "deep": lambda n: {"x": X, "a": [{"b": ((None,) * (n // 7), [None] * (n % 7))}]},
    "deep types": lambda n: [X, [{"a": each} for each in bits(n)], bits(n)],
    "named tuple": lambda n: Point(X, {"a": bits(n)}),
    "dataclass": lambda n: Plain([X], bits(n)),
    "mapping": lambda n: collections.OrderedDict({"x": X, **dict.fromkeys(range(n))}),
    "empty": lambda n: [X, *([] if n >> place & 1 else {} for place in range(6))],
    "classes": lambda n: (OTHERS[n](x=X), X),
    "whole": lambda n: OTHERS[n](x=X),
}
OTHERS = [type(f"Other{number}", (dict,), {}) for number in range(50)]
T = torch.arange(3)


@pytest.fixture
def without_plans(monkeypatch):
    """Return a list of the values that no plan was there for."""
    values = []
    slow_path = Plans.slow_path

    def noted(self, value):
        values.append(value)
        return slow_path(self, value)

    monkeypatch.setattr(Plans, "slow_path", noted)
    return values


@pytest.mark.parametrize("count", [12, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", MANY.values(), ids=MANY)
def test_many_structures_in_turn_have_a_plan_each(make, count, without_plans):
    conversion = af.converter("torch")
    values = [make(number) for number in range(count)]
    for _ in range(6):
        for value in values:
            conversion(value)
    without_plans.clear()
    for value in [*values, *random.Random(1).choices(values, k=3 * count)]:
        found = conversion(value)
        assert type(found) is type(value)
        arrays, layout = af.flatten(found)
        assert all(map(torch.is_tensor, arrays))
        assert str(layout) == str(af.flatten(value)[1])
    assert without_plans == []


def test_long_lists_that_only_differ_inside_have_plans_too(without_plans):
    """The code for a list of arrays takes any length, so lengths do not tell it apart."""
    conversion = af.converter("torch")
    values = [part for n in (20, 21) for part in ([X] * n, [*[X] * (n - 1), None])]
    values += [[T] * 20, [[X] for _ in range(20)]]
    for _ in range(6):
        convert_often(conversion, values)
        for value in values:
            conversion(value)
    without_plans.clear()
    for value in values:
        for y, x in zip(conversion(value), value, strict=True):
            assert torch.is_tensor(y) == isinstance(x, (np.ndarray, torch.Tensor))
    assert without_plans == []


def test_plans_in_use_stay_and_others_make_room(without_plans, few_plans, monkeypatch):
    written = []
    write = plan.write_plan
    monkeypatch.setattr(plan, "write_plan", lambda *args: written.append(args[2]) or write(*args))
    conversion = af.converter("torch")
    many = [{"x": X, "note": bits(number)} for number in range(4 * few_plans)]
    for _ in range(30):
        for value in many:
            conversion(value)
    assert few_plans <= len(written) < 4 * few_plans
    assert len(conversion._plans.all) == few_plans
    for first in (0, 50, 0):  # what was dropped is learnt again
        few = [[X, bits(number)] for number in range(first, first + few_plans // 2)]
        for _ in range(400):
            without_plans.clear()
            for value in few:
                assert torch.is_tensor(conversion(value)[0])
            if not without_plans:
                break
        assert not without_plans
        assert len(conversion._plans.all) <= few_plans


def test_a_plan_that_is_in_use_stays_wherever_it_is_chosen(without_plans):
    conversion = af.converter("torch")
    used = [{"x": X}, {"x": X, "y": X}]
    for value in (*used, {"x": (X,)}, {"x": [X]}):
        convert_often(conversion, value)
    without_plans.clear()
    for number in range(4_000):
        conversion([X, *bits(number % 400)])
        conversion(used[number % 2])
    assert not any(value is one for value in without_plans for one in used)


def test_a_structure_without_a_plan_is_not_tried_again(monkeypatch):
    written = []
    monkeypatch.setattr(plan, "write_plan", lambda *args: written.append(args))
    learnt("torch", [X], 50)
    assert len(written) == 1


def test_the_number_of_structures_that_are_counted_is_bounded(monkeypatch):
    monkeypatch.setattr(plans, "MAX_STRUCTURES", 1_000)
    conversion = af.converter("torch")
    for number in range(1_100):
        conversion([X, *bits(number), *bits(number // 512)])
    assert len(conversion._plans.counts) <= 1_000


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: [X, x], lambda x: [x] * 20])
@pytest.mark.parametrize("to", ["jax", "torch", "dask", "numpy"])
def test_code_for_arrays_searches_arrays_of_objects(wrap, to):
    """Also where it must convert what a direct converter does not, and where what does not fit is kept."""
    conversion = af.converter(to, unsupported="keep")
    texts, objects = np.array(["a", "b"]), np.array([None, None], object)
    objects[1] = X
    for _ in range(3):
        for value in (X, texts, X, texts, objects, X.astype(">f4"), objects):
            for _ in range(4):
                found = conversion(wrap(value))
                found = found[-1] if isinstance(found, list) else found
                if value is objects:
                    assert af.backend_of(found[1]).name == to
                elif value is texts and to != "dask":  # which has a dtype for them
                    assert found is texts
                else:
                    assert af.backend_of(found).name == to


def test_code_holds_nothing_of_the_value():
    """As SECURITY.md says: names of classes at most, and only if they are plain identifiers."""
    odd = type("Odd, print('run')\n", (str,), {})("text of a class")
    strange = collections.namedtuple("Strange", ["field"])(X)
    strange.__class__.__name__ = "strange): print('run')\nif (v0"
    value = {"a key'); print('run')": X, 12345: [X, "a text", 6789.5, odd], "inside": strange}
    conversion = learnt("torch", value)
    code = conversion.explain()
    assert "def convert_dict_to_torch(" in code
    for part in ("print", "key", "12345", "text", "6789", "inside", "field", "strange", "Odd"):
        assert part not in code


# Leaves that a direct converter does not take.


READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False


Z = torch.tensor([1 + 2j, 3 - 1j])


ODD = {
    "read-only": (X, READ_ONLY, "torch"),
    "flipped": (X, X[::-1], "torch"),
    "big-endian": (X, X.astype(">f4"), "torch"),
    "unaligned": (X, np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32), "torch"),
    "bfloat16 to torch": (jnp.ones(4, jnp.float32), jnp.ones(4, jnp.bfloat16), "torch"),
    "gradient": (torch.ones(4), torch.ones(4, requires_grad=True), "numpy"),
    "conjugate": (Z, Z.conj(), "numpy"),
    "negative": (torch.ones(4), Z.conj().imag, "numpy"),
    "bfloat16": (torch.ones(4), torch.ones(4, dtype=torch.bfloat16), "numpy"),
    "gradient to jax": (torch.ones(4), torch.ones(4, requires_grad=True), "jax"),
    "conjugate to jax": (Z, Z.conj(), "jax"),
    "bfloat16 to jax": (torch.ones(4), torch.ones(4, dtype=torch.bfloat16), "jax"),
    "float64 to jax": (X, X.astype(float), "jax"),
}


def _values(x):
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj().resolve_neg()
        x = x.float() if x.dtype is torch.bfloat16 else x
    return np.asarray(x).astype(complex).tolist()


@pytest.mark.parametrize("copying", [None, True])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_leaf_is_learnt(name, copying, without_plans):
    even, odd, target = ODD[name]
    narrow = {name: str(jnp.asarray(np.zeros(1, name)).dtype) for name in ("float64", "complex128")}
    conversion = learnt(target, [even, {"a": even}], copy=copying)
    convert_often(conversion, [even, {"a": odd}])
    without_plans.clear()
    for value in ([odd, {"a": even}], [even, {"a": odd}], [odd, {"a": odd}], [even, {"a": even}]):
        found = conversion(value)
        for y, x in ((found[0], value[0]), (found[1]["a"], value[1]["a"])):
            assert af.backend_of(y).name == target
            assert _values(y) == _values(x)
            expected = "float32" if str(x.dtype) == ">f4" else str(x.dtype).removeprefix("torch.")
            expected = narrow.get(expected, expected) if target == "jax" else expected
            assert str(y.dtype).removeprefix("torch.") == expected
    assert without_plans == []


def test_memory_of_odd_leaves():
    conversion = learnt("torch", [X])
    before = READ_ONLY.tolist()
    for _ in range(4):
        conversion([READ_ONLY])[0].fill_(-1)
        assert READ_ONLY.tolist() == before
        conversion([X[::-1]])
    shared = X.copy()
    conversion([shared])[0].fill_(-1)
    assert shared.tolist() == [-1] * 3


@pytest.mark.parametrize("times", [1, 6])
def test_sharing_is_refused_for_odd_leaves(times):
    conversion = af.converter("torch", copy=False)
    for _ in range(times):
        assert conversion([X.copy()])[0].tolist() == [0, 1, 2]
    for _ in range(times):
        for odd in (READ_ONLY, X[::-1], X.astype(">f4")):
            with pytest.raises(af.CopyRequiredError, match=r"at \[0\]"):
                conversion([odd])
    to_numpy = af.converter("numpy", copy=False)
    for _ in range(times):
        with pytest.raises(af.CopyRequiredError):
            to_numpy([Z.conj()])


@pytest.mark.parametrize("times", [1, 5])
def test_what_holds_no_array_is_the_same_object(times):
    conversion = af.converter("torch")
    for _ in range(times):
        for value in (Plain([1, 2], {"a": []}), Point([1], "text"), (1, "text"), ((), (1,))):
            assert conversion(value) is value
            assert conversion({"k": value})["k"] is value
        for value in ([1], {"a": 1}, ([1],), {"a": (1, [2])}):
            found = conversion(value)
            assert found is not value
            assert found == value


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("make", [lambda: (X,), lambda: [X], lambda: {"x": X}])
def test_a_container_in_two_places_stays_one(make, times):
    conversion = af.converter("torch")
    for _ in range(times):
        conversion([make(), make()])
    shared = make()
    found = conversion([shared, shared])
    assert found[0] is found[1]
    found = conversion([make(), make()])
    assert found[0] is not found[1]


def test_a_constant_in_two_places_is_itself():
    constants = ((84, 84), (84, 84))
    assert constants[0] is constants[1]
    assert af.convert({"shapes": constants, "x": X}, "torch")["shapes"] is constants


def test_long_containers_of_one_structure(without_plans):
    conversion = af.converter("torch")

    def tree(count):
        return {f"agent {i}": {"x": X + i, "n": (i, "text")[1:], "id": i} for i in range(count)}

    for count in (20, 30, 40):
        conversion(tree(count))
    without_plans.clear()
    for count in (16, 100, 1_000, 3):
        found = conversion(tree(count))
        assert [y["x"][1].item() for y in found.values()] == [i + 1 for i in range(count)]
        assert [y["id"] for y in found.values()] == list(range(count))
    assert without_plans == []
    shared = tree(20)
    shared["agent 3"] = shared["agent 7"]
    found = conversion(shared)
    assert found["agent 3"] is found["agent 7"]
    assert len(without_plans) == 1
    other = tree(20)
    other["agent 5"] = {"x": jnp.ones(1), "n": ("text",), "id": 5}
    assert isinstance(conversion(other)["agent 5"]["x"], torch.Tensor)
    failing = tree(20)
    failing["agent 11"]["x"] = np.array(["text"])
    with pytest.raises(af.UnsupportedDtypeError, match=r"\['agent 11'\]\['x'\]"):
        conversion(failing)


STRUCTURES = {
    "an array": lambda: X,
    "a short dict": lambda: {"a": X, "b": (X, "text")},
    "a long dict": lambda: {f"k{i}": X for i in range(20)},
    "a long list": lambda: [X] * 20,
    "a long tuple": lambda: (X,) * 20,
    "long ones in a dict": lambda: {"a": [X] * 20, "b": {f"k{i}": X for i in range(20)}, "c": X},
    "a dict of dicts": lambda: {f"k{i}": {"a": X, "b": X} for i in range(20)},
    "a list of tuples": lambda: [(X, X, None) for _ in range(20)],
    "a dict of long dicts": lambda: {i: dict.fromkeys(range(20), X) for i in range(20)},
    "a dataclass": lambda: Plain(X, [X]),
    "a named tuple": lambda: Point(X, {"a": X}),
    "numbers": lambda: [1.5, (2, True), X],
}


@pytest.mark.parametrize(
    ("name", "target"), crossed(STRUCTURES, ["numpy", "torch", "jax", "array_api_strict"])
)
def test_there_is_a_plan_for(name, target, without_plans):
    for options in ({}, {"copy": True}, {"scalars": "convert"}, {"device": "cpu"}):
        if target == "array_api_strict" and "device" in options:
            continue
        conversion = af.converter(target, **options)
        for _ in range(3):
            conversion(STRUCTURES[name]())
        without_plans.clear()
        conversion(STRUCTURES[name]())
        assert without_plans == []


@pytest.mark.long
@pytest.mark.parametrize("leaves", [300, 1_500])
def test_many_arrays_into_jax_compile_for_few_at_once(leaves):
    compiled = []

    def count(name, seconds, **more):
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    conversion = af.converter("jax")
    value = {f"leaf {i}": np.full(5 + i % 37, i, np.float32) for i in range(leaves)}
    most = 0
    for _ in range(16):
        compiled.clear()
        found = conversion(value)
        most = max(most, len(compiled))
        assert all(float(y[0]) == i for i, y in enumerate(found.values()))
    assert most == 1
    assert compiled == []


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_one_array_into_jax_is_not_a_list_of_arrays(make, device):
    """It does what a list of one does, in less time."""
    conversion = af.converter("jax", device=device)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for wrapped in (lambda x: x, lambda x: {"a": x}):
        value = wrapped(make(x))
        y = convert_often(conversion, value, 8)
        calls = calls_of(conversion, value)
        assert any(name.endswith(".one") for name in calls)
        assert "Identity._run" not in calls
        y, z = (jax.tree.leaves(tree)[0] for tree in (y, conversion([make(x), make(x)])))
        assert (y.dtype, y.shape, y.committed, y.weak_type) == (z.dtype, z.shape, z.committed, z.weak_type)  # fmt: skip
        assert np.array_equal(y, x)
    x[...] = 7  # the array of JAX has memory of its own
    assert np.array_equal(y, np.arange(6).reshape(2, 3))
    traced = jax.jit(lambda z: z + conversion(make(x)))
    for _ in range(3):
        assert np.array_equal(traced(jnp.ones((2, 3))), x + 1)
        with jax.debug_nans(True):
            assert np.isnan(conversion(make(x * np.nan))).all()
        with jax.disable_jit():
            assert np.array_equal(conversion(make(x)), x)
    for other in (x[::-1], x.T, x[:, :0], x.astype(">f4")) if make is np.asarray else ():
        for _ in range(5):
            assert np.array_equal(conversion(other), other)
