"""Type checkers know what `checked.py` says: one run of each."""

import ast
import inspect
import json
import os
import runpy
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import arrayferry as af
from arrayferry import _options
from arrayferry._types import TargetName

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHECKED = HERE / "checked.py"
WINGS = [str(ROOT / wing) for wing in ("core", "plugins", "gym_adapters")]

# classes that derive from those of packages without types
DERIVED = {
    "arrayferry_gym.pettingzoo.AECConversion",
    "arrayferry_gym.pettingzoo.ParallelConversion",
    "arrayferry_gym.rsl_rl.RslRlVecEnv",
    "arrayferry_gym.tianshou.TianshouVectorEnv",
    "arrayferry_gym.torchrl.TorchRLEnv",
}


def lines_of_mistakes():
    lines = CHECKED.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def assert_only_mistakes_are_found(told):
    """Check the lines that are errors: pairs of a line's number and its message."""
    texts = dict(told)
    assert {n: text for n, text in texts.items() if n not in lines_of_mistakes()} == {}
    assert lines_of_mistakes() - set(texts) == set()


def run(*command, **environment):
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        cwd=HERE,
        env={**os.environ, **environment},
    )


def test_they_know_the_names_of_all_built_in_libraries():
    names = {""}
    for each in af.backends().values():
        if type(each).__module__.startswith("arrayferry_plugins"):
            names |= {each.name, each.package, each.namespace, *each.aliases}
    assert set(typing.get_args(TargetName)) == names - {""}


def test_they_know_the_options():
    source = ast.parse(inspect.getsource(_options))
    classes = {each.name: each for each in ast.walk(source) if isinstance(each, ast.ClassDef)}
    fields = {
        each.target.id for each in classes["Keywords"].body if isinstance(each, ast.AnnAssign)
    }
    assert fields == set(af.Options._fields)


def test_overloads_of_the_adapters_are_those_that_the_tool_writes():
    written = runpy.run_path(str(ROOT / "tools" / "overloads.py"))["WRITTEN"]
    for place, text in written.items():
        assert place.read_text() == text(), "Run: python tools/overloads.py"


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
        (each["range"]["start"]["line"] + 1, each["message"]) for each in errors
    )


@pytest.mark.parametrize(
    "package", sorted(each.parent.name for each in ROOT.glob("*/arrayferry*/py.typed"))
)
def test_all_public_symbols_have_types(package):
    pytest.importorskip("pyright")
    # --pythonpath does nothing here: it looks for the package where the first python of PATH has it
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    options = ("--ignoreexternal", "--outputjson", "--verifytypes", package)
    found = json.loads(run("pyright", *options, PATH=path).stdout)
    symbols = found["typeCompleteness"]["symbols"]
    assert symbols
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
    assert_only_mistakes_are_found((each["line"], each["message"]) for each in errors)
