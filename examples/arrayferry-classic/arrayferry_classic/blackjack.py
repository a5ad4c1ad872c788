"""Blackjack: get closer to 21 than the dealer, and not above."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from gymnasium.envs.toy_text import BlackjackEnv

from arrayferry_envs import FunctionalEnv

from .drawing import image_of
from .table import flat

CARDS = range(1, 11)
"""The values of cards; an ace is 1. Four of thirteen are 10."""


@functools.cache
def _of_dealer(total: int, ace: bool) -> tuple[float, ...]:
    """Return the probabilities of a dealer's final sums: more than 21, 17, 18, 19, 20 and 21.

    Args:
        total: the sum of the cards, with aces as 1.
        ace: whether there is one.
    """
    score = total + 10 if ace and total + 10 <= 21 else total
    if score >= 17:
        ends = [0.0] * 6
        ends[0 if score > 21 else score - 16] = 1.0
        return tuple(ends)
    rows = [(4 if card == 10 else 1, _of_dealer(total + card, ace or card == 1)) for card in CARDS]
    return tuple(sum(times * row[index] for times, row in rows) / 13 for index in range(6))


def _dealers() -> Any:
    """Return the cumulative probabilities of dealers' final sums, by their two cards, float32 (10, 10, 5)."""
    rows = [[_of_dealer(one + other, 1 in (one, other)) for other in CARDS] for one in CARDS]
    total = np.cumsum(rows, axis=2)[:, :, :5]
    total[total > 1 - 1e-9] = 1  # impossible sums are never drawn
    return total.astype(np.float32)


class BlackjackParams(NamedTuple):
    """The parameters of `Blackjack`.

    Attributes:
        natural: whether to win with a natural, an ace and a ten, pays 1.5.
        sab: whether the rules are those of Sutton and Barto, where a natural wins unless the dealer has one too.
            `natural` is then ignored.
        dealer: the cumulative probabilities that dealers end with more than 21, and with 17, 18, 19 and 20, by the
            values of their two cards minus 1, float32 (10, 10, 5).
    """

    natural: bool = False
    sab: bool = True
    dealer: Any = _dealers()


class BlackjackState(NamedTuple):
    """The state of `Blackjack`: arrays of shape (n,), int32 and bool.

    Attributes:
        total: the sum of the player's cards, with aces as 1.
        ace: whether the player has one.
        cards: how many the player has.
        showing: the dealer's face-up card, 1 to 10.
        hidden: the face-down one.
    """

    total: Any
    ace: Any
    cards: Any
    showing: Any
    hidden: Any


