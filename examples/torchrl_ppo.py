"""PPO by TorchRL learns CartPole in PyTorch, on environments in JAX.

Run it with `python examples/torchrl_ppo.py`.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import Any

import torch
from ppo import ACTIONS, HIDDEN, OBSERVATION, Settings
from report import Add, Line, Result, bars, draw, table
from tensordict.nn import TensorDictModule
from torchrl.envs import ExplorationType, RewardSum, TransformedEnv, set_exploration_type
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from arrayferry_envs import CartPole
from arrayferry_gym.torchrl import TorchRLEnv

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of TorchRL's own code
    from torchrl.collectors import Collector


def environment(num_envs: int) -> TransformedEnv:
    """Return CartPole in JAX for TorchRL, with the return of each episode.

    Examples:
        >>> environment(3).rollout(5)["observation"].shape
        torch.Size([3, 5, 4])
    """
    envs = CartPole().make_vec(num_envs, xp="jax", autoreset_mode="SameStep")
    return TransformedEnv(TorchRLEnv(envs, categorical_actions=True), RewardSum())


def network(outputs: int) -> torch.nn.Sequential:
    """Return a network."""
    return torch.nn.Sequential(
        torch.nn.Linear(OBSERVATION, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, outputs)
    )


def run(settings: Settings, seed: int, add: Add) -> Result:
    """Train an agent, and play 100 episodes with it.

    Examples:
        >>> settings = Settings(updates=2, num_envs=4, num_steps=8)
        >>> result = run(settings, 0, lambda name, updates: lambda done, score: None)
        >>> len(result.curves[0]), result.steps
        (2, 32)
    """
    name = "TorchRL agent, JAX environment"
    show = add(name, settings.updates)
    torch.manual_seed(seed)
    env = environment(settings.num_envs)
    env.set_seed(seed)
    logits = TensorDictModule(network(ACTIONS), ["observation"], ["logits"])
    actor = ProbabilisticActor(
        logits, ["logits"], spec=env.action_spec, distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )  # fmt: skip
    critic = ValueOperator(network(1), in_keys=["observation"])
    advantage = GAE(gamma=settings.gamma, lmbda=settings.lam, value_network=critic)
    loss = ClipPPOLoss(
        actor, critic, clip_epsilon=settings.clip, entropy_coeff=settings.entropy_weight,
        critic_coeff=settings.value_weight, loss_critic_type="l2", normalize_advantage=True,
    )  # fmt: skip
    optimiser = torch.optim.Adam(loss.parameters(), settings.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, settings.total)
    collector = Collector(
        env, actor, frames_per_batch=settings.per_update,
        total_frames=settings.per_update * settings.updates, auto_register_policy_transforms=False,
    )  # fmt: skip
    curve, times = [], [time.perf_counter()]
    for steps in collector:
        advantage(steps)
        data = steps.reshape(-1)
        for rows in torch.randint(
            len(data), (settings.epochs * settings.minibatches, settings.minibatch)
        ):
            losses = loss(data[rows])
            optimiser.zero_grad()
            sum(losses[key] for key in losses.keys() if key.startswith("loss_")).backward()  # noqa: SIM118
            torch.nn.utils.clip_grad_norm_(loss.parameters(), settings.gradient_norm)
            optimiser.step()
            schedule.step()
        ended = steps["next"][steps["next", "done"][..., 0]]
        curve.append(ended["episode_reward"].mean().item() if len(ended) else math.nan)
        times.append(time.perf_counter())
        show(len(curve), curve[-1])
    collector.shutdown()
    return Result(
        name, times[1] - times[0], times[-1] - times[1], (settings.updates - 1) * settings.per_update,
        [play(actor)], [curve],
    )  # fmt: skip


def play(actor: Any, episodes: int = 100) -> float:
    """Return the mean return of episodes without exploration."""
    env = environment(episodes)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        steps = env.rollout(500, actor, break_when_any_done=False, break_when_all_done=True)
    env.close()
    return float(steps["next", "episode_reward"][:, -1].mean())


def main(arguments: list[str] | None = None) -> float:
    """Train, print what was measured, draw the learning curve, and return the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="torchrl_ppo.png")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    settings = Settings()
    with bars() as add:
        result = run(settings, given.seed, add)
    table([result])
    draw(given.picture, [Line(result.name, settings.per_update, result.curves)], "steps", 10)
    return result.scores[0]


if __name__ == "__main__":
    main()
