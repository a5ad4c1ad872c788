"""Any environment of any suite by its id, and suites that plugins bring."""

import copy
import functools
import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry_audit import SuiteContract, check_vector_env
from arrayferry_envs import (
    CartPole,
    FunctionalVectorEnv,
    Pendulum,
    Suite,
    UnknownEnvError,
    from_env,
    make,
    make_functional,
    make_vec,
    suites,
)

MODES = list(AutoresetMode)


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ["arrayferry/CartPole-v0", "gymnasium/CartPole-v1"])
def test_one_line_for_each_suite(env_id, mode, xp):
    envs = make_vec(env_id, 3, xp=xp, autoreset_mode=mode, max_episode_steps=4)
    assert isinstance(envs, VectorEnv)
    assert envs.metadata["autoreset_mode"] is mode
    observations, _ = envs.reset(seed=1)
    for step in range(1, 5):
        observations, rewards, terminated, truncated, infos = envs.step([0, 1, 0])
        assert {af.backend_of(x).name for x in (observations, rewards, terminated)} == {xp}
        assert truncated.tolist() == [step == 4] * 3
        assert ("final_obs" in infos) == (mode is AutoresetMode.SAME_STEP)
    if mode is AutoresetMode.SAME_STEP:
        assert infos["_final_obs"].tolist() == [True] * 3
        assert (np.abs(af.convert(infos["final_obs"], "numpy")) > 0.05).any(1).all()
        assert (np.abs(af.convert(observations, "numpy")) <= 0.05).all()
    text = repr(envs)
    for each in (
        env_id,
        "num_envs=3",
        f"xp={xp!r}",
        f"autoreset_mode={mode.value!r}",
        "max_episode_steps=4",
    ):
        assert each in text
    envs.close()
    env = make(env_id, xp=xp, max_episode_steps=2)
    assert env_id in repr(env)
    observation, _ = env.reset(seed=1)
    assert af.backend_of(observation).name == xp
    env.step(1)
    assert env.step(0)[3] is True


def test_limits():
    for env_id, usual in (("arrayferry/CartPole-v0", 500), ("gymnasium/CartPole-v1", 500)):
        assert f"max_episode_steps={usual}" in repr(make_vec(env_id, 2))
        assert "max_episode_steps=None" in repr(make_vec(env_id, 2, max_episode_steps=None))
        with pytest.raises(af.OptionError, match="max_episode_steps=0 is not valid"):
            make_vec(env_id, 2, max_episode_steps=0)


def test_options_go_where_they_belong():
    envs = make_vec("arrayferry/CartPole-v0", 2, params={"gravity": 1.6}, check_actions="strict")
    assert envs.params.gravity == 1.6
    envs.reset()
    with pytest.raises(af.ConversionError):
        envs.step([0, 5])
    env = make(
        "gymnasium/CartPole-v1", render_mode="rgb_array", xp="torch", sutton_barto_reward=True
    )
    env.reset()
    assert env.render().shape == (400, 600, 3)
    assert env.unwrapped._sutton_barto_reward
    with pytest.raises(TypeError, match="wrong_option") as raised:
        make("gymnasium/CartPole-v1", wrong_option=1)
    note = "This happened when 'gymnasium/CartPole-v1' was made with wrong_option."
    assert raised.value.__notes__ == [note]
    for function in (make, make_vec, make_functional):
        with pytest.raises(
            af.OptionError,
            match=r"wrong_option was .* suite 'arrayferry' has no such option\. Leave",
        ):
            function("arrayferry/CartPole-v0", wrong_option=1)
    with pytest.raises(af.UnknownBackendError):
        make_vec("gymnasium/CartPole-v1", 2, xp="nonsense")


