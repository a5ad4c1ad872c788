"""Cart-pole: a pole stands on a cart, which a force pushes to the left or to the right."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs._drawing import ClassicEnv


class CartPoleParams(NamedTuple):
    """The parameters of `CartPole`, in metres, kilograms, seconds, newtons and radians.

    Attributes:
        gravity: the acceleration of gravity, in m/s^2.
        cart_mass: the mass of the cart.
        pole_mass: the mass of the pole.
        half_length: half the length of the pole.
        force: the size of the force on the cart, which acts to the left or to the right.
        time_step: the time between two observations.
        angle_limit: the largest angle of the pole from upright, in either direction. A larger angle ends the episode.
        position_limit: the largest distance of the cart from the center. A larger distance ends the episode.
        start: the bound of the four initial state variables, which are uniform between -start and start.
    """

    gravity: Any = 9.8
    cart_mass: Any = 1.0
    pole_mass: Any = 0.1
    half_length: Any = 0.5
    force: Any = 10.0
    time_step: Any = 0.02
    angle_limit: Any = 12 * 2 * math.pi / 360
    position_limit: Any = 2.4
    start: Any = 0.05


class CartPoleState(NamedTuple):
    """The state of `CartPole`: arrays of shape (n,) and dtype float32, in m, m/s, rad and rad/s."""

    position: Any
    velocity: Any
    angle: Any
    angular_velocity: Any


_HIGH = np.array([4.8, np.inf, 24 * 2 * math.pi / 360, np.inf], np.float32)


class CartPole(ClassicEnv):
    """Keep a pole upright on a cart, as in Gymnasium's `CartPole-v1`.

    Observations are float32 of shape (4,): position (m), velocity (m/s), angle (rad), angular velocity (rad/s). Action 0
    pushes to the left, action 1 to the right. The reward is 1 at each step. An episode terminates when the cart or the
    pole exceeds its limit, and is truncated after 500 steps.

    Source: Barto, Sutton and Anderson, Neuronlike adaptive elements that can solve difficult learning control problems,
    1983. Equations: Florian, Correct equations for the dynamics of the cart-pole system, 2007.

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> envs = CartPole().make_vec(8, xp="jax")
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        (8, 4)
    """

    observation_space: Space[Any] = spaces.Box(-_HIGH, _HIGH)
    action_space: Space[Any] = spaces.Discrete(2)
    max_episode_steps: int | None = 500
    default_params: Any = CartPoleParams()
    drawn_by = "CartPoleEnv"
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}

    def reset(self, xp: Namespace, rng: Any, n: int, params: AnyTree) -> CartPoleState:
        """Return states near 0, in which the pole is nearly upright."""
        state_rows = rng.uniform((4, n), -params.start, params.start)
        return CartPoleState(state_rows[0, :], state_rows[1, :], state_rows[2, :], state_rows[3, :])

    def step(
        self, xp: Namespace, rng: Any, state: CartPoleState, action: AnyTree, params: AnyTree
    ) -> tuple[CartPoleState, Any, Any]:
        """Advance by one step of Euler's method."""
        position, velocity, angle, angular_velocity = state
        total_mass = params.cart_mass + params.pole_mass
        thrust = params.force / total_mass
        # the distance from the joint to the common center of mass of cart and pole
        center_of_mass = params.pole_mass * params.half_length / total_mass
        cosine, sine = xp.cos(angle), xp.sin(angle)
        # the acceleration of the cart if the pole turned at a constant rate
        uncoupled_acceleration = (
            xp.astype(action, xp.float32) * (2 * thrust)
            - thrust
            + center_of_mass * (angular_velocity * angular_velocity) * sine
        )
        coupling = center_of_mass * cosine
        angular_acceleration = (params.gravity * sine - cosine * uncoupled_acceleration) / (
            params.half_length * (4.0 / 3.0) - coupling * cosine
        )
        acceleration = uncoupled_acceleration - coupling * angular_acceleration
        time_step = params.time_step
        state = CartPoleState(
            position + time_step * velocity,
            velocity + time_step * acceleration,
            angle + time_step * angular_velocity,
            angular_velocity + time_step * angular_acceleration,
        )
        has_fallen = xp.abs(state.angle) > params.angle_limit
        return state, 1.0, has_fallen | (xp.abs(state.position) > params.position_limit)
