"""Code that runs in a separate process, because it imports libraries and plugins, which may hang, crash or print.

Public functions are tasks. Their results are sent to `_ask`, as JSON in a file. Before something that may end the
process, they call `step`, so that an error can say which step failed, and what to do about it.
"""
