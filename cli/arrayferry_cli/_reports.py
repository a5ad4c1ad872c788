"""What the commands find out. Tasks of `_child` send some of these, and `--json` prints others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LibraryStatus = Literal["usable", "not usable", "not installed"]
PluginStatus = Literal["loaded", "not loaded", "left out", "broken"]
Outcome = Literal["passed", "skipped", "failed", "crashed", "not run"]


# Messages of all tasks.

END = "end"
"""The last message of a task that has done its work."""


@dataclass
class Failed:
    """A task raised an error."""

    reason: str


@dataclass
class Unanswerable:
    """Why a question has no answer.

    Attributes:
        error: the reason, and what to do.
        usage: whether a name is wrong.
    """

    error: str
    usage: bool


@dataclass
class Doing:
    """What a task does next, and what to do if that fails."""

    step: str
    remedy: str | None


# Plugins and libraries.


@dataclass
class Plugin:
    """A plugin, and the names of what it has.

    Attributes:
        origin: "entry point" or "registered".
        problem: what is wrong with it, None if nothing is.
        remedy: what to do about that.
    """

    name: str
    module: str | None
    distribution: str | None
    version: str | None
    origin: str = "entry point"
    status: PluginStatus = "not loaded"
    backends: list[str] = field(default_factory=list)
    converters: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    problem: str | None = None
    remedy: str | None = None

    @property
    def faulty(self) -> bool:
        """Whether it cannot be used."""
        return self.status in ("broken", "left out")


@dataclass
class Part:
    """A backend or source of a plugin.

    Attributes:
        names: what else it may be called.
        package: the module to import.
        plugin: the plugin that has it, None if it is not known.
        remedy: how to install the library, None if it is installed.
    """

    name: str
    names: list[str]
    package: str
    plugin: str | None
    installed: bool
    remedy: str | None


@dataclass
class Survey:
    """All plugins, their backends and sources, and warnings that belong to none."""

    plugins: list[Plugin]
    problems: list[str]
    backends: list[Part]
    sources: list[Part]


@dataclass
class Facts:
    """What was seen of a library when it was imported.

    Attributes:
        float64: whether arrays can have that dtype now.
        problem: why it cannot be used, None if it can.
        remedy: what to do about that.
    """

    devices: list[str] = field(default_factory=list)
    float64: bool | None = None
    version: str | None = None
    problem: str | None = None
    remedy: str | None = None


@dataclass
class Library:
    """A library that has arrays or that arrays are read from, as `arrayferry doctor` reports it."""

    name: str
    kind: Literal["backend", "source"]
    package: str
    plugin: str | None
    status: LibraryStatus
    distribution: str | None
    version: str | None
    devices: list[str]
    float64: bool | None
    problem: str | None
    remedy: str | None


@dataclass
class DoctorReport:
    """What `arrayferry doctor` prints."""

    schema: int
    ok: bool
    python: str
    implementation: str
    platform: str
    versions: dict[str, str | None]
    settings: dict[str, str]
    libraries: list[Library]
    plugins: list[Plugin]
    problems: list[str]


# Routes.


@dataclass
class PluginOrigin:
    """The distribution that a converter comes from."""

    name: str | None
    module: str
    distribution: str | None
    version: str | None


@dataclass
class RouteStep:
    """A step of a route, and what does it."""

    source: str
    source_device: str
    target: str
    target_device: str
    cost: str
    via: str
    converter: str | None
    plugin: PluginOrigin | None
    methods: list[str]


@dataclass
class RouteReport:
    """How arrays travel from one library to another."""

    source: str
    target: str
    source_device: str
    target_device: str
    copies: bool
    transfers: int
    computes: bool
    steps: list[RouteStep]
    text: str


@dataclass
class Unusable:
    """A library or plugin without routes, and why."""

    name: str
    installed: bool
    problem: str


@dataclass
class RoutesReport:
    """What `arrayferry routes` prints."""

    schema: int
    routes: list[RouteReport]
    unusable: list[Unusable]


# The contract kit.


@dataclass
class Tests:
    """The names of tests, and what they check."""

    purposes: dict[str, str]


@dataclass
class Begun:
    """A test begins."""

    test: str


@dataclass
class Essential:
    """Arrays are converted in both directions, which all other tests need."""


@dataclass
class TestReport:
    """The outcome of a test."""

    name: str
    checks: str
    outcome: Outcome
    message: str


@dataclass
class MadeBy:
    """Which functions made arrays, and of which dtypes."""

    ways: dict[str, list[str]]


@dataclass
class CheckedBackend:
    """The tests of a backend, or an error that prevents them."""

    backend: str | None
    plugin: str | None
    tests: list[TestReport] = field(default_factory=list)
    error: str | None = None
    made_by: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class CheckReport:
    """What `arrayferry check` prints."""

    schema: int
    ok: bool
    package: str
    checks: list[CheckedBackend]


# check-env


@dataclass
class EnvProblem:
    """Something that is wrong in an environment.

    Attributes:
        method: the method that it was found in.
        place: its line, as "file:line".
        what: what is wrong.
        remedy: what to write instead.
        libraries: those in which it was seen.
    """

    method: str
    place: str
    what: str
    remedy: str
    libraries: list[str]


@dataclass
class EnvReport:
    """What was found out about an environment.

    Attributes:
        schema: the version of this form.
        ok: whether nothing is wrong.
        env: the name that was asked for.
        problems: what is wrong.
        warnings: what is unusual, but may be meant.
    """

    schema: int
    ok: bool
    env: str
    problems: list[EnvProblem]
    warnings: list[str]
