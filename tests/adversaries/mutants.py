"""Plant small faults in the code, one at a time, and see whether the tests notice.

    python tests/adversaries/mutants.py                 # 40 mutants
    python tests/adversaries/mutants.py 200 --seed 7    # more, of another sample

Each mutant is one change of one expression: a comparison is reversed, a condition negated, `and` becomes
`or`, a constant is changed, a statement is left out. It is written to a copy of the tree, and the tests
that belong to the changed module run against that copy, the quickest first. What survives is printed as a
diff, to be read by a person: some changes make no difference to behaviour.

There are tools for this, mutmut and cosmic-ray. Both run the same tests for every mutant, which takes an
hour where this takes ten minutes, and neither can leave out the lines that only a GPU reaches.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("core", "plugins", "gym_adapters")
SKIPPED = ("cupy_.py", "testing.py", "__init__.py", "_public.py")
"""Modules that need a GPU, or are tests or lists of names themselves."""
GPU_WORDS = ("cuda", "gpu", "dlpack", "mps")

TESTS = {
    "gym_adapters": ["tests/gym_adapters"],
    "plugins": ["tests/plugins", "tests/core"],
    "core": ["tests/core", "tests/adversaries/test_properties.py", "tests/gym_adapters"],
}
NEAR = {
    "_conversion": "test_plan test_odd_leaves test_once test_conversion test_changes test_plugin_errors",
    "_registry": "test_registry test_changes test_plugin_errors test_discovery test_trees",
    "_tree": "test_trees test_odd_leaves test_hostile test_plugin_errors",
    "_route": "test_sharing test_narrowing test_registry test_once test_more_than_values test_plugin_errors",
    "_plugin": "test_plugin_errors test_registry test_discovery test_import",
    "_api": "test_registry test_plugin_errors test_changes test_conversion",
    "_agnostic": "test_registry test_plugin_errors test_matrix",
}
"""The tests that are most likely to notice a fault in a wing."""

_COMPARISONS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutation:
    """One change of one node of a module.

    Args:
        path: the module.
        index: which of the nodes, in the order of `ast.walk`.
        what: which change.
    """

    def __init__(self, path: Path, index: int, what: str, line: int) -> None:
        self.path = path
        self.index = index
        self.what = what
        self.line = line

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        tree = ast.parse(source)
        node = list(ast.walk(tree))[self.index]
        _CHANGES[self.what](node)
        ast.fix_missing_locations(tree)
        return ast.unparse(tree)


def _compare(node: ast.Compare) -> None:
    node.ops[0] = _COMPARISONS[type(node.ops[0])]()


def _and_or(node: ast.BoolOp) -> None:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _negate(node: ast.If) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _drop_guard(node: ast.If) -> None:
    node.test = ast.Constant(False)


def _flip(node: ast.Constant) -> None:
    node.value = not node.value


def _add_one(node: ast.Constant) -> None:
    node.value += 1  # type: ignore[operator]


def _drop_not(node: ast.UnaryOp) -> None:
    operand = node.operand
    node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), operand)


def _drop_statement(node: ast.Expr) -> None:
    node.value = ast.Constant(None)


_CHANGES = {
    "compare": _compare,
    "and/or": _and_or,
    "negate": _negate,
    "drop guard": _drop_guard,
    "flip": _flip,
    "add one": _add_one,
    "drop not": _drop_not,
    "drop call": _drop_statement,
}


def mutations(path: Path) -> Iterator[Mutation]:
    """Find all changes that can be made to a module."""
    source = path.read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    annotations = {
        id(part)
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        if getattr(node, field, None) is not None
        for part in ast.walk(getattr(node, field))
    }
    checking = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for part in ast.walk(node)
    }
    for index, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if id(node) in annotations | checking or any(
            word in lines[line - 1].lower() for word in GPU_WORDS
        ):
            continue
        names = []
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            names.append("compare")
        elif isinstance(node, ast.BoolOp):
            names.append("and/or")
        elif isinstance(node, ast.If):
            names += ["negate", "drop guard"]
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            names.append("flip")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            names.append("add one")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            names.append("drop not")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names.append("drop call")
        for what in names:
            yield Mutation(path, index, what, line)


def _tests_for(path: Path) -> list[list[str]]:
    """Return groups of tests, the likeliest to notice first."""
    root, _, *rest = path.relative_to(ROOT).parts
    groups = []
    wing = rest[0].removesuffix(".py")
    if wing in NEAR:
        groups.append([f"tests/core/{name}.py" for name in NEAR[wing].split()])
    groups.append(TESTS[root])
    return groups


def survives(mutation: Mutation, folder: Path) -> tuple[bool, str]:
    """Run the tests against a mutant in a copy of the tree. Return whether they pass, and its diff."""
    original = mutation.path.read_text()
    changed = mutation.apply(original)
    target = folder / mutation.path.relative_to(ROOT)
    diff = "\n".join(
        difflib.unified_diff(
            ast.unparse(ast.parse(original)).splitlines(),
            changed.splitlines(),
            lineterm="",
            n=1,
            fromfile=f"{mutation.path.relative_to(ROOT)}:{mutation.line}",
            tofile=mutation.what,
        )
    )
    target.write_text(changed)
    try:
        paths = os.pathsep.join(str(folder / source) for source in SOURCES)
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        for tests in _tests_for(mutation.path):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
            try:
                done = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, timeout=600
                )
            except subprocess.TimeoutExpired:
                return False, diff
            if done.returncode != 0:
                return False, diff
        return True, diff
    finally:
        target.write_text(original)


def main() -> None:
    """Sample, run, and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of the paths to change")
    arguments = parser.parse_args()
    found = [
        mutation
        for source in SOURCES
        for path in sorted((ROOT / source).rglob("*.py"))
        if path.name not in SKIPPED and arguments.only in str(path)
        for mutation in mutations(path)
    ]
    sample = random.Random(arguments.seed).sample(found, min(arguments.count, len(found)))
    print(f"{len(sample)} of {len(found)} mutants, seed {arguments.seed}", flush=True)
    began = time.monotonic()
    survivors = 0
    with tempfile.TemporaryDirectory() as place:
        folders = []
        for job in range(arguments.jobs):
            folder = Path(place) / str(job)
            for part in (*SOURCES, "tests", "examples"):
                shutil.copytree(
                    ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__")
                )
            for name in ("pyproject.toml", "README.md"):
                shutil.copy(ROOT / name, folder / name)
            shutil.copytree(ROOT / "docs", folder / "docs")
            folders.append(folder)
        free = copy.copy(folders)

        def run(mutation: Mutation) -> tuple[Mutation, bool, str]:
            folder = free.pop()
            try:
                return mutation, *survives(mutation, folder)
            finally:
                free.append(folder)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for number, (mutation, alive, diff) in enumerate(pool.map(run, sample), 1):
                survivors += alive
                place_ = f"{mutation.path.relative_to(ROOT)}:{mutation.line}"
                minutes = (time.monotonic() - began) / 60
                verdict = "SURVIVED" if alive else "noticed"
                print(
                    f"{number:4} {minutes:5.1f} min  {verdict}  {mutation.what:12} {place_}",
                    flush=True,
                )
                if alive:
                    print(diff, flush=True)
    print(f"{len(sample) - survivors} of {len(sample)} noticed")


if __name__ == "__main__":
    main()
