"""Environments of many suites, made by their ids and audited: `make suites`, `make suites-all`.

usage: suites.py run RESULTS [ID ...]      each id in a process of its own; without ids, all that suites here list and
                                           that RESULTS does not have for the installed version
       suites.py table RESULTS ...         what works, for docs/environments.md

An id is made with two environments in SAME_STEP mode. It takes 50 steps in NumPy and in PyTorch, with the same seed and
actions, and is audited. RESULTS is a JSON file, to which each result is added: one for each id and version of its
package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

STEPS, LIMIT, JOBS = 50, 180, 2


def try_one(env_id: str) -> dict[str, Any]:
    """Make, step and audit an environment."""
    warnings.simplefilter("ignore")
    import numpy as np

    import arrayferry as af
    from arrayferry_audit import check_vector_env
    from arrayferry_envs import make_vec, suites

    suite = suites()[env_id.partition("/")[0]]
    found: dict[str, Any] = {"id": env_id, "version": suite.version, "status": "works", "why": ""}
    try:
        seen, problems = [], []
        actions = make_vec(env_id, 2, autoreset_mode="SameStep").action_space
        for xp in ("numpy", "torch"):
            envs = make_vec(env_id, 2, xp=xp, autoreset_mode="SameStep")
            actions.seed(1)
            results: list[Any] = [envs.reset(seed=1)[0]]
            for _ in range(STEPS):
                results.append(envs.step(actions.sample())[:4])
            seen.append(af.flatten(af.convert(results, "numpy", unsupported="keep"))[0])
            if xp == "numpy":
                problems = check_vector_env(envs, steps=STEPS)
            envs.close()
        same = all(
            np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(*seen, strict=True)
        )
        if problems or not same:
            why = str(problems[0]) if problems else "PyTorch and NumPy differ"
            found |= {"status": "problem", "why": why}
    except af.BackendUnavailableError as error:
        found |= {"status": "not installed", "why": error.remedy}
    except (af.OptionError, af.UnsupportedDtypeError) as error:
        found |= {"status": "refused", "why": error.reason}
    except Exception as error:
        found |= {"status": "fails", "why": f"{type(error).__name__}: {error}"}
    return found


def run_one(env_id: str) -> dict[str, Any]:
    """Try an environment in a process of its own."""
    start = time.time()
    command = [sys.executable, __file__, "one", env_id]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        ended = f"its process ended with {done.returncode}: {done.stderr.strip()[-200:]}"
        found = json.loads(lines[-1]) if lines else {"id": env_id, "status": "fails", "why": ended}
    except subprocess.TimeoutExpired:
        found = {"id": env_id, "status": "fails", "why": f"took longer than {LIMIT} seconds"}
    found |= {"date": str(date.today()), "seconds": round(time.time() - start)}
    found["why"] = " ".join(found["why"].split())[:300]
    print(f"{found['status']:<14} {env_id} ({found['seconds']} s) {found['why'][:160]}", flush=True)
    return found


def untried_ids(results: dict[tuple[str, str], Any]) -> list[str]:
    """Return the ids of all installed suites, without those that have a result for the installed version.

    Each suite is listed in a process of its own, since packages of others add environments to Gymnasium's.
    """
    from arrayferry_envs import suites

    found = []
    for name, suite in suites().items():
        if suite.installed:
            command = [sys.executable, "-m", "arrayferry", "envs", name]
            listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            ids = [line for line in listed.split() if line.startswith(f"{name}/")]
            found += [env_id for env_id in ids if (env_id, suite.version) not in results]
    return found


def table(results: list[dict[str, Any]]) -> str:
    """Return results as a list in Markdown: for each suite what works, and what does not and why."""
    lines = [f"Tried on {max(each['date'] for each in results)}:", ""]
    for suite in sorted({each["id"].partition("/")[0] for each in results}):
        own = [each for each in results if each["id"].startswith(f"{suite}/")]
        versions = {each["version"] for each in own if each.get("version")}
        names = [each["id"].partition("/")[2] for each in own if each["status"] == "works"]
        works = ", ".join(names) or "none"
        lines.append(f"- **{' '.join([suite, *versions])}**: {works}")
        for each in own:
            if each["status"] != "works":
                name = each["id"].partition("/")[2]
                lines.append(f"  - {name}: {each['status']}, {each['why'].partition('. ')[0]}")
    return "\n".join(textwrap.fill(x, 118, subsequent_indent="    " if x[0:1] == " " else "  ",
                                   break_long_words=False, break_on_hyphens=False) for x in lines)  # fmt: skip


def main() -> None:
    """Run the command."""
    what, *rest = sys.argv[1:]
    if what == "one":
        print(json.dumps(try_one(rest[0])), flush=True)
        os._exit(0)  # threads of libraries may hang
    if what == "table":
        found = {x["id"]: x for name in rest for x in json.loads(Path(name).read_text())}
        print(table(list(found.values())))
        return
    path = Path(rest[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text()) if path.exists() else []
    results = {(each["id"], each.get("version")): each for each in earlier}
    ids, found = rest[1:] or untried_ids(results), []
    with ThreadPoolExecutor(JOBS) as pool:
        for result in pool.map(run_one, ids):
            found.append(result)
            results[result["id"], result.get("version")] = result
            path.write_text(json.dumps(list(results.values()), indent=1) + "\n")
    sys.exit(any(each["status"] in ("fails", "problem") for each in found))


if __name__ == "__main__":
    main()
