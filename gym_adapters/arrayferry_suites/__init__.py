"""Environments of other projects: the suites that come with arrayferry, by the hook that every plugin can have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import arrayferry as af

if TYPE_CHECKING:
    from arrayferry_envs import Suite


@af.hookimpl(optionalhook=True)
def arrayferry_suites() -> Iterable[Suite]:
    """Return the suites. Each has a module, which is imported when it is named."""
    from ._suite import SUITES

    return SUITES