def test_functional_environments():
    assert isinstance(make_functional("arrayferry/Pendulum-v0"), Pendulum)
    with pytest.raises(af.OptionError, match="is not a functional environment, but a TimeLimit"):
        make_functional("gymnasium/CartPole-v1")
    with pytest.raises(af.OptionError, match=r"has no option xp\. Pass it to make_vec"):
        make_functional("arrayferry/CartPole-v0", xp="torch")
    for option in ("num_envs", "autoreset_mode"):
        with pytest.raises(af.OptionError, match=rf"has no option {option}\. Use make_vec"):
            make("arrayferry/CartPole-v0", **{option: 3})


def test_an_option_of_an_environment_may_have_any_name(monkeypatch):
    asked = []
    monkeypatch.setattr(gym.envs.registration, "registry", gym.registry.copy())
    gym.register("Asked-v0", lambda num_envs: asked.append(num_envs) or Shut())
    make("gymnasium/Asked-v0", num_envs=3).close()
    assert asked == [3]


@pytest.mark.parametrize(("env_id", "nearest", "words"), [
    ("gymnasium/CartPole-v9", "gymnasium/CartPole-v1", "does not list it"),
    ("arrayferry/CartPol-v0", "arrayferry/CartPole-v0", "does not list it"),
    ("gymnasum/CartPole-v1", "gymnasium/CartPole-v1", "no suite 'gymnasum'"),
    ("CartPole-v1", "gymnasium/CartPole-v1", "names no suite"),
    ("nothing/like-this", None, "The suites are .*gymnasium"),
    ("arrayferry/", None, r"names a suite, but none of its environments\. Add a slash"),
    ("arrayferry", None, "names a suite, but none of its environments"),
])  # fmt: skip
def test_wrong_ids(env_id, nearest, words):
    for function in (make, make_vec, make_functional):
        with pytest.raises(UnknownEnvError, match=words) as raised:
            function(env_id)
        assert raised.value.nearest == (() if nearest is None else (nearest,))
        assert isinstance(raised.value, LookupError)
        assert nearest is None or f"Did you mean {nearest!r}?" in str(raised.value)
    with pytest.raises(UnknownEnvError):
        suites(env_id.partition("/")[0] + "x")


def test_what_is_not_installed_is_told():
    with pytest.raises(af.BackendUnavailableError, match="Run: pip install playground"):
        make_vec("playground/CartpoleBalance", 2)
    with pytest.raises(TypeError, match="the id of an environment is needed"):
        make_vec(CartPole, 2)


def test_listing_imports_nothing(run_python):
    out = run_python("""
import sys
import arrayferry_envs
found = arrayferry_envs.suites()
assert repr(found["gymnax"]) == "<Suite gymnax not installed: pip install gymnax six>", found["gymnax"]
assert found["ale"].version and found["gymnasium"].version
heavy = {"jax", "torch", "ale_py", "gymnax", "pgx", "envpool", "brax"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
assert not [m for m in sys.modules if m.startswith("arrayferry_suites._") and m != "arrayferry_suites._suite"]
envs = arrayferry_envs.make_vec("gymnasium/CartPole-v1", 2)
envs.reset(), envs.step([0, 1])
assert not {"jax", "torch", "ale_py"} & sys.modules.keys()
print(sorted(found))
""")
    assert "navix" in out


def test_without_the_plugin(run_python):
    run_python("""
import arrayferry_envs
try:
    arrayferry_envs.make_vec("gymnax/CartPole-v1")
except arrayferry_envs.UnknownEnvError as error:
    assert "ARRAYFERRY_PLUGINS leaves out the plugin 'suites'" in str(error), error
else:
    raise AssertionError
""", env={"ARRAYFERRY_PLUGINS": "numpy,jax"})  # fmt: skip


