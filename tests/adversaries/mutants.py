"""Plant small faults in the code, one at a time, and see whether the tests notice.

    python tests/adversaries/mutants.py                              # 40 mutants
    python tests/adversaries/mutants.py 200 --seed 7                 # more, of another sample
    python tests/adversaries/mutants.py --only _route/dtypes.py:91   # all of one line

Each mutant is one change of one expression: a comparison is reversed, a condition negated, `and` becomes
`or`, a constant is changed, a statement is left out. It is written to a copy of the tree. The tests that
reach its line, which a first run with coverage has shown, run against that copy, the quickest first. What
survives is printed as a diff, to be read by a person: some changes make no difference to behaviour.

There are tools for this. cosmic-ray runs all tests for every mutant, which would take days here. mutmut
chooses tests as this does, but by replacing each function with a wrapper, which changes what these tests
look at: pickles, signatures, and the imports among modules.
"""

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import coverage

ROOT = Path(__file__).resolve().parents[2]
PYTEST = (sys.executable, "-m", "pytest", "-q")
SOURCES = ("core", "plugins", "gym_adapters", "cli")
FILES = ("pyproject.toml", "README.md", "CONTRIBUTING.md", "constraints-oldest.txt")
COPIED = (*SOURCES, "tests", "examples", "docs", *FILES)
MAP = ROOT / ".mutants"
"""Which tests reach which lines. It is made again when a source or a test has changed."""
SKIPPED = ("cupy_.py", "testing.py", "__init__.py", "_public.py")
"""Modules that need a GPU, or are tests or lists of names themselves."""
GPU_WORDS = ("cuda", "gpu", "dlpack", "mps")
ALSO = {
    "discovery.py": "tests/core/arrayferry/test_discovery.py",
    "imports.py": "tests/core/arrayferry/test_import.py",
}
"""Tests that start processes of their own, so that coverage does not see what they reach."""
BUDGET = 60.0
"""Seconds that the tests of one mutant may take, apart from those."""

_COMPARISONS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutation(NamedTuple):
    """One change of one node of a module.

    Attributes:
        path: the module.
        index: which of the nodes, in the order of `ast.walk`.
        what: which change.
        lines: the lines of the changed expression.
    """

    path: Path
    index: int
    what: str
    lines: range

    @property
    def place(self) -> str:
        """The module in the tree, and the line."""
        return f"{self.path.relative_to(ROOT)}:{self.lines[0]}"

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        tree = ast.parse(source)
        node = list(ast.walk(tree))[self.index]
        setattr(node, *changes(node)[self.what])
        ast.fix_missing_locations(tree)
        return ast.unparse(tree)


def changes(node: ast.AST) -> dict[str, tuple[str, Any]]:
    """Return what can be changed of a node: for each change a field, and what stands in it instead."""
    match node:
        case ast.Compare(ops=[operator]):
            return {"compare": ("ops", [_COMPARISONS[type(operator)]()])}
        case ast.BoolOp(op=operator):
            return {"and/or": ("op", ast.Or() if isinstance(operator, ast.And) else ast.And())}
        case ast.If(test=test):
            never, negated = ast.Constant(False), ast.UnaryOp(ast.Not(), test)
            return {"negate": ("test", negated), "drop guard": ("test", never)}
        case ast.Constant(value=bool(value)):
            return {"flip": ("value", not value)}
        case ast.Constant(value=int(value)):
            return {"add one": ("value", value + 1)}
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return {"drop not": ("operand", ast.UnaryOp(ast.Not(), operand))}
        case ast.Expr(value=ast.Call()):
            return {"drop call": ("value", ast.Constant(None))}
    return {}


def mutations(path: Path) -> Iterator[Mutation]:
    """Find all changes that can be made to a module."""
    source = path.read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    types = set()
    for node in ast.walk(tree):
        places = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            places.append(node)
        types |= {id(part) for place in places if place for part in ast.walk(place)}
    for index, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if id(node) in types or any(word in lines[line - 1].lower() for word in GPU_WORDS):
            continue
        for what in changes(node):
            part: ast.AST = node.test if isinstance(node, ast.If) else node
            last = getattr(part, "end_lineno", None) or line
            yield Mutation(path, index, what, range(line, last + 1))


