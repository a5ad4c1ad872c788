"""Masks for the infos of vector environments."""

from __future__ import annotations

from typing import Any

import numpy as np


def with_masks(infos: dict[str, Any]) -> dict[str, Any]:
    """Return infos with a mask for each key, as Gymnasium's vector environments do. Added masks are true everywhere."""
    masks = {
        f"_{key}": np.ones(len(x), bool)
        for key, x in infos.items()
        if key[0] != "_" and f"_{key}" not in infos
    }
    return {**infos, **masks}
