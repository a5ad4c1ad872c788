"""Draws the pictures of the explanations from what the code says: `python tools/pictures.py`.

They stand in the pages as text, so that their lines have the colour of the page's text, light or dark.
"""

from __future__ import annotations

import math
from pathlib import Path

import arrayferry as af
from arrayferry_gym.functional import FunctionalEnv

ASSETS = Path(__file__).parents[1] / "docs/assets"
PLACES = {  # library: its label, and where its box is
    "numpy": ("NumPy", 320, 150),
    "torch": ("PyTorch", 560, 60),
    "jax": ("JAX", 560, 240),
    "dask": ("Dask", 80, 60),
    "array_api_strict": ("other Array API", 80, 240),
}
DASHES = {"share": "", "copy": "7 4", "compute": "2 4"}
WORDS = {"share": "shared", "copy": "copied", "compute": "computed"}
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


def picture(title: str, width: int, height: int, parts: list[str]) -> str:
    """A whole picture, without blank lines, which would end it in a page."""
    head = '<path d="M0,0 L8,4 L0,8 z" fill="currentColor"/>'
    return "\n".join(
        [
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}" font-size="15" '
            'font-family="inherit" fill="currentColor" style="max-width:100%">',
            '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
            f"{head}</marker></defs>",
            *parts,
            "</svg>",
            "",
        ]
    )


def routes() -> str:
    """The steps that `arrayferry.route` puts together, on the CPU."""
    parts = [box(x, y, label) for label, x, y in PLACES.values()]
    for source in PLACES:
        for target in PLACES:
            steps = af.route(source, target).steps
            if len(steps) == 1:
                parts.append(arrow(PLACES[source][1:], PLACES[target][1:], steps[0].cost))
    for row, (cost, word) in enumerate(WORDS.items()):
        y = 120 + 30 * row
        parts.append(
            f'<line x1="650" y1="{y}" x2="690" y2="{y}" stroke="currentColor" '
            f'stroke-dasharray="{DASHES[cost]}"/><text x="700" y="{y + 5}">{word}</text>'
        )
    return picture("The steps between libraries", 790, 300, parts)


def environment() -> str:
    """What calls the methods of an environment, and what users call."""
    methods = sorted(FunctionalEnv.__abstractmethods__, key=["reset", "step", "observe"].index)
    uses = ["make, make_vec", "rollout, episode, evaluate", "Functions"]
    parts = [
        box(360, 150, "the engine: episodes, limits, resets, checks", 330),
        *(box(160 + 200 * i, 250, f"{name}(xp, ...)") for i, name in enumerate(methods)),
        *(box(130 + 230 * i, 50, name, 210) for i, name in enumerate(uses)),
    ]
    for i in range(3):
        parts.append(arrow((130 + 230 * i, 75), (360, 140)))
        parts.append(arrow((360, 165), (160 + 200 * i, 240)))
    parts.append('<text x="640" y="255">yours</text><text x="640" y="155">ours</text>')
    return picture("What calls the methods of an environment", 740, 290, parts)


PICTURES = {"routes.svg": routes, "environment.svg": environment}


def main() -> None:
    """Draw all pictures."""
    for name, draw in PICTURES.items():
        (ASSETS / name).write_text(draw())


if __name__ == "__main__":
    main()
