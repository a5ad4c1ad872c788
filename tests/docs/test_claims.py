"""What README.md says of Gymnasium's wrappers is so, and what it says of ours."""

import subprocess
import sys

import dask.array as da
import gymnasium as gym
import gymnasium.wrappers.vector
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import begun, make_vec
from gymnasium.wrappers import NumpyToTorch
from gymnasium.wrappers.array_conversion import array_conversion

import arrayferry as af
import arrayferry_gym
import arrayferry_gym.vector

FLIPPED = """
import numpy as np
import torch
from {module} import array_conversion
print(array_conversion(np.zeros((2, 2), np.uint8)[::-1], xp=torch).shape)
"""


class Speaking(gym.Wrapper):
    """Has a text among its infos."""

    def reset(self, **options):
        return self.env.reset(**options)[0], {"mission": "go to the door"}


def convert_flipped(module: str) -> subprocess.CompletedProcess[str]:
    code = FLIPPED.format(module=module)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.long
def test_a_flipped_image():
    theirs = convert_flipped("gymnasium.wrappers.array_conversion")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
        assert theirs.returncode < 0  # by a signal
    else:
        assert theirs.returncode == 1
        assert "RuntimeError: Storage size calculation overflowed" in theirs.stderr
    assert convert_flipped("arrayferry_gym").stdout == "torch.Size([2, 2])\n"


def test_last_observations():
    def ended(adapter, **options):
        envs = begun(adapter(make_vec(3, gym.vector.AutoresetMode.SAME_STEP), **options))
        while True:
            *_, terminated, _, infos = envs.step(torch.zeros(3, dtype=torch.int64))
            if terminated.any():
                return infos["final_obs"]

    with pytest.raises(BufferError):
        ended(gym.wrappers.vector.NumpyToTorch)
    assert ended(arrayferry_gym.vector.NumpyToTorch, stack_final=True).shape == (3, 4)


def test_a_large_number():
    assert array_conversion(np.array(2**40), xp=jnp) == 0
    with pytest.raises(af.NarrowingError, match=r"\['step'\]"):
        af.convert({"step": np.array(2**40)}, "jax")


def test_a_text_in_an_info():
    env = Speaking(gym.make("CartPole-v1"))
    assert "<generator object" in NumpyToTorch(env).reset()[1]["mission"]
    assert arrayferry_gym.NumpyToTorch(env).reset()[1]["mission"] == "go to the door"


def test_a_buffer_that_is_written_to_again():
    memory = np.zeros(80, np.float32)
    first = -memory.ctypes.data % 64 // 4
    aligned = memory[first : first + 64]
    theirs, ours = array_conversion(aligned, xp=jnp), af.convert(aligned, "jax")
    aligned[0] = 1.0
    assert theirs[0] == 1.0
    assert ours[0] == 0.0


def test_a_dask_array():
    with pytest.raises(Exception, match=r"."):
        array_conversion(da.ones(3), xp=torch)
    assert af.convert(da.ones(3), "torch").tolist() == [1, 1, 1]
