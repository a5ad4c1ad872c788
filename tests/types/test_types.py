"""Type checkers know what `checked.py` says: one run of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHECKED = HERE / "checked.py"
WINGS = [str(ROOT / wing) for wing in ("core", "plugins", "gym_adapters")]

# classes that derive from those of packages without types, and the function that returns one of these
DERIVED = {
    "arrayferry_gym.pettingzoo.AECConversion",
    "arrayferry_gym.pettingzoo.ParallelConversion",
    "arrayferry_gym.pettingzoo.from_jaxmarl",
    "arrayferry_gym.rsl_rl.RslRlVecEnv",
    "arrayferry_gym.tianshou.TianshouVectorEnv",
    "arrayferry_gym.torchrl.TorchRLEnv",
}


def lines_of_mistakes(marks=("# wrong", "# wrong target")):
    lines = CHECKED.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(marks)}


def assert_only_mistakes_are_found(told, longest):
    """Check the lines that are errors, and how long the message of each is.

    Args:
        told: the number of a line, and the message, for each error.
        longest: how many lines of 100 characters a short message may have.
    """
    texts = {}
    for line, text in told:
        texts[line] = [*texts.get(line, []), *text.splitlines()]
    assert {n: text for n, text in texts.items() if n not in lines_of_mistakes()} == {}
    assert lines_of_mistakes() - set(texts) == set()
    short = lines_of_mistakes("# wrong")
    long = {
        n: text
        for n, text in texts.items()
        if n in short and (len(text) > longest or len("".join(text)) > 100 * longest)
    }
    assert long == {}


def run(*command, **environment):
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        cwd=HERE,
        env={**os.environ, **environment},
    )


def test_there_are_mistakes_to_find():
    assert len(lines_of_mistakes()) > 15


def test_pyright(tmp_path):
    pytest.importorskip("pyright")
    shutil.copy(CHECKED, tmp_path)
    config = tmp_path / "pyrightconfig.json"
    options = {"extraPaths": WINGS, "pythonVersion": "3.11"}
    config.write_text(json.dumps(options))
    done = run("pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(config))
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    errors = [each for each in found["generalDiagnostics"] if each["severity"] == "error"]
    assert_only_mistakes_are_found(
        ((each["range"]["start"]["line"] + 1, each["message"]) for each in errors), longest=15
    )


@pytest.mark.parametrize(
    "package", ["arrayferry", "arrayferry_plugins", "arrayferry_gym", "arrayferry_cli"]
)
def test_all_public_symbols_have_types(package):
    pytest.importorskip("pyright")
    # --pythonpath does nothing here: it looks for the package where the first python of PATH has it
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    options = ("--ignoreexternal", "--outputjson", "--verifytypes", package)
    found = json.loads(run("pyright", *options, PATH=path).stdout)
    symbols = found["typeCompleteness"]["symbols"]
    assert len(symbols) > 1
    assert [each["name"] for each in symbols if each["isTypeAmbiguous"]] == []
    unknown = {each["name"] for each in symbols if not each["isTypeKnown"]}
    assert unknown - DERIVED == set()
    own = [each for each in symbols if each["name"] in unknown]
    messages = {part["message"].split("\n")[0] for each in own for part in each["diagnostics"]}
    assert messages <= {
        "Type of metaclass unknown",
        "Type of base class unknown",
        "Return type is partially unknown",  # of a function that returns one of DERIVED
    }


def test_mypy(tmp_path):
    pytest.importorskip("mypy")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nignore_missing_imports = True\nfollow_imports = silent\n")
    done = run(
        *("mypy", "--config-file", str(config), "--output", "json", "--strict"),
        *("--python-version", "3.11", "--cache-dir", str(tmp_path / "cache")),
        *("--disable-error-code", "type-arg", str(CHECKED)),
        MYPYPATH=os.pathsep.join(WINGS),
    )
    assert not done.stderr, done.stderr
    errors = [
        each for each in map(json.loads, done.stdout.splitlines()) if each["severity"] == "error"
    ]
    assert_only_mistakes_are_found(
        ((each["line"], f"{each['message']}\n{each['hint'] or ''}") for each in errors), longest=8
    )
