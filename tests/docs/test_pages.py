"""Every block of code in the pages runs as it stands."""

import ast
import doctest
import logging
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Of `make bridges` and `make downstream`, which have these packages.
BRIDGES = {
    "brax", "craftax", "gymnax", "jumanji", "kinetix", "minari", "mujoco_playground", "navix", "pandas",
    "pgx", "ray", "rejax", "rsl_rl", "sklearn", "skrl", "tensordict", "tensorflow", "tianshou", "xminigrid", "zarr",
}  # fmt: skip
GPU = re.compile(r"\bcuda\b|cuda:0|import cupy|cupy\.")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    code: str
    output: str | None  # of a block of text right after it

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_session(self) -> bool:
        return self.code.lstrip().startswith(">>>")


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        if match[2] in ("python", "pycon"):
            output = OUTPUT.match(text, match.end())
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, textwrap.dedent(match[3]), output and output[1]))
    return found


def run(block: Block, names: dict[str, object]) -> None:
    if GPU.search(block.code) and not _has_gpu():
        pytest.skip("no GPU that CuPy, PyTorch and JAX can use")
    try:
        if block.is_session:
            _run_session(block, names)
        else:
            # As many lines before it as in the page, so that errors name the page's line.
            source = "\n" * block.line + block.code
            script = Path(str(names["__file__"]))
            script.write_text(block.code)
            if "DataLoader(" in block.code:
                _run_script(script)
                return
            exec(compile(source, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    except ImportError as error:  # or a suite's `BackendUnavailableError`
        name = error.name or getattr(error, "backend", "")
        if name.partition(".")[0] not in BRIDGES:
            raise
        pytest.skip(
            f"{name} is not installed. `make bridges`, `make downstream` or the group dev has it"
        )


def _run_script(script: Path) -> None:
    """Run a script whose workers are forked: from this process, with its threads, one aborts now and then."""
    ignored = (
        "-Wignore:'set_vital' is deprecated",  # torchdata, PyTorch 2.13
        "-Wignore:Module globals is missing",  # PyTorch 2.15, imported by spawned processes of Python 3.15
    )
    subprocess.run([sys.executable, "-Werror", *ignored, str(script)], check=True)


def _run_session(block: Block, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(
        block.code, names, str(block), str(block.page), block.line
    )
    test.globs = names
    said: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append, clear_globs=False)
    assert not said, "".join(said)


def _has_gpu() -> bool:
    import jax
    import torch

    return torch.cuda.is_available() and any(d.platform == "gpu" for d in jax.devices())


@pytest.fixture
def names(tmp_path, monkeypatch) -> dict[str, object]:
    """The names of a script: its classes can be pickled, and processes that it starts can import it."""
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "script.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    # PyTorch's exporter logs to the stderr of the first test that exports, which is closed later
    monkeypatch.setattr(logging, "raiseExceptions", False)
    return vars(main)


# The first block of each page is quick, but for these: agents learn in them, or they start several processes.
LONG = {
    "docs/tutorial/agent.md", "docs/tutorial/compiled.md", "docs/how-to/train-save-watch.md",
    "docs/how-to/cluster.md", "docs/how-to/streams.md", "docs/how-to/trainers.md",
}  # fmt: skip
BLOCKS = [
    pytest.param(
        block,
        id=str(block),
        marks=[pytest.mark.long] if number or page.relative_to(ROOT).as_posix() in LONG else [],
    )
    for page in PAGES
    for number, block in enumerate(blocks(page))
]


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX is in this process, but not in the block's
@pytest.mark.filterwarnings("ignore:.*WeightUpdaterBase:DeprecationWarning")  # TorchRL's own
@pytest.mark.filterwarnings("ignore:jax.core.*:DeprecationWarning")  # of packages below rejax
@pytest.mark.parametrize("block", BLOCKS)
def test_block(block, names, capfd):
    run(block, names)
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err  # of threads, and of processes that it started
    if block.output is not None:
        assert doctest.OutputChecker().check_output(block.output, printed.out, OPTIONS), printed.out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_short(page):
    """But for what programs print, in blocks without a language."""
    text = FENCE.sub(
        lambda match: match[0] if match[2] else "\n" * match[0].count("\n"), page.read_text()
    )
    long = [n for n, line in enumerate(text.splitlines(), 1) if len(line) > 120]
    assert not long


@pytest.mark.parametrize("page", ["README.md", "docs/why.md"])
def test_tables_fit_a_phone(page):
    """The longest words of the columns fit beside each other."""
    tables = re.findall(r"(?:^\|.*\n)+", LINK.sub(r"\1", (ROOT / page).read_text()), re.MULTILINE)
    assert tables
    for table in tables:
        rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in table.splitlines()]
        words = [[max(map(len, re.split(r"<wbr>|[\s/-]+", cell))) for cell in row] for row in rows]
        assert sum(map(max, zip(*words, strict=True))) <= 36
