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
        batch, wanted = getattr(run.envs, name), batch_space(space_of(run.envs, name), run.n)
        has, needs = ([leaf.shape for leaf, _ in leaves(space)] for space in (batch, wanted))
        if has != needs or not hasattr(run.envs, f"single_{name}"):
            yield None, None, f"{name} is not batch_space(single_{name}, {run.n}): {batch}"


def observations_are_in_their_space(run: Run) -> Iterator[Found]:
    for call in run.calls:
        _, backend = af.first_array(call.given[0])
        for name, rows in (("the observation", call.observations), ("final_obs", call.finals)):
            for env, row in enumerate(rows):
                what = None if row is None else _unfit(run.observed, row, backend or "numpy")
                if what is not None:
                    yield env, call, f"{name}{what}"


def _unfit(space: Any, observation: AnyTree, backend: Any) -> str | None:
    """Return how an observation differs from its space, as words after "the observation", or None if it fits."""

    def unlike(value: AnyTree, path: str, needed: str) -> TypeError:
        return TypeError(f"{path} is not {needed}")

    try:
        parts = split(space, observation, unlike)
    except TypeError as error:
        return str(error)
    for (leaf, path), x in zip(leaves(space), parts, strict=True):
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
    first: Any = None
    for call in run.calls:
        for name, part in zip(PARTS[:4], call.given[:4], strict=True):
            array, backend = af.first_array(part)
            if backend is not None and not isinstance(array, np.generic):
                place = f"{backend.name} on {backend.device_of(array)}"
                first = first or place
                if place != first:
                    yield (
                        None,
                        call,
                        f"{name} is an array of {place}, but the first observation is an array of {first}",
                    )


def infos_have_masks(run: Run) -> Iterator[Found]:
    for call in run.calls:
        if not isinstance(call.seen[4], dict):
            yield None, call, f"infos are a {type(call.seen[4]).__name__}, not a dict"
        arrays = {key: x for key, x in call.infos.items() if isinstance(x, np.ndarray) and x.ndim}
        for key, x in arrays.items():
            masked, is_mask = f"_{key}" in call.infos, str(key)[:1] == "_"
            paired = masked or (is_mask and str(key)[1:] in arrays)
            if (is_mask and x.dtype != bool) or (paired and len(x) != run.n):
                yield None, call, f"the info {key!r} has a wrong dtype or number of rows"
            elif len(x) == run.n and not masked and not is_mask:
                yield None, call, f"the info {key!r} has no mask"


def infos_are_those_of_the_mode(run: Run) -> Iterator[Found]:
    for call in () if run.rule.tells_final else run.calls:
        told = sorted(Episodes.FINAL & call.infos.keys())
        if told:
            yield None, call, f"infos have {told}, which do not belong in the mode {run.mode.name}"


def resets_change_only_those_in_their_mask(run: Run) -> Iterator[Found]:
    for before, call in run.pairs:
        for env in rows_in(~call.began) if call.actions is None else ():
            if call.firsts[env] != before.firsts[env]:
                yield (
                    env,
                    call,
                    "the reset of other environments by reset_mask changed its observation",
                )


def others_step_while_one_resets(run: Run) -> Iterator[Found]:
    """Find observations that change in all steps except those in which another environment resets."""
    still: dict[bool, list[Any]] = {True: [], False: []}
    for before, call, env in run.usual:
        same = before.firsts[env] == call.firsts[env]
        still[bool(call.began.any())].append((env, call) if same else None)
    unchanged = [each for each in still[True] if each is not None]
    if len(unchanged) > 2 and len(still[False]) > 20 and not any(still[False]):
        where = f"in {len(unchanged)} of {len(still[True])} steps in which another environment resets, but in no other"
        yield *unchanged[0], f"its observation stays the same {where}"


def steps_that_only_reset_return_nothing_else(run: Run) -> Iterator[Found]:
    for call, env in [(x, env) for x in run.steps for env in rows_in(~x.counts)]:
        told = [str(x[env]) for x in call.seen[1:4]]
        if any(np.any(x[env]) for x in call.seen[1:4]):
            what = f"this step only resets ({run.mode.name}), but it returns the reward and flags "
            yield env, call, what + ", ".join(told)


