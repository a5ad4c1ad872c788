"""Policies exported without an environment choose as they do outside of the file, with their wrappers around them."""

from __future__ import annotations

import functools
import json
import re
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from raw_random import Fed

import arrayferry as af
from arrayferry_envs import CartPole, Pendulum, check_export, export, wrap
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers.kernels import State

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

OF_PENDULUM: Any = {
    "observation_space": Pendulum.observation_space, "action_space": Pendulum.action_space
}  # fmt: skip
WEIGHTS = np.array([[0.5], [-1.0], [2.0]], np.float32)
NORMALIZED = {"obs_rms": {"count": 9, "mean": [0.5, -0.5, 1.0], "var": [0.5, 2.0, 0.1]}}
REWARDS = {"return_rms": {"count": 9, "mean": [1.0, 2.0], "var": [4.0, 1.0]}}


def linear(weights, observation, rng):
    xp = af.namespace_of(observation)
    flat = xp.reshape(observation, (observation.shape[0], -1))
    return flat[:, :3] @ weights, None


def in_numpy(weights, observation, rng):
    hidden = np.concatenate([np.tanh(observation), np.maximum(observation, 0.1)], axis=-1)
    scores = np.where(hidden > 0.5, np.arctan(hidden), np.absolute(hidden))
    best = scores.argmax(axis=-1).astype(np.float32)
    return best[:, None] - weights[:1, :] @ np.ones((1, 1), np.float32), None


def drawing(weights, observation, rng):
    return observation @ weights + rng.normal((observation.shape[0], 1), 0.0, 0.5), None


CHAINS = {
    "none": [],
    "normalised": [kernels.NormalizeObservation()],
    "stacked": [kernels.NormalizeObservation(), kernels.FrameStackObservation(3)],
    "stacked before": [kernels.DelayObservation(1), kernels.NormalizeObservation()],
    "rescaled": [
        kernels.RescaleAction(-1, 1), kernels.TransformObservation(lambda x: x * 2),
        kernels.ClipAction(), kernels.RescaleObservation(-1, 1),
    ],
    "sticky": [kernels.StickyAction(0.5), kernels.ClipReward(0, 1), kernels.TimeAwareObservation()],
    "rewards": [kernels.NormalizeReward(), kernels.NormalizeObservation(), kernels.ClipReward(0)],
}  # fmt: skip


class Shown(Pendulum):
    """Its infos have the observation before the wrappers, and the action after them."""

    max_episode_steps = 50

    def reset(self, xp, rng, n, params):
        return super().reset(xp, rng, n, params), xp.zeros((n, 1), dtype=xp.float32)

    def step(self, xp, rng, state, action, params):
        inner, reward, terminated = super().step(xp, rng, state[0], action, params)
        return (inner, action), reward, terminated

    def observe(self, xp, state, params):
        return super().observe(xp, state[0], params)

    def info(self, xp, state, params):
        return {"seen": self.observe(xp, state, params), "taken": state[1]}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_file_acts_as_a_policy_in_its_wrappers(chain, tmp_path):
    """The environment, run in NumPy by its own engine, sees and takes the same."""
    n, path, around = 5, str(tmp_path / "policy.onnx"), CHAINS[chain]
    known = [x.statistics for x in around]
    statistics = {}
    if "obs_rms" in known:
        statistics |= NORMALIZED
    if "return_rms" in known:
        statistics |= {"return_rms": {"count": 9, "mean": 1.0, "var": 4.0}}
    options: Any = {"policy": linear, "policy_params": WEIGHTS, "kernels": around, "num_envs": n}
    options |= {"max_episode_steps": 50, **OF_PENDULUM}
    metadata = export(None, path, wrapper_state=statistics or None, **options)
    assert check_export(path, linear, WEIGHTS) < 1e-5
    assert check_export(path, linear, -WEIGHTS) > 0.01
    session = onnxruntime.InferenceSession(path)
    assert json.loads(session.get_modelmeta().custom_metadata_map["arrayferry"]) == metadata
    envs = wrap(Shown(), *around).make_vec(n)
    observation, info = envs.reset(seed=1)
    if statistics:
        envs.load_state_dict(statistics)
        envs.update_running_mean = False
        observation, info = envs.reset(seed=2)
    feed = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in metadata["inputs"]}
    names = [x["name"] for x in metadata["outputs"]]
    raw = np.random.default_rng(0)
    for step in range(6):
        feed["observation"] = info["seen"]
        if "reset" in feed:
            feed["reset"] = np.full(n, step == 0)
        if chain == "sticky":
            feed["random.wrappers.0"] = raw.random(n, np.float32)
            envs._stepper.acting = Fed([feed["random.wrappers.0"], raw.random(n)])
        outputs = dict(zip(names, session.run(names, feed), strict=True))
        feed |= {f"last.{k}": x for k, x in outputs.items() if f"last.{k}" in feed}
        observation, *_, info = envs.step(linear(WEIGHTS, observation, None)[0])
        np.testing.assert_allclose(outputs["action"], info["taken"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", [in_numpy, drawing])
def test_functions_of_numpy_and_functions_that_draw(policy, tmp_path):
    path = tmp_path / "policy.onnx"
    metadata = export(None, path, policy=policy, policy_params=WEIGHTS, num_envs=4, **OF_PENDULUM)
    assert check_export(path, policy, WEIGHTS) < 1e-6
    assert any("random" in x for x in metadata["inputs"]) == (policy is drawing)


NESTED = spaces.Dict({
    "at": spaces.Box(0, 1, (2,), np.float64), "of": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2)))
})  # fmt: skip
CHOICES = spaces.Dict({
    "turn": spaces.MultiDiscrete([2, 3], start=[1, -1]), "go": spaces.Box(-100, 100, (2,), np.int8)
})  # fmt: skip


