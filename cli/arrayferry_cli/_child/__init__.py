"""What runs in a process of its own, because it imports libraries and plugins: they may hang, crash or print.

Public functions are tasks. What they return is sent to `_ask`, as JSON in a file. Before something that may end the
process, they call `step`, so that the step which failed is known, and what to do about that.
"""
