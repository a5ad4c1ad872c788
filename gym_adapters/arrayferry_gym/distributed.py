"""A module that was moved to another package. Its import raises an error that names the package."""

from ._options.refusals import moved

raise moved("distributed")
