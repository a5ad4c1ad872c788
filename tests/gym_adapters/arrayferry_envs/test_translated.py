"""Environments in JAX that other libraries step, by `translate=True`."""

import copy
import multiprocessing
import pickle
import threading

import array_api_strict
import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from cases import crossed
from functional_envs import Count, InJax, InTorch, Sums
from trajectories import PUSHES, assert_same, walked

import arrayferry as af
from arrayferry_envs import CartPole, FunctionalEnv, Pendulum, make, make_vec, repeat_action, wrap
from arrayferry_gym.wrappers import kernels

pytestmark = pytest.mark.assumes_other("rbg")  # whose bits are not translated

MODES = "NextStep", "SameStep", "Disabled"
LIBRARIES = {"numpy": "numpy", "torch": "torch", "jax": "jax", "strict": array_api_strict}
RNG = np.random.default_rng(0)
FORCES = RNG.uniform(-1, 1, (40, 4)).astype(np.float32)


class Drawn(CartPole):
    """Draws its gravity at each reset."""

    def sample_params(self, xp, rng, n, params):
        return params._replace(gravity=rng.uniform((n,)) * 3 + 8)


class Still(FunctionalEnv):
    """Has neither parameters nor random numbers. Its states and observations are one array."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    library = "jax"

    def reset(self, xp, rng, n, params):
        return jnp.zeros((n, 2))

    def step(self, xp, rng, state, action, params):
        state = jnp.asarray(state) + action[:, None].astype("float32")
        return state, state[:, 0], state[:, 0] > 3

    def observe(self, xp, state, params):
        return state


def in_jax(env, count=4, **options):
    return env.make_vec(count, xp="jax", **options)


@pytest.mark.parametrize(("xp", "mode"), crossed(list(LIBRARIES), MODES))
def test_a_trajectory_is_that_of_jax(xp, mode):
    options = {"autoreset_mode": mode, "max_episode_steps": 7}
    envs = CartPole().make_vec(4, xp=LIBRARIES[xp], translate=True, **options)
    steps = 6 if mode == "Disabled" else 20
    assert_same(walked(envs, steps), walked(in_jax(CartPole(), **options), steps))
    assert af.backend_of(envs.step(PUSHES[0])[0]).name == af.registry.backend(LIBRARIES[xp]).name
    assert envs.observation_space.contains(envs.reset(seed=1)[0])


@pytest.mark.parametrize("xp", ["numpy", "torch"])
@pytest.mark.parametrize(
    "env", [InJax(), repeat_action(InJax(), 2), Count(), Sums(), Drawn(), Still()], ids=repr
)
def test_environments_of_each_kind(env, xp):
    actions = FORCES if isinstance(env, Sums) else PUSHES
    envs = env.make_vec(4, xp=xp, translate=True)
    assert_same(walked(envs, 30, actions), walked(in_jax(env), 30, actions))
    envs.state = envs.state
    envs.reset(options={"state": envs.state})
    envs.step(actions[0])


@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_levels_by_seeds(xp):
    pytest.importorskip("arrayferry_suites")
    options = {"seeds": range(10), "max_episode_steps": 8}
    envs = make_vec("arrayferry/CartPole-v0", 4, xp=xp, translate=True, **options)
    assert_same(
        walked(envs, 30), walked(make_vec("arrayferry/CartPole-v0", 4, xp="jax", **options), 30)
    )


@pytest.mark.parametrize(("xp", "mode"), crossed(["numpy", "torch"], MODES[:2]))
def test_kernels_with_statistics_and_random_actions(xp, mode):
    around = (
        kernels.NormalizeObservation(), kernels.NormalizeReward(), kernels.StickyAction(0.5),
        kernels.RecordEpisodeStatistics(),
    )  # fmt: skip
    env, options = wrap(CartPole(), *around), {"autoreset_mode": mode, "max_episode_steps": 5}
    ours, theirs = env.make_vec(4, xp=xp, translate=True, **options), in_jax(env, **options)
    assert_same(walked(ours, 20), walked(theirs, 20))
    assert_same(ours.obs_rms.mean, theirs.obs_rms.mean)
    ours.load_state_dict(theirs.state_dict())
    before = copy.deepcopy(ours.obs_rms.mean)
    ours.update_running_mean = False
    other = pickle.loads(pickle.dumps(ours))
    first, second = ours.step(PUSHES[0]), other.step(PUSHES[0])
    assert_same(first[:4], second[:4])
    assert_same(ours.obs_rms.mean, before)


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax"])
def test_single_environments(xp):
    ours, theirs = CartPole().make(xp=xp, translate=True), CartPole().make(xp="jax")
    assert_same(ours.reset(seed=2), theirs.reset(seed=2))
    for action in (1, np.int64(0), torch.tensor(1)):
        given, expected = ours.step(action), theirs.step(action)
        assert_same(given[0], expected[0])
        assert [type(x) for x in given[1:4]] == [float, bool, bool]
        assert given[1:4] == expected[1:4]
        assert ours.observation_space.contains(given[0])
    pytest.importorskip("arrayferry_suites")
    env = make("arrayferry/Pendulum-v0", xp=xp, translate=True)
    env.reset(seed=1)
    assert env.step(np.zeros(1, np.float32))[0].shape == (3,)


@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_states_and_masks(xp):
    ours, theirs = CartPole().make_vec(4, xp=xp, translate=True), in_jax(CartPole())
    for envs in (ours, theirs):
        envs.reset(seed=1)
    theirs.step(PUSHES[0])
    ours.state = state = theirs.state
    assert_same(ours.step(PUSHES[1])[:4], theirs.step(PUSHES[1])[:4])
    kept = ours.state
    before = af.convert(kept, "numpy", copy=True)
    ours.step(PUSHES[2])
    assert_same(kept, before)
    theirs.state = kept
    mask = {"reset_mask": [True, False, True, False]}
    for options in (mask, {"state": state, **mask}, {"state": state}):
        ours.state = theirs.state
        for envs in (ours, theirs):
            envs.reset(seed=8)
        assert_same(ours.reset(options=options), theirs.reset(options=options))
        assert_same(ours.state, theirs.state)
    assert af.backend_of(ours.state.position).name == xp


@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_parameters(xp):
    def results(envs):
        params = {"gravity": np.float32([9, 8, 7, 6])}
        found = [envs.reset(seed=1, options={"params": params}), envs.step(PUSHES[0])]
        options = {"params": {"gravity": 5.0}, "reset_mask": [True, False, False, False]}
        found += [envs.reset(options=options), envs.step(PUSHES[1])]
        return [*found, envs.params.gravity]

    options = {"params": {"force": 3.0}}
    ours = CartPole().make_vec(4, xp=xp, translate=True, **options)
    assert_same(results(ours), results(in_jax(CartPole(), **options)))


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**40, [1, 2, 3, 4], [2**35, 1, 2, 3]])
@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_seeds(seed, xp):
    envs = CartPole().make_vec(4, xp=xp, translate=True)
    assert_same(walked(envs, 2, seed=seed), walked(in_jax(CartPole()), 2, seed=seed))


def test_without_a_seed_episodes_differ():
    envs = CartPole().make_vec(4, translate=True)
    assert (envs.reset()[0] != envs.reset()[0]).all()


@pytest.mark.parametrize("xp", list(LIBRARIES))
def test_copies_go_on_by_themselves(xp):
    envs = CartPole().make_vec(4, xp=LIBRARIES[xp], translate=True)
    for number in range(3):
        copies = [envs, copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))]
        if number == 0:
            results = [each.reset(seed=4) for each in copies]
        else:
            results = [each.step(PUSHES[number]) for each in copies]
        for each in results[1:]:
            assert_same(each, results[0])


def _next(connection, envs):
    connection.send(af.convert(envs.step(PUSHES[1]), "numpy"))


def test_a_copy_in_another_process():
    envs = CartPole().make_vec(4, xp="torch", translate=True)
    envs.reset(seed=1)
    envs.step(PUSHES[0])
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_next, args=(theirs, envs))
    process.start()
    assert ours.poll(60)
    assert_same(ours.recv(), envs.step(PUSHES[1]))
    process.join()


@pytest.mark.assumes_other("no_grad")
def test_gradients_are_those_of_the_library_itself():
    found = []
    start = Pendulum().make_vec(3, xp="torch")
    start.reset(seed=1)
    for translate in (True, False):
        envs = Pendulum().make_vec(3, xp="torch", differentiable=True, translate=translate)
        envs.reset(seed=1)
        envs.state = start.state
        force, total = torch.full((3, 1), 0.3, requires_grad=True), 0
        for _ in range(3):
            observation, reward, *_ = envs.step(force)
            total = total + reward.sum() + observation.sum()
        found.append(torch.autograd.grad(total, force)[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert found[0].abs().min() > 0.1


def test_libraries_without_gradients_leave_them_out():
    envs = CartPole().make_vec(4, differentiable=True, translate=True)
    assert_same(walked(envs, 2), walked(in_jax(CartPole()), 2))


def test_what_is_refused():
    for env, options, words in (
        (InTorch(), {}, "InTorch computes in torch.*Leave it out: only environments in JAX"),
        (CartPole(), {"translate": "yes"}, "translate='yes' is not valid"),
        (CartPole(), {"xp": "dask"}, "computed on demand, so the states of environments"),
    ):
        with pytest.raises(af.OptionError, match=words):
            env.make_vec(4, **{"xp": "torch", "translate": True, **options})
    envs = CartPole().make_vec(4, translate=True)
    with pytest.raises(af.OptionError, match="no option 'masks'"):
        envs.reset(options={"masks": 1})


def test_actions_are_checked_as_they_are_without_it():
    for check, action, words in (
        ("strict", torch.tensor([0, 1, 5, 0]), "5, at .2., is out of its range"),
        ("fit", torch.tensor([0.5, 1, 1, 1]), "takes whole numbers"),
        ("fit", torch.ones(3), "shape"),
    ):
        envs = CartPole().make_vec(4, xp="torch", translate=True, check_actions=check)
        envs.reset(seed=1)
        with pytest.raises(af.ConversionError, match=words):
            envs.step(action)
    ours = CartPole().make_vec(4, xp="torch", translate=True)
    for actions in ([[0, 1, 5, -3]], np.float32([[0, 1, 1, 0]])):
        assert_same(walked(ours, 1, actions), walked(in_jax(CartPole()), 1, actions))
    off = CartPole().make_vec(4, xp="torch", translate=True, check_actions="off")
    assert_same(walked(off, 3), walked(ours, 3))


def test_after_close_a_reset_is_needed():
    envs = CartPole().make_vec(4, xp="torch", translate=True)
    for _ in range(2):
        with pytest.raises(gym.error.ResetNeeded):
            envs.step(PUSHES[0])
        envs.reset(seed=1)
        envs.step(PUSHES[0])
        envs.close()


@pytest.mark.parametrize(("xp", "mode"), crossed(["numpy", "torch"], MODES[:2]))
def test_results_are_the_agents_own(xp, mode):
    for env in (CartPole(), Count(), InJax(), Still()):
        options = {"xp": xp, "translate": True, "autoreset_mode": mode}
        ours, theirs = (env.make_vec(4, **options) for _ in range(2))
        result = ours.reset(seed=1)
        theirs.reset(seed=1)
        for action in PUSHES[:10]:
            for x in af.flatten(result)[0]:
                x[...] = 1
            result = ours.step(action)
            assert_same(result, theirs.step(action))
            arrays = af.flatten(af.convert(result, "numpy"))[0]  # their own memory
            pairs = [(x, y) for n, x in enumerate(arrays) for y in arrays[:n]]
            assert not any(np.shares_memory(*pair) for pair in pairs)


def test_a_first_step_by_several_threads():
    batches = [CartPole().make_vec(4, xp="torch", translate=True) for _ in range(4)]
    found = []

    def step(envs):
        envs.reset(seed=1)
        found.append(envs.step(PUSHES[0])[0])

    threads = [threading.Thread(target=step, args=(envs,)) for envs in batches]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 4
    assert all((x == found[0]).all() for x in found)


def test_they_are_made_by_gymnasium_too_and_drawn():
    envs = gym.make_vec(
        "arrayferry/CartPole-v0", num_envs=2, xp="torch", translate=True, render_mode="rgb_array"
    )
    envs.reset(seed=1)
    assert envs.spec.kwargs["translate"] is True
    assert envs.step(torch.tensor([0, 1]))[0].shape == (2, 4)
    assert [image.shape for image in envs.render()] == [(400, 600, 3)] * 2
