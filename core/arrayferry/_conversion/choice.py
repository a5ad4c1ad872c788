"""`Choice`: finds the plan for a value among many, by asking only what tells their structures apart.

Where all are dicts of different lengths, that is the length:

    run = get(len(v0), rest)

Only among those of one length, the type or length of something inside is asked next. Nothing is checked here: a plan
checks all that it relies on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from arrayferry._plugin.container import Container
from arrayferry._tree.nodes import Branch

from .structure import MANY

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Choice"]

Run = Callable[[Any], Any]

STREAK = 16
"""After this many values in turn, the plan for them is called directly."""


class Choice:
    """The plans of a conversion.

    Args:
        miss: called for a value that no plan is found for.
        settle: called with the function of a plan that was chosen many times in turn.
        used: called with the function of a plan that is chosen.

    Attributes:
        run: calls the plan for a value.
    """

    def __init__(
        self, miss: Run, settle: Callable[[Run], None], used: Callable[[Run], None]
    ) -> None:
        self.run: Run = miss
        self._miss = miss
        self._settle = settle
        self._used = used
        self._root: _Node | Plan | None = None

    def start(self, *, everywhere: bool = False) -> None:
        """Count anew how often one plan is chosen in turn, and everywhere, tell again which are used."""
        parts = [self._root]
        for part in parts:
            if isinstance(part, _Node):
                part.names["last"] = None
                if everywhere:
                    parts += part.parts.values()

    def add(self, plan: Plan, root: Any) -> bool:
        """Add a plan, or replace that for its structure.

        Args:
            plan: the plan.
            root: the root of a tree of its structure.

        Returns:
            Whether it can be told apart from all others.
        """
        self._become(self._with(self._root, plan, root))
        return self._found(plan) is plan

    def remove(self, plan: Plan) -> None:
        """Remove a plan."""
        self._become(self._without(self._root, plan))

    def _become(self, root: _Node | Plan | None) -> None:
        for node, settle in ((self._root, _stay), (root, self._settle)):
            if isinstance(node, _Node):
                node.names["settle"] = settle
        self._root = root
        self.run = self._miss if root is None else root.run

    def _found(self, plan: Plan) -> Any:
        part = self._root
        while isinstance(part, _Node):
            part = part.parts.get(part.question.answer(plan.structure))
        return part

    def _with(self, part: _Node | Plan | None, plan: Plan, root: Any) -> _Node | Plan:
        """Return a part of the choice with one more plan."""
        if part is None or (part.structure == plan.structure and not isinstance(part, _Node)):
            return plan
        if isinstance(part, _Node):
            question = part.question.before(part.structure, plan.structure)
            if question is None:
                answer = part.question.answer(plan.structure)
                part.put(answer, self._with(part.parts.get(answer), plan, root))
                return part
        else:
            question = _difference(plan.structure, part.structure, root)
            if question is None:
                return part
        node = _Node(question, plan.structure, self._miss, self._used)
        node.put(question.answer(part.structure), part)
        node.put(question.answer(plan.structure), plan)
        return node

    def _without(self, part: _Node | Plan | None, plan: Plan) -> _Node | Plan | None:
        """Return a part of the choice without a plan."""
        if not isinstance(part, _Node):
            return None if part is plan else part
        answer = part.question.answer(plan.structure)
        part.put(answer, self._without(part.parts.get(answer), plan))
        return part if len(part.parts) > 1 else next(iter(part.parts.values()), None)


def _stay(run: Run) -> None:
    """Do not call a plan directly: it was chosen among a part of the plans only."""


class _Step(NamedTuple):
    """The way to a child of a container."""

    cls: type
    container: Container
    place: int


class _Question(NamedTuple):
    """What is asked of a value.

    Attributes:
        path: where something in it is, the type of which is asked.
        of: what that is, if its children are asked for instead: how many they are,
        types: or which types they have.
    """

    path: tuple[_Step, ...]
    of: _Step | None = None
    types: bool = False

    def answer(self, structure: Any) -> Any:
        """Return the answer for a structure in which there is something at the path."""
        for step in self.path:
            structure = structure[1 + step.place]
        if self.of is None:
            return _type_of(structure)
        return _types_in(structure) if self.types else _length_of(structure)

    def before(self, one: Any, other: Any) -> _Question | None:
        """Return what must be asked before, if that has different answers for two structures."""
        for depth, step in enumerate((*self.path, self.of)):
            if step is None:
                return None
            if _type_of(one) is not _type_of(other):
                return _Question(self.path[:depth])
            last = depth == len(self.path)
            if last and not self.types:
                return None
            if _length_of(one) != _length_of(other):
                return _Question(self.path[:depth], step)
            if last:
                return None
            one, other = one[1 + step.place], other[1 + step.place]
        return None

    def code(self, names: dict[str, Any]) -> str:
        """Write what is asked of the value `v0`, and add the objects that this refers to."""

        def children(text: str, step: _Step) -> str:
            if step.cls in (list, tuple):
                return text
            if step.cls is dict:
                return f"{text}.values()"
            name = f"container{len(names)}"
            names[name] = step.container
            return f"{name}.children({text})"

        text = "v0"
        for step in self.path:
            inside = children(text, step)
            text = f"[*{inside}][{step.place}]" if step.cls is dict else f"{inside}[{step.place}]"
        if self.of is None:
            return f"type({text})"
        inside = children(text, self.of)
        return f"(*map(type, {inside}),)" if self.types else f"len({inside})"


def _type_of(structure: Any) -> Any:
    return structure[0] if type(structure) is tuple else structure


def _length_of(structure: Any) -> Any:
    return MANY if structure[-1] is MANY else len(structure) - 1


def _types_in(structure: Any) -> tuple[Any, ...]:
    return tuple(_type_of(part) for part in structure[1:])


def _difference(one: Any, other: Any, root: Any) -> _Question | None:
    """Return what tells two structures apart, None if nothing that is asked does.

    Args:
        one: a structure.
        other: another one.
        root: the root of a tree of the first one.
    """
    if _type_of(one) is not _type_of(other):
        return _Question(())
    waiting: deque[tuple[tuple[_Step, ...], Any, Any, Any]] = deque([((), one, other, root)])
    while waiting:
        path, mine, its, node = waiting.popleft()
        if mine == its or type(node) is not Branch:
            continue
        step = _Step(mine[0], node.container, 0)
        if _length_of(mine) != _length_of(its):
            return _Question(path, step)
        if _types_in(mine) != _types_in(its):
            if _length_of(mine) is MANY:
                return _Question((*path, step))
            return _Question(path, step, types=True)
        for place, parts in enumerate(zip(mine[1:], its[1:], node.children, strict=False)):
            waiting.append(((*path, step._replace(place=place)), *parts))
    return None


_CODE = """
def choose(v0):
    global last, left
    try:
        run = get({question}, rest)
    except Exception:
        run = rest
    if run is not last:
        last, left = run, {streak}
        used(run)
    else:
        left -= 1
        if not left:
            settle(run)
    return run(v0)
