"""An agent in PyTorch learns on environments in JAX, or on Gymnasium's, which are in NumPy.

Run it with `python examples/ppo_torch.py`, or with `--environment numpy`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from ppo import ACTIONS, HIDDEN, OBSERVATION, Settings
from report import Line, bars, draw, table
from stepwise import run
from torch.distributions import Categorical

from arrayferry_envs import Trajectory
from arrayferry_gym import advantages


def network() -> torch.nn.Module:
    """Return a network of logits of actions and a value."""
    return torch.nn.Sequential(
        torch.nn.Linear(OBSERVATION, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, ACTIONS + 1)
    )


class TorchAgent:
    """Proximal policy optimisation as in `ppo.py`, in PyTorch.

    Args:
        settings: how it learns.
        seed: a whole number.

    Examples:
        >>> agent = TorchAgent(Settings(updates=2, num_envs=4, num_steps=8), seed=0)
        >>> result = run("agent", agent, "jax", 0, lambda name, updates: lambda done, score: None)
        >>> len(result.curves[0]), result.steps
        (2, 32)
    """

    library = "torch"

    def __init__(self, settings: Settings, seed: int) -> None:
        torch.manual_seed(seed)
        self.settings = settings
        self.net = network()
        self.optimiser = torch.optim.Adam(self.net.parameters(), settings.learning_rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(
            self.optimiser, start_factor=1.0, end_factor=0.0, total_iters=settings.total
        )

    def outputs(self, observation: Any) -> tuple[Categorical, Any]:
        """Return the distribution of actions, and the value."""
        outputs = self.net(observation)
        return Categorical(logits=outputs[..., :ACTIONS], validate_args=False), outputs[
            ..., ACTIONS
        ]

    @torch.no_grad()
    def act(self, observation: Any) -> tuple[Any, Any]:
        policy, _ = self.outputs(observation)
        action = policy.sample()
        return action, policy.log_prob(action)

    @torch.no_grad()
    def greedy(self, observation: Any) -> Any:
        return self.outputs(observation)[0].logits.argmax(-1)

    def learn(self, steps: list[Trajectory]) -> None:
        columns = zip(*steps, strict=True)
        fields = [torch.stack(column) for column in columns if column[0] is not None]
        self.learn_from(Trajectory(*fields))

    def learn_from(self, transitions: Trajectory) -> None:
        """Learn from arrays (time, environment, ...)."""
        settings = self.settings
        fields = [field for field in transitions if field is not None]
        with torch.no_grad():
            _, value = self.outputs(transitions.observation)
            _, following = self.outputs(transitions.final_observation)
        advantage = advantages(
            transitions, value, following, gamma=settings.gamma, lam=settings.lam
        )
        data = [x.flatten(0, 1) for x in (*fields, advantage, advantage + value)]
        shape = (settings.epochs * settings.minibatches, settings.minibatch)
        for rows in torch.randint(settings.per_update, shape):
            *parts, advantage, target = (x[rows] for x in data)
            loss = self.loss(Trajectory(*parts), advantage, target)
            self.optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), settings.gradient_norm)
            self.optimiser.step()
            self.schedule.step()

    def loss(self, transitions: Trajectory, advantage: Any, target: Any) -> Any:
        """Return the loss of a batch of transitions."""
        settings = self.settings
        policy, value = self.outputs(transitions.observation)
        ratio = (policy.log_prob(transitions.action) - transitions.extras).exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        gain = torch.minimum(ratio * advantage, clipped * advantage)
        losses = (
            -gain
            + settings.value_weight * (value - target) ** 2
            - settings.entropy_weight * policy.entropy()
        )
        return losses.mean()


def main() -> None:
    """Train, print what was measured, and draw the learning curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", choices=("jax", "numpy"), default="jax")
    parser.add_argument("--picture", default="ppo_torch.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    agent = TorchAgent(Settings(), given.seed)
    name = f"PyTorch agent, {({'jax': 'JAX', 'numpy': 'NumPy'})[given.environment]} environment"
    with bars() as add:
        result = run(name, agent, given.environment, given.seed, add)
    table([result])
    draw(given.picture, [Line(result.name, agent.settings.per_update, result.curves)], "steps", 10)


if __name__ == "__main__":
    main()
