"""What pyproject.toml says of the package: versions, the address and the long description; and the targets of make."""

import os
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import arrayferry

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
ADDRESS = "https://example.com/arrayferry"


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


def test_the_page_of_versions_has_the_tested_versions():
    def pinned(name, *files):
        texts = "".join((ROOT / file).read_text() for file in files)
        found = re.findall(rf"(?m)(?:^|'){name}==([\d.]+)", texts)
        return max(found, key=lambda each: [*map(int, each.split("."))])

    page = (ROOT / "docs/versions.md").read_text()
    rows = re.findall(r"(?m)^\| (NumPy|PyTorch|JAX|Dask|Gymnasium) \| .* \| (\S+), (\S+) \|$", page)
    assert len(rows) == 5
    for name, *stated in rows:
        package = {"PyTorch": "torch"}.get(name, name.lower())
        oldest = pinned(package, "constraints-oldest.txt")
        assert stated == [oldest, pinned(package, "constraints.txt", "Makefile")], name
    pythons = [each[-4:] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert f"| {pythons[0]}, {pythons[-1]} |" in page


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


def test_the_address_is_that_of_a_repository():
    options = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    assert all(each == "" or each.startswith("https://") for each in options.values())
    assert "urls" not in PROJECT


def test_without_an_address_nothing_refers_to_an_index():
    address = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"]
    pattern = r"(install|\|).*[^a-z_]arrayferry\[[a-z]"
    command = ["git", "grep", "-nE", pattern, "--", "*.py", "*.md", "*.ipynb"]
    named = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert address or not named.stdout


def test_without_an_address_the_metadata_has_none():
    metadata = built(ROOT, "", "")
    assert metadata["urls"] == {}
    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text()


def test_the_long_description_has_no_relative_link():
    metadata = built(ROOT, ADDRESS, "https://example.com/pages")
    targets = links(metadata["readme"]["text"])
    assert len(targets) == len(links((ROOT / "README.md").read_text())) > 0
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    assert metadata["urls"]["Source"] == ADDRESS
    assert metadata["urls"]["Documentation"] == "https://example.com/pages"


def test_all_forms_of_links_become_absolute(tmp_path):
    (tmp_path / "README.md").write_text(
        "[![a](a.png)](docs/index.md) [b](LICENSE) [c](#part) [d](https://example.com/d)\n\n"
        '| [e](docs/a-b.md#c) |\n|---|\n\n<a href="docs"><img alt="f" src="f.svg"></a>\n'
    )
    files = [f"blob/v42.0/{path}" for path in ("docs/index.md", "LICENSE", "docs/a-b.md#c", "docs")]
    expected = [f"{ADDRESS}/{path}" for path in ("raw/v42.0/a.png", "raw/v42.0/f.svg", *files)]
    expected += ["#part", "https://example.com/d"]
    found = links(built(tmp_path, ADDRESS, "")["readme"]["text"])
    assert sorted(found) == sorted(expected)


def test_make_lists_its_targets():
    environment = {**os.environ, "MAKEFLAGS": "", "MAKELEVEL": "0"}
    done = subprocess.run(["make"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    listed = [re.fullmatch(r"make (\S+) +\w.+", line)[1] for line in done.stdout.splitlines()]
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert sorted(listed) == sorted(targets.split())


def test_make_refuses_an_old_python_before_it_installs_anything(tmp_path):
    old = [path for minor in (8, 9, 10) if (path := shutil.which(f"python3.{minor}"))]
    runs = [
        subprocess.run(["make", f"PYTHON={path}", f"CHECK={tmp_path}/.venv", "check"], cwd=ROOT, capture_output=True, text=True)
        for path in old
    ]  # fmt: skip
    starts = [
        each for each in runs if "command not found" not in each.stderr
    ]  # pyenv's may have no version
    if not starts:
        pytest.skip("no Python older than 3.11")
    for done in starts:
        assert done.returncode != 0
        assert "arrayferry needs Python 3.11 or newer, and" in done.stderr
        assert not done.stdout
    assert not [*tmp_path.iterdir()]


def built(folder: Path, address: str, documentation: str) -> dict[str, Any]:
    """Return what the hook makes of the README.md of a folder, in version 42.0."""
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["Addresses"]
    metadata = {"version": "42.0"}
    hook(str(folder), {"address": address, "documentation": documentation}).update(metadata)
    return metadata


def links(text: str) -> list[str]:
    """Return where the links and pictures of a text in Markdown lead."""
    found = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in [each for block in tokens for each in (block, *(block.children or ()))]:
        found += [token.attrs[name] for name in ("href", "src") if name in token.attrs]
        if token.type in ("html_block", "html_inline"):
            found += re.findall(r'\b(?:href|src|srcset)="([^"]*)"', token.content)
    return found
