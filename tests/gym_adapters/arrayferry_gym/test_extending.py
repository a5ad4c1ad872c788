"""What packages that build on adapters use: few names, each with an example, which refuse what does not fit."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import arrayferry as af
from arrayferry_gym import extending


def test_names_are_few_and_each_has_an_example():
    examples = re.findall(r"^ {4}\S.*", extending.__doc__, re.MULTILINE)
    shown = set(re.findall(r"\w+", " ".join(examples[1:])))
    assert len(extending.__all__) <= 40
    assert set(extending.__all__) - shown == set()


WRONG = {
    "Libraries": (af.ArrayFerryError, {}, "no_library", None, None, None),
    "as_rewards": (TypeError, [1, 2], 3), "autoreset_mode_of": (af.OptionError, "sometimes"),
    "cast_fitting": (af.NarrowingError, np.array([-1]), np.dtype("uint8"), "it"),
    "gymnasium_space": (TypeError, "no space"), "reset_mask_of": (af.OptionError, [True], 2),
    "refuse_batch": (TypeError, "mine", SimpleNamespace(num_envs=2, step=print)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name):
    error, *arguments = WRONG[name]
    with pytest.raises(error):
        getattr(extending, name)(*arguments)
