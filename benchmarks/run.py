"""Compare ours with Gymnasium's and with calls by hand: measure, print and plot.

    python benchmarks/run.py              # all, in about ten minutes
    python benchmarks/run.py tree ragged  # some sections, printed but not saved

Times are the shortest of many interleaved repeats. They differ between machines;
compare the ratios.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import agents
import functional
import functions
import growth
import pairs
import registered
import scaling
import short
import start
import translation
import wrappers
from row import Row

SECTIONS = {
    "tree": pairs.tree_rows,
    "one": pairs.one_rows,
    "adapters": pairs.adapter_rows,
    "functional": functional.functional_rows,
    "agents": agents.agent_rows,
    "translated": translation.translated_rows,
    "short": short.short_rows,
    "scaling": scaling.scaling_rows,
    "wrappers": wrappers.wrapper_rows,
    "functions": functions.functions_rows,
    "large": growth.large_rows,
    "leaves": growth.leaves_rows,
    "backends": registered.backends_rows,
    "ragged": growth.ragged_rows,
    "identity": growth.identity_rows,
    "import": start.import_rows,
    "gym": start.gym_rows,
    "first": start.first_rows,
    "kept": agents.kept_rows,
    "threads": registered.threads_rows,
}
RESULTS = Path(__file__).parent / "results"
LATEST = RESULTS / "latest.md"
PICTURES = Path(__file__).parents[1] / "docs/assets"
DISTRIBUTIONS = ("arrayferry", "gymnasium", "numpy", "torch", "jax", "array-api-compat")


def main() -> None:
    """Measure the requested sections."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", help=f"all, or some of: {', '.join(SECTIONS)}")
    wanted = parser.parse_args().sections
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    rows = measure(wanted or list(SECTIONS))
    print(f"\n{table(rows)}\n\n{summary(rows, time.perf_counter() - began)}")
    if not wanted:
        write(rows)


def measure(names: list[str]) -> list[Row]:
    """Run sections, and print the progress."""
    rows: list[Row] = []
    for number, name in enumerate(names, 1):
        section = SECTIONS[name]
        title = (section.__doc__ or "").strip().rstrip(".")
        print(f"[{number}/{len(names)}] {title}", flush=True)
        began = time.perf_counter()
        for row in section():
            rows.append(row)
            print(f"    {row.what}: {row.figure}", flush=True)
        print(f"    {time.perf_counter() - began:.0f} s", flush=True)
    return rows


def table(rows: list[Row]) -> str:
    """All rows under the headings of their sections."""
    headings = ("", "what", "figure", "goal")
    lines = [(row.verdict, row.what, row.figure, row.goal) for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    text = [_line(headings, widths), "-" * (sum(widths) + 6)]
    section = ""
    for row, line in zip(rows, lines, strict=True):
        if row.section != section:
            section = row.section
            text += ["", section]
        text.append(_line(line, widths))
    return "\n".join(text)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def summary(rows: list[Row], seconds: float) -> str:
    """How many rows pass, on which machine and versions."""
    passed = sum(row.verdict == "pass" for row in rows)
    checked = sum(bool(row.checks) for row in rows)
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    machine = f"{os.cpu_count()} x {_processor()}"
    return f"{passed} of {checked} rows pass, in {seconds:.0f} s\n{machine}; {versions}"


def write(rows: list[Row]) -> None:
    """Write the figures, and draw the plot."""
    RESULTS.mkdir(exist_ok=True)
    date = datetime.date.today().isoformat()
    path = RESULTS / f"{date}.json"
    content = {
        "date": date,
        "machine": {"cpus": os.cpu_count(), "processor": _processor()},
        "versions": _versions(),
        "rows": [row.as_json() for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    LATEST.write_text(as_markdown(content))
    print(f"\nwritten: {path.relative_to(RESULTS.parent.parent)}, {LATEST.name}")
    try:
        import picture
    except ImportError:
        print("no plot: it needs matplotlib (pip install matplotlib)")
        return
    for draw, name in ((picture.draw, "speed"), (picture.draw_growth, "growth")):
        for suffix, colours in (("", picture.LIGHT), ("-dark", picture.DARK)):
            path = PICTURES / f"{name}{suffix}.png"
            draw(rows, path, colours)
            print(f"drawn: {path.relative_to(PICTURES.parents[1])}")


def as_markdown(content: dict[str, Any]) -> str:
    """The tables of the page on benchmarks.

    Args:
        content: what the JSON of a run holds.
    """
    machine = "{cpus} cores ({processor})".format(**content["machine"])
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    lines = [f"Measured on {content['date']}, on {machine}:", f"{versions}."]
    section = ""
    for row in content["rows"]:
        if row["section"] != section:
            section = row["section"]
            lines += ["", f"### {section[0].upper()}{section[1:]}", ""]
            lines += ["| what | figure | limit |", "|---|---|---|"]
        missed = " (missed)" if row["verdict"] == "falls short" else ""
        lines.append(f"| {row['what']} | {row['figure']} | {row['goal']}{missed} |")
    return "\n".join(lines) + "\n"


def _versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}
    return {"python": platform.python_version(), **found}


def _processor() -> str:
    """The processor's model."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
