"""Which installed plugins are loaded, and broken ones beside those of this environment."""

import logging
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from distributions import load, plugin

import arrayferry as af


def test_only_requested_plugins_are_loaded_and_the_others_are_told(monkeypatch):
    monkeypatch.setenv("ARRAYFERRY_PLUGINS", "numpy, dask")
    registry = af.Registry()
    assert [*registry.backends()] == ["dask", "numpy"]
    start = "^no array library is known as 'jax': the plugin of that name is installed, but"
    for name, words in (
        ("jax", f"{start} ARRAYFERRY_PLUGINS does not name it. Known are: "),
        ("jxa", r"Did you mean 'jax'\? .*Left out are: awkward, (classic, )?cupy, "),
    ) * 2:
        with pytest.raises(af.UnknownBackendError, match=words):
            af.converter(name, registry=registry)
        registry.refresh()


def test_an_empty_variable_loads_no_plugin_and_blocks_no_name(run_python):
    script = """
        import sys
        import numpy as np
        from boxes import Box, BoxBackend
        import arrayferry as af

        assert not af.backends() and not af.registry.sources()
        assert "arrayferry_plugins" not in sys.modules
        try:
            af.convert(np.ones(1), "jax")
        except af.UnknownBackendError as error:
            print(error)
        from arrayferry_plugins.numpy_ import NumpyBackend

        class Boxes(BoxBackend):
            name, package, array_types = "torch", "boxes", ("boxes.Box",)

        assert af.registry.manager.register(NumpyBackend(), "numpy") == "numpy"
        af.registry.register(Boxes(), "torch")
        for _ in range(2):
            box = af.convert(np.ones(1), "torch")
            assert type(box) is Box and af.convert(box, "numpy").tolist() == [1.0]
            af.registry.refresh()
        """
    out = run_python(textwrap.dedent(script), env={"ARRAYFERRY_PLUGINS": ""})
    assert "no array library is known as 'jax'" in out
    assert "Known are: none: no plugin is loaded, since ARRAYFERRY_PLUGINS is empty." in out


BACKEND = plugin("broken")


def test_a_library_that_is_imported_after_a_converter_was_made(run_python):
    """The first value of all is of that library."""
    run_python("""
import arrayferry as af
to_numpy = af.converter("numpy")
import torch
assert type(to_numpy(torch.ones(2))).__name__ == "ndarray"
""")


def marked(options):
    """Return the code with options of its hook."""
    return BACKEND.replace("def arrayferry", f"@af.hookimpl({options})\ndef arrayferry")


BROKEN = {
    "importerror": ("import a_module_that_is_not_there", "ModuleNotFoundError.*a_module_that_is_not_there"),
    "syntaxerror": ("def f(:\n    pass", "SyntaxError"),
    "wrongtype": (BACKEND.replace("[Toy()]", "[3]"), "returned 3, where a Backend is expected"),
    "noiterable": (BACKEND.replace("[Toy()]", "3"), "returned 3, where a list of Backend"),
    "typetaken": (
        BACKEND.replace("broken_plugin.Array", "torch.Tensor").replace('"broken"', '"typetaken"'),
        "array type torch.Tensor is taken by the backend 'torch'",
    ),
    "missingmethod": (BACKEND.replace("def from_numpy", "def other"), "TypeError.*from_numpy"),
    "unknownhook": (BACKEND + "\n@af.hookimpl\ndef arrayferry_nonsense():\n    return []\n", "arrayferry_nonsense"),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "nohook": ("x = 1", "implements no hook"),
    **{
        option: (
            marked(f"{option}=True").replace("return [", "yield ["),
            rf"arrayferry_backends\(\) of the plugin '{option}' is marked with {option}=True.*Remove {option}=True",
        )
        for option in ("wrapper", "hookwrapper")
    },
    "arguments": (
        BACKEND.replace("backends()", "backends(registry)"),
        r"'arguments' for hook 'arrayferry_backends'.*Argument\(s\) {'registry'} are declared",
    ),
    "specname": (
        marked("specname='arrayferry_backends'").replace("arrayferry_backends():", "o():"),
        "unknown hook 'o'",
    ),
    "ranked": (marked("tryfirst=True").replace("return [", "raise SystemExit(3, ").replace("()]", "())"), "SystemExit"),
}  # fmt: skip


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Return a registry with all broken plugins and a working one, and the messages."""
    folder, before = tmp_path_factory.mktemp("broken"), set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        codes = {name: code for name, (code, _) in BROKEN.items()}
        registry, messages = load(folder, {**codes, "working": plugin("working")})
    yield registry, [message.replace("\n", " ") for message in messages]
    for name in set(sys.modules) - before:
        if name.endswith("_plugin"):
            del sys.modules[name]


@pytest.mark.parametrize("entry", BROKEN)
def test_a_broken_plugin_is_named_once_and_affects_no_other(broken, entry):
    registry, messages = broken
    (mine,) = [line for line in messages if f"'{entry}' of the distribution" in line]
    assert f"the distribution arrayferry-{entry}" in mine
    assert re.search(BROKEN[entry][1], mine), mine
    assert len(messages) == len(BROKEN)
    assert {"numpy", "torch", "jax", "dask", "cupy", "working"} <= {*registry.backends()}
    assert af.converter("working", registry=registry)(np.ones(2)).values.tolist() == [1, 1]


def test_the_name_of_a_plugin_that_is_broken(broken):
    registry, _ = broken
    for name, words in {
        "importerror": "'importerror': arrayferry left out the plugin 'importerror' of the distribution arrayferry-"
        r"importerror \(importerror_plugin\): ModuleNotFoundError: No module named 'a_module_that_is_not_there', at "
        r"importerror_plugin\.py:1\. Known are: ",
        "typetaken": r"the array type torch\.Tensor is taken by the backend 'torch'",
        "jxa": r"'jxa'\. Did you mean 'jax'\? Known are: .* Left out are: ",
    }.items():
        with pytest.raises(af.UnknownBackendError, match=words):
            af.converter(name, registry=registry)


def test_a_backend_without_its_library_is_known_and_no_command_is_guessed(registry):
    absent = type("Absent", (af.Backend,), {"to_numpy": None, "from_numpy": None})()
    absent.name, absent.package = "absent", "a_missing_library"
    absent.array_types = ("a_missing_library.Array",)
    registry.register(absent)
    assert not registry.backends()["absent"].installed
    assert absent.problem() is not None
    words = (
        "^absent is not installed: there is no module 'a_missing_library'. Install the library, "
        "as its documentation says.$"
    )
    with pytest.raises(af.BackendUnavailableError, match=words):
        af.converter("absent", registry=registry)(np.ones(1))


def test_a_requested_plugin_that_is_not_installed_is_told_and_logged(monkeypatch):
    logged, handler = [], logging.Handler()
    handler.emit = lambda record: logged.append((record.levelname, record.getMessage()))
    monkeypatch.setattr(logging.getLogger("arrayferry"), "handlers", [handler])
    monkeypatch.setenv("ARRAYFERRY_PLUGINS", "numpy,troch")
    with pytest.warns(af.PluginWarning, match="'troch'.*Did you mean 'torch'") as caught:
        af.Registry().backends()
    assert logged == [("WARNING", str(caught[0].message))]


def test_without_a_handler_nothing_is_printed_twice():
    code = "import arrayferry as af; af.Registry().backends()"
    environment = os.environ | {"ARRAYFERRY_PLUGINS": "numpy,troch"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert run.stderr.count("'troch'") == 1