def nested(params, observation, rng):
    xp = af.namespace_of(observation["at"])
    kind, flags = observation["of"]
    turn = xp.stack([kind + 1, xp.astype(flags[:, 0], xp.int64)], axis=1)
    return {"turn": turn, "go": xp.astype(observation["at"] * 300 - 150, xp.int64)}, None


@pytest.mark.parametrize("flattened", [False, True])
def test_trees_of_spaces(flattened, tmp_path):
    path = tmp_path / "policy.onnx"
    options: Any = {"observation_space": NESTED, "action_space": CHOICES, "num_envs": 40}
    if flattened:

        def policy(params, observation, rng):
            parts = (observation[:, 2:5].argmax(axis=-1), observation[:, 5:])
            return nested(params, {"at": observation[:, :2], "of": parts}, rng)

        options["kernels"] = [kernels.FlattenObservation()]
    else:
        policy = nested
    metadata = export(None, path, policy=policy, **options)
    assert check_export(path, policy) == 0
    vector = metadata["test_vectors"][0]
    at, go = (
        np.asarray(x) for x in (vector["inputs"]["observation.at"], vector["outputs"]["action.go"])
    )
    wanted = np.clip((at * 300 - 150).astype(int), -100, 100)
    assert abs(go - wanted).max() <= flattened  # flattened observations are rounded to float32
    assert {-100, 100} <= set(go.ravel().tolist())


