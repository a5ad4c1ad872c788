"""The contract kit as the author of a plugin for the toy library fills it in, and what it finds."""

from collections.abc import Iterator

from boxes import registered
from toys import Array

from arrayferry.testing import BackendContract


class ToyContract(BackendContract):
    """The kit as an author of a plugin for the toy library fills it in."""

    backend = "toy"

    def make(self, values):
        return Array(values.copy())

    def read(self, array):
        return array.values.copy()

    def write(self, array, value):
        array.values[...] = value


def cases(contract):
    """Yield the id, the name and the arguments of each test of the kit, in the order in which pytest runs them."""
    names = [name for cls in reversed(contract.__mro__) for name in vars(cls)]
    for name in dict.fromkeys(name for name in names if name.startswith("test_")):
        marks = getattr(getattr(contract, name), "pytestmark", ())
        marks = [mark.args for mark in marks if mark.name == "parametrize"]
        for keys, rows in marks:
            for row in rows:
                pairs = [(keys, row)] if isinstance(keys, str) else zip(keys, row, strict=True)
                arguments = dict(pairs)
                yield f"{name}[{'-'.join(map(str, arguments.values()))}]", name, arguments
        if not marks:
            yield name, name, {}


def failing(contract, only: str = "") -> Iterator[tuple[str, BaseException]]:
    """Run every test of a contract, or those of one name, and yield the ids and errors of those that fail."""
    for id_, name, arguments in cases(type(contract)):
        if only in ("", name):
            try:
                getattr(contract, name)(**arguments)
            except BaseException as error:
                yield id_, error


def failures(contract, part, only: str = "") -> dict[str, BaseException]:
    """Return the failures of a part by their ids."""
    with registered(part, **contract.parts):
        return dict(failing(contract, only))


def toy_failures(plugin, only: str = "") -> dict[str, BaseException]:
    """Return the failures of a backend of the toy library, or of one with what it says to layers."""

    class Contract(ToyContract):
        backend, parts = plugin if isinstance(plugin, tuple) else (plugin, {})
        others = ("numpy", "torch", "jax")

    return failures(Contract(), Contract.backend, only)