def ends_have_last_observations(run: Run) -> Iterator[Found]:
    for call in run.steps if run.rule.tells_final else ():
        has_final = call.infos.get("_final_obs", call.ended)
        for env in range(run.n):
            if call.ended[env] and (not has_final[env] or call.finals[env] is None):
                yield (
                    env,
                    call,
                    "its episode ended without 'final_obs', so the last observation is lost",
                )
            elif has_final[env] and not call.ended[env]:
                yield env, call, "'_final_obs' is true, but its episode has not ended"


def last_observations_are_those_of_the_last_state(run: Run) -> Iterator[Found]:
    finals = [(each, each.last.finals[each.env]) for each in run.episodes]
    ends = [(each, digest(final)) for each, final in finals if final is not None]
    moves = [before.firsts[env] != call.firsts[env] for before, call, env in run.usual]
    if not run.rule.same_step or not any(moves):
        return
    seen = {first for call in run.steps for first in call.firsts}
    often = len(ends) > 2 and sum(moves) > 0.5 * len(moves)
    zeros = digest(map_arrays(np.zeros_like, run.calls[0].observations[0]))
    several = sum(x.size for x in af.flatten(run.calls[0].observations[0])[0]) > 1
    matches = {
        "the observation that is returned": [x == each.last.firsts[each.env] for each, x in ends],
        "that of another environment in this step": [
            x in each.last.firsts[: each.env] + each.last.firsts[each.env + 1 :] for each, x in ends
        ],
    }
    # a terminated episode may correctly end with zeros, or by an action without effect, so terminated
    # episodes count only if no episode is truncated and all episodes end in this way
    none_cut = not any(each.is_cut for each, _ in ends)

    def told(same: list[bool], is_likely: Callable[[Run], bool]) -> list[bool]:
        counts = none_cut and run.unique and all(same) and is_likely(run)
        return [x and (counts or each.is_cut) for x, (each, _) in zip(same, ends, strict=True)]

    stale = [x == each.before.firsts[each.env] for each, x in ends]
    empty = [several and zeros not in seen and x == zeros for _, x in ends]
    matches["the observation before the last step"] = told(stale, _always_moves)
    matches["all zeros"] = told(empty, _zeros_are_usual)
    for what, same in matches.items():
        if any(same) and (run.unique or (often and all(same))):
            end, _ = ends[same.index(True)]
            yield (
                end.env,
                end.last,
                f"final_obs is {what}, at {sum(same)} of {len(ends)} ends of episodes",
            )


def _always_moves(run: Run) -> bool:
    """Return whether each step inside an episode changes all numbers of the observation.

    The result is False if no last action of an episode occurs inside episodes, unless all last actions differ. It is
    also False if more than 20 episodes end, all with the same action, and other actions occur inside episodes.
    """
    moved = [
        _flat(run, _after(x, env)) != _flat(run, before.observations[env])
        for before, x, env in run.usual
    ]
    ends = [x for x in run.episodes if x.last.finals[x.env] is not None]
    last = [digest(_action(x.last, x.env)) for x in ends]
    usual = {digest(_action(call, env)) for _, call, env in run.usual}
    # if all of many episodes end with one action, and other actions occur inside episodes, that action ends episodes
    is_chosen = len({*last}) == 1 < len(usual) and len(last) > 20
    happens = len({*last}) == len(last) > 1 or not usual.isdisjoint(last)
    return bool(np.all(moved)) and happens and not is_chosen


def _zeros_are_usual(run: Run) -> bool:
    """Return whether each number of the observation has values below 0 and values above 0 within episodes."""
    usual = np.stack([_flat(run, _after(call, env)) for _, call, env in run.usual])
    return bool(((usual.min(0) < 0) & (usual.max(0) > 0)).all())