class Squashed(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        self.held = super().forward(torch.ones(2, 3))  # such a tensor cannot be copied

    def forward(self, observation):
        return super().forward(observation) * 5


@pytest.mark.assumes_other("float64")
def test_a_module_that_cannot_be_copied_stays_as_it_is(tmp_path):
    path, module = tmp_path / "policy.onnx", Squashed()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    numbers = torch.get_rng_state()
    export(None, path, policy=module, **OF_PENDULUM)
    assert module.training
    assert torch.equal(numbers, torch.get_rng_state())
    assert all(map(torch.equal, before.values(), module.state_dict().values()))
    other = Squashed()
    assert check_export(path, module) < 1e-5 < check_export(path, other)
    assert check_export(path, other, module.state_dict()) < 1e-5


def test_normalised_statistics_of_rewards_with_several_objectives_are_left_out(tmp_path):
    options: Any = {"policy": linear, "policy_params": WEIGHTS, "wrapper_state": REWARDS}
    path = tmp_path / "policy.onnx"
    metadata = export(None, path, kernels=[kernels.NormalizeReward()], **options, **OF_PENDULUM)
    assert [x["name"] for x in metadata["inputs"]] == ["observation"]


def test_images(tmp_path):
    space = spaces.Box(0, 255, (8, 9, 3), np.uint8)

    def policy(params, observation, rng):
        xp = af.namespace_of(observation)
        return xp.astype(xp.max(observation, axis=(1, 2)) > 200, xp.int64), None

    around = [kernels.GrayscaleObservation(), kernels.DtypeObservation(np.float32)]
    options: Any = {"observation_space": space, "action_space": spaces.Discrete(2)}
    export(None, tmp_path / "policy.onnx", policy=policy, kernels=around, num_envs=3, **options)
    assert check_export(tmp_path / "policy.onnx", policy) == 0


def of_jax(weights, observation, key):
    import jax

    return jax.numpy.tanh(observation @ weights), None


def keyed(weights, observation, key):
    import jax

    return observation @ weights + jax.random.normal(key, (observation.shape[0], 1)), None


def without_a_rule(params, observation, key):
    import jax

    return jax.numpy.linalg.eigh(observation.T @ observation)[0][None, :1], None


class Changes(torch.nn.Linear):
    def forward(self, observation):
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(observation) + self.calls


class Sums(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sum = 0

    def forward(self, observation):
        self.sum = self.sum + observation[:, :1].float()
        return self.sum


def draws_by_numpy(params, observation, rng):
    return observation[:, :1] + np.random.standard_normal((1, 1)).astype(np.float32), None


def branches(observation):
    return observation if observation.sum() > 0 else -observation


WITH_STATISTICS = wrap(Pendulum(), kernels.NormalizeObservation())
REFUSED = [
    ({"policy": None}, "env=None was passed without a policy"),
    ({"observation_space": None}, "observation_space must be a space, and not None"),
    ({"action_space": 3}, "action_space must be a space, and not 3"),
    ({"param_inputs": True}, "param_inputs and autoreset_mode are for an environment"),
    ({"autoreset_mode": "SameStep"}, "autoreset_mode are for an environment"),
    ({"autoreset_mode": "never"}, "autoreset_mode='never' is not valid"),
    ({"kernels": None}, "kernels=None is not a sequence"),
    ({"kernels": kernels.ClipAction()}, "kernels=ClipAction() is not a sequence"),
    ({"kernels": [kernels.TransformObservation(branches)]}, "because of test_export_agents.py"),
    (
        {"kernels": [kernels.NormalizeObservation()], "wrapper_state": 3},
        "wrapper_state=3 does not belong",
    ),
    (
        {"kernels": [kernels.NormalizeObservation()], "wrapper_state": ()},
        "wrapper_state=() does not belong",
    ),
    ({"env": WITH_STATISTICS, "wrapper_state": (State(),)}, "does not belong to this environment"),
    ({"policy": draws_by_numpy}, "or draws numbers by itself"),
    (
        {"policy": Sums(), "observation_space": spaces.Box(0, 9, (3,), np.uint8)},
        "or draws numbers by itself",
    ),
    (
        {"policy": torch.nn.Linear(3, 1), "policy_params": {"weight": WEIGHTS.T}},
        "the module needs ['bias', 'weight']",
    ),
    ({"env": CartPole(), "action_space": CartPole.action_space}, "are for a policy alone"),
    ({"kernels": [3]}, "wrap() needs kernels, but was given 3"),
    ({"kernels": [kernels.NormalizeObservation()]}, "has statistics, but wrapper_state is None"),
    ({"wrapper_state": NORMALIZED}, "but those of WrappedEnv are []"),
    ({"policy": without_a_rule}, "cannot be translated"),
    ({"policy": Changes(3, 1)}, "changes what later calls return"),
    ({"policy_params": WEIGHTS[:2]}, "the policy cannot be exported"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
@pytest.mark.assumes_other("float64")
def test_what_cannot_be_exported_is_refused(options, words, tmp_path):
    path = tmp_path / "policy.onnx"
    of_pendulum = {} if "env" in options and "action_space" not in options else OF_PENDULUM
    known: Any = {"env": None, "policy": linear, "policy_params": WEIGHTS, **of_pendulum, **options}
    if "policy" in options and "policy_params" not in options:
        del known["policy_params"]
    with pytest.raises(af.OptionError, match=re.escape(words)):
        export(path=path, **known)
    assert not path.exists()


def module_of(package):
    """Return a module of JAX, its parameters, and a function of a batch that is the same."""
    jax, made = pytest.importorskip("jax"), pytest.importorskip(package)
    if package == "equinox":
        module = made.nn.MLP(3, 1, 8, 1, key=jax.random.key(0))
        return module, None, jax.vmap(module)
    if package == "flax.nnx":
        module = made.Linear(3, 1, rngs=made.Rngs(0))
        return module, None, module
    module = made.Dense(1)
    params = module.init(jax.random.key(0), np.zeros((1, 3), np.float32))
    return module, params, lambda x: module.apply(params, x)


@pytest.mark.parametrize("package", ["equinox", "flax.nnx", "flax.linen"])
def test_modules_of_jax(package, tmp_path):
    module, params, expected = module_of(package)
    path = tmp_path / "policy.onnx"
    given: Any = {"policy": module, "policy_params": params, "num_envs": 4, **OF_PENDULUM}
    metadata = export(None, path, **given)
    assert [x["name"] for x in metadata["inputs"]] == ["observation"]
    assert check_export(path, module, params) < 1e-5
    seen = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    [action] = onnxruntime.InferenceSession(path).run(["action"], {"observation": seen})
    np.testing.assert_allclose(action, np.clip(expected(seen), -2, 2), rtol=1e-5, atol=1e-6)


def test_a_network_of_flax_sees_images(tmp_path):
    jax, nn = pytest.importorskip("jax"), pytest.importorskip("flax.linen")
    layers = [
        nn.Conv(4, (3, 3)),
        functools.partial(nn.gelu, approximate=False),
        functools.partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2), padding="SAME"),
        lambda x: x.reshape(len(x), -1),
        nn.Dense(1),
    ]
    module, images = nn.Sequential(layers), spaces.Box(-1, 1, (7, 7, 3), np.float32)
    params = module.init(jax.random.key(0), np.zeros((1, *images.shape), np.float32))
    given = {**OF_PENDULUM, "observation_space": images, "policy_params": params}
    export(None, tmp_path / "policy.onnx", policy=module, **given)
    assert check_export(tmp_path / "policy.onnx", module, params) < 1e-5


def test_modules_of_jax_that_hold_parameters_take_no_others(tmp_path):
    module, _, _ = module_of("equinox")
    with pytest.raises(af.OptionError, match="but MLP contains its own"):
        export(None, tmp_path / "policy.onnx", policy=module, policy_params=WEIGHTS, **OF_PENDULUM)


@pytest.mark.parametrize("policy", [of_jax, keyed])
def test_functions_of_jax(policy, tmp_path):
    pytest.importorskip("jax")
    path = tmp_path / "policy.onnx"
    given: Any = {"policy": policy, "policy_params": WEIGHTS, "num_envs": 2, **OF_PENDULUM}
    metadata = export(None, path, kernels=[kernels.FlattenObservation()], **given)
    kinds = {x["name"]: x.get("random") for x in metadata["inputs"]}
    drawn = {"random.policy.0": "uniform"} if policy is keyed else {}
    assert kinds == {"observation": None, **drawn}
    assert check_export(path, policy, WEIGHTS) < 1e-5
    assert check_export(path, policy, 2 * WEIGHTS) > 0.01


def test_a_policy_of_jax_acts_in_an_environment(tmp_path):
    pytest.importorskip("jax")
    path = tmp_path / "both.onnx"
    env = wrap(Pendulum(), kernels.NormalizeObservation())
    metadata = export(
        env, path, policy=of_jax, policy_params=WEIGHTS, wrapper_state=NORMALIZED, num_envs=2
    )
    session = onnxruntime.InferenceSession(path)
    rng = np.random.default_rng(0)
    feed = {x["name"]: rng.random(x["shape"]).astype(x["dtype"]) for x in metadata["inputs"]}
    feed["reset"] = np.zeros(2, bool)
    names = [x.name for x in session.get_outputs()]
    made = dict(zip(names, session.run(names, feed), strict=True))
    expected = np.tanh(feed["last.observation"] @ WEIGHTS)
    np.testing.assert_allclose(made["action"], expected, rtol=1e-5, atol=1e-6)


def test_files_of_environments_have_no_test_vectors(tmp_path):
    path = tmp_path / "env.onnx"
    export(CartPole(), path)
    with pytest.raises(af.OptionError, match="has no test vectors"):
        check_export(path)


def changed(path, change):
    """Change the metadata of a file."""
    import onnx

    model = onnx.load(path)
    [entry] = [x for x in model.metadata_props if x.key == "arrayferry"]
    metadata = json.loads(entry.value)
    change(metadata)
    entry.value = json.dumps(metadata)
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("part", "wrong", "found"),
    [
        ("outputs", {"action": [[np.inf]]}, np.inf), ("outputs", {"action": [["NaN"]]}, np.inf),
        ("outputs", {"action": [[0.0], [0.0]]}, np.inf), ("outputs", {}, np.inf),
        ("outputs", {"action": [[3.0]]}, 1.0), ("chosen", {"action": [[7.0]]}, 5.0), ("chosen", {}, np.inf),
    ],
)  # fmt: skip
def test_a_check_notices_other_test_vectors(part, wrong, found, tmp_path):
    def two(params, observation, rng):
        return observation[:, :1] * 0 + 2, None

    path = str(tmp_path / "policy.onnx")
    export(None, path, policy=two, **OF_PENDULUM)
    changed(path, lambda metadata: metadata["test_vectors"][1].update({part: wrong}))
    assert check_export(path, two) == found


@pytest.mark.parametrize("weights", [None, np.ones((4, 1), np.float32)])
def test_a_check_with_other_parameters_is_refused(weights, tmp_path):
    path = str(tmp_path / "policy.onnx")
    export(None, path, policy=linear, policy_params=WEIGHTS, **OF_PENDULUM)
    with pytest.raises(af.OptionError, match=r"the policy fails for the observations in"):
        check_export(path, linear, weights)


def test_logits_and_missing_variables_are_told(tmp_path):
    import flax.linen

    spaces_of = {name: getattr(CartPole, name) for name in ("observation_space", "action_space")}
    options: Any = {"path": tmp_path / "policy.onnx", **spaces_of}
    with pytest.raises(af.OptionError, match=r"of shape \(1,\)\. .* a number, not logits"):
        export(None, policy=torch.nn.Linear(4, 2), **options)
    with pytest.raises(
        af.OptionError, match=r"Dense needs variables, but policy_params is None\. Pass the result"
    ):
        export(None, policy=flax.linen.Dense(2), **options)
    statistics = {"obs_rms": {"count": 10.5, "mean": [0.0] * 4, "var": [1.0] * 4}}
    options |= {"kernels": [kernels.NormalizeObservation()], "wrapper_state": statistics}
    with pytest.raises(af.OptionError, match='a whole number as "count"'):
        export(None, policy=torch.nn.Linear(4, 2), **options)


def test_a_check_notices_other_weights(tmp_path):
    import onnx

    path = str(tmp_path / "policy.onnx")
    export(None, path, policy=linear, policy_params=WEIGHTS, **OF_PENDULUM)
    model = onnx.load(path)
    wrong = 0
    for node in model.graph.node:
        for x in node.attribute:
            if x.name == "value" and list(x.t.dims) == [3, 1]:
                x.t.CopyFrom(onnx.numpy_helper.from_array(WEIGHTS + 0.1))
                wrong += 1
    onnx.save(model, path)
    assert wrong == 1
    assert check_export(path) > 0.01


def test_a_check_notices_the_last_digit_of_large_integers(tmp_path):
    path, space = str(tmp_path / "policy.onnx"), spaces.Discrete(2**62)
    options: Any = {"observation_space": space, "action_space": space}
    export(None, path, policy=lambda params, observation, rng: (observation, None), **options)
    assert check_export(path) == 0
    changed(path, lambda metadata: metadata["test_vectors"][0]["outputs"]["action"].append(0))
    assert check_export(path) == np.inf

    def one_more(metadata):
        outputs = metadata["test_vectors"][0]["outputs"]
        outputs["action"] = [outputs["action"][0] + 1]

    changed(path, one_more)
    assert check_export(path) == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda metadata: metadata.update(test_vectors=[]), "has no test vectors"),
        (lambda metadata: metadata.update(test_vectors=[{}]), "is damaged or not ONNX: KeyError"),
        (lambda metadata: metadata.update(inputs=[]), "is damaged or not ONNX"),
        (None, "is damaged or not ONNX"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(damage, words, tmp_path):
    path = tmp_path / "policy.onnx"
    export(None, path, policy=linear, policy_params=WEIGHTS, **OF_PENDULUM)
    if damage is None:
        path.write_bytes(path.read_bytes()[:-50])
    else:
        changed(str(path), damage)
    with pytest.raises(af.OptionError, match=words):
        check_export(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        check_export(path)


def test_a_check_with_another_policy(tmp_path):
    path = tmp_path / "policy.onnx"
    export(None, path, policy=linear, policy_params=WEIGHTS, **OF_PENDULUM)
    for action in ([[1.0]], {"a": np.ones((1, 1))}, {}, np.ones(()), np.full((1, 1), np.inf)):
        assert check_export(path, lambda *_, action=action: (action, None)) == np.inf
    with warnings.catch_warnings(action="error"):  # samples may be what no environment returns
        export(None, path, policy=lambda _, x, __: (np.sqrt(x[:, :1] - 9), None), **OF_PENDULUM)
        assert check_export(path, lambda _, x, __: (np.log(x[:, :1] - 9), None)) == 0
    with pytest.raises(af.OptionError, match="draws normal numbers of shape"):
        check_export(path, drawing, WEIGHTS)
    with pytest.raises(af.OptionError, match="policy_params was passed without"):
        check_export(path, None, WEIGHTS)


def writes(weights, observation, rng):
    observation *= 2
    observation[observation > 0.5] = 0.5
    weights += 1
    return observation[:, :1] * weights, None


class Writes(torch.nn.Module):
    def forward(self, observation):
        return observation.mul_(2)[:, :1]


def constant(params, observation, rng):
    return np.full((3, 1), 0.5, np.float32), None


def halved(params, observation, rng):
    return observation[:, :1] * 3, None


OTHERS: dict[str, Any] = {
    "writes": {"policy": writes, "policy_params": np.ones(1, np.float32)},
    "module writes": {"policy": Writes()},
    "constant": {"policy": constant},
    "flags": {"policy": lambda _, x, __: (x > 0, None), "action_space": spaces.MultiBinary(3)},
    "iterator of kernels": {"policy": halved, "kernels": (kernels.TransformObservation(lambda x: x / 2),)},
    "other dtype": {
        "policy": halved, "kernels": (kernels.TransformObservation(lambda x: x * 0.1),),
        "observation_space": spaces.Box(0, 9, (3,), np.int32),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_policies_that_write_or_return_other_arrays(name, tmp_path):
    path, options = tmp_path / "policy.onnx", {**OF_PENDULUM, **OTHERS[name]}
    policy, params = options["policy"], options.get("policy_params")
    before = None if params is None else params.copy()
    export(None, path, **{**options, "kernels": iter(options.get("kernels", ())), "num_envs": 3})
    assert check_export(path, policy, params) < 1e-6
    assert params is None or np.array_equal(params, before)


FAR = spaces.Dict({
    "above": spaces.Box(1e4, 2e4, (2,)), "below": spaces.Box(-np.inf, -1e5, (2,)), "all": spaces.Box(-3e38, 3e38, (2,)),
    "near": spaces.Box(2000, 2001, (2,), np.float64),
})  # fmt: skip


def test_test_vectors_are_in_their_space(tmp_path):
    def policy(params, observation, rng):
        xp = af.namespace_of(observation["above"])
        return xp.sqrt(observation["above"][:, :1] - 1e4), None

    path = tmp_path / "policy.onnx"
    options: Any = {"observation_space": FAR, "action_space": spaces.Box(0, 9, (1,))}
    metadata = export(None, path, policy=policy, num_envs=5, **options)
    assert check_export(path, policy) < 1e-5
    for vector in metadata["test_vectors"]:
        for name, space in FAR.items():
            x = np.asarray(vector["inputs"][f"observation.{name}"], space.dtype)
            assert all(map(space.contains, x))
            assert abs(x).max() < 2e5
            assert len(np.unique(x)) > 1
        assert any(0 < x < 9 for [x] in vector["outputs"]["action"])


class Tied(torch.nn.Module):
    """A module that is used twice, and a weight that is."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.again, self.last.weight = self.first, self.first.weight

    def forward(self, observation):
        return self.last(self.again(self.first(observation)))[:, :1]


@pytest.mark.long
def test_shared_modules_and_weights(tmp_path):
    path, module, other = tmp_path / "policy.onnx", Tied(), Tied()
    export(None, path, policy=module, **OF_PENDULUM)
    assert check_export(path, module) < 1e-6 < check_export(path, other)
    export(None, path, policy=module, policy_params=other.state_dict(), **OF_PENDULUM)
    assert check_export(path, other) < 1e-6
    assert module.again is module.first
    assert module.last.weight is module.first.weight


class Slow(torch.nn.Linear):
    inside, most = 0, 0

    def forward(self, observation):
        Slow.inside += 1
        Slow.most = max(Slow.most, Slow.inside)
        time.sleep(0.05)
        Slow.inside -= 1
        return super().forward(observation)


@pytest.mark.assumes_other("float64")
def test_a_module_is_called_by_one_thread_at_a_time(tmp_path):
    """Otherwise it would keep weights or modes of another call."""
    path, module = tmp_path / "policy.onnx", Slow(3, 1)
    export(None, path, policy=module, **OF_PENDULUM)
    weight = module.weight
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(check_export, path, module) for _ in range(2)]
        assert max(each.result() for each in found) < 1e-6
    assert (Slow.most, module.weight is weight, module.training) == (1, True, True)


class OneHot(torch.nn.Module):
    def forward(self, observation):
        return torch.nn.functional.one_hot(observation - 5, 3).argmax(-1)


def test_modules_are_called_with_samples_of_their_space(tmp_path):
    path, options = tmp_path / "policy.onnx", {"action_space": spaces.Discrete(3), "num_envs": 9}
    seen = spaces.Discrete(3, start=5)
    export(None, path, policy=OneHot(), observation_space=seen, **options)
    assert check_export(path, OneHot()) == 0


def test_only_a_check_needs_onnxruntime(run_python, tmp_path):
    out = run_python(
        f"""
import sys
sys.modules["onnxruntime"] = None
from arrayferry_envs import *
def policy(params, observation, rng):
    return observation[:, :1], None
space = Pendulum.observation_space, Pendulum.action_space
export(None, {str(tmp_path / "p.onnx")!r}, policy=policy, observation_space=space[0], action_space=space[1])
try:
    check_export({str(tmp_path / "p.onnx")!r})
except ImportError as error:
    print(type(error).__name__, error)
"""
    )
    assert re.match("BackendUnavailableError .*pip install onnxruntime", out)


class Branch(torch.nn.Linear):
    def forward(self, observation):
        return super().forward(observation) if observation.sum() > 0 else observation[:, :1]


@pytest.mark.long
def test_what_pytorch_cannot_export_is_said_in_one_line(tmp_path):
    with pytest.raises(
        af.OptionError, match="PyTorch cannot export the module: Could not guard"
    ) as caught:
        export(None, tmp_path / "policy.onnx", policy=Branch(3, 1), **OF_PENDULUM)
    assert "\n" not in str(caught.value)


def test_modules_without_weights_are_refused(tmp_path):
    with pytest.raises(af.OptionError, match="uninitialized parameter"):
        export(None, tmp_path / "policy.onnx", policy=torch.nn.LazyLinear(1), **OF_PENDULUM)
