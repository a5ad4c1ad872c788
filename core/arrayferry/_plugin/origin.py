"""`Origin`: the base class of `Backend` and `Source`, which describe libraries that arrays are read from."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from arrayferry._errors import BackendUnavailableError, describe_error
from arrayferry._types import AnyArray
from arrayferry._utilities.packages import is_installed
from arrayferry._utilities.text import never_raises

from .devices import Devices
from .dlpack import DLPack

Memory = Literal["writable", "immutable", "lazy", "unknown"]

NEVER_CAUGHT = (KeyboardInterrupt, GeneratorExit, MemoryError)
"""Exceptions that are not caught while a plugin or library is loaded, since they are not its fault."""


class Origin(ABC):
    """The base class of `Backend` and `Source`, whose docstrings describe the attributes."""

    _role: ClassVar[str]
    name: str
    package: str
    array_types: tuple[str, ...]
    install: str = ""
    memory: Memory = "writable"
    to_numpy_shares: bool | None = None
    devices: Devices = Devices()
    dlpack: DLPack | None = None
    replaces: tuple[str, ...] = ()

    @abstractmethod
    def to_numpy(self, x: AnyArray) -> Any:
        """Return the values of an array as a `numpy.ndarray` of the same shape and dtype.

        The result may be a view of the array's memory. If the library guarantees that its arrays never change, a
        view must be read-only. The array itself must not be changed.

        Args:
            x: an array of this library, of any shape, dtype and device.

        Raises:
            ConversionError: besides its values, the array contains information that would be lost, such as units. The
                reason should name this information, and the remedy should say what the user can call first.
            TracedValueError: the array is a traced value.
        """

    # Optional members.

    def device_of(self, x: AnyArray) -> str:
        """Return the name of the device that an array is on, as `devices.names` spells it."""
        return "cpu"

    def to_numpy_many(self, xs: Sequence[Any]) -> Sequence[Any]:
        """Return the values of several arrays as `to_numpy` does.

        Override this method if one call for all arrays is cheaper than one call for each.
        """
        return [self.to_numpy(x) for x in xs]

    def is_traced(self, x: AnyArray) -> bool:
        """Return whether an array is a traced value, which has no values yet, as inside `jit`."""
        return False

    def is_sparse(self, x: AnyArray) -> bool:
        """Return whether an array is sparse. The option `sparse` decides what happens to sparse arrays."""
        return False

    def to_dense(self, x: AnyArray) -> Any:
        """Return the values of a sparse array as a dense array of the same library, or as a `numpy.ndarray`."""
        return self.to_numpy(x)

    def address(self, x: AnyArray) -> int | None:
        """Return the address of the first element, or None if reading the address takes over a tenth of a microsecond.

        arrayferry compares addresses to check that direct converters of other plugins follow the option `copy`.
        """
        return None

    # Availability of the library.

    @property
    def installed(self) -> bool:
        """Whether the library's package can be found, without importing it."""
        return is_installed(self.package)

    def problem(self) -> BackendUnavailableError | None:
        """Return why the library cannot be used here, as an error to raise, or None if it can be used.

        This method imports the library. Override `check` to add tests.
        """
        if not self.installed:
            top_package = self.package.partition(".")[0]
            details = "" if top_package == self.name else f": there is no module {top_package!r}"
            return BackendUnavailableError(
                f"{self.name} is not installed{details}",
                remedy=f"Run: pip install {self.install}"
                if self.install
                else "Install the library, as its documentation says.",
                backend=self.name,
            )
        failure = failed_import(self.name, self.package, self.install)
        if failure is not None:
            return failure
        try:
            reason = self.check()
        except NEVER_CAUGHT:
            raise
        except BaseException as error:
            reason = f"check() of its plugin raised {describe_error(error)}"
        if reason is None:
            return None
        return BackendUnavailableError(
            f"{self.name} is installed, but cannot be used here: {reason}", backend=self.name
        )

    def check(self) -> str | None:
        """Return why no array can be made here although the import succeeds, or None if arrays can be made."""
        return None

    @never_raises
    def __repr__(self) -> str:
        return f"<{self._role} {self.name:.80}>"


def failed_import(name: str, package: str, install: str) -> BackendUnavailableError | None:
    """Import the package of a library. Return the error to raise if the import fails, else None.

    Args:
        name: the name of the library in the message.
        package: the module to import, which is installed.
        install: the argument of `pip install`, or "" if it is not known.
    """
    try:
        importlib.import_module(package)
    except NEVER_CAUGHT:
        raise
    except BaseException as error:
        # make one line of the text, without the lines of "=" that some libraries print around it
        error_text = " ".join(word for word in str(error).split() if word.strip("="))
        failure = BackendUnavailableError(
            f"{name} is installed, but importing {package} failed with {type(error).__name__}: {error_text}",
            remedy="Reinstall it"
            + (f", for instance: pip install --force-reinstall {install}" if install else "."),
            backend=name,
        )
        failure.__cause__ = error
        return failure
    return None


class Source(Origin):
    """Objects that are not arrays, but that arrays are read from, such as table columns and datasets in files.

    Subclass it. An object of a source is converted if it is the whole value. Inside a tree, it is converted only if
    it is sparse, or with `unknown="convert"`. A source cannot be a target.

    Attributes:
        name: the name in messages, such as `"pandas"`.
        package: the module that defines the types, such as `"pandas"`.
        array_types: dotted paths of the types of the objects, as a user would write them, such as `"pandas.Series"`.
            They are looked up only after their top-level package has been imported.
        install: the argument of `pip install` for the library. If empty, errors suggest no command, since a
            guessed name may belong to another project.
        memory: what the library guarantees about the values. "writable": they may change in place. "immutable": they
            never change. "lazy": they are read or computed on demand, and never change. "unknown": nothing is
            guaranteed, and memory is shared only with `copy=False`.
        to_numpy_shares: whether the result of `to_numpy` uses the memory of its argument. True: the result is a view.
            False: nothing else uses the memory of the result. None: this depends on the argument.
        devices: an object that describes the devices of the values. The default describes host memory only.
        dlpack: an object that exchanges values by DLPack, or None if the library does not support DLPack.
        replaces: names of sources that this source replaces if both are installed.

    Examples:
        >>> import arrayferry as af
        >>> class Tables(af.Source):
        ...     name = "mytables"
        ...     package = "mytables"
        ...     array_types = ("mytables.Column",)
        ...     def to_numpy(self, x):
        ...         if x.has_gaps:
        ...             raise af.ConversionError("a column with gaps has no array", remedy="Call x.fill(0) first.")
        ...         return x.values
        >>> Tables()
        <Source mytables>
    """

    _role = "Source"
