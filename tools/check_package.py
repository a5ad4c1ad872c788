"""Build the package, and try it as those do who install it.

`python tools/check_package.py`, with `build` and `twine` installed, writes dist/ anew: an sdist, and the wheel that is
built from it. It looks at what they hold, and installs the wheel into empty environments, without and with the command.
With `--release`, it also refuses a package without the address of its repository. With `--rehearse`, it also uploads both to
an index on this machine, and installs from there.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path

DIST = Path("dist")
PACKAGES = tuple(path.parent.name for path in Path(".").glob("*/arrayferry*/__init__.py"))

TRIED = """
import pickle, warnings
warnings.simplefilter("error")
from importlib.metadata import distributions
import numpy as np
import arrayferry as af

found = {each.metadata["Name"] for each in distributions()}
assert found - {"pip", "setuptools"} == {"array-api-compat", "arrayferry", "numpy", "pluggy"}, found
assert {name for name, backend in af.backends().items() if backend.installed} == {"numpy"}
value = {"x": np.arange(3.0), "y": [np.float32(1), "km/h"]}
for to_numpy in (af.converter("numpy"), pickle.loads(pickle.dumps(af.converter("numpy", copy=True)))):
    for _ in range(3):
        result = to_numpy(value)
        assert result["x"].tolist() == [0, 1, 2] and result["y"] == [1, "km/h"], result
        assert (result["x"] is value["x"]) == (to_numpy.options.copy is None)
try:
    af.convert(value, "torch")
except af.BackendUnavailableError as error:
    assert "torch" in str(error)
else:
    raise AssertionError("there is no PyTorch here")
print(f"arrayferry {af.__version__} converts")
"""


def build() -> Path:
    """Write dist/, and return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run("-m", "build", "--quiet")
    run("-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_sdist() -> None:
    """Look for files in the sdist that are not under version control."""
    (sdist,) = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()} - {"", "PKG-INFO"}
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True)
    if listed.returncode == 0:
        strange = sorted(held - set(listed.stdout.splitlines()))
        assert not strange, f"in the sdist, but not under version control: {strange}"


def refuse_without_address(wheel: Path) -> None:
    """Refuse a package without the address of its repository."""
    (metadata,) = [text for name, text in contents(wheel).items() if name.endswith("/METADATA")]
    assert b"\nProject-URL: Source, " in metadata, "pyproject.toml has no address of the repository"


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by their names."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_contents(wheel: Path) -> None:
    """Compare a wheel with one that is built again, without the sdist, and with the sources. So is the sdist."""
    held = contents(wheel)
    for package in PACKAGES:
        assert f"{package}/py.typed" in held, f"{package} has no py.typed"
    info = wheel.name.rpartition("-py3-")[0] + ".dist-info"
    strange = [name for name in held if name.split("/")[0] not in (*PACKAGES, info)]
    assert not strange, f"in the wheel, but not of the package: {strange}"
    modules = [name for name in held if name.endswith(".py")]
    tests = [name for name in modules if re.search(r"/(tests/|test_|conftest\.)", name)]
    assert not tests, f"tests in the wheel: {tests}"
    assert f"{info}/licenses/LICENSE" in held, "no licence in the wheel"
    with tempfile.TemporaryDirectory() as folder:
        run("-m", "build", "--quiet", "--sdist", "--wheel", "--outdir", folder)
        for again in Path(folder).iterdir():
            same = again.read_bytes() == (DIST / again.name).read_bytes()
            assert same, f"{again.name} is another one if it is built again"


def try_installed(wheel: str, *options: str) -> None:
    """Install the wheel where nothing else is, convert, and call the command; then with pytest, and test a plugin.

    Args:
        wheel: its path, or a requirement.
        options: those of pip.
    """
    with tempfile.TemporaryDirectory() as folder:
        run("-m", "venv", folder)
        python = str(Path(folder) / "bin" / "python")
        pip = ("-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, *options, wheel, python=python)
        run("-I", "-c", TRIED, python=python, cwd=folder)
        run("-I", "-m", "arrayferry", "doctor", python=python, cwd=folder)
        name, found, version = wheel.partition("==")
        run(*pip, *options, f"{name}[cli]{found}{version}", python=python)
        run("-I", "-m", "arrayferry", "check", "numpy", python=python, cwd=folder)


def rehearse(wheel: Path) -> None:
    """Upload dist/ to an index on this machine, and try what pip installs from there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        serve = (
            sys.executable,
            "-m",
            "pypiserver",
            "run",
            "-i",
            "127.0.0.1",
            "-p",
            str(port),
            "-P",
            ".",
            "-a",
            ".",
            folder,
        )
        server = subprocess.Popen(serve)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address)
            files = map(str, DIST.iterdir())
            run("-m", "twine", "upload", "--repository-url", address, "-u", "x", "-p", "x", *files)
            version = wheel.name.split("-")[1]
            try_installed(
                f"arrayferry=={version}", "--extra-index-url", f"{address}/simple", "--no-cache-dir"
            )
            print(
                f"arrayferry {version} was uploaded to an index on this machine, and installed from there"
            )
        finally:
            server.terminate()
            server.wait()


def wait_for(address: str) -> None:
    """Wait until a server answers."""
    for _ in range(100):
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit("the index on this machine did not start")


def run(*arguments: str, python: str = sys.executable, cwd: str | None = None) -> None:
    """Run Python, and end if that fails."""
    status = subprocess.run([python, *arguments], cwd=cwd).returncode
    if status:
        sys.exit(f"{' '.join(arguments)[:100]} failed")


if __name__ == "__main__":
    built = build()
    check_sdist()
    check_contents(built)
    if "--release" in sys.argv[1:]:
        refuse_without_address(built)
    try_installed(str(built.absolute()))
    if "--rehearse" in sys.argv[1:]:
        rehearse(built)
