"""Games of pgx."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry.typing import AnyTree
from arrayferry_envs import JaxEnv
from arrayferry_gym.extending import space_of


class PgxEnv(JaxEnv):
    """A game of pgx. One agent makes the moves of all players.

    Observations are dicts: "observation" is for the player whose turn it is, and "action_mask" marks the legal moves.
    The reward is for the player who has moved. Infos have "current_player", and the "rewards" of all players. No
    episode is truncated: if a game limits the number of moves, the limit terminates the game.

    Args:
        env: the game.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}

    def actions(self, example: AnyTree) -> Any:
        """Return the space of moves."""
        return spaces.Discrete(int(example.legal_action_mask.shape[0]))

    def observations(self, example: AnyTree) -> Any:
        """Return the space of observations and masks."""
        masks = spaces.MultiBinary(int(example["action_mask"].shape[0]))
        return spaces.Dict({"observation": space_of(example["observation"]), "action_mask": masks})

    def begin(self, key: Any, params: AnyTree) -> Any:
        """Return the state at the start of a game."""
        return self.env.init(jax.random.key_data(key))

    def advance(
        self, key: Any, kept: Any, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Make a move."""
        player = kept.current_player
        state = self.env.step(kept, action, jax.random.key_data(key))
        return state, state.rewards[player], state.terminated, state.truncated

    def observation_of(self, kept: Any, params: AnyTree) -> Any:
        """Return the observation, and the mask of legal moves."""
        return {"observation": kept.observation, "action_mask": kept.legal_action_mask}

    def info_of(self, kept: Any, params: AnyTree) -> dict[str, Any]:
        """Return the player whose turn it is, and the rewards of all players."""
        return {"current_player": kept.current_player, "rewards": kept.rewards}

    def image_of(self, kept: Any) -> Any:
        """Return pgx's SVG image, which CairoSVG and Pillow convert to an array."""
        try:
            to_png = import_module("cairosvg").svg2png
            from PIL import Image
        except (ImportError, OSError) as error:  # OSError means that the C library Cairo is missing
            raise af.OptionError(
                f"an image of a game of pgx needs CairoSVG and Pillow ({error})",
                remedy="Run: pip install cairosvg pillow. If the C library Cairo is missing, install it too.",
            ) from None
        png = to_png(bytestring=kept.to_svg().encode(), background_color="white")
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def adapt(env: Any) -> Any:
    """Convert a game to a `FunctionalEnv`."""
    return PgxEnv(env)
