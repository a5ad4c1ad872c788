"""What each finding of the audit is: a fault, by design, or not declared, why, and the script that shows it alone.

- fault: it contradicts what the project or Gymnasium's interface says.
- by design: the project's own text says it.
- not declared: it is another convention than that of Gymnasium's text, and neither metadata nor text say so.
"""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """A row by its beginning, the check, the verdict, the text that it rests on, and the script in `reproduced`."""

    row: str
    check: str
    verdict: str
    text: str
    script: str


MASKS = "infos have no masks"
AGENTS = 'SuperSuit documents this: "a num_envs parameter equal to the max number of agents"'
VERDICTS = [
    Verdict("CartPoleJax", "others_step_while_one_resets", "fault", "what others do in that step is lost", "phys2d_stands_still"),
    Verdict("CartPoleJax", "steps_that_only_reset_return_nothing_else", "fault", "it states NEXT_STEP", "phys2d_reset_pays"),
    Verdict("CartPoleJax", "seeds_decide_all", "fault", "`reset` takes a seed", "phys2d_seed"),
    Verdict("PendulumJax", "modes_are_stated", "not declared", "the metadata are replaced by some without a mode", "phys2d_mode"),
    Verdict("PendulumJax", "actions_of_resets_do_not_count", "fault", "a reward is computed in the step that resets", "phys2d_pendulum"),
    Verdict("PendulumJax", "steps_that_only_reset_return_nothing_else", "fault", "as for CartPole", "phys2d_pendulum"),
    Verdict("PendulumJax", "seeds_decide_all", "fault", "as for CartPole", "phys2d_seed"),
    Verdict("FunctionalJax", "calls_can_be_read", "fault", "it states NEXT_STEP, and cannot reset", "tabular_reset"),
    Verdict("Atari", "rewards_and_flags_have_their_dtypes", "not declared", "rewards are int32", "ale_infos"),
    Verdict("Atari", "infos_have_masks", "not declared", MASKS, "ale_infos"),
    Verdict("Atari", "infos_are_of_their_episode", "not declared", "there is no final_info", "ale_infos"),
    Verdict("MOSync", "seeds_decide_all", "fault", "`reset` takes a seed", "minecart_seed"),
    Verdict("MOSync", "nothing_is_shared", "fault", "the cause is the same global generator", "minecart_seed"),
    Verdict("Gymnax", "infos_have_masks", "not declared", MASKS, "gymnax_infos"),
    Verdict("Gymnax", "ends_have_last_observations", "not declared", "the name is final_observation, without a mask", "gymnax_infos"),
    Verdict("Gymnax", "infos_are_of_their_episode", "not declared", "there is no final_info", "gymnax_infos"),
    Verdict("Drone", "seeds_decide_all", "fault", "`reset` takes a seed", "crazyflow_seed"),
    Verdict("Drone", "nothing_is_shared", "fault", "the cause is the same", "crazyflow_seed"),
    Verdict("Dummy", "modes_are_stated", "not declared", "its docstring says NEXT_STEP, its metadata do not", "agilerl_mode"),
    Verdict("EnvPool", "seeds_decide_all", "by design", 'EnvPool warns: "EnvPool seeds are fixed when the environment is created"', "envpool_seed"),
    Verdict("EnvPool", "spaces_are_of_batches", "not declared", "the spaces of four environments are those of one", "envpool_spaces"),
    Verdict("EnvPool", "infos_have_masks", "not declared", MASKS, "envpool_spaces"),
    Verdict("EnvPool Box2D", "observations_are_in_their_space", "fault", "the lower bound is the least positive number", "envpool_bounds"),
    Verdict("EnvPool dm_control", "observations_are_in_their_space", "fault", "as for Box2D", "envpool_bounds"),
    Verdict("EnvPool", "observations_are_in_their_space", "not declared", "int32 of a space that is int64", "envpool_dtypes"),
    *(
        Verdict(row, check, verdict, text, script)
        for row in ("MarkovVectorEnv", "ConcatVecEnv", "ProcConcatVec")
        for check, verdict, text, script in [
            ("rows_are_independent", "by design", AGENTS, "supersuit_agents"),
            ("spaces_are_of_batches", "not declared", "the spaces of all agents are those of one", "supersuit_agents"),
            ("rewards_and_flags_have_their_dtypes", "not declared", "flags are uint8", "supersuit_agents"),
            ("infos_have_masks", "not declared", "infos are a list, as before Gymnasium 0.25", "supersuit_agents"),
            ("ends_have_last_observations", "not declared", "the name is terminal_observation", "supersuit_agents"),
            ("arrays_are_not_overwritten", "not declared", "a list of infos is given again and changed", "supersuit_infos"),
        ]
    ),
]  # fmt: skip