def test_by_functions_of_gymnasium():
    envs = gym.make_vec(
        "arrayferry_envs:arrayferry/Suite-v0", num_envs=3, name="arrayferry/CartPole-v0", xp="torch"
    )
    assert isinstance(envs, FunctionalVectorEnv)
    assert af.backend_of(envs.reset(seed=1)[0]).name == "torch"
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    for mode in ("SameStep", AutoresetMode.NEXT_STEP):
        for env_id in ("arrayferry/CartPole-v0", "gymnasium/CartPole-v1"):
            envs = gym.make_vec(
                "arrayferry_envs:arrayferry/Suite-v0", num_envs=3, name=env_id, autoreset_mode=mode
            )
            assert envs.metadata["autoreset_mode"] is AutoresetMode(mode)
    env = gym.make("arrayferry_envs:arrayferry/Suite-v0", name="gymnasium/CartPole-v1", xp="jax")
    assert af.backend_of(env.reset(seed=1)[0]).name == "jax"


def test_games_of_ale():
    pytest.importorskip("ale_py")
    assert "ale/joust" not in suites("ale")  # ALE would end the process
    for function in (make, make_vec):
        with pytest.raises(UnknownEnvError, match="joust of ALE is for two players"):
            function("ale/joust")
    code = "from arrayferry_envs import make_vec; make_vec('gymnasium/Adventure-v4', 2)"
    subprocess.run([sys.executable, "-c", code], check=True)  # where nothing has imported ale_py


