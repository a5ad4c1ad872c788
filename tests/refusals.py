"""What must be refused, with which words."""

import pytest

import arrayferry as af


def refused(error, words, *args, **options):
    """Convert what must be refused, and return the error."""
    with pytest.raises(error, match=words) as caught:
        af.convert(*args, **options)
    return caught.value


def refused_step(env, action, words="action", error=af.ConversionError):
    """Take a step that must be refused."""
    with pytest.raises(error, match=words):
        env.step(action)
