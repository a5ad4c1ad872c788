"""Finds the plan for a value among many, by asking only for the differences between their structures.

Where all are dicts of different lengths, it asks for the length. Only among those of one length, it asks next for the
type or length of a value inside. Nothing is checked here: a plan checks all that it relies on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from arrayferry._plugin.container import Container
from arrayferry._tree.nodes import Branch

from .structure import MANY

if TYPE_CHECKING:
    from .plan import Plan


def leads_to(choice: Choice | None, plan: Plan) -> bool:
    """Return whether a choice finds a plan for values of its structure."""
    while isinstance(choice, Fork):
        choice = choice.choices.get(choice.question.answer(plan.structure))
    return choice is plan


def with_plan(choice: Choice | None, plan: Plan, root: Any) -> Choice:
    """Return a choice with one more plan, or with a new one for its structure.

    Args:
        choice: the choice. A plan that cannot be told apart from its plans is not added.
        plan: the plan.
        root: the root of a tree of its structure.
    """
    if choice is None:
        return plan
    if isinstance(choice, Fork):
        question = choice.question.first_difference(choice.structure, plan.structure)
        if question is None:
            answer = choice.question.answer(plan.structure)
            choice.choices[answer] = with_plan(choice.choices.get(answer), plan, root)
            return choice
    elif choice.structure == plan.structure:
        return plan
    else:
        question = _difference(plan.structure, choice.structure, root)
        if question is None:
            return choice
    return Fork(question, choice, plan)


def without_plan(choice: Choice | None, plan: Plan) -> Choice | None:
    """Return a choice without a plan."""
    if not isinstance(choice, Fork):
        return None if choice is plan else choice
    answer = choice.question.answer(plan.structure)
    left = without_plan(choice.choices.get(answer), plan)
    if left is not None:
        choice.choices[answer] = left
    else:
        choice.choices.pop(answer, None)
    rest = [*choice.choices.values()]  # read at once: another thread may add one
    return choice if len(rest) > 1 else next(iter(rest), None)


class _Step(NamedTuple):
    """A step from a container to one of its children."""

    cls: type
    container: Container
    position: int


class _Question(NamedTuple):
    """A question about a value: the type of a value inside, or the number or types of the children of a container.

    Attributes:
        path: the place of the value inside.
        of: the container at that place, if the question is about its children; None for its type.
        types: whether to ask for the types of the children, not their number.
    """

    path: tuple[_Step, ...]
    of: _Step | None = None
    types: bool = False

    def answer(self, structure: Any) -> Any:
        """Return the answer for a structure that has a value at the path."""
        for step in self.path:
            structure = structure[1 + step.position]
        if self.of is None:
            return _type_of(structure)
        return _types_in(structure) if self.types else _length_of(structure)

    def first_difference(self, one: Any, other: Any) -> _Question | None:
        """Return the first question before this one that has different answers for two structures.

        Only where all of those have the same answer, there is a value at the path.
        """
        before: list[_Question] = []
        for depth, step in enumerate(self.path):
            before += [_Question(self.path[:depth]), _Question(self.path[:depth], step)]
        if self.of is not None:
            before.append(_Question(self.path))
        if self.types:
            before.append(_Question(self.path, self.of))
        return next((q for q in before if q.answer(one) != q.answer(other)), None)

    def code(self, names: dict[str, Any]) -> str:
        """Write the question as an expression of the value `v0`, and add the objects that it refers to to `names`."""

        def children(text: str, step: _Step) -> str:
            if step.cls in (list, tuple):
                return text
            if step.cls is dict:
                return f"{text}.values()"
            name = f"container_{len(names)}"
            names[name] = step.container
            return f"{name}.children({text})"

        text = "v0"
        for step in self.path:
            inside = children(text, step)
            items = f"[*{inside}]" if step.cls is dict else inside
            text = f"{items}[{step.position}]"
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
    """Return a question that has different answers for two structures, None if there is no such question.

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
        for position, parts in enumerate(zip(mine[1:], its[1:], node.children, strict=False)):
            waiting.append(((*path, step._replace(position=position)), *parts))
    return None


class Fork:
    """A question with a choice for each answer: a plan, or another question.

    Attributes:
        question: the question.
        structure: one of the structures that it tells apart.
        choices: a choice for each answer.
        names: the objects that its code refers to.
        code: an expression for the choice for a value `v0`.
        find: the same as a function.
    """

    def __init__(self, question: _Question, choice: Choice, plan: Plan) -> None:
        self.question = question
        self.structure = plan.structure
        self.choices: dict[Any, Choice] = {
            question.answer(each.structure): each for each in (choice, plan)
        }
        self.names: dict[str, Any] = {"get": self.choices.get, "many": MANY}
        self.code = f"get({question.code(self.names)}) or get(many)"
        self.find: Callable[[Any], Choice | None] = eval(f"lambda v0: {self.code}", self.names)


Choice: TypeAlias = "Fork | Plan"
"""A plan, or a question that leads to one."""
