"""Run the tests of each package where all packages that it does not need are missing.

    python tools/alone.py [PACKAGE ...]          # all by default; options of pytest follow --

For each package, the repository is copied without the folders of those that the table of docs/internals.md does not
name for it; the built-in plugins stay, since without them no array has a name. A wheel is built of the copy, and unpacked
in an environment of its own. The other libraries are those of the environment that runs this, whose folder is added as a
plain path: so no editable install is read, and nothing is installed twice. Before the tests run, no module of a missing
package can be found. In the end, a line for each package says what share of its lines its tests have run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "alone"
PLUGINS = "arrayferry_plugins"
LIMIT = 40 * 60
"""Seconds after which the tests of a package count as hanging."""
ROWS = re.findall(
    r"^\| `(\w+)` \| `(\w+)` \| .* \| (.*) \|$",
    (ROOT / "docs/internals.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
TOPS = {name: top for name, top, _ in ROWS}
STATED = {
    name: [each for each in TOPS if each != name]
    if needs == "all"
    else re.findall(r"`(\w+)`", needs)
    for name, _, needs in ROWS
}


def needed(package: str) -> set[str]:
    """Return a package, all that it needs, and the plugins."""
    return {package, PLUGINS}.union(*map(needed, STATED[package]))


def copied(place: Path, present: set[str]) -> Path:
    """Copy the repository to a folder without the packages that are not present, and return the copy."""
    tree = place / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    missing = tuple(f"{top}/{name}/" for name, top in TOPS.items() if name not in present)
    for name in listed.splitlines():
        if not name.startswith(missing) and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    project = tree / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    for each in missing:
        text = text.replace(f'    "{each.rstrip("/")}",\n', "")
        text = re.sub(
            rf'^\w+ = "{each.split("/")[1]}(:\w+)?"\n', "", text, flags=re.MULTILINE
        )  # hooks, and what is a plugin
    if "arrayferry_cli" not in present:
        text = re.sub(r"\[project\.scripts\]\n.*\n", "", text)
    if PLUGINS not in present:
        text = re.sub(r"\[project\.entry-points\.arrayferry\]\n(.+\n)*", "", text)
    project.write_text(text, encoding="utf-8")
    packages = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == sorted(f"{TOPS[name]}/{name}" for name in present)
    return tree


def installed(place: Path, tree: Path) -> Path:
    """Build the wheel of a copy, unpack it in an environment without an editable install, and return its Python."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = place / "wheels"
    subprocess.check_call(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, tree]
    )
    venv.create(place / "env", with_pip=False, symlinks=True, clear=True)
    python = place / "env" / "bin" / "python"
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = Path(subprocess.check_output([python, "-c", show], text=True).strip())
    subprocess.check_call([*pip, "install", "--no-deps", "--target", folder, *wheels.glob("*.whl")])
    (folder / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


ABSENT = """
import importlib.util, sys
present = set(sys.argv[2:])
for name in sys.argv[1].split(","):
    found = importlib.util.find_spec(name)
    assert (found is not None) == (name in present), (name, found)
    assert found is None or {place!r} in found.origin, found
"""


def run(package: str, options: list[str]) -> tuple[int, str]:
    """Run the tests of a package, and return the exit status and what to say of them."""
    place, present = BUILD / package, needed(package)
    shutil.rmtree(place, ignore_errors=True)
    tree = copied(place, present)
    python = installed(place, tree)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    script = ABSENT.format(place=str(place))
    subprocess.check_call([python, "-c", script, ",".join(TOPS), *present], cwd=tree)
    tests = Path("tests", TOPS[package], package)
    report = place / "coverage.json"
    command = [
        python, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider",
        f"--cov={package}", "--cov-report", f"json:{report}", tests, *options,
    ]  # fmt: skip
    # A file, since a process that a test has left behind would keep a pipe open.
    output = place / "output.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # Python prints where its threads are
            status = process.wait()
    print(output.read_text(errors="replace"), flush=True)
    share = json.loads(report.read_text())["totals"]["percent_covered"] if report.exists() else 0
    return status, f"{package:22} status {status}, {share:.0f} % of its lines"


def main() -> int:
    """Run the tests of the packages that are named, and return the exit status."""
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    chosen, options = arguments[:at] or [*TOPS], arguments[at + 1 :]
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        done = [*pool.map(partial(run, options=options), chosen)]
    print("\n".join(text for _, text in done))
    return int(any(status for status, _ in done))


if __name__ == "__main__":
    sys.exit(main())
