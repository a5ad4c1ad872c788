"""How environments are shown in a notebook."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv


def env_facts(env: Any) -> dict[str, str]:
    """Return the facts that every view shows: the number of environments, the autoreset mode, and the spaces of one."""
    facts = {}
    single = ""
    if isinstance(env, VectorEnv):
        single = "single_"
        mode = (env.metadata or {}).get("autoreset_mode")
        facts["environments"] = str(env.num_envs)
        facts["autoreset mode"] = str(getattr(mode, "name", mode or ""))
    facts["observation space"] = str(getattr(env, f"{single}observation_space"))
    facts["action space"] = str(getattr(env, f"{single}action_space"))
    return facts