def last_observations_are_like_others(run: Run) -> Iterator[Found]:
    """Find last observations at time limits that are too far from the previous observation.

    Also find last observations whose standard deviation over episodes differs from that of previous observations. A
    step at a time limit should change observations and their standard deviation no more than other steps.
    """
    ends = [x for x in run.episodes if x.is_cut and x.last.finals[x.env] is not None]
    if len(ends) < 3 or not run.usual:
        return

    def pair(before: Call, call: Call, env: int) -> Any:
        return _flat(run, before.observations[env]), _flat(run, _after(call, env))

    most: Any = 0.0
    last = np.array([pair(x.before, x.last, x.env) for x in ends])
    with np.errstate(invalid="ignore", divide="ignore"):
        for step in run.usual:
            most = np.maximum(most, abs(np.subtract(*pair(*step))))
        far = abs(last[:, 1] - last[:, 0]).min(0) > 2 * most
        spread = last.std(0)
        ratio = spread[1] / spread[0]
    ratio = ratio[np.isfinite(ratio)] if len(ends) > 9 else ratio[:0]
    how = None
    if far.any():
        how = "its distance from the previous observation is larger than in any other step"
    elif ratio.size and ((ratio < 0.4).all() or (ratio > 2.5).all()):
        how = "its standard deviation differs by a factor of more than 2.5"
    if how is not None:
        what = f"final_obs is unlike other observations, at {len(ends)} ends of truncated episodes"
        yield ends[0].env, ends[0].last, f"{what}: {how}"


def first_observations_are_like_those_of_resets(run: Run) -> Iterator[Found]:
    """Compare the observations after automatic resets with those after `reset`.

    Find elements that have one value after every `reset`, but another value after automatic resets. Also find elements
    that are far outside of their range after `reset`.
    """
    resets = [_flat(run, x) for call in run.calls if call.is_reset for x in call.observations]
    if len(run.begins) < 3 or len(run.usual) < 10:
        return
    low, high = np.min(resets, 0), np.max(resets, 0)
    fixed = low == high
    for _, call, env in run.usual:
        fixed &= _flat(run, _after(call, env)) != low
    x = np.stack([_flat(run, call.observations[env]) for _, call, env in run.begins])
    with np.errstate(invalid="ignore"):
        far = 2 * (high - low)
        out = (x < low - far) | (x > high + far)
    often = (fixed & (out.sum(0) > 2)) | ((low < high) & run.unique & (out.mean(0) > 0.5))
    for element in rows_in(often)[:1]:
        row = int(np.argmax(out[:, element]))
        least, most = f"{low[element]:.6g}", f"{high[element]:.6g}"
        ways = f"{least} to {most}" if low[element] < high[element] else least
        what = f"{x[row, element]:.6g} in element {element} of the observation"
        _, call, env = run.begins[row]
        yield (
            env,
            call,
            f"an episode begins with {what}, but episodes after reset() begin with {ways}",
        )


def last_rewards_are_told(run: Run) -> Iterator[Found]:
    """Find rewards that are 0 in all steps that truncate an episode, and in no other step."""
    usual = [np.any(call.seen[1][env]) for _, call, env in run.usual]
    lost = [not np.any(each.last.seen[1][each.env]) for each in run.truncated]
    if len(lost) > 2 and all(lost) and len(usual) > 9 and all(usual) and _rewards_jump(run):
        where = f"all {len(lost)} steps that truncate an episode, and in no step inside an episode"
        yield run.truncated[0].env, run.truncated[0].last, f"the reward is 0 in {where}"


def _rewards_jump(run: Run) -> bool:
    """Return whether the reward changes more at a time limit than in other steps.

    If not, the reward may fall to 0 gradually, because it depends on the time left.
    """

    def change(before: Call, call: Call, env: int) -> Any:
        first = before.actions is None or before.ended[env] or not before.counts[env]
        return 0.0 if first else np.abs(np.subtract(call.seen[1][env], before.seen[1][env])).max()

    most = max(change(*each) for each in run.usual)
    return any(change(x.before, x.last, x.env) > 1.001 * most for x in run.truncated)


