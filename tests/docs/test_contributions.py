"""What a change needs besides its code: a row of a page, and a test of the words of each error."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import arrayferry as af
import arrayferry_gym

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "plugins", "gym_adapters", "cli")


@pytest.mark.parametrize("module", ["arrayferry_gym.wrappers", "arrayferry_gym.wrappers.vector"])
def test_each_wrapper_is_on_the_page_of_wrappers(module):
    page = (ROOT / "docs/how-to/wrappers.md").read_text()
    held = vars(importlib.import_module(module))
    wrappers = [name for name in held["__all__"] if inspect.isclass(held.get(name))]
    missing = [name for name in wrappers if name not in page]
    assert missing == [], "write them on docs/how-to/wrappers.md, under Available wrappers"


@pytest.mark.parametrize(
    ("function", "page", "row"),
    [
        (af.converter, "docs/reference/convert.md", r"\n`{}`\n:"),
        (arrayferry_gym.ArrayConversion, "docs/how-to/gymnasium-wrappers.md", r"\b{}\b"),
        (arrayferry_gym.vector.ArrayConversion, "docs/how-to/gymnasium-wrappers.md", r"\b{}\b"),
    ],
)
def test_each_option_has_a_row(function, page, row):
    text, described = (ROOT / page).read_text(), inspect.getdoc(function)
    options = [name for name in inspect.signature(function).parameters if name != "others"]
    rows = [name for name in options if not re.search(row.format(name), text)]
    entries = [name for name in options if not re.search(rf"\n    {name}\b.*: ", described)]
    entries = [] if function is af.converter else entries  # it refers to those of `convert`
    assert (rows, entries) == ([], []), f"add them to {page}, and to Args in the docstring"


def errors() -> Iterator[tuple[str, list[str]]]:
    """Yield where each error is made, and the literal parts of its text."""
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and node.args
                and ast.unparse(node.func).rpartition(".")[2].endswith("Error")
            ):
                parts = [
                    plain(each.value)
                    for each in ast.walk(node.args[0])
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", parts


def plain(text: str) -> str:
    """Return the words of a text, which may be that of a program or a pattern, with single spaces between."""
    text = re.sub(r"\\[bsw]", " ", re.sub(r'"\s*\n\s*[fr]*"', "", text))
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def test_each_error_is_held_by_a_test():
    """Three words of each error in a row stand in a test, or in an example that is run."""
    tested = [
        path for folder in ("tests", "docs", "examples") for path in (ROOT / folder).rglob("*")
    ]
    texts = [path.read_text() for path in tested if path.suffix in (".py", ".md")]
    for package in PACKAGES:  # the outputs of examples
        for path in (ROOT / package).rglob("*.py"):
            texts += re.findall(r"(?m)^ +[\w.]+Error: .*$", path.read_text())
    held = plain("\n".join(texts))
    missing = []
    for place, parts in errors():
        runs = [
            " ".join(words[i : i + 3])
            for words in map(str.split, parts)
            for i in range(max(1, len(words) - 2))
        ]
        runs = [run for run in runs if len(run) >= 8]
        if runs and not any(run in held for run in runs):
            missing.append(f"{place}: {' ... '.join(parts)}")
    assert missing == [], "no test looks for these words"


@pytest.mark.parametrize(
    ("option", "told"),
    [("--installed", "1 skipped"), pytest.param("-q", "1 error", marks=pytest.mark.long)],
)
def test_what_needs_a_missing_library_is_skipped_if_asked(option, told):
    code = "import sys; sys.modules['dask'] = None; import pytest; pytest.main(sys.argv[1:])"
    arguments = [sys.executable, "-c", code, "tests/core/arrayferry/test_lazy.py", option]
    out = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True).stdout
    assert told in out
    assert "ModuleNotFoundError: import of dask halted" in out
