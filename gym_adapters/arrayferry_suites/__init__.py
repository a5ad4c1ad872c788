"""Suites of environments of other projects. The hook `arrayferry_suites` registers them, as in any plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import arrayferry as af

if TYPE_CHECKING:
    from arrayferry_envs import Suite


@af.hookimpl(optionalhook=True)
def arrayferry_suites() -> Iterable[Suite]:
    """Return the suites. The module of a suite is imported when the suite is used."""
    from ._suite import SUITES

    return SUITES
