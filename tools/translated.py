"""Environments of JAX, translated to NumPy and PyTorch, against JAX itself: `make translated`.

usage: translated.py run RESULTS [ID ...]      each id in a process of its own; without ids, those of tools/translated.txt
       translated.py table RESULTS             writes the table of docs/environments.md

An id is made with 200 environments in SAME_STEP mode, in JAX and translated, with one seed. All take 50 steps with the
same actions, at random among those that are allowed, and one step from JAX's own states after 25. Results, states and keys
are compared: flags and integers are equal, and floats differ by at most 1e-4, relative where they exceed 1, or ten times
what JAX's own `jit` of one environment and `jit(vmap)` do, in a reset and a step. RESULTS is a JSON file, to which
results are added.
"""

from __future__ import annotations

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import textwrap
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IDS = ROOT / "tools/translated.txt"
PAGE = ROOT / "docs/environments.md"
NOTES = {
    "arrayferry/Pendulum-v0": "Near the upright position, differences grow by a factor of up to 16,000 in 50 steps.",
    "gymnax/Craftax-Classic-Symbolic-v1": "The translated worlds equal the worlds of `jit`.",
}
"""Why some differ."""
HEAD, END = "| in PyTorch / `jit` |\n|---|---|---|---|---|\n", "\n## "
EQUAL = "These environments have no difference. Their least and greatest ratios of times follow the names:"
OTHERS = "These environments have larger differences, or cannot be translated:"
LIBRARIES = {"numpy": "NumPy", "torch": "PyTorch"}
COUNT, STEPS, SINGLE, ROWS, LIMIT = 200, 50, 25, 20, 600


def try_one(env_id: str) -> dict[str, Any]:
    """Compare an environment with its translations."""
    warnings.simplefilter("ignore")
    import jax
    import numpy as np
    import torch

    from arrayferry import ArrayFerryError
    from arrayferry_envs import make_vec, suites

    torch.set_num_threads(1)
    suite = suites()[env_id.partition("/")[0]]
    found: dict[str, Any] = {"id": env_id, "version": suite.version, "why": ""}
    make = functools.partial(make_vec, env_id, COUNT, autoreset_mode="SameStep")
    try:
        translated = {xp: make(xp=xp, translate=True) for xp in LIBRARIES}
        translated["numpy"].reset(seed=1)  # what is refused takes no longer
        space = translated["numpy"].action_space
        space.seed(0)
        rng = np.random.default_rng(0)
        envs = make(xp="jax")
        seen = [(envs.reset(seed=1), _held(envs))]
        actions, times = [], []
        for _ in range(STEPS):
            actions.append(_action(space, rng, seen[-1][0][0]))
            began = time.perf_counter()
            result = jax.block_until_ready(envs.step(actions[-1]))
            times.append(time.perf_counter() - began)
            seen.append((result, _held(envs)))
        found["jit"] = statistics.median(times)
        found["ended"] = sum(int(np.sum(r[2] | r[3])) for r, _ in seen[1:])
        found["own"] = _own_differences(envs, seen[0][1][0], actions)
    except ArrayFerryError as error:
        return found | {"why": error.reason}
    except Exception as error:  # of any kind: it is another library's
        return found | {"why": f"JAX: {type(error).__name__}: {error}"}
    for xp, envs in translated.items():
        try:
            compared = [_difference((envs.reset(seed=1), _held(envs)), seen[0])]
            times = []
            for action, expected in zip(actions, seen[1:], strict=True):
                began = time.perf_counter()
                result = envs.step(action)
                times.append(time.perf_counter() - began)
                compared.append(_difference((result, _held(envs)), expected))
            stepper: Any = envs._stepper
            leaves, keys = seen[SINGLE][1]
            stepper._leaves, stepper._keys = stepper._entered((tuple(leaves), keys))
            single = _difference((envs.step(actions[SINGLE]), _held(envs)), seen[SINGLE + 1])
            free = [sum(parts[0] for parts in compared), max(parts[1] for parts in compared)]
            found[xp] = {"single": single, "free": free, "step": statistics.median(times)}
        except ArrayFerryError as error:
            found["why"] = error.reason
        except Exception as error:
            found["why"] = f"{type(error).__name__}: {error}"
    return found


