"""The checks of a recorded run. Each check finds problems from the recorded results alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyTree
from arrayferry_gym.extending import ARRAYS, Episodes, held_dtype, leaves, split

from ._record import Call, Run, VectorProblem, digest, in_numpy, rows_in, space_of

PARTS = ("the observation", "the reward", "terminated", "truncated", "the dict of infos")
FEW = 20
"""If observations recur, episodes of at most this length may be games with a fixed number of rounds.

Equal lengths of such episodes are not reported as a time limit.
"""


Found = tuple[int | None, Call | None, str]
"""A problem: the index of the environment, the call, and what is wrong. None means all environments or calls."""
Check = Callable[[Run], Iterator[Found]]


def spaces_are_of_batches(run: Run) -> Iterator[Found]:
    for name in ("observation_space", "action_space"):
        own_space, wanted = getattr(run.envs, name), batch_space(space_of(run.envs, name), run.n)
        shapes, needs = ([leaf.shape for leaf, _ in leaves(space)] for space in (own_space, wanted))
        if shapes != needs or not hasattr(run.envs, f"single_{name}"):
            yield None, None, f"{name} is not batch_space(single_{name}, {run.n}): {own_space}"


def observations_are_in_their_space(run: Run) -> Iterator[Found]:
    for call in run.calls:
        _, backend = af.first_array(call.given[0])
        for name, batch in (("the observation", call.observations), ("final_obs", call.finals)):
            for env_index, obs in enumerate(batch):
                mismatch = None if obs is None else _unfit(run.observed, obs, backend or "numpy")
                if mismatch is not None:
                    yield env_index, call, f"{name}{mismatch}"


def _unfit(space: Any, observation: AnyTree, backend: Any) -> str | None:
    """Return how an observation differs from its space, as words after "the observation", or None if it fits."""
    try:
        leaf_values = split(
            space, observation, lambda _, path, needed: TypeError(f"{path} is not {needed}")
        )
    except TypeError as error:
        return str(error)
    for (leaf, path), x in zip(leaves(space), leaf_values, strict=True):
        if isinstance(leaf, ARRAYS):
            x, dtype = np.asarray(x), held_dtype(leaf.dtype, backend)
            if (str(x.dtype), x.shape) != (dtype, leaf.shape):
                return f"{path} is {x.dtype} of shape {x.shape}, not {dtype} of shape {leaf.shape}"
            if x.dtype.kind == "f" and np.isnan(x).any():
                return f"{path} is NaN"
            x = leaf.dtype.type(x)
        if not leaf.contains(x):
            return f"{path} is outside of {leaf!s:.100}: {' '.join(repr(x).split()):.100}"
    return None


def rewards_and_flags_have_their_dtypes(run: Run) -> Iterator[Found]:
    for call in run.steps:
        reward, *flags = call.seen[1:4]
        if reward.dtype not in (np.float32, np.float64):
            yield None, call, f"the reward is of dtype {reward.dtype}, not float32 or float64"
        elif np.isnan(reward).any():
            yield int(np.argwhere(np.isnan(reward))[0][0]), call, "the reward is NaN"
        if set(reward.shape[1:]) == {1}:
            yield None, call, f"the reward has the shape {reward.shape}, not {(run.n,)}"
        for name, flag in zip(PARTS[2:4], flags, strict=True):
            if flag.dtype != bool:
                yield None, call, f"{name} is of dtype {flag.dtype}, not bool"


def results_are_of_one_library(run: Run) -> Iterator[Found]:
    first_library: Any = None
    for call in run.calls:
        for name, result in zip(PARTS[:4], call.given[:4], strict=True):
            array, backend = af.first_array(result)
            if backend is not None and not isinstance(array, np.generic):
                library = f"{backend.name} on {backend.device_of(array)}"
                first_library = first_library or library
                if library != first_library:
                    message = f"{name} is an array of {library}, but the first observation is an array of {first_library}"
                    yield None, call, message


def infos_have_masks(run: Run) -> Iterator[Found]:
    for call in run.calls:
        if not isinstance(call.seen[4], dict):
            yield None, call, f"infos are a {type(call.seen[4]).__name__}, not a dict"
        arrays = {key: x for key, x in call.infos.items() if isinstance(x, np.ndarray) and x.ndim}
        for key, x in arrays.items():
            has_mask, is_mask = f"_{key}" in call.infos, str(key)[:1] == "_"
            has_pair = has_mask or (is_mask and str(key)[1:] in arrays)
            if (is_mask and x.dtype != bool) or (has_pair and len(x) != run.n):
                yield None, call, f"the info {key!r} has a wrong dtype or number of rows"
            elif len(x) == run.n and not has_mask and not is_mask:
                yield None, call, f"the info {key!r} has no mask"


def infos_are_those_of_the_mode(run: Run) -> Iterator[Found]:
    for call in () if run.rule.tells_final else run.calls:
        keys = sorted(Episodes.FINAL & call.infos.keys())
        if keys:
            yield None, call, f"infos have {keys}, which do not belong in the mode {run.mode.name}"


def resets_change_only_those_in_their_mask(run: Run) -> Iterator[Found]:
    message = "the reset of other environments by reset_mask changed its observation"
    for previous, call in run.pairs:
        for row in () if call.actions else rows_in(~call.began):
            if call.firsts[row] != previous.firsts[row]:
                yield row, call, message


def others_step_while_one_resets(run: Run) -> Iterator[Found]:
    """Find observations that change in all steps except those in which another environment resets."""
    steps_by_reset: dict[bool, list[Any]] = {True: [], False: []}
    for previous, call, row in run.usual:
        is_same = previous.firsts[row] == call.firsts[row]
        steps_by_reset[bool(call.began.any())].append((row, call) if is_same else None)
    unchanged = [step for step in steps_by_reset[True] if step is not None]
    if len(unchanged) > 2 and len(steps_by_reset[False]) > 20 and not any(steps_by_reset[False]):
        occasions = f"in {len(unchanged)} of {len(steps_by_reset[True])} steps in which another environment resets, but in no other"
        yield *unchanged[0], f"its observation stays the same {occasions}"


def steps_that_only_reset_return_nothing_else(run: Run) -> Iterator[Found]:
    for call, row in [(step, row) for step in run.steps for row in rows_in(~step.counts)]:
        result_texts = [str(result[row]) for result in call.seen[1:4]]
        if any(np.any(result[row]) for result in call.seen[1:4]):
            intro = f"this step only resets ({run.mode.name}), but it returns the reward and flags "
            yield row, call, intro + ", ".join(result_texts)


def ends_have_last_observations(run: Run) -> Iterator[Found]:
    message = "its episode ended without 'final_obs', so the last observation is lost"
    for call in run.steps if run.rule.tells_final else ():
        has_final = call.infos.get("_final_obs", call.ended)
        for row in range(run.n):
            if call.ended[row] and (not has_final[row] or call.finals[row] is None):
                yield row, call, message
            elif has_final[row] and not call.ended[row]:
                yield row, call, "'_final_obs' is true, but its episode has not ended"


def last_observations_are_those_of_the_last_state(run: Run) -> Iterator[Found]:
    finals = [(episode, episode.last.finals[episode.env]) for episode in run.episodes]
    ends = [(episode, digest(final)) for episode, final in finals if final is not None]
    has_moved = [previous.firsts[row] != call.firsts[row] for previous, call, row in run.usual]
    if not run.rule.same_step or not any(has_moved):
        return
    seen_digests = {first_digest for call in run.steps for first_digest in call.firsts}
    moves_often = len(ends) > 2 and sum(has_moved) > 0.5 * len(has_moved)
    zeros = digest(map_arrays(np.zeros_like, run.calls[0].observations[0]))
    is_vector = sum(x.size for x in af.flatten(run.calls[0].observations[0])[0]) > 1
    matches = {
        "the observation that is returned": [x == each.last.firsts[each.env] for each, x in ends],
        "that of another environment in this step": [
            x in each.last.firsts[: each.env] + each.last.firsts[each.env + 1 :] for each, x in ends
        ],
    }
    # a terminated episode may correctly end with zeros, or by an action without effect, so terminated
    # episodes count only if no episode is truncated and all episodes end in this way
    none_is_cut = not any(episode.is_cut for episode, _ in ends)

    def counted_matches(same: list[bool], is_likely: Callable[[Run], bool]) -> list[bool]:
        may_count = none_is_cut and run.unique and all(same) and is_likely(run)
        return [x and (may_count or each.is_cut) for x, (each, _) in zip(same, ends, strict=True)]

    stale_matches = [final == episode.before.firsts[episode.env] for episode, final in ends]
    zero_matches = [is_vector and zeros not in seen_digests and final == zeros for _, final in ends]
    matches["the observation before the last step"] = counted_matches(stale_matches, _always_moves)
    matches["all zeros"] = counted_matches(zero_matches, _zeros_are_usual)
    for source, end_matches in matches.items():
        if any(end_matches) and (run.unique or (moves_often and all(end_matches))):
            episode, _ = ends[end_matches.index(True)]
            share_text = f"{sum(end_matches)} of {len(ends)} ends of episodes"
            yield episode.env, episode.last, f"final_obs is {source}, at {share_text}"


def _always_moves(run: Run) -> bool:
    """Return whether each step inside an episode changes all numbers of the observation.

    The result is False if no last action of an episode occurs inside episodes, unless all last actions differ. It is
    also False if more than 20 episodes end, all with the same action, and other actions occur inside episodes.
    """
    has_moved = [np.not_equal(*_moved(run, *step)) for step in run.usual]
    episodes = [episode for episode in run.episodes if episode.last.finals[episode.env] is not None]
    last_acts = [digest(episode.last.actions[episode.env]) for episode in episodes]
    usual_acts = {digest(call.actions[row]) for _, call, row in run.usual}
    # if all of many episodes end with one action, and other actions occur inside episodes, that action ends episodes
    ends_episodes = len({*last_acts}) == 1 < len(usual_acts) and len(last_acts) > 20
    ends_by_chance = len({*last_acts}) == len(last_acts) > 1 or not usual_acts.isdisjoint(last_acts)
    return bool(np.all(has_moved)) and ends_by_chance and not ends_episodes


def _zeros_are_usual(run: Run) -> bool:
    """Return whether each number of the observation has values below 0 and values above 0 within episodes."""
    observations = _usual_observations(run)
    return bool(((observations.min(0) < 0) & (observations.max(0) > 0)).all())


def last_observations_are_like_others(run: Run) -> Iterator[Found]:
    """Find last observations at time limits that are too far from the previous observation.

    Also find last observations whose standard deviation over episodes differs from that of previous observations. A
    step at a time limit should change observations and their standard deviation no more than other steps.
    """
    ends = [end for end in run.episodes if end.is_cut and end.last.finals[end.env] is not None]
    if len(ends) < 3 or not run.usual:
        return
    last_pairs = np.array([_moved(run, end.before, end.last, end.env) for end in ends])
    with np.errstate(invalid="ignore", divide="ignore"):
        largest_change = np.max([abs(np.subtract(*_moved(run, *step))) for step in run.usual], 0)
        is_far = abs(last_pairs[:, 1] - last_pairs[:, 0]).min(0) > 2 * largest_change
        std = last_pairs.std(0)
        std_ratio = std[1] / std[0]
    std_ratio = std_ratio[np.isfinite(std_ratio)] if len(ends) > 9 else std_ratio[:0]
    reason = None
    if is_far.any():
        reason = "its distance from the previous observation is larger than in any other step"
    elif std_ratio.size and ((std_ratio < 0.4).all() or (std_ratio > 2.5).all()):
        reason = "its standard deviation differs by a factor of more than 2.5"
    if reason is not None:
        intro = f"final_obs is unlike other observations, at {len(ends)} ends of truncated episodes"
        yield ends[0].env, ends[0].last, f"{intro}: {reason}"


def first_observations_are_like_those_of_resets(run: Run) -> Iterator[Found]:
    """Compare the observations after automatic resets with those after `reset`.

    Find elements that have one value after every `reset`, but another value after automatic resets. Also find elements
    that are far outside of their range after `reset`.
    """
    reset_obs = [_flat(run, x) for call in run.calls if call.is_reset for x in call.observations]
    if len(run.begins) < 3 or len(run.usual) < 10:
        return
    low, high = np.min(reset_obs, 0), np.max(reset_obs, 0)
    is_fixed = (low == high) & (_usual_observations(run) != low).all(0)
    x = np.stack([_flat(run, call.observations[row]) for _, call, row in run.begins])
    with np.errstate(invalid="ignore"):
        margin = 2 * (high - low)
        is_out = (x < low - margin) | (x > high + margin)
    faulty = (is_fixed & (is_out.sum(0) > 2)) | ((low < high) & run.unique & (is_out.mean(0) > 0.5))
    for element in rows_in(faulty)[:1]:
        index = int(np.argmax(is_out[:, element]))
        low_text, high_text = f"{low[element]:.6g}", f"{high[element]:.6g}"
        range_text = f"{low_text} to {high_text}" if low[element] < high[element] else low_text
        number_text = f"{x[index, element]:.6g} in element {element} of the observation"
        _, call, row = run.begins[index]
        message = f"an episode begins with {number_text}, but episodes after reset() begin with {range_text}"
        yield row, call, message


def last_rewards_are_told(run: Run) -> Iterator[Found]:
    """Find rewards that are 0 in all steps that truncate an episode, and in no other step."""
    nonzero = [np.any(call.seen[1][row]) for _, call, row in run.usual]
    zeros = [not np.any(episode.last.seen[1][episode.env]) for episode in run.truncated]
    if len(zeros) > 2 and all(zeros) and len(nonzero) > 9 and all(nonzero) and _rewards_jump(run):
        where = f"all {len(zeros)} steps that truncate an episode, and in no step inside an episode"
        yield run.truncated[0].env, run.truncated[0].last, f"the reward is 0 in {where}"


def _rewards_jump(run: Run) -> bool:
    """Return whether the reward changes more at a time limit than in other steps.

    If not, the reward may fall to 0 gradually, because it depends on the time left.
    """

    def jump(before: Call, call: Call, env: int) -> Any:
        is_new = not before.actions or before.ended[env] or not before.counts[env]
        return 0.0 if is_new else np.abs(np.subtract(call.seen[1][env], before.seen[1][env])).max()

    largest = max(jump(*step) for step in run.usual)
    return any(jump(each.before, each.last, each.env) > 1.001 * largest for each in run.truncated)


def first_observations_hold_nothing_of_the_last(run: Run) -> Iterator[Found]:
    """Find first observations of episodes that have numbers of the last observation of the previous episode.

    Numbers that `reset` returns too are ignored. Large observations such as images are not checked, since two images
    may share numbers by chance.
    """
    reset_numbers = [
        np.concatenate([_flat(run, call.observations[row]) for call in run.calls if call.is_reset])
        for row in range(run.n)
    ]
    leaks, num_begins = [], len(run.begins)
    for previous, call, row in run.begins if run.unique and len(reset_numbers[0]) < 2**10 else ():
        x = _flat(run, call.observations[row])
        last_obs = previous.observations[row] if call.finals[row] is None else call.finals[row]
        is_leaked = np.isin(x, _flat(run, last_obs)) & ~np.isin(x, reset_numbers[row])
        if is_leaked.any():
            leaks.append((row, call, x[is_leaked][0], int(np.argmax(is_leaked))))
    if len(leaks) > max(2, num_begins / 2):
        row, call, number, element = leaks[0]
        message = f"{len(leaks)} of {num_begins} episodes begin with numbers of the previous episode: {number:.6g} in element {element}"
        yield row, call, f"{message} of the observation"


def statistics_are_of_their_episode(run: Run) -> Iterator[Found]:
    """Find wrong statistics of `RecordEpisodeStatistics`.

    These are lengths that are too small, and lengths or returns that are sums over several episodes.
    """
    for key in ("l", "r"):
        told_before: dict[int, Any] = {}
        sum_problems, num_later = [], 0
        for episode in run.episodes:
            row, last_infos = episode.env, episode.last.infos
            infos: Any = last_infos if "episode" in last_infos else last_infos.get("final_info")
            statistics = infos.get("episode") if isinstance(infos, dict) else None
            told_rows = statistics.get(key) if isinstance(statistics, dict) else None
            if told_rows is None or not infos.get("_episode", episode.last.ended)[row]:
                continue
            told, own = told_rows[row], episode.length if key == "l" else episode.total
            message = f"infos['episode'][{key!r}] of an episode is {told}, not {own}"
            if key == "l" and told < own:
                yield row, episode.last, message
            elif row in told_before:
                num_later += 1
                total = told_before[row] + own
                is_sum = np.allclose(told, total, 1e-3) and not np.allclose(told, own)
                sum_problems += [(row, episode.last, message)] * is_sum
            told_before[row] = told
        if len(sum_problems) > max(2, num_later / 2):
            yield sum_problems[0]


def infos_are_of_their_episode(run: Run) -> Iterator[Found]:
    """Find infos that belong to another episode.

    The check uses only infos that have the same value after each reset, such as a count of 0, but other values within
    episodes.
    """
    reset_infos = [_infos(call, row) for call in run.calls if call.is_reset for row in range(run.n)]
    usual_infos = [_infos(call, row) for _, call, row in run.usual]
    final_key = "final_info" if run.rule.same_step else None
    at_reset = {key: {infos.get(key) for infos in reset_infos} for key in reset_infos[0]}
    # a discount is left out, since it is correctly 0 at the end of an episode
    firsts = {key: x.pop() for key, x in at_reset.items() if len(x) == 1 and key != "discount"}
    finals = [_infos(call, row, final_key) for call in run.steps for row in rows_in(call.ended)]
    # an info may return to its first value at the end of every episode, which is no fault
    ends_differ = any(infos.get(key, x) != x for infos in finals for key, x in firsts.items())
    for key, first in firsts.items():
        if len(usual_infos) < 10 or any(infos.get(key) == first for infos in usual_infos):
            continue
        for call in run.steps:
            for row in rows_in(call.began):
                if _infos(call, row).get(key, first) != first:
                    yield row, call, f"the info {key!r} does not belong to the episode that begins"
            for row in () if ends_differ else rows_in(call.ended):
                if _infos(call, row, final_key).get(key) == first:
                    message = (
                        f"the info {key!r} of the last step has the value that it has after a reset"
                    )
                    yield row, call, message
    common_keys = set.intersection(*map(set, usual_infos)) if usual_infos else set()
    message = f"its episode has ended, but final_info lacks {sorted(common_keys, key=str)}"
    for episode in run.episodes if final_key and common_keys else ():
        # report only a `final_info` that is missing, since single keys may be missing at the end of every episode
        infos = episode.last.infos
        if final_key not in infos or not infos.get("_final_info", episode.last.ended)[episode.env]:
            yield episode.env, episode.last, message


def _infos(call: Call, env: int, inside: str | None = None) -> dict[Any, Any]:
    """Return the infos of one environment in a call, as a dict of strings that can be compared.

    Args:
        call: the call.
        env: the index of the environment.
        inside: the key of nested infos to return, such as "final_info", or None for the infos of the call.
    """
    infos = call.infos if inside is None else call.infos.get(inside, {})
    if not isinstance(infos, dict):  # a list with a dict for each environment
        return {key: str(value) for key, value in (infos[env] or {}).items()}
    by_key = {}
    for key, x in infos.items():
        has_rows = isinstance(x, np.ndarray) and x.shape[:1] == call.ended.shape
        is_row_info = has_rows and key not in Episodes.FINAL and str(key)[:1] != "_"
        if is_row_info and infos.get(f"_{key}", call.ended | True)[env]:
            by_key[key] = str(float(x[env]) if x.dtype.kind in "biuf" and x.ndim == 1 else x[env])
    return by_key


def truncated_episodes_go_on(run: Run) -> Iterator[Found]:
    """Find truncated episodes that also terminate, if all truncated episodes do, and episodes differ in length."""
    doubles = [episode for episode in run.truncated if episode.last.seen[2][episode.env]]
    if 2 < len(doubles) == len(run.truncated) and len({each.length for each in run.episodes}) > 1:
        message = f"all {len(doubles)} truncated episodes were also terminated in the same step"
        yield doubles[0].env, doubles[0].last, message


def time_limits_are_truncations(run: Run) -> Iterator[Found]:
    """Find terminations that are probably time limits.

    Such terminations are frequent in episodes of the greatest length and rare in shorter episodes. The observations at
    such terminations also occur within episodes.
    """
    max_length = max((episode.length for episode in run.episodes), default=0)
    if max_length < 2 or run.truncated:
        return
    usual_obs = _usual_observations(run)
    low, high = usual_obs.min(0), usual_obs.max(0)
    last_obs = [
        (each.length, _moved(run, each.before, each.last, each.env)[1]) for each in run.episodes
    ]
    finals = np.stack([x for length, x in last_obs if length == max_length])
    is_clock = (finals == finals[0]).all(0) & ((finals[0] < low) | (finals[0] > high))
    # ignore elements that show the time, unless all episodes are equally long, which suggests that
    # time is part of the task
    if len({length for length, _ in last_obs}) > 1:
        usual_obs, low, high = (x[..., ~is_clock] for x in (usual_obs, low, high))
        last_obs = [(length, x[~is_clock]) for length, x in last_obs]
    seen_bytes = {x.tobytes() for x in usual_obs}
    ends_within = [(length, x) for length, x in last_obs if ((low <= x) & (x <= high)).all()]
    counts = Counter(length for length, x in ends_within if run.unique or x.tobytes() in seen_bytes)
    num_longest, most_others = counts.pop(max_length, 0), max(counts.values(), default=0)
    limit = getattr(getattr(run.envs, "spec", None), "max_episode_steps", None)
    is_game = not run.unique and max_length <= FEW
    if max_length == limit or (num_longest > 2 + 3 * most_others and not is_game):
        episode = next(episode for episode in run.episodes if episode.length == max_length)
        share_text = f"{sum(n == max_length for n, _ in last_obs)} of {len(last_obs)} episodes"
        message = f"{share_text} terminated after {max_length} steps, the greatest length, and no episode was truncated"
        yield episode.env, episode.last, f"{message}: this seems to be a time limit"


def _moved(run: Run, before: Call, call: Call, env: int) -> tuple[Any, Any]:
    """Return all numbers of the observations of an environment before a step, and after it but before any reset."""
    after = call.observations[env] if call.finals[env] is None else call.finals[env]
    return _flat(run, before.observations[env]), _flat(run, after)


def _usual_observations(run: Run) -> Any:
    """Return all numbers of the observations after steps that do not end their episode, (steps, numbers)."""
    return np.stack([_flat(run, call.observations[row]) for _, call, row in run.usual])


def _flat(run: Run, observation: AnyTree) -> Any:
    """Return all numbers of an observation as a one-dimensional float64 array."""
    leaf_pairs = zip(leaves(run.observed), split(run.observed, observation), strict=True)
    arrays = [np.ravel(x) for (leaf_space, _), x in leaf_pairs if isinstance(leaf_space, ARRAYS)]
    return np.concatenate([[], *arrays])


def actions_are_not_changed(run: Run) -> Iterator[Found]:
    for call in run.calls:
        if not call.keeps_actions:
            yield None, call, "the step has changed the array of actions"


def arrays_are_not_overwritten(run: Run) -> Iterator[Found]:
    for call in run.calls:
        for name, given, seen in zip(PARTS, in_numpy(call.given), call.seen, strict=True):
            if digest(given) != digest(seen):
                if name == PARTS[4] and isinstance(given, dict) and given.keys() == seen.keys():
                    changed_keys = [key for key in given if digest(given[key]) != digest(seen[key])]
                    name = f"infos[{changed_keys[0]!r}]" if changed_keys else name
                yield None, call, f"{name} was overwritten by a later step or reset"


CHECKS: dict[Check, str] = {
    spaces_are_of_batches: "Compute it by gymnasium.vector.utils.batch_space.",
    observations_are_in_their_space: "Return observations that the space contains, or change the space.",
    rewards_and_flags_have_their_dtypes: "Return floats as rewards, and booleans as flags, one for each environment.",
    results_are_of_one_library: "Return all results in one library, on one device.",
    infos_have_masks: "Return a dict of arrays. For each key 'x', add a mask '_x', bool (num_envs,), of the environments that have it.",
    infos_are_those_of_the_mode: "State SAME_STEP if the step resets; otherwise remove these infos.",
    resets_change_only_those_in_their_mask: "Reset only where the mask is true, and return the last observation elsewhere.",
    others_step_while_one_resets: "Step all environments, and then replace only the rows that are reset.",
    steps_that_only_reset_return_nothing_else: "Return the reward 0 and flags that are False; or state SAME_STEP, if the previous step has already reset.",
    ends_have_last_observations: "Return the observation before the reset as infos['final_obs'], with the mask '_final_obs', only in steps that end an episode; or state another mode.",
    last_observations_are_those_of_the_last_state: "Return a copy of the observation before the reset as final_obs, and the first observation of the next episode as the observation.",
    last_observations_are_like_others: "Apply to infos['final_obs'] what is applied to other observations, such as normalisation.",
    first_observations_are_like_those_of_resets: "Make automatic resets clear everything that reset() clears.",
    first_observations_hold_nothing_of_the_last: "Make automatic resets clear everything that reset() clears.",
    last_rewards_are_told: "Return the reward of a step that ends an episode, like any other reward.",
    statistics_are_of_their_episode: "Set a flag in each step that ends an episode, and count each episode separately.",
    infos_are_of_their_episode: "Return infos that belong to the returned observation. Put infos of the last step into infos['final_info'], with masks.",
    truncated_episodes_go_on: "Set terminated only where the task itself has ended.",
    time_limits_are_truncations: "Set truncated at a time limit. If the limit is part of the task, terminated is right.",
    actions_are_not_changed: "Copy actions before you write to them.",
    arrays_are_not_overwritten: "Return new arrays in each call, as with Gymnasium's copy=True.",
}
"""For each check, the remedy for the problems that it finds."""


def problems_of(run: Run, checks: dict[Check, str]) -> list[VectorProblem]:
    """Run the checks. For each check and kind of problem, return the first problem, and count the problems."""
    problems: dict[Any, VectorProblem] = {}
    for check, remedy in checks.items():
        for env_index, call, message in _made(check, run):
            problem_key, step = (check, *message.split()[:4]), None if call is None else call.step
            problem = VectorProblem(env_index, step, message, remedy, 0, check.__name__)
            known_problem = problems.get(problem_key, problem)
            problems[problem_key] = known_problem._replace(times=known_problem.times + 1)
    return list(problems.values())


def _made(check: Check, run: Run) -> Iterator[Found]:
    """Run a check. If the check raises an error because of unexpected results, yield the error as a problem."""
    try:
        yield from check(run)
    except Exception as error:
        name, reason = check.__name__.replace("_", " "), f"{type(error).__name__}: {error!s:.200}"
        yield None, None, f"it could not be checked whether {name}: {reason}"
