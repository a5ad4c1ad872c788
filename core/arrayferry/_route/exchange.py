"""`Exchange`: the exchange of one array by DLPack, on the host or on a device."""

from __future__ import annotations

from typing import Any, NamedTuple

from arrayferry._errors import ArrayFerryError, describe_error
from arrayferry._observers import note
from arrayferry._options import Options
from arrayferry._plugin.call import call_backend, is_out_of_memory, warn_of_plugin
from arrayferry._plugin.origin import Origin
from arrayferry._types import AnyArray

from .devices import tells_when_done
from .memory import COPIED, copy_required, decide, runs_backwards, share_memory
from .narrowing import narrow_on_device
from .queued import keep_source
from .via_numpy import RoutedArray


class NotHandledError(Exception):
    """A direct converter, or DLPack, does not handle an array."""

    def __init__(self, by: object) -> None:
        super().__init__(by)
        self.by = by


class Exchange(NamedTuple):
    """A step of a route in which one library accepts an array of another library by DLPack.

    Attributes:
        source: the backend of the array at the start of the route.
        before: the backend of the array before this step.
        after: the backend of the result.
        device: the device of the result, as `DLPack.load` accepts it.
        options: the user's options.
        device_name: the name of the device of the array.
    """

    source: Origin
    before: Any
    after: Any
    device: Any
    options: Options
    device_name: str

    def take(self, array: RoutedArray, *, moves: bool) -> RoutedArray:
        """Share an array by DLPack. If it must not be shared, one of the two libraries copies it on the device of the array.

        Args:
            array: the array.
            moves: whether a later step moves the result to another device.

        Raises:
            NotHandledError: the array must take another route.
            CopyRequiredError: `copy` is False, and the array cannot be shared.
        """
        giver, taker = self.before, self.after
        sharing = decide(self.source, taker, self.options.copy)
        on_host = self.device_name == "cpu"
        try:
            x = self._fitting(array.value)
            copy_reason = array.copied or (COPIED if x is not array.value else "")
            may_hand_over = copy_reason if on_host else giver.memory == "immutable" and moves
            if sharing == "share" or may_hand_over:
                return RoutedArray(self._handed_over(x), copy_reason)
            y = self._copied_by_target(x)
            if y is not None:
                return RoutedArray(y, COPIED)
            if copy_reason:
                return RoutedArray(self._handed_over(x), COPIED)
            compact = self._compact(x)
            return RoutedArray(taker.dlpack.load(giver.dlpack.export(compact), self.device), COPIED)
        except (NotHandledError, ArrayFerryError):
            raise
        except Exception as error:
            if is_out_of_memory(error, giver, taker):
                raise
            if not on_host and not isinstance(error, NotImplementedError):
                warn_of_plugin(
                    f"{giver.name} could not export an array to {taker.name} on its device "
                    f"({describe_error(error)}), so the array goes through host memory"
                )
            raise NotHandledError("dlpack") from error

    def _copied_by_target(self, x: AnyArray) -> Any:
        """Let the target's library copy an array, or return None if the source's library must copy it.

        On a GPU, the target's library copies only if arrays of one of the two libraries never change. The two libraries
        then use different streams, so one library could reuse shared memory while the other still has work queued.
        """
        giver, taker = self.before, self.after
        if self.device_name == "cpu":
            if taker.memory != "writable":
                return None
            return taker.copy(taker.dlpack.load(giver.dlpack.export(x), self.device))
        if not tells_when_done(taker) or "immutable" not in (giver.memory, taker.memory):
            return None
        shared_array = self._handed_over(x)
        y = taker.copy(shared_array)
        source_waits = _wait_for(y, giver, taker)
        # later work of the source's library waits for the copy, so `x` may be freed and its memory reused
        if source_waits and giver.memory == "immutable":
            return y
        is_kept = keep_source(taker, shared_array, y)
        return y if is_kept and (giver.memory == "immutable" or source_waits is not None) else None

    def _fitting(self, x: AnyArray) -> Any:
        """Return `x`, or a copy on the same device if the target does not accept the dtype or the strides of `x`."""
        giver, taker, device_name = self.before, self.after, self.device_name
        dtypes = call_backend(taker, "dtypes")
        dtype_name = call_backend(giver, "dlpack.dtype_of", x)
        lacks_dtype = dtypes is not None and dtype_name not in dtypes
        if lacks_dtype and device_name == "cpu":
            raise NotHandledError("dlpack")
        if not lacks_dtype and not runs_backwards(x):
            return x
        refusal = f"has no {dtype_name} here" if lacks_dtype else "does not accept negative strides"
        reason = f"{taker.name} {refusal}"
        if self.options.copy is False:
            raise copy_required(reason)
        if lacks_dtype:
            with giver.devices.use(device_name):
                fitting = narrow_on_device(x, dtype_name, giver, taker, self.options.narrowing)
        else:
            fitting = giver.copy(x)
        if fitting is None:
            raise TypeError(f"{reason}, and {giver.name} could not cast the array")
        note(giver.name, taker.name, "copied first:", reason)
        keep_source(giver, x, fitting)
        return fitting

    def _compact(self, x: AnyArray) -> Any:
        """Copy an array on its device, so that the target can accept it."""
        y = self.before.dlpack.compact(x)
        if y is NotImplemented:
            y = self.before.copy(x)
        keep_source(self.before, x, y)
        return y

    def _handed_over(self, x: AnyArray) -> Any:
        """Share an array. If the target refuses it and a copy is allowed, share a compact copy on the same device."""
        giver, taker, copy = self.before, self.after, self.options.copy
        try:
            y = taker.dlpack.load(giver.dlpack.export(x), self.device)
        except ArrayFerryError:
            raise
        except Exception as error:
            on_cpu = self.device_name == "cpu"
            if on_cpu or is_out_of_memory(error, giver, taker):
                raise
            if copy is False:
                reason = f"{taker.name} refused it ({describe_error(error)})"
                raise copy_required(reason) from error
            note(giver.name, taker.name, "DLPack accepted only a compact copy", error=error)
            return taker.dlpack.load(giver.dlpack.export(self._compact(x)), self.device)
        if copy is False and share_memory(x, giver, y, taker) is False:
            raise copy_required(f"{taker.name} copied the values")
        return y


def _wait_for(y: AnyArray, before: Any, after: Any) -> bool | None:
    """Make later work of the library `before` wait until `y`, an array of the library `after`, is computed.

    Returns:
        Whether all later work of `before` waits. None after an error, since it is then unknown whether any work waits.
    """
    try:
        first_element = y[(0,) * (y.ndim - 1) + (slice(0, 1),)] if y.ndim else y
        return bool(before.dlpack.wait(after.dlpack.export(first_element)))
    except Exception as error:
        if is_out_of_memory(error, before, after):
            raise
        return None
