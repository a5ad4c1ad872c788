"""Plans: code written for a structure that was converted before, so that the next time is fast.

This is the main idea that makes conversions fast. A plan is written from the `Tree` of a value that was converted
without a plan: a Python function that checks each container and each leaf just enough to know that the same code is
still right, makes the framework's own fastest call for each array, and puts the structure together. For

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

A plan relies on nothing that it has not checked in the same call: types, lengths, the properties of an array that
a direct converter needs (layout, writability), and that no container is in two places. Keys are not
checked, since the value's own keys are used. Values that are different, or raise an error, go to `miss`, which handles
every value and raises the errors.

`Conversion.explain()` shows the code.
"""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import keyword
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arrayferry._plugin.converter import Inline
from arrayferry._tree.kind import Kind
from arrayferry._tree.nodes import Branch, Leaf
from arrayferry._tree.tree import Tree

from .structure import UnplannableError, is_uniform

if TYPE_CHECKING:
    from .snippets import CodeSnippet

MAX_LEAVES = 4_000
"""The maximum number of leaves that are written out one by one. Writing this many takes a seventh of a second."""


@dataclasses.dataclass(eq=False, slots=True)
class Plan:
    """Code for one structure.

    Attributes:
        structure: the structure, see `structure_of`.
        run: the compiled code. It takes the value, and optionally a function to call if it does not handle the value.
        code: the text of the code.
        with_slow_path: whether it also converts arrays that a direct converter does not handle.
    """

    structure: Any
    run: Any
    code: str
    with_slow_path: bool = False


def write_plan(
    tree: Tree,
    snippet_for: Callable[[Kind, type], CodeSnippet | None],
    structure: Any,
    target: str,
    miss: Callable[[Any], Any],
) -> Plan | None:
    """Write and compile the code for values of the structure of `tree`.

    Args:
        tree: a value that was taken apart.
        snippet_for: returns the code that converts arrays of a kind and type, None if there should be no plan.
        structure: the result of `structure_of`.
        target: the name of the target, for tracebacks.
        miss: the function that the code calls for a value that it does not handle.

    Returns:
        The plan, or None if it cannot be written. That is not an error, since the value itself has been converted.
    """
    scope = _Scope(tree, snippet_for)
    value = tree.arrays[0] if type(tree.root) is Leaf else getattr(tree.root, "value", tree.root)
    name = re.sub(r"\W", "_", f"convert_{type(value).__name__}_to_{target}", flags=re.ASCII)
    try:
        code = _Writer(scope).function(name, tree.root)
        names = {**scope.objects, "miss": miss}
        exec(compile(code, f"<arrayferry: code for a {type(value).__name__}>", "exec"), names)
    except Exception:  # too large, too deep, or a plugin fails: values are converted without a plan
        return None
    return Plan(structure, names[name], code)


def _miss_part(value: Any) -> Any:
    """Let the calling code miss its value, since it does not handle a part of it."""
    raise LookupError


class _Scope:
    """The names, objects and snippets that the functions of one plan share.

    Args:
        tree: a value that was taken apart.
        snippet_for: returns the code that converts arrays of a kind and type.

    Attributes:
        tree: the value that was taken apart.
        objects: the objects that the code refers to, by name.
        leaves: the number of leaves that were written out.
    """

    def __init__(self, tree: Tree, snippet_for: Callable[[Kind, type], CodeSnippet | None]) -> None:
        self.tree = tree
        self.objects: dict[str, Any] = {}
        self.leaves = 0
        self._snippet_for = snippet_for
        self._known_snippets: dict[tuple[Kind, type], CodeSnippet | None] = {}
        self._known: dict[int, str] = {}

    def name(self, thing: Any, hint: str = "") -> str:
        """Return a name for an object: the hint if possible, which is its own name for a class."""
        hint = hint or thing.__name__
        name = self._known.get(id(thing))
        if name is None:
            plain = hint.isidentifier() and hint.isascii() and not keyword.iskeyword(hint)
            taken = hint in self.objects or getattr(builtins, hint, thing) is not thing
            local = hint == "miss" or hint.startswith("convert_")
            if not plain or taken or local or re.fullmatch(r"[a-z]+\d+.*", hint):
                hint = f"thing_{len(self.objects) + 1}"
            name = self._known[id(thing)] = hint
            self.objects[name] = thing
        return name

    def cls(self, leaf: Leaf) -> type:
        """Return the type of the array of a leaf."""
        return type(self.tree.arrays[leaf.index])

    def snippet(self, leaf: Leaf) -> CodeSnippet:
        """Return the code that converts the array of a leaf: one object for each kind and type."""
        known, key = self._known_snippets, (self.tree.kinds[leaf.index], self.cls(leaf))
        if key not in known:
            known[key] = self._snippet_for(*key)
        snippet = known[key]
        if snippet is None:
            raise UnplannableError
        return snippet


