"""Mountain car: a car in a valley is too weak for the hill, and must gather speed on the other side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from gymnasium.envs.classic_control import Continuous_MountainCarEnv, MountainCarEnv

from arrayferry_envs import FunctionalEnv

from .drawing import image_of


class MountainCarParams(NamedTuple):
    """The parameters of `MountainCar` and `MountainCarContinuous`, which have no units.

    Attributes:
        gravity: the acceleration on the steepest slope.
        force: the force of the motor at full power.
        min_position: the position of the wall on the left.
        max_position: the position of the end on the right.
        max_speed: the highest velocity.
        goal_position: the position to reach.
        goal_velocity: the minimum velocity there.
        min_start: the lowest initial position.
        max_start: the highest initial position.
    """

    gravity: Any = 0.0025
    force: Any = 0.001
    min_position: Any = -1.2
    max_position: Any = 0.6
    max_speed: Any = 0.07
    goal_position: Any = 0.5
    goal_velocity: Any = 0.0
    min_start: Any = -0.6
    max_start: Any = -0.4


class MountainCarState(NamedTuple):
    """The state of both environments: arrays of shape (n,) and dtype float32."""

    position: Any
    velocity: Any


class _MountainCar(FunctionalEnv):
    """What both environments have in common.

    Attributes:
        drawn_by: the environment of Gymnasium that has the same states.
    """

    observation_space: Space[Any] = spaces.Box(
        np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32)
    )
    drawn_by: type[Any]
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}

    def reset(self, xp: Any, rng: Any, n: int, params: Any) -> MountainCarState:
        """Return cars at rest near the bottom."""
        position = rng.uniform((n,), params.min_start, params.max_start)
        return MountainCarState(position, xp.zeros((n,), dtype=xp.float32))

    def _moved(self, xp: Any, state: MountainCarState, thrust: Any, params: Any) -> Any:
        """Return the next states, and which cars have reached the goal."""
        position, velocity = state
        velocity = velocity + thrust - xp.cos(3 * position) * params.gravity
        velocity = xp.clip(velocity, -params.max_speed, params.max_speed)
        position = xp.clip(position + velocity, params.min_position, params.max_position)
        stopped = (position <= params.min_position) & (velocity < 0)
        velocity = xp.where(stopped, xp.zeros_like(velocity), velocity)
        at_goal = (position >= params.goal_position) & (velocity >= params.goal_velocity)
        return MountainCarState(position, velocity), at_goal

    def observe(self, xp: Any, state: MountainCarState, params: Any) -> Any:
        """Return position and velocity."""
        return xp.stack(list(state), axis=1)

    def render(self, state: MountainCarState, index: int) -> Any:
        """Draw it as Gymnasium does. This needs pygame."""
        numbers = np.array([float(x[index]) for x in state])
        return image_of(self.drawn_by(render_mode="rgb_array"), state=numbers)


class MountainCar(_MountainCar):
    """Reach the top of the hill with a motor that pushes left, right or not at all, as in Gymnasium's `MountainCar-v0`.

    Observations are float32 of shape (2,): position and velocity. Action 0 accelerates to the left, 1 not at all, 2
    to the right. The reward is -1 at each step. An episode terminates at the goal, and is truncated after 200 steps.

    Source: Moore, Efficient memory-based learning for robot control, 1990.

    Examples:
        >>> from arrayferry_classic import MountainCar
        >>> envs = MountainCar().make_vec(4)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        (4, 2)
    """

    action_space: Space[Any] = spaces.Discrete(3)
    max_episode_steps: int | None = 200
    default_params: Any = MountainCarParams()
    drawn_by = MountainCarEnv

    def step(
        self, xp: Any, rng: Any, state: MountainCarState, action: Any, params: Any
    ) -> tuple[MountainCarState, Any, Any]:
        """Advance by one step."""
        thrust = xp.astype(action - 1, xp.float32) * params.force
        state, at_goal = self._moved(xp, state, thrust, params)
        return state, -1.0, at_goal


class MountainCarContinuous(_MountainCar):
    """Reach the top of the hill with a motor of adjustable power, as in Gymnasium's `MountainCarContinuous-v0`.

    Observations are float32 of shape (2,): position and velocity. Actions are float32 of shape (1,): the
    power, from -1 to 1. The reward is 100 at the goal, minus 0.1 times the squared power. An episode terminates at the
    goal, and is truncated after 999 steps.

    Examples:
        >>> from arrayferry_classic import MountainCarContinuous
        >>> envs = MountainCarContinuous().make_vec(4)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        (4, 2)
    """

    action_space: Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps: int | None = 999
    default_params: Any = MountainCarParams(force=0.0015, goal_position=0.45)
    drawn_by = Continuous_MountainCarEnv

    def step(
        self, xp: Any, rng: Any, state: MountainCarState, action: Any, params: Any
    ) -> tuple[MountainCarState, Any, Any]:
        """Advance by one step."""
        power = action[:, 0]
        state, at_goal = self._moved(xp, state, power * params.force, params)
        return state, 100.0 * xp.astype(at_goal, xp.float32) - 0.1 * (power * power), at_goal
