"""The recipes of docs/how-to/trainers.md."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs/how-to/trainers.md").read_text()
TEXT = PAGE.partition("\n## Train in PyTorch")[0]
RECIPES = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL))


def run(trainer: str, steps: int = 512) -> dict[str, object]:
    """Run a recipe with fewer steps, and return its variables."""
    names: dict[str, object] = {}
    code = re.sub(r"\b\d+_000\b", str(steps), RECIPES[trainer])
    exec(compile(code, f"docs/how-to/trainers.md, {trainer}", "exec"), names)
    return names