class _Writer:
    """Writes the code of one function, line by line.

    Args:
        scope: shared with the other functions of the plan.
    """

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope
        self.name = scope.name
        self.parts: list[str] = []
        self.lines: list[str] = []
        self.typed: dict[type, list[str]] = {}
        self.tests: list[str] = []
        self.containers: dict[type, list[str]] = {}
        self.together: dict[str, list[str]] = {}
        self.count = 0

    def function(self, title: str, root: Any, miss: str = "miss") -> str:
        """Write the whole function, after the functions that it calls."""
        result = self.value(root, "v0")
        for names in self.containers.values():
            if len(names) > 1 or names[0].startswith("*"):
                self.miss_if(_any_same(names))
        for cls, names in self.typed.items():
            same, kind = " is ".join(f"type({name})" for name in names), self.name(cls)
            self.miss_if(f"{same} is not {kind}" if len(names) == 1 else f"not ({same} is {kind})")
        if self.tests:
            self.miss_if(f"not ({' and '.join(self.tests)})")
        for many, inputs in self.together.items():
            self.convert_together(many, inputs)
        text = "\n            ".join([*self.lines, f"return {result}"])
        return "".join(self.parts) + (
            f"def {title}(v0, miss={miss}):\n"
            f"    try:\n        while True:\n            {text}\n"
            "    except MemoryError:\n        raise\n"
            "    except Exception:\n        pass\n"
            "    return miss(v0)\n"
        )

    def convert_together(self, many: str, inputs: list[str]) -> None:
        """Write the call that converts several arrays; "*v1" means all items of v1."""
        self.lines.append(f"{many}_in = [{', '.join(inputs)}]")
        if not any(name.startswith("*") for name in inputs):
            outputs = ", ".join(f"y{name}" for name in inputs)
            self.lines.append(f"[{outputs}] = {many}({many}_in)")
            return
        self.lines.append(f"{many}_out = iter({many}({many}_in))")
        for name in inputs:
            if name.startswith("*"):
                slices = self.name(itertools.islice)
                self.lines.append(f"y{name[1:]} = list({slices}({many}_out, len({name[1:]})))")
            else:
                self.lines.append(f"y{name} = next({many}_out)")

    def miss_if(self, condition: str) -> None:
        self.lines.append(f"if {condition}: break")

    def new(self, letter: str) -> str:
        """Return a name that no other variable has."""
        self.count += 1
        return f"{letter}{self.count}"

    def value(self, node: Any, name: str) -> str:
        """Write the checks of the value called `name`, and return the expression for its result."""
        if type(node) is Leaf:
            return self.leaf(node, name)
        if type(node) is Branch:
            return self.branch(node, name)
        self.miss_if(
            f"{name} is not None"
            if node is None
            else f"type({name}) is not {self.name(type(node))}"
        )
        return name

    def leaf(self, node: Leaf, name: str) -> str:
        self.scope.leaves += 1
        if self.scope.leaves > MAX_LEAVES:
            raise UnplannableError
        self.typed.setdefault(self.scope.cls(node), []).append(name)
        snippet = self.scope.snippet(node)
        if snippet.many is not None:
            if snippet.test:
                self.tests.append(snippet.test.format(x=name))
            return self.joined(snippet.many, name)
        test, result = self.inline(snippet.one, name)
        if test:
            self.tests.append(test)
        return result

    def inline(self, inline: Inline, name: str) -> tuple[str, str]:
        renamed = {own: self.name(thing, own) for own, thing in inline.names.items()}
        fields = {**renamed, "x": name, "y": f"y{name}"}
        return inline.test.format(**fields), inline.result.format(**fields)

    def joined(self, many: Callable[[list[Any]], list[Any]], name: str) -> str:
        self.together.setdefault(self.name(many, "many"), []).append(name)
        return f"y{name.lstrip('*')}"

    def branch(self, node: Branch, name: str) -> str:
        cls = type(node.value)
        if is_uniform(self.scope.tree, node):
            return self.loop(node, name, cls)
        # a container with items is unpacked by assignment, which fails for another length
        empty = "" if node.children else f" or {name}"
        self.miss_if(f"type({name}) is not {self.name(cls)}{empty}")
        if node.rebuilt:
            self.containers.setdefault(cls, []).append(name)
        inside = [self.new("v") for _ in node.children]
        keys = [self.new("k") for _ in inside] if cls is dict else []
        container, children = "", name
        if keys:
            self.lines.append(f"{_comma(keys)} = {name}")
            children = f"{name}.values()"
        elif cls not in (dict, list, tuple):
            container = self.name(node.container, type(node.container).__name__.strip("_"))
            children = self.new("c")
            self.lines.append(f"{children} = {container}.children({name})")
            if not inside:
                self.miss_if(f"len({children})")
        if inside:
            self.lines.append(f"{_comma(inside)} = {children}")
        made = [self.value(child, var) for child, var in zip(node.children, inside, strict=True)]
        if not node.rebuilt:
            return name
        if cls is dict:
            return "{" + ", ".join(map("{}: {}".format, keys, made)) + "}"
        if cls is tuple:
            return f"({_comma(made)})"
        items = f"[{', '.join(made)}]"
        return items if cls is list else f"{container}.rebuild({name}, {items})"

    def loop(self, node: Branch, name: str, cls: type) -> str:
        """Write a loop for a long container whose children have one structure, whatever its length."""
        self.scope.leaves += 1
        self.miss_if(f"type({name}) is not {cls.__name__} or not {name}")
        self.containers.setdefault(cls, []).append(name)
        items = f"{name}.values()" if cls is dict else name
        child = node.children[0]
        if type(child) is Leaf:
            result = self.loop_over_arrays(child, items)
        else:
            result = self.loop_over_parts(child, items)
        if cls is dict:
            return f"dict(zip({name}, {result}))"
        return f"tuple({result})" if cls is tuple else result

    def loop_over_arrays(self, leaf: Leaf, items: str) -> str:
        snippet, kind = self.scope.snippet(leaf), self.name(self.scope.cls(leaf))
        if snippet.many is not None:
            self.miss_if(f"set(map(type, {items})) != {{{kind}}}")
            if snippet.test:
                self.miss_if(f"not all({snippet.test.format(x='item')} for item in {items})")
            return self.joined(snippet.many, f"*{self.listed(items)}")
        result, item = self.new("r"), self.new("v")
        test, expression = self.inline(snippet.one, item)
        self.lines += [
            f"{result} = []",
            f"for {item} in {items}:",
            f"    if type({item}) is not {kind}" + (f" or not ({test})" if test else "") + ":",
            f"        {result} = None",
            "        break",
            f"    {result}.append({expression})",
        ]
        self.miss_if(f"{result} is None")
        return result

    def loop_over_parts(self, part: Branch, items: str) -> str:
        """Write a function for the parts of a long container, and a loop that calls it."""
        function = f"part{len(self.parts) + 1}"
        missed = self.name(_miss_part, "miss_part")
        self.parts.append(_Writer(self.scope).function(function, part, missed))
        parts, result = self.listed(items), self.new("r")
        self.lines.append(f"{result} = [{function}(part) for part in {parts}]")
        self.containers.setdefault(type(part.value), []).append(f"*{parts}")
        return result

    def listed(self, items: str) -> str:
        """Return the name of a list or tuple of the items, so that they can be read more than once."""
        if items.isidentifier():
            return items
        name = self.new("l")
        self.lines.append(f"{name} = [*{items}]")
        return name


def _any_same(names: list[str]) -> str:
    """Write a condition that two of several containers are the same; "*v1" means all items of v1."""
    several = [name[1:] for name in names if name.startswith("*")]
    single = [name for name in names if not name.startswith("*")]
    if not several and len(single) <= 3:
        return " or ".join(f"{a} is {b}" for a, b in itertools.combinations(single, 2))
    ids = [f"id({name})" for name in single] + [f"*map(id, {name})" for name in several]
    count = " + ".join([str(len(single)), *(f"len({name})" for name in several)])
    return f"len({{{', '.join(ids)}}}) != {count}"


def _comma(names: list[str]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")
