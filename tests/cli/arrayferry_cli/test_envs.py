"""`arrayferry envs`, and suites in `check` and `new-plugin`."""

import json

import pytest
from distributions import pip_install, plugin, run_pytest, write_distribution


def test_suites_are_listed(run):
    status, out, _ = run("envs")
    assert status == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["navix"].endswith("pip install navix") or "0." in lines["navix"]
    assert lines["arrayferry"].split()[1] in ("installed", "0.1.0")  # as editable installs say
    found = json.loads(run("envs", "--json")[1])
    assert {each["name"] for each in found["suites"]} >= {"arrayferry", "gymnasium", "envpool"}
    assert {each["gives"] for each in found["suites"]} == {"functional", "env", "vector"}


def test_ids_are_listed(run):
    assert run("envs", "arrayferry")[:2] == (0, "arrayferry/CartPole-v0\narrayferry/Pendulum-v0\n")
    found = json.loads(run("envs", "arrayferry", "--json")[1])
    assert found["ids"] == ["arrayferry/CartPole-v0", "arrayferry/Pendulum-v0"]
    status, _, err = run("envs", "arayferry")
    assert status == 2
    assert "there is no suite 'arayferry'. Did you mean 'arrayferry'?" in err


@pytest.mark.long
def test_a_suite_is_checked(run):
    status, _, _ = run("check", "arrayferry")
    assert status == 0
    found = json.loads(run("check", "arrayferry", "--json")[1])
    assert found["ok"]
    assert {each["outcome"] for each in found["checks"][0]["tests"]} == {"passed"}


def test_a_suite_whose_package_is_not_installed(run):
    suites = json.loads(run("envs", "--json")[1])["suites"]
    name = next(each["name"] for each in suites if each["version"] is None)
    status, _, err = run("check", name)
    assert status == 1
    assert "is not installed: pip install" in err


CODE = {
    "ids": 'return ["Count"]',
    "load": 'from arrayferry_little_games_env import LittleGamesEnv\n\nreturn {"Count": LittleGamesEnv}[name](None, **options)',
    "actions": "return Discrete(2)",
    "begin": "return jnp.zeros((), jnp.float32)",
    "advance": "after = kept + action\nreturn after, after, after >= 3, jnp.asarray(False)",
    "observation_of": "return kept[None]",
}
"""What the author of a suite writes: the bodies of the methods."""


def completed(text):
    """Return the text of a module with the code in place of each NotImplementedError."""
    while "raise NotImplementedError(" in text:
        head, _, tail = text.partition("raise NotImplementedError(\n")
        indent = " " * (len(head) - len(head.rstrip(" ")))
        name = head.rpartition("def ")[2].partition("(")[0]
        body = CODE[name].replace("\n", f"\n{indent}")
        text = head + body + tail.partition(f"\n{indent})")[2]
    imports = "import jax.numpy as jnp\nfrom gymnasium.spaces import Discrete\n"
    return text.replace("from gymnasium import Space\n", f"from gymnasium import Space\n{imports}")


@pytest.mark.long
def test_from_nothing_to_a_suite_that_works(run, only, tmp_path, installed):
    pytest.importorskip("jax")
    (installed / "littlegames.py").write_text("")
    options = "--package", "littlegames", "--directory", str(tmp_path), "--suite"
    status, out, _ = run("new-plugin", "little-games", *options)
    assert status == 0
    assert "  write ids() and load() in " in out
    assert "  write actions(), begin(), advance() and observation_of() in " in out
    folder, site = tmp_path / "arrayferry-little-games", tmp_path / "site"
    pip_install(folder, site)
    only("numpy", "torch", "jax", "suites", "little_games")
    places = (site, installed)
    status, out = run_pytest(folder, "--tb=line", "-k", "states", places=places)
    assert status == 1
    assert "Write LittleGamesSuite.ids() in arrayferry_little_games.py" in out
    module, environment = (folder / f"arrayferry_little_games{end}.py" for end in ("", "_env"))
    for place in (module, environment):
        text = completed(place.read_text())
        for each in (place, site / place.name):
            each.write_text(text)
    status, out = run_pytest(
        folder, "--tb=short", "-k", "not right and not libraries", places=places
    )
    assert status == 0, out


def test_a_name_that_is_taken(run, tmp_path, installed):
    write_distribution(installed, "mine", plugin("mine"))
    status, _, err = run("new-plugin", "gymnax", "--suite", "--directory", str(tmp_path))
    assert status == 2
    assert "there is a suite 'gymnax' already" in err
    assert not list(tmp_path.glob("arrayferry-*"))
