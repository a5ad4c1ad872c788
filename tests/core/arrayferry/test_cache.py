"""Dicts of limited size: what stays where more is needed than there is room for."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from interrupts import quick_turns

from arrayferry._utilities.cache import Cache


def hits(cache, keys):
    """Return how many keys were there, if those that were not are added."""
    found = 0
    for key in keys:
        found += key in cache
        if key not in cache:
            cache[key] = str(key)
        assert len(cache) <= cache.limit
        assert cache[key] == str(key)
    return found


@pytest.mark.parametrize(("count", "least"), [(64, 64), (65, 50), (80, 40), (128, 20)])
def test_a_little_too_much_still_has_hits(count, least):
    cache = Cache(64)
    hits(cache, [*range(count)] * 30)
    assert hits(cache, [*range(count)] * 30) >= 30 * least


def test_what_is_needed_no_more_goes():
    cache = Cache(64)
    hits(cache, range(1_000))
    later = [*range(2_000, 2_050)]
    hits(cache, later * 5)
    assert hits(cache, later) == 50


@pytest.mark.parametrize("limit", [1, 2, 7, 9])
def test_a_small_one_holds_what_was_added_last(limit):
    cache = Cache(limit)
    for key in range(100):
        hits(cache, [key])
    assert len(cache) >= limit // 2


def test_threads_fill_one_together():
    cache = Cache(16)

    def work(first):
        # another thread may have dropped a key, or be about to
        with contextlib.suppress(AssertionError, KeyError):
            hits(cache, range(first, first + 5_000))

    with quick_turns(), ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
