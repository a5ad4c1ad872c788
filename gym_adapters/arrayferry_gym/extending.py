"""Building blocks for packages that extend `arrayferry_gym` with environments, bridges or audits.

    from arrayferry_gym.extending import Episodes, Judge, leaves, select

`Kernel`, `Spaces`, `State` and `Step` are in `arrayferry_gym.wrappers.kernels`, and types in `arrayferry_gym.typing`.

**Spaces as trees.** `leaves` yields the spaces inside a Dict or Tuple, and the path to each space. `split` splits a
value into one part for each leaf, and `build` reassembles the value. `ARRAYS` lists the classes of spaces whose values
are arrays.

    >>> import numpy as np
    >>> from gymnasium import spaces
    >>> from arrayferry_gym.extending import ARRAYS, build, leaves, split
    >>> space = spaces.Dict({"go": spaces.Discrete(3), "at": spaces.Box(-1, 1, (2,))})
    >>> [place for leaf, place in leaves(space) if isinstance(leaf, ARRAYS)]
    ["['at']", "['go']"]
    >>> build(space, [np.shape(x) for x in split(space, space.sample())])
    {'at': (2,), 'go': ()}

**Other spaces.** `space_of` returns a space for a value. `gymnasium_space` returns the Gymnasium space for a space of
another package. `batch_of_actions` returns the space of several actions. `converted_space` returns a space that samples
in the agent's library, which `Libraries` detects. `original_space` returns the space before this conversion.

    >>> import arrayferry as af
    >>> from arrayferry_gym.extending import Libraries, batch_of_actions, converted_space, gymnasium_space
    >>> from arrayferry_gym.extending import original_space, space_of
    >>> batch_of_actions(spaces.Discrete(3), 2)
    MultiDiscrete([3 3])
    >>> libraries = Libraries({}, "numpy", "torch", None, None)
    >>> shown = converted_space(spaces.Box(0, 1, (2,)), libraries)
    >>> shown.sample().dtype, original_space(shown)
    (torch.float32, Box(0.0, 1.0, (2,), float32))
    >>> gymnasium_space({"x": original_space(shown)}), space_of(np.zeros(2, bool))
    (Dict('x': Box(0.0, 1.0, (2,), float32)), MultiBinary((2,)))

**Actions.** A `Fitter` converts a value to the types and dtypes that a space samples, or raises an error that says why
the value does not fit. A `Judge` skips some checks for later actions of the same type, dtype and shape. `bounds_of`
returns the range of a space. `cast_fitting` casts an array, and refuses numbers that do not fit the dtype.
`cast_clipped` clips these numbers, without reading them from the device. `first_wrong` describes the first wrong
number.

    >>> from arrayferry_gym.extending import Fitter, Judge, bounds_of, cast_clipped, cast_fitting, first_wrong
    >>> class Moves(Judge):
    ...     def __init__(self):
    ...         self._forget_ways()
    ...     def _fit(self, action):
    ...         return Fitter(spaces.Discrete(3)).fit(action)
    >>> Moves()._act(np.array([2])), bounds_of(spaces.Discrete(3))
    (np.int64(2), (array(0), np.int64(2)))
    >>> cast_fitting(np.array([1.0, 2.0]), np.dtype("int8"), "it")
    array([1, 2], dtype=int8)
    >>> cast_clipped(np.array([np.nan, 256.0]), np.dtype("uint8"))
    array([  0, 255], dtype=uint8)
    >>> first_wrong(np.array([1, 300]), np.array([False, True]))
    '300, at [1],'

**Arrays of any library.** `namespace` returns the namespace of a backend. `select` chooses rows by a mask, `mapped`
applies a function to the arrays of trees, and `to_shape` adds axes. `as_rewards` returns rewards as an array.
`held_dtype` returns the name of the dtype that a library uses for a NumPy dtype.

    >>> from arrayferry_gym.extending import as_rewards, held_dtype, mapped, namespace, select, to_shape
    >>> torch = af.registry.backend("torch")
    >>> xp, mask = namespace(torch), af.convert(np.array([True, False]), "torch")
    >>> mapped(lambda new, old: select(xp, mask, new, old), {"x": xp.ones(2)}, {"x": xp.zeros(2)})
    {'x': tensor([1., 0.])}
    >>> to_shape(xp, mask, (2, 2)).tolist(), held_dtype(np.float32, torch), as_rewards([1, 2])
    ([[True, True], [False, False]], 'float32', array([1., 2.]))

**Episodes.** `Episodes` turns the results of a vector environment into `Step`s, in any autoreset mode. `RULES` has the
rule of each mode, and `autoreset_mode_of` parses a mode. `checked_reset` checks the results of `reset`. `before_resets`
returns observations from before resets, and `summed` adds up values within episodes. `Episodes.final_infos` returns the
infos that a step adds where an episode has ended, and `Episodes.FINAL` has their keys. `ServesFunctional` is the base
class of vector environments around a `FunctionalEnv`. `reset_mask_of` checks the mask of a reset. `refuse_batch` refuses
a batch of environments that is not a `VectorEnv`.

    >>> import gymnasium as gym
    >>> from arrayferry_gym.extending import RULES, Episodes, autoreset_mode_of, before_resets, checked_reset
    >>> from arrayferry_gym.extending import ServesFunctional, refuse_batch, reset_mask_of, summed
    >>> envs = gym.make_vec("CartPole-v1", 2)
    >>> episodes, (observations, infos) = Episodes(envs), checked_reset(envs, envs.reset(seed=1))
    >>> step = episodes.step(envs.step(np.array([0, 1])))
    >>> step.reward.tolist(), step.ended, RULES[autoreset_mode_of("NEXT_STEP")].same_step
    ([1.0, 1.0], array([False, False]), False)
    >>> ended = np.array([False, True])
    >>> before_resets(np, ended, np.array([5, 6]), np.array([7, 8])), summed(np, ended, np.ones(2), np.ones(2))
    (array([7, 6]), array([2., 1.]))
    >>> [*Episodes.final_infos(observations, {}, ended)], sorted(Episodes.FINAL)
    (['final_obs', '_final_obs'], ['_final_info', '_final_obs', 'final_info', 'final_obs'])
    >>> reset_mask_of([True, False], 2), refuse_batch("mine", envs)
    (array([ True, False]), None)
    >>> isinstance(envs, ServesFunctional)
    False

**Kernels.** A `Chain` calls nested kernels. A `HeldKernel` is a kernel together with its state. `HasKernels` is a mixin
for environments with kernels inside. It adds the attributes of the kernels' wrappers. `Moments` are a count, means and
variances in the state of a kernel.

    >>> from arrayferry_gym.extending import Chain, HasKernels, HeldKernel, Moments
    >>> from arrayferry_gym.wrappers import NormalizeObservation, kernels
    >>> inside = kernels.Spaces(spaces.Box(0, 1, (2,)), spaces.Discrete(2))
    >>> (state,) = Chain((kernels.NormalizeObservation(),), inside).init(np, 3, None)
    >>> isinstance(state.lasting["obs_rms"], Moments), state.lasting["obs_rms"].read()
    (True, {'count': 0, 'mean': [0.0, 0.0], 'var': [1.0, 1.0]})
    >>> (held,) = HasKernels.held_by(NormalizeObservation(gym.make("CartPole-v1")))
    >>> isinstance(held, HeldKernel), held.name
    (True, 'obs_rms')

**Keys.** An `Immutable` does not change after construction, and is compared by its contents. `is_made` tells whether
its construction has ended. `memo_of` returns the dict in which an `Immutable` stores computed values. A `Key` hashes
the values that compiled code depends on, and `parts_of` returns the parts of a value to compare.

    >>> from arrayferry_gym.extending import Immutable, Key, is_made, memo_of, parts_of
    >>> class Limits(Immutable):
    ...     def __init__(self, high):
    ...         self.high = high
    >>> limits = Limits(np.ones(2))
    >>> limits == Limits(np.ones(2)), is_made(limits), limits.high.flags.writeable, "key" in memo_of(limits)
    (True, True, False, True)
    >>> Key(parts_of(np.ones(2))) == Key(parts_of(np.ones(2)))
    True
"""

