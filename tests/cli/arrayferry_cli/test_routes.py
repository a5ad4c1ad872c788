"""`arrayferry routes`: what `arrayferry.route` says, for all pairs, one library, or one pair."""

import json
import operator

import pytest
from distributions import plugin, write_distribution

import arrayferry as af


@pytest.mark.long
def test_all_pairs_agree_with_the_library(run, only):
    only("numpy", "dask")
    status, out, _ = run("routes", "--json")
    found = json.loads(out)
    assert (status, found["schema"]) == (0, 1)
    assert len(found["routes"]) == 4
    for each in found["routes"]:
        route = af.route(each["source"], each["target"])
        assert each["text"] == str(route)
        assert each["copies"] == route.copies
        assert [step["cost"] for step in each["steps"]] == [step.cost for step in route.steps]
    status, out, _ = run("routes")
    table = [line.split() for line in out.splitlines()]
    assert table[0] == ["from", "\\", "to", "dask", "numpy"]
    assert ["numpy", "copied", "itself"] in table
    assert ["dask", "itself", "computed"] in table


def test_one_library(run, only):
    only("numpy", "dask", "cupy")
    run("routes", "nmupy", status=2)
    _, out, _ = run("routes", "numpy", status=0)
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["from", "numpy", "to", "numpy"],
        ["dask", "copied", "computed"],
    ]
    missing = "not installed: cupy\n" in out or "cupy is installed, but" in out
    assert missing or "cupy" in out.splitlines()[2]


@pytest.mark.long
@pytest.mark.needs("h5py")
def test_one_source(run, only):
    only("numpy", "h5py")
    _, out, _ = run("routes", "h5py", status=0)
    assert [line.split() for line in out.splitlines()] == [["from", "h5py"], ["numpy", "computed"]]


@pytest.mark.long
def test_a_pair_step_by_step(run, only, toy):
    toy()
    only("numpy", "torch", "jax", "dask", "toy")
    _, out, _ = run("routes", "jnp", "torch", status=0)
    assert "jax (cpu) -> torch (cpu) copied" in out
    assert (
        f"by the converter JaxToTorch of arrayferry_plugins.jax_ (arrayferry {af.__version__})"
        in out
    )
    _, out, _ = run("routes", "dask", "toy")
    assert "1. dask (cpu) -> numpy (cpu) computed" in out
    assert "by DaskBackend.to_numpy()" in out
    assert "2. numpy (cpu) -> toy (cpu) shared" in out
    assert "the result has memory of its own" in out
    _, out, _ = run("routes", "numpy", "toy")
    assert "the result shares its memory with the source" in out
    _, out, _ = run("routes", "toy", "toy")
    assert "there is nothing to do" in out


def with_devices(names):
    """Return the change to the toy plugin that gives it other devices."""
    return (
        "    def copy",
        "    class Places(af.Devices):\n"
        f"        def names(self):\n            return {names}\n\n"
        "    devices = Places()\n\n    def copy",
    )


@pytest.mark.long
def test_several_devices(run, toy):
    toy(with_devices('("gpu:0", "gpu:1", "cpu")'))
    status, out, _ = run("routes", "toy", "numpy", "--json")
    ends = operator.itemgetter("source_device", "target_device", "transfers")
    found = [*map(ends, json.loads(out)["routes"])]
    assert (status, found) == (0, [("gpu", "cpu", 1), ("cpu", "cpu", 0)])
    status, out, _ = run("routes", "toy", "numpy")
    assert "toy (gpu) -> numpy (cpu) transferred" in out
    assert "\n\ntoy (cpu) -> numpy (cpu)\n" in out


@pytest.mark.long
def test_a_wrong_name_gets_the_error_of_the_library(run, only):
    only("numpy", "torch")
    with pytest.raises(af.UnknownBackendError) as caught:
        af.route("troch", "numpy")
    status, out, err = run("routes", "troch", "numpy")
    assert (status, out) == (2, "")
    assert str(caught.value).partition(" Known are")[0] in err
    for arguments in (["numpy", "troch"], ["troch"], ["troch", "--json"], ["os.path", "numpy"]):
        assert run("routes", *arguments)[0] == 2
    assert run("routes", "numpy", "pandas")[0] == 2


@pytest.mark.long
def test_a_library_that_crashes(run, only, installed):
    (installed / "crash.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    write_distribution(installed, "crashing", plugin("crashing", "crash"))
    write_distribution(installed, "aborting", "import os; os.abort()")
    write_distribution(installed, "toy", plugin("toy"))
    only("numpy", "crashing", "aborting", "toy", "absent")
    write_distribution(installed, "absent", plugin("absent", "not_there"))
    status, out, err = run("routes")
    assert (status, err) == (0, "")
    assert "not installed: absent\n" in out
    assert "numpy      itself  shared" in out
    words = "loading the plugin aborting failed: it crashed with SIGABRT"
    assert f"the plugin aborting cannot be used: {words}" in out
    words = "importing crash failed: it crashed with SIGSEGV"
    assert f"crashing cannot be used: {words}" in out
    assert run("routes", "numpy", "toy")[0] == 0
    for pair in (("numpy", "crashing"), ("crashing", "numpy"), ("crashing",)):
        status, out, err = run("routes", *pair)
        assert (status, out) == (1, "")
        assert err == f"Error: {words}. Update or reinstall crash.\n"
    reason = "absent is not installed: there is no module 'not_there'"
    assert run("routes", "absent", "numpy")[2] == f"Error: {reason}. Run: pip install absent\n"


def test_what_is_left_out_is_told(run, only, toy):
    toy(("import numpy", "import not_there"))
    only("numpy", "toy", "dask")
    _, out, _ = run("routes", status=0)
    assert "the plugin toy cannot be used: ModuleNotFoundError" in out


@pytest.mark.long
def test_libraries_are_not_imported_again(run, only, installed, toy):
    """Their devices are known from the processes in which each is imported alone."""
    line = "open(__file__ + '.log', 'a').write(f'{os.getpid()} ')"
    names = f'{line} and ("gpu:0", "cpu")'
    toy(("import numpy", "import os\nimport numpy"), with_devices(names))
    only("numpy", "dask", "toy")
    _, out, _ = run("routes", "toy", status=0)
    assert ["numpy", "to", "host", "to", "gpu"] in [line.split() for line in out.splitlines()]
    log = installed / "toy_plugin.py.log"
    assert len(set(log.read_text().split())) == 1


@pytest.mark.long
def test_nothing_to_show(run, only, monkeypatch):
    only("numpy")
    status, out, _ = run("routes", "numpy")
    words = "No other library can be used here. arrayferry doctor shows the reasons.\n"
    assert (status, out) == (0, words)
    monkeypatch.setenv("ARRAYFERRY_PLUGINS", "")
    assert run("routes")[1].startswith("No other library")
