"""Plans: code written for a structure that was converted before, so that the next time is fast.

This is the main idea that makes conversions fast. A value that was converted without a plan leaves a
`Tree`. A plan is written from that: a Python function that checks each container and each leaf just
enough to know that the same code is still right, makes the framework's own fastest call for each array,
and puts the structure together. For

    {"image": x, "info": ("text", y)}

to PyTorch it reads, in short:

    while True:
        if type(v0) is not dict: break
        k1, k2 = v0
        v1, v2 = v0.values()
        ...
        if not (type(v1) is type(v4) is ndarray): break
        if not (v1.flags.behaved and v4.flags.behaved): break
        return {k1: from_numpy(v1), k2: (v3, from_numpy(v4))}
    return miss(v0)

A plan relies on nothing that it has not checked in the same call: types, lengths, what a direct converter
needs to know of an array (layout, writability), and that no container is in two places. Keys are not
checked, since the value's own keys are used. Everything that is different, and everything that raises, goes
to `miss`, which handles every value and raises the errors.

`Conversion.explain()` shows the code.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any

from arrayferry._plugin.converter import Inline
from arrayferry._tree.kind import Kind
from arrayferry._tree.nodes import Branch, Leaf
from arrayferry._tree.tree import Tree

from .structure import UnplannableError, are_parts, is_run

if TYPE_CHECKING:
    from .ways import Ways

__all__ = ["Plan", "write_plan"]

MAX_LEAVES = 4_000
"""How many leaves are written out one by one at most. That many take a seventh of a second."""


class Plan:
    """Code for one structure.

    Attributes:
        structure: the structure, see `structure_of`.
        run: takes the value, and optionally a function to call for a value that it does not handle.
        source: the text of the code.
        with_fallback: whether it also converts arrays that a direct converter does not handle.
    """

    __slots__ = ("run", "source", "structure", "with_fallback")

    def __init__(self, structure: Any, run: Callable[..., Any], source: str) -> None:
        self.structure = structure
        self.run: Any = run
        self.source = source
        self.with_fallback = False


def write_plan(
    tree: Tree,
    ways: Callable[[Kind, type], Ways | None],
    structure: Any,
    target: str,
    miss: Callable[[Any], Any],
) -> Plan | None:
    """Write and compile the code for values of the structure of `tree`.

    Args:
        tree: a value that was taken apart.
        ways: tells how arrays of a kind and type are converted, or returns None if there should be no plan.
        structure: what `structure_of` returned.
        target: the name of the target, for tracebacks.
        miss: what the code calls for a value that it does not handle.

    Returns:
        The plan, or None if there can be none. That is not an error, since the value itself has been converted.
    """
    writer = _Writer(tree, ways, _Names())
    value = tree.arrays[0] if type(tree.root) is Leaf else getattr(tree.root, "value", tree.root)
    name = re.sub(r"\W", "_", f"convert_{type(value).__name__}_to_{target}", flags=re.ASCII)
    try:
        source = writer.function(name, tree.root)
        scope = {**writer.names.things, "miss": miss}
        exec(compile(source, f"<arrayferry: code for a {type(value).__name__}>", "exec"), scope)
    except Exception:  # too large, too deep, or a plugin fails: values are converted without a plan
        return None
    return Plan(structure, scope[name], source)


class _MissedPartError(Exception):
    """A part of a value is not as the code expects it."""


def _miss_part(value: Any) -> Any:
    raise _MissedPartError


class _Names:
    """The names of the objects that code refers to.

    Attributes:
        things: the objects by name.
        leaves: how many leaves were written out.
        ways: how arrays of a kind and type are converted, so that code for equal ones has the same names.
    """

    def __init__(self) -> None:
        self.things: dict[str, Any] = {}
        self.leaves = 0
        self.ways: dict[tuple[Kind, type], Ways | None] = {}
        self._known: dict[int, str] = {}

    def name(self, thing: Any, hint: str) -> str:
        """Return a name for an object: the hint if possible."""
        name = self._known.get(id(thing))
        if name is None:
            plain = hint.isidentifier() and hint.isascii() and not keyword.iskeyword(hint)
            taken = hint in self.things or getattr(builtins, hint, thing) is not thing
            local = hint == "miss" or hint.startswith("convert_")
            if not plain or taken or local or re.fullmatch(r"[a-z]+\d+.*", hint):
                hint = f"thing_{len(self.things) + 1}"
            name = self._known[id(thing)] = hint
            self.things[name] = thing
        return name


class _Writer:
    """Writes the code of one function, line by line.

    Args:
        tree: a value that was taken apart.
        ways: tells how arrays of a kind and type are converted.
        names: the names that the code may use.
    """

    def __init__(
        self, tree: Tree, ways: Callable[[Kind, type], Ways | None], names: _Names
    ) -> None:
        self.tree = tree
        self.ways = ways
        self.names = names
        self.parts: list[str] = []
        self.lines: list[str] = []
        self.typed: dict[type, list[str]] = {}
        self.tests: list[str] = []
        self.containers: dict[type, list[str]] = {}
        self.together: dict[str, list[str]] = {}
        self.results: dict[str, list[str]] = {}
        self.count = 0

    def function(self, title: str, root: Any, miss: str = "miss") -> str:
        """Write the whole function, after the functions that it calls."""
        result = self.value(root, "v0")
        body = self.lines
        for names in self.containers.values():
            if len(names) > 1 or names[0].startswith("*"):
                body.append(self.miss_if(self.any_same(names)))
        for cls, names in self.typed.items():
            same = " is ".join(f"type({name})" for name in names)
            kind = self.type_name(cls)
            body.append(
                self.miss_if(
                    f"{same} is not {kind}" if len(names) == 1 else f"not ({same} is {kind})"
                )
            )
        if self.tests:
            body.append(self.miss_if(f"not ({' and '.join(self.tests)})"))
        for many, inputs in self.together.items():
            body.append(f"{many}_in = [{', '.join(inputs)}]")
            starred = [name for name in inputs if name.startswith("*")]
            if not starred:
                body.append(f"[{', '.join(self.results[many])}] = {many}({many}_in)")
            else:
                body.append(f"{many}_out = iter({many}({many}_in))")
                for name, output in zip(inputs, self.results[many], strict=True):
                    if name.startswith("*"):
                        body.append(f"{output} = list(islice({many}_out, len({name[1:]})))")
                        self.constant(itertools.islice, "islice")
                    else:
                        body.append(f"{output} = next({many}_out)")
        text = "\n            ".join([*body, f"return {result}"])
        return "".join(self.parts) + (
            f"def {title}(v0, miss={miss}):\n"
            f"    try:\n        while True:\n            {text}\n"
            "    except MemoryError:\n        raise\n"
            "    except Exception:\n        pass\n"
            "    return miss(v0)\n"
        )

    def miss_if(self, condition: str) -> str:
        return f"if {condition}: break"

    def any_same(self, names: list[str]) -> str:
        """Write a condition that two of several containers are the same; "*v1" stands for all that are in v1."""
        several = [name[1:] for name in names if name.startswith("*")]
        single = [name for name in names if not name.startswith("*")]
        if not several and len(single) <= 3:
            return " or ".join(f"{a} is {b}" for a, b in itertools.combinations(single, 2))
        ids = [f"id({name})" for name in single] + [f"*map(id, {name})" for name in several]
        count = " + ".join([str(len(single)), *(f"len({name})" for name in several)])
        return f"len({{{', '.join(ids)}}}) != {count}"

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def constant(self, thing: Any, hint: str) -> str:
        """Return a name for an object that the code refers to."""
        return self.names.name(thing, hint)

    def type_name(self, cls: type) -> str:
        return self.constant(cls, cls.__name__)

    def value(self, node: Any, name: str) -> str:
        """Write the checks of the value called `name`, and return the expression for its result."""
        if type(node) is Leaf:
            return self.leaf(node, name)
        if type(node) is Branch:
            return self.branch(node, name)
        if node is None:
            self.lines.append(self.miss_if(f"{name} is not None"))
        else:
            self.expect(name, type(node))
        return name

    def expect(self, name: str, cls: type) -> None:
        if cls is NoneType:
            self.lines.append(self.miss_if(f"{name} is not None"))
        else:
            self.lines.append(self.miss_if(f"type({name}) is not {self.type_name(cls)}"))

    def leaf(self, node: Leaf, name: str) -> str:
        self.names.leaves += 1
        if self.names.leaves > MAX_LEAVES:
            raise UnplannableError
        cls = type(self.tree.arrays[node.index])
        self.typed.setdefault(cls, []).append(name)
        ways = self.ways_of(node)
        if ways.many is not None:
            if ways.test:
                self.tests.append(ways.test.format(x=name))
            return self.joined(ways.many, name)
        test, result = self.inline(ways.one, name)
        if test:
            self.tests.append(test)
        return result

    def ways_of(self, node: Leaf) -> Ways:
        """Return how the array of a leaf is converted."""
        kind, cls = self.tree.kinds[node.index], type(self.tree.arrays[node.index])
        known = self.names.ways
        if (kind, cls) not in known:
            known[kind, cls] = self.ways(kind, cls)
        ways = known[kind, cls]
        if ways is None:
            raise UnplannableError
        return ways

    def inline(self, inline: Inline, name: str) -> tuple[str, str]:
        renamed = {own: self.constant(thing, own) for own, thing in inline.names.items()}
        fields = {**renamed, "x": name, "y": f"y{name}"}
        return inline.test.format(**fields), inline.result.format(**fields)

    def joined(self, many: Callable[[list[Any]], list[Any]], name: str) -> str:
        call = self.constant(many, "many")
        result = f"y{name.lstrip('*')}"
        self.together.setdefault(call, []).append(name)
        self.results.setdefault(call, []).append(result)
        return result

    def branch(self, node: Branch, name: str) -> str:
        cls = type(node.value)
        if is_run(self.tree, node):
            return self.run(node, name, cls)
        if are_parts(self.tree, node):
            return self.run_of_parts(node, name, cls)
        count = len(node.children)
        self.lines.append(
            # a container with items is unpacked by assignment, which fails for another length
            self.miss_if(
                f"type({name}) is not {self.type_name(cls)}" + (f" or {name}" if not count else "")
            )
        )
        if node.rebuilt:
            self.containers.setdefault(cls, []).append(name)
        inside = [self.fresh("v") for _ in node.children]
        unpacked = _comma(inside)
        keys: list[str] = []
        container = ""
        if cls is dict:
            if inside:
                keys = [self.fresh("k") for _ in inside]
                self.lines.append(f"{_comma(keys)} = {name}")
                self.lines.append(f"{unpacked} = {name}.values()")
        elif cls in (list, tuple):
            if inside:
                self.lines.append(f"{unpacked} = {name}")
        else:
            container = self.constant(node.container, type(node.container).__name__.strip("_"))
            held = self.fresh("c")
            self.lines.append(f"{held} = {container}.children({name})")
            self.lines.append(f"{unpacked} = {held}" if inside else self.miss_if(f"len({held})"))
        made = [self.value(child, var) for child, var in zip(node.children, inside, strict=True)]
        if not node.rebuilt:
            return name
        if cls is dict:
            return (
                f"{{{', '.join(f'{key}: {item}' for key, item in zip(keys, made, strict=True))}}}"
            )
        if cls is tuple:
            return f"({_comma(made)})" if made else "()"
        if cls is list:
            return f"[{', '.join(made)}]"
        return f"{container}.rebuild({name}, [{', '.join(made)}])"

    def run(self, node: Branch, name: str, cls: type) -> str:
        """Write a loop for a long container of arrays of one type, whatever its length."""
        self.start_run(name, cls)
        kind = type(self.tree.arrays[node.children[0].index])
        ways = self.ways_of(node.children[0])
        items = f"{name}.values()" if cls is dict else name
        held = self.type_name(kind)
        if ways.many is not None:
            self.lines.append(self.miss_if(f"set(map(type, {items})) != {{{held}}}"))
            if ways.test:
                test = ways.test.format(x="item")
                self.lines.append(self.miss_if(f"not all({test} for item in {items})"))
            result = self.joined(ways.many, f"*{self.listed(items)}" if cls is dict else f"*{name}")
        else:
            result, item = self.fresh("r"), self.fresh("v")
            test, expression = self.inline(ways.one, item)
            condition = f"type({item}) is not {held}" + (f" or not ({test})" if test else "")
            self.lines += [
                f"{result} = []",
                f"for {item} in {items}:",
                f"    if {condition}:",
                f"        {result} = None",
                "        break",
                f"    {result}.append({expression})",
                self.miss_if(f"{result} is None"),
            ]
        if cls is dict:
            return f"dict(zip({name}, {result}))"
        return f"tuple({result})" if cls is tuple else result

    def start_run(self, name: str, cls: type) -> None:
        self.names.leaves += 1
        self.lines.append(self.miss_if(f"type({name}) is not {cls.__name__} or not {name}"))
        self.containers.setdefault(cls, []).append(name)

    def run_of_parts(self, node: Branch, name: str, cls: type) -> str:
        """Write a function for the parts of a long container, and a loop that calls it."""
        self.start_run(name, cls)
        part = node.children[0]
        writer = _Writer(self.tree, self.ways, self.names)
        function = f"part{len(self.parts) + 1}"
        missed = self.constant(_miss_part, "miss_part")
        self.parts.append(writer.function(function, part, missed))
        items, result = self.fresh("l"), self.fresh("r")
        self.lines += [
            f"{items} = [*{name}.values()]" if cls is dict else f"{items} = {name}",
            f"{result} = [{function}(part) for part in {items}]",
        ]
        self.containers.setdefault(type(part.value), []).append(f"*{items}")
        if cls is dict:
            return f"dict(zip({name}, {result}))"
        return f"tuple({result})" if cls is tuple else result

    def listed(self, items: str) -> str:
        name = self.fresh("l")
        self.lines.append(f"{name} = [*{items}]")
        return name


def _comma(names: list[str]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")
