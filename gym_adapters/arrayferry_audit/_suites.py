"""`SuiteContract`, the tests of a suite and of a sample of its environments."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry.typing import Target
from arrayferry_envs import (
    Suite,
    UnknownEnvError,
    check_functional_env,
    make,
    make_functional,
    make_vec,
    suites,
)
from arrayferry_gym.extending import RULES

from ._audit import Audit

SAMPLE = 3
"""The number of environments to test if `sample` is None."""


class SuiteContract:
    """The tests that a suite must pass. Name your subclass `Test...`, and run pytest.

    The tests check the attributes of the suite, such as `gives`. They also check, for each environment of a sample:

    - its functions by `check_functional_env`, if the environment is functional;
    - its spaces, seeds and copies;
    - vector environments by `check_vector_env`, in each autoreset mode that the environment supports;
    - results in two libraries;
    - an environment from `make`.

    The tests are skipped if the package of the suite is not installed.

    Attributes:
        suite: the name of the suite.
        sample: the names of the environments to test. None selects three names at equal distances in the suite's list.
        options: options of `make` and `make_vec` for all environments.
        steps: the number of steps of each run of the audit. Several episodes should end in a run. If they do not,
            set a step limit, such as `options = {"max_episode_steps": 20}`.
        libraries: the two libraries in which environments are tested.

    Examples:
        >>> from arrayferry_audit import SuiteContract
        >>> class TestMine(SuiteContract):
        ...     suite = "arrayferry"
        ...     options = {"max_episode_steps": 20}
        >>> TestMine().test_it_states_what_it_has()
    """

    suite: str
    sample: Sequence[str] | None = None
    options: dict[str, Any] = {}
    steps: int = 60
    libraries: tuple[Target, Target] = ("numpy", "torch")

    @property
    def stated(self) -> Suite:
        """The suite. The test is skipped if the package of the suite is not installed."""
        import pytest

        suite: Suite = suites()[self.suite]
        if not suite.installed:
            pytest.skip(f"{suite.package} is not installed: {suite.install_line}")
        return suite

    @property
    def ids(self) -> list[str]:
        """The ids of the environments to test."""
        listed = self.stated.listed() if self.sample is None else []
        names = self.sample or listed[:: max(1, len(listed) // SAMPLE)][:SAMPLE]
        return [f"{self.suite}/{name}" for name in names]

    def _made(self, env_id: str, mode: Any = AutoresetMode.SAME_STEP, xp: Target = "numpy") -> Any:
        return make_vec(env_id, 2, xp=xp, autoreset_mode=mode, **self.options)

    def _modes(self, env_id: str) -> list[AutoresetMode]:
        """Return the autoreset modes in which an environment can be made without an `OptionError`."""
        modes = []
        for mode in RULES:
            with suppress(af.OptionError):
                self._made(env_id, mode).close()
                modes.append(mode)
        return modes

    def test_it_states_what_it_has(self) -> None:
        """The name of the suite, `gives`, `seeds` and the list of ids are as `Suite` requires."""
        suite, suite_text = self.stated, f"the suite {self.suite!r}"
        assert "/" not in suite.name, f"{suite_text} has a slash in its name"
        suite.needed()  # raises an error if `gives` or `package` is wrong
        assert suite.seeds in ("reset", "construction"), (
            f"seeds of {suite_text} must be 'reset' or 'construction', not {suite.seeds!r}"
        )
        listed_ids = suite.listed()
        assert listed_ids, f"{suite_text} lists no ids"
        assert len(listed_ids) == len({*listed_ids}), f"{suite_text} lists an id twice"
        for name in self.sample or ():
            assert name in listed_ids, f"{name} is not in the list of {suite_text}"

    def test_the_types_of_environments_exist(self) -> None:
        """If the suite has `env_types`, at least one of the classes that `env_types` names exists."""
        from pydoc import locate

        types = self.stated.env_types
        assert not types or any(map(locate, types)), (
            f"none of the classes in env_types exists: {list(types)}"
        )

    def test_another_name_is_told(self) -> None:
        """An unknown name raises an error that suggests the nearest name."""
        import pytest

        env_id = self.ids[0]
        try:
            made_envs = make_vec(f"{env_id}x-", 2)
        except UnknownEnvError as error:
            raised_error = error
        else:
            pytest.fail(
                f"make_vec('{env_id}x-') returned {made_envs!r:.200}, but load must raise an error for an unknown name"
            )
        assert env_id in raised_error.nearest, str(raised_error)

    def test_environments_are_right(self) -> None:
        """`check_functional_env` and the audit of vector environments find no problem."""
        problems = []
        for env_id in self.ids:
            is_functional = self.stated.gives == "functional"
            if is_functional:
                env_problems = check_functional_env(make_functional(env_id))
                problems += [f"{env_id}: {problem}" for problem in env_problems]
            # audit functional environments in one mode: they share one engine, whose modes have
            # tests of their own, and each mode of each environment would be compiled again
            for mode in [AutoresetMode.SAME_STEP] if is_functional else self._modes(env_id):
                make_batch = partial(self._made, env_id, mode)
                with warnings.catch_warnings(action="ignore"):
                    audit = Audit(make_batch() if is_functional else make_batch, self.steps, 0)
                problems += [f"{env_id}, {mode.name}: {problem}" for problem in audit.problems]
        assert not problems, "\n".join(["", *problems])

    def test_seeds_spaces_and_libraries(self) -> None:
        """In each library, equal seeds result in equal episodes. Spaces contain the observations."""
        for env_id in self.ids:
            for xp in self.libraries:
                runs = [self._run(env_id, xp) for _ in range(2)]
                assert _same(*runs), f"{env_id} in {xp}: a seed gives two different runs"
            env = make(env_id, xp=self.libraries[0], **self.options)
            observation, _ = env.reset(seed=1)
            assert env.observation_space.contains(observation), (
                f"{env_id}: the observation of make() is outside of its space: {observation!r:.200}"
            )
            env.step(env.action_space.sample())
            env.close()

    def _run(self, env_id: str, xp: Target) -> list[Any]:
        """Return the results of a reset and ten steps, except infos. Check that the space contains the observations."""
        envs = self._made(env_id, xp=xp)
        results = [envs.reset(seed=3)[0]]
        envs.action_space.seed(4)
        for _ in range(10):
            assert envs.observation_space.contains(results[-1]), (
                f"{env_id}: an observation is outside of its space: {results[-1]!r:.200}"
            )
            observations, rewards, *flags, _ = envs.step(envs.action_space.sample())
            results += [(rewards, *flags), observations]
        envs.close()
        return results

    def test_copies(self) -> None:
        """An unpickled copy continues as the original does. If `pickles` is False, pickling raises an error."""
        import pytest

        for env_id in self.ids:
            envs = self._made(env_id)
            envs.reset(seed=5)
            actions = envs.action_space.sample()
            envs.step(actions)
            if not self.stated.pickles:
                with pytest.raises(Exception, match=r"\w"):
                    pickle.dumps(envs)
                continue
            copied_envs = pickle.loads(pickle.dumps(envs))
            assert _same(envs.step(actions)[:4], copied_envs.step(actions)[:4]), (
                f"{env_id}: an unpickled copy returns other results. Set pickles = False if copies cannot continue"
            )


def _same(one: Any, two: Any) -> bool:
    one, two = (af.flatten(af.convert(x, "numpy"))[0] for x in (one, two))
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(one, two, strict=True))