def _action(space: Any, rng: Any, observation: Any) -> Any:
    """Return actions at random, among those in the mask of the observations if they have one."""
    import numpy as np
    from gymnasium import spaces

    if not isinstance(observation, dict) or "action_mask" not in observation:
        return space.sample()
    mask = np.asarray(observation["action_mask"])
    if not isinstance(space, spaces.MultiDiscrete) or mask.ndim != 2:
        return space.sample()
    return np.where(mask, rng.random(mask.shape), -1).argmax(1)


def _held(envs: Any) -> Any:
    """Return a copy of what environments hold between two steps."""
    import arrayferry as af

    stepper = envs._stepper
    return af.convert(([*stepper._leaves], stepper._keys), "numpy", copy=True)


def _difference(given: Any, expected: Any) -> tuple[int, float]:
    """Return how many integers and flags differ, and the largest difference of floats, relative where they exceed 1."""
    import numpy as np

    import arrayferry as af

    pairs = (af.flatten(af.convert(tree, "numpy"))[0] for tree in (given, expected))
    wrong, largest = 0, 0.0
    for x, y in zip(*pairs, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            raise TypeError(f"{x.dtype}{x.shape} is not {y.dtype}{y.shape}")
        if x.dtype.kind != "f":
            wrong += int((x != y).sum())
            continue
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        apart = np.where(same, 0, np.abs(x - y) / np.maximum(np.abs(y), 1))
        wrong += int(np.isnan(apart).sum())
        largest = max(largest, float(np.nanmax(apart, initial=0)))
    return wrong, largest


def _own_differences(envs: Any, leaves: Any, actions: Any) -> dict[str, Any]:
    """Return how far JAX's compiled reset and steps of one environment are from those of its `vmap`."""
    import jax
    import jax.numpy as jnp

    from arrayferry_gym import make_rng

    env, params, held = envs.functional, envs.params, envs._stepper.env
    leaves = [jnp.asarray(x) for x in leaves[:-2]]
    shared = env._shared

    def joined(row: Any, *, batch: bool) -> Any:
        rows = iter(row)
        own = (next(rows) if n not in shared else x for n, x in enumerate(leaves))
        return held.join(
            tuple(x[None] if batch and n not in shared else x for n, x in enumerate(own))
        )

    def one(key: Any, row: Any, action: Any) -> Any:
        """Take a step, and begin another episode."""
        if not hasattr(env, "begin"):
            rng, action = make_rng("jax", key), action[None]
            state, *rest = env.step(jnp, rng, joined(row, batch=True), action, params)
            fresh = held.leaves(env.reset(jnp, make_rng("jax", key), 1, params))
            return [x[0] for x in held.leaves(state)], (
                rest,
                env.observe(jnp, state, params),
                fresh,
            )
        kept, *rest = env._advanced(key, joined(row, batch=False).tree, action, params)
        trees = (jax.tree.map(jnp.asarray, tree) for tree in (kept, env.begin(key, params)))
        after, fresh = (env._kept(tree).leaves for tree in trees)
        row = [x for n, x in enumerate(after) if n not in shared]
        return row, (rest, env._observed(kept, params), fresh)

    keys = jax.random.split(jax.random.key(0), ROWS)
    mapped, run = jax.jit(jax.vmap(one)), jax.jit(one)
    together = [x[:ROWS] for n, x in enumerate(leaves) if n not in shared]
    alone, found = [[x[n] for x in together] for n in range(ROWS)], {}
    for action in actions:
        action = jax.tree.map(lambda x: jnp.asarray(x[:ROWS]), action)
        results = [
            run(keys[n], alone[n], jax.tree.map(lambda x, n=n: x[n], action)) for n in range(ROWS)
        ]
        alone = [row for row, _ in results]
        together, other = mapped(keys, together, action)
        found["free"] = _difference(
            (together, other), jax.tree.map(lambda *x: jnp.stack(x), *results)
        )
        found.setdefault("single", found["free"])
    return found


def run_one(env_id: str) -> dict[str, Any]:
    """Try an environment in a process of its own, with one thread."""
    start = time.time()
    command = [sys.executable, __file__, "one", env_id]
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, check=False, env=settings
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        ended = f"its process ended with {done.returncode}: {done.stderr.strip()[-200:]}"
        found = json.loads(lines[-1]) if lines else {"id": env_id, "why": ended}
    except subprocess.TimeoutExpired:
        found = {"id": env_id, "why": f"took longer than {LIMIT} seconds"}
    found |= {"date": str(date.today()), "seconds": round(time.time() - start)}
    found["why"] = " ".join(found["why"].split())[:300]
    print(table([found]), f"{found['seconds']} s", flush=True)
    return found


def verdict(found: dict[str, Any]) -> str:
    """Return what differs, or why an environment is refused. Nothing if all is as it should be."""
    note = f" {NOTES[found['id']]}" if found["id"] in NOTES else ""
    if found["why"]:
        why = re.sub("(the primitive [a-z_]+) of .* (cannot [^:]*):.*", r"\1 \2", found["why"])
        return f"{why}.{note}"
    texts = []
    for what, steps in (("single", "one step"), ("free", f"{STEPS} steps")):
        wrong, own = max(found[xp][what][0] for xp in LIBRARIES), found["own"][what]
        if wrong or _apart(found, what) > max(1e-4, 10 * own[1]):
            texts.append(f"floats differ after {steps}.")
            if wrong:
                texts[-1] = (
                    f"in {steps} of {COUNT} environments, {wrong:,} integers and flags differ."
                )
            if own[0]:
                texts.append(
                    f"In JAX itself, {own[0]:,} integers and flags of {ROWS} environments differ between `jit` and "
                    f"`jit(vmap)` after {steps}."
                )
    return " ".join(texts) + note if texts else ""


def row(found: dict[str, Any]) -> str:
    """Return the line of the table."""
    cells = [found["id"]]
    for what in ("single", "free"):
        apart, own = _apart(found, what), found["own"][what][1]
        cells.append(f"{_number(apart)} ({_number(own)})" if own else _number(apart))
    return f"| {' | '.join([*cells, *(times([found], xp) for xp in LIBRARIES)])} |"


def times(results: list[dict[str, Any]], xp: str) -> str:
    """Return the least and the greatest ratio of a library's time and that of `jit`."""
    ratios = sorted(float(f"{found[xp]['step'] / found['jit']:.2g}") for found in results)
    return " to ".join(f"{ratio:g}" for ratio in dict.fromkeys([ratios[0], ratios[-1]]))


def table(results: list[dict[str, Any]]) -> str:
    """Return the table of what differs, and lists: what is equal, and why others differ or are refused."""
    equal: dict[str, list[dict[str, Any]]] = {}
    alike: dict[str, list[str]] = {}
    rows, lines = [], []
    for found in results:
        alike.setdefault(verdict(found), []).append(found["id"])
        if all(xp in found for xp in LIBRARIES):
            apart = [_apart(found, what) or found["own"][what][1] for what in ("single", "free")]
            if verdict(found) or any(apart):
                rows.append(row(found))
            else:
                equal.setdefault(found["id"].partition("/")[0], []).append(found)
    for suite, each in equal.items():
        names = ", ".join(found["id"].partition("/")[2] for found in each)
        spans = ", ".join(f"{times(each, xp)} in {name}" for xp, name in LIBRARIES.items())
        lines.append(f"- **{suite}**: {names}; {spans}")
    lines += ["", OTHERS, ""]
    lines += [f"- {', '.join(ids)}: {text}" for text, ids in alike.items() if text]
    wrapped = [
        textwrap.fill(line, 118, subsequent_indent="  ", break_on_hyphens=False) for line in lines
    ]
    return "\n".join([*rows, "", EQUAL, "", *wrapped])


def _apart(found: dict[str, Any], what: str) -> float:
    return max(found[xp][what][1] for xp in LIBRARIES)


def _number(x: float) -> str:
    digit = float(f"{x:.0e}")
    return f"{digit:.0e}".replace("e-0", "e-") if 0 < digit < 1 else f"{digit:.0f}"


def main() -> None:
    """Run the command."""
    what, *rest = sys.argv[1:]
    if what == "one":
        print(json.dumps(try_one(rest[0])), flush=True)
        os._exit(0)  # threads of libraries may hang
    path, ids = Path(rest[0]), rest[1:] or IDS.read_text().split()
    if what == "run":
        for each in ids:
            found = run_one(each)
            kept = json.loads(path.read_text()) if path.exists() else []
            kept = [other for other in kept if other["id"] != each]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([*kept, found], indent=1) + "\n")
        return
    results = {each["id"]: each for each in json.loads(path.read_text())}
    text = table([results[each] for each in IDS.read_text().split() if each in results])
    before, head, rest = PAGE.read_text().partition(HEAD)
    PAGE.write_text(f"{before}{head}{text}\n{rest[rest.index(END) :]}")


if __name__ == "__main__":
    main()
