"""Plans: Python code that is generated for a structure, so that later values of this structure are converted fast.

Plans are the main reason why conversions are fast. A plan is a Python function, generated from the `Tree` of a value
that was converted without a plan. A plan checks each container and each leaf just enough to know that its code is right
for the value. Then it converts each array by the fastest call of the target, and builds the result. The plan that
converts

    {"image": x, "info": ("text", y)}

to PyTorch is, in short:

    while True:
        if type(v0) is not dict: break
        k1, k2 = v0
        v1, v2 = v0.values()
        ...
        if not (type(v1) is type(v4) is ndarray): break
        if not (v1.flags.behaved and v4.flags.behaved): break
        return {k1: from_numpy(v1), k2: (v3, from_numpy(v4))}
    return miss(v0)

In each call, a plan checks types, lengths, and the properties of arrays that a direct converter needs (layout,
writability). It also checks that no container occurs twice. Keys are not checked, since the result has the keys of the
value. If a check fails or the code raises an error, the plan calls `miss` with the value. This function converts the
value without the plan, or raises an error that describes what is wrong.

`Conversion.explain()` shows the code.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import itertools
import keyword
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arrayferry._tree.kind import Kind
from arrayferry._tree.nodes import Branch, Leaf, rebuilt
from arrayferry._tree.tree import Tree

from .structure import MANY, Reader, UnplannableError

if TYPE_CHECKING:
    from .snippets import CodeSnippet

MAX_LEAVES = 4_000
"""The maximum number of arrays and other values with separate code in a plan. It takes 0.15 s to write so much code."""


@dataclasses.dataclass(eq=False, slots=True)
class Plan:
    """Code that converts the values of one structure.

    Attributes:
        run: the compiled function. Its arguments are the value and, optionally, a function to call with the value if a
            check fails.
        code: the text of the code.
        readers: for each type of container in the structure, a function that returns the values inside.
        with_routes: whether the code also converts arrays that a direct converter does not handle.
        next: the plan that was used directly after the last use of this plan, or None.
    """

    run: Any
    code: str
    readers: dict[type, Reader] = dataclasses.field(default_factory=dict)
    with_routes: bool = False
    next: Plan | None = None


def write_plan(
    tree: Tree,
    snippet_for: Callable[[Kind, type], CodeSnippet],
    structure: Any,
    target: str,
    miss: Callable[[Any], Any],
) -> Plan | None:
    """Write and compile the code for values of the structure of `tree`.

    Args:
        tree: a flattened value.
        snippet_for: a function that returns the code that converts arrays of a kind and type.
        structure: the structure of the value, as `structure_of` returns it.
        target: the name of the target, for tracebacks.
        miss: the function that the code calls for a value that it does not handle.

    Returns:
        The plan, or None if it cannot be written. Values of this structure are then converted without a plan.
    """
    scope = _Scope(tree, snippet_for)
    root = tree.root
    value = tree.arrays[0] if type(root) is Leaf else root.value if type(root) is Branch else root
    func_name = re.sub(r"\W", "_", f"convert_{type(value).__name__}_to_{target}", flags=re.ASCII)
    try:
        code = _function(_Block(scope), func_name, tree.root, structure)
        namespace = {**scope.objects, "miss": miss}
        exec(compile(code, f"<arrayferry: code for a {type(value).__name__}>", "exec"), namespace)
    except Exception:
        # the tree is too large or too deep, or a plugin fails: convert without a plan
        return None
    return Plan(namespace[func_name], code)


def _function(block: _Block, title: str, root: Any, structure: Any) -> str:
    """Return the source code of the function that converts a whole value."""
    result_code = block.value(root, structure, "v0")
    for variables in block.containers.values():
        if len(variables) > 1 or variables[0].startswith("*"):
            block.miss_if(_any_same(variables))
    block.check_leaves()
    for many_name, variables in block.inputs.items():
        inputs_code = f"[{', '.join(variables)}]"
        if many_name in block.loops:
            block.lines.append(f"{many_name}_in += {inputs_code}")
            inputs_code = f"{many_name}_in"
        block.lines.append(f"{many_name}_out = iter({many_name}({inputs_code}))")
    block.lines += block.rebuilt
    block.lines += [
        f"[{', '.join(f'y{variable}' for variable in variables)}] = {many_name}_out"
        for many_name, variables in block.inputs.items()
    ]
    body_code = "\n            ".join([*block.lines, f"return {result_code}"])
    return (
        f"def {title}(v0, miss=miss):\n"
        f"    try:\n        while True:\n            {body_code}\n"
        "    except MemoryError:\n        raise\n"
        "    except Exception:\n        pass\n"
        "    return miss(v0)\n"
    )


class _Scope:
    """The names, objects and snippets that all loops of one plan share.

    Args:
        tree: a flattened value.
        snippet_for: a function that returns the code that converts arrays of a kind and type.

    Attributes:
        tree: the flattened value.
        objects: a dict from the names in the code to the objects that they refer to.
        leaves: the number of arrays and other values that code was written for so far.
    """

    def __init__(self, tree: Tree, snippet_for: Callable[[Kind, type], CodeSnippet]) -> None:
        self.tree = tree
        self.objects: dict[str, Any] = {}
        self.leaves = 0
        self._count = 0
        self._snippet_for = functools.cache(snippet_for)  # equal kinds and types share one snippet
        self._names: dict[int, str] = {}

    def name(self, referent: Any, hint: str = "") -> str:
        """Return the name of an object in the code: `hint` or its `__name__`, or a new name if that cannot be used."""
        hint = hint or referent.__name__
        name = self._names.get(id(referent))
        if name is None:
            is_plain = hint.isidentifier() and hint.isascii() and not keyword.iskeyword(hint)
            is_taken = hint in self.objects or getattr(builtins, hint, referent) is not referent
            is_reserved = hint == "miss" or hint.startswith("convert_")
            if not is_plain or is_taken or is_reserved or re.fullmatch(r"[a-z]+\d+.*", hint):
                hint = f"thing_{len(self.objects) + 1}"
            name = self._names[id(referent)] = hint
            self.objects[name] = referent
        return name

    def cls(self, leaf: Leaf) -> type:
        """Return the type of the array of a leaf."""
        return type(self.tree.arrays[leaf.index])

    def snippet(self, leaf: Leaf) -> CodeSnippet:
        """Return the code that converts the array of a leaf."""
        return self._snippet_for(self.tree.kinds[leaf.index], self.cls(leaf))

    def converts_together(self, node: Any) -> bool:
        """Return whether `node` contains an array whose snippet has a function `many`."""
        if type(node) is Leaf:
            return self.snippet(node).many is not None
        return type(node) is Branch and any(map(self.converts_together, node.children))

    def new(self, letter: str) -> str:
        """Return a name that no other variable has."""
        self._count += 1
        return f"{letter}{self._count}"


class _Block:
    """Writes the statements of one loop of a plan. If a check of a value fails, they leave this loop by `break`.

    Args:
        scope: the names, objects and snippets that all loops of the plan share.
        later: whether the loop only collects arrays, and one call after the loop converts them. The results for other
            values are stored until then.

    Attributes:
        lines: the statements.
        containers: a dict from a type of container to the variables with containers that are rebuilt. "*v1" means all
            items of v1.
        inputs: a dict from the name of a function that converts several arrays in one call to the variables with the
            arrays.
        loops: the names of the functions in `inputs` that also convert arrays of inner loops.
        rebuilt: the statements that rebuild the results of inner loops.
        stored: a dict from a variable that stores a result to the expression of the result.
    """

    def __init__(self, scope: _Scope, *, later: bool = False) -> None:
        self.scope = scope
        self.name = scope.name
        self.new = scope.new
        self.later = later
        self.lines: list[str] = []
        self.typed: dict[type, list[str]] = {}
        self.tests: list[str] = []
        self.containers: dict[type, list[str]] = {}
        self.inputs: dict[str, list[str]] = {}
        self.loops: list[str] = []
        self.rebuilt: list[str] = []
        self.stored: dict[str, str] = {}

    def miss_if(self, condition: str) -> None:
        self.lines.append(f"if {condition}: break")

    def check_leaves(self) -> None:
        """Write the checks of all leaves."""
        for cls, names in self.typed.items():
            same, kind = " is ".join(f"type({name})" for name in names), self.name(cls)
            self.miss_if(f"{same} is not {kind}" if len(names) == 1 else f"not ({same} is {kind})")
        if self.tests:
            self.miss_if(f"not ({' and '.join(self.tests)})")

    def store(self, name: str, expression: str = "") -> str:
        """Return the expression of a result. If `self.later`, store the result in `name`, and return `name`."""
        if self.later:
            self.stored[name] = expression or name
            return name
        return expression or name

    def value(self, node: Any, structure: Any, name: str) -> str:
        """Write the checks of the value called `name`, and return the expression for its result."""
        if type(node) is Branch:
            return self.branch(node, structure, name)
        self.scope.leaves += 1
        if self.scope.leaves > MAX_LEAVES:
            raise UnplannableError
        if type(node) is Leaf:
            return self.leaf(node, name)
        self.miss_if(
            f"{name} is not None"
            if node is None
            else f"type({name}) is not {self.name(type(node))}"
        )
        return self.store(name)

    def leaf(self, node: Leaf, name: str) -> str:
        self.typed.setdefault(self.scope.cls(node), []).append(name)
        snippet = self.scope.snippet(node)
        is_alone = len(self.scope.tree.arrays) == 1 and not self.later
        if snippet.many is not None and not is_alone:
            if snippet.test:
                self.tests.append(snippet.test.format(x=name))
            many_name = self.name(snippet.many, "many")
            self.inputs.setdefault(many_name, []).append(name)
            return f"next({many_name}_out)" if self.later else f"y{name}"
        inline, y_name = snippet.one, f"y{name}"
        code_names = {alias: self.name(referent, alias) for alias, referent in inline.names.items()}
        fields = {**code_names, "x": name, "y": y_name}
        test = inline.test.format(**fields)
        if test:
            self.tests.append(test)
        return self.store(y_name, inline.result.format(**fields))

    def branch(self, node: Branch, structure: Any, name: str) -> str:
        cls = type(node.value)
        if structure[-1] is MANY:
            return self.loop(node, structure[1], name)
        # only an empty container needs a check of its length: unpacking the items of any other
        # checks their number
        length_test = "" if node.children else f" or {name}"
        self.miss_if(f"type({name}) is not {self.name(cls)}{length_test}")
        if node.rebuilt:
            self.containers.setdefault(cls, []).append(name)
        child_names = [self.new("v") for _ in node.children]
        keys = [self.new("k") for _ in child_names] if cls is dict else []
        container_name, children_code = "", name
        if keys:
            self.lines.append(f"{_comma(keys)} = {name}")
            children_code = f"{name}.values()"
        elif cls not in (dict, list, tuple):
            container_name = self.name(node.container, type(node.container).__name__.strip("_"))
            children_code = self.new("c")
            self.lines.append(f"{children_code} = {container_name}.children({name})")
            if not child_names:
                self.miss_if(f"len({children_code})")
        if child_names:
            self.lines.append(f"{_comma(child_names)} = {children_code}")
        child_triples = zip(node.children, structure[1:], child_names, strict=True)
        stored_before = self.stored.copy()
        results = [self.value(*triple) for triple in child_triples]
        if not node.rebuilt:
            self.stored = stored_before  # the container itself is the result, so no results of its children are stored
            return self.store(name)
        keys = list(map(self.store, keys))
        if cls is dict:
            return self.whole("{" + ", ".join(map("{}: {}".format, keys, results)) + "}", len(keys))
        if cls is tuple:
            return f"({_comma(results)})"
        list_code = f"[{', '.join(results)}]"
        if cls is list:
            return list_code
        # `rebuilt` checks what the container of a plugin returns; built-in containers need no check
        if type(node.container).__module__.startswith("arrayferry."):
            return f"{container_name}.rebuild({self.store(name)}, {list_code})"
        return f"{self.name(rebuilt, 'rebuilt')}({container_name}, {self.store(name)}, {list_code})"

    def whole(self, expression: str, count: Any) -> str:
        """Return an expression for a dict that raises an error if two of the `count` keys have become equal."""
        if count in (0, 1):
            return expression
        variable = self.new("d")
        return f"({variable} if len({variable} := {expression}) == {count} else {{}}[{variable}])"

    def loop(self, node: Branch, structure: Any, name: str) -> str:
        """Write a loop for a container with children of one structure. Return the expression of the result."""
        cls, child_node = type(node.value), node.children[0]
        self.miss_if(f"type({name}) is not {cls.__name__} or not {name}")
        items_name = name
        if cls is dict:
            items_name = self.new("l")
            self.lines.append(f"{items_name} = [*{name}.values()]")
        if node.rebuilt:
            self.containers.setdefault(cls, []).append(name)
        if type(child_node) not in (Leaf, Branch):
            self.miss_if(f"{{*map(type, {items_name})}} != {{{self.name(type(child_node))}}}")
            return f"{cls.__name__}({name})" if node.rebuilt else name
        item_name, result_name = self.new("v"), self.new("r")
        body = _Block(self.scope, later=self.scope.converts_together(child_node))
        expression = body.value(child_node, structure, item_name)
        body.check_leaves()
        for many_name, variable_names in body.inputs.items():
            body.lines.append(f"{many_name}_in += [{', '.join(variable_names)}]")
            if many_name not in self.loops:
                self.loops.append(many_name)
                self.inputs.setdefault(many_name, [])
                self.lines.append(f"{many_name}_in = []")
        for container_type, variable_names in body.containers.items():
            inner_names = [variable for variable in variable_names if variable != item_name]
            if item_name in variable_names:
                self.containers.setdefault(container_type, []).append(f"*{items_name}")
            if inner_names:
                list_name = self.new("s")
                self.lines.append(f"{list_name} = []")
                body.lines.append(f"{list_name} += [{', '.join(inner_names)}]")
                self.containers.setdefault(container_type, []).append(f"*{list_name}")
        stored_code = f"({_comma([*body.stored.values()])})" if body.stored else "None"
        body.lines.append(f"{result_name}.append({stored_code if body.later else expression})")
        self.lines += [f"{result_name} = []", f"for {item_name} in {items_name}:"]
        self.lines += [f"    {line}" for line in body.lines]
        self.miss_if(f"len({result_name}) != len({items_name})")
        if body.later:
            variables = _comma([*body.stored]) if body.stored else "_"
            self.rebuilt.append(f"{result_name} = [{expression} for {variables} in {result_name}]")
        if not node.rebuilt:
            return name
        if cls is dict:
            return self.whole(f"dict(zip({name}, {result_name}))", f"len({result_name})")
        return f"tuple({result_name})" if cls is tuple else result_name


def _any_same(names: list[str]) -> str:
    """Return a condition that is true if two of the containers are one object. "*v1" means all items of v1."""
    starred = [name[1:] for name in names if name.startswith("*")]
    unstarred = [name for name in names if not name.startswith("*")]
    if not starred and len(unstarred) <= 3:
        return " or ".join(f"{a} is {b}" for a, b in itertools.combinations(unstarred, 2))
    id_codes = [f"id({name})" for name in unstarred] + [f"*map(id, {name})" for name in starred]
    count_code = " + ".join([str(len(unstarred)), *(f"len({name})" for name in starred)])
    return f"len({{{', '.join(id_codes)}}}) != {count_code}"


def _comma(names: list[str]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")