def first_observations_hold_nothing_of_the_last(run: Run) -> Iterator[Found]:
    """Find first observations of episodes that have numbers of the last observation of the previous episode.

    Numbers that `reset` returns too are ignored. Large observations such as images are not checked, since two images
    may share numbers by chance.
    """
    resets = [
        np.concatenate([_flat(run, x.observations[env]) for x in run.calls if x.is_reset])
        for env in range(run.n)
    ]
    leaks, count = [], len(run.begins)
    for before, call, env in run.begins if run.unique and len(resets[0]) < 2**10 else ():
        x = _flat(run, call.observations[env])
        last = before.observations[env] if call.finals[env] is None else call.finals[env]
        leaked = np.isin(x, _flat(run, last)) & ~np.isin(x, resets[env])
        if leaked.any():
            leaks.append((env, call, x[leaked][0], int(np.argmax(leaked))))
    if len(leaks) > max(2, count / 2):
        env, call, number, element = leaks[0]
        what = f"{len(leaks)} of {count} episodes begin with numbers of the previous episode: {number:.6g} in element {element}"
        yield env, call, f"{what} of the observation"


def statistics_are_of_their_episode(run: Run) -> Iterator[Found]:
    """Find wrong statistics of `RecordEpisodeStatistics`.

    These are lengths that are too small, and lengths or returns that are sums over several episodes.
    """
    for key in ("l", "r"):
        before: dict[int, Any] = {}
        sums, later = [], 0
        for episode in run.episodes:
            env, told_by = episode.env, episode.last.infos
            infos: Any = told_by if "episode" in told_by else told_by.get("final_info")
            info = infos.get("episode") if isinstance(infos, dict) else None
            values = info.get(key) if isinstance(info, dict) else None
            if values is None or not infos.get("_episode", episode.last.ended)[env]:
                continue
            told, own = values[env], episode.length if key == "l" else episode.total
            what = f"infos['episode'][{key!r}] of an episode is {told}, not {own}"
            if key == "l" and told < own:
                yield env, episode.last, what
            elif env in before:
                later += 1
                is_sum = np.allclose(told, before[env] + own, 1e-3) and not np.allclose(told, own)
                sums += [(env, episode.last, what)] * is_sum
            before[env] = told
        if len(sums) > max(2, later / 2):
            yield sums[0]


def infos_are_of_their_episode(run: Run) -> Iterator[Found]:
    """Find infos that belong to another episode.

    The check uses only infos that have the same value after each reset, such as a count of 0, but other values within
    episodes.
    """
    resets = [_infos(call, env) for call in run.calls if call.is_reset for env in range(run.n)]
    usual = [_infos(call, env) for _, call, env in run.usual]
    inside = "final_info" if run.rule.same_step else None
    begun = {key: {infos.get(key) for infos in resets} for key in resets[0]}
    # a discount is left out, since it is correctly 0 at the end of an episode
    begun = {key: x for key, x in begun.items() if len(x) == 1 and key != "discount"}
    last = [_infos(call, env, inside) for call in run.steps for env in rows_in(call.ended)]
    # an info may return to its first value at the end of every episode, which is no fault
    told = any(infos.get(key, next(iter(x))) not in x for infos in last for key, x in begun.items())
    for key, first in begun.items():
        if len(usual) < 10 or any(infos.get(key) in first for infos in usual):
            continue
        for call in run.steps:
            for env in rows_in(call.began):
                if _infos(call, env).get(key, next(iter(first))) not in first:
                    yield env, call, f"the info {key!r} does not belong to the episode that begins"
            for env in () if told else rows_in(call.ended):
                if _infos(call, env, inside).get(key) in first:
                    yield (
                        env,
                        call,
                        f"the info {key!r} of the last step has the value that it has after a reset",
                    )
    always = set.intersection(*map(set, usual)) if usual else set()
    what = f"its episode has ended, but final_info lacks {sorted(always, key=str)}"
    for episode in run.episodes if inside and always else ():
        # report only a `final_info` that is missing, since single keys may be missing at the end of every episode
        infos = episode.last.infos
        if inside not in infos or not infos.get("_final_info", episode.last.ended)[episode.env]:
            yield episode.env, episode.last, what


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
        told = has_rows and key not in Episodes.FINAL and str(key)[:1] != "_"
        if told and infos.get(f"_{key}", call.ended | True)[env]:
            by_key[key] = str(float(x[env]) if x.dtype.kind in "biuf" and x.ndim == 1 else x[env])
    return by_key