class Shut(gym.Env):
    """An environment of a project that has its own kinds."""

    observation_space, action_space = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.random(1, np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.x = self.x + 1
        return self.x.copy(), float(self.x[0]), bool(self.x[0] > 7), False, {}


class Shutter:
    """What is no environment of Gymnasium, and is adapted."""


class Functional(Suite):
    name, package, env_types = "shutters", "gymnasium", (f"{__name__}.Shutter",)

    def ids(self):
        return ["cart", "shutter", "broken"]

    def load(self, name, **options):
        if name == "broken":
            raise RuntimeError("hinge")
        return {"cart": CartPole, "shutter": Shutter()}[name]

    def adapt(self, env, **options):
        return Pendulum(**options)


class Single(Suite):
    name, package, gives = "shut", "gymnasium", "env"

    def ids(self):
        return ["Shut"]

    def load(self, name, **options):
        return gym.wrappers.TimeLimit(
            {"Shut": Shut}[name](), options.get("max_episode_steps") or 50
        )


class Batch(Suite):
    name, package, gives = "batch", "gymnasium", "vector"

    def ids(self):
        return ["Shut"]

    def load(self, name, num_envs, *, autoreset_mode, max_episode_steps=50):
        make = {"Shut": lambda: gym.wrappers.TimeLimit(Shut(), max_episode_steps)}[name]
        return gym.vector.SyncVectorEnv([make] * num_envs, autoreset_mode=autoreset_mode)


def takes_speed(load):
    """Add an option to a method, as decorators do."""

    @functools.wraps(load)
    def faster(self, name, *args, boost=1, **options):
        return load(self, name, *args, **options)

    return faster


class Boosted(Suite):
    name, package = "boosted", "gymnasium"

    def ids(self):
        return ["plain"]

    @takes_speed
    def load(self, name, size=1):
        return Pendulum


class Mistaken(Suite):
    name, package = "mistaken", "gymnasium"

    def ids(self):
        return ["Shut"]

    def load(self, name):
        return Shut()


class Strict(Suite):
    name, package, env_types = "strict", "gymnasium", (f"{__name__}.Bolt",)

    def ids(self):
        return ["plain", "inner"]

    def load(self, name, size=1, *, speed=2):
        if name == "inner":
            return CartPole(size)  # its own mistake
        return {"plain": Pendulum}[name]

    def adapt(self, env):
        return Pendulum()


class Bolt:
    """What is adapted without options."""


class Missing(Suite):
    name, package, install = "missing", "no_such_package", "pip install from-somewhere"


class Plugin:
    def __init__(self, *made):
        self.made = made

    @af.hookimpl(optionalhook=True)
    def arrayferry_suites(self):
        return self.made


@pytest.fixture
def ours():
    manager, plugin = (
        af.registry.manager,
        Plugin(Functional(), Single(), Batch(), Strict(), Boosted(), Missing(), Mistaken()),
    )
    manager.register(plugin, "shutters")
    yield
    manager.unregister(plugin)


@pytest.mark.usefixtures("ours")
def test_suites_of_others():
    assert {"shutters", "shut", "batch", "missing"} <= {*suites()}
    assert suites("shutters") == ["shutters/broken", "shutters/cart", "shutters/shutter"]
    assert isinstance(make_functional("shutters/cart"), CartPole)
    assert isinstance(make_functional("shutters/shutter"), Pendulum)
    assert isinstance(from_env(Shutter()), Pendulum)
    with pytest.raises(RuntimeError, match="hinge") as raised:
        make_vec("shutters/broken")
    assert raised.value.__notes__ == ["This happened when 'shutters/broken' was made."]
    with pytest.raises(af.BackendUnavailableError, match="Run: pip install from-somewhere"):
        suites("missing")
    for env_id in ("shut/Shut", "batch/Shut"):
        for mode in MODES:
            made = lambda mode=mode, env_id=env_id: make_vec(env_id, 3, autoreset_mode=mode)  # noqa: E731
            assert check_vector_env(made, steps=60) == []
        env = make(env_id, xp="torch", max_episode_steps=5)
        observation, _ = env.reset(seed=3)
        assert observation.shape == (1,)
        for _ in range(5):
            observation, reward, terminated, truncated, _ = env.step(1)
        assert (type(reward), terminated, truncated) == (float, False, True)
        assert 5 < observation < 6
        assert env.reset()[0] < 1
    again = pickle.loads(pickle.dumps(make_vec("shutters/cart", 2)))
    assert "shutters/cart" in repr(again)


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize("env_id", ["shut/Shut", "batch/Shut"])
def test_a_limit_of_a_suite_is_shown(env_id):
    assert "max_episode_steps=50" in repr(make(env_id))
    assert "max_episode_steps=50" in repr(make_vec(env_id, 2))
    assert "max_episode_steps=7" in repr(make_vec(env_id, 2, max_episode_steps=7))


@pytest.mark.usefixtures("ours")
def test_a_suite_that_does_not_state_what_it_gives(monkeypatch):
    with pytest.raises(
        af.PluginError, match="returned a Shut for 'Shut', which is not a FunctionalEnv"
    ):
        make_vec("mistaken/Shut", 2)
    monkeypatch.setattr(Mistaken, "gives", "functoinal")
    with pytest.raises(af.PluginError, match=r"gives='functoinal'\. Set `gives` to one of"):
        make_vec("mistaken/Shut", 2)


def test_an_option_of_an_environment_of_a_module_is_told():
    with pytest.raises(TypeError, match="translate") as raised:
        make_vec("gymnasium/gymnasium:CartPole-v1", 2, translate=True)
    assert "translate" in raised.value.__notes__[-1]


@pytest.mark.usefixtures("ours")
def test_options_that_a_suite_does_not_have():
    for function in (make, make_vec, make_functional):
        assert function("strict/plain", size=3, speed=4) is not None
        words = r"weight was passed, but the suite 'strict' has no such option\. The options are size, speed\."
        with pytest.raises(af.OptionError, match=words) as raised:
            function("strict/plain", speed=4, weight=3)
        assert raised.value.__notes__[0].endswith("was made with speed, weight.")
        with pytest.raises(UnknownEnvError, match="weight was passed"):
            function("strict/plein", weight=3)
        with pytest.raises(TypeError, match="takes exactly one argument"):
            function("strict/inner", size=3)
        assert function("boosted/plain", size=3, boost=2) is not None
    with pytest.raises(
        af.OptionError, match=r"window was .* 'batch' has no such option\. The options are auto"
    ):
        make_vec("batch/Shut", 2, window=3)
    with pytest.raises(TypeError, match="takes exactly one argument"):
        from_env(Shutter(), window=3)
    for option in ("num_envs", "params"):
        with pytest.raises(
            af.OptionError, match=rf"{option} was passed, but \S*Bolt has no such option"
        ):
            from_env(Bolt(), **{option: 3})
    assert isinstance(from_env(Bolt()), Pendulum)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ["arrayferry/CartPole-v0", "gymnasium/CartPole-v1"])
