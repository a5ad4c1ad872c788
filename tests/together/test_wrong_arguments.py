"""Wrong arguments of what runs agents and serves environments: each answer names the argument."""

import functools

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import begun, make_vec
from functional_envs import still
from gymnasium.envs.phys2d.cartpole import CartPoleFunctional
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from kernel_cases import RIGHT
from simulators import Genesis, IsaacLab, Mjlab

import arrayferry as af
import arrayferry_envs
from arrayferry_envs import CartPole, Functions, evaluate, from_env, repeat_action, rollout, wrap
from arrayferry_gym import from_simulator, make_rng, wrappers
from arrayferry_gym.wrappers import kernels

KEY = jax.random.key(0)
N = 4
MESH = Mesh(jax.devices()[:1], ("envs",))
ORDINARY = make_vec(2)


class Agent(torch.nn.Linear):
    def forward(self, observation):
        return super().forward(observation).argmax(-1)


class Model:
    def predict(self, observation):
        raise NotImplementedError


class Unseen(CartPole):
    metadata = {}


def drawing(params, observation, key):
    return key.integers(observation.shape[:1], 0, 2), None


def functions(env, key, num_envs, **options):
    return Functions(env, **options).reset(key, num_envs)


def make(**options):
    return gym.make_vec("arrayferry/CartPole-v0", **options)


def reset(**arguments):
    envs = begun(make(num_envs=3))
    envs.reset(**arguments)


def zeros(*shape, **options):
    return lambda *_: (jnp.zeros(shape, **options), None)