def truncated_episodes_go_on(run: Run) -> Iterator[Found]:
    """Find truncated episodes that also terminate, if all truncated episodes do, and episodes differ in length."""
    both = [each for each in run.truncated if each.last.seen[2][each.env]]
    if 2 < len(both) == len(run.truncated) and len({each.length for each in run.episodes}) > 1:
        what = f"all {len(both)} truncated episodes were also terminated in the same step"
        yield both[0].env, both[0].last, what


def time_limits_are_truncations(run: Run) -> Iterator[Found]:
    """Find terminations that are probably time limits.

    Such terminations are frequent in episodes of the greatest length and rare in shorter episodes. The observations at
    such terminations also occur within episodes.
    """
    longest = max((each.length for each in run.episodes), default=0)
    if longest < 2 or run.truncated:
        return
    usual = np.stack([_flat(run, _after(call, env)) for _, call, env in run.usual])
    low, high = usual.min(0), usual.max(0)
    ends = [(x.length, _flat(run, _after(x.last, x.env))) for x in run.episodes]
    same = np.stack([x for n, x in ends if n == longest])
    clock = (same == same[0]).all(0) & ((same[0] < low) | (same[0] > high))
    # ignore elements that show the time, unless all episodes are equally long, which suggests that
    # time is part of the task
    if len({n for n, _ in ends}) > 1:
        usual, low, high = (x[..., ~clock] for x in (usual, low, high))
        ends = [(n, x[~clock]) for n, x in ends]
    seen = {x.tobytes() for x in usual}
    within = [(n, x) for n, x in ends if ((low <= x) & (x <= high)).all()]
    lengths = Counter(n for n, x in within if run.unique or x.tobytes() in seen)
    count, others = lengths.pop(longest, 0), max(lengths.values(), default=0)
    limit = getattr(getattr(run.envs, "spec", None), "max_episode_steps", None)
    is_game = not run.unique and longest <= FEW
    if longest == limit or (count > 2 + 3 * others and not is_game):
        episode = next(each for each in run.episodes if each.length == longest)
        of = f"{sum(n == longest for n, _ in ends)} of {len(ends)} episodes"
        told = f"{of} terminated after {longest} steps, the greatest length, and no episode was truncated"
        yield episode.env, episode.last, f"{told}: this seems to be a time limit"


def _action(call: Call, env: int) -> Any:
    """Return the action of an environment in a step."""
    assert call.actions is not None
    return call.actions[env]


def _after(call: Call, env: int) -> Any:
    """Return the observation of an environment after a step and before any reset."""
    return call.observations[env] if call.finals[env] is None else call.finals[env]


def _flat(run: Run, observation: AnyTree) -> Any:
    """Return all numbers of an observation as a one-dimensional float64 array."""
    parts = zip(leaves(run.observed), split(run.observed, observation), strict=True)
    arrays = [np.ravel(x) for (leaf, _), x in parts if isinstance(leaf, ARRAYS)]
    return np.concatenate([[], *arrays])


def actions_are_not_changed(run: Run) -> Iterator[Found]:
    for call in run.calls:
        if not call.keeps_actions:
            yield None, call, "the step has changed the array of actions"


def arrays_are_not_overwritten(run: Run) -> Iterator[Found]:
    for call in run.calls:
        for name, now, then in zip(PARTS, in_numpy(call.given), call.seen, strict=True):
            if digest(now) != digest(then):
                if name == PARTS[4] and isinstance(now, dict) and now.keys() == then.keys():
                    keys = [key for key in now if digest(now[key]) != digest(then[key])]
                    name = f"infos[{keys[0]!r}]" if keys else name
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
    kinds: dict[Any, VectorProblem] = {}
    for check, remedy in checks.items():
        for env, call, what in _made(check, run):
            kind, step = (check, *what.split()[:4]), None if call is None else call.step
            new = VectorProblem(env, step, what, remedy, 0, check.__name__)
            before = kinds.get(kind, new)
            kinds[kind] = before._replace(times=before.times + 1)
    return list(kinds.values())


def _made(check: Check, run: Run) -> Iterator[Found]:
    """Run a check. If the check raises an error because of unexpected results, yield the error as a problem."""
    try:
        yield from check(run)
    except Exception as error:
        name, told = check.__name__.replace("_", " "), f"{type(error).__name__}: {error!s:.200}"
        yield None, None, f"it could not be checked whether {name}: {told}"