def test_seeds_name_levels(env_id, mode):
    options = {"seeds": range(0, 30, 3), "max_episode_steps": 2, "autoreset_mode": mode}
    levels = {}
    for count, xp in ((2, "numpy"), (5, "torch"), (1, "numpy")):
        envs = make_vec(env_id, count, xp=xp, **options)
        observations, infos = envs.reset(seed=count)
        assert envs.reset(seed=count)[1]["seed"].tolist() == infos["seed"].tolist()
        for _ in range(9):
            seeds = infos["seed"].tolist()
            for seed, row in zip(seeds, observations.tolist(), strict=True):
                assert levels.setdefault(seed, row) == row
            for _ in range(3 if mode is AutoresetMode.NEXT_STEP else 2):
                seeds = infos["seed"].tolist()
                observations, *_, infos = envs.step([0] * count)
                assert infos["_seed"].tolist() == [True] * count
            if mode is AutoresetMode.SAME_STEP:
                assert infos["final_info"]["seed"].tolist() == seeds
            if mode is AutoresetMode.DISABLED:
                assert infos["seed"].tolist() == seeds
                observations, infos = envs.reset(options={"reset_mask": [True] * count})
        again = pickle.loads(pickle.dumps(envs)) if env_id[:3] == "arr" else copy.deepcopy(envs)
        assert again.reset()[1]["seed"].tolist() == envs.reset()[1]["seed"].tolist()
    assert set(levels) <= set(range(0, 30, 3))
    assert len(levels) > 5
    env = make(env_id, seeds=[9])
    assert env.reset(seed=1)[0].tolist() == levels[9] == env.reset()[0].tolist()
    assert env.step(0)[4]["seed"] == 9


def test_levels_of_gymnasium_are_those_of_its_seeds():
    first, _ = gym.make("CartPole-v1").reset(seed=9)
    env = make("gymnasium/CartPole-v1", seeds=[9])
    assert env.reset(seed=3)[0].tolist() == first.tolist()
    registered = gym.make_vec(
        "arrayferry_envs:arrayferry/Suite-v0", num_envs=2, name="gymnasium/CartPole-v1", seeds=[9]
    )
    assert registered.reset(seed=3)[0][1].tolist() == first.tolist()


@pytest.mark.usefixtures("ours")
def test_seeds_that_are_refused():
    for env_id in ("arrayferry/CartPole-v0", "gymnasium/CartPole-v1"):
        for seeds in ([], range(-1, 3), [1.5]):
            with pytest.raises(af.OptionError, match="Pass one or more integers from 0 to"):
                make_vec(env_id, 2, seeds=seeds)
    with pytest.raises(af.OptionError, match="is not valid"):
        make_functional("arrayferry/CartPole-v0", seeds=[])
    assert make_functional("arrayferry/CartPole-v0", seeds=[4]).make().reset()[1]["seed"] == 4
    for function in (make, make_vec):
        with pytest.raises(
            af.OptionError, match="the suite 'batch' resets its environments itself"
        ):
            function("batch/Shut", seeds=[4])


@pytest.mark.usefixtures("ours")
def test_a_batch_of_one_waits_for_its_reset():
    env = make("batch/Shut", max_episode_steps=1)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    env.reset(seed=1)
    env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    following = env.reset()[0]
    assert following != env.reset(seed=1)[0]


@pytest.mark.usefixtures("ours")
def test_infos_of_a_batch_of_one_are_those_of_its_environment(monkeypatch):
    told = {
        "flag": np.bool_(True), "text": "a", "none": None, "list": [1, 2], "number": 1.5, "_own": 3,
        "rows": np.ones((2, 3)), "inner": {"flag": np.bool_(False), "text": "b"},
    }  # fmt: skip
    step = Shut.step
    monkeypatch.setattr(Shut, "step", lambda self, action: (*step(self, action)[:4], told))
    env = make("batch/Shut")
    env.reset(seed=1)
    infos = env.step(0)[4]
    assert infos.pop("rows").tolist() == np.ones((2, 3)).tolist()
    assert infos == {name: x for name, x in told.items() if name != "rows"}