from __future__ import annotations

from ._actions.fitter import Fitter, bounds_of
from ._actions.quick import Judge
from ._adapters.spaces import converted_space, original_space
from ._arrays import (
    as_rewards,
    cast_clipped,
    cast_fitting,
    first_wrong,
    held_dtype,
    mapped,
    namespace,
    select,
    to_shape,
)
from ._episodes import (
    RULES,
    Episodes,
    ServesFunctional,
    autoreset_mode_of,
    before_resets,
    checked_reset,
    summed,
)
from ._keys import Immutable, Key, is_made, memo_of, parts_of
from ._options.env_options import reset_mask_of
from ._options.libraries import Libraries
from ._options.refusals import refuse_batch
from ._spaces.batches import batch_of_actions
from ._spaces.foreign import gymnasium_space, space_of
from ._spaces.trees import ARRAYS, build, leaves, split
from .wrappers._attributes import HasKernels
from .wrappers._driver import HeldKernel
from .wrappers._kernels.kernel import Chain
from .wrappers._kernels.moments import Moments

__all__ = [
    "ARRAYS",
    "RULES",
    "Chain",
    "Episodes",
    "Fitter",
    "HasKernels",
    "HeldKernel",
    "Immutable",
    "Judge",
    "Key",
    "Libraries",
    "Moments",
    "ServesFunctional",
    "as_rewards",
    "autoreset_mode_of",
    "batch_of_actions",
    "before_resets",
    "bounds_of",
    "build",
    "cast_clipped",
    "cast_fitting",
    "checked_reset",
    "converted_space",
    "first_wrong",
    "gymnasium_space",
    "held_dtype",
    "is_made",
    "leaves",
    "mapped",
    "memo_of",
    "namespace",
    "original_space",
    "parts_of",
    "refuse_batch",
    "reset_mask_of",
    "select",
    "space_of",
    "split",
    "summed",
    "to_shape",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
