"""The reference has every public name, its promises have tests, and the pictures show what the code says."""

import ast
import importlib
import inspect
import pydoc
import re
import runpy
from pathlib import Path

import pytest

import arrayferry

ROOT = Path(__file__).parents[2]
SHOWN = [
    name
    for page in sorted((ROOT / "docs/reference").glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)
]
# Modules that import a package which is not installed here.
ABSENT = {"arrayferry_gym.rsl_rl": "rsl_rl.py", "arrayferry_gym.tianshou": "tianshou.py"}
MODULES = [
    "arrayferry",
    "arrayferry.extending",
    "arrayferry.testing",
    "arrayferry.typing",
    "arrayferry_audit",
    "arrayferry_cluster",
    "arrayferry_envs",
    "arrayferry_envs.extending",
    "arrayferry_functions",
    "arrayferry_gym",
    "arrayferry_gym.extending",
    "arrayferry_gym.pettingzoo",
    "arrayferry_gym.rsl_rl",
    "arrayferry_gym.sb3",
    "arrayferry_gym.tianshou",
    "arrayferry_gym.torchrl",
    "arrayferry_gym.typing",
    "arrayferry_gym.vector",
    "arrayferry_gym.wrappers",
    "arrayferry_gym.wrappers.kernels",
    "arrayferry_gym.wrappers.vector",
    "arrayferry_streams",
    "arrayferry_translate",
]

PROMISE = re.compile(r"(?<![.@])\b(never|always|once)\b")
# The words of the reference around these, and the test of what they promise.
PROMISES = {
    "never modified": "adversaries/test_properties.py::test_structure_values_and_identity",
    "never terminate": "gym_adapters/arrayferry_envs/test_functional_physics.py::test_every_step",
    "never change": "core/arrayferry/test_plugin_errors.py::test_a_view_of_what_never_changes_is_read_only",
    "never carries over": "gym_adapters/arrayferry_gym/test_kernels.py::test_a_return_ends_with_its_episode",
    "always cop": "core/arrayferry/test_sharing.py::test_what_is_shared_and_what_is_copied",
    "always gets arrays": "gym_adapters/arrayferry_gym/test_actions.py::test_sparse_observations_and_actions_become_dense",
    "written once": "gym_adapters/arrayferry_envs/test_needed_library.py::test_every_library_is_served",
    "read once": "core/arrayferry/test_unknown.py::test_a_source_is_read_once",
    "called once, for all": "gym_adapters/arrayferry_envs/test_sb3.py::test_methods_and_attributes_of_a_batch",
    "computes each part of the arrays once": "core/arrayferry_streams/test_stream.py::test_each_chunk_is_computed_once",
    "once for each structure": "core/arrayferry_translate/test_translate.py::test_it_is_traced_once_for_each_form",
    "once until": "core/arrayferry/test_discovery.py::test_a_broken_plugin_is_named_once_and_affects_no_other",
    "reports the restart once": "gym_adapters/arrayferry_cluster/test_collector_losses.py::test_each_segment_comes_once_and_each_loss_is_told_once",
    "compiles once for each": "gym_adapters/arrayferry_envs/test_rollouts.py::test_policy_and_step_are_traced_once",
    "counts once": "gym_adapters/arrayferry_gym/test_kernels.py::test_each_observation_counts_once",
}


def public(module: str) -> list[str]:
    """Return the public names of a module, but other modules, and what is another project's."""
    if module in ABSENT:
        (text,) = [path.read_text() for path in (ROOT / "gym_adapters").rglob(ABSENT[module])]
        return [
            f"{module}.{name}"
            for name in ast.literal_eval(text.partition("__all__ = ")[2].partition("\n")[0])
        ]
    names = importlib.import_module(module).__all__
    core = set() if module == "arrayferry" else {*arrayferry.__all__}  # where users find it
    return [f"{module}.{n}" for n in names if n not in core and not _is_elsewhere(module, n)]


def _is_elsewhere(module: str, name: str) -> bool:
    value = getattr(importlib.import_module(module), name)
    return inspect.ismodule(value) or str(getattr(value, "__module__", "")).startswith("gymnasium")


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    assert [name for name in public(module) if name not in SHOWN] == []


def test_each_public_name_is_in_the_changelog():
    """What 0.1.0 brings is summed up there. What comes later is named."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    names = {name for module in MODULES for name in public(module)}
    summed_up = set((ROOT / "tests/docs/summed_up.txt").read_text().split())
    words = set(re.findall(r"\w+", changelog))
    missing = {name for name in names - summed_up if name.split(".")[-1] not in words}
    assert missing == set(), "name them in CHANGELOG.md"
    assert summed_up - names == set(), "these are gone: take them out of summed_up.txt"


def test_nothing_is_shown_twice():
    assert sorted(set(SHOWN)) == sorted(SHOWN)


def documented():
    """Yield the name and the docstring of all that is shown, and of its members."""
    for name in SHOWN:
        if name.rpartition(".")[0] not in ABSENT:
            shown = pydoc.locate(name)
            yield name, inspect.getdoc(shown) or ""
            for cls in getattr(shown, "__mro__", ()):
                for member, value in vars(cls).items():
                    ours = re.match("arrayferry", cls.__module__) and not re.match(
                        "_|test_", member
                    )
                    if ours and (inspect.isroutine(value) or isinstance(value, property)):
                        yield f"{name}.{member}", inspect.getdoc(value) or ""


def test_promises_have_a_test():
    pages = [path.read_text() for path in (ROOT / "docs/reference").glob("*.md")]
    text = "\n".join([*pages, *dict(documented()).values()])
    text = " ".join(re.sub(r"^ *(>>>|\.\.\.).*", "", text, flags=re.M).split())
    for promise, test in PROMISES.items():
        assert promise in text
        text = text.replace(promise, "")
        path, _, name = test.partition("::")
        assert re.search(rf"^(def|class) {name}\b", (ROOT / "tests" / path).read_text(), re.M)
    assert [text[max(0, at.start() - 60) : at.end() + 30] for at in PROMISE.finditer(text)] == []


def test_errors_of_the_reference_have_a_test():
    """A file of tests has the name of the error, and of what raises it."""
    paths = {*(ROOT / "tests").rglob("test_*.py")} - {Path(__file__)}
    words = [set(re.findall(r"\w+", path.read_text())) for path in paths]
    exact = {"ArrayFerryError": "OptionError", "DistributedEnvError": "EnvFailedError"}
    for name, text in documented():
        raised = text.partition("\nRaises:\n")[2].partition("\n\n")[0]
        for error in re.findall(r"^    (?:\w+\.)*(\w+): ", raised, re.M):
            wanted = {"raises", name.rpartition(".")[2], exact.get(error, error)}
            assert any(wanted <= each for each in words), f"{name}: {error}"


def test_pictures_are_those_of_the_code():
    drawn = runpy.run_path(str(ROOT / "tools/pictures.py"))["PICTURES"]
    for name, draw in drawn.items():
        assert (ROOT / "docs/assets" / name).read_text() == draw(), "run `python tools/pictures.py`"


def test_the_table_of_dtypes_is_what_is_converted():
    table = runpy.run_path(str(ROOT / "tools/dtypes.py"))["table"]()
    assert table in (ROOT / "docs/reference/types.md").read_text(), "paste `python tools/dtypes.py`"