STATE = {"steps": jnp.zeros(N, int), "seen": jnp.zeros((N, 4))}
RUNS = {
    "rollout": (rollout, {"env": CartPole(), "policy": still, "policy_params": None, "key": KEY, "num_steps": 3, "num_envs": N}),
    "state": (rollout, {"env": CartPole(), "policy_params": None, "key": KEY, "num_steps": 3, "num_envs": N, "policy_state": STATE}),
    "evaluate": (evaluate, {"env": CartPole(), "policy": still, "key": KEY, "num_envs": N}),
    "ordinary": (evaluate, {"env": ORDINARY, "policy": drawing}),
    "record": (arrayferry_envs.record, {"env": gym.make("CartPole-v1", render_mode="rgb_array"), "policy": Agent(4, 2), "policy_params": None, "path": "a.mp4"}),
    "functions": (functions, {"env": CartPole(), "key": KEY, "num_envs": N}),
    "make": (make, {"num_envs": 3}),
    "reset": (reset, {}),
}  # fmt: skip
FUNCTIONAL = "rollout functions"
NO_NUMBERS = [0, -1, 2.0, "3", None, np.float64(3), np.arange(3), *(kind(True) for kind in (bool, np.bool_, jnp.asarray, torch.tensor))]  # fmt: skip
WRONG = [
    # The runs, what is passed in the place of right arguments, words of the error, and its class if it is no OptionError
    *[("rollout", {"num_steps": x}, "num_steps.*is not valid") for x in NO_NUMBERS],
    *[(f"{FUNCTIONAL} evaluate make", {"num_envs": x}, "num_envs.*is not valid") for x in NO_NUMBERS],
    *[(FUNCTIONAL, {"key": x}, "is not a JAX key") for x in
      (1.5, np.arange(3, dtype=np.uint32), "key", jax.random.split(KEY))],
    ("rollout evaluate", {"key": -1}, "key=-1"),
    ("functions", {"key": 0}, "is not a JAX key"),
    ("evaluate", {"key": torch.Generator()}, "an integer, or a JAX key"),
    ("ordinary", {"key": -1}, "key=-1"),
    ("ordinary", {"key": "a"}, "key='a'"),
    ("ordinary record", {"policy": Agent(4, 2), "key": None}, r"key=None is not a key\. Pass an integer, or a JAX key"),
    # policies
    ("rollout evaluate", {"policy": None}, "policy=None cannot be called"),
    ("rollout", {"policy": lambda *_: jnp.zeros(N, int)}, "not an action and extras"),
    ("rollout", {"policy": zeros(3, dtype=int)}, r"shape \(4,\), not \(3,\)", af.ConversionError),
    ("rollout", {"policy": zeros(N)}, "Cast it to an integer dtype", af.ConversionError),
    ("rollout", {"policy": lambda *_: (jnp.ones(N, int), {"d": "text"})}, r"extras\['d'\] = 'text'"),
    ("rollout evaluate", {"policy": lambda *_: (torch.zeros(N, dtype=torch.int64), None)}, r"array of torch in its action.*make_vec\(n, xp='torch'\)"),
    ("rollout evaluate", {"policy": lambda *_: (jnp.zeros(N, int), {"a": torch.zeros(2)})}, "array of torch in its extras"),
    ("state", {"policy": lambda p, o, k, s: (jnp.zeros(N, int), None)}, "returned 2 values, not an action, extras and policy_state"),
    ("state", {"policy": lambda p, o, k, s: (jnp.zeros(N, int), None, {**s, "total": 0})}, "the policy got the policy_state PyTreeDef.*but returned"),
    ("state", {"policy": lambda p, o, k, s: (jnp.zeros(N, int), None, {**s, "steps": s["steps"] + 0.5})}, r"policy_state\['steps'\] of dtype int32"),
    ("state", {"policy": lambda p, o, k, s: (jnp.zeros(N, int), None, {**s, "seen": s["seen"][:, 0]})}, r"policy_state\['seen'\] of dtype float32 and shape \(4, 4\)"),
    *[("evaluate ordinary", {"policy": policy, **own}, r"evaluate calls policy\(policy_params, observation, key") for policy, own in (
        (Agent(4, 2).forward, {}), (functools.partial(lambda observation, more: observation, more=1), {}), (Agent, {}),
        (lambda observation: observation, {}), (lambda params, observation, key, state: observation, {}),
        (lambda params, observation, key: observation, {"policy_state": np.zeros(2)}))],
    ("evaluate ordinary", {"policy": jax.jit(lambda observation: observation), "key": KEY}, r"calls policy.*, but .*<lambda> does not accept"),
    ("rollout", {"policy_state": STATE}, r"key, policy_state\), but still does not accept"),
    ("ordinary", {"policy": 1}, "cannot be called"),
    ("ordinary", {"policy": Model()}, r"model\.predict\("),
    ("ordinary", {"policy": Agent(4, 2), "policy_xp": "jax"}, "module of PyTorch"),
    ("ordinary", {"policy": lambda *_: np.zeros(2)}, "not an action and extras"),
    ("ordinary", {"policy": lambda *_: None, "policy_state": np.zeros(3)}, "first axis must have the length 2"),
    ("ordinary", {"policy": lambda p, o, k, s: (np.zeros(2, int), None, [s]), "policy_state": np.zeros(2)}, "the policy received a policy_state .*but returned"),
    ("evaluate", {"policy_xp": "none"}, "none", af.UnknownBackendError),
    ("record", {"policy": Agent}, r"record calls policy\(.*, but Agent does not"),
    # other options
    ("rollout", {"policy_state": {**STATE, "seen": jnp.zeros((2, 4))}}, r"policy_state\['seen'\] has the shape \(2, 4\)"),
    ("rollout", {"collect": "states"}, "a rollout cannot collect 'states'"),
    ("rollout", {"collect": ("info", 3)}, "cannot collect 3"),
    ("rollout", {"final_observation": 1}, "final_observation=1 is not valid"),
    ("rollout", {"env_params": {"gravitation": 1}}, "no parameter 'gravitation'"),
    *[("ordinary", {name: x}, name) for name, x in
      {"num_envs": 3, "env_params": {}, "max_episode_steps": None, "wrapper_state": {}, "sharding": 1}.items()],
    ("evaluate", {"policy_xp": "numpy", "wrapper_state": {}}, "no wrappers"),
    ("rollout", {"wrapper_state": {}}, "has no wrappers"),
    ("rollout", {"env": wrap(CartPole(), kernels.NormalizeObservation()), "wrapper_state": {"other": 1}}, "statistics"),
    ("evaluate", {"episodes": 0}, "episodes=0"),
    *[("evaluate", {"gamma": x}, "gamma=") for x in ("a", np.ones(1), 1j, np.array("a"), None, np.array(np.nan))],
    ("ordinary", {"progress": 1}, "progress=1"),
    *[("rollout functions", {"sharding": x}, "Pass jax.sharding.NamedSharding") for x in ("envs", jax.devices()[0])],
    ("rollout functions", {"sharding": NamedSharding(MESH, PartitionSpec(None, "envs"))}, "more than the axis of environments"),
    *[("record", {name: x}, f"{name}={x!r}") for name, x in (
        ("index", True), ("fps", 0), ("fps", "fast"), ("episodes", 0), ("num_steps", 0), ("progress", 0), ("max_episode_steps", 3))],
    ("record", {"index": 1}, "1 environments"),
    ("record", {"path": "glow"}, "does not end in"),
    ("record", {"path": "glow.txt"}, "glow.txt"),
    # environments
    (FUNCTIONAL, {"env": "CartPole-v1"}, r"unwrapped\.functional\. Inside jit.*examples/host_callbacks\.py", TypeError),
    (FUNCTIONAL, {"env": CartPole().make_vec(2)}, r"pass its \.functional", TypeError),
    (FUNCTIONAL, {"env": gym.make("arrayferry/CartPole-v0")}, r"\.unwrapped\.functional", TypeError),
    (FUNCTIONAL, {"env": gym.make("CartPole-v1")}, r"ArrayConversion\(env\)\. Inside jit.*examples/host_callbacks\.py", TypeError),
    (FUNCTIONAL, {"env": 3}, r"such as CartPole\(\)", TypeError),
    ("evaluate", {"env": "CartPole-v1"}, "make_vec", TypeError),
    ("evaluate", {"env": None}, "FunctionalEnv", TypeError),
    ("evaluate", {"env": Genesis(4)}, "from_simulator", TypeError),
    *[("record", {"env": env}, "render_mode='rgb_array'") for env in (gym.make("CartPole-v1"), ORDINARY)],
    ("record", {"env": Unseen()}, r"render modes of Unseen \(none\)"),
    ("record", {"env": "CartPole-v1"}, "record was given", TypeError),
    # served environments
    *[("make functions", {"autoreset_mode": x}, r"autoreset_mode=.*AutoresetMode\.SAME_STEP") for x in ("sometimes", None, 1, True)],
    ("make", {"max_episode_steps": 0}, "max_episode_steps=0"),
    ("make", {"render_mode": "human"}, "rgb_array"),
    ("make", {"xp": "tensorfow"}, "tensorfow", af.UnknownBackendError),
    ("make", {"xp": "dask"}, "computed on demand"),
    ("make", {"xp": "torch", "device": "cuda:7"}, "cuda:7", af.DeviceError),
    ("make", {"xp": "torch", "device": NamedSharding(MESH, PartitionSpec("envs"))}, "only JAX spreads"),
    *[(run, {"params": x} if run == "make" else {"options": {"params": x}}, words) for run in ("make", "reset") for x, words in (
        ({"gravitation": 1.0}, "no parameter 'gravitation'.*gravity"), ({"gravity": np.zeros(4)}, r"gravity has the shape \(4,\).*\(3,\)"),
        ({"gravity": "strong"}, "gravity is 'strong'"), ({"gravity": None}, "gravity is None"), ({"gravity": 1j}, "gravity"),
        ((1.0, 2.0), "but their defaults are"))],
    *[("reset", {"seed": x}, words) for x, words in (
        (-1, "seed=-1"), ("one", "seed='one'"), ([1], "1 seeds were passed to 3"), ([-1, 0, 0], r"seed=\[-1, 0, 0\]"),
        ([1.5, 2, 3], "seed="), (np.array(1.5), "seed="), (1.5, "seed="), ([1, -1, 2], "seed="), ([[1], [2], [3]], "seed="))],
    ("reset", {"options": {"low": 1}}, "no option 'low'"),
    *[("reset", {"options": {"reset_mask": mask}}, r"(?s)reset_mask.*3 booleans") for mask in (
        np.ones(2, bool), np.ones(3), [0, 1, 0], [True, False], np.ones((3, 1), bool), "all", [True, None, False])],
    ("reset", {"options": ["reset_mask"]}, "Pass a dict"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("run", "changed", "words", "error"),
    [
        pytest.param(
            run, changed, words, *(error or [af.OptionError]), id=f"{run}-{'-'.join(changed)}"
        )
        for runs, changed, words, *error in WRONG
        for run in runs.split()
    ],
)
def test_what_is_wrong_is_named(run, changed, words, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, arguments = RUNS[run]
    with pytest.raises(error, match=words):
        call(**{**arguments, **changed})
    assert not list(tmp_path.iterdir())


def of_module(name, base="Env", **attributes):
    """Return an environment whose class is derived from one with a name in a module."""
    return type("Own", (type(base, (), {"__module__": name}),), attributes)()


def cart_pole(**attributes):
    return type("Changed", (CartPole,), attributes)()


BOX = gym.spaces.Box(0, 1)
STATISTICS = wrap(CartPole(), kernels.NormalizeObservation())
ELSEWHERE = gym.vector.VectorEnv()  # as SuperSuit's
ELSEWHERE.num_envs, ELSEWHERE.observation_space, ELSEWHERE.action_space = 2, BOX, BOX
OTHER = {"count": 1, "mean": 0.0, "var": 1.0}
GYMNAX = arrayferry_envs.to_gymnax(CartPole())
MADE = [
    # What cannot be made, words of the error, and its class if it is no OptionError
    *[(lambda x=x: repeat_action(CartPole, x), "num_repeats") for x in (0, -1, 2.0, True, "3")],
    (lambda: repeat_action(CartPole, 2, maximum=1), "maximum=1 is not valid"),
    (lambda: repeat_action(wrap(CartPole(), kernels.RecordEpisodeStatistics()), 2), r"needs an environment without kernels.*Call repeat_action\(\) first"),
    (lambda: repeat_action(gym.make("CartPole-v1"), 2), "FunctionalEnv", TypeError),
    (lambda: wrap(CartPole(), kernels.StickyAction(1.5)), "probability", gym.error.InvalidProbability),
    (lambda: arrayferry_envs.freeze({"obs_rms": 1}), r"freeze\(env.wrapper_state\(statistics\)\)"),
    *[(lambda state=state: arrayferry_envs.freeze(state), "freeze needs states") for state in ((1,), 3)],
    (lambda: wrap(CartPole(), kernels.ClipAction), r"wrap\(\) needs kernels, but was given"),
    (lambda: arrayferry_envs.FunctionalVectorEnv(wrap(CartPole(), kernels.NormalizeReward()), 2), r"is wrapped\. Call its make\(\) or make_vec", TypeError),
    (lambda: wrappers.TimeAwareObservation(gym.make("CartPole-v1").unwrapped), "max_episode_steps", ValueError),
    (lambda: wrappers.no_such_wrapper, "no_such_wrapper", AttributeError),
    (lambda: arrayferry_envs.FunctionalSingleEnv(wrap(CartPole(), kernels.RecordEpisodeStatistics())), r"is wrapped\. Call its make\(\)", TypeError),
    (lambda: arrayferry_envs.FunctionalSingleEnv(CartPole(), xp="numpy", device="cuda"), "no device 'cuda'", af.DeviceError),
    (lambda: arrayferry_envs.to_gymnax("CartPole-v1"), "a FunctionalEnv is needed", TypeError),
    *[(lambda name=name: cart_pole(**{name: gym.spaces.Text(3)}).make_vec(2), "has the space Text.* not arrays of one shape", arrayferry_envs.EnvResultError)
      for name in ("observation_space", "action_space")],
    (lambda: wrap(cart_pole(observation_space=gym.spaces.Dict(a=BOX)), kernels.DelayObservation(-1)), "Gymnasium says: The delay", ValueError),
    *[(lambda use=use: use(cart_pole(library="torch")), "Changed computes in torch, not in jax") for use in (
        arrayferry_envs.to_gymnax, lambda env: Functions(env).reset(KEY, 2), lambda env: rollout(env, still, None, KEY, 3, 2))],
    (lambda: cart_pole(library="jax").make_vec(2, xp="torch", differentiable=True), "these environments compute in jax"),
    (lambda: jax.jit(STATISTICS.state_dict)(rollout(STATISTICS, still, None, KEY, 2, 4)[0].env_state), "statistics were read in a traced function"),
    (lambda: setattr(kernels.ClipReward(0, 1), "min_reward", 3), "does not change", AttributeError),
    (lambda: GYMNAX.step(KEY, GYMNAX.reset(KEY)[1], jnp.zeros(3, int)), "an action for CartPole", af.ConversionError),
    (lambda: arrayferry_envs.FunctionalVectorEnv(gym.make("CartPole-v1"), 2), "FunctionalEnv is needed", TypeError),
    (lambda: CartPole(3), "one argument", TypeError),
    (lambda: arrayferry_envs.register("tests/Two-v0", CartPole, num_envs=2), "num_envs cannot be registered"),
    (lambda: arrayferry_envs.register("tests/Wrong-v0", gym.Env), "subclass of FunctionalEnv"),
    (lambda: wrappers.DtypeObservation(gym.make("CartPole-v1"), "flaot64"), "flaot64", TypeError),
    *[(lambda xp=xp: make_rng(xp, 0).key(), "only JAX has keys") for xp in ("numpy", "torch", "array_api_strict")],
    *[(lambda parts=parts: wrappers.merge(parts), words) for words, *several in (
        ("cannot be merged", [RIGHT, OTHER], [OTHER, RIGHT]), ("no statistics", []),
        ("statistics are needed", *([RIGHT, wrong] for wrong in ({"obs_rms": RIGHT}, 3, {**RIGHT, "var": [-1.0, 1.0]})))) for parts in several],
    (lambda: wrappers.vector.NormalizeObservation(gym.make("CartPole-v1")), "a single environment. Import the wrapper for it from arrayferry_gym.wrappers", TypeError),
    (lambda: wrappers.NormalizeObservation(CartPole().make_vec(2)), "a vector environment. Import the wrapper for it from arrayferry_gym.wrappers.vector", TypeError),
    (lambda: wrappers.vector.RecordEpisodeStatistics(ELSEWHERE), "no single_observation_space", TypeError),
    (lambda: evaluate(CartPole(), still, None, 0, 5), "evaluate accepts .*got 5 after the key", TypeError),
    (lambda: arrayferry_envs.record(CartPole(), still, "cart.gif"), "keyword-only argument: 'path'", TypeError),
    (lambda: arrayferry_envs.record(CartPole(), still, None, 0, None, path="cart.gif"), "record accepts .*got None after the key", TypeError),
    *[(lambda env=env: from_simulator(env), "takes a batch of environments", TypeError) for env in (gym.make("CartPole-v1"), None, 3)],
    *[(lambda given=given: from_simulator(Genesis(3), final="lost", **given), f"has no single_{name}_space. Pass {name}")
      for name, given in (("action", {"observation_space": BOX}), ("observation", {}))],
    (lambda: from_simulator(IsaacLab(2), group="actor"), "The groups are 'critic', 'policy'"),
    (lambda: from_simulator(IsaacLab(3)).reset(options={"reset_mask": [True, False, False]}), "reset only the environments of a reset_mask"),
    (lambda: from_simulator(Mjlab(3)).reset(options={"reset_mask": [True, False, False]}), "Call reset.. without a reset_mask first"),
    (lambda: from_env(of_module("brax.envs.base", reset=staticmethod(lambda key: jax.absent), action_size=1)), r"arguments\.Own .* has no attribute 'absent'"),
    (lambda: from_env(of_module("pgx.core"), {"a": 1}), "has no such option"),
    (lambda: from_env(of_module("pgx.core"), randomization_fn=print), "fn was passed, but .* has no such option"),
    *[(lambda env=env: from_env(env), words, TypeError) for env, words in (
        (gym.make("CartPole-v1"), r"ArrayConversion\(env\)\. Inside jit.*host_callbacks\.py"), (CartPole(), "already"), ("CartPole-v1", "converts environments of gymnax"),
        ((CartPole(), 2), r"given \(\S+\.CartPole, builtins\.int\)\. Pass .*from_env\(\*gymnax\.make"),
        (CartPoleFunctional, "not its class"), (of_module("gymnaxes.env"), "converts environments of gymnax"),
        (of_module("gymnax.wrappers.purerl", "FlattenObservationWrapper"), "pass the environment inside"),
        (of_module("jaxmarl.environments.mpe"), r"JaxMARL.*Write a pettingzoo\.ParallelEnv around reset and step_env"))],
]  # fmt: skip


@pytest.mark.parametrize(("make", "words", "error"), [(*row, af.OptionError)[:3] for row in MADE])
def test_what_cannot_be_made(make, words, error):
    with pytest.raises(error, match=words):
        make()


def test_what_goes_on_from_another_place():
    carry, _ = rollout(**RUNS["rollout"][1])
    for changed, words in (
        ({"policy_state": STATE}, "both passed"),
        ({"num_envs": 5}, "carry has 4 environments"),
        ({"env": arrayferry_envs.Pendulum()}, "carry does not match"),
    ):
        with pytest.raises(af.OptionError, match=words):
            rollout(**{**RUNS["rollout"][1], "carry": carry, **changed})


def test_traced_numbers_of_steps():
    with pytest.raises(af.OptionError, match="traced, but shapes are fixed"):
        jax.jit(lambda n: rollout(**{**RUNS["rollout"][1], "num_steps": n})[1].reward)(3)


WHOLE = [np.int64(3), np.uint8(3), np.asarray(3), jnp.asarray(3), torch.tensor(3)]


@pytest.mark.parametrize("three", WHOLE, ids=lambda x: type(x).__name__)
def test_whole_numbers_of_any_library(three):
    _, found = rollout(CartPole(), still, None, KEY, three, three, max_episode_steps=three)
    assert found.reward.shape == (3, 3)
    assert found.truncated[2].all()
    found = evaluate(CartPole(), still, key=KEY, num_envs=three, max_episode_steps=three)
    assert found.lengths.tolist() == [[3]] * 3
    assert Functions(CartPole(), max_episode_steps=three).reset(KEY, three)[1].shape == (3, 4)
    envs = CartPole().make_vec(three, max_episode_steps=three)
    assert type(envs.num_envs) is int
    assert envs.reset(seed=0)[0].shape == (3, 4)
