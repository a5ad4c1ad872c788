"""Draws the pictures of the explanations from what the code says: `python tools/pictures.py`.

They stand in the pages as text, so that their lines have the colour of the page's text, light or dark.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry_envs import FunctionalEnv

ASSETS = Path(__file__).parents[1] / "docs/assets"
LABELS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}
DASHES = {"share": "", "copy": "7 4", "compute": "2 4"}
WIDTH, HEIGHT = 130, 40


def box(x: float, y: float, text: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    """A box around a line of text, by its centre."""
    return (
        f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}" rx="6" '
        'fill="none" stroke="currentColor"/>'
        f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle">{text}</text>'
    )


def arrow(start: tuple[float, float], end: tuple[float, float], cost: str = "share") -> str:
    """An arrow from one box to another, beside the line between their centres, so that both directions are seen."""
    (x, y), (u, v) = start, end
    length = math.hypot(u - x, v - y)
    right, down = (u - x) / length, (v - y) / length
    x, y, u, v = x - 7 * down, y + 7 * right, u - 7 * down, v + 7 * right
    leave = min(
        WIDTH / 2 / abs(right) if right else math.inf, HEIGHT / 2 / abs(down) if down else math.inf
    )
    leave += 12  # so that lines beside the middle do not touch the boxes
    x, y, u, v = x + leave * right, y + leave * down, u - leave * right, v - leave * down
    return (
        f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{u:.0f}" y2="{v:.0f}" stroke="currentColor" '
        f'stroke-dasharray="{DASHES[cost]}" marker-end="url(#head)"/>'
    )


def line(x: float, y: float, u: float, v: float, cost: str = "share", text: str = "") -> str:
    """An arrow from one point to another, and a text above its middle."""
    drawn = (
        f'<line x1="{x:g}" y1="{y:g}" x2="{u:g}" y2="{v:g}" stroke="currentColor" '
        f'stroke-dasharray="{DASHES[cost]}" marker-end="url(#head)"/>'
    )
    return drawn + (label((x + u) / 2, (y + v) / 2 - 6, text) if text else "")


def label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'


def picture(title: str, width: int, height: int, parts: list[str]) -> str:
    """A whole picture, without blank lines, which would end it in a page."""
    head = '<path d="M0,0 L8,4 L0,8 z" fill="currentColor"/>'
    return "\n".join(
        [
            # a grey that can be read on white and on black
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" color="#777" '
            f'role="img" aria-label="{title}" font-size="15" font-family="sans-serif" fill="currentColor">',
            '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
            f"{head}</marker></defs>",
            *parts,
            "</svg>",
            "",
        ]
    )


def environment() -> str:
    """What calls the methods of an environment, and what users call."""
    methods = sorted(FunctionalEnv.__abstractmethods__, key=["reset", "step", "observe"].index)
    uses = ["make, make_vec", "rollout, evaluate", "Functions"]
    parts = [
        box(360, 150, "the engine: episodes, limits, resets, checks", 330),
        *(box(160 + 200 * i, 250, f"{name}(xp, ...)") for i, name in enumerate(methods)),
        *(box(130 + 230 * i, 50, name, 210) for i, name in enumerate(uses)),
    ]
    for i in range(3):
        x = 360 + 110 * (i - 1)
        parts += [line(130 + 230 * i, 71, x, 129), line(x, 171, 160 + 200 * i, 229)]
    parts.append('<text x="640" y="255">yours</text><text x="640" y="155">ours</text>')
    return picture("What calls the methods of an environment", 740, 290, parts)


def sharing() -> str:
    """Which memory two arrays use, after a conversion on the CPU."""
    pairs = [("numpy", "torch"), ("jax", "numpy"), ("numpy", "jax"), ("jax", "torch")]
    parts = []
    for row, (source, target) in enumerate(pairs):
        x = af.convert(np.ones(3, np.float32), source)
        y = af.convert(x, target)
        shared = af.route(source, target).steps[0].cost == "share"
        writable = [
            name != "jax" and not is_read_only(each) for name, each in ((source, x), (target, y))
        ]
        middle = 45 + 75 * row
        parts += [box(75, middle, LABELS[source]), box(625, middle, LABELS[target])]
        if shared:
            parts.append(box(350, middle, "one memory", 300))
        else:
            parts += [box(270, middle, "memory"), box(430, middle, "memory")]
            parts.append(line(335, middle, 363, middle, "copy"))
        ends = (200, 500) if shared else (205, 495)
        for end, side, writes in ((ends[0], 140, writable[0]), (ends[1], 560, writable[1])):
            parts.append(line(side, middle, end + (-2 if side < end else 2), middle))
            parts.append(label((side + end) / 2, middle - 8, "writes" if writes else "reads"))
    return picture("Shared and copied memory", 700, 320, parts)


def is_read_only(x: Any) -> bool:
    """Whether an array is one of NumPy's that cannot be written to."""
    return isinstance(x, np.ndarray) and not x.flags.writeable