class Blackjack(FunctionalEnv):
    """Get closer to 21 than the dealer, as in Gymnasium's `Blackjack-v1`.

    Observations are the player's sum (Discrete(32)), the dealer's face-up card (Discrete(11), an ace is 1), and
    whether the player has an ace that counts as 11. Action 1 takes a card, 0 does not. The reward is 1 for a win, -1
    for a loss, 0 for a draw and before the end. Cards are drawn from an infinite deck. Infos have "action_mask",
    which is 1 for both actions.

    Source: Sutton and Barto, Reinforcement Learning: An Introduction, 2nd edition, 2018, example 5.1.

    Args:
        masks: whether observations are dicts of "observation" and "action_mask".

    Examples:
        >>> from arrayferry_classic import Blackjack
        >>> envs = Blackjack().make_vec(3, xp="torch", params={"sab": False, "natural": True})
        >>> (sums, dealers, aces), infos = envs.reset(seed=1)
        >>> sums.shape
        torch.Size([3])
    """

    observation_space: Space[Any] = spaces.Tuple(
        (spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2))
    )
    action_space: Space[Any] = spaces.Discrete(2)
    default_params: Any = BlackjackParams()
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, *, masks: bool = False) -> None:
        self.masks = masks
        if masks:
            self.observation_space = spaces.Dict(
                {"observation": self.observation_space, "action_mask": spaces.MultiBinary(2)}
            )

    def reset(self, xp: Any, rng: Any, n: int, params: BlackjackParams) -> BlackjackState:
        """Deal two cards to each."""
        cards = _drawn(xp, rng, (4, n))
        ace = (cards[0, :] == 1) | (cards[1, :] == 1)
        two = xp.full((n,), 2, dtype=xp.int32)
        return BlackjackState(cards[0, :] + cards[1, :], ace, two, cards[2, :], cards[3, :])

    def step(
        self, xp: Any, rng: Any, state: BlackjackState, action: Any, params: BlackjackParams
    ) -> tuple[Any, Any, Any]:
        """Draw a card for the player, or all of the dealer's cards."""
        hits = (action == 1) & (state.total <= 21)
        shape = state.total.shape
        card = xp.where(hits, _drawn(xp, rng, shape), xp.zeros_like(state.total))
        after = BlackjackState(
            state.total + card,
            state.ace | (card == 1),
            state.cards + xp.astype(hits, xp.int32),
            state.showing,
            state.hidden,
        )
        ends = self._dealer_ends(xp, rng, state, params)
        score = _score(xp, state.total, state.ace)
        score = xp.where(score > 21, xp.zeros_like(score), score)
        reward = xp.astype(score > ends, xp.float32) - xp.astype(score < ends, xp.float32)
        natural = (state.cards == 2) & state.ace & (state.total == 11)
        if params.sab:
            dealers = ((state.showing == 1) | (state.hidden == 1)) & (
                state.showing + state.hidden == 11
            )
            reward = xp.where(natural & ~dealers, xp.ones_like(reward), reward)
        elif params.natural:
            reward = xp.where(natural & (reward == 1), 1.5 * xp.ones_like(reward), reward)
        bust = after.total > 21
        hit = -xp.astype(bust, xp.float32)
        return after, xp.where(hits | bust, hit, reward), ~hits | bust

    def _dealer_ends(
        self, xp: Any, rng: Any, state: BlackjackState, params: BlackjackParams
    ) -> Any:
        """Draw dealers' final sums: 0 for more than 21, or 17 to 21."""
        pair = (state.showing - 1) * 10 + state.hidden - 1
        chances = xp.take(*flat(xp, params.dealer, pair, 2, (5,)), axis=0)
        above = xp.astype(rng.uniform((pair.shape[0], 1)) >= chances, xp.int32)
        ends = 16 + xp.sum(above, axis=1, dtype=xp.int32)
        return xp.where(ends > 16, ends, xp.zeros_like(ends))

    def observe(self, xp: Any, state: BlackjackState, params: BlackjackParams) -> Any:
        """Return the sum, the dealer's card, and whether an ace counts as 11."""
        usable = state.ace & (state.total + 10 <= 21)
        seen = (_score(xp, state.total, state.ace), state.showing, xp.astype(usable, xp.int32))
        return {"observation": seen, "action_mask": _both(xp, state)} if self.masks else seen

    def info(self, xp: Any, state: BlackjackState, params: BlackjackParams) -> dict[str, Any]:
        """Return masks that allow both actions."""
        return {} if self.masks else {"action_mask": _both(xp, state)}

    def render(self, state: BlackjackState, index: int) -> Any:
        """Draw it as Gymnasium does, with a fixed suit. This needs pygame."""
        total, showing = int(state.total[index]), int(state.showing[index])
        ace = bool(state.ace[index])
        return image_of(
            BlackjackEnv(render_mode="rgb_array"),
            player=[1, total - 1] if ace else [total], dealer=[showing, int(state.hidden[index])],
            dealer_top_card_value_str={1: "A", 10: "K"}.get(showing, str(showing)),
        )  # fmt: skip


def _drawn(xp: Any, rng: Any, shape: Any) -> Any:
    """Draw cards: their values, int32."""
    card = rng.integers(shape, 1, 14)
    return xp.where(card > 10, xp.full_like(card, 10), card)


def _score(xp: Any, total: Any, ace: Any) -> Any:
    """Return sums in which an ace counts as 11 where it can."""
    return xp.where(ace & (total + 10 <= 21), total + 10, total)


def _both(xp: Any, state: BlackjackState) -> Any:
    return xp.ones((state.total.shape[0], 2), dtype=xp.int8)
