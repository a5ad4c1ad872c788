"""Pendulum: a pendulum hangs from a motor that is too weak to lift it at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs._drawing import ClassicEnv


class PendulumParams(NamedTuple):
    """The parameters of `Pendulum`, in metres, kilograms, seconds and radians.

    Attributes:
        gravity: the acceleration of gravity, in m/s^2.
        mass: the mass of the pendulum, in kg.
        length: the length of the pendulum, in m.
        time_step: the time between two observations, in s.
        max_torque: the largest torque, in N m, to which actions are clipped.
        max_angular_velocity: the bound to which angular velocities are clipped, in rad/s.
        start_angle: the bound of initial angles, which are uniform between -start_angle and start_angle. 0 is upright.
        start_angular_velocity: the bound of initial angular velocities, which are uniform between
            -start_angular_velocity and start_angular_velocity.
    """

    gravity: Any = 10.0
    mass: Any = 1.0
    length: Any = 1.0
    time_step: Any = 0.05
    max_torque: Any = 2.0
    max_angular_velocity: Any = 8.0
    start_angle: Any = math.pi
    start_angular_velocity: Any = 1.0


class PendulumState(NamedTuple):
    """The state of `Pendulum`: arrays of shape (n,) and dtype float32, in radians and radians per second."""

    angle: Any
    angular_velocity: Any


class Pendulum(ClassicEnv):
    """Swing a pendulum up and keep it upright, as in Gymnasium's `Pendulum-v1`.

    Observations are float32 of shape (3,): cosine and sine of the angle, and angular velocity (rad/s). Actions are float32 of
    shape (1,): a torque from -2 to 2 N m. The reward is minus the sum of the squared angle, 0.1 times the squared
    angular velocity and 0.001 times the squared torque. Episodes never terminate; they are truncated after 200
    steps.

    Examples:
        >>> from arrayferry_envs import Pendulum
        >>> env = Pendulum().make(xp="torch")
        >>> observation, info = env.reset(seed=1)
        >>> observation.shape
        torch.Size([3])
    """

    observation_space: Space[Any] = spaces.Box(
        np.array([-1, -1, -8], np.float32), np.array([1, 1, 8], np.float32)
    )
    action_space: Space[Any] = spaces.Box(-2.0, 2.0, (1,), np.float32)
    max_episode_steps: int | None = 200
    default_params: Any = PendulumParams()
    drawn_by = "PendulumEnv"

    def reset(self, xp: Namespace, rng: Any, n: int, params: AnyTree) -> PendulumState:
        """Return states with random angles and angular velocities."""
        uniforms = rng.uniform((2, n), -1.0, 1.0)
        return PendulumState(
            uniforms[0, :] * params.start_angle, uniforms[1, :] * params.start_angular_velocity
        )

    def step(
        self, xp: Namespace, rng: Any, state: PendulumState, action: AnyTree, params: AnyTree
    ) -> tuple[PendulumState, Any, Any]:
        """Advance by one step of the semi-implicit Euler method."""
        angle, angular_velocity = state
        torque = xp.clip(action[:, 0], -params.max_torque, params.max_torque)
        # the angle from upright, in [-pi, pi)
        from_upright = angle + math.pi
        from_upright = from_upright - 2 * math.pi * xp.floor(from_upright / (2 * math.pi)) - math.pi
        speed_squared = angular_velocity * angular_velocity
        cost = from_upright * from_upright + 0.1 * speed_squared + 0.001 * (torque * torque)
        gravity_acceleration = (1.5 * params.gravity / params.length) * xp.sin(angle)
        torque_acceleration = (3.0 / (params.mass * params.length * params.length)) * torque
        angular_acceleration = gravity_acceleration + torque_acceleration
        angular_velocity = xp.clip(
            angular_velocity + angular_acceleration * params.time_step,
            -params.max_angular_velocity,
            params.max_angular_velocity,
        )
        angle = angle + angular_velocity * params.time_step
        return PendulumState(angle, angular_velocity), -cost, False

    def observe(self, xp: Namespace, state: PendulumState, params: AnyTree) -> Any:
        """Return cosine, sine and angular velocity."""
        return xp.stack([xp.cos(state.angle), xp.sin(state.angle), state.angular_velocity], axis=1)
