"""This module has moved to another package, which the error names."""

from ._options.refusals import moved

raise moved("testing")