@pytest.mark.parametrize(("change", "words"), [
    ({"package": ""}, "states no package"),
    ({"package": "no.such.package"}, "needs the package no.such.package"),
    ({"ids": lambda self: 1 / 0}, "ids\\(\\) of .* failed"),
    ({"env_types": None}, None),
])  # fmt: skip
def test_a_suite_that_errs_affects_no_other(change, words):
    manager, plugin = (
        af.registry.manager,
        Plugin(type("Errs", (Single,), {"name": "errs", **change})()),
    )
    manager.register(plugin, "errs")
    try:
        if words is not None:
            with pytest.raises(af.ArrayFerryError, match=words):
                suites("errs")
        assert "errs" in repr([*suites().values()])
        assert isinstance(make_functional("arrayferry/CartPole-v0"), CartPole)
        with pytest.raises(TypeError, match="from_env was given"):
            from_env(Shut())
    finally:
        manager.unregister(plugin)
    assert "errs" not in suites()


class TestReference(SuiteContract):
    suite, options = "arrayferry", {"max_episode_steps": 20}


class TestGymnasium(SuiteContract):
    suite, options = "gymnasium", {"max_episode_steps": 20}
    sample = ("CartPole-v1", "FrozenLake-v1")


def run(contract):
    """Return the names of the tests that fail."""
    failed = []
    for name in dir(contract):
        if name.startswith("test_"):
            try:
                getattr(contract(), name)()
            except (Exception, pytest.fail.Exception):
                failed.append(name)
    return failed


class Unseeded(Shut):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None)


class Wide(Shut):
    observation_space = spaces.Box(0, 1, (1,), np.float32)


class Fresh(Shut):
    def __getstate__(self):
        return {"x": np.ones(1, np.float32)}


@pytest.mark.parametrize(("env", "finds"), [
    (Shut, ()),
    (Unseeded, ("test_environments_are_right", "test_seeds_spaces_and_libraries")),
    (Wide, ("test_environments_are_right", "test_seeds_spaces_and_libraries")),
    (Fresh, ("test_copies",)),
])  # fmt: skip
def test_the_contract_finds_what_is_wrong(env, finds):
    class Wrong(Single):
        name = "wrong"

        def load(self, name, **options):
            return gym.wrappers.TimeLimit({"Shut": env}[name](), 20)

    class Contract(SuiteContract):
        suite = "wrong"

    manager, plugin = af.registry.manager, Plugin(Wrong())
    manager.register(plugin, "wrong")
    try:
        assert sorted(run(Contract)) == sorted(finds)
    finally:
        manager.unregister(plugin)


@pytest.mark.parametrize(("change", "finds"), [
    ({"ids": lambda self: []}, "test_it_states_what_it_has"),
    ({"ids": lambda self: ["Shut", "Shut"]}, "test_it_states_what_it_has"),
    ({"ids": lambda self: [3]}, "test_it_states_what_it_has"),
    ({"gives": "something"}, "test_it_states_what_it_has"),
    ({"env_types": ["no.such.Class"]}, "test_the_types_of_environments_exist"),
    ({"load": lambda self, name, **options: Shut()}, "test_another_name_is_told"),
])  # fmt: skip
def test_the_contract_finds_wrong_statements(change, finds):
    manager, plugin = (
        af.registry.manager,
        Plugin(type("Wrong", (Single,), {"name": "wrong", **change})()),
    )
    manager.register(plugin, "wrong")
    contract = type("Contract", (SuiteContract,), {"suite": "wrong", "sample": ["Shut"]})
    try:
        with pytest.raises((AssertionError, af.PluginError, pytest.fail.Exception)):
            getattr(contract(), finds)()
    finally:
        manager.unregister(plugin)
