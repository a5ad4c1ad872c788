"""Audit every implementation of vector environments that installs, and write the table of docs/evidence.md.

    python tools/audit_all.py run RESULTS.json [ROW ...]     # each row of tests/audit_all/implementations.py
    python tools/audit_all.py reproduce                      # the faults again, without arrayferry, twice
    python tools/audit_all.py table RESULTS.json             # writes the table

A row runs in a process of its own, for three minutes at most. A finding that tests/audit_all/verdicts.py does not judge
is an error.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "audit_all"
LIMIT, STEPS = 180, 300
ENVIRONMENT = {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "SCIPY_ARRAY_API": "1",
}
sys.path.insert(0, str(TESTS))


def audited(make: Any) -> list[Any]:
    """Audit environments, and return what was found, as plain data."""
    from arrayferry_audit import check_vector_env

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = [(x.check, x.what, x.times) for x in check_vector_env(make, steps=STEPS)]
    ends = [str(x.message) for x in told if "no episode ended" in str(x.message)]
    return [*found, *(("no_end", x, 1) for x in ends)]


def run_row(name: str) -> dict[str, Any]:
    """Audit a row: its implementation, and the same environments by `make_vec`."""
    from implementations import ROWS, made

    from arrayferry_envs import make_vec

    row = ROWS[name]
    result: dict[str, Any] = {"package": row.package, "version": version(row.package)}
    try:
        made(row).close()
    except Exception as error:
        result["failed"] = f"{type(error).__name__}: {error!s:.300}"
    else:
        result["found"] = audited(lambda: made(row))
    if row.ours is not None:
        options = {"autoreset_mode": "SameStep"}
        result["ours"] = audited(lambda: make_vec(row.ours, 4, **options))
    return result


def run(place: Path, names: list[str]) -> int:
    """Audit rows, two at a time, and keep what was found. A row that is lost says nothing of its environments."""
    from implementations import ROWS

    def one(name: str) -> Any:
        command = [sys.executable, __file__, "row", name]
        pipes = {"capture_output": True, "text": True, "timeout": LIMIT}
        try:
            done = subprocess.run(command, env=ENVIRONMENT, **pipes)
        except subprocess.TimeoutExpired:
            print(f"{name}: lost, as it took more than {LIMIT} s", flush=True)
            return None
        if done.returncode:
            print(f"{name}: lost\n{done.stderr[-2000:]}", flush=True)
            return None
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: {found.get('failed') or len(found['found'])}", flush=True)
        return found

    names = names or [*ROWS]
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        found = dict(zip(names, pool.map(one, names), strict=True))
    place.parent.mkdir(exist_ok=True, parents=True)
    place.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return int(None in found.values())


def verdict_of(row: str, check: str) -> Any:
    """Return what is judged of a finding."""
    from verdicts import VERDICTS

    for each in VERDICTS:
        if row.startswith(each.row) and check == each.check:
            return each
    raise LookupError(f"{row}: {check} is not judged in tests/audit_all/verdicts.py")


def reproduce(_: Path) -> int:
    """Run the scripts without arrayferry, each twice in a process of its own."""
    scripts = sorted((TESTS / "reproduced").glob("*.py"))

    def passes(script: Path) -> bool:
        command = [sys.executable, script]
        runs = (
            subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=LIMIT)
            for _ in range(2)
        )
        return not any(done.returncode for done in runs)

    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        passed = [*pool.map(passes, scripts)]
    lost = [x.stem for x, shown in zip(scripts, passed, strict=True) if not shown]
    print(f"{len(scripts)} scripts, each run twice, show what they say", *lost and ["but", lost])
    return bool(lost)


def table(place: Path) -> int:
    """Write the table, and the list of scripts, into the page."""
    from verdicts import VERDICTS

    found = json.loads(place.read_text(encoding="utf-8"))
    rows = ["| vector environments | version | faults | by design | not declared | by `make_vec` |"]
    rows += ["|---|---|---|---|---|---|"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, each in found.items():
        judged = {check: verdict_of(name, check) for check, *_ in each.get("found", ())}
        cells = []
        for kind in ("fault", "by design", "not declared"):
            scripts = {x.script for x in judged.values() if x.verdict == kind}
            cells.append(", ".join(f"`{x}`" for x in sorted(scripts)))
        ours = each.get("ours")
        told = (
            ""
            if ours is None
            else ", ".join(sorted({x for x, *_ in ours} - {"no_end"})) or "nothing"
        )
        if "failed" in each:
            cells = ["does not start", "", ""]
        elif not judged:
            cells = ["none", "", ""]
        alike.setdefault((f"{each['package']} {each['version']}", *cells, told), []).append(name)
    for rest, names in alike.items():
        name = ", ".join(names).replace(", EnvPool ", ", ")
        rows.append(f"| {' | '.join((name, *rest))} |")
    verdicts = sorted({x.script: x for x in reversed(VERDICTS)}.items())
    listed = [
        textwrap.fill(
            f"- `{name}`: {said(name)}" + (f" {x.text}." if '"' in x.text else ""),
            width=118,
            subsequent_indent="  ",
        )
        for name, x in verdicts
    ]
    page = ROOT / "docs" / "evidence.md"
    text = page.read_text(encoding="utf-8")
    today, stack = datetime.date.today().isoformat(), ("gymnasium", "jax", "numpy")
    with_ = ", ".join(f"{name} {version(name)}" for name in stack)
    for mark, lines in (("audit", [f"On {today}, with {with_}:", "", *rows]), ("scripts", listed)):
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        after = rest.partition(f"<!-- end of {mark} -->")[2]
        text = f"{before}<!-- {mark} -->\n" + "\n".join(
            ["", *lines, "", f"<!-- end of {mark} -->{after}"]
        )
    page.write_text(text, encoding="utf-8")
    return 0


def said(name: str) -> str:
    """Return what a script says of itself."""
    return (TESTS / "reproduced" / f"{name}.py").read_text(encoding="utf-8").split('"""')[1]


def main() -> int:
    """Do what the arguments say, and return the exit status."""
    word, *rest = sys.argv[1:]
    if word == "row":
        with contextlib.redirect_stdout(sys.stderr):
            found = run_row(rest[0])
        print(json.dumps(found), flush=True)
        os._exit(0)  # some leave threads behind
    if word == "run":
        return run(Path(rest[0]), rest[1:])
    return {"reproduce": reproduce, "table": table}[word](Path(*rest))


if __name__ == "__main__":
    sys.exit(main())