"""


class _Node:
    """Calls what the answer to a question leads to: a plan, or another question.

    Args:
        question: the question.
        structure: one of the structures that are told apart.
        miss: called where no answer is known.
        used: called with what is chosen.

    Attributes:
        question, structure: as given.
        names: the objects that its code refers to.
        parts: what each answer leads to.
        run: the code.
    """

    def __init__(
        self, question: _Question, structure: Any, miss: Run, used: Callable[[Run], None]
    ) -> None:
        self.question = question
        self.structure = structure
        self.parts: dict[Any, _Node | Plan] = {}
        self._runs: dict[Any, Run] = {}
        self._miss = miss
        self.names: dict[str, Any] = {
            "get": self._runs.get, "rest": miss, "used": used, "settle": _stay, "last": None, "left": 0,
        }  # fmt: skip
        code = _CODE.format(question=question.code(self.names), streak=STREAK)
        exec(compile(code, "<arrayferry: choice of the code for a structure>", "exec"), self.names)
        self.run: Run = self.names["choose"]

    def put(self, answer: Any, part: _Node | Plan | None) -> None:
        """Set what an answer leads to. A length that no other structure has is one of many."""
        if part is None:
            self.parts.pop(answer, None)
            self._runs.pop(answer, None)
        else:
            self.parts[answer] = part
            self._runs[answer] = part.run
        if answer is MANY:
            self.names["rest"] = self._miss if part is None else part.run
