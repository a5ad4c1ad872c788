"""`Plans`: the code that a conversion has written for structures, and the choice among it for a value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arrayferry._cache import Cache, CostlyCache
from arrayferry._tree.tree import Tree

from .choice import Choice, Fork, leads_to, with_plan, without_plan
from .structure import structure_of

if TYPE_CHECKING:
    from .plan import Plan
    from .snippets import CodeSnippet

MAX_PLANS = 128
"""The maximum number of plans."""
MAX_STRUCTURES = 1_000
"""The maximum number of structures that are counted."""
RARELY = 8
"""When there is no room for more plans, one value in this many is considered for one."""
NEVER = -(10**9)
"""The count of a structure that cannot have a plan."""
MAX_IN_TURN = 8
"""The maximum number of plans that are tried in turn, since they cannot be told apart."""
STREAK = 16
"""A plan that converts this many values in a row is called directly."""

Run = Callable[[Any], Any]

_MISSED: Any = object()


def _missed(value: Any) -> Any:
    return _MISSED


_FILE = "<arrayferry: choice of the code for a structure>"
_CODE = """
def choose(v0):
    try:
        found = {find}
        while type(found) is Fork:
            found = found.find(v0)
    except Exception:
        found = None
    if found is None:
        return plans.miss(v0)
    if found is not plans.last:
        plans.last, plans.left = found, {streak}
        used(found)
    else:
        plans.left -= 1
        if not plans.left:
            plans.skip_choice(found)
    return found.run(v0)
"""


class Plans:
    """The plans of a conversion.

    Args:
        target: the name of the target.
        snippet_for: returns the code that converts arrays of a kind and type, with or without the slow path for those
            that a direct converter does not handle; None if there should be no plan.
        slow_path: converts a value without a plan.
        use: called with the function that converts values from now on.

    Attributes:
        last: the plan that was chosen last.
        left: how many more values in a row it must convert until it is called directly.
        counts: how often each structure was converted without a plan, by its hash, which keeps no type alive.
    """

    def __init__(
        self,
        target: str,
        snippet_for: Callable[..., CodeSnippet | None],
        slow_path: Run,
        use: Callable[[Run], None],
    ) -> None:
        self._target = target
        self._snippet_for = snippet_for
        self.slow_path = slow_path
        self._use = use
        self.forget()

    def forget(self) -> None:
        """Drop all plans."""
        self._plans: CostlyCache[int, Plan] = CostlyCache(MAX_PLANS)
        self.counts: Cache[int, int] = Cache(MAX_STRUCTURES)
        self._in_turn: list[Plan] = []
        self._passed = 0
        self._choose_by(None)

    def _choose_by(self, choice: Choice | None) -> None:
        """Choose the plan for each value from now on."""
        self._choice = choice
        self._choose: Run = self.miss
        if isinstance(choice, Fork):
            code = compile(_CODE.format(find=choice.code, streak=STREAK), _FILE, "exec")
            used = self._plans.used.add
            scope = {**choice.names, "Fork": Fork, "plans": self, "used": used}
            exec(code, scope)
            self._choose = scope["choose"]
        elif choice is not None:  # the only plan
            self._choose = choice.run
        self._start()

    def _start(self) -> None:
        self.last: Plan | None = None
        self.left = STREAK
        self._choice_skipped = False
        self._use(self._choose)

    def skip_choice(self, plan: Plan) -> None:
        """Call a plan directly, until it does not handle a value."""
        if plan in self.all:
            self._choice_skipped = True
            self._use(plan.run)

    @property
    def all(self) -> list[Plan]:
        """All plans."""
        return list(self._plans.values())

    def miss(self, value: Any) -> Any:
        """Convert a value that a plan did not handle, or that no plan was found for."""
        __tracebackhide__ = True
        if self._choice_skipped:  # it may be for another plan
            self._start()
            return self._choose(value)
        for plan in self._in_turn:
            result = plan.run(value, _missed)
            if result is not _MISSED:
                return result
        return self.slow_path(value)

    def learn(self, tree: Tree) -> None:
        """Write a plan for a structure that has been converted before."""
        if len(self._plans) >= MAX_PLANS:
            self._passed = (self._passed + 1) % RARELY
            if self._passed:
                return
        structure = structure_of(tree)
        if structure is None:
            return
        key = hash(structure)
        known = self._plans.get(key)
        if known is not None and known.structure == structure:
            if known.with_slow_path:
                self._try_first(known)
            else:  # it did not handle this value
                self._write(tree, structure, key, with_slow_path=True)
            return
        times = self.counts[key] = self.counts.get(key, 0) + 1
        enough = 2 + len(tree.arrays) // 2_000  # writing a long plan takes tenths of a second
        if times < enough:
            return
        dropped = self._plans.make_room(key)
        if not self._plans.used:
            self.last = None
        if dropped is None:
            return
        for plan in dropped:
            self._choose_by(without_plan(self._choice, plan))
            self._in_turn = [each for each in self._in_turn if each is not plan]
        self._write(tree, structure, key, with_slow_path=False)

    def _try_first(self, plan: Plan) -> None:
        """Try a plan for values that no plan is found for."""
        others = [each for each in self._in_turn if each.structure != plan.structure]
        self._in_turn = [plan, *others][:MAX_IN_TURN]

    def _write(self, tree: Tree, structure: Any, key: int, *, with_slow_path: bool) -> None:
        from .plan import write_plan  # the first conversion does not need it

        snippet_for = functools.partial(self._snippet_for, with_slow_path=with_slow_path)
        plan = write_plan(tree, snippet_for, structure, self._target, self.miss)
        if plan is None:
            self.counts[key] = NEVER
            return
        plan.with_slow_path = with_slow_path
        self._plans[key] = plan
        choice = with_plan(self._choice, plan, tree.root)
        if not leads_to(choice, plan):
            self._try_first(plan)
        self._choose_by(choice)
