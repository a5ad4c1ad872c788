"""What pyproject.toml says of the package: versions, addresses and the long description."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import arrayferry

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
PLACEHOLDER = PROJECT["urls"]["Homepage"]


def test_the_oldest_versions_are_the_lower_bounds():
    extras = PROJECT["optional-dependencies"]
    required = [*PROJECT["dependencies"]]
    for name in ("torch", "jax", "dask", "warp", "gym", "cli"):
        required += [each for each in extras[name] if not each.startswith("pytest")]
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    for requirement in required:
        name, bound = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()
        oldest = tuple(map(int, tested[name].split(".")))
        stated = tuple(map(int, bound.split(".")))
        assert oldest == stated + (0,) * (len(oldest) - len(stated)), name


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    assert arrayferry.__version__ == PROJECT["version"]
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert latest in (PROJECT["version"], "Unreleased")


def test_the_pythons_of_the_classifiers_are_tested():
    start = "Programming Language :: Python :: 3."
    stated = [each.removeprefix(start) for each in PROJECT["classifiers"] if each.startswith(start)]
    assert PROJECT["requires-python"] == f">=3.{stated[0]}"
    versions = [f"3.{minor}" for minor in stated]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^PYTHONS \?= (.+)$", makefile, re.MULTILINE)[1].split() == versions
    workflow = (ROOT / ".github/workflows/tests.yml").read_text()
    assert re.findall(r'"(3\.\d+)"', re.search(r"python: (\[.+\])", workflow)[1]) == versions


@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="needs the list of the files under version control"
)
def test_the_address_stands_in_one_file():
    found = subprocess.run(
        ["git", "grep", "--files-with-matches", "--fixed-strings", PLACEHOLDER.partition("://")[2]],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.stdout.split() == ["pyproject.toml"]


def test_the_long_description_has_no_relative_link():
    targets = links(long_description(ROOT))
    assert len(targets) == len(links((ROOT / "README.md").read_text())) > 0
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []


def test_all_forms_of_links_become_absolute(tmp_path):
    (tmp_path / "README.md").write_text(
        "[![a](a.png)](docs/index.md) [b](LICENSE) [c](#part) [d](https://example.com/d)\n\n"
        '| [e](docs/a-b.md#c) |\n|---|\n\n<a href="docs"><img alt="f" src="f.svg"></a>\n'
    )
    pictures, files = f"{PLACEHOLDER}/raw/v42.0", f"{PLACEHOLDER}/blob/v42.0"
    assert sorted(links(long_description(tmp_path))) == sorted(
        [
            *(f"{pictures}/a.png", f"{files}/docs/index.md", f"{files}/LICENSE", "#part"),
            *(
                "https://example.com/d",
                f"{files}/docs/a-b.md#c",
                f"{files}/docs",
                f"{pictures}/f.svg",
            ),
        ]
    )


def long_description(folder: Path) -> str:
    """Return what becomes of the README.md of a folder, in version 42.0."""
    rendered = subprocess.run(
        [sys.executable, "-m", "hatch_fancy_pypi_readme", str(ROOT / "pyproject.toml")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return rendered.stdout


def links(text: str) -> list[str]:
    """Return where the links and pictures of a text in Markdown lead."""
    found = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in [each for block in tokens for each in (block, *(block.children or ()))]:
        found += [token.attrs[name] for name in ("href", "src") if name in token.attrs]
        if token.type in ("html_block", "html_inline"):
            found += re.findall(r'\b(?:href|src|srcset)="([^"]*)"', token.content)
    return found
