"""The check of the built pages finds what is wrong with them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADDRESS = "https://example.com/docs"
NAVIGATION = "site_name: x\nnav:\n  - Home: index.md\n  - how-to/one.md\n"


def check(folder: Path, index: str) -> list[str]:
    """Return what is said of a site of two pages, of which the second is fixed."""
    for path, text in {
        "mkdocs.yml": NAVIGATION,
        "docs/index.md": "",
        "docs/how-to/one.md": "",
        "site/index.html": index,
        "site/how-to/one/index.html": '<h1 id="one">One</h1> <a href="../../">home</a>',
        "site/a.png": "",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    command = [sys.executable, str(ROOT / "tools/check_site.py"), "site", ADDRESS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (int("is right" not in lines[-1]), "")
    return lines


def test_right_pages_pass(tmp_path):
    page = (
        '<a id="top"></a> <a href="#top"></a> <a href="how-to/one/#one"></a> <a href="/docs/a.png"></a>'
        f'<a href="{ADDRESS}/how-to/one/"></a> <a href="https://example.com/other"></a>'
        '<a href="mailto:us"></a> <img src="a.png" srcset="a.png 1x, ./a.png 2x"> <code>::: mylib</code>'
    )
    assert check(tmp_path, page) == ["site: every link, anchor and page is right"]


def test_each_fault_is_named(tmp_path):
    page = (
        '<a href="gone/"></a> <a href="how-to/one/#two"></a> <a href="/elsewhere"></a> <a href="#end"></a>'
        '<img src="b.png"> <img srcset="a.png, c.png 2x"> <p>::: mylib</p>'
    )
    assert check(tmp_path, page) == [
        "index.html: ':::' is left",
        "index.html: #end has no such anchor",
        "index.html: /elsewhere leads out of the pages",
        "index.html: b.png does not exist",
        "index.html: c.png does not exist",
        "index.html: gone/ does not exist",
        "index.html: how-to/one/#two has no such anchor",
    ]


def test_a_page_that_the_navigation_lacks_is_named(tmp_path):
    (tmp_path / "docs/how-to").mkdir(parents=True)
    (tmp_path / "docs/how-to/two.md").touch()
    assert check(tmp_path, "") == ["how-to/two.md is not in the navigation"]


@pytest.mark.long
def test_translated_environments_are_compared_with_jax():
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    command = [sys.executable, str(ROOT / "tools/translated.py"), "one", "arrayferry/CartPole-v0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["why"], found["own"]["single"][0], found["ended"] > 0) == ("", 0, True)
    for xp in ("numpy", "torch"):
        assert found[xp]["free"][0] == 0
        assert found[xp]["free"][1] < 1e-4
