"""How much memory a function takes."""

import gc
import tracemalloc


def most_memory(function):
    """Return how much memory NumPy and Python take at most while a function runs, and its result."""
    gc.collect()
    tracemalloc.start()
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()
