"""Dict and Tuple spaces as trees."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from arrayferry_gym._spaces.trees import build, leaves, split

SPACE = spaces.Dict({
    "move": spaces.Tuple([spaces.Discrete(3), spaces.Dict({"far": spaces.MultiBinary(2)})]),
    "look": spaces.Box(-1, 1, (2,), np.float32),
    "say": spaces.Text(5),
})  # fmt: skip


def refused(value, path, needed):
    return LookupError(f"{path}: {needed}")


def test_leaves_parts_and_places_are_in_one_order():
    sample = SPACE.sample()
    found = list(leaves(SPACE))
    assert [path for _, path in found] == [
        "['look']",
        "['move'][0]",
        "['move'][1]['far']",
        "['say']",
    ]
    parts = split(SPACE, sample, refused)
    assert all(part in space for (space, _), part in zip(found, parts, strict=True))
    assert build(SPACE, parts) == sample
    assert list(build(SPACE, parts)) == list(SPACE.spaces)


def test_a_space_without_others_is_its_own_leaf():
    assert list(leaves(spaces.Discrete(2))) == [(spaces.Discrete(2), "")]
    assert build(spaces.Discrete(2), split(spaces.Discrete(2), {"any": 1}, refused)) == {"any": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": 1}, r": a dict with the keys \['look', 'move', 'say'\]"),
        ({"move": (1,)}, r"\['move'\]: a tuple of 2"),
        ({"move": (1, 2)}, r"\['move'\]\[1\]: a dict with the keys \['far'\]"),
    ],
)
def test_a_value_of_another_structure_is_refused_with_its_place(change, message):
    with pytest.raises(LookupError, match=f"^{message}$"):
        split(SPACE, {**SPACE.sample(), **change}, refused)
