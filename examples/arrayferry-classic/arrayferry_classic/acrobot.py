"""Acrobot: two links hang from each other, with a motor in the joint between them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from gymnasium.envs.classic_control import AcrobotEnv

from arrayferry_envs import FunctionalEnv

from .drawing import image_of


class AcrobotParams(NamedTuple):
    """The parameters of `Acrobot`, in metres, kilograms, seconds and radians.

    Attributes:
        gravity: the acceleration of gravity, in m/s^2.
        mass_1: the mass of the first link.
        mass_2: the mass of the second link.
        length_1: the length of the first link.
        center_1: the distance of the first link's centre of mass from its joint.
        center_2: the same for the second link.
        inertia: the moment of inertia of each link, in kg m^2.
        torque: the torque of the motor, in N m.
        time_step: the time between two observations.
        max_angular_velocity_1: the highest angular velocity of the first joint.
        max_angular_velocity_2: that of the second.
        start: the initial values of all four state variables are between minus this and this.
    """

    gravity: Any = 9.8
    mass_1: Any = 1.0
    mass_2: Any = 1.0
    length_1: Any = 1.0
    center_1: Any = 0.5
    center_2: Any = 0.5
    inertia: Any = 1.0
    torque: Any = 1.0
    time_step: Any = 0.2
    max_angular_velocity_1: Any = 4 * math.pi
    max_angular_velocity_2: Any = 9 * math.pi
    start: Any = 0.1


class AcrobotState(NamedTuple):
    """The state of `Acrobot`: arrays of shape (n,) and dtype float32, in radians and radians per second.

    The first angle is 0 where the first link hangs, the second where both are in line.
    """

    angle_1: Any
    angle_2: Any
    angular_velocity_1: Any
    angular_velocity_2: Any


_HIGH = np.array([1, 1, 1, 1, 4 * math.pi, 9 * math.pi], np.float32)


class Acrobot(FunctionalEnv):
    """Swing the lower end above the height of one link, as in Gymnasium's `Acrobot-v1`.

    Observations are float32 of shape (6,): cosine and sine of each angle, and both angular velocities (rad/s).
    Action 0 applies torque in one direction, 1 none, 2 in the other direction. The reward is -1 at each step, and 0
    at the goal, where the episode terminates. It is truncated after 500 steps.

    Source: Sutton, Generalization in reinforcement learning: successful examples using sparse coarse coding, 1996, with
    the equations of Sutton and Barto's book.

    Examples:
        >>> from arrayferry_classic import Acrobot
        >>> envs = Acrobot().make_vec(4)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        (4, 6)
    """

    observation_space: Space[Any] = spaces.Box(-_HIGH, _HIGH)
    action_space: Space[Any] = spaces.Discrete(3)
    max_episode_steps: int | None = 500
    default_params: Any = AcrobotParams()
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}

    def reset(self, xp: Any, rng: Any, n: int, params: Any) -> AcrobotState:
        """Return links hanging almost at rest."""
        numbers = rng.uniform((4, n), -params.start, params.start)
        return AcrobotState(numbers[0, :], numbers[1, :], numbers[2, :], numbers[3, :])

    def step(
        self, xp: Any, rng: Any, state: AcrobotState, action: Any, params: Any
    ) -> tuple[AcrobotState, Any, Any]:
        """Advance by one step of the classical fourth-order Runge-Kutta method."""
        torque = xp.astype(action - 1, xp.float32) * params.torque
        step = params.time_step

        def after(time: Any, derivative: Any) -> Any:
            return tuple(x + time * change for x, change in zip(state, derivative, strict=True))

        k1 = _derivative(xp, state, torque, params)
        k2 = _derivative(xp, after(step / 2, k1), torque, params)
        k3 = _derivative(xp, after(step / 2, k2), torque, params)
        k4 = _derivative(xp, after(step, k3), torque, params)
        angle_1, angle_2, velocity_1, velocity_2 = (
            x + step / 6 * (a + 2 * b + 2 * c + d)
            for x, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)
        )
        state = AcrobotState(
            _wrapped(xp, angle_1),
            _wrapped(xp, angle_2),
            xp.clip(velocity_1, -params.max_angular_velocity_1, params.max_angular_velocity_1),
            xp.clip(velocity_2, -params.max_angular_velocity_2, params.max_angular_velocity_2),
        )
        height = -xp.cos(state.angle_1) - xp.cos(state.angle_1 + state.angle_2)
        at_goal = height > 1.0
        return state, xp.astype(at_goal, xp.float32) - 1.0, at_goal

    def observe(self, xp: Any, state: AcrobotState, params: Any) -> Any:
        """Return cosines, sines and angular velocities."""
        one, two, velocity_1, velocity_2 = state
        return xp.stack(
            [xp.cos(one), xp.sin(one), xp.cos(two), xp.sin(two), velocity_1, velocity_2], axis=1
        )

    def render(self, state: AcrobotState, index: int) -> Any:
        """Draw it as Gymnasium does, without what depends on the last action. This needs pygame."""
        numbers = np.array([float(x[index]) for x in state])
        return image_of(AcrobotEnv(render_mode="rgb_array"), state=numbers)


def _derivative(xp: Any, state: Any, torque: Any, params: Any) -> tuple[Any, Any, Any, Any]:
    """Return the derivatives of the four numbers of a state with respect to time."""
    angle_1, angle_2, velocity_1, velocity_2 = state
    m1, m2, l1 = params.mass_1, params.mass_2, params.length_1
    c1, c2, inertia = params.center_1, params.center_2, params.inertia
    cosine, sine = xp.cos(angle_2), xp.sin(angle_2)
    d1 = m1 * c1**2 + m2 * (l1**2 + c2**2 + 2 * l1 * c2 * cosine) + 2 * inertia
    d2 = m2 * (c2**2 + l1 * c2 * cosine) + inertia
    # cos(x - pi/2) is sin(x)
    phi2 = m2 * c2 * params.gravity * xp.sin(angle_1 + angle_2)
    phi1 = (
        -m2 * l1 * c2 * velocity_2**2 * sine
        - 2 * m2 * l1 * c2 * velocity_2 * velocity_1 * sine
        + (m1 * c1 + m2 * l1) * params.gravity * xp.sin(angle_1)
        + phi2
    )
    acceleration_2 = (torque + d2 / d1 * phi1 - m2 * l1 * c2 * velocity_1**2 * sine - phi2) / (
        m2 * c2**2 + inertia - d2**2 / d1
    )
    acceleration_1 = -(d2 * acceleration_2 + phi1) / d1
    return velocity_1, velocity_2, acceleration_1, acceleration_2


def _wrapped(xp: Any, angle: Any) -> Any:
    """Return an angle in [-pi, pi], given one that is at most one turn away."""
    angle = xp.where(angle > math.pi, angle - 2 * math.pi, angle)
    return xp.where(angle < -math.pi, angle + 2 * math.pi, angle)