class Reach:
    """Which tests reach a line, the quickest first.

    Args:
        jobs: how many processes run the tests when the map is made.
    """

    def __init__(self, jobs: int) -> None:
        MAP.mkdir(exist_ok=True)
        digest = hashlib.sha256()
        for part in (*SOURCES, "tests"):
            for path in sorted((ROOT / part).rglob("*.py")):
                digest.update(b"" if path == Path(__file__) else path.read_bytes())
        key = MAP / "key"
        if not key.exists() or key.read_text() != digest.hexdigest():
            self._make(jobs)
            key.write_text(digest.hexdigest())
        self._seconds: dict[str, float] = json.loads((MAP / "seconds.json").read_text())
        self._data = coverage.CoverageData(str(MAP / "coverage"))
        self._data.read()

    def _make(self, jobs: int) -> None:
        print("running `make test` with coverage first, for some ten minutes", flush=True)
        command = [*PYTEST, "-n", str(jobs), "--dist=loadfile", "-vv", "-rfE", "--durations=0"]
        command += ["--durations-min=0", "--cov-context=test", "--cov-report="]
        command += [f"--cov={source}" for source in SOURCES]
        environment = {**os.environ, "COVERAGE_FILE": str(MAP / "coverage")}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        (MAP / "log").write_text(done.stdout + done.stderr)
        failed = set(re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE))
        print(f"{len(failed)} tests fail under coverage and are left out", *failed, flush=True)
        seconds: dict[str, float] = {}
        for took, test in re.findall(r"^([\d.]+)s \w+ +(\S.*)$", done.stdout, re.MULTILINE):
            if test not in failed:
                seconds[test] = seconds.get(test, 0.0) + float(took)
        (MAP / "seconds.json").write_text(json.dumps(seconds))

    def tests(self, mutation: Mutation) -> list[str]:
        """Return the tests that reach a line first, then the others of its module.

        A line that runs at import, or whose results are cached, is reached by many more tests than were seen.
        """
        found = self._data.contexts_by_lineno(str(mutation.path))
        tests = self._quickest(found, mutation.lines)
        if len(tests) < 100 and any(found.get(line) for line in mutation.lines):
            tests += [test for test in self._quickest(found, found) if test not in set(tests)]
        also = ALSO.get(mutation.path.name)
        return tests if also is None else [*tests, also]

    def _quickest(self, found: dict[int, list[str]], lines: Iterable[int]) -> list[str]:
        contexts = {context for line in lines for context in found.get(line, ())}
        tests = {context.partition("|")[0] for context in contexts} & set(self._seconds)
        chosen, total = [], 0.0
        for test in sorted(tests, key=lambda test: (self._seconds[test], test)):
            total += self._seconds[test]
            if total > BUDGET:
                break
            chosen.append(test)
        return chosen


def survives(mutation: Mutation, tests: list[str], folder: Path) -> tuple[bool, str]:
    """Run tests against a mutant in a copy of the tree. Return whether they pass, and its diff."""
    target = folder / mutation.path.relative_to(ROOT)
    original = target.read_text()
    changed = mutation.apply(original)
    before, after = ast.unparse(ast.parse(original)).splitlines(), changed.splitlines()
    names = (mutation.place, mutation.what)
    diff = "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=1))
    if not tests:
        return True, f"no test reaches it\n{diff}"
    target.write_text(changed)
    chosen = folder / "chosen.txt"
    chosen.write_text("\n".join(tests))
    try:
        paths = os.pathsep.join(str(folder / source) for source in SOURCES)
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*PYTEST, "-x", "-p", "no:cacheprovider", f"@{chosen}"]
        options = {"cwd": folder, "env": environment, "timeout": 6 * BUDGET}
        try:
            done = subprocess.run(command, capture_output=True, text=True, **options)
        except subprocess.TimeoutExpired:
            return False, diff
        if "no tests ran" in done.stdout or "not found:" in done.stderr:
            raise RuntimeError(done.stdout + done.stderr)
        return done.returncode == 0, diff
    finally:
        target.write_text(original)


def main() -> None:
    """Sample, run, and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only", default="", help="a part of a path, and a line if it ends in :LINE"
    )
    arguments = parser.parse_args()
    found = [
        mutation
        for source in SOURCES
        for path in sorted((ROOT / source).rglob("*.py"))
        if path.name not in SKIPPED
        for mutation in mutations(path)
        if f"{arguments.only}:" in f"{ROOT / mutation.place}:" or arguments.only in str(path)
    ]
    sample = random.Random(arguments.seed).sample(found, min(arguments.count, len(found)))
    print(f"{len(sample)} of {len(found)} mutants, seed {arguments.seed}", flush=True)
    reach = Reach(arguments.jobs)
    began = time.monotonic()
    survivors = 0
    with tempfile.TemporaryDirectory() as place:
        free = []
        for job in range(arguments.jobs):
            folder = Path(place) / str(job)
            folder.mkdir()
            for part in COPIED:
                if (ROOT / part).is_dir():
                    cached = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / part, folder / part, ignore=cached)
                else:
                    shutil.copy(ROOT / part, folder / part)
            free.append(folder)

        def run(mutation: Mutation) -> tuple[Mutation, int, bool, str]:
            folder = free.pop()
            try:
                tests = reach.tests(mutation)
                return mutation, len(tests), *survives(mutation, tests, folder)
            finally:
                free.append(folder)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for number, (mutation, tests, alive, diff) in enumerate(pool.map(run, sample), 1):
                survivors += alive
                minutes = (time.monotonic() - began) / 60
                verdict = "SURVIVED" if alive else "noticed"
                what = f"{mutation.what:10}  {mutation.place}  ({tests} tests)"
                print(f"{number:4} {minutes:5.1f} min  {verdict}  {what}", flush=True)
                if alive:
                    print(diff, flush=True)
    print(f"{len(sample) - survivors} of {len(sample)} noticed")


if __name__ == "__main__":
    main()
