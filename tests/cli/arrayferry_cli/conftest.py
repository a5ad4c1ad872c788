"""The command, run in this process."""

import pytest
from distributions import plugin, write_distribution

import arrayferry as af
import arrayferry_cli


@pytest.fixture
def run(capfd):
    """Run the command in this process, and return its exit status, which may be given, its output and its errors."""

    def call(*arguments, status=None):
        with pytest.raises(SystemExit) as end:
            arrayferry_cli.main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err, out + err
        assert status in (None, end.value.code), out + err
        return end.value.code, out, err

    return call


@pytest.fixture
def only(monkeypatch):
    """Choose the plugins that are loaded in other processes. Those of this one are loaded before."""
    af.backends()
    return lambda *names: monkeypatch.setenv("ARRAYFERRY_PLUGINS", ",".join(names))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a folder whose distributions count as installed."""
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def toy(installed, only):
    """Install the toy plugin with other lines, to be loaded beside that of NumPy alone."""

    def install(*changes):
        code = plugin("toy")
        for line, instead in changes:
            assert line in code
            code = code.replace(line, instead)
        write_distribution(installed, "toy", code)
        only("numpy", "toy")

    return install