def narrowing() -> str:
    """What becomes of an int64 array where the target has no int64."""
    narrower = af.fit_dtype(np.array([1]), af.backends()["jax"], "checked").dtype.name
    parts = [
        box(90, 40, "int64 array", 150),
        box(330, 40, "does the target have int64?", 230),
        box(620, 40, "int64", 150),
        box(330, 140, f"do all numbers fit {narrower}?", 230),
        box(620, 140, narrower, 150),
        box(330, 240, "NarrowingError", 230),
        line(165, 40, 213, 40),
        line(445, 40, 543, 40, text="yes"),
        line(330, 60, 330, 118),
        label(340, 95, "no", "start"),
        line(445, 140, 543, 140, text="yes"),
        line(330, 160, 330, 218),
        label(340, 195, "no", "start"),
    ]
    return picture("How an array is narrowed", 720, 280, parts)


def devices() -> str:
    """How arrays travel in host memory, on a GPU, and between the two."""
    parts = [
        '<rect x="10" y="10" width="700" height="90" rx="10" fill="none" stroke="currentColor" opacity="0.4"/>',
        '<rect x="10" y="190" width="700" height="90" rx="10" fill="none" stroke="currentColor" opacity="0.4"/>',
        label(25, 32, "host memory", "start"),
        label(25, 212, "a GPU", "start"),
        *(box(x, 60, name) for x, name in ((130, "NumPy"), (380, "PyTorch"), (620, "JAX"))),
        *(box(x, 240, name) for x, name in ((130, "CuPy"), (380, "PyTorch"), (620, "JAX"))),
    ]
    for y in (60, 240):
        parts += [line(197, y - 5, 312, y - 5), line(313, y + 5, 198, y + 5)]
        parts += [line(447, y - 5, 552, y - 5, "copy"), line(553, y + 5, 448, y + 5, "copy")]
    for x in (130, 380, 620):
        parts += [line(x - 6, 82, x - 6, 216, "compute"), line(x + 6, 218, x + 6, 84, "compute")]
    parts += [
        label(255, 48, "shared"), label(500, 48, "copied"), label(255, 228, "shared"), label(500, 228, "copied"),
        label(395, 152, "transferred", "start"),
    ]  # fmt: skip
    return picture("Arrays in host memory and on a GPU", 720, 290, parts)


def plans() -> str:
    """What a converter does with a value."""
    parts = [
        box(75, 40, "a value", 110),
        box(290, 40, "a function for its structure?", 230),
        box(580, 40, "do its checks hold?", 180),
        box(580, 140, "run the function", 180),
        box(290, 140, "convert array by array", 230),
        box(290, 230, "the structure came before?", 230),
        box(580, 230, "write a function", 180),
        line(130, 40, 173, 40),
        line(405, 40, 488, 40, text="yes"),
        line(580, 60, 580, 118),
        label(590, 95, "yes", "start"),
        line(290, 60, 290, 118),
        label(300, 95, "no", "start"),
        line(490, 55, 407, 125),
        label(425, 85, "no"),
        line(290, 160, 290, 208),
        line(405, 230, 488, 230, text="yes"),
    ]
    return picture("What a converter does with a value", 690, 265, parts)


PICTURES = {
    "devices.svg": devices,
    "environment.svg": environment,
    "narrowing.svg": narrowing,
    "plans.svg": plans,
    "sharing.svg": sharing,
}


def main() -> None:
    """Draw all pictures."""
    for name, draw in PICTURES.items():
        (ASSETS / name).write_text(draw())


if __name__ == "__main__":
    main()
