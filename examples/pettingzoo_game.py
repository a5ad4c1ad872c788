"""Two agents learn tic-tac-toe from games against each other: one in JAX, one in PyTorch. The game is PettingZoo's.

Run it with `python examples/pettingzoo_game.py`. It takes less than a minute, and needs `pip install pettingzoo pygame`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
import torch
from pettingzoo.classic.tictactoe.tictactoe import env as tictactoe
from report import Add, bars
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from arrayferry_gym.pettingzoo import AECConversion

GAMES, UPDATES, TESTS = 32, 160, 200
MOVES = 5  # that a player makes at most
HIDDEN, RATE, ENTROPY = 128, 0.01, 0.2


class Move(NamedTuple):
    """A move of an agent, as arrays of its library."""

    board: Any
    mask: Any
    action: Any


class Player(Protocol):
    """One who plays."""

    def act(self, observation: Any) -> Any:
        """Return an action."""


# Both agents are the same: a network of two layers, which learns by the gradient of log-probability times return (REINFORCE).


class JaxAgent:
    """An agent in JAX."""

    library = "jax"

    def __init__(self, seed: int) -> None:
        first, last, self.key = jax.random.split(jax.random.key(seed), 3)
        self.weights = [
            jax.random.normal(first, (18, HIDDEN)) / 18**0.5,
            jax.random.normal(last, (HIDDEN, 9)) / HIDDEN**0.5,
        ]
        optimiser = optax.adam(RATE)
        self.state = optimiser.init(self.weights)

        def logits(weights: Any, move: Move) -> Any:
            boards = move.board.reshape(-1, 18).astype(jnp.float32)
            return jnp.where(move.mask, jax.nn.relu(boards @ weights[0]) @ weights[1], -1e9)

        def choose(weights: Any, key: Any, board: Any, mask: Any) -> Any:
            key, own = jax.random.split(key)
            return key, jax.random.categorical(own, logits(weights, Move(board, mask, None))[0])

        def loss(weights: Any, moves: Move, advantages: Any) -> Any:
            known = jax.nn.log_softmax(logits(weights, moves))
            chosen = known[jnp.arange(len(moves.action)), moves.action]
            return (ENTROPY * (jnp.exp(known) * known).sum(-1) - chosen * advantages).mean()

        def update(weights: Any, state: Any, moves: Move, advantages: Any) -> Any:
            change, state = optimiser.update(jax.grad(loss)(weights, moves, advantages), state)
            return optax.apply_updates(weights, change), state

        self.choose, self.update = jax.jit(choose), jax.jit(update)

    def act(self, observation: Any) -> Any:
        board, mask = observation["observation"], observation["action_mask"]
        self.key, action = self.choose(self.weights, self.key, board, mask)
        return action

    def learn(self, moves: Sequence[Move], advantages: Sequence[float]) -> None:
        batch = Move(*(jnp.stack(parts) for parts in zip(*moves, strict=True)))
        self.weights, self.state = self.update(
            self.weights, self.state, batch, jnp.asarray(advantages)
        )


class TorchAgent:
    """The same in PyTorch."""

    library = "torch"

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.weights = [
            (torch.randn(shape, generator=self.random) / shape[0] ** 0.5).requires_grad_()
            for shape in ((18, HIDDEN), (HIDDEN, 9))
        ]
        self.optimiser = torch.optim.Adam(self.weights, RATE)

    def logits(self, boards: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(boards.reshape(-1, 18).float() @ self.weights[0])
        return torch.where(masks.bool(), hidden @ self.weights[1], -1e9)

    @torch.no_grad()
    def act(self, observation: Any) -> Any:
        board, mask = observation["observation"], observation["action_mask"]
        probabilities = self.logits(board, mask).softmax(-1)
        return torch.multinomial(probabilities[0], 1, generator=self.random)[0]

    def learn(self, moves: Sequence[Move], advantages: Sequence[float]) -> None:
        boards, masks, actions = (torch.stack(parts) for parts in zip(*moves, strict=True))
        known = self.logits(boards, masks).log_softmax(-1)
        chosen = known[torch.arange(len(actions)), actions]
        self.optimiser.zero_grad()
        loss = ENTROPY * (known.exp() * known).sum(-1) - chosen * torch.tensor(advantages)
        loss.mean().backward()
        self.optimiser.step()


class RandomPlayer:
    """One who does not learn, in any library."""

    def __init__(self, space: Any) -> None:
        self.space = space

    def act(self, observation: Any) -> Any:
        return self.space.sample(observation["action_mask"])


def play(
    env: AECConversion, players: Mapping[str, Player]
) -> tuple[dict[str, float], dict[str, list[Move]]]:
    """Play a game. Return the reward of each player, 1 for who wins and -1 for who loses, and the moves of each.

    Examples:
        >>> env = AECConversion(tictactoe(), target_xp="torch")
        >>> rewards, moves = play(env, {agent: RandomPlayer(env.action_space(agent)) for agent in env.possible_agents})
        >>> sum(rewards.values()), len(moves["player_1"]) >= 3
        (0.0, True)
    """
    env.reset()
    rewards = dict.fromkeys(env.agents, 0.0)
    moves: dict[str, list[Move]] = {agent: [] for agent in env.agents}
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        rewards[agent] += reward
        if terminated or truncated:
            env.step(None)
            continue
        action = players[agent].act(observation)
        moves[agent].append(Move(observation["observation"], observation["action_mask"], action))
        env.step(action)
    return rewards, moves


def learn(
    env: AECConversion, agents: Mapping[str, Any], add: Add, updates: int = UPDATES
) -> list[float]:
    """Let two agents learn from games against each other. Return the mean rewards of the first after each update."""
    show, scores = add("JAX against PyTorch", updates), []
    for update in range(1, updates + 1):
        games = [play(env, agents) for _ in range(GAMES)]
        for name, agent in agents.items():
            mean = sum(rewards[name] for rewards, _ in games) / GAMES
            moves, advantages = [], []
            for rewards, made in games:
                missing = MOVES - len(made[name])  # batches of one shape compile once
                moves += made[name] + made[name][:1] * missing
                advantages += [rewards[name] - mean] * len(made[name]) + [0.0] * missing
            agent.learn(moves, advantages)
        scores.append(sum(rewards["player_1"] for rewards, _ in games) / GAMES)
        show(update, scores[-1])
    return scores


def strength(env: AECConversion, name: str, agent: Player, games: int = TESTS) -> list[float]:
    """Return the shares of games that an agent wins, draws and loses against a player who moves at random."""
    players: dict[str, Player] = {a: RandomPlayer(env.action_space(a)) for a in env.possible_agents}
    found = [play(env, {**players, name: agent})[0][name] for _ in range(games)]
    return [found.count(reward) / games for reward in (1.0, 0.0, -1.0)]


def main(updates: int = UPDATES, games: int = TESTS) -> dict[str, list[list[float]]]:
    """Let the agents learn, and show how well they play before and after."""
    agents: dict[str, Any] = {"player_1": JaxAgent(0), "player_2": TorchAgent(0)}
    targets = {name: agent.library for name, agent in agents.items()}
    env = AECConversion(tictactoe(), target_xp=targets)
    for number, name in enumerate(agents):
        env.action_space(name).seed(number)
    found = {name: [strength(env, name, agent, games)] for name, agent in agents.items()}
    with bars() as add:
        learn(env, agents, add, updates)
    table = Table(box=SIMPLE, title="Against a player who moves at random")
    for title in ("", "", "wins", "draws", "losses"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for name, agent in agents.items():
        found[name].append(strength(env, name, agent, games))
        for when, shares in zip(("before", "after"), found[name], strict=True):
            label = f"{name}, {agent.library}" if when == "before" else ""
            table.add_row(label, when, *(f"{share:.0%}" for share in shares))
    Console(width=80).print(table)
    return found


if __name__ == "__main__":
    main()
