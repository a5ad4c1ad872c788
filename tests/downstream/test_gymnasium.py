"""Gymnasium's own tests of its conversion wrappers, unaltered, against the adapters of this project.

The tests are not part of the installed package. They are taken from a checkout that GYMNASIUM_SOURCE
names, or else cloned from the repository that the package's metadata names. `gymnasium_plugin` lists where
the two differ on purpose.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUITES = (
    "tests/wrappers/test_array_conversion.py", "tests/wrappers/test_jax_to_numpy.py",
    "tests/wrappers/test_jax_to_torch.py", "tests/wrappers/test_numpy_to_torch.py",
    "tests/wrappers/vector/test_array_conversion.py", "tests/wrappers/test_record_constructor_args.py",
)  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("GYMNASIUM_SOURCE")
    if given:
        return Path(given)
    metadata = importlib.metadata.metadata("gymnasium")
    urls = dict(entry.split(", ", 1) for entry in metadata.get_all("Project-URL") or ())
    place = tmp_path_factory.mktemp("gymnasium") / "source"
    command = ["git", "clone", "--quiet", "--depth", "1", "--branch", f"v{metadata['Version']}"]
    try:
        subprocess.run(
            [*command, urls["Repository"], str(place)], check=True, capture_output=True, timeout=120,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )  # fmt: skip
    except (KeyError, OSError, subprocess.SubprocessError) as error:
        pytest.skip(
            f"Gymnasium's tests cannot be fetched here ({type(error).__name__}); set GYMNASIUM_SOURCE"
        )
    return place


def run(checkout: Path, replaced: str, suites: list[str]) -> int:
    """Run suites of the checkout with what is ours. Return how many tests passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "gymnasium_plugin", *suites],
        cwd=checkout,
        env={
            **os.environ,
            "REPLACED": replaced,
            "SDL_VIDEODRIVER": "dummy",
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    return int(re.search(r"(\d+) passed", done.stdout)[1])


def test_gymnasiums_own_tests_of_its_adapters(checkout):
    suites = [suite for suite in SUITES if (checkout / suite).exists()]
    assert len(suites) >= 5
    assert run(checkout, "adapters", suites) >= 432


def test_gymnasiums_own_tests_of_environments(checkout):
    suites = [str(path) for path in (checkout / "tests/wrappers/vector").glob("test_*.py")]
    suites = [suite for suite in suites if "array_conversion" not in suite]  # those are above
    suites += ["tests/vector", "tests/envs/test_envs.py", "tests/envs/registration/test_make.py"]
    suites += ["tests/envs/registration/test_make_vec.py"]
    assert run(checkout, "environments", suites) > 1_500


def test_gymnasiums_own_tests_of_its_wrappers(checkout):
    ours = "clip_action clip_reward delay dtype filter flatten frame_stack gray_scale lambda normalize record_episode"
    ours = f"{ours} rescale reshape sticky time_aware resize dict_info transform vector_wrappers vectorize"
    paths = [*(checkout / "tests/wrappers").glob("**/test_*.py")]
    suites = [str(path) for path in paths if any(name in path.name for name in ours.split())]
    assert len(suites) >= 26
    assert run(checkout, "wrappers", suites) >= 200
